"""The prober without sockets: what it says of a fabric whose links fail. Needs no root."""

from itertools import pairwise

import pytest

from mrc_testbed.hosts.clustermapper.prober import COMMON_ROUNDS, PATIENCE_MAX_S, Prober, ProberSettings
from mrc_testbed.hosts.clustermapper.targets import TargetKind, loops_of, targets_of
from mrc_testbed.topologies.plan import Plan


class Network:
    """A Prober, a clock, and what happens to its probes."""

    def __init__(self, plan=None, **settings):
        self.plan = plan or Plan(2, 2, 2, 2)
        self.targets = targets_of(self.plan)
        self.now = 100.0
        self.prober = Prober(self.targets, ProberSettings(**settings), self.now)
        self.dead_links = set()
        self.rtt_s = 0.002
        self.flying = []
        """Probes on their way: (arrives at, target number, sequence, sent at)."""
        self.states = []

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now = max(self.now, self.prober.next_timer())
            for probe in sorted(probe for probe in self.flying if probe[0] <= self.now):
                self.flying.remove(probe)
                self.note([self.prober.on_return(probe[1], probe[2], probe[0] - probe[3])])
            self.note(self.prober.judge(self.now))
            if self.now >= self.prober.next_round_at:
                sequence = self.prober.begin_round(self.now)
                for target in self.targets:
                    if not self.is_lost(target):
                        self.flying.append((self.now + self.rtt_s, target.number, sequence, self.now))
        return self

    def is_lost(self, target):
        first = self.plan.link(target.host, self.plan.t0_name(target.plane, self.plan.host(target.host).rack))
        return bool({target.link, first, target.switch} & self.dead_links)

    def note(self, changes):
        for change in changes:
            if change is not None:
                self.states.append((change.target.host, change.target.switch, change.health.state.value))

    def new_states(self):
        out, self.states = sorted(self.states), []
        return out


def test_prober__a_cut_link_is_told_by_those_who_probe_it_and_is_well_afterwards():
    net = Network().run(2)
    assert {state for *_, state in net.new_states()} == {"ok"}
    net.dead_links = {net.plan.link("p1-t0-0", "p1-t1-1")}
    net.run(0.45)
    assert net.new_states() == []
    net.run(0.15)
    assert net.new_states() == [("h0", "p1-t1-1", "down"), ("h1", "p1-t1-1", "down")]
    net.dead_links = set()
    net.run(10)
    assert net.new_states() == [("h0", "p1-t1-1", "ok"), ("h1", "p1-t1-1", "ok")]


class Loops(Network):
    """Network with loops; `cut` are (from, to) pairs that nothing passes."""

    def __init__(self, plan):
        super().__init__(plan)
        self.targets = (*self.targets, *loops_of(plan, self.targets))
        self.prober = Prober(self.targets, ProberSettings(), self.now)
        self.cut = set()

    def is_lost(self, target):
        return target.number not in self.prober.active or not self.cut.isdisjoint(pairwise(target.walk))

    @property
    def directions(self):
        """State of each loop that is sent now, by host and direction."""
        active = [self.targets[number] for number in sorted(self.prober.active)]
        return {
            (target.host, target.direction): self.prober.health[target.number].state.value
            for target in active
            if target.kind is TargetKind.LOOP
        }


@pytest.mark.parametrize("ends", [("p0-t0-0", "p0-t1-1"), ("p0-t1-1", "p0-t0-0")])
def test_prober__loops_tell_the_direction_and_end_with_the_fault(ends):
    net = Loops(Plan(1, 2, 2, 2)).run(2)
    assert net.directions == {}
    net.cut = {ends}
    net.run(2)
    cut_direction, intact_direction = " -> ".join(ends), " -> ".join(reversed(ends))
    assert net.directions == {
        (host, direction): state
        for host in ("h0", "h1")
        for direction, state in ((cut_direction, "down"), (intact_direction, "ok"))
    }
    net.cut = set()
    net.run(2)
    assert net.directions == {}
    assert net.prober.active == {target.number for target in targets_of(net.plan)}


