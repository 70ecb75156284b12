"""Flows and ranks of collectives in an agent: the ops of scenarios (experiments/live/live_run.py is the one who asks).

    flow_qp       peer, transport, settings       -> qpn, attributes   a QP in INIT, ours until the client goes
    flow_connect  qpn, remote, config, evs        -> {}
    flow_sink     flow, qpns, shape               -> va, rkey          memory; messages are checked as they come
    flow_source   flow, qpns, shape, va, rkey,
                  start_s, stop_s, latencies      -> {}                begins at start_s
    flow_stop                                     -> {}                posts no more on any flow
    flow_read                                     -> t, sources, sinks, ranks: how far everything is
    rank_open     flow, kind, rank, ranks,
                  size_bytes, seed, iterations    -> regions, size_bytes, bus_factor
    rank_link     flow, peer, qpns, regions,
                  sources                         -> {}   our QPs to `peer`; [qpn, rank, parts] of those who write to us
    rank_start    flow, start_s                   -> {}

`shape`: {message_bytes, messages, depth, rate_bps, seed}. Times are CLOCK_MONOTONIC seconds. What is made belongs to
the connection it was made on and goes with it (session.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hosts.agent.connections import MRC, Connection, Connections
from hosts.agent.regions import Regions
from hosts.agent.requests import Fields, RequestError, take
from hosts.agent.rpc_server import rpc
from hosts.agent.session import ClientSession, ClientSessions
from hosts.agent.tasks import Tasks
from hosts.engine.config import Config, ConfigError
from hosts.engine.qp import QpAttributes
from hosts.traffic.message_stream import FlowSender, FlowSink, StreamShape
from ipc.rpc import ServerConnection as Client

if TYPE_CHECKING:
    from hosts.traffic.collective_rank import RankDriver

MAX_MESSAGE = 1 << 26
MAX_DEPTH = 32
"""Messages of a flow in flight: as many WriteIMM as a peer takes (§5.3)."""
MAX_COLLECTIVE = 1 << 26
LATENCIES_MAX = 100_000


@dataclass(slots=True)
class Traffic:
    """Flows and ranks of one client."""

    sources: dict[str, tuple[FlowSender, list[Connection]]] = field(default_factory=dict)
    sinks: dict[str, tuple[FlowSink, list[Connection]]] = field(default_factory=dict)
    ranks: dict[str, tuple[RankDriver, list[Connection], list[Connection]]] = field(default_factory=dict)
    """By flow: the driver, connections that send, connections that receive."""


class TrafficService:
    """Flows and ranks of all clients. `config`: of the agent's QPs."""

    def __init__(
        self, connections: Connections, regions: Regions, sessions: ClientSessions, tasks: Tasks, config: Config
    ) -> None:
        self._connections, self._regions, self._sessions = connections, regions, sessions
        self._tasks, self._config = tasks, config
        self._of: dict[ClientSession, Traffic] = {}

    def _traffic(self, client: Client) -> tuple[ClientSession, Traffic]:
        """Those of `client`, forgotten when its session is released."""
        session = self._sessions.of(client)
        if session not in self._of:
            self._of[session] = Traffic()
            session.own(lambda: self._of.pop(session))
        return session, self._of[session]

    # ---- queue pairs --------------------------------------------------------------------------------------

    @rpc("flow_qp")
    def flow_qp(self, request: Fields, client: Client) -> Fields:
        """A QP for flows, which nothing else takes."""
        peer, transport = take(request, "peer", str), take(request, "transport", str, MRC)
        settings = take(request, "settings", dict, {})
        connection = self._connections.create(peer, transport, settings)
        connection.reserved = True
        self._sessions.of(client).own_qp(connection)
        return {"qpn": connection.qp.qpn, "attributes": connection.qp.attributes().to_json()}

    @rpc("flow_connect")
    def flow_connect(self, request: Fields, client: Client) -> Fields:
        """INIT -> RTS; `config`: keys of this QP alone, `evs`: only these."""
        connection = self._sessions.of(client).qp(take(request, "qpn", int))
        remote = QpAttributes.from_json(take(request, "remote", dict))
        keys, evs = take(request, "config", dict, {}), take(request, "evs", list, None)
        try:
            config = Config.from_json({**self._config.to_json(), **keys}) if keys else None
        except ConfigError as error:
            raise RequestError(f"config: {error}") from None
        pmtu = min(remote.pmtu_bytes, (config or self._config).pmtu_bytes)
        self._connections.connect(connection, replace(remote, pmtu_bytes=pmtu), config=config, only=evs)
        return {}

    # ---- flows --------------------------------------------------------------------------------------------

    @rpc("flow_sink")
    def flow_sink(self, request: Fields, client: Client) -> Fields:
        """Memory for a flow, one slot for each message in flight."""
        session, traffic = self._traffic(client)
        name, shape = take(request, "flow", str), shape_of(request)
        connections = self._own(session, take(request, "qpns", list))
        region = self._regions.add_memory(shape.depth * shape.message_bytes)
        session.own_region(region)
        sink = FlowSink(region.memory.view, shape)
        traffic.sinks[name] = (sink, connections)
        for connection in connections:
            connection.on_imm = lambda _qpn, imm: sink.arrived(imm)
        return {"va": region.memory.va, "rkey": region.memory.rkey}

    @rpc("flow_source")
    def flow_source(self, request: Fields, client: Client) -> Fields:
        """Begin to send at `start_s`."""
        session, traffic = self._traffic(client)
        name, shape = take(request, "flow", str), shape_of(request)
        connections = self._own(session, take(request, "qpns", list))
        remote = take(request, "va", int), take(request, "rkey", int, high=(1 << 32) - 1)
        sender = FlowSender(
            [one.qp for one in connections], shape, remote, self._tasks.clock, self._tasks.call_at,
            imm=True, latencies=take(request, "latencies", bool, False),
        )  # fmt: skip
        traffic.sources[name] = (sender, connections)
        for connection in connections:
            connection.on_completion = lambda _one, completion: sender.completed(completion)
        session.runs(sender.stop)
        self._tasks.call_at(take(request, "start_s", float), sender.start)
        stop_s = take(request, "stop_s", float, None)
        if stop_s is not None:
            self._tasks.call_at(stop_s, sender.stop)
        return {}

    @rpc("flow_stop")
    def flow_stop(self, request: Fields, client: Client) -> Fields:
        """Post no more on any flow of this client."""
        for sender, _ in self._traffic(client)[1].sources.values():
            sender.stop()
        return {}

    # ---- collectives --------------------------------------------------------------------------------------

    @rpc("rank_open")
    def rank_open(self, request: Fields, client: Client) -> Fields:
        """A rank with its memory."""
        session, traffic = self._traffic(client)
        size = take(request, "size_bytes", int, low=1, high=MAX_COLLECTIVE)
        iterations = take(request, "iterations", int, low=1, high=1 << 12)
        from hosts.traffic.collective_rank import RankDriver
        from hosts.traffic.collectives import CollectiveError, make  # numpy: only agents that take part in one load it

        number, ranks = take(request, "rank", int), take(request, "ranks", int, high=4096)
        kind, seed = take(request, "kind", str), take(request, "seed", int, 1)
        try:
            rank = make(kind, rank=number, ranks=ranks, size_bytes=size, seed=seed)
        except CollectiveError as error:
            raise RequestError(str(error)) from None
        regions = {}
        for name, array in rank.regions.items():
            region = self._regions.add_buffer(memoryview(array).cast("B"))
            session.own_region(region)
            regions[name] = [region.memory.va, region.memory.rkey]
        driver = RankDriver(rank, iterations, self._tasks.clock)
        traffic.ranks[take(request, "flow", str)] = (driver, [], [])
        return {"regions": regions, "size_bytes": rank.size_bytes, "bus_factor": rank.bus_factor}

    @rpc("rank_link")
    def rank_link(self, request: Fields, client: Client) -> Fields:
        """QPs of a rank: ours towards `peer`, and those on which others write to us."""
        session, traffic = self._traffic(client)
        driver, sending, receiving = self._rank(traffic, request)
        qpns = take(request, "qpns", list, [])
        try:
            if qpns:
                mine = self._own(session, qpns)
                regions = {
                    str(name): (int(va), int(rkey)) for name, (va, rkey) in take(request, "regions", dict).items()
                }
                driver.connect(take(request, "peer", int), [one.qp for one in mine], regions)
                sending += mine
                for connection in mine:
                    connection.on_completion = lambda _one, completion: driver.completed(completion)
            for qpn, rank, parts in take(request, "sources", list, []):
                (connection,) = self._own(session, [qpn])
                driver.receives_from(qpn, rank, parts)
                receiving.append(connection)
                connection.on_imm = driver.arrived
        except (TypeError, ValueError) as error:
            raise RequestError(f"rank_link: {error}") from None
        return {}

    @rpc("rank_start")
    def rank_start(self, request: Fields, client: Client) -> Fields:
        """Begin at `start_s`."""
        driver, _, _ = self._rank(self._traffic(client)[1], request)
        self._tasks.call_at(take(request, "start_s", float), driver.start)
        return {}

    @staticmethod
    def _rank(traffic: Traffic, request: Fields) -> tuple[RankDriver, list[Connection], list[Connection]]:
        name = take(request, "flow", str)
        if name not in traffic.ranks:
            raise RequestError(f"no rank of {name!r} here (has: {', '.join(traffic.ranks) or 'none'})")
        return traffic.ranks[name]

    # ---- looking ------------------------------------------------------------------------------------------

    @rpc("flow_read")
    def flow_read(self, request: Fields, client: Client) -> Fields:
        """How far everything of this client is; `latencies` are those since it was asked last."""
        traffic = self._traffic(client)[1]
        return {
            "t": self._tasks.clock(),
            "sources": {name: source_json(*one) for name, one in traffic.sources.items()},
            "sinks": {name: sink_json(*one) for name, one in traffic.sinks.items()},
            "ranks": {name: rank_json(*one) for name, one in traffic.ranks.items()},
        }

    def _own(self, session: ClientSession, qpns: list[Any]) -> list[Connection]:
        if not qpns or not all(type(qpn) is int for qpn in qpns):
            raise RequestError(f"qpns = {qpns!r}: numbers of QPs made with flow_qp")
        return [session.qp(qpn) for qpn in qpns]


