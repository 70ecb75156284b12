"""Check that all machines run the same version, by a digest of the files that run on them."""

from __future__ import annotations

import hashlib
from typing import Final

from mrc_testbed.files.package import PACKAGE

_FOLDERS: Final = (
    "console",
    "controller",
    "faults",
    "files",
    "hosts",
    "ipc",
    "native_build",
    "p4src",
    "switch",
    "topologies",
)
_SUFFIXES: Final = (".py", ".p4", ".c", ".h", ".lark")


def sources_digest() -> str:
    """SHA-256 over the names and bytes of those files of this checkout."""
    total = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*")):
            if path.suffix in _SUFFIXES:
                total.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return total.hexdigest()
