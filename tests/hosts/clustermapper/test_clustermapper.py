"""Clustermapper without sockets: which probes, what they look like, what their fate says. Needs no root."""

import random
import socket
from itertools import pairwise

import pytest

from mrc_testbed.hosts.clustermapper.burst import Burst
from mrc_testbed.hosts.clustermapper.health import Rules, TargetHealth, TargetState
from mrc_testbed.hosts.clustermapper.packets import (
    ETHERNET,
    SO_ATTACH_FILTER,
    NotOursError,
    PortIdentity,
    ProbeTemplate,
    ReturnedProbe,
    ServiceClass,
    filter_option,
    kernel_filter,
    read,
)
from mrc_testbed.hosts.clustermapper.prober import COMMON_ROUNDS, Prober, ProberSettings
from mrc_testbed.hosts.clustermapper.targets import COVER, TargetKind, loops_of, targets_of
from mrc_testbed.hosts.nic import qpns
from mrc_testbed.topologies.plan import Plan, usid

KEY = b"k" * 16
PAYLOAD_AT = ETHERNET + 40 + 40 + 8

# ---- targets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [(1, 1, 1, 1), (4, 2, 2, 2), (2, 3, 4, 1), (3, 2, 5, 4), (8, 4, 4, 8)])
def test_targets__every_link_is_covered_and_t1s_by_two_hosts_where_there_are_two(dimensions):
    plan = Plan(*dimensions)
    hosts_of = {link: [] for link in plan.links}
    for target in targets_of(plan):
        hosts_of[target.link].append(target.host)
    for link, hosts in hosts_of.items():
        is_nic = link.lower.node.startswith("h")
        assert len(set(hosts)) == (1 if is_nic else min(COVER, plan.hosts_per_rack)), link.name


def test_targets__nobody_has_much_more_to_do_than_another():
    count = {}
    for target in targets_of(Plan(4, 2, 4, 8)):
        count[target.host] = count.get(target.host, 0) + 1
    assert max(count.values()) <= min(count.values()) + 2


def test_targets__without_srv6_only_the_t0s():
    targets = targets_of(Plan(2, 2, 2, 2, mode="ecmp"))
    assert {t.kind for t in targets} == {TargetKind.T0} and all(t.outer is None for t in targets)
    assert len(targets) == 8


def test_targets__addresses_written_by_hand():
    targets = {(t.host, t.switch): t for t in targets_of(Plan(4, 2, 6, 2))}
    assert f"{targets['h3', 'p3-t0-1'].outer:032x}" == "fcbbbb00" + "2301" + "3301" + "0000" * 4
    assert f"{targets['h2', 'p3-t1-5'].outer:032x}" == "fcbbbb00" + "2301" + "1305" + "2301" + "3300" + "0000" * 2


def test_targets__their_addresses_lead_there_and_back():
    """Each switch of the plan takes its uSID off and looks the next one up (§8.1)."""
    plan = Plan(3, 3, 4, 2)
    targets = targets_of(plan)
    for target in (*targets, *loops_of(plan, targets)):
        left = [target.outer >> 80 - 16 * i & 0xFFFF for i in range(6)]
        node, passed = plan.t0_name(target.plane, plan.host(target.host).rack), []
        while node.startswith("p"):
            passed.append(node)
            routes = plan.srv6_routes(plan.switch(node))
            assert left[0] == routes.own_usid
            left = [*left[1:], 0]
            port = dict(routes.next_hops)[left[0]]
            interface = f"{node}-eth{port}"
            link = plan.link_of_interface(interface)
            node = next(iter(link.ends - {node}))
        assert node == target.host
        assert left == [usid(3, target.plane, plan.host(target.host).downlink), 0, 0, 0, 0, 0]
        assert (target.host, *passed, target.host) == target.walk
        wanted = {TargetKind.T0: [target.switch], TargetKind.T1: [passed[0], target.switch, passed[0]]}
        assert passed == wanted.get(target.kind, passed)
        assert target.kind is not TargetKind.LOOP or len(passed) == 5


