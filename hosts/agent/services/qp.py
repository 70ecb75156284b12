"""RPC service for queue pairs and single writes; its clients are mostly other agents (connections.py).

create_qp    peer, transport, owned  -> qpn, attributes      close_qp    qpn, here_only, peer, remote_qpn
connect_qp   qpn, remote             -> state                qp_state    qpn
peer_lost    peer, idle              -> qpns
post_write   qpn, region, offset, length, remote_va, rkey    -> wr_id
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_testbed.hosts.agent.connections import MRC, Connection, Connections, QpUseError
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.agent.session import ClientSessions
from mrc_testbed.hosts.engine.qp import EngineQpState, QpAttributes
from mrc_testbed.ipc.requests import Number, Request, RequestError, Rkey, check_range
from mrc_testbed.ipc.rpc import Answer, Message, RpcCall
from mrc_testbed.ipc.rpc_table import rpc


class CreateQpRequest(Request, tag="create_qp"):
    """Create a QP for `peer`; with `owned`, until the client disconnects."""

    peer: str
    transport: str = MRC
    owned: bool = False
    until_connected: bool = False
    """Whether the QP closes with this client unless connected by then.

    A client whose answer was lost cannot close the QP.
    """


class ConnectQpRequest(Request, tag="connect_qp"):
    """Connect a QP to one with the attributes `remote` (QpAttributes)."""

    qpn: Number
    remote: dict[str, Any]


class QpStateRequest(Request, tag="qp_state"):
    """Read the state of a QP."""

    qpn: Number


class CloseQpRequest(Request, tag="close_qp"):
    """Close both ends of a QP, with `here_only` the local one.

    When `peer` and `remote_qpn` are given, only if the QP is connected to that one.
    """

    qpn: Number
    here_only: bool = False
    peer: str | None = None
    remote_qpn: Number | None = None


class PeerLostRequest(Request, tag="peer_lost"):
    """Report that the agent of `peer` has died, and with it the other ends of QPs to that host.

    `idle`: only QPs with nothing under way are meant, which would not notice; the others have their retry budget.
    """

    peer: str
    idle: bool = False


class PostWriteRequest(Request, tag="post_write", kw_only=True):
    """Write `length` bytes (None: the rest) from `offset` of a region to `remote_va`."""

    qpn: Number
    region: Number
    offset: Number = 0
    length: Number | None = None
    remote_va: Number
    rkey: Rkey


class QpService:
    """RPC service for QPs of the agent's engine endpoint. `clock` returns engine time."""

    def __init__(
        self, connections: Connections, regions: Regions, sessions: ClientSessions, clock: Callable[[], float]
    ) -> None:
        self._connections, self._regions, self._sessions, self._clock = connections, regions, sessions, clock

    @rpc(CreateQpRequest)
    def create_qp(self, request: CreateQpRequest, call: RpcCall) -> Message:
        """Create a QP in INIT; with `owned`, until the client disconnects, and no transfer takes it."""
        connection = self._connections.create(request.peer, request.transport)
        if request.owned:
            connection.is_reserved = True
            self._sessions.session_of(call.client).own_qp(connection)
        elif request.until_connected:
            call.client.on_close(lambda: self._discard_unconnected(connection))
        return {"qpn": connection.qp.qpn, "attributes": connection.qp.attributes().to_json()}

    def _discard_unconnected(self, connection: Connection) -> None:
        if connection.qp.state is EngineQpState.INIT:
            self._connections.discard(connection)

    @rpc(ConnectQpRequest)
    def connect_qp(self, request: ConnectQpRequest, _call: RpcCall) -> Message:
        """Move a QP from INIT to RTS towards `remote`."""
        connection = self._connections.get(request.qpn)
        self._connections.connect(connection, QpAttributes.from_json(request.remote))
        return {"state": connection.qp.state.value}

    @rpc(QpStateRequest)
    def qp_state(self, request: QpStateRequest, _call: RpcCall) -> Message:
        """Answer the state of a QP, and which QP it is connected to."""
        connection = self._connections.get(request.qpn)
        return {
            "state": connection.qp.state.value,
            "peer": connection.peer,
            "remote_qpn": connection.remote_qpn,
            "outstanding": connection.qp.outstanding(),
        }

    @rpc(CloseQpRequest)
    def close_qp(self, request: CloseQpRequest, _call: RpcCall) -> Answer:
        """Close both ends of a QP, or with `here_only` the local one; `remote_error`: why the other failed.

        When `peer` and `remote_qpn` are given, close only a QP that is connected to that one.
        """
        connections = self._connections
        connection = connections.get(request.qpn)
        peer = connection.peer if request.peer is None else request.peer
        remote_qpn = connection.remote_qpn if request.remote_qpn is None else request.remote_qpn
        if (peer, remote_qpn) != (connection.peer, connection.remote_qpn):
            raise QpUseError(f"QP {connection.qp.qpn} is not connected to QP {remote_qpn} of {peer}")
        connections.close(connection)
        if request.here_only:
            return {"remote_error": None}

        async def close_other() -> Message:
            return {"remote_error": await connections.close_remote(connection)}

        return close_other()

    @rpc(PeerLostRequest)
    def peer_lost(self, request: PeerLostRequest, _call: RpcCall) -> Message:
        """End in error all connected QPs to a host whose agent has died; answer their `qpns`."""
        peer = self._connections.peer_host(request.peer).name
        qps = [
            connection.qp
            for connection in self._connections
            if connection.peer == peer
            and connection.qp.state is EngineQpState.RTS
            and not (request.idle and connection.qp.outstanding())
        ]
        reason = f"{peer} was off, and knows no QP" if request.idle else f"the agent of {peer} has died"
        for qp in qps:
            qp.abort(reason, self._clock())
        return {"qpns": [qp.qpn for qp in qps]}

    @rpc(PostWriteRequest)
    def post_write(self, request: PostWriteRequest, _call: RpcCall) -> Message:
        """Post one write; a `completion` event with this wr_id reports its outcome."""
        connection = self._connections.get(request.qpn)
        region = self._regions.get(request.region)
        offset = request.offset
        check_range("offset", offset, 0, region.length)
        length = region.length - offset if request.length is None else request.length
        if offset + length > region.length:
            region_text = f"region {region.number} ({region.length} bytes)"
            raise RequestError(f"{length} bytes at offset {offset} leave {region_text}")
        data = region.memory.view[offset : offset + length]
        wr_id = connection.qp.post_write(data, request.remote_va, request.rkey, now=self._clock())
        return {"wr_id": wr_id}
