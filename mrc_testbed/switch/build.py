"""Compile C with gcc into files cached by content: the runtime, generated programs, the bench's tools.

A file in the cache is named after a digest of everything that went into it (sources, headers of the include
folders, flags, compiler), so a change of any makes a new file and nothing is ever rebuilt in place; two processes
that build the same at once both succeed. Several sources are compiled side by side, one gcc for each CPU.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from mrc_testbed.switch import ownership

CFLAGS = ("-O2", "-g1", "-std=gnu11", "-Wall", "-Wextra", "-fno-strict-aliasing")
"""Flags of every build; callers add to them. -g1 has the lines for profiles and sanitizers, at a third of -g's time."""


Running = tuple[list[str], "subprocess.Popen[str]"]
"""A command, and the process that runs it."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes nothing."""


class BuildError(Exception):
    """gcc is missing, the cache cannot be written, or C code did not compile; the message says the cure."""


class FullCacheError(BuildError):
    """The disk of the cache did not take a build; the message names folder and cure."""


def cache_dir() -> Path:
    """$MRC_CACHE_DIR or ~/.cache/mrc-testbed, made if need be. Raises BuildError."""
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # neither HOME nor the list of users knows it
        home = Path("/nonexistent")
    path = Path(os.environ.get("MRC_CACHE_DIR") or home / ".cache" / "mrc-testbed")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = ownership.refusal(path)
    except OSError as error:
        raise unwritten(path, error) from None
    if reason is not None:
        raise BuildError(f"a cache that another user could change is not used: {reason}, or set MRC_CACHE_DIR")
    return path


def unwritten(path: Path | str, error: OSError) -> BuildError:
    """Return the error of a file or folder of the cache that cannot be written."""
    if error.errno in FULL:
        return FullCacheError(f"{path}: {error.strerror}: make room there, or set MRC_CACHE_DIR to another folder")
    return BuildError(f"{path}: {error.strerror}: set MRC_CACHE_DIR to a folder that can be written")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the cache: other processes see all of it or nothing. Raises OSError, which names it."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


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
    files, includes = [Path(s).absolute() for s in sources], [Path(d).absolute() for d in include_dirs]
    digest = hashlib.sha256()
    stat = os.stat(compiler)
    digest.update(repr((compiler, stat.st_size, stat.st_mtime_ns, CFLAGS, flags)).encode())
    for path in [*files, *(h for d in includes for h in sorted(d.glob("*.h")))]:
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
        _make([compiler, *CFLAGS, *plain], [f"-I{d}" for d in includes], files, libraries, target)
    return target


def _make(command: list[str], includes: list[str], sources: list[Path], libraries: list[str], target: Path) -> None:
    """Compile and link in a temporary folder beside `target`, and move the whole result there."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as name:
            _make_in(Path(name), command, includes, sources, libraries, target)
    except OSError as error:
        raise unwritten(target.parent, error) from None


def _make_in(
    folder: Path, command: list[str], includes: list[str], sources: list[Path], libraries: list[str], target: Path
) -> None:
    parts = [str(one) for one in sources]
    if len(sources) > 1:
        parts = _compile_beside([one for one in command if one != "-shared"] + includes, sources, folder, target)
        includes = []
    made = folder / "made"
    _finish([_start([*command, *includes, *parts, "-o", str(made), *libraries], folder)], target)
    os.chmod(made, 0o755)
    os.replace(made, target)


def _compile_beside(command: list[str], sources: list[Path], folder: Path, target: Path) -> list[str]:
    """Object files of `sources`, made in `folder` by one gcc for each CPU; the longest sources are dealt out first."""
    longest_first = [str(one.resolve()) for one in sorted(sources, key=lambda one: -one.stat().st_size)]
    hands = [longest_first[number :: os.cpu_count() or 1] for number in range(os.cpu_count() or 1)]
    running = [_start([*command, "-c", *hand], folder) for hand in hands if hand]
    _finish(running, target)
    return [str(folder / f"{one.stem}.o") for one in sources]


def _start(command: list[str], folder: Path) -> Running:
    """Start gcc, which says errors of the system in English and keeps its temporary files in `folder`."""
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    return command, process


def _finish(running: list[Running], target: Path) -> None:
    """Wait for all; the words of the first that failed become the BuildError."""
    said = [process.communicate()[1] for _, process in running]
    for (command, process), text in zip(running, said, strict=True):
        if process.returncode:
            for number in FULL:
                if os.strerror(number) in text:
                    raise unwritten(target.parent, OSError(number, os.strerror(number)))
            told = " ".join(command)
            raise BuildError(f"gcc failed on {target.name}:\n{text.strip()}\n(command: {told})")
