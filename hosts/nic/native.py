"""The fast NIC's compiled half (mrc_native.c), which gcc builds at first use, into the cache.

Beside a compiled engine it is a part of that build, for it reads the engine's records where they lie.

Where there is no compiler, no Python.h or no room, the NIC does the same in Python, slower, and says so once in its
log. MRC_NATIVE=0 asks for that.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from mrc_testbed.hosts.engine.wire.packets import FIRST_QPN, Opcode, Sack, TransportAck, Write
from mrc_testbed.native_build import state
from mrc_testbed.native_build.cache import SANITIZER_FLAGS
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import SYSTEM_DIR, build_extension

SOURCE = Path(__file__).with_name("mrc_native.c")
MODULE = "mrc_native"
MODULE_OF_BUILD = f"mrc_testbed.hosts.nic.{MODULE}"
"""Name of that module in a build of the engine (native_build/modules.py)."""
EXAMPLES = (
    Write(FIRST_QPN, 0, 0, 0, 0, Opcode.WRITE_ONLY, 0, 0, 0, 0, 0, b"", 0),
    Sack(FIRST_QPN, 0, 0, 0, 0, 0, 0, 0, 0, None, 0, 0, 0, 0),
    TransportAck(FIRST_QPN, 0, 0, 0, 0, 0, 0, 0),
)
"""Records of each kind that the module makes."""

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
    try:
        module = import_module(MODULE_OF_BUILD) if state().active else build()
        module.setup(*EXAMPLES, Opcode)
    except (ImportError, ValueError) as error:
        raise BuildError(f"{SOURCE}: {error}") from error
    return module


def build() -> ModuleType:
    """Return the module for records in Python. Raises ImportError, BuildError, MissingToolError."""
    path = build_extension(SOURCE, SANITIZER_FLAGS, "nic", [SYSTEM_DIR])
    loader = ExtensionFileLoader(MODULE, str(path))
    module = module_from_spec(spec_from_loader(MODULE, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module
