"""RPC service for flows and ranks of scenarios, whose client is experiments/live/live_run.py.

    flow_qp       peer, transport, settings       -> qpn, attributes   a QP in INIT, kept until the client disconnects
    flow_connect  qpn, remote, config, evs        -> {}
    flow_sink     flow, qpns, shape               -> va, rkey          memory; messages are checked as they come
    flow_source   flow, qpns, shape, va, rkey,
                  start_s, stop_s, latencies      -> {}                begins at start_s
    flow_stop                                     -> {}                posts no more on any flow
    flow_read                                     -> t, sources, sinks, ranks: progress
    rank_open     flow, collective or script,
                  seed, iterations                -> regions, size_bytes, bus_factor
    rank_link     flow, peer, qpns, regions,
                  sources                         -> {}   local QPs to `peer`; [qpn, rank, parts] of ranks that write
                                                          to this one
    rank_start    flow, start_s                   -> {}

`shape`: {message_bytes, messages, depth, rate_bps, seed}. Times are CLOCK_MONOTONIC seconds. Resources belong to the
connection that created them and are released with it (session.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from mrc_testbed.hosts.agent.connections import MRC, Connection, Connections
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.agent.session import ClientSession, ClientSessions
from mrc_testbed.hosts.engine.config import Config, ConfigError
from mrc_testbed.hosts.engine.qp import QpAttributes
from mrc_testbed.hosts.traffic.collective_options import NO_OPTIONS, CollectiveOptions
from mrc_testbed.hosts.traffic.message_stream import FlowSender, FlowSink, StreamShape
from mrc_testbed.hosts.traffic.program_script import RankScript
from mrc_testbed.ipc.requests import Number, Request, RequestError, RequestPart, Rkey, Seconds
from mrc_testbed.ipc.rpc import Message, RpcCall, ServerConnection
from mrc_testbed.ipc.rpc_table import rpc

if TYPE_CHECKING:
    from mrc_testbed.hosts.traffic.collective_base import Rank
    from mrc_testbed.hosts.traffic.collective_rank import RankDriver

MAX_MESSAGE = 1 << 26
MAX_DEPTH = 32
"""Messages of a flow in flight: as many WriteIMM as a peer takes (§5.3)."""
MAX_COLLECTIVE = 1 << 26
LATENCIES_MAX = 100_000

Qpns = Annotated[list[Number], Meta(min_length=1, description="numbers of QPs made with flow_qp")]


RankRegions = Annotated[
    dict[str, tuple[Number, Rkey]], Meta(description="the address and R_Key of each region, by its name")
]
Sources = Annotated[list[tuple[Number, Number, Number]], Meta(description="a list of [qpn, rank, parts]")]


class FlowQpRequest(Request, tag="flow_qp"):
    """Create a QP in INIT; `settings`: parameters of the RoCEv2 baseline to change."""

    peer: str
    transport: str = MRC
    settings: dict[str, Any] | None = None


class FlowConnectRequest(Request, tag="flow_connect"):
    """Move a QP from INIT to RTS; `config`: keys of this QP alone, `evs`: only these."""

    qpn: Number
    remote: dict[str, Any]
    config: dict[str, Any] | None = None
    evs: list[Any] | None = None


class Shape(RequestPart, kw_only=True):
    """Message stream of a flow (StreamShape)."""

    message_bytes: Annotated[int, Meta(ge=1, le=MAX_MESSAGE)]
    messages: Annotated[int, Meta(ge=1)] | None = None
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)]
    rate_bps: Annotated[float, Meta(ge=1, le=1e13)] | None = None
    seed: Number = 0

    def stream_shape(self, flow: str) -> StreamShape:
        """Return the shape of the flow of that name."""
        return StreamShape(flow, self.message_bytes, self.messages, self.depth, self.rate_bps, self.seed)


class FlowSinkRequest(Request, tag="flow_sink"):
    """Allocate memory for a flow that arrives on these QPs."""

    flow: str
    qpns: Qpns
    shape: Shape


class FlowSourceRequest(Request, tag="flow_source"):
    """Send a flow on these QPs, into the memory at `va`, from `start_s` to `stop_s`."""

    flow: str
    qpns: Qpns
    shape: Shape
    va: Number
    rkey: Rkey
    start_s: Seconds
    stop_s: Seconds | None = None
    latencies: bool = False


class FlowStopRequest(Request, tag="flow_stop"):
    """Post no more on any flow."""


class FlowReadRequest(Request, tag="flow_read"):
    """Read the progress of all traffic of the client."""


class CollectivePart(RequestPart, kw_only=True):
    """A rank of a collective."""

    kind: str
    rank: Number
    ranks: Annotated[int, Meta(ge=0, le=4096)]
    size_bytes: Annotated[int, Meta(ge=1, le=MAX_COLLECTIVE)]
    options: CollectiveOptions = NO_OPTIONS


class RankOpenRequest(Request, tag="rank_open"):
    """Open a rank of a collective, or of a program by its script (hosts/traffic/program_script.py)."""

    flow: str
    iterations: Annotated[int, Meta(ge=1, le=1 << 12)]
    seed: Number = 1
    collective: CollectivePart | None = None
    script: RankScript | None = None


class RankLinkRequest(Request, tag="rank_link"):
    """Link local QPs to `peer` with its `regions`.

    `sources`: [qpn, rank, parts] of ranks that write to this one.
    """

    flow: str
    peer: Number | None = None
    qpns: Annotated[list[Number], Meta(description="numbers of QPs made with flow_qp")] | None = None
    regions: RankRegions | None = None
    sources: Sources | None = None


class RankStartRequest(Request, tag="rank_start"):
    """Start a rank at `start_s`."""

    flow: str
    start_s: Seconds


@dataclass(slots=True)
class Traffic:
    """Flows and ranks of one client."""

    sources: dict[str, tuple[FlowSender, list[Connection]]] = field(default_factory=dict)
    sinks: dict[str, tuple[FlowSink, list[Connection]]] = field(default_factory=dict)
    ranks: dict[str, tuple[RankDriver, list[Connection], list[Connection]]] = field(default_factory=dict)
    """Driver, sending connections and receiving connections by flow."""


class TrafficService:
    """RPC service for flows and ranks of all clients. `config`: default of the agent's QPs."""

    def __init__(
        self,
        connections: Connections,
        regions: Regions,
        sessions: ClientSessions,
        loop: asyncio.AbstractEventLoop,
        config: Config,
    ) -> None:
        self._connections, self._regions, self._sessions = connections, regions, sessions
        self._loop, self._config = loop, config
        self._traffic_by_session: dict[ClientSession, Traffic] = {}

    def _traffic(self, client: ServerConnection) -> tuple[ClientSession, Traffic]:
        """Return session and traffic of `client`; the traffic is forgotten when the session is released."""
        session = self._sessions.session_of(client)
        if session not in self._traffic_by_session:
            self._traffic_by_session[session] = Traffic()
            session.release_on_close(lambda: self._forget(session))
        return session, self._traffic_by_session[session]

    def _forget(self, session: ClientSession) -> None:
        del self._traffic_by_session[session]

    # ---- queue pairs --------------------------------------------------------------------------------------

    @rpc(FlowQpRequest)
    def flow_qp(self, request: FlowQpRequest, call: RpcCall) -> Message:
        """Create a QP for flows, which nothing else takes."""
        connection = self._connections.create(request.peer, request.transport, request.settings)
        connection.is_reserved = True
        self._sessions.session_of(call.client).own_qp(connection)
        return {"qpn": connection.qp.qpn, "attributes": connection.qp.attributes().to_json()}

    @rpc(FlowConnectRequest)
    def flow_connect(self, request: FlowConnectRequest, call: RpcCall) -> Message:
        """Move a QP from INIT to RTS; `config`: keys of this QP alone, `evs`: only these."""
        connection = self._sessions.session_of(call.client).qp(request.qpn)
        remote = QpAttributes.from_json(request.remote)
        try:
            config = self._config.with_values(**request.config) if request.config else None
        except ConfigError as error:
            raise RequestError(f"config: {error}") from None
        pmtu = min(remote.pmtu_bytes, (config or self._config).qp.pmtu_bytes)
        self._connections.connect(connection, replace(remote, pmtu_bytes=pmtu), config=config, only_evs=request.evs)
        return {}

    # ---- flows --------------------------------------------------------------------------------------------

    @rpc(FlowSinkRequest)
    def flow_sink(self, request: FlowSinkRequest, call: RpcCall) -> Message:
        """Allocate memory for a flow, one slot for each message in flight."""
        session, traffic = self._traffic(call.client)
        shape = request.shape.stream_shape(request.flow)
        connections = self._owned_qps(session, request.qpns)
        region = self._regions.add_memory(shape.depth * shape.message_bytes)
        session.own_region(region)
        sink = FlowSink(region.memory.view, shape)
        traffic.sinks[request.flow] = (sink, connections)
        for connection in connections:
            connection.on_imm = lambda _qpn, imm: sink.on_message(imm)
        return {"va": region.memory.va, "rkey": region.memory.rkey}

    @rpc(FlowSourceRequest)
    def flow_source(self, request: FlowSourceRequest, call: RpcCall) -> Message:
        """Start to send at `start_s`."""
        session, traffic = self._traffic(call.client)
        connections = self._owned_qps(session, request.qpns)
        sender = FlowSender(
            [connection.qp for connection in connections],
            request.shape.stream_shape(request.flow),
            (request.va, request.rkey),
            self._loop.time,
            self._loop.call_at,
            imm=True,
            latencies=request.latencies,
        )
        traffic.sources[request.flow] = (sender, connections)
        for connection in connections:
            connection.on_completion = lambda _connection, completion: sender.completed(completion)
        session.add_work(sender.stop)
        self._loop.call_at(request.start_s, sender.start)
        if request.stop_s is not None:
            self._loop.call_at(request.stop_s, sender.stop)
        return {}

    @rpc(FlowStopRequest)
    def flow_stop(self, _request: FlowStopRequest, call: RpcCall) -> Message:
        """Post no more on any flow of this client."""
        for sender, _ in self._traffic(call.client)[1].sources.values():
            sender.stop()
        return {}

    # ---- collectives --------------------------------------------------------------------------------------

    @rpc(RankOpenRequest)
    def rank_open(self, request: RankOpenRequest, call: RpcCall) -> Message:
        """Open a rank with its memory."""
        session, traffic = self._traffic(call.client)
        from mrc_testbed.hosts.traffic.collective_rank import (
            RankDriver,  # numpy: only agents that take part in one load it
        )

        rank = self._rank_of(request)
        regions = {}
        for name, array in rank.regions.items():
            region = self._regions.add_buffer(array.data.cast("B"))
            session.own_region(region)
            regions[name] = [region.memory.va, region.memory.rkey]
        driver = RankDriver(rank, request.iterations, self._loop.time, self._loop.call_at)
        traffic.ranks[request.flow] = (driver, [], [])
        return {"regions": regions, "size_bytes": rank.size_bytes, "bus_factor": rank.bus_factor}

    @staticmethod
    def _rank_of(request: RankOpenRequest) -> Rank:
        from mrc_testbed.hosts.traffic.collectives import CollectiveError, make
        from mrc_testbed.hosts.traffic.program_rank import ProgramRank

        part = request.collective
        if (part is None) == (request.script is None):
            raise RequestError("rank_open needs 'collective' or 'script', not both")
        try:
            if part is None:
                assert request.script is not None
                return ProgramRank(request.script, request.seed)
            return make(
                part.kind,
                rank=part.rank,
                ranks=part.ranks,
                size_bytes=part.size_bytes,
                seed=request.seed,
                options=part.options,
            )
        except CollectiveError as error:
            raise RequestError(str(error)) from None

    @rpc(RankLinkRequest)
    def rank_link(self, request: RankLinkRequest, call: RpcCall) -> Message:
        """Link a rank's QPs: local ones towards `peer`, and those on which other ranks write to this one."""
        session, traffic = self._traffic(call.client)
        driver, sending, receiving = self._rank(traffic, request.flow)
        try:
            if request.qpns:
                sending_connections = self._owned_qps(session, request.qpns)
                if request.peer is None or request.regions is None:
                    raise RequestError("rank_link needs 'peer' (int) and 'regions' (dict) with 'qpns'")
                driver.connect(request.peer, [connection.qp for connection in sending_connections], request.regions)
                sending += sending_connections
                for connection in sending_connections:
                    connection.on_completion = lambda _connection, completion: driver.completed(completion)
            for qpn, rank, parts in request.sources or ():
                (connection,) = self._owned_qps(session, [qpn])
                driver.receives_from(qpn, rank, parts)
                receiving.append(connection)
                connection.on_imm = driver.on_immediate
        except RequestError:
            raise
        except (TypeError, ValueError) as error:
            raise RequestError(f"rank_link: {error}") from None
        return {}

    @rpc(RankStartRequest)
    def rank_start(self, request: RankStartRequest, call: RpcCall) -> Message:
        """Start a rank at `start_s`."""
        driver, _, _ = self._rank(self._traffic(call.client)[1], request.flow)
        self._loop.call_at(request.start_s, driver.start)
        return {}

    @staticmethod
    def _rank(traffic: Traffic, name: str) -> tuple[RankDriver, list[Connection], list[Connection]]:
        if name not in traffic.ranks:
            raise RequestError(f"no rank of {name!r} (has: {', '.join(traffic.ranks) or 'none'})")
        return traffic.ranks[name]

    # ---- progress -----------------------------------------------------------------------------------------

    @rpc(FlowReadRequest)
    def flow_read(self, _request: FlowReadRequest, call: RpcCall) -> Message:
        """Answer the progress of all traffic of this client; `latencies`: since the previous flow_read."""
        traffic = self._traffic(call.client)[1]
        return {
            "t": self._loop.time(),
            "sources": {name: source_json(*source) for name, source in traffic.sources.items()},
            "sinks": {name: sink_json(*sink) for name, sink in traffic.sinks.items()},
            "ranks": {name: rank_json(*rank) for name, rank in traffic.ranks.items()},
        }

    @staticmethod
    def _owned_qps(session: ClientSession, qpns: list[int]) -> list[Connection]:
        return [session.qp(qpn) for qpn in qpns]


