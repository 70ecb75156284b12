"""The fast NIC's compiled half (native.c), built by gcc at first use and kept in the cache; optional.

Where there is no compiler, no Python.h or no room, the NIC does the same in Python, slower, and says so once in its
log. MRC_NATIVE=0 asks for that. A file in the cache is named after a digest of the source, the compiler's flags and
the interpreter, so that a change of any makes a new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from mrc_testbed.files import ownership
from mrc_testbed.files.cache_folder import cache_dir
from mrc_testbed.hosts.engine.wire.packets import Opcode, Sack, TransportAck, Write
from mrc_testbed.native_build.cache import SANITIZER_FLAGS

SOURCE = Path(__file__).with_name("native.c")
MODULE = "mrc_native"
CFLAGS = ("-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-fno-strict-aliasing", "-fPIC", "-shared", *SANITIZER_FLAGS)
BUILD_LIMIT_S = 60.0
"""A bound: the NIC goes on in Python sooner than it keeps an agent's start waiting, seconds."""

log = logging.getLogger("mrc_testbed.hosts.nic")


class NativeError(Exception):
    """The compiled half cannot be had; the message says why and what would do."""


class NativeMissingError(NativeError):
    """This machine has nothing to build it with. Any other NativeError is a fault of ours."""


@cache
def native() -> ModuleType | None:
    """The compiled module, or None (the reason is logged once)."""
    if os.environ.get("MRC_NATIVE") == "0":
        log.info("MRC_NATIVE=0: the fast NIC does everything in Python")
        return None
    try:
        return load()
    except NativeError as error:
        log.warning("the fast NIC does everything in Python, about 1.5 times slower: %s", error)
        return None


def load() -> ModuleType:
    """Build when need be, import, and teach it the records. Raises NativeError."""
    path = build()
    loader = ExtensionFileLoader(MODULE, str(path))
    spec = spec_from_loader(MODULE, loader)
    try:
        module = module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
        module.setup(Write, Sack, TransportAck, Opcode)
    except (ImportError, ValueError) as error:
        raise NativeError(f"{path}: {error}") from error
    return module


def build() -> Path:
    """The shared object in the cache, compiled unless it is there. Raises NativeError."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NativeMissingError("no C compiler: install gcc (Debian, Ubuntu: apt-get install gcc libc6-dev)")
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        raise NativeMissingError(f"no Python.h in {include}: install it (Debian, Ubuntu: apt-get install python3-dev)")
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    folder = cache_dir()
    try:
        digest = hashlib.sha256(repr((CFLAGS, compiler, str(include), suffix)).encode() + SOURCE.read_bytes())
        target = folder / f"nic-{digest.hexdigest()[:20]}{suffix}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := ownership.refusal(folder):
            raise NativeError(f"nothing is loaded from a cache that another user could change: {reason}")
        if not target.exists():
            with (folder / "nic.lock").open("w") as lock:  # all agents of a fabric start at once: one compiles
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not target.exists():
                    _compile([compiler, *CFLAGS, f"-I{include}", str(SOURCE)], target)
    except OSError as error:
        raise NativeError(f"{error}: set MRC_CACHE_DIR to a folder that can be written") from error
    return target


def _compile(command: list[str], target: Path) -> None:
    """Into a temporary file beside `target`, which takes its name when it is whole."""
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        done = subprocess.run(
            [*command, "-o", temporary], capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S
        )
        if done.returncode:
            raise NativeError(f"gcc failed: {done.stderr.strip()[-2000:]}")
        os.chmod(temporary, 0o755)
        os.replace(temporary, target)
    except subprocess.TimeoutExpired:
        raise NativeError(f"gcc took longer than {BUILD_LIMIT_S:g} s") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
