"""Injected faults and their undo, on a stand-in fabric that remembers its interfaces and settings."""

import random
import threading
import time

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fault_injection import InjectError, Injector
from mrc_testbed.topologies.lab.traffic_control import PortTraffic, TrafficControl, TrafficError, plan_settings
from mrc_testbed.topologies.plan import LinkSpeed, Plan, PlanError

SLOW = Plan(2, 2, 2, 1, host_link=LinkSpeed(10e6, 0.001), fabric_link=LinkSpeed(20e6, 0.0005), pmtu_bytes=1024)


class MemoryTraffic(TrafficControl):
    """Holds settings in a dict; refuses when told to."""

    def __init__(self, plan):
        super().__init__(plan)
        self.values, self.refuse = {}, False
        self.apply_plan()

    def _apply(self, settings):
        if self.refuse:
            raise TrafficError("refused")
        for setting in settings:
            key = (setting.interface, setting.figure, setting.priority, setting.direction)
            self.values[key] = setting.value
            if not setting.value:
                del self.values[key]

    def read(self, interface):
        return PortTraffic(interface)

    def on_switch_restart(self, switch):
        pass

    def close(self):
        pass


class StandIn:
    """Stand-in with what an Injector needs of a Fabric."""

    def __init__(self, plan=SLOW):
        self.plan, self.traffic, self.cut = plan, MemoryTraffic(plan), set()
        self.nodes_off = []
        self.changes = []
        self.nics = {}
        self.refuse = False
        self.inject = Injector(self)

    def set_interfaces(self, interfaces, is_up):
        changed_at = time.monotonic()
        if self.refuse:
            raise FabricError("no such interface")
        self.changes += [(name, is_up) for name in interfaces]
        (self.cut.difference_update if is_up else self.cut.update)(interfaces)
        return changed_at

    def set_nic_rate(self, host, plane, rate_bps):
        if rate_bps == self.plan.host_link.rate_bps:
            self.nics.pop((host, plane), None)
        else:
            self.nics[host, plane] = rate_bps

    def power(self, switch, on):
        (self.nodes_off.remove if on else self.nodes_off.append)(switch)
        return time.monotonic()

    def state(self):
        return dict(self.traffic.values), set(self.cut), set(self.nodes_off), dict(self.nics)


@pytest.fixture
def fabric():
    return StandIn()


CLEAN = StandIn().state()


def kinds(fabric):
    return [fault.kind for fault in fabric.inject.active]


# ---- each fault and its undo ------------------------------------------------------------------------------------