def test_loops__each_direction_of_each_link_by_each_host_that_probes_it():
    plan = Plan(2, 3, 3, 2)
    targets = targets_of(plan)
    for target in [one for one in targets if one.kind is TargetKind.T1]:
        loops = [one for one in loops_of(plan, targets) if one.about == target.number]
        t0, t1 = target.walk[1], target.switch
        assert {one.choice for one in loops} == {0, 1, 2}
        for choice in range(3):
            pair = [one for one in loops if one.choice == choice]
            assert {one.direction for one in pair} == {f"{t0} -> {t1}", f"{t1} -> {t0}"}
            crossed = [list(pairwise(one.walk)) for one in pair]
            assert ((t0, t1) in crossed[0]) != ((t1, t0) in crossed[0])
            assert set(crossed[0][1:-1]) == {(b, a) for a, b in crossed[1][1:-1]}  # the same round, the other way


@pytest.mark.parametrize("dimensions", [(1, 1, 2, 2), (1, 2, 1, 2)])
def test_loops__none_where_there_is_no_way_round(dimensions):
    plan = Plan(*dimensions)
    assert loops_of(plan, targets_of(plan)) == ()
    assert loops_of(Plan(mode="ecmp"), targets_of(Plan(mode="ecmp"))) == ()


# ---- packets ----------------------------------------------------------------------------------------------


def a_probe(service_class=ServiceClass.CONTROL, mode="srv6", number=1):
    """Frame as it comes back, and the identity of its port."""
    plan = Plan(mode=mode)
    target = targets_of(plan)[number]
    identity = PortIdentity.of(plan, target.host, target.plane, mode == "srv6")
    frame = bytearray(ProbeTemplate(target, service_class, 7, identity, KEY).frame(99, 12345))
    if identity.own_usid:
        frame[38:54] = identity.own_usid
    return bytes(frame), identity


@pytest.mark.parametrize("mode", ["srv6", "stev"])
@pytest.mark.parametrize("service_class", ServiceClass)
def test_probe__is_recognised_when_it_is_back(mode, service_class):
    frame, identity = a_probe(service_class, mode)
    assert tuple(read(frame, identity, KEY)) == (1, service_class, 7, 99, 12345, False, False)


def test_probe__trimmed_and_marked():
    frame, identity = a_probe(ServiceClass.DATA)
    assert len(frame) > 138
    for dscp in (12, 16):
        cut = bytearray(frame[:138])
        cut[14:16] = (0x6000 | dscp << 6 | 3 << 4).to_bytes(2, "big")
        seen = read(bytes(cut), identity, KEY)
        assert seen.trimmed and seen.marked and seen.sequence == 99


def test_probe__a_cut_one_that_does_not_say_so_is_lost():
    frame, identity = a_probe(ServiceClass.DATA)
    for length in range(len(frame)):
        with pytest.raises(NotOursError):
            read(frame[:length], identity, KEY)


def test_probe__one_wrong_bit_in_what_it_says_is_lost():
    frame, identity = a_probe(ServiceClass.DATA)
    for bit in range(8 * PAYLOAD_AT, 8 * len(frame)):
        bad = bytearray(frame)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(NotOursError):
            read(bytes(bad), identity, KEY)


def test_probe__of_another_process_or_port_and_noise():
    frame, identity = a_probe()
    _, other = a_probe(number=4)
    rng = random.Random(1)
    for bad, key, port in [(frame, b"x" * 16, identity), (frame, KEY, other)]:
        with pytest.raises(NotOursError):
            read(bad, port, key)
    for _ in range(2000):
        noise = bytearray(frame)
        for _ in range(rng.randrange(1, 40)):
            noise[rng.randrange(len(noise))] = rng.randrange(256)
        noise = bytes(noise[: rng.randrange(len(noise) + 1)])
        try:
            seen = read(noise, identity, KEY)
        except NotOursError:
            continue
        assert (seen.target, seen.sequence, seen.sent_ns) == (1, 99, 12345)  # only headers were hit


