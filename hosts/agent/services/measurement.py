"""The ops behind the tools in the hosts (hosts/tools): tests that run inside this agent, next to engine and NIC.

    write_bw     peer, sizes, qps, depth, iterations | duration_s, warm_up, bidirectional, interval_s, transport, pmtu
    write_lat    peer, sizes, iterations | duration_s, warm_up, transport, pmtu
    ev_sweep     peer, count, interval_s, wait_s
    stop_work    ends what the client of this connection has running, or `work` of another one
    release      lets go of all that was made for the client of this connection
    run_writes   the other direction of a bidirectional test, asked for by the agent at the other end

The first three are answered when everything is set up, with `work` (a number) and what was set up. From then on the
connection carries events: `interval`, `result` (one for each size), `probe`, and at last `end` with `state` done,
stopped or failed, and `error`. When the client goes, the test ends and both ends let go of its QPs and regions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hosts.agent.connections import MRC
from hosts.agent.peer_agent import PeerAgent
from hosts.agent.requests import Fields, RequestError, pmtu_of, take
from hosts.agent.rpc_server import Later, rpc
from hosts.agent.services.ev_ping import EvPing
from hosts.agent.services.local_end import LocalEnd
from hosts.agent.session import ClientSession, ClientSessions
from hosts.agent.tasks import Task
from hosts.traffic.write_benchmark import (
    DEPTH_BYTES,
    DRAIN_S,
    LoadFlow,
    LoadShape,
    WriteLoad,
    drain,
    measure,
)
from ipc.rpc import ServerConnection as Client
from ipc.rpc import event_of

MAX_QPS = 256
MAX_DEPTH = 1 << 16
MAX_SIZE = 1 << 28
MAX_ITERATIONS = 10_000_000
MAX_DURATION_S = 86_400.0
MAX_TEST_BYTES = 1 << 30
"""Largest size x QPs: what the other end has to hold in memory."""
DEPTH = 128
"""perftest's default."""


class TestFailed(Exception):
    """A test that could not be carried to its end; says why, and what to look at."""

    __test__ = False  # no test of pytest's


def _sizes(request: Fields) -> list[int]:
    sizes = take(request, "sizes", list)
    if not 1 <= len(sizes) <= 64 or not all(type(s) is int and 1 <= s <= MAX_SIZE for s in sizes):
        raise RequestError(f"sizes = {sizes!r}: 1 to 64 numbers of 1 to {MAX_SIZE} bytes")
    return sizes


def _ends(request: Fields) -> tuple[list[int] | None, float | None]:
    """(iterations of each size, duration in seconds), one of them None. Raises RequestError."""
    duration = take(request, "duration_s", float, None, low=0.01, high=MAX_DURATION_S)
    given = request.get("iterations")
    if (given is None) == (duration is None):
        raise RequestError("give either `iterations` or `duration_s`")
    if duration is not None:
        return None, duration
    iterations = take(request, "iterations", list)
    if not all(type(n) is int and 1 <= n <= MAX_ITERATIONS for n in iterations):
        raise RequestError(f"iterations = {iterations!r}: a number of 1 to {MAX_ITERATIONS} for each size")
    return iterations, None


AHEAD_S = 0.5
"""Where ports have a rate: as much of it is posted at a time when nothing is asked."""


