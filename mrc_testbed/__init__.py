"""Command `mrc`: demo, live fabric, scenarios, P4 programs, captures, benchmarks; the pytest plugin.

`from mrc_testbed import Fabric` is the Python API (api), whose names are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrc_testbed.api import *  # noqa: F403 - its __all__ says what


def __getattr__(name: str) -> Any:
    if name[:1].isupper():
        api = import_module("mrc_testbed.api")
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
