"""Compile C with gcc into files cached by content.

These are the runtime, generated programs, a NIC's half, and the bench's tools.

A file in the cache is named after a digest of everything that went into it (sources, headers of the include
folders, flags, compiler), so a change of any makes a new file and nothing is ever rebuilt in place; two processes
that build the same at once both succeed. Several sources are compiled side by side, one gcc for each CPU.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.switch.system.cache_folder import BuildError, FullCacheError, cache_lock, safe_cache_dir, unwritten

CFLAGS = ("-O2", "-g1", "-std=gnu11", "-Wall", "-Wextra", "-fno-strict-aliasing")
"""Flags of every build; callers add to them.

-g1 has the lines for profiles and sanitizers, at a third of -g's time.
"""
SHARED_FLAGS = ("-shared", "-fPIC", "-fvisibility=hidden")
SYSTEM_DIR = Path(__file__).parent
"""Include folder of shared_wire.h, which the switch and a NIC share."""
_CURE = "Debian, Ubuntu: apt-get install gcc libc6-dev"

Running = tuple[list[str], "subprocess.Popen[str]"]
"""A command, and the process that runs it."""


class MissingToolError(BuildError):
    """Missing compiler; the message names what to install."""


def build_shared(
    sources: Iterable[Path | str],
    include_dirs: Iterable[Path | str] = (),
    flags: Iterable[str] = (),
    tag: str = "lib",
) -> Path:
    """Return a shared object of `sources`, named `{tag}-{digest}.so` in the cache. Raises BuildError."""
    return _name_build(sources, include_dirs, (*SHARED_FLAGS, *flags), tag, ".so").make()


def build_program(
    sources: Iterable[Path | str],
    include_dirs: Iterable[Path | str] = (),
    flags: Iterable[str] = (),
    tag: str = "tool",
) -> Path:
    """Return an executable of `sources`, named `{tag}-{digest}` in the cache. Raises BuildError."""
    return _name_build(sources, include_dirs, tuple(flags), tag, "").make()


def build_extension(source: Path, flags: Iterable[str], tag: str, include_dirs: Iterable[Path] = ()) -> Path:
    """Return a module of Python made of `source`, named `{tag}-{ABI}-{digest}.so` in the cache.

    Of processes that ask for it at once, one compiles. Raises MissingToolError and BuildError.
    """
    if lacking := missing_for_extensions():
        raise MissingToolError(f"missing {'; '.join(lacking)}")
    include = sysconfig.get_paths()["include"]
    abi = sysconfig.get_config_var("SOABI")
    build = _name_build([source], include_dirs, (*SHARED_FLAGS, f"-I{include}", *flags), f"{tag}-{abi}", ".so")
    if build.target.exists():
        return build.target
    with cache_lock(tag):
        return build.make()


def missing_for_extensions() -> list[str]:
    """Return what this machine lacks to build a module of Python from C, each with its cure."""
    lacking = [] if _compiler() else [f"a C compiler ({_CURE})"]
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        lacking.append(f"Python.h in {include} (Debian, Ubuntu: apt-get install python3-dev)")
    return lacking


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


@dataclass(frozen=True)
class _Build:
    """A file of the cache, and the way gcc makes it."""

    command: list[str]
    includes: list[str]
    sources: list[Path]
    libraries: list[str]
    target: Path

    def make(self) -> Path:
        """Return the file, made in a temporary folder beside it unless it exists. Raises BuildError."""
        if not self.target.exists():
            try:
                with tempfile.TemporaryDirectory(prefix=f".{self.target.name}.", dir=self.target.parent) as name:
                    self._make_in(Path(name))
            except OSError as error:
                raise unwritten(self.target.parent, error) from None
        return self.target

    def _make_in(self, folder: Path) -> None:
        parts = [*self.includes, *map(str, self.sources)]
        if len(self.sources) > 1:
            parts = self._compile_beside(folder)
        output_file = folder / "whole"
        self._finish([_start([*self.command, *parts, "-o", str(output_file), *self.libraries], folder)])
        os.chmod(output_file, 0o755)
        os.replace(output_file, self.target)

    def _compile_beside(self, folder: Path) -> list[str]:
        """Compile with one gcc for each CPU, and return the object files in `folder`.

        The longest sources are dealt out first.
        """
        command = [word for word in self.command if word != "-shared"] + self.includes
        longest_first = [str(path.resolve()) for path in sorted(self.sources, key=lambda path: -path.stat().st_size)]
        cpus = os.cpu_count() or 1
        hands = [longest_first[number::cpus] for number in range(cpus)]
        self._finish([_start([*command, "-c", *hand], folder) for hand in hands if hand])
        return [str(folder / f"{path.stem}.o") for path in self.sources]

    def _finish(self, running: list[Running]) -> None:
        """Wait for all; the words of the first that failed become the BuildError."""
        outputs = [process.communicate()[1] for _, process in running]
        for (command, process), text in zip(running, outputs, strict=True):
            if process.returncode:
                if isinstance(error := unwritten(self.target.parent, text), FullCacheError):
                    raise error
                words = " ".join(command)
                raise BuildError(f"gcc failed on {self.target.name}:\n{text.strip()}\n(command: {words})")


def _name_build(
    sources: Iterable[Path | str],
    include_dirs: Iterable[Path | str],
    flags: tuple[str, ...],
    tag: str,
    suffix: str,
) -> _Build:
    """Name a build after the digest of what goes into it. Raises BuildError."""
    compiler = _compiler()
    if compiler is None:
        raise MissingToolError(f"gcc is not on PATH: install it ({_CURE})")
    files, includes = [Path(path).absolute() for path in sources], [Path(path).absolute() for path in include_dirs]
    digest = hashlib.sha256()
    stat = os.stat(compiler)
    digest.update(repr((compiler, stat.st_size, stat.st_mtime_ns, CFLAGS, flags)).encode())
    for path in [*files, *(header for folder in includes for header in sorted(folder.glob("*.h")))]:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise BuildError(f"{path}: {error.strerror}") from None
        digest.update(path.name.encode() + b"\0%d\0" % len(text) + text)
    libraries = [flag for flag in flags if flag.startswith("-l")]
    plain = [flag for flag in flags if not flag.startswith("-l")]
    target = safe_cache_dir() / f"{tag}-{digest.hexdigest()[:20]}{suffix}"
    return _Build([compiler, *CFLAGS, *plain], [f"-I{path}" for path in includes], files, libraries, target)


def _start(command: list[str], folder: Path) -> Running:
    """Start gcc, which says errors of the system in English and keeps its temporary files in `folder`."""
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    return command, process
