"""Compile C with gcc into files cached by content: the runtime, generated programs, the bench's tools.

A file in the cache is named after a digest of everything that went into it (sources, headers of the include
folders, flags, compiler), so a change of any makes a new file and nothing is ever rebuilt in place; two processes
that build the same at once both succeed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

CFLAGS = ("-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-fno-strict-aliasing")
"""Flags of every build; callers add to them."""


class BuildError(Exception):
    """gcc is missing, the cache cannot be written, or C code did not compile; the message says the cure."""


def cache_dir() -> Path:
    """$MRC_CACHE_DIR or ~/.cache/mrc-testbed, made if need be. Raises BuildError."""
    path = Path(os.environ.get("MRC_CACHE_DIR") or Path.home() / ".cache" / "mrc-testbed")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{path}: {error.strerror}: set MRC_CACHE_DIR to a folder that can be written") from None
    return path


def build_shared(
    sources: Iterable[Path | str],
    include_dirs: Iterable[Path | str] = (),
    flags: Iterable[str] = (),
    tag: str = "lib",
) -> Path:
    """A shared object of `sources`, named `{tag}-{digest}.so` in the cache. Raises BuildError."""
    return _build(sources, include_dirs, ("-shared", "-fPIC", "-fvisibility=hidden", *flags), tag, ".so")


def build_program(
    sources: Iterable[Path | str],
    include_dirs: Iterable[Path | str] = (),
    flags: Iterable[str] = (),
    tag: str = "tool",
) -> Path:
    """An executable of `sources`, named `{tag}-{digest}` in the cache. Raises BuildError."""
    return _build(sources, include_dirs, tuple(flags), tag, "")


def _build(
    sources: Iterable[Path | str],
    include_dirs: Iterable[Path | str],
    flags: tuple[str, ...],
    tag: str,
    suffix: str,
) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        raise BuildError("gcc is not on PATH: install it (Debian, Ubuntu: apt-get install gcc libc6-dev)")
    sources, includes = [Path(s) for s in sources], [Path(d) for d in include_dirs]
    digest = hashlib.sha256()
    stat = os.stat(compiler)
    digest.update(repr((compiler, stat.st_size, stat.st_mtime_ns, CFLAGS, flags)).encode())
    for path in [*sources, *(h for d in includes for h in sorted(d.glob("*.h")))]:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise BuildError(f"{path}: {error.strerror}") from None
        digest.update(path.name.encode() + b"\0%d\0" % len(text) + text)
    folder = cache_dir()
    target = folder / f"{tag}-{digest.hexdigest()[:20]}{suffix}"
    if not target.exists():
        libraries = [f for f in flags if f.startswith("-l")]
        plain = [f for f in flags if not f.startswith("-l")]
        _compile([compiler, *CFLAGS, *plain, *(f"-I{d}" for d in includes), *map(str, sources)], libraries, target)
    return target


def _compile(command: list[str], libraries: list[str], target: Path) -> None:
    """Run gcc into a temporary file beside `target` and move it there when it is whole."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
    except OSError as error:
        where = f"{target.parent}: {error.strerror}"
        raise BuildError(f"{where}: set MRC_CACHE_DIR to a folder that can be written") from None
    try:
        done = subprocess.run([*command, "-o", temporary, *libraries], capture_output=True, text=True, check=False)
        if done.returncode:
            said = f"{done.stderr.strip()}\n(command: {' '.join(command)})"
            raise BuildError(f"gcc failed on {target.name}:\n{said}")
        os.chmod(temporary, 0o755)
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)
