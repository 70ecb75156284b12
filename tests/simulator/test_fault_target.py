"""Faults on the virtual fabric.

What each verb does to ports and switches, and what overlapping ones leave.
"""

import pytest

from mrc_testbed.faults import (
    ControllerFault,
    CutFault,
    DrainFault,
    FaultError,
    FaultHolds,
    LossFault,
    OneWayFault,
    PacketChoice,
)
from mrc_testbed.faults.kinds import DRAIN_S
from mrc_testbed.simulator import VirtualFabric
from mrc_testbed.simulator.fault_target import REBOOT_S, LastWordFaultTarget, VirtualFaultTarget
from mrc_testbed.topologies.plan import Plan

A, B = "p0-t0-0", "p0-t1-0"


class ControlDouble:
    def __init__(self):
        self.orders = []

    def drain(self, plane, on):
        self.orders.append(("drain", plane, on))

    def set_alive(self, is_alive):
        self.orders.append(("alive", is_alive))

    def links_changed(self):
        self.orders.append("links")


@pytest.fixture
def target():
    return VirtualFaultTarget(VirtualFabric(Plan(2, 2, 2, 1)), ControlDouble())


def is_up(target, a=A, b=B):
    return target.fabric.port_towards(a, b).is_up


def test_cut__link_is_up_when_all_who_cut_it_are_done(target):
    first, second = target.cut(A, B), target.cut(A, B)
    target.undo(first)
    target.undo(first)  # once more: nothing is left of it
    assert not is_up(target)
    target.undo(second)
    assert is_up(target)


def test_restore__ends_cuts_of_others(target):
    holds = target.cut(A, B) + target.swallow(A, B, both_ways=True)
    target.restore(B, A)
    assert is_up(target) and not target.fabric.port_towards(A, B)._cut
    later = target.cut(A, B)
    target.undo(holds)
    assert not is_up(target)
    target.undo(later)
    assert is_up(target)


@pytest.mark.parametrize(("direction", "ways"), [("both", {A, B}), ("up", {A}), ("one_way", {A}), ("down", {B})])
def test_impair__hits_the_direction_that_is_named(target, direction, ways):
    holds = target.impair("loss", A, B, PacketChoice(pattern="1"), direction=direction)
    assert {port.node for port in target.fabric.ports.values() if port._loss} == ways
    target.undo(holds)
    assert not any(port._loss for port in target.fabric.ports.values())


def test_set_line__goes_back_to_the_first_one(target):
    first_line = target.fabric.port_towards(A, B).line
    holds = target.set_line(A, B, rate_bps=1e6, delay_s=None, jitter_s=0.01, in_order=None, direction="up")
    now = target.fabric.port_towards(A, B).line
    assert (now.rate_bps, now.delay_s, now.jitter_s) == (1e6, first_line.delay_s, 0.01)
    assert target.fabric.port_towards(B, A).line.rate_bps == first_line.rate_bps
    target.undo(holds)
    assert target.fabric.port_towards(A, B).line == first_line


def test_reboot__forgets_a_black_hole(target):
    holds = target.blackhole(B)
    target.reboot(B, None)
    target.fabric.run_for(REBOOT_S / 2)
    assert not is_up(target)
    target.fabric.run_for(REBOOT_S)
    assert is_up(target) and not target.fabric.switches[B].blackhole and "links" in target.control.orders
    target.undo(holds)


def test_power__is_back_when_all_are_done_or_by_hand(target):
    holds = target.power_off(B) + target.power_off(B)
    target.undo(holds[:1])
    assert not is_up(target)
    target.power_on(B)
    assert is_up(target)


def test_flap__down_and_up_as_often_as_asked(target):
    target.flap([(A, B)], down_s=0.2, up_s=0.1, times=2)
    target.fabric.run_for(0.05)
    states = [is_up(target)]
    for _ in range(5):
        target.fabric.run_for(0.1)
        states.append(is_up(target))
    assert states == [False, False, True, False, False, True]
    assert target.control.orders.count("links") == 4


PLANE_1 = ("p1-t0-0", "p1-t1-0")


def is_drained(target):
    """Return whether plane 1 is denied, by the last report about it."""
    return next((order[2] for order in reversed(target.control.orders) if order[0] == "drain"), False)


def test_drain__that_ends_before_its_links_were_cut_gives_the_plane_back(target):
    fault, holds = DrainFault(plane=1), FaultHolds()
    fault.begin(target, holds, 0)
    target.fabric.run_for(DRAIN_S / 2)
    fault.end(target, holds)
    target.fabric.run_for(3 * DRAIN_S)
    assert is_up(target, *PLANE_1) and not is_drained(target)


def test_drains_that_overlap__the_plane_is_back_when_the_last_one_is_over(target):
    fault, first, second = DrainFault(plane=1), FaultHolds(), FaultHolds()
    fault.begin(target, first, 0)
    target.fabric.run_for(2 * DRAIN_S)
    fault.begin(target, second, 1)
    target.fabric.run_for(2 * DRAIN_S)
    fault.end(target, first)
    target.fabric.run_for(2 * DRAIN_S)
    assert not is_up(target, *PLANE_1) and is_drained(target)
    fault.end(target, second)
    assert is_up(target, *PLANE_1) and is_drained(target)
    target.fabric.run_for(2 * DRAIN_S)
    assert not is_drained(target)


