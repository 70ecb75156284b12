"""Paths of the host: their health, and the denylist that takes EVs out.

health     peer?             what is known of each path (hosts/agent/path_health.py)
denylist   entries?          the whole list (hosts/agent/denylist.py); `deny`, `allow`: entries to add, to remove
"""

from __future__ import annotations

from collections.abc import Callable

from hosts.agent.connections import Connections
from hosts.agent.denylist import DenylistEntry
from hosts.agent.requests import Fields, take
from hosts.agent.rpc_server import rpc
from ipc.rpc import ServerConnection as Client


class PathService:
    """Of all QPs of the agent. `clock` gives seconds."""

    def __init__(self, connections: Connections, clock: Callable[[], float]) -> None:
        self._connections, self._clock = connections, clock

    @rpc("health")
    def health(self, request: Fields, client: Client) -> Fields:
        """What is known of each path to `peer`, or to all peers: hosts/agent/path_health.py."""
        connections = self._connections
        return {
            "t": self._clock(),
            "host": connections.host.name,
            "mode": connections.plan.mode.value,
            "peers": connections.health(take(request, "peer", str, None)),
        }

    @rpc("denylist")
    def denylist(self, request: Fields, client: Client) -> Fields:
        """Set the whole list to `entries` (hosts/agent/denylist.py), or read it when none are given.

        Holds for all QPs of this agent, those made later too. Answers the list, the EVs it has taken out by peer, and
        how many EVs of QPs it changed. An EV whose last entry goes is GOOD again.
        """
        return self._change(take(request, "entries", list, None), self._connections.denylist.set)

    @rpc("deny")
    def deny(self, request: Fields, client: Client) -> Fields:
        """Add `entries` to the denylist."""
        return self._change(take(request, "entries", list), self._connections.denylist.add)

    @rpc("allow")
    def allow(self, request: Fields, client: Client) -> Fields:
        """Take `entries` off the denylist; those that are not on it are no error."""
        return self._change(take(request, "entries", list), self._connections.denylist.remove)

    def _change(self, given: list | None, change: Callable[[list[DenylistEntry]], None]) -> Fields:
        connections = self._connections
        changed = 0
        if given is not None:
            change(connections.denylist.parse(given))
            changed = connections.apply_denylist()
        entries = [entry.to_json() for entry in connections.denylist]
        return {"entries": entries, "denied": connections.denied_evs(), "changed": changed}