def shapes_of(request: Fields, *, depth: int | None = None, rate_bps: float | None = None) -> list[LoadShape]:
    """What to measure, one Shape for each size; `rate_bps`: of our ports together. Raises RequestError."""
    sizes = _sizes(request)
    iterations, duration = _ends(request)
    if iterations is not None and len(iterations) != len(sizes):
        raise RequestError(f"{len(sizes)} sizes and {len(iterations)} iterations: give one number for each size")
    asked = take(request, "depth", int, None, low=1, high=MAX_DEPTH) if depth is None else depth
    warm_up = take(request, "warm_up", int, 0, high=MAX_ITERATIONS)
    ahead = DEPTH_BYTES if rate_bps is None else min(DEPTH_BYTES, int(rate_bps / 8 * AHEAD_S))
    out = []
    for index, size in enumerate(sizes):
        deep = asked or max(2, min(DEPTH, ahead // size))
        out.append(LoadShape(size, deep, None if iterations is None else iterations[index], duration, warm_up))
    return out


class WriteTest:
    """One write_bw or write_lat: sets QPs and memory up at both ends, measures size after size, tells the client."""

    def __init__(
        self, local: LocalEnd, client: Client, session: ClientSession, request: Fields, *, times: bool
    ) -> None:
        self._local, self._client, self._session = local, client, session
        self._times = times
        self.peer = local.connections.peer_host(take(request, "peer", str)).name
        rates = local.rates()
        rate = sum(rates.values()) if len(rates) == local.planes else None
        self.shapes = shapes_of(request, depth=1 if times else None, rate_bps=rate)
        self.qps = 1 if times else take(request, "qps", int, 1, low=1, high=MAX_QPS)
        self.bidirectional = not times and take(request, "bidirectional", bool, False)
        self.interval_s = take(request, "interval_s", float, None, low=0.05, high=MAX_DURATION_S)
        self.transport = local.connections.transport(take(request, "transport", str, MRC))
        self.pmtu_bytes = pmtu_of(request, local.pmtu_bytes)
        self.largest = max(shape.size for shape in self.shapes)
        if self.largest * self.qps > MAX_TEST_BYTES:
            raise RequestError(f"{self.qps} QPs of {self.largest} bytes: at most {MAX_TEST_BYTES} bytes in all")
        self._load: WriteLoad | None = None
        self._stopped = False
        self._lost: str | None = None
        """Why the other agent is gone, once it is."""

    def stop(self) -> None:
        """End soon, telling what was measured so far."""
        self._stopped = True
        if self._load is not None:
            self._load.stop()

    def _peer_lost(self, why: str) -> None:
        self._lost = why
        if self._load is not None:
            self._load.fail(why)

    async def run(self, begun: Any) -> str:
        """The whole test; `begun(fields)` answers the client. Returns done or stopped. Raises TestFailed, refusals."""
        agent = self._local.connections.dial(self.peer)
        agent.on_lost = self._peer_lost
        try:
            flows, here = await self._set_up(agent)
            begun(self._described(flows))
            for shape in self.shapes:
                if self._stopped:
                    break
                await self._measure(agent, shape, flows, here)
            state = "stopped" if self._stopped else "done"
            self._session.release()
            if self._lost is None:
                await agent.call("release")
            return state
        finally:
            agent.close()
            self._session.release()

    async def _set_up(self, agent: PeerAgent) -> tuple[list[LoadFlow], dict[str, int]]:
        """Flows of QPs towards the peer, and the address of our region for its writes towards us."""
        target = await agent.call("register", length=self.largest * self.qps, owned=True)
        here = {}
        if self.bidirectional:
            region = self._local.regions.add_memory(self.largest * self.qps)
            self._session.own_region(region)
            here = {"va": region.memory.va, "rkey": region.memory.rkey}
        data = memoryview(bytearray(self.largest))
        flows = []
        for index in range(self.qps):
            connection = await self._local.connections.open_reserved(agent, self.pmtu_bytes, self.transport)
            self._session.own_qp(connection)
            connection.busy = True
            flows.append(LoadFlow(connection, data, target["va"] + index * self.largest, target["rkey"]))
        return flows, here

    def _described(self, flows: list[LoadFlow]) -> Fields:
        connections = [flow.connection for flow in flows]
        return {
            "host": self._local.host,
            "peer": self.peer,
            "transport": self.transport,
            "pmtu_bytes": connections[0].pmtu_bytes,
            "planes": self._local.planes,
            "evs": len(connections[0].qp.ev_states()),
            "bidirectional": self.bidirectional,
            "depth": [shape.depth for shape in self.shapes],
            "qps": [{"qpn": one.qp.qpn, "remote_qpn": one.remote_qpn} for one in connections],
        }

    async def _measure(self, agent: PeerAgent, shape: LoadShape, flows: list[LoadFlow], here: dict[str, int]) -> None:
        """One size; tells its result. Raises TestFailed."""
        tasks = self._local.tasks
        flows = [LoadFlow(f.connection, f.data[: shape.size], f.remote_va, f.rkey) for f in flows]
        load = self._load = WriteLoad(shape, flows, tasks.clock, times=self._times)
        other = None
        if self.bidirectional:
            other = agent.call("run_writes", **self._mirror(shape, flows, here))
        await measure(load, tasks, self.interval_s, lambda fields: self.tell("interval", bytes=shape.size, **fields))
        if load.stopped and other is not None:
            agent.call("stop_work")
        drained = await drain(load, tasks, DRAIN_S)
        if load.failure is not None:
            raise TestFailed(self._explained(load.failure))
        result = load.result()
        if self._times:
            result |= load.latencies()
        if other is not None:
            result["reverse"] = (await other)["result"]
        self.tell("result", **result)
        if not drained and not self._stopped:
            raise TestFailed(
                f"{load.outstanding} writes to {self.peer} did not complete, and nothing moves since {DRAIN_S:g} s "
                f"(is a path left? `mrc-ping {self.peer}`)"
            )

    def _mirror(self, shape: LoadShape, flows: list[LoadFlow], here: dict[str, int]) -> Fields:
        """The request for the other direction."""
        ends = {"duration_s": shape.duration_s} if shape.iterations is None else {"iterations": [shape.iterations]}
        return {
            "qpns": [flow.connection.remote_qpn for flow in flows], "sizes": [shape.size], "depth": shape.depth,
            "warm_up": shape.warm_up, "stride": self.largest, "remote_va": here["va"], "rkey": here["rkey"], **ends,
        }  # fmt: skip

    def _explained(self, failure: str) -> str:
        if self._lost is not None or "Retry Counter" not in failure:
            return failure
        return f"{failure}: nothing came back over any path (see `mrc-ping {self.peer}`, and log/{self.peer}.log)"

    def tell(self, event: str, **fields: Any) -> None:
        """An event for the client."""
        self._client.send(event_of(event, None, fields))


class RunningWork(Protocol):
    """Something that runs for a client: its answer by `begun`, then events; returns done or stopped."""

    async def run(self, begun: Callable[[Fields], None]) -> str: ...

    def stop(self) -> None: ...


class MeasurementService:
    """`error_text`: what a client is told of an error that ended its test."""

    def __init__(
        self, local: LocalEnd, sessions: ClientSessions, error_text: Callable[[Fields, Exception], str]
    ) -> None:
        self._local, self._sessions, self._error_text = local, sessions, error_text
        self._last_work = 0
        self._work: dict[int, tuple[RunningWork, ClientSession]] = {}
        """What has not ended, by number; work told to stop included."""

    @rpc("write_bw")
    def write_bw(self, request: Fields, client: Client) -> None:
        """Bandwidth of writes towards a peer."""
        session = self._idle_session(client)
        self._start(WriteTest(self._local, client, session, request, times=False), session, request, client)

    @rpc("write_lat")
    def write_lat(self, request: Fields, client: Client) -> None:
        """Latency of single writes towards a peer, from posting to completion."""
        session = self._idle_session(client)
        self._start(WriteTest(self._local, client, session, request, times=True), session, request, client)

    @rpc("ev_sweep")
    def ev_sweep(self, request: Fields, client: Client) -> None:
        """EV probes over all paths to a peer."""
        session = self._idle_session(client)
        self._start(EvPing(self._local, client, request), session, request, client)

    def _idle_session(self, client: Client) -> ClientSession:
        """What a new test may own: a client runs one thing at a time."""
        session = self._sessions.of(client)
        if session.has_qps or any(owner is session for _, owner in self._work.values()):
            raise RequestError("this connection has a test running: open another one, or `stop_work` first")
        return session

    def _start(self, work: RunningWork, session: ClientSession, request: Fields, client: Client) -> None:
        """Run `work`, answer when it has begun, tell the end as an event."""
        self._last_work += 1
        number = self._last_work
        self._work[number] = work, session
        session.runs(work.stop)
        answered = False

        def begun(fields: Fields) -> None:
            nonlocal answered
            answered = True
            client.answer(request, work=number, **fields)

        def on_done(task: Task) -> None:
            del self._work[number]
            session.ended(work.stop)
            error = None if task.error is None else self._error_text(request, task.error)
            if answered:
                state = task.value if error is None else "failed"
                client.send(event_of("end", None, {"work": number, "state": state, "error": error}))
            else:
                client.refuse(request, error or "it ended before it began")

        self._local.tasks.spawn(work.run(begun), on_done)

    @rpc("stop_work")
    def stop_work(self, request: Fields, client: Client) -> Fields:
        """End a test: the one of that number, or what runs for this client."""
        number = take(request, "work", int, None)
        if number is None:
            self._sessions.of(client).stop()
        elif number in self._work:
            self._work[number][0].stop()
        return {}

    @rpc("release")
    def release(self, request: Fields, client: Client) -> Fields:
        """Release the QPs and regions made with `owned` on this connection."""
        self._sessions.of(client).release()
        return {}

    @rpc("run_writes")
    def run_writes(self, request: Fields, client: Client) -> Later:
        """Post writes on QPs made for this client, towards its region; answered with what was measured."""
        session, tasks = self._sessions.of(client), self._local.tasks
        qpns = take(request, "qpns", list)
        if not 1 <= len(qpns) <= MAX_QPS or not all(type(qpn) is int for qpn in qpns):
            raise RequestError(f"qpns = {qpns!r}: 1 to {MAX_QPS} numbers")
        (shape, *_) = shapes_of(request)
        stride = take(request, "stride", int, high=MAX_SIZE)
        va, rkey = take(request, "remote_va", int), take(request, "rkey", int, high=(1 << 32) - 1)
        data = memoryview(bytearray(shape.size))
        flows = [LoadFlow(session.qp(n), data, va + i * stride, rkey) for i, n in enumerate(qpns)]
        load = WriteLoad(shape, flows, tasks.clock)
        session.runs(load.stop)

        async def run() -> Fields:
            await measure(load, tasks, None, lambda fields: None)
            await drain(load, tasks, DRAIN_S)
            session.ended(load.stop)
            if load.failure is not None:
                raise RequestError(load.failure)
            return {"result": load.result()}

        return run()