def test_drain__that_begins_before_the_last_one_has_given_its_plane_back_keeps_it(target):
    fault, first, second = DrainFault(plane=1), FaultHolds(), FaultHolds()
    fault.begin(target, first, 0)
    target.fabric.run_for(2 * DRAIN_S)
    fault.end(target, first)
    target.fabric.run_for(DRAIN_S / 2)
    fault.begin(target, second, 1)
    target.fabric.run_for(2 * DRAIN_S)
    assert not is_up(target, *PLANE_1) and is_drained(target)


def test_drain__leaves_a_cut_of_another_as_it_is(target):
    cut, fault, holds = target.cut(*PLANE_1), DrainFault(plane=1), FaultHolds()
    fault.begin(target, holds, 0)
    target.fabric.run_for(2 * DRAIN_S)
    fault.end(target, holds)
    assert not is_up(target, *PLANE_1) and is_up(target, "p1-t0-1", "p1-t1-0")
    target.undo(cut)
    assert is_up(target, *PLANE_1)


def test_heal__ends_a_drain_whose_links_are_still_to_be_cut(target):
    DrainFault(plane=1).begin(target, FaultHolds(), 0)
    target.heal()
    target.fabric.run_for(2 * DRAIN_S)
    assert is_up(target, *PLANE_1) and not is_drained(target)


def test_planes_controller_and_heal(target):
    target.deny_plane(1, True)
    holds = target.cut_plane(1)
    assert not is_up(target, "p1-t0-0", "p1-t1-0") and is_up(target)
    target.undo(holds)
    target.set_controller(False)
    assert is_up(target, "p1-t0-0", "p1-t1-0")
    assert target.control.orders == [("drain", 1, True), "links", "links", ("alive", False)]
    target.corrupt_switch(B, 0.5)
    target.blackhole(A)
    target.heal()
    assert not target.fabric.switches[A].blackhole and not any(p._corrupt for p in target.fabric.ports.values())


def test_verbs__name_what_does_not_exist(target):
    with pytest.raises(FaultError, match="no link from p0-t0-0 to p9"):
        target.cut(A, "p9")


def test_flap__without_end_until_undone(target):
    holds = target.flap([(A, B)], down_s=0.2, up_s=0.1, times=None)
    target.fabric.run_until(3.05)
    assert not is_up(target)
    target.undo(holds)
    assert is_up(target)
    target.fabric.run_for(1.0)
    assert is_up(target) and not len(target.fabric.queue)


def test_drain__shorter_than_its_delay_leaves_the_plane_up(target):
    fabric, ups = target.fabric, []
    fabric.faults = target
    fabric.schedule(1.0, DrainFault(plane=1), until_s=1.0 + DRAIN_S / 2)
    fabric.sample(0.05, lambda _: ups.append(is_up(target, "p1-t0-0", "p1-t1-0")), 3.0)
    fabric.run_until(3.0)
    assert all(ups) and target.control.orders == [("drain", 1, True), ("drain", 1, False)]


def test_drain__cuts_and_restores_its_plane(target):
    fabric = target.fabric
    fabric.faults = target
    fabric.schedule(1.0, DrainFault(plane=1), until_s=3.0)
    fabric.run_until(2.0)
    assert not is_up(target, "p1-t0-0", "p1-t1-0") and is_up(target)
    fabric.run_until(4.0)
    assert is_up(target, "p1-t0-0", "p1-t1-0") and target.control.orders[-1] == ("drain", 1, False)


def test_controller__killed_for_a_while_is_started_again(target):
    target.fabric.faults = target
    target.fabric.schedule(1.0, ControllerFault(what="kill"), until_s=2.0)
    target.fabric.run_until(3.0)
    assert target.control.orders == [("alive", False), ("alive", True)]


def test_fabric__without_a_control_plane_says_so():
    with pytest.raises(FaultError, match="without controller"):
        VirtualFabric(Plan(2, 2, 2, 1)).apply(ControllerFault())


def test_last_word__has_its_way():
    fabric = VirtualFabric(Plan(2, 2, 2, 1))
    fabric.faults = LastWordFaultTarget(fabric)
    fabric.schedule(1.0, CutFault.on(f"{A} {B}"), until_s=3.0)
    fabric.schedule(2.0, CutFault.on(f"{A} {B}"), until_s=5.0)
    fabric.schedule(1.0, LossFault.on(f"{A} {B}", rate=0.5), until_s=5.0)
    fabric.schedule(1.0, OneWayFault.on(f"{B} {A}"), until_s=3.0)
    fabric.run_until(4.0)
    port = fabric.port_towards(A, B)
    assert port.is_up and port._loss is None, "the first of two ends what both do"


def test_pruned__uplinks_are_out_of_use_and_stay_live(target):
    t0 = target.fabric.switches["p0-t0-0"]
    live_uplinks = t0.live_uplinks
    t0.pruned_links = frozenset({(1, 0), (0, 1)})
    assert t0.live_towards(1) == [1] and t0.live_towards(0) == [0]
    assert t0.live_uplinks is live_uplinks and live_uplinks == [0, 1]