def passes(code, frame):
    """Whether a kernel filter lets a frame through: tried on a datagram socket."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        value, _alive = filter_option(code)
        there.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, value)
        there.setblocking(False)
        here.send(frame)
        try:
            return there.recv(1 << 16) == frame
        except BlockingIOError:
            return False


@pytest.mark.parametrize("mode", ["srv6", "stev"])
def test_kernel_filter__takes_probes_and_nothing_else(mode):
    frame, _ = a_probe(mode=mode)
    code = kernel_filter(mode == "srv6")
    assert passes(code, frame)
    to_mrc = frame.replace((3785).to_bytes(2, "big"), (4791).to_bytes(2, "big"))
    assert not passes(code, to_mrc)
    assert not passes(code, frame[:50])
    other, _ = a_probe(mode="stev" if mode == "srv6" else "srv6")
    assert not passes(code, other)


def test_kernel_filter__of_the_agents_holds_probes_back():
    frame, _ = a_probe()
    assert not passes(qpns.program(qpns.AGENT_QPNS[0], qpns.AGENT_QPNS[-1], True), frame)


# ---- health -----------------------------------------------------------------------------------------------


def told(health, *fates, start=0):
    """Tell a Health a row of fates (`.` back, `x` lost), a probe every 0.1 s; the states it went through."""
    states = []
    for number, fate in enumerate("".join(fates), start):
        if fate == ".":
            health.back(number, number / 10, 0.002)
        else:
            health.gone(number, number / 10)
        if not states or states[-1] is not health.state:
            states.append(health.state)
    return states


def test_health__three_in_a_row_are_down_and_since_the_first():
    health = TargetHealth(Rules())
    assert told(health, ".....", "xx", "...", "xxx") == [TargetState.OK, TargetState.DOWN]
    assert health.since == pytest.approx(1.0)


def test_health__an_outage_leaves_no_lossy_link_behind():
    health = TargetHealth(Rules())
    assert told(health, "." * 30, "x" * 7, "." * 200) == [TargetState.OK, TargetState.DOWN, TargetState.OK]
    assert health.since == pytest.approx(3.7)
    assert health.loss == 0


def test_health__loss_in_both_windows_is_lossy_and_clears_after_five_windows():
    health = TargetHealth(Rules())
    assert told(health, "." * 40, "x", "." * 20, "x") == [TargetState.OK, TargetState.LOSSY]
    assert health.since == pytest.approx(4.0)
    assert told(health, "." * 99, start=62) == [TargetState.LOSSY]
    assert told(health, ".", start=161) == [TargetState.OK]


def test_health__one_burst_is_no_lossy_link():
    health = TargetHealth(Rules())
    assert told(health, "." * 40, "xx", "." * 60) == [TargetState.OK]


def test_health__half_lost_is_lossy_not_down():
    health = TargetHealth(Rules())
    rng = random.Random(3)
    told(health, "." * 40, "".join(rng.choice(".x") for _ in range(300)))
    assert health.state is TargetState.LOSSY
    assert told(health, "x" * 10, start=340)[-1] is TargetState.DOWN


def test_health__late_is_not_lost():
    health = TargetHealth(Rules())
    told(health, ".....xxxx")
    assert health.state is TargetState.DOWN and health.lost == 4
    assert all(health.came_late(sequence, 0.4) for sequence in (5, 6, 7, 8))
    assert not health.came_late(8, 0.4) and not health.came_late(4, 0.4) and not health.came_late(100, 0.4)
    assert (health.state, health.lost, health.late, health.loss) == (TargetState.OK, 0, 4, 0)


# ---- rounds -----------------------------------------------------------------------------------------------


class Network:
    """A Prober, a clock, and what happens to its probes."""

    def __init__(self, plan=None, **settings):
        self.plan = plan or Plan(2, 2, 2, 2)
        self.targets = targets_of(self.plan)
        self.now = 100.0
        self.prober = Prober(self.targets, ProberSettings(**settings), self.now)
        self.dead = set()
        self.rtt_s = 0.002
        self.flying = []
        """(arrives at, target number, sequence, sent at)"""
        self.states = []

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now = max(self.now, self.prober.next_timer())
            for one in sorted(one for one in self.flying if one[0] <= self.now):
                self.flying.remove(one)
                self.note([self.prober.returned(one[1], one[2], one[0] - one[3])])
            self.note(self.prober.judge(self.now))
            if self.now >= self.prober.next_round_at:
                sequence = self.prober.begin_round(self.now)
                for target in self.targets:
                    if not self.is_lost(target):
                        self.flying.append((self.now + self.rtt_s, target.number, sequence, self.now))
        return self

    def is_lost(self, target):
        first = self.plan.link(target.host, self.plan.t0_name(target.plane, self.plan.host(target.host).rack))
        return bool({target.link, first, target.switch} & self.dead)

    def note(self, changes):
        for change in changes:
            if change is not None:
                self.states.append((change.target.host, change.target.switch, change.health.state.value))

    def told(self):
        out, self.states = sorted(self.states), []
        return out


def test_prober__a_cut_link_is_told_by_those_who_probe_it_and_is_well_afterwards():
    net = Network().run(2)
    assert {state for *_, state in net.told()} == {"ok"}
    net.dead = {net.plan.link("p1-t0-0", "p1-t1-1")}
    net.run(0.45)
    assert net.told() == []
    net.run(0.15)
    assert net.told() == [("h0", "p1-t1-1", "down"), ("h1", "p1-t1-1", "down")]
    net.dead = set()
    net.run(10)
    assert net.told() == [("h0", "p1-t1-1", "ok"), ("h1", "p1-t1-1", "ok")]


class Loops(Network):
    """With loops; `cut` are (from, to) pairs that nothing passes."""

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
            (one.host, one.direction): self.prober.health[one.number].state.value
            for one in active
            if one.kind is TargetKind.LOOP
        }


@pytest.mark.parametrize("ends", [("p0-t0-0", "p0-t1-1"), ("p0-t1-1", "p0-t0-0")])
def test_prober__loops_tell_the_direction_and_end_with_the_fault(ends):
    net = Loops(Plan(1, 2, 2, 2)).run(2)
    assert net.directions == {}
    net.cut = {ends}
    net.run(2)
    bad, good = " -> ".join(ends), " -> ".join(reversed(ends))
    assert net.directions == {
        (host, direction): state for host in ("h0", "h1") for direction, state in ((bad, "down"), (good, "ok"))
    }
    net.cut = set()
    net.run(2)
    assert net.directions == {}
    assert net.prober.active == {target.number for target in targets_of(net.plan)}


def test_prober__another_way_round_when_neither_loop_returns():
    """h0's first choice leads over a cut, too: the second one tells the direction."""
    net = Loops(Plan(1, 3, 3, 1)).run(2)
    first = [one for one in net.targets if one.kind is TargetKind.LOOP and one.about is not None and one.host == "h0"]
    first = [one for one in first if one.switch == "p0-t1-0" and one.choice == 0]
    others = [set(pairwise(one.walk[1:-1])) for one in first]
    far = next(pair for pair in others[0] if "p0-t0-0" not in pair)
    net.cut = {("p0-t0-0", "p0-t1-0"), far, far[::-1]}
    net.run(4)
    told = {direction: state for (host, direction), state in net.directions.items() if host == "h0"}
    assert told["p0-t0-0 -> p0-t1-0"] == "down"
    assert told["p0-t1-0 -> p0-t0-0"] == "ok"


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
    net.told()
    net.dead = {net.plan.link("h3", "p0-t0-1")}
    assert net.run(1).told() == [("h3", s, "down") for s in ("p0-t0-1", "p0-t1-0", "p0-t1-1")]


