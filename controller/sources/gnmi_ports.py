"""Port state over gNMI: one Subscribe ON_CHANGE a server, whatever number of switches it speaks for.

The embedded daemon serves all its switches at one address, a BMv2 sidecar may serve one or all: a wildcard
subscription takes whatever is there, and the interface names of a fabric are unique.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from finsy import GNMIPath, GNMIUpdate
from finsy.gnmiclient import GNMIClientError
from finsy.proto import gnmi

from mrc_testbed.controller.api.rpc_client import pause_s
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime.grpc_streams import StatusKeepingGNMIClient
from mrc_testbed.ipc.patience import AnswerLimit
from mrc_testbed.ipc.service import end_tasks

OPER_STATUS = "interfaces/interface[name=*]/state/oper-status"
SYNC_S = 5.0
"""First limit of the first values of all ports, seconds, after which a new stream is tried."""
ENDED_S = 0.05
"""Time in which a stream that ended before it was in sync says so, seconds."""
PORT_REMOVED = "NOT_PRESENT"
"""Status of a port that the server says it no longer has."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class GnmiPortWatch:
    """The subscription to one gNMI server. `run()` is its task."""

    address: str
    on_status: Callable[[str, str, str], None]
    """Callback with (interface, oper-status, source) for the first values and every change."""
    on_change: Callable[[], None]
    """Callback when `is_synced` changes."""
    is_synced: bool = False
    """Whether all first values were received and the stream is open."""
    reason: str = "not tried yet"
    interfaces: set[str] = field(default_factory=set)
    """Interfaces that the server has reported."""
    limit: AnswerLimit = field(default_factory=lambda: AnswerLimit(SYNC_S))
    """Limit of the first values, which grows on a slow machine."""

    @property
    def source(self) -> str:
        return f"gnmi {self.address}"

    def to_json(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "subscribed": self.is_synced,
            "interfaces": len(self.interfaces),
            "reason": self.reason,
        }

    async def run(self) -> None:
        """Subscribe, and subscribe again when the stream ends; until cancelled."""
        attempt = 0
        while True:
            try:
                await self._one_stream()
            except SwitchError as error:
                attempt = 0 if self.is_synced else attempt
                self._set(False, str(error))
            await asyncio.sleep(pause_s(attempt))
            attempt += 1

    async def _one_stream(self) -> None:
        """Follow one stream from connecting to its end. Ends with a SwitchError."""
        try:
            async with StatusKeepingGNMIClient(self.address) as client:
                subscription: Any = client.subscribe()  # finsy's types hide that its updates() can be closed
                subscription.on_change(GNMIPath(OPER_STATUS))
                try:
                    interfaces = await asyncio.wait_for(self._first_values(subscription), self.limit.limit_s)
                    async with aclosing(subscription.updates()) as updates:
                        await self._follow(updates, interfaces)
                finally:
                    subscription.cancel()
        except asyncio.TimeoutError:
            self.limit.miss()
            reason = "no answer to Subscribe: is a gNMI server there?"
            raise SwitchError(f"{self.source}: {reason}", retry=True) from None
        except GNMIClientError as error:
            reason = f"{error.code.name}: {error.message or 'no reason given'}"
            raise SwitchError(f"{self.source}: {reason}", retry=True) from error
        raise SwitchError(f"{self.source}: the server ended the subscription", retry=True)

    async def _first_values(self, subscription: Any) -> set[str]:
        """Return interfaces that the server reported before it was in sync, or before it ended the stream."""
        interfaces: set[str] = set()
        async with aclosing(subscription.synchronize()) as updates:
            async for update in updates:
                interfaces.add(self._take(update))
        return interfaces - {""}

    async def _follow(self, updates: AsyncIterator[GNMIUpdate], interfaces: set[str]) -> None:
        """Take updates until the stream ends.

        finsy does not distinguish the end of a stream from its being in sync; a stream that has ended says so at once.
        A stream that continues was in sync, so an interface that it did not report is gone.
        """
        following: asyncio.Future[GNMIUpdate | None] = asyncio.ensure_future(anext(updates, None))
        try:
            await asyncio.wait({following}, timeout=ENDED_S)
            if following.done() and following.result() is None:
                return
            for interface in self.interfaces - interfaces:
                self.on_status(interface, PORT_REMOVED, self.source)
            self.interfaces = set(interfaces)
            self._set(True, "subscribed")
            while (update := await following) is not None:
                self._take(update)
                following = asyncio.ensure_future(anext(updates, None))
        finally:
            await end_tasks([following])

    def _take(self, update: GNMIUpdate) -> str:
        """Take one value and return its interface; "" for other values than a port's status."""
        elems = update.path.path.elem
        interface = elems[1].key.get("name", "") if len(elems) > 1 else ""
        names = [elem.name for elem in elems]
        if update.typed_value is None and interface and names == ["interfaces", "interface"]:
            status: str | None = PORT_REMOVED
        elif names == ["interfaces", "interface", "state", "oper-status"]:
            status = status_of(update.typed_value)
        else:
            status = None
        if not interface or status is None:
            log.debug("%s: ignored %s", self.source, update)
            return ""
        self.interfaces.add(interface)
        self.on_status(interface, status, self.source)
        return interface

    def _set(self, is_synced: bool, reason: str) -> None:
        if reason != self.reason:
            log.info("%s", reason if not is_synced else f"{self.source}: {reason}, {len(self.interfaces)} interfaces")
        changed = is_synced is not self.is_synced
        self.is_synced, self.reason = is_synced, reason
        if changed:
            self.on_change()


def status_of(value: gnmi.TypedValue | None) -> str | None:
    """Return the string in a value, in any encoding of gNMI; None for other types, NOT_PRESENT if deleted."""
    if value is None:
        return PORT_REMOVED
    match value.WhichOneof("value"):
        case "string_val":
            return value.string_val
        case "ascii_val":
            return value.ascii_val
        case "json_val":
            text = value.json_val
        case "json_ietf_val":
            text = value.json_ietf_val
        case _:
            return None
    try:
        status = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return status.rpartition(":")[2] if isinstance(status, str) else None  # RFC 7951: may carry its module