def shape_of(request: Fields) -> StreamShape:
    """The shape in a request. Raises RequestError."""
    fields = {"op": request.get("op"), **take(request, "shape", dict)}
    return StreamShape(
        take(request, "flow", str),
        take(fields, "message_bytes", int, low=1, high=MAX_MESSAGE),
        take(fields, "messages", int, None, low=1),
        take(fields, "depth", int, low=1, high=MAX_DEPTH),
        take(fields, "rate_bps", float, None, low=1, high=1e13),
        take(fields, "seed", int, 0),
    )


def source_json(sender: FlowSender, connections: list[Connection]) -> Fields:
    """Progress of a sending flow, and what its QPs counted."""
    latencies = []
    if sender.latencies_s is not None:
        latencies, sender.latencies_s = sender.latencies_s[:LATENCIES_MAX], sender.latencies_s[LATENCIES_MAX:]
    return {
        "completed": sender.completed_count, "failed": sender.failed, "done": sender.done,
        "finished_at": sender.finished_at, "latencies_s": latencies, "qps": [qp_json(one) for one in connections],
    }  # fmt: skip


def sink_json(sink: FlowSink, connections: list[Connection]) -> Fields:
    """Progress of a receiving flow."""
    return {
        "received_bytes": sum(one.qp.counters.bytes_received for one in connections),
        "checked": sink.checked, "damaged": sink.damaged, "held": held_packets(connections),
    }  # fmt: skip


