"""Resources owned by one RPC client; released when its connection closes.

A test makes QPs and regions at both ends. Whatever ends it (Ctrl-C, a dead agent, a lost connection), nothing of it
stays: what was made for a connection goes with the connection. A service owns what else it keeps for a client by
`session.release_on_close(release)`.
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
        self._releases = ExitStack()
        self._qps: dict[int, Connection] = {}
        """QPs of the session by QPN."""
        self._stops: list[Callable[[], None]] = []

    # ---- resources ----------------------------------------------------------------------------------------

    def release_on_close(self, release: Callable[[], None]) -> None:
        """Call `release` with the session's other resources, the newest first."""
        self._releases.callback(release)

    def own_qp(self, connection: Connection) -> None:
        """Close a QP with this session, unless it has been closed before."""
        self._qps[connection.qp.qpn] = connection
        self.release_on_close(lambda: self._connections.discard(connection))

    def own_region(self, region: Region) -> None:
        """Remove a region with this session, unless it has been removed before."""
        self.release_on_close(lambda: self._regions.discard(region))

    @property
    def has_qps(self) -> bool:
        return bool(self._qps)

    def qp(self, qpn: int) -> Connection:
        """Return the QP of that number, if it belongs to this session. Raises RequestError."""
        try:
            return self._qps[qpn]
        except KeyError:
            raise RequestError(f"QP {qpn} was not made for this client") from None

    # ---- running work ---------------------------------------------------------------------------------------

    def add_work(self, stop: Callable[[], None]) -> None:
        """Register running work; `stop` ends it soon and is harmless when it has ended."""
        self._stops.append(stop)

    def remove_work(self, stop: Callable[[], None]) -> None:
        """Forget the work of `stop`, which has ended."""
        self._stops = [callback for callback in self._stops if callback != stop]

    def stop(self) -> None:
        """Stop all running work."""
        stops, self._stops = self._stops, []
        for stop in stops:
            stop()

    def release(self) -> None:
        """Stop all running work and release everything. Idempotent."""
        self.stop()
        self._qps = {}
        self._releases.close()


class ClientSessions:
    """The sessions of all clients of one agent."""

    def __init__(self, connections: Connections, regions: Regions) -> None:
        self._connections, self._regions = connections, regions
        self._by_client: dict[Client, ClientSession] = {}

    def session_of(self, client: Client) -> ClientSession:
        """Return the session of `client`, released when the client disconnects."""
        session = self._by_client.get(client)
        if session is None:
            session = self._by_client[client] = ClientSession(self._connections, self._regions)
            client.on_close(lambda: self._by_client.pop(client).release())
        return session
