"""Resources owned by one RPC client; released when its connection closes.

A test makes QPs and regions at both ends. Whatever ends it (Ctrl-C, a dead agent, a lost connection), nothing of it
stays: what was made for a connection goes with the connection. A service owns what else it keeps for a client by
`session.own(release)`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from mrc_testbed.hosts.agent.connections import Connection, Connections
from mrc_testbed.hosts.agent.regions import Region, Regions
from mrc_testbed.ipc.requests import RequestError
from mrc_testbed.ipc.rpc import ServerConnection as Client


class ClientSession:
    """QPs, regions and running work of one client."""

    def __init__(self, connections: Connections, regions: Regions) -> None:
        self._connections, self._regions = connections, regions
        self._owned = ExitStack()
        self._qps: dict[int, Connection] = {}
        """By QPN."""
        self._stops: list[Callable[[], None]] = []

    # ---- resources ----------------------------------------------------------------------------------------

    def own(self, release: Callable[[], None]) -> None:
        """Call `release` with the session's other resources, the newest first."""
        self._owned.callback(release)

    def own_qp(self, connection: Connection) -> None:
        """Close a QP with this session, unless it has been closed before."""
        self._qps[connection.qp.qpn] = connection
        self.own(lambda: self._connections.discard(connection))

    def own_region(self, region: Region) -> None:
        """Remove a region with this session, unless it has been removed before."""
        self.own(lambda: self._regions.discard(region))

    @property
    def has_qps(self) -> bool:
        return bool(self._qps)

    def qp(self, qpn: int) -> Connection:
        """The QP of that number, if it belongs to us. Raises RequestError."""
        try:
            return self._qps[qpn]
        except KeyError:
            raise RequestError(f"QP {qpn} was not made for this client") from None

    # ---- running work ---------------------------------------------------------------------------------------

    def runs(self, stop: Callable[[], None]) -> None:
        """Work begins; `stop` ends it soon and is harmless when it has ended."""
        self._stops.append(stop)

    def ended(self, stop: Callable[[], None]) -> None:
        """The work of `stop` has ended."""
        self._stops = [one for one in self._stops if one != stop]

    def stop(self) -> None:
        """End what runs."""
        stops, self._stops = self._stops, []
        for stop in stops:
            stop()

    def release(self) -> None:
        """End what runs and release everything. Idempotent."""
        self.stop()
        self._qps = {}
        self._owned.close()


class ClientSessions:
    """The sessions of all clients of one agent."""

    def __init__(self, connections: Connections, regions: Regions) -> None:
        self._connections, self._regions = connections, regions
        self._of: dict[Client, ClientSession] = {}

    def of(self, client: Client) -> ClientSession:
        """The session of `client`, released when the client goes."""
        found = self._of.get(client)
        if found is None:
            found = self._of[client] = ClientSession(self._connections, self._regions)
            client.on_close(lambda: self._of.pop(client).release())
        return found
