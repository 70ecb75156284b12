"""Modules that are compiled, and the files that a build depends on."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""Folder that holds our packages."""

COMPILED = (
    "hosts/engine/**/*.py",
    "simulator/events.py",
    "simulator/fabric.py",
    "simulator/frames.py",
    "simulator/host.py",
    "simulator/impairment.py",
    "simulator/ports.py",
    "simulator/switches.py",
    "simulator/trace.py",
)
"""Patterns of files; the `__init__` of a package, which only imports, stays Python."""

READ_TOO = ("compiled/modules.py", "compiled/mypyc_setup.py", "faults/*.py", "simulator/*.py", "topologies/plan/*.py")
"""Files whose types the machine code relies on, or that say how it is made."""


@cache
def compiled_files() -> tuple[Path, ...]:
    """Files that are compiled, sorted, relative to ROOT."""
    return tuple(_matching(COMPILED))


def source_files() -> list[Path]:
    """Files that a build depends on, sorted, relative to ROOT."""
    return _matching((*COMPILED, *READ_TOO))


def module_of(path: Path) -> str:
    """Name of the module in a file relative to ROOT."""
    return ".".join(path.with_suffix("").parts)


def _matching(patterns: tuple[str, ...]) -> list[Path]:
    found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in found if path.name != "__init__.py")
