"""Shares of links: what rates settle at, and that the sweep in C and the one in numpy do the same."""

import numpy as np
import pytest

from mrc_testbed.simulator.fluid.calibration import CALIBRATIONS, calibration_for
from mrc_testbed.simulator.fluid.rings import Rings
from mrc_testbed.simulator.fluid.shape import FabricShape, QueuePairs
from mrc_testbed.simulator.fluid.sharing import NO_SPINE, Sharing, _in_c

SHAPE = FabricShape(
    planes=2, racks=4, spines=8, hosts_per_rack=4, rate_bps=10e6, rtt_s=0.01, frame_bytes=1166, payload_bytes=1024
)
CALIBRATION = calibration_for(SHAPE)


def pairs_of(sources, targets, rings=()) -> QueuePairs:
    count = len(sources)
    weights = np.ones(count)
    return QueuePairs(
        np.array(sources), np.array(targets), 0 * weights, np.inf * weights, weights, 1e6 * weights, rings
    )


def sharing_of(pairs: QueuePairs, spines, **options) -> Sharing:
    """Return the QPs that have these T1s in rotation, [QP, plane, slot], and send."""
    sharing = Sharing(SHAPE, CALIBRATION, pairs, **options)
    count = len(pairs)
    grid = np.full((count, SHAPE.planes, SHAPE.rotation), NO_SPINE, np.uint16)
    spines = np.asarray(spines, np.uint16)
    grid[:, :, : spines.shape[2]] = spines
    rows = np.argwhere(np.ones((count, SHAPE.planes), bool))
    sharing.set_rotation(rows[:, 0], rows[:, 1], grid.reshape(-1, SHAPE.rotation))
    sharing.send(np.arange(count), True)
    return sharing


def crowded_sharing(rings=(), **options) -> Sharing:
    """Return a permutation of 16 hosts, with EVs drawn at random."""
    dice = np.random.default_rng(3)
    hosts = np.arange(16)
    spines = dice.random((16, SHAPE.planes, SHAPE.spines)).argsort(axis=2)[:, :, : SHAPE.rotation]
    return sharing_of(pairs_of(hosts, np.roll(hosts, 5), rings), spines, **options)


def test_alone__nothing_holds_it_back():
    sharing = sharing_of(pairs_of([0], [5]), [[[0, 1, 2], [3, 4, 5]]])
    sharing.settle()
    assert sharing.rate[0] == pytest.approx(CALIBRATION.top)
    assert sharing.up_load.sum() == pytest.approx(2 * CALIBRATION.top, rel=1e-3)


def test_one_link_for_four__the_same_each_and_a_quarter_at_most():
    """Less than a quarter, for a queue stands before its link is full, on the way up and on the way down."""
    sharing = sharing_of(pairs_of([0, 1, 2, 3], [4, 5, 6, 7]), [[[0], [0]]] * 4)
    sharing.settle()
    assert sharing.rate == pytest.approx(sharing.rate[0], rel=1e-3)
    assert 0.18 < sharing.rate[0] <= 0.25


def test_busy_links__packets_go_round_them():
    """Two others are on spine 0: who also has spine 1 puts more there, and is slower for the busy one."""
    sharing = sharing_of(pairs_of([0, 1, 2], [4, 5, 6]), [[[0, 1], [0, 1]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]])
    sharing.settle()
    assert sharing.share[0, 0, 1] > sharing.share[0, 0, 0] * 1.1
    assert sharing.rate[0] > sharing.rate[1]


def test_inside_a_rack__takes_no_links():
    sharing = sharing_of(pairs_of([0], [1]), [[[0], [0]]])
    sharing.settle()
    assert sharing.rate[0] == pytest.approx(CALIBRATION.top) and sharing.up_load.sum() == 0


