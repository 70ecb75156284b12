"""Faults on a live fabric: which injections each verb makes, and in what order they are undone."""

import threading
from types import SimpleNamespace

import pytest

from mrc_testbed.faults import (
    DuplicateFault,
    FaultError,
    FaultHolds,
    InjectedFault,
    LateFault,
    LineFault,
    LossFault,
    PacketChoice,
    StallFault,
    VanishFault,
)
from mrc_testbed.topologies.lab.fault_target import LiveFaultTarget
from mrc_testbed.topologies.plan import Plan

A, B = "p0-t0-0", "p0-t1-0"


class FabricDouble:
    """Notes what an Injector, an agent and the processes are asked for."""

    def __init__(self):
        self.plan, self.calls, self.active = Plan(2, 2, 2, 1), [], []
        self.nodes_off = []
        self.inject = self

    def __getattr__(self, verb):
        def note(*arguments, **keywords):
            self.calls.append((verb, *arguments, *keywords.items()))
            return self.calls[-1]

        return note

    def agent(self, host):
        return SimpleNamespace(request=lambda operation, entries: self.calls.append((host, operation, len(entries))))


@pytest.fixture
def fabric():
    return FabricDouble()


def test_swallow__both_ways_are_two_injections_undone_last_first(fabric):
    target = LiveFaultTarget(fabric)
    injections = target.swallow(A, B, both_ways=True)
    assert fabric.calls == [("one_way_cut", A, B), ("one_way_cut", B, A)]
    target.undo(injections)
    assert [call[1] for call in fabric.calls[2:]] == injections[::-1]


@pytest.mark.parametrize(("direction", "sender"), [("both", None), ("up", A), ("one_way", A), ("down", B)])
def test_impair__sender_by_direction(fabric, direction, sender):
    LiveFaultTarget(fabric).impair("loss", A, B, PacketChoice(0.1, seed=3), direction=direction)
    assert fabric.calls == [("loss", A, B, 0.1, ("pattern", ""), ("sender", sender), ("seed", 3))]


def test_impair__share_of_zero_is_nothing(fabric):
    assert LiveFaultTarget(fabric).impair("loss", A, B, PacketChoice(0.0), direction="up") == []


@pytest.mark.parametrize("delays", [True, False])
def test_set_line__delay_where_links_have_some(fabric, delays):
    injections = LiveFaultTarget(fabric, delays=delays).set_line(
        A, B, rate_bps=1e6, delay_s=0.01, jitter_s=None, in_order=None, direction="both"
    )
    assert [injection[0] for injection in injections] == (["rate", "delay"] if delays else ["rate"])


def test_flap__tells_that_both_halves_are_equal(fabric):
    notes = []
    target = LiveFaultTarget(fabric, note=notes.append)
    target.flap([(A, B)], down_s=1, up_s=1, times=2)
    assert notes == []
    target.flap([(A, B)], down_s=1, up_s=3, times=2)
    assert notes == ["flaps of 1 s down and 3 s up: live, both take 2 s"]


def test_corrupt_switch__all_that_it_sends(fabric):
    injections = LiveFaultTarget(fabric).corrupt_switch(B, 0.1)
    assert [injection[:3] for injection in injections] == [("corrupt", B, "p0-t0-0"), ("corrupt", B, "p0-t0-1")]


def test_reboot__forgets_what_held_the_switch(fabric):
    hole = SimpleNamespace(location=B)
    fabric.active = [hole, SimpleNamespace(location=A)]
    LiveFaultTarget(fabric).reboot(B, None)
    assert fabric.calls == [("undo", hole), ("reboot", B, ("off_s", 1.0))]


def test_planes_and_controller(fabric):
    target = LiveFaultTarget(fabric)
    target.deny_plane(1, True)
    target.deny_plane(1, False)
    assert fabric.calls == [("h0", "denylist", 2), ("h1", "denylist", 2), ("h0", "denylist", 0), ("h1", "denylist", 0)]
    assert len(target.cut_plane(1)) == sum(link.plane == 1 for link in fabric.plan.links)
    target.set_controller(False)
    target.set_controller(True)
    assert fabric.calls[-2:] == [("kill_controller",), ("spawn_controller",)]


def test_drains__of_two_planes_and_twice_of_one_are_one_list(fabric):
    target = LiveFaultTarget(fabric)
    for plane, on in ((0, True), (1, True), (1, True), (1, False), (0, False), (1, False), (1, False)):
        target.deny_plane(plane, on)
    assert [call[2] for call in fabric.calls if call[0] == "h0"] == [2, 4, 2, 0]


def test_heal__ends_drains_and_what_is_to_come_of_them(fabric):
    target, cut = LiveFaultTarget(fabric), threading.Event()
    target.deny_plane(1, True)
    delayed = target.later(30, cut.set)
    target.heal()
    assert fabric.calls[-1] == ("h1", "denylist", 0)
    delayed()
    assert not cut.is_set()
    target.close()


def test_later__happens_unless_closed(fabric):
    target, event = LiveFaultTarget(fabric), threading.Event()
    target.later(0.01, event.set)
    assert event.wait(5)
    late_event = threading.Event()
    target.later(30, late_event.set)
    target.close()
    assert all(not timer.is_alive() or timer.join(5) is None for timer in target._timers) and not late_event.is_set()


@pytest.mark.parametrize(
    "fault",
    [
        DuplicateFault.on(f"{A} {B}", rate=0.1),
        LateFault.on(f"{A} {B}", rate=0.1),
        StallFault.on("h0"),
        VanishFault.on("h0"),
        LossFault.on(f"{A} {B}", packets=(3,)),
        LossFault.on(f"{A} {B}", rate=0.1, only="data"),
        LineFault.on(f"{A} {B}", jitter=0.1),
    ],
    ids=str,
)
def test_faults__of_virtual_time_are_refused(fabric, fault: InjectedFault):
    with pytest.raises(FaultError):
        fault.begin(LiveFaultTarget(fabric), FaultHolds(), 0)
    assert not fabric.calls
