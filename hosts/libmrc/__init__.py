"""The library that programs written for RDMA load, `libmrc.so`, in C.

It has the functions of mrc.h, mrc_ctl.h and libibverbs. `library()` builds it with gcc at first use. It talks to the
host's NIC process (hosts/nicd) by `src/nicd.h`.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path

from mrc_testbed.native_build.cache import SANITIZER_FLAGS
from mrc_testbed.switch.system.gcc import build_shared

SOURCES = Path(__file__).with_name("src")
INCLUDE = Path(__file__).with_name("include")
_LINKER_FLAGS = ("-Wl,-soname,libmrc.so", "-Wl,-Bsymbolic-functions")
"""Flags by which a program finds the library by its name, as `mrc exec` has loaded it.

The library's own calls reach its own functions, not those of a shim that is loaded before it.
"""
VERBS_FOLDER = INCLUDE / "without-libibverbs" / "infiniband"
"""Folder of what libmrc has of libibverbs' header; the library is built with it."""
VERBS_HEADER = Path("/usr/include/infiniband/verbs.h")
WIRE_HEADER = SOURCES / "nicd.h"
SOCKET_VARIABLE = "MRC_NIC_SOCKET"
"""Environment variable of a program: path of the socket of its host's NIC process."""
START_VARIABLE = "MRC_NIC_START"
"""Environment variable of a program: command that starts that process, for when it does not answer."""


def library() -> Path:
    """Return the path of libmrc, built when need be.

    Raises BuildError, MissingToolError without a compiler.
    """
    versions = SOURCES / "libmrc.map"
    # The name of a build is a digest of its flags and sources, and a script of the linker is neither.
    digest_flag = f"-DLIBMRC_VERSIONS={zlib.crc32(versions.read_bytes())}"
    linker_flags = (*_LINKER_FLAGS, f"-Wl,--version-script={versions}", digest_flag)
    flags = ("-pthread", *SANITIZER_FLAGS, *linker_flags)
    return build_shared(sorted(SOURCES.glob("*.c")), [SOURCES, INCLUDE, VERBS_FOLDER], flags, "libmrc")


def library_folder() -> Path:
    """Return a folder in which libmrc has the names by which programs ask for it.

    Raises BuildError, OSError.
    """
    path = library()
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name in ("libmrc.so", "libibverbs.so.1"):
        with suppress(FileExistsError):
            (folder / name).symlink_to(path)
    return folder


def compile_flags() -> list[str]:
    """Return the flags for gcc of a program that uses mrc.h. Raises BuildError.

    Where Debian's libibverbs-dev is not installed, what libmrc has of its header is taken instead.
    """
    libraries = [f"-L{library_folder()}", "-lmrc"]
    if VERBS_HEADER.exists():
        return ["-I", str(INCLUDE), *libraries, "-libverbs"]
    return ["-I", str(INCLUDE), "-I", str(INCLUDE / "without-libibverbs"), *libraries]
