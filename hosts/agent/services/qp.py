"""Queue pairs of the host, one write at a time; other agents ask for most of it (hosts/agent/connections.py).

create_qp    peer, transport, owned  -> qpn, attributes      close_qp    qpn, here_only, peer, remote_qpn
connect_qp   qpn, remote             -> state                qp_state    qpn
post_write   qpn, region, offset, length, remote_va, rkey    -> wr_id
"""

from __future__ import annotations

from collections.abc import Callable

from hosts.agent.connections import MRC, Connections, QpUseError
from hosts.agent.regions import Regions
from hosts.agent.requests import Fields, RequestError, take
from hosts.agent.rpc_server import Answer, rpc
from hosts.agent.session import ClientSessions
from hosts.engine.qp import QpAttributes
from ipc.rpc import ServerConnection as Client


class QpService:
    """Of the agent's one engine endpoint. `clock` gives engine time."""

    def __init__(
        self, connections: Connections, regions: Regions, sessions: ClientSessions, clock: Callable[[], float]
    ) -> None:
        self._connections, self._regions, self._sessions, self._clock = connections, regions, sessions, clock

    @rpc("create_qp")
    def create_qp(self, request: Fields, client: Client) -> Fields:
        """A QP in INIT; with `owned` it goes when this client does, and no transfer takes it."""
        peer, transport = take(request, "peer", str), take(request, "transport", str, MRC)
        owned = take(request, "owned", bool, False)
        connection = self._connections.create(peer, transport)
        if owned:
            connection.reserved = True
            self._sessions.of(client).own_qp(connection)
        return {"qpn": connection.qp.qpn, "attributes": connection.qp.attributes().to_json()}

    @rpc("connect_qp")
    def connect_qp(self, request: Fields, client: Client) -> Fields:
        connection = self._connections.get(take(request, "qpn", int))
        remote = QpAttributes.from_json(take(request, "remote", dict))
        self._connections.connect(connection, remote)
        return {"state": connection.qp.state.value}

    @rpc("qp_state")
    def qp_state(self, request: Fields, client: Client) -> Fields:
        connection = self._connections.get(take(request, "qpn", int))
        return {
            "state": connection.qp.state.value,
            "peer": connection.peer,
            "remote_qpn": connection.remote_qpn,
            "outstanding": connection.qp.outstanding(),
        }

    @rpc("close_qp")
    def close_qp(self, request: Fields, client: Client) -> Answer:
        """Close both ends; `remote_error` says why the other end could not be. With `here_only` this end alone,
        and only if it is connected to `remote_qpn` of `peer` when those are given.
        """
        connections = self._connections
        connection = connections.get(take(request, "qpn", int))
        peer = take(request, "peer", str, connection.peer)
        remote_qpn = take(request, "remote_qpn", int, connection.remote_qpn)
        if (peer, remote_qpn) != (connection.peer, connection.remote_qpn):
            raise QpUseError(f"QP {connection.qp.qpn} is not connected to QP {remote_qpn} of {peer}")
        connections.close(connection)
        if take(request, "here_only", bool, False):
            return {"remote_error": None}

        async def close_other() -> Fields:
            return {"remote_error": await connections.close_remote(connection)}

        return close_other()

    @rpc("post_write")
    def post_write(self, request: Fields, client: Client) -> Fields:
        """One write; what became of it is told by a `completion` event with this wr_id."""
        connection = self._connections.get(take(request, "qpn", int))
        region = self._regions.get(take(request, "region", int))
        offset = take(request, "offset", int, 0, high=region.length)
        length = take(request, "length", int, region.length - offset)
        if offset + length > region.length:
            where = f"region {region.number} ({region.length} bytes)"
            raise RequestError(f"{length} bytes at offset {offset} leave {where}")
        wr_id = connection.qp.post_write(
            region.memory.view[offset : offset + length],
            take(request, "remote_va", int, high=(1 << 64) - 1),
            take(request, "rkey", int, high=(1 << 32) - 1),
            now=self._clock(),
        )
        return {"wr_id": wr_id}