def test_prober__before_the_switches_have_routes_nothing_is_said():
    net = Network()
    net.dead = set(net.plan.links)
    assert net.run(8).told() == []
    assert {state for *_, state in net.run(5).told()} == {"down"}


def test_prober__a_slow_machine_is_no_loss():
    net = Network().run(2)
    net.told()
    net.rtt_s = 0.19
    net.run(2)
    assert net.prober.patience_s > 0.9
    net.rtt_s = 0.7
    assert net.run(5).told() == []


def test_prober__rounds_in_which_we_were_held_up_are_void():
    net = Network().run(2)
    net.told()
    net.dead = set(net.plan.links[:3])
    for _ in range(30):
        net.run(0.1)
        net.prober.stalled(0.06)
    assert net.told() == [] and net.prober.void["stalled"] >= 25


def test_prober__all_planes_at_once_is_the_machine_for_a_while():
    net = Network().run(2)
    net.told()
    net.dead = set(net.plan.links)
    assert net.run(0.1 * COMMON_ROUNDS).told() == []
    assert {state for *_, state in net.run(2).told()} == {"down"}
    assert net.prober.void["lost on all planes at once"] == COMMON_ROUNDS


def test_prober__two_planes_losing_one_switch_each_is_the_network():
    net = Network().run(2)
    net.told()
    net.dead = {"p0-t1-0", "p1-t1-1"}
    assert len(net.run(1).told()) == 8


