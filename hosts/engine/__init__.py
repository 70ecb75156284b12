"""MRC endpoint without clock and socket.

Parts: requestor and responder, loss recovery, paths, congestion control, codec.

After each call: drain transmit() and events(), re-arm at next_timer() (endpoint.py). LocalError is the caller's fault,
PeerError and WireError the other side's. Names are loaded at first use: `hosts.engine.errors` alone stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mrc_testbed.native_build import use

if TYPE_CHECKING:
    from mrc_testbed.hosts.engine.config import Config
    from mrc_testbed.hosts.engine.endpoint import Endpoint
    from mrc_testbed.hosts.engine.errors import LocalError, PeerError, WireError
    from mrc_testbed.hosts.engine.events import Completion, Status, WriteImmReceived
    from mrc_testbed.hosts.engine.qp import EngineQueuePair, QpAttributes

__all__ = [
    "Completion",
    "Config",
    "Endpoint",
    "EngineQueuePair",
    "LocalError",
    "PeerError",
    "QpAttributes",
    "Status",
    "WireError",
    "WriteImmReceived",
]

use()

_MODULES = {
    "Completion": "events", "Config": "config", "Endpoint": "endpoint", "EngineQueuePair": "qp", "LocalError": "errors",
    "PeerError": "errors", "QpAttributes": "qp", "Status": "events", "WireError": "errors",
    "WriteImmReceived": "events",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
