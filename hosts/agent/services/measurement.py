"""RPC service behind the tools in the hosts (hosts/tools): tests inside the agent, next to the engine.

    write_bw     peer, sizes, qps, depth, iterations | duration_s, warm_up, bidirectional, interval_s, transport, pmtu
    write_lat    peer, sizes, iterations | duration_s, warm_up, transport, pmtu
    ev_sweep     peer, count, interval_s, wait_s
    stop_work    stops the work of this connection's client, or `work` of another one
    release      releases the resources created for the client of this connection
    run_writes   the other direction of a bidirectional test, requested by the agent at the other end

The first three are answered when everything is set up, with `work` (a number) and the setup. From then on the
connection carries events: `interval`, `result` (one for each size), `probe`, and at last `end` with `state` done,
stopped or failed, and `error`. When the client disconnects, the test ends and both ends release its QPs and regions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Protocol

from msgspec import Meta

from mrc_testbed.hosts.agent.connections import MRC
from mrc_testbed.hosts.agent.services.ev_ping import EvPing, EvSweepRequest
from mrc_testbed.hosts.agent.services.local_end import LocalEnd, checked_pmtu
from mrc_testbed.hosts.agent.session import ClientSession, ClientSessions
from mrc_testbed.hosts.traffic.write_benchmark import (
    DEPTH_BYTES,
    DRAIN_S,
    LoadFlow,
    LoadShape,
    WriteLoad,
    drain,
    measure,
)
from mrc_testbed.ipc.requests import Number, Request, RequestError, Rkey
from mrc_testbed.ipc.rpc import Message, RpcCall, RpcClient, ServerConnection, event_of
from mrc_testbed.ipc.rpc_table import Later, rpc

MAX_QPS = 256
MAX_DEPTH = 1 << 16
MAX_SIZE = 1 << 28
MAX_ITERATIONS = 10_000_000
MAX_DURATION_S = 86_400.0
MAX_TEST_BYTES = 1 << 30
"""Largest size x QPs: the memory that the other end has to hold, bytes."""
DEPTH = 128
"""Default depth, as perftest's."""


class TestFailedError(Exception):
    """Failure of a test before its end; the message says why, and what to look at."""

    __test__ = False  # not a pytest test class


WriteSizes = Annotated[
    list[Annotated[int, Meta(ge=1, le=MAX_SIZE)]],
    Meta(min_length=1, max_length=64, description=f"1 to 64 numbers of 1 to {MAX_SIZE} bytes"),
]
WriteCounts = Annotated[
    list[Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)]],
    Meta(description=f"a number of 1 to {MAX_ITERATIONS} for each size"),
]


class _Writes(Request):
    """Writes of one size after the other: each for `duration_s`, or its number of `iterations`."""

    sizes: WriteSizes
    iterations: WriteCounts | None = None
    duration_s: Annotated[float, Meta(ge=0.01, le=MAX_DURATION_S)] | None = None
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] | None = None
    warm_up: Annotated[int, Meta(ge=0, le=MAX_ITERATIONS)] = 0


class _PeerWrites(_Writes, kw_only=True):
    """Writes towards a peer, over QPs created for them."""

    peer: str
    transport: str = MRC
    pmtu: Number | None = None
    qps: Annotated[int, Meta(ge=1, le=MAX_QPS)] = 1
    bidirectional: bool = False
    interval_s: Annotated[float, Meta(ge=0.05, le=MAX_DURATION_S)] | None = None


class WriteBwRequest(_PeerWrites, tag="write_bw"):
    """Measure bandwidth; report progress every `interval_s`."""


class WriteLatRequest(_PeerWrites, tag="write_lat"):
    """Measure the latency of single writes: always one QP, one write at a time, one direction."""