def source_json(sender: FlowSender, connections: list[Connection]) -> Message:
    """Return the progress of a sending flow, with its QPs' counters."""
    latencies = []
    if sender.latencies_s is not None:
        latencies, sender.latencies_s = sender.latencies_s[:LATENCIES_MAX], sender.latencies_s[LATENCIES_MAX:]
    return {
        "completed": sender.completed_count,
        "failed": sender.failed,
        "over": sender.is_over,
        "finished_at": sender.finished_at,
        "latencies_s": latencies,
        "qps": [qp_json(connection) for connection in connections],
    }


def sink_json(sink: FlowSink, connections: list[Connection]) -> Message:
    """Return the progress of a receiving flow."""
    return {
        "received_bytes": sum(connection.qp.counters.bytes_received for connection in connections),
        "checked": sink.checked,
        "damaged": sink.damaged_count,
        "held": held_packets(connections),
    }


def held_packets(connections: list[Connection]) -> int:
    """Return the most packets that a receiving QP holds above a hole now; the baseline holds none."""
    return max((connection.qp.held_packets() for connection in connections), default=0)


def rank_json(driver: RankDriver, sending: list[Connection], receiving: list[Connection]) -> Message:
    """Return the progress of a rank; `received`: bytes by sending peer."""
    received: dict[str, int] = {}
    for connection in receiving:
        received[connection.peer] = received.get(connection.peer, 0) + connection.qp.counters.bytes_received
    return {
        "done": driver.done,
        "failed": driver.failed,
        "started_at": driver.started_at,
        "ended": [[result.time, result.wrong_elements, result.computing_s] for result in driver.results],
        "received": received,
        "held": held_packets(receiving),
        "qps": [{**qp_json(connection), "peer": connection.peer} for connection in sending],
    }


def qp_json(connection: Connection) -> Message:
    """Return the counters of a QP that scenarios read."""
    counters = connection.qp.counters
    return {
        "qpn": connection.qp.qpn,
        "state": connection.qp.state.value,
        "error": connection.qp.error,
        "sent": counters.packets_sent,
        "lost": counters.lost,
        "retransmitted": counters.retransmitted,
        "timeouts": counters.timeouts,
        "evs": [[ev["ev"], ev["plane"], ev["state"], ev["sent"]] for ev in connection.qp.ev_states()],
    }