def held_packets(connections: list[Connection]) -> int:
    """Most packets that a receiving QP holds above a hole now; 0 for the baseline, which keeps none."""
    return max((one.qp.held_packets() for one in connections), default=0)


def rank_json(driver: RankDriver, sending: list[Connection], receiving: list[Connection]) -> Fields:
    """Progress of a rank; `received` by the peer that sent it."""
    received: dict[str, int] = {}
    for one in receiving:
        received[one.peer] = received.get(one.peer, 0) + one.qp.counters.bytes_received
    return {
        "done": driver.done, "failed": driver.failed, "started_at": driver.started_at,
        "ended": [[one.at, one.wrong] for one in driver.ended], "received": received, "held": held_packets(receiving),
        "qps": [{**qp_json(one), "peer": one.peer} for one in sending],
    }  # fmt: skip


def qp_json(connection: Connection) -> Fields:
    """Counters of a QP that a scenario looks at."""
    counters = connection.qp.counters
    return {
        "qpn": connection.qp.qpn, "state": connection.qp.state.value, "error": connection.qp.error,
        "sent": counters.packets_sent, "lost": counters.lost, "retransmitted": counters.retransmitted,
        "timeouts": counters.timeouts,
        "evs": [[ev["ev"], ev["plane"], ev["state"], ev["sent"]] for ev in connection.qp.ev_states()],
    }  # fmt: skip
