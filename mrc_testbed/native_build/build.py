"""Compiling our modules by mypyc, into the cache.

One build at a time (a lock that the kernel releases when its holder dies), in a folder of its own that takes its name
when it is whole: a build that was interrupted leaves nothing that is ever loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mrc_testbed.native_build.cache import GROUP, SANITIZER_FLAGS, build_dir, remove_builds
from mrc_testbed.native_build.modules import ACYCLIC, C_INCLUDES, C_MODULES, NARROW, ROOT, compiled_files
from mrc_testbed.switch.system.cache_folder import BuildError, FullCacheError, cache_dir, cache_lock, unwritten
from mrc_testbed.switch.system.gcc import MissingToolError, missing_for_extensions

KEPT_BUILDS = 3
"""Builds that stay in the cache: of this checkout, and of others in use beside it."""
NICE = 10
"""A build gives way to whatever else runs."""
SCRIPT = Path(__file__).with_name("mypyc_setup.py")
"""Program that compiles, in a process of its own."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

Progress = Callable[[str], None]
"""Told what the build is at, in a line."""


def missing_requirements() -> list[str]:
    """Things that a build needs and this machine lacks, each with its cure."""
    packages = {"mypyc": "mypy>=1.15", "setuptools": "setuptools"}
    lacking = [name for name in packages if importlib.util.find_spec(name) is None]
    return [*(f"{name} (pip install '{packages[name]}')" for name in lacking), *missing_for_extensions()]


def build(progress: Progress, *, force: bool = False) -> Path:
    """Return the folder of the build of these sources; compile them first when there is none.

    Raises BuildError, FullCacheError.

    `force`: compile even so. Another build in progress is waited for.
    """
    if lacking := missing_requirements():
        raise MissingToolError(f"cannot compile: missing {'; '.join(lacking)}. Everything works without, slower")
    with cache_lock("compiled", lambda: progress("another build is running: waiting for it")):
        target = build_dir()
        if target.is_dir() and not force:
            os.utime(target)
            return target
        for stale in cache_dir().glob(".compiled-*"):  # we hold the lock: whoever made it is dead
            shutil.rmtree(stale, ignore_errors=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".compiled-", dir=cache_dir()) as name:
                output_folder = Path(name) / "made"
                _compile(Path(name), output_folder, progress)
                if target.is_dir():
                    shutil.rmtree(target)
                output_folder.rename(target)
        except OSError as error:
            raise unwritten(cache_dir(), error) from None
        remove_builds(KEPT_BUILDS)
        return target


def _give_way() -> None:
    """Lower the compiling process's priority, and let it end with its waiting parent, also by `kill -9`."""
    os.nice(NICE)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def for_mypyc(source: str, acyclic: Sequence[str] = (), narrow: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return a module with mypyc's mark for classes without cycles, and narrow types for some attributes.

    The lines keep their numbers, which tracebacks name: the mark takes an empty one in front of the class. In the files
    themselves all this would have everybody install mypy's extensions. Raises BuildError when a class or an
    attribute is not there.
    """
    lines = source.split("\n")
    for name in acyclic:
        index = _class_at(lines, name)
        while lines[index - 1]:  # decorators
            index -= 1
        lines[index - 1] = "@mypyc_attr(acyclic=True, free_list_len=1)"  # the memory of one is kept for the next
    for name, types in (narrow or {}).items():
        begin = _class_at(lines, name)
        for attribute, narrow_type in types.items():
            field_line = f"    {attribute}: int"
            line_index = next(
                (i for i in range(begin + 1, len(lines)) if lines[i] == field_line or lines[i][:1].strip()), begin
            )
            if lines[line_index] != field_line:
                raise BuildError(f"no line {field_line.strip()!r} in class {name} (native_build/modules.py, NARROW)")
            lines[line_index] = f"    {attribute}: {narrow_type}"
    future = lines.index("from __future__ import annotations")
    lines[future] += "; from mypy_extensions import i16, i32, mypyc_attr"
    return "\n".join(lines)


def _class_at(lines: Sequence[str], name: str) -> int:
    """Number of the line of a class, from 0. Raises BuildError when it is not there."""
    for number, line in enumerate(lines):
        if re.match(rf"class {name}\b", line):
            return number
    raise BuildError(f"no class {name}, which is marked for machine code (native_build/modules.py)")


def _compile(work: Path, output_folder: Path, progress: Progress) -> None:
    """Run mypyc and gcc in a process of its own, in a copy of the sources.

    Only the shared objects go into `output_folder`.
    """
    tree = work / "tree"
    package = tree / ROOT.name
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in {**ACYCLIC, **NARROW}:
        made_for = for_mypyc((package / name).read_text(encoding="utf-8"), ACYCLIC.get(name, ()), NARROW.get(name))
        (package / name).write_text(made_for, encoding="utf-8")
    files = [f"{ROOT.name}/{path}" for path in (*map(str, compiled_files()), *C_MODULES)]
    flags = [*SANITIZER_FLAGS, *(f"-I{ROOT.name}/{folder}" for folder in C_INCLUDES)]
    command = [sys.executable, str(SCRIPT), GROUP, str(output_folder), *flags, *files]
    environment = {**os.environ, "PYTHONPATH": str(tree), "MRC_COMPILED": "0", "LC_ALL": "C", "TMPDIR": str(work)}
    environment.pop("LD_PRELOAD", None)  # libasan, which would watch mypyc and gcc themselves
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_give_way,
    )
    output_lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("at: "):
                progress(line[4:].strip())
            else:
                output_lines.append(line)
        if process.wait():
            if isinstance(error := unwritten(cache_dir(), "".join(output_lines)), FullCacheError):
                raise error
            raise BuildError(f"mypyc or gcc failed:\n{''.join(output_lines[-30:]).strip()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
