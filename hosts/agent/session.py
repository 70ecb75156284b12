"""What an agent holds for one client of its management socket, and lets go when that client has gone.

A test makes QPs and regions at both ends. Whatever ends it (Ctrl-C, a dead agent, a lost connection), nothing of it
stays: what was made for a connection goes with the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hosts.agent.requests import RequestError

if TYPE_CHECKING:
    from hosts.agent.connections import Connection, Connections
    from hosts.agent.regions import Region, Regions
    from hosts.agent.services.traffic import Traffic
    from ipc.rpc import ServerConnection as Client


class ClientSession:
    """QPs, regions and running work of one client."""

    def __init__(self, connections: Connections, regions: Regions) -> None:
        self._all_connections, self._all_regions = connections, regions
        self.connections: dict[int, Connection] = {}
        """By QPN."""
        self.regions: list[Region] = []
        self.stops: list[Callable[[], None]] = []
        """Each ends one running piece of work, soon; harmless when it has ended."""
        self.traffic: Traffic | None = None
        """Flows and ranks (traffic.py), when the client has any."""
        self.running = 0
        """Tests not ended, those told to stop included."""

    def connection(self, qpn: int) -> Connection:
        """The QP of that number, if it belongs to us. Raises RequestError."""
        try:
            return self.connections[qpn]
        except KeyError:
            raise RequestError(f"QP {qpn} was not made for this client") from None

    def stop(self) -> None:
        """End what runs."""
        stops, self.stops = self.stops, []
        for stop in stops:
            stop()

    def release(self) -> None:
        """End what runs and let go of everything. Idempotent."""
        self.stop()
        for connection in self.connections.values():
            if any(one is connection for one in self._all_connections):
                connection.on_completion, connection.on_imm, connection.busy = None, None, False
                self._all_connections.close(connection)
        self.connections = {}
        for region in self.regions:
            if any(one is region for one in self._all_regions):
                self._all_regions.remove(region)
        self.regions = []
        self.traffic = None


class ClientSessions:
    """The session of all clients of one agent."""

    def __init__(self, connections: Connections, regions: Regions) -> None:
        self._connections, self._regions = connections, regions
        self._of: dict[Client, ClientSession] = {}

    def of(self, client: Client) -> ClientSession:
        """Those of `client`, which are released when it goes."""
        found = self._of.get(client)
        if found is None:
            found = self._of[client] = ClientSession(self._connections, self._regions)
            client.on_close(lambda: self._of.pop(client).release())
        return found