FAULTS = {
    "cut": lambda i: i.cut("p0-t0-0", "p0-t1-1"),
    "cut_port": lambda i: i.cut_port("h0", "p1-t0-0"),
    "one_way_cut": lambda i: i.one_way_cut("p0-t1-1", "p0-t0-0"),
    "loss": lambda i: i.loss("p0-t0-0", "p0-t1-1", 0.01),
    "corrupt": lambda i: i.corrupt("h1", "p0-t0-1", pattern="0001", sender="h1"),
    "delay": lambda i: i.delay("p0-t0-0", "p0-t1-1", 0.02),
    "rate": lambda i: i.rate("p0-t0-0", "p0-t1-1", 1e6),
    "blackhole": lambda i: i.blackhole("p1-t1-0"),
    "power": lambda i: i.power("p1-t1-0"),
    "flap": lambda i: i.flap("p0-t0-0", "p0-t1-1", 3600),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_fault__changes_something_is_listed_and_leaves_no_trace(fabric, kind):
    fault = FAULTS[kind](fabric.inject)
    if kind == "flap":
        while not fabric.cut:
            time.sleep(0.001)
    assert kinds(fabric) == [kind] and fabric.state() != CLEAN
    assert fault.location in str(fault) and fault.to_json()["kind"] == kind and fault.ended_at is None
    fabric.inject.undo(fault)
    assert fabric.state() == CLEAN and kinds(fabric) == [] and fault.ended_at >= fault.began_at
    fabric.inject.undo(fault.number)  # again: nothing
    assert [(event, past.kind) for _, event, past in fabric.inject.log] == [("begin", kind), ("end", kind)]


def test_settings__say_what_the_fault_is(fabric):
    values, inject = fabric.traffic.values, fabric.inject
    inject.loss("p0-t0-0", "p0-t1-1", 0.01, sender="p0-t1-1", seed=5)
    assert values["p0-t1-1-eth1", "loss-ppm", None, "output"] == 10_000
    assert values["p0-t1-1-eth1", "seed", None, "output"] == 5
    assert not any(name == "p0-t0-0-eth3" and figure == "loss-ppm" for name, figure, _, _ in values)
    inject.one_way_cut("h0", "p1-t0-0")
    assert values["p1-t0-0-eth1", "loss-ppm", None, "input"] == 1_000_000
    inject.delay("h0", "p1-t0-0", 0.007)
    assert [values["p1-t0-0-eth1", "delay-us", None, way] for way in ("input", "output")] == [7000, 7000]
    inject.rate("h0", "p1-t0-0", 1e6)
    assert values["p1-t0-0-eth1", "rate-bps", None, None] == 1_000_000 and fabric.nics == {("h0", 1): 1e6}
    inject.blackhole("p0-t1-0")
    assert [values[f"p0-t1-0-eth{n}", "loss-ppm", None, "input"] for n in (1, 2)] == [1_000_000] * 2
    assert [str(fault).split(maxsplit=1)[1] for fault in inject.active] == [
        "loss         p0-t0-0 p0-t1-1        1 % from p0-t1-1",
        "one_way_cut  h0 p1-t0-0             from h0",
        "delay        h0 p1-t0-0             7 ms",
        "rate         h0 p1-t0-0             1 Mb/s",
        "blackhole    p0-t1-0                ports stay up",
    ]


def test_rate__on_an_unlimited_link_brings_depths_with_it():
    fabric = StandIn(Plan(2, 2, 2, 1, fabric_link=LinkSpeed(None, 0.01)))
    first_state = fabric.state()
    fault = fabric.inject.rate("p0-t0-0", "p0-t1-1", 10e6, sender="p0-t0-0")
    limits = fabric.plan.thresholds_at(10e6, last_hop=False)
    assert fabric.traffic.values["p0-t0-0-eth3", "max-packets", 0, None] == limits.data_limit
    assert not any(key[:2] == ("p0-t1-1-eth1", "rate-bps") for key in fabric.traffic.values)
    fabric.inject.undo(fault)
    assert fabric.state() == first_state


def test_rate__of_a_host_alone_touches_no_switch_and_the_latest_holds(fabric):
    older = fabric.inject.rate("h0", "p0-t0-0", 2e6, sender="h0")
    newer = fabric.inject.rate("h0", "p0-t0-0", 1e6, sender="h0")
    assert fabric.state()[:3] == CLEAN[:3] and fabric.nics == {("h0", 0): 1e6} and older.sender == "h0"
    fabric.inject.undo(newer)
    assert fabric.nics == {("h0", 0): 2e6}
    fabric.inject.undo(older)
    assert fabric.state() == CLEAN


# ---- together ----------------------------------------------------------------------------------------------------


def test_overlapping_losses__the_latest_holds_and_the_older_comes_back(fabric):
    port = ("p0-t0-0-eth2", "loss-ppm", None, "output")
    older = fabric.inject.loss("p0-t0-0", "p0-t1-0", 0.1, sender="p0-t0-0")
    newer = fabric.inject.loss("p0-t0-0", "p0-t1-0", 0.5, sender="p0-t0-0")
    assert fabric.traffic.values[port] == 500_000
    fabric.inject.undo(newer)
    assert fabric.traffic.values[port] == 100_000
    newer = fabric.inject.loss("p0-t0-0", "p0-t1-0", 0.7, sender="p0-t0-0")
    fabric.inject.undo(older)
    assert fabric.traffic.values[port] == 700_000
    fabric.inject.undo(newer)
    assert fabric.state() == CLEAN


def test_two_cuts_of_a_link__it_comes_up_after_the_second_undo(fabric):
    first, second = fabric.inject.cut("h0", "p0-t0-0"), fabric.inject.cut_port("h0", "p0-t0-0")
    fabric.inject.undo(first)
    assert fabric.cut == {"h0-eth0"}
    fabric.inject.undo(second)
    assert not fabric.cut


def test_restore__ends_all_that_holds_a_link_down(fabric):
    fabric.inject.cut("h0", "p0-t0-0"), fabric.inject.one_way_cut("h0", "p0-t0-0"), fabric.inject.cut("h1", "p0-t0-1")
    fabric.inject.flap("h0", "p0-t0-0", 3600)
    assert [fault.kind for fault in fabric.inject.restore("p0-t0-0", "h0")] == ["cut", "one_way_cut", "flap"]
    assert fabric.cut == {"h1-eth0", "p0-t0-1-eth1"} and kinds(fabric) == ["cut"]


def test_what_was_undone_by_hand__is_listed_no_more(fabric):
    fabric.inject.cut("h0", "p0-t0-0"), fabric.inject.power("p0-t1-0"), fabric.inject.loss("h0", "p0-t0-0", 0.5)
    fabric.set_interfaces(("h0-eth0", "p0-t0-0-eth1"), True)
    fabric.power("p0-t1-0", True)
    assert kinds(fabric) == ["loss"]


def test_power__twice_off_once_on(fabric):
    fabric.inject.power("p0-t1-0"), fabric.inject.power("p0-t1-0")
    assert fabric.inject.power("p0-t1-0", on=True) is None
    assert fabric.state() == CLEAN and kinds(fabric) == []


def test_reboot__is_over_when_it_returns(fabric):
    calls = []
    fabric.power = lambda switch, on: (calls.append((switch, on)), StandIn.power(fabric, switch, on))
    fault = fabric.inject.reboot("p0-t1-0", off_s=0.001)
    assert calls == [("p0-t1-0", False), ("p0-t1-0", True)] and fault.ended_at >= fault.began_at and kinds(fabric) == []


def test_flap__goes_down_and_up_so_many_times_and_ends_by_itself(fabric):
    fault = fabric.inject.flap("h0", "p0-t0-0", 0.01, times=3)
    fault.thread.join(timeout=10)
    assert (
        fabric.changes == [("h0-eth0", False), ("p0-t0-0-eth1", False), ("h0-eth0", True), ("p0-t0-0-eth1", True)] * 3
    )
    assert kinds(fabric) == [] and fault.ended_at is not None and fault.error is None


def test_flap__does_not_raise_a_link_that_is_cut(fabric):
    fabric.inject.cut("h0", "p0-t0-0")
    fault = fabric.inject.flap("h0", "p0-t0-0", 0.01, times=2)
    fault.thread.join(timeout=10)
    assert fabric.cut == {"h0-eth0", "p0-t0-0-eth1"} and not any(is_up for _, is_up in fabric.changes)


def test_flap__that_fails_says_why_and_ends(fabric):
    fault = fabric.inject.flap("h0", "p0-t0-0", 0.01)
    fabric.refuse = True
    fault.thread.join(timeout=10)
    assert fault.error == "no such interface" and kinds(fabric) == []


def test_stop__ends_flaps_and_touches_nothing(fabric):
    fault = fabric.inject.flap("h0", "p0-t0-0", 3600)
    while not fabric.cut:
        time.sleep(0.001)
    fabric.inject.stop()
    assert not fault.thread.is_alive() and fabric.cut


# ---- heal and failures ---------------------------------------------------------------------------------------------


def test_heal__undoes_all_and_what_was_done_by_hand_too(fabric):
    for make in FAULTS.values():
        make(fabric.inject)
    fabric.set_interfaces(("h1-eth0",), False)
    fabric.power("p1-t0-1", False)
    fabric.traffic.set_rate("p1-t1-1-eth2", 5e6)
    assert len(fabric.inject.heal()) == len(FAULTS)
    assert fabric.state() == CLEAN and kinds(fabric) == [] and not fabric.traffic.touched_interfaces
    assert fabric.inject.heal() == []


def test_heal__one_failure_does_not_stop_the_rest_and_it_can_be_tried_again(fabric):
    fabric.inject.loss("h0", "p0-t0-0", 0.5), fabric.inject.cut("h1", "p0-t0-1"), fabric.inject.power("p0-t1-0")
    fabric.traffic.refuse = True
    with pytest.raises(FabricError, match="not all is healed: refused"):
        fabric.inject.heal()
    assert not fabric.cut and not fabric.nodes_off and kinds(fabric) == ["loss"]
    fabric.traffic.refuse = False
    fabric.inject.heal()
    assert fabric.state() == CLEAN and kinds(fabric) == []


def test_fault_that_fails__leaves_nothing_and_is_not_listed(fabric):
    fabric.traffic.refuse = True
    with pytest.raises(TrafficError, match="refused"):
        fabric.inject.blackhole("p0-t0-0")
    fabric.traffic.refuse, fabric.refuse = False, True
    with pytest.raises(FabricError, match="no such interface"):
        fabric.inject.cut("h0", "p0-t0-0")
    fabric.refuse = False
    assert fabric.state() == CLEAN and kinds(fabric) == [] and not fabric.inject.log


def test_many_threads__leave_a_whole_fabric(fabric):
    links = [(link.lower.node, link.upper.node) for link in SLOW.links]
    errors = []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(40):
                a, b = rng.choice(links)
                make = rng.choice(
                    [fabric.inject.cut, fabric.inject.one_way_cut, lambda a, b: fabric.inject.delay(a, b, 0.1)]
                )
                fault = make(a, b)
                if rng.random() < 0.8:
                    fabric.inject.undo(fault)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    fabric.inject.heal()
    assert fabric.state() == CLEAN


@pytest.mark.parametrize(
    "attempt, error",
    [
        (lambda i: i.cut("p0-t0-0", "p0-t1-9"), "no node 'p0-t1-9' (did you mean p0-t1-"),
        (lambda i: i.cut("p0-t0-0", "p1-t1-1"), "no link between p0-t0-0 and p1-t1-1"),
        (lambda i: i.blackhole("h0"), "no switch 'h0' (has p0-t0-0 ... p1-t1-1)"),
        (lambda i: i.blackhole("p0t00"), "did you mean"),
        (lambda i: i.loss("h0", "p0-t0-0"), "give a probability above 0, or a pattern"),
        (lambda i: i.loss("h0", "p0-t0-0", 0.1, pattern="1"), "give a probability above 0, or a pattern"),
        (lambda i: i.loss("h0", "p0-t0-0", 2), "probability 2: give a number from 0 to 1"),
        (lambda i: i.loss("h0", "p0-t0-0", 0.1, sender="h1"), "the ends of this link are h0 and p0-t0-0"),
        (lambda i: i.rate("h0", "p0-t0-0", 0), "rate_bps = 0"),
        (lambda i: i.delay("h0", "p0-t0-0", -1), "delay_s = -1"),
        (lambda i: i.flap("h0", "p0-t0-0", 0), "period_s = 0: give 0.01"),
        (lambda i: i.flap("h0", "p0-t0-0", 1, times=0), "times = 0: give 1 to"),
        (lambda i: i.reboot("p0-t0-0", off_s=-1), "off_s = -1"),
        (lambda i: i.undo(7), "no fault 7 (active: none is active)"),
    ],
)
def test_what_makes_no_sense__is_refused_and_changes_nothing(fabric, attempt, error):
    with pytest.raises((InjectError, PlanError, TrafficError)) as caught:
        attempt(fabric.inject)
    assert error in str(caught.value)
    assert fabric.state() == CLEAN and kinds(fabric) == []


def test_stand_in__starts_as_the_plan_says():
    assert len(CLEAN[0]) == len(plan_settings(SLOW))
