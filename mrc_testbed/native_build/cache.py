"""Builds in the cache, found by the digest of their sources and put before the Python files at import.

A build is a folder `compiled-{digest}` with one shared object for each module and one that holds the code of all. The
digest covers the sources, the interpreter and the machine, so a build is either right or not found.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from mrc_testbed.native_build.modules import C_MODULES, ROOT, compiled_files, module_of, source_files
from mrc_testbed.switch.system import ownership
from mrc_testbed.switch.system.cache_folder import cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

PREFIX = "compiled-"
GROUP = "mrc_compiled"
LIBRARY = f"{GROUP}__mypyc"
"""Module that holds the machine code of all; mypyc names it after the group."""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
REQUIRED_MODULE = "mypy_extensions"
"""Package that the machine code imports (build.py: for_mypyc).

Its absence from an environment may go unnoticed.
"""
SANITIZER_FLAGS = ("-O0", "-g1", "-fsanitize=address") if os.environ.get("MRC_SANITIZE") == "1" else ()
"""Flags with which gcc has AddressSanitizer watch our C.

MRC_SANITIZE=1 asks for them, with libasan in LD_PRELOAD.
"""


@dataclass(frozen=True)
class EngineForm:
    """Form in which this process runs the engine."""

    active: bool
    """Modules of ours are loaded as machine code."""
    reason: str
    """Reason, in a few words; how to change it."""


@cache
def digest() -> str:
    """20 hexadecimal digits over the sources, the interpreter and the machine."""
    hasher = hashlib.blake2b(f"{SUFFIX} {sys.version} {os.uname().machine} {SANITIZER_FLAGS}".encode(), digest_size=10)
    for path in source_files():
        data = (ROOT / path).read_bytes()
        hasher.update(f"\0{path.as_posix()}\0{len(data)}\0".encode() + data)
    return hasher.hexdigest()


def build_dir() -> Path:
    """Folder of the build of these sources, whether it is there or not."""
    return cache_dir() / f"{PREFIX}{digest()}"


def remove_builds(keep: int) -> list[Path]:
    """Delete all but the `keep` builds used last, and return those deleted; needs the lock of build.py."""
    builds = sorted(cache_dir().glob(f"{PREFIX}*/"), key=lambda path: -path.stat().st_mtime)
    stale_builds = [path for path in builds if path != build_dir()][max(0, keep - build_dir().is_dir()) :]
    for path in stale_builds:
        shutil.rmtree(path, ignore_errors=True)
    return stale_builds


class CompiledFinder(MetaPathFinder):
    """Import of the modules of one build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = {LIBRARY: f"{LIBRARY}{SUFFIX}"}
        for path in compiled_files():
            self._files[module_of(path)] = f"{module_of(path).replace('.', '/')}{SUFFIX}"
        # Modules in C are in the library itself, whose functions they call.
        for path in map(Path, C_MODULES):
            self._files[module_of(path)] = self._files[LIBRARY]

    def files(self) -> Iterator[Path]:
        """All files of the build."""
        return (self.folder / file for file in self._files.values())

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        path = str(self.folder / file)
        return spec_from_file_location(fullname, path, loader=ExtensionFileLoader(fullname, path))


_state: EngineForm | None = None


def state() -> EngineForm:
    """Form in which this process runs the engine; use() is called for it."""
    return use()


def use() -> EngineForm:
    """Load the build of these sources from now on, if there is one and MRC_COMPILED is not 0."""
    global _state
    if _state is not None:
        return _state
    if os.environ.get("MRC_COMPILED") == "0":
        _state = EngineForm(False, "MRC_COMPILED=0")
    else:
        try:
            _state = _find_form()
        except OSError as error:
            cure = "set MRC_CACHE_DIR to a folder of yours"
            _state = _not_used(f"{cache_dir()} cannot be read ({error.strerror}): {cure}")
    return _state


def _find_form() -> EngineForm:
    """Load the build of these sources where the cache has one.

    Raises OSError when the cache cannot be read.
    """
    try:
        builds = [name for name in os.listdir(cache_dir()) if name.startswith(PREFIX)]
    except FileNotFoundError:
        builds = []
    if not builds:
        return EngineForm(False, "not built yet: mrc compile")
    if (folder := build_dir()).name not in builds:
        return EngineForm(False, "built from other sources: mrc compile")
    return _load(folder)


def _not_used(reason: str) -> EngineForm:
    """Say on stderr, in the command but none of its worker processes, why the Python files run instead."""
    workers = sys.modules.get("multiprocessing.process")
    if sys.stderr is not None and (workers is None or workers.parent_process() is None):
        with contextlib.suppress(OSError, ValueError):  # closed
            print(f"mrc: running the engine in Python: {reason}", file=sys.stderr)
    return EngineForm(False, reason)


def _load(folder: Path) -> EngineForm:
    """Put a build in front of the Python files, unless it cannot be loaded."""
    if importlib.util.find_spec(REQUIRED_MODULE) is None:
        python = f"{sys.executable} -m pip install {REQUIRED_MODULE}"
        return _not_used(f"{folder} needs {REQUIRED_MODULE}, which this environment lacks: {python}")
    if reason := ownership.refusal(folder.parent) or ownership.refusal(folder):
        return _not_used(f"a build that another user could have made is not loaded: {reason}; then mrc compile --force")
    finder = CompiledFinder(folder)
    if path := next((path for path in finder.files() if not os.access(path, os.R_OK)), None):
        return _not_used(f"{path} is missing or cannot be read: mrc compile --force")
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(LIBRARY)
    except ImportError as error:
        sys.meta_path.remove(finder)
        return _not_used(f"{folder} cannot be loaded ({error}): mrc compile --force")
    return EngineForm(True, str(folder))
