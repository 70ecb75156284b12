"""RPC service for the paths of the host: health, and the denylist that takes EVs out.

health     peer?             what is known of each path (hosts/agent/path_health.py)
denylist   entries?          the whole list (hosts/agent/denylist.py); `deny`, `allow`: entries to add, to remove
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.denylist import DenylistEntry
from mrc_testbed.ipc.requests import Request
from mrc_testbed.ipc.rpc import Message, RpcCall
from mrc_testbed.ipc.rpc_table import rpc


class HealthRequest(Request, tag="health"):
    """Read the health of each path to `peer`; None: to all peers."""

    peer: str | None = None


class DenylistRequest(Request, tag="denylist"):
    """Set the whole denylist; None: read it."""

    entries: list[Any] | None = None


class DenyRequest(Request, tag="deny"):
    """Add entries to the denylist."""

    entries: list[Any]


class AllowRequest(Request, tag="allow"):
    """Remove entries from the denylist."""

    entries: list[Any]


class PathService:
    """RPC service for the paths of all QPs of the agent. `clock` returns seconds."""

    def __init__(self, connections: Connections, clock: Callable[[], float]) -> None:
        self._connections, self._clock = connections, clock

    @rpc(HealthRequest)
    def health(self, request: HealthRequest, _call: RpcCall) -> Message:
        """Answer the health of each path to `peer`, or to all peers (hosts/agent/path_health.py)."""
        connections = self._connections
        return {
            "t": self._clock(),
            "host": connections.host.name,
            "mode": connections.plan.mode.value,
            "peers": connections.health(request.peer),
        }

    @rpc(DenylistRequest)
    def denylist(self, request: DenylistRequest, _call: RpcCall) -> Message:
        """Set the whole list to `entries` (hosts/agent/denylist.py), or read it when none are given.

        The list applies to all QPs of this agent, present and future. Answers the list, the EVs it has taken out by
        peer, and how many EVs of QPs changed. An EV whose last entry is removed is GOOD again.
        """
        return self._change(request.entries, self._connections.denylist.set)

    @rpc(DenyRequest)
    def deny(self, request: DenyRequest, _call: RpcCall) -> Message:
        """Add `entries` to the denylist."""
        return self._change(request.entries, self._connections.denylist.add)

    @rpc(AllowRequest)
    def allow(self, request: AllowRequest, _call: RpcCall) -> Message:
        """Remove `entries` from the denylist; missing ones are ignored."""
        return self._change(request.entries, self._connections.denylist.remove)

    def _change(self, entries_json: list[Any] | None, change: Callable[[list[DenylistEntry]], None]) -> Message:
        connections = self._connections
        change_count = 0
        if entries_json is not None:
            change(connections.denylist.parse(entries_json))
            change_count = connections.apply_denylist()
        entries = [entry.to_json() for entry in connections.denylist]
        return {"entries": entries, "denied": connections.denied_evs(), "changed": change_count}
