"""The measuring loop over a transport that is a list and a clock that is ours.

What counts, when it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.agent.services.measurement import WriteBwRequest, shapes_of
from mrc_testbed.hosts.agent.session import ClientSessions
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.hosts.traffic.write_benchmark import LoadFlow, LoadShape, WriteLoad, drain, measure
from mrc_testbed.ipc.requests import RequestError, parse
from mrc_testbed.ipc.rpc import ServerConnection as Client
from tests.jumping_loop import JumpingLoop


class World:
    """A loop whose clock jumps, and QPs whose writes take `service_s` each, one after the other."""

    def __init__(self, qps: int = 1, service_s: float = 0.01) -> None:
        self.loop = JumpingLoop()
        self.service_s = service_s
        self.queue: deque[tuple[SimpleNamespace, int]] = deque()
        self.deepest = 0
        self.status = Status.SUCCESS
        self.connections = [self._connection(n) for n in range(qps)]

    @property
    def now(self) -> float:
        return self.loop.time()

    def _connection(self, qpn: int) -> SimpleNamespace:
        connection = SimpleNamespace(peer="h1", on_completion=None, sent=0, refuses=False)

        def post_write(data, va, rkey, *, now):
            if connection.refuses:
                raise LocalError(f"QP {qpn} is in error")
            connection.sent += 1
            self.queue.append((connection, len(data)))
            if len(self.queue) == 1:
                self.loop.call_later(self.service_s, self.complete_one)
            self.deepest = max(self.deepest, len(self.queue))

        connection.qp = SimpleNamespace(qpn=qpn, post_write=post_write)
        connection.counters = lambda: {"sent": connection.sent, "plane_bytes": [connection.sent * 100, 0], "flag": None}
        return connection

    def load(self, shape: LoadShape, **options) -> WriteLoad:
        data = memoryview(bytes(shape.size))
        return WriteLoad(shape, [LoadFlow(c, data, 0, 0) for c in self.connections], lambda: self.now, **options)

    def complete_one(self) -> None:
        connection, length = self.queue.popleft()
        if self.queue:
            self.loop.call_later(self.service_s, self.complete_one)
        connection.on_completion(connection, Completion(connection.qp.qpn, 0, self.status, length, self.now))

    def run(self, coroutine):
        """Run the coroutine to its end."""
        return self.loop.run_until_complete(coroutine)


def run_load(world: World, load: WriteLoad, interval_s=None) -> list[dict]:
    events: list[dict] = []
    world.run(measure(load, interval_s, events.append))
    return events


@given(
    qps=st.integers(1, 4),
    depth=st.integers(1, 9),
    iterations=st.integers(1, 20),
    warm_up=st.integers(0, 5),
)
def test_iterations__exactly_those_are_measured_from_an_empty_pipe(qps, depth, iterations, warm_up):
    world = World(qps)
    load = world.load(LoadShape(1000, depth, iterations, None, warm_up))
    run_load(world, load)
    result = load.result()
    assert (result["writes"], load.outstanding, load.failure) == (qps * iterations, 0, None)
    assert [c.sent for c in world.connections] == [iterations + warm_up] * qps
    assert world.deepest <= qps * depth
    assert result["duration_s"] == pytest.approx(qps * iterations * world.service_s)
    assert result["bw_average_bps"] == pytest.approx(8000 / world.service_s)
    assert result["bw_peak_bps"] >= result["bw_average_bps"]
    assert sum(result["plane_bps"]) == pytest.approx(100 * 8 / world.service_s)


def test_duration__ends_in_time_and_the_rest_is_drained():
    world = World(service_s=0.01)
    load = world.load(LoadShape(1000, 16, None, 1.005, 3))
    run_load(world, load)
    result = load.result()
    assert (result["duration_s"], result["writes"], load.outstanding) == (pytest.approx(1.005), 100, 16)
    assert world.run(drain(load, 5.0)) and load.outstanding == 0
    assert load.result()["writes"] == 100


def test_duration__ends_though_nothing_completes():
    world = World(service_s=1e9)
    load = world.load(LoadShape(1000, 4, None, 1.0))
    run_load(world, load)
    result = load.result()
    assert (world.now, result["writes"], result["bw_average_bps"]) == (pytest.approx(1.0), 0, 0.0)
    assert not world.run(drain(load, 2.0)) and world.now == pytest.approx(3.0)


def test_drain__waits_as_long_as_something_moves():
    world = World(service_s=1.5)  # slower than the limit would allow for all of them
    load = world.load(LoadShape(1000, 8, None, 1.0))
    run_load(world, load)
    assert world.run(drain(load, 2.0)) and load.outstanding == 0


def test_intervals__add_up_to_the_whole():
    world = World(service_s=0.00999)
    load = world.load(LoadShape(1000, 4, None, 1.0))
    events = run_load(world, load, interval_s=0.25)
    assert [round(event["to_s"], 6) for event in events] == [0.25, 0.5, 0.75, 1.0]
    assert sum(event["writes"] for event in events) == load.result()["writes"] == 100


def test_latencies__are_from_posting_to_completion():
    world = World(service_s=0.002)
    load = world.load(LoadShape(2, 1, 10, None, 2), times=True)
    run_load(world, load)
    summary = load.latencies()
    assert summary["t_min_us"] == summary["p99_9_us"] == pytest.approx(2000)


def test_stop__counts_what_was_measured_so_far():
    world = World(service_s=0.01)
    load = world.load(LoadShape(1000, 4, 1000, None))
    measuring = world.loop.create_task(measure(load, None, lambda event: None))
    world.run(asyncio.sleep(0.105))
    load.stop()
    result = load.result()
    assert (result["writes"], result["stopped"]) == (10, True)
    assert result["bw_average_bps"] == pytest.approx(1000 * 8 / 0.01)
    posted = world.connections[0].sent
    assert not world.run(drain(load, 60.0)) and world.now < 60.0
    world.run(asyncio.sleep(1.0))
    assert measuring.done() and not world.queue
    assert world.connections[0].sent == posted and load.outstanding == 0


def test_failure__of_a_write_and_of_a_post_end_the_load_with_words():
    world = World()
    world.status = Status.RETRY_EXCEEDED
    load = world.load(LoadShape(1000, 4, 10, None))
    run_load(world, load)
    assert load.failure == "QP 0 to h1: Retry Counter Exceeded" and load.result()["writes"] == 0
    world = World()
    world.connections[0].refuses = True
    load = world.load(LoadShape(1000, 4, 10, None))
    run_load(world, load)
    assert load.failure == "QP 0 is in error"


# ---- requests -----------------------------------------------------------------------------------------------


def test_shapes__depth_is_cut_for_large_writes_unless_asked():
    def shapes(fields, **options):
        return shapes_of(parse(WriteBwRequest, {"op": "write_bw", "peer": "h1", **fields}), **options)

    request = {"sizes": [64, 8 << 20], "iterations": [5, 6], "warm_up": 1}
    assert [(s.size, s.depth, s.iterations) for s in shapes(request)] == [(64, 128, 5), (8 << 20, 2, 6)]
    assert [s.depth for s in shapes({**request, "depth": 50})] == [50, 50]
    assert [s.depth for s in shapes(request, depth=1)] == [1, 1]
    assert [s.depth for s in shapes(request, rate_bps=40e6)] == [128, 2]
    assert [s.depth for s in shapes({**request, "sizes": [1 << 16, 1 << 18]}, rate_bps=40e6)] == [38, 9]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs 'sizes' (list)"),
        ({"sizes": []}, "1 to 64 numbers"),
        ({"sizes": [0]}, "1 to 64 numbers"),
        ({"sizes": [True]}, "1 to 64 numbers"),
        ({"sizes": [1 << 40]}, "1 to 64 numbers"),
        ({"sizes": ["2"]}, "1 to 64 numbers"),
        ({"sizes": [2]}, "either `iterations` or `duration_s`"),
        ({"sizes": [2], "iterations": [1], "duration_s": 1.0}, "either `iterations` or `duration_s`"),
        ({"sizes": [2], "iterations": 5}, "must be of type list"),
        ({"sizes": [2], "iterations": [0]}, "a number of 1 to"),
        ({"sizes": [2], "iterations": [1, 2]}, "give one number for each size"),
        ({"sizes": [2], "duration_s": 1e9}, "must be 0.01 to 86400"),
        ({"sizes": [2], "duration_s": 1, "depth": 0}, "depth = 0: must be 1 to"),
        ({"sizes": [2], "duration_s": 1, "warm_up": -1}, "warm_up = -1: must be 0 to"),
    ],
)
def test_shapes__what_cannot_be_is_refused(fields, message):
    with pytest.raises(RequestError) as caught:
        shapes_of(parse(WriteBwRequest, {"op": "write_bw", "peer": "h1", **fields}))
    assert message in str(caught.value)


# ---- session ---------------------------------------------------------------------------------------------


class Store(dict):
    """Stands for the agent's QPs, or its regions."""

    def discard(self, resource) -> None:
        self.pop(resource.name, None)


def test_session__releases_what_it_owns_with_the_client_and_nothing_else():
    qps = Store({n: SimpleNamespace(name=n, qp=SimpleNamespace(qpn=n)) for n in ("mine", "gone", "other")})
    regions = Store({n: SimpleNamespace(name=n) for n in ("mine", "other")})
    clients, client, calls = ClientSessions(qps, regions), Client(lambda line: None), []
    session = clients.session_of(client)
    assert clients.session_of(client) is session and clients.session_of(Client(lambda line: None)) is not session
    session.own_qp(qps["mine"])
    session.own_qp(qps["gone"])
    session.own_region(regions["mine"])
    session.release_on_close(lambda: calls.append("released"))
    session.add_work(lambda: calls.append("stopped"))
    qps.discard(qps["gone"])  # closed by hand before
    assert session.qp("mine") is qps["mine"]
    with pytest.raises(RequestError, match="QP 9 was not made for this client"):
        session.qp(9)
    client.handle_close()
    assert (list(qps), list(regions), calls) == (["other"], ["other"], ["stopped", "released"])
    client.handle_close()
    session.release()
    assert calls == ["stopped", "released"]