def test_prober__another_way_round_when_neither_loop_returns():
    """h0's first choice leads over a cut, too: the second one tells the direction."""
    net = Loops(Plan(1, 3, 3, 1)).run(2)
    first = [
        target
        for target in net.targets
        if target.kind is TargetKind.LOOP and target.t1_target is not None and target.host == "h0"
    ]
    first = [loop for loop in first if loop.switch == "p0-t1-0" and loop.choice == 0]
    walked_links = [set(pairwise(loop.walk[1:-1])) for loop in first]
    far = next(pair for pair in walked_links[0] if "p0-t0-0" not in pair)
    net.cut = {("p0-t0-0", "p0-t1-0"), far, far[::-1]}
    net.run(4)
    states = {direction: state for (host, direction), state in net.directions.items() if host == "h0"}
    assert states["p0-t0-0 -> p0-t1-0"] == "down"
    assert states["p0-t1-0 -> p0-t0-0"] == "ok"


def test_prober__a_t0_that_its_hosts_do_not_reach_is_asked_from_other_racks():
    net = Loops(Plan(1, 2, 2, 2)).run(2)
    net.cut = {("p0-t0-1", "h2"), ("p0-t0-1", "h3")}
    net.run(2)
    assert net.directions == {("h0", "p0-t1-0 -> p0-t0-1"): "ok"}
    net.cut |= {(a, "p0-t0-1") for a in ("p0-t1-0", "p0-t1-1")}
    net.run(2)
    assert net.directions[("h0", "p0-t1-0 -> p0-t0-1")] == "down"


def test_prober__a_nic_link_takes_the_t1s_behind_it_along():
    net = Network().run(2)
    net.new_states()
    net.dead_links = {net.plan.link("h3", "p0-t0-1")}
    assert net.run(1).new_states() == [("h3", s, "down") for s in ("p0-t0-1", "p0-t1-0", "p0-t1-1")]


def test_prober__before_the_switches_have_routes_nothing_is_said():
    net = Network()
    net.dead_links = set(net.plan.links)
    assert net.run(8).new_states() == []
    assert {state for *_, state in net.run(5).new_states()} == {"down"}


def test_prober__a_slow_machine_is_no_loss():
    net = Network().run(2)
    net.new_states()
    net.rtt_s = 0.19
    net.run(2)
    assert net.prober.patience_s > 0.9
    net.rtt_s = 0.7
    assert net.run(5).new_states() == []


def test_prober__rounds_in_which_we_were_held_up_are_void():
    net = Network().run(2)
    net.new_states()
    net.dead_links = set(net.plan.links[:3])
    for _ in range(30):
        net.run(0.1)
        net.prober.on_stall(0.06)
    assert net.new_states() == [] and net.prober.void["stalled"] >= 25


def test_prober__all_planes_at_once_is_the_machine_for_a_while():
    net = Network().run(2)
    net.new_states()
    net.dead_links = set(net.plan.links)
    assert net.run(0.1 * COMMON_ROUNDS).new_states() == []
    assert {state for *_, state in net.run(2).new_states()} == {"down"}
    assert net.prober.void["lost on all planes at once"] == COMMON_ROUNDS


def test_prober__two_planes_losing_one_switch_each_is_the_network():
    net = Network().run(2)
    net.new_states()
    net.dead_links = {"p0-t1-0", "p1-t1-1"}
    assert len(net.run(1).new_states()) == 8


def test_prober__what_cannot_be_is_ignored():
    net = Network().run(1)
    sent_counts = [health.sent for health in net.prober.health]
    for number, sequence in [(-1, 1), (10_000, 1), (0, 0xFFFFFFFF), (0, 1)]:
        assert net.prober.on_return(number, sequence, 0.1) is None
    assert [health.sent for health in net.prober.health] == sent_counts


def test_settings__of_a_slow_machine_probe_rarely_and_wait_longer():
    slow = ProberSettings().slowed(5)
    assert (slow.interval_s, slow.patience_s, slow.start_grace_s) == (0.5, 1.0, 50.0)
    assert ProberSettings().slowed(1) == ProberSettings() and ProberSettings().slowed(100).patience_s == PATIENCE_MAX_S
