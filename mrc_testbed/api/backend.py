"""Operations of a live or a virtual fabric for the Python API; in `live.py` and `virtual.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from mrc_testbed.api.records import NamedFault, PacketWay, PortCount
from mrc_testbed.faults import FaultTarget
from mrc_testbed.topologies.plan import Plan

EventListener = Callable[[str, dict[str, Any]], None]
"""Callback for (host, event) with events as agents report them (hosts/agent/event_json.py).

The host is empty for events of the controller.
"""


@dataclass(frozen=True, slots=True)
class TransferOrder:
    """A transfer to begin. `content`: a file, bytes, or how many random ones."""

    source: str
    destination: str
    content: Path | bytes | int
    size_bytes: int
    rate_bps: float | None
    chunk_bytes: int
    transport: str


class FabricBackend(Protocol):
    """One form of a fabric, open from `open` to `close`. Times are its clock's, seconds."""

    @property
    def plan(self) -> Plan: ...

    @property
    def faults(self) -> FaultTarget:
        """Return the target that faults act on."""
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held, nothing is told."""
        ...

    def now(self) -> float: ...

    def open(self) -> None:
        """Bring it up."""

    def listen(self, listener: EventListener) -> None:
        """Give `tell` every event from now on, from any thread, one at a time."""

    def close(self) -> None:
        """Remove everything. Idempotent."""

    def wait(self, condition: Callable[[], bool], limit_s: float | None) -> bool:
        """Let time pass until `until()`, which is asked again after events; False: the limit came first."""
        ...

    def send(self, order: TransferOrder) -> int:
        """Begin a transfer; its number, by which its source tells of it."""
        ...

    def read(self, source: str, number: int) -> bytes:
        """The bytes that a transfer left at its receiver."""
        ...

    def forget(self, source: str, number: int, qpn: int | None) -> None:
        """Close the QP of a transfer that is over, and drop its bytes."""

    def change_denylist(self, op: Literal["deny", "allow", "clear"], entry: dict[str, str]) -> None:
        """Deny or allow a place (mrc_testbed.faults.places.denylist_entry) on all hosts, or clear their lists."""

    def health(self, source: str, destination: str) -> list[dict[str, Any]]:
        """Rows of hosts/agent/path_health.py."""
        ...

    def trace(self, source: str, destination: str, ev: int, plane: int) -> PacketWay: ...

    def counters(self) -> list[PortCount]: ...

    def findings(self, began: float) -> list[NamedFault]:
        """Faults that the controller has named. Raises VirtualTimeError where there is none."""
        ...
