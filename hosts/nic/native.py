"""The fast NIC's compiled half (native.c), built by gcc at first use and kept in the cache; optional.

Where there is no compiler, no Python.h or no room, the NIC does the same in Python, slower, and says so once in its
log. MRC_NATIVE=0 asks for that.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from mrc_testbed.hosts.engine.wire.packets import Opcode, Sack, TransportAck, Write
from mrc_testbed.native_build.cache import SANITIZER_FLAGS
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import SYSTEM_DIR, build_extension

SOURCE = Path(__file__).with_name("native.c")
MODULE = "mrc_native"

log = logging.getLogger("mrc_testbed.hosts.nic")


@cache
def native() -> ModuleType | None:
    """Return the compiled module, or None (the reason is logged once)."""
    if os.environ.get("MRC_NATIVE") == "0":
        log.info("MRC_NATIVE=0: the fast NIC does everything in Python")
        return None
    try:
        return load()
    except BuildError as error:
        log.warning("the fast NIC does everything in Python, about 1.5 times slower: %s", error)
        return None


def load() -> ModuleType:
    """Return the module, built when need be and set up with the records' classes.

    Raises BuildError, MissingToolError without a compiler.
    """
    path = build_extension(SOURCE, SANITIZER_FLAGS, "nic", [SYSTEM_DIR])
    loader = ExtensionFileLoader(MODULE, str(path))
    spec = spec_from_loader(MODULE, loader)
    try:
        module = module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
        module.setup(Write, Sack, TransportAck, Opcode)
    except (ImportError, ValueError) as error:
        raise BuildError(f"{path}: {error}") from error
    return module