class RunWritesRequest(_Writes, tag="run_writes", kw_only=True):
    """Run the other direction of a WriteBwRequest: on QPs created for this client, to its region."""

    qpns: Annotated[list[Number], Meta(min_length=1, max_length=MAX_QPS, description=f"1 to {MAX_QPS} numbers")]
    stride: Annotated[int, Meta(ge=0, le=MAX_SIZE)]
    remote_va: Number
    rkey: Rkey


class StopWorkRequest(Request, tag="stop_work"):
    """End the test of that number, or all work of this client."""

    work: Number | None = None


class ReleaseRequest(Request, tag="release"):
    """Release the resources created for this client."""


AHEAD_S = 0.5
"""Seconds of sending at the ports' rate that the default depth holds, where ports have a rate."""


def shapes_of(request: _Writes, *, depth: int | None = None, rate_bps: float | None = None) -> list[LoadShape]:
    """Return the load shapes to measure, one per size. Raises RequestError.

    `rate_bps`: sum of the local ports' rates.
    """
    sizes, iterations, duration = request.sizes, request.iterations, request.duration_s
    if (iterations is None) == (duration is None):
        raise RequestError("give either `iterations` or `duration_s`")
    if iterations is not None and len(iterations) != len(sizes):
        raise RequestError(f"{len(sizes)} sizes and {len(iterations)} iterations: give one number for each size")
    requested_depth = request.depth if depth is None else depth
    ahead = DEPTH_BYTES if rate_bps is None else min(DEPTH_BYTES, int(rate_bps / 8 * AHEAD_S))
    out = []
    for index, size in enumerate(sizes):
        shape_depth = requested_depth or max(2, min(DEPTH, ahead // size))
        iteration_count = None if iterations is None else iterations[index]
        out.append(LoadShape(size, shape_depth, iteration_count, duration, request.warm_up))
    return out


class WriteTest:
    """One write_bw or write_lat: sets up both ends, measures size after size, reports to the client."""

    def __init__(
        self,
        local: LocalEnd,
        client: ServerConnection,
        session: ClientSession,
        request: _PeerWrites,
        *,
        times: bool,
    ) -> None:
        self._local, self._client, self._session = local, client, session
        self._times = times
        self.peer = local.connections.peer_host(request.peer).name
        rates = local.rates()
        rate = sum(rates.values()) if len(rates) == local.planes else None
        self.shapes = shapes_of(request, depth=1 if times else None, rate_bps=rate)
        self.qps = 1 if times else request.qps
        self.bidirectional = not times and request.bidirectional
        self.interval_s = request.interval_s
        self.transport = local.connections.transport(request.transport)
        self.pmtu_bytes = checked_pmtu(request.pmtu, local.pmtu_bytes)
        self.largest = max(shape.size for shape in self.shapes)
        if self.largest * self.qps > MAX_TEST_BYTES:
            raise RequestError(f"{self.qps} QPs of {self.largest} bytes: at most {MAX_TEST_BYTES} bytes in all")
        self._load: WriteLoad | None = None
        self._stopped = False
        self._peer_error: str | None = None
        """Reason why the other agent is gone; None while its connection stands."""

    def stop(self) -> None:
        """End soon, reporting the measurements so far."""
        self._stopped = True
        if self._load is not None:
            self._load.stop()

    def _peer_lost(self, reason: str) -> None:
        self._peer_error = reason
        if self._load is not None:
            self._load.fail(reason)

    async def run(self, on_start: Callable[[Message], None]) -> str:
        """Run the whole test; `on_start(fields)` answers the client. Returns done or stopped.

        Raises TestFailedError.
        """
        agent = await self._local.connections.dial(self.peer)
        agent.on_lost = self._peer_lost
        try:
            flows, local_region = await self._set_up(agent)
            on_start(self._description(flows))
            for shape in self.shapes:
                if self._stopped:
                    break
                await self._measure(agent, shape, flows, local_region)
            state = "stopped" if self._stopped else "done"
            self._session.release()
            if self._peer_error is None:
                await agent.request("release")
            return state
        finally:
            agent.close()
            self._session.release()

    async def _set_up(self, agent: RpcClient) -> tuple[list[LoadFlow], dict[str, int]]:
        """Return the flows towards the peer, and the address of the local region for its writes."""
        target = await agent.request("register", length=self.largest * self.qps, owned=True)
        local_region = {}
        if self.bidirectional:
            region = self._local.regions.add_memory(self.largest * self.qps)
            self._session.own_region(region)
            local_region = {"va": region.memory.va, "rkey": region.memory.rkey}
        data = memoryview(bytearray(self.largest))
        flows = []
        for index in range(self.qps):
            connection = await self._local.connections.open_reserved(agent, self.pmtu_bytes, self.transport)
            self._session.own_qp(connection)
            connection.is_busy = True
            flows.append(LoadFlow(connection, data, target["va"] + index * self.largest, target["rkey"]))
        return flows, local_region

    def _description(self, flows: list[LoadFlow]) -> Message:
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
            "qps": [{"qpn": connection.qp.qpn, "remote_qpn": connection.remote_qpn} for connection in connections],
        }

    async def _measure(
        self, agent: RpcClient, shape: LoadShape, flows: list[LoadFlow], local_region: dict[str, int]
    ) -> None:
        """Measure one size and send its result. Raises TestFailedError."""
        clock = asyncio.get_running_loop().time
        flows = [LoadFlow(f.connection, f.data[: shape.size], f.remote_va, f.rkey) for f in flows]
        load = self._load = WriteLoad(shape, flows, clock, times=self._times)
        reverse = None
        if self.bidirectional:
            reverse = agent.call("run_writes", **self._mirror(shape, flows, local_region))
        await measure(load, self.interval_s, lambda fields: self.send_event("interval", bytes=shape.size, **fields))
        if load.stopped and reverse is not None:
            agent.notify("stop_work")
        has_drained = await drain(load, DRAIN_S)
        if load.failure is not None:
            raise TestFailedError(self._explain_failure(load.failure))
        result = load.result()
        if self._times:
            result |= load.latencies()
        if reverse is not None:
            result["reverse"] = (await reverse)["result"]
        self.send_event("result", **result)
        if not has_drained and not self._stopped:
            raise TestFailedError(
                f"{load.outstanding} writes to {self.peer} did not complete, and nothing moves since {DRAIN_S:g} s "
                f"(is a path left? `mrc-ping {self.peer}`)"
            )

    def _mirror(self, shape: LoadShape, flows: list[LoadFlow], local_region: dict[str, int]) -> Message:
        """Return the request for the other direction."""
        ends = {"duration_s": shape.duration_s} if shape.iterations is None else {"iterations": [shape.iterations]}
        return {
            "qpns": [flow.connection.remote_qpn for flow in flows],
            "sizes": [shape.size],
            "depth": shape.depth,
            "warm_up": shape.warm_up,
            "stride": self.largest,
            "remote_va": local_region["va"],
            "rkey": local_region["rkey"],
            **ends,
        }

    def _explain_failure(self, failure: str) -> str:
        if self._peer_error is not None or "Retry Counter" not in failure:
            return failure
        return f"{failure}: nothing came back over any path (see `mrc-ping {self.peer}`, and log/{self.peer}.log)"

    def send_event(self, event: str, **fields: object) -> None:
        """Send an event to the client."""
        self._client.send(event_of(event, None, fields))


class RunningWork(Protocol):
    """Work that runs for a client: an answer by `on_start`, then events."""

    async def run(self, on_start: Callable[[Message], None]) -> str:
        """Run to the end; return done or stopped."""

    def stop(self) -> None:
        """End soon."""


ErrorText = Callable[[RpcCall, Exception], str]


class MeasurementService:
    """RPC service for bandwidth, latency and EV tests. `error_text`: text of an error for the client."""

    def __init__(self, local: LocalEnd, sessions: ClientSessions, error_text: ErrorText) -> None:
        self._local, self._sessions, self._error_text = local, sessions, error_text
        self._last_work = 0
        self._work: dict[int, tuple[RunningWork, ClientSession, asyncio.Task[str]]] = {}
        """Work not yet ended, by number; work being stopped included."""

    @rpc(WriteBwRequest)
    def write_bw(self, request: WriteBwRequest, call: RpcCall) -> None:
        """Measure the bandwidth of writes towards a peer."""
        session = self._idle_session(call.client)
        self._start(WriteTest(self._local, call.client, session, request, times=False), session, call)

    @rpc(WriteLatRequest)
    def write_lat(self, request: WriteLatRequest, call: RpcCall) -> None:
        """Measure the latency of single writes towards a peer, from posting to completion."""
        session = self._idle_session(call.client)
        self._start(WriteTest(self._local, call.client, session, request, times=True), session, call)

    @rpc(EvSweepRequest)
    def ev_sweep(self, request: EvSweepRequest, call: RpcCall) -> None:
        """Send EV probes over all paths to a peer."""
        session = self._idle_session(call.client)
        self._start(EvPing(self._local, call.client, request), session, call)

    def _idle_session(self, client: ServerConnection) -> ClientSession:
        """Return the session of a client that runs no test. Raises RequestError if one runs."""
        session = self._sessions.session_of(client)
        if session.has_qps or any(owner is session for _, owner, _ in self._work.values()):
            raise RequestError("this connection has a test running: open another one, or `stop_work` first")
        return session

    def _start(self, work: RunningWork, session: ClientSession, call: RpcCall) -> None:
        """Run `work`, answer when it has started, send its end as an event."""
        self._last_work += 1
        number = self._last_work
        session.add_work(work.stop)
        answered = False

        def on_start(fields: Message) -> None:
            nonlocal answered
            answered = True
            call.answer({"work": number, **fields})

        def on_done(task: asyncio.Task[str]) -> None:
            del self._work[number]
            session.remove_work(work.stop)
            if task.cancelled():
                return
            failure = task.exception()
            error = self._error_text(call, failure) if isinstance(failure, Exception) else None
            # A client that has its answer gets the outcome as an event, any other as a refusal.
            if answered:
                state = task.result() if error is None else "failed"
                call.client.send(event_of("end", None, {"work": number, "state": state, "error": error}))
            else:
                call.refuse(error or "the test ended before it began")

        task = asyncio.get_running_loop().create_task(work.run(on_start))
        self._work[number] = work, session, task
        task.add_done_callback(on_done)

    @rpc(StopWorkRequest)
    def stop_work(self, request: StopWorkRequest, call: RpcCall) -> Message:
        """End the test of that number, or all work of this client."""
        number = request.work
        if number is None:
            self._sessions.session_of(call.client).stop()
        elif number in self._work:
            self._work[number][0].stop()
        return {}

    @rpc(ReleaseRequest)
    def release(self, _request: ReleaseRequest, call: RpcCall) -> Message:
        """Release the QPs and regions created with `owned` on this connection."""
        self._sessions.session_of(call.client).release()
        return {}

    @rpc(RunWritesRequest)
    def run_writes(self, request: RunWritesRequest, call: RpcCall) -> Later:
        """Post writes on QPs created for this client, towards its region; answer the measurements."""
        session = self._sessions.session_of(call.client)
        (shape, *_) = shapes_of(request)
        data = memoryview(bytearray(shape.size))
        flows = [
            LoadFlow(session.qp(qpn), data, request.remote_va + index * request.stride, request.rkey)
            for index, qpn in enumerate(request.qpns)
        ]
        load = WriteLoad(shape, flows, asyncio.get_running_loop().time)
        session.add_work(load.stop)

        async def run() -> Message:
            await measure(load, None, lambda _fields: None)
            await drain(load, DRAIN_S)
            session.remove_work(load.stop)
            if load.failure is not None:
                raise RequestError(load.failure)
            return {"result": load.result()}

        return run()