def test_prober__what_cannot_be_is_ignored():
    net = Network().run(1)
    before = [health.sent for health in net.prober.health]
    for number, sequence in [(-1, 1), (10_000, 1), (0, 0xFFFFFFFF), (0, 1)]:
        assert net.prober.returned(number, sequence, 0.1) is None
    assert [health.sent for health in net.prober.health] == before


# ---- bursts -----------------------------------------------------------------------------------------------


def burst_over(plan, lost, count=20):
    """The rows of a burst in which `lost(target, class, sequence)` says what does not come back."""
    targets = targets_of(plan)
    burst = Burst(targets, tuple(ServiceClass), count, 1, 0.0)
    now = 0.0
    while not burst.is_over(now):
        if (sequence := burst.due(now)) is not None:
            for target in targets:
                for service_class in ServiceClass:
                    burst.sent(target.number, service_class)
                    if not lost(target, service_class, sequence):
                        seen = ReturnedProbe(target.number, service_class, 1, sequence, 0, False, False)
                        burst.returned(seen, 0.001)
                        burst.returned(seen, 0.001)  # a copy
        now = max(now, burst.next_timer())
    return {row["link"]: row for row in burst.links_json(plan)}


def test_burst__a_well_fabric():
    rows = burst_over(Plan(), lambda *_: False)
    assert len(rows) == len(Plan().links) and {row["state"] for row in rows.values()} == {"ok"}
    assert rows["p0-t0-0 p0-t1-0"]["control"]["sent"] == 40 and rows["p0-t0-0 p0-t1-0"]["by"] == ["h0", "h1"]


def test_burst__what_lies_behind_a_dead_link_is_judged_by_others_or_unknown():
    plan = Plan(1, 2, 2, 2)
    dead = plan.link("h0", "p0-t0-0")
    rows = burst_over(plan, lambda target, *_: target.host == "h0")
    assert rows[dead.name]["state"] == "down"
    assert rows["p0-t0-0 p0-t1-1"] == {**rows["p0-t0-0 p0-t1-1"], "state": "ok", "by": ["h1"]}
    alone = burst_over(Plan(1, 2, 2, 1), lambda target, *_: target.host == "h0")
    assert alone["p0-t0-0 p0-t1-1"]["state"] == "unknown"
    assert alone["p0-t0-0 p0-t1-1"]["why"] == "behind h0 p0-t0-0"


def test_burst__a_link_that_loses_only_data():
    plan = Plan(1, 1, 2, 2)

    def lost(target, service_class, sequence):
        return target.switch == "p0-t1-1" and service_class is ServiceClass.DATA and sequence % 5 == 0

    rows = burst_over(plan, lost)
    assert rows["p0-t0-0 p0-t1-1"]["state"] == "lossy"
    assert rows["p0-t0-0 p0-t1-1"]["control"]["state"] == "ok"
    assert rows["p0-t0-0 p0-t1-1"]["data"]["loss"] == 0.2
    assert rows["p0-t0-0 p0-t1-0"]["state"] == "ok"


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_burst__no_sense(count):
    with pytest.raises(ValueError, match="give 1 to 10000"):
        Burst(targets_of(Plan()), tuple(ServiceClass), count, 1, 0.0)