def test_loads__follow_places_ports_and_ends():
    sharing = crowded_sharing()
    sharing.settle(sweeps=5)

    def exact() -> np.ndarray:
        up_load = np.zeros(SHAPE.links)
        for qp in np.flatnonzero(sharing.weight):
            for plane in range(SHAPE.planes):
                for slot, spine in enumerate(sharing.spine[qp, plane]):
                    if spine != NO_SPINE and not sharing.local[qp]:
                        link = (plane * SHAPE.racks + sharing.source[qp]) * SHAPE.spines + spine
                        up_load[link] += sharing.rate[qp] * sharing.share[qp, plane, slot]
        return up_load

    assert sharing.up_load == pytest.approx(exact(), abs=1e-4)
    empty = np.full((1, SHAPE.rotation), NO_SPINE, np.uint16)
    empty[0, 0] = 7
    sharing.set_rotation(np.array([2]), np.array([1]), empty)
    assert sharing.up_load == pytest.approx(exact(), abs=1e-4)
    sharing.set_usable(np.array([3]), np.array([0]), np.array([False]))
    assert sharing.up_load == pytest.approx(exact(), abs=1e-4)
    assert sharing.planes_used()[3] == 1
    sharing.set_usable(np.array([3]), np.array([0]), np.array([True]))
    sharing.send(np.array([4]), False)
    sharing.settle(sweeps=3)
    assert sharing.up_load == pytest.approx(exact(), abs=1e-4)


@pytest.mark.parametrize("rings", [(), (Rings(0, jobs=2, ranks=4, qps=1, steps=6, chunk_bytes=131072),)])
def test_both_forms__do_the_same(rings, monkeypatch):
    monkeypatch.delenv("MRC_COMPILED", raising=False)
    _in_c.cache_clear()
    fast, slow = crowded_sharing(rings), crowded_sharing(rings, in_c=False)
    _in_c.cache_clear()
    if fast._library is None:
        pytest.skip("no C compiler")
    fast.settle(sweeps=30)
    slow.settle(sweeps=30)
    assert fast.rate == pytest.approx(slow.rate, abs=2e-3)
    assert fast.demand == pytest.approx(slow.demand, abs=2e-3)
    assert fast.delay == pytest.approx(slow.delay, abs=5e-3)
    assert fast.share == pytest.approx(slow.share, abs=2e-3)
    assert fast.up_load == pytest.approx(slow.up_load, abs=5e-3)


def test_ring__leaves_what_its_slow_flow_keeps_it_from():
    """Give h5 what h4 leaves of their link: its ring waits for h0, which shares one with three."""
    ends = [0, 4, 1, 2, 3, 5], [4, 0, 5, 6, 7, 1]
    spines = [[[0], [0]], [[1], [1]], *[[[0], [0]]] * 3, [[1], [1]]]
    ring = Rings(0, jobs=1, ranks=2, qps=1, steps=2, chunk_bytes=1e6)
    stream, waiting = (sharing_of(pairs_of(*ends, rings), spines) for rings in ((), (ring,)))
    for sharing in (stream, waiting):
        sharing.settle()
    assert stream.rate[1] == pytest.approx(stream.rate[5], rel=0.01)
    assert waiting.demand[1] == pytest.approx(waiting.demand[0], rel=1e-3)
    assert waiting.demand[1] <= waiting.rate[0] < 0.25
    assert waiting.rate[5] > stream.rate[5] + 0.1


def test_ring__speeds_up_when_its_slow_flow_does():
    ring = Rings(0, jobs=1, ranks=2, qps=1, steps=2, chunk_bytes=1e6)
    sharing = sharing_of(pairs_of([0, 4, 1, 2, 3], [4, 0, 5, 6, 7], (ring,)), [[[0], [0]]] * 5)
    sharing.settle()
    slow = sharing.demand[1]
    sharing.send(np.array([2, 3, 4]), False)
    sharing.settle()
    assert sharing.demand[1] > 3 * slow


def test_calibration__the_nearest_pipe():
    assert calibration_for(SHAPE) is CALIBRATIONS[0]
    assert calibration_for(FabricShape(8, 4, 4, 4, 100e9, 10e-6, 4238, 4096)) is CALIBRATIONS[1]
