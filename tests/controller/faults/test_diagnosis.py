"""Faults that no port tells: what dead and losing paths say about where it is.

A small world of probes and EVs.
"""

from random import Random

import pytest

from mrc_testbed.controller.faults.correlator import EV, MAPPER, FaultCorrelator
from mrc_testbed.controller.faults.diagnosis import PathSample, explain_losses
from mrc_testbed.controller.faults.fault_model import FailureMode, kind_of
from mrc_testbed.controller.faults.path_segments import PathSegmenter
from mrc_testbed.topologies.plan import Plan
from tests.topologies.renamed_plan import renamed_plan


class World:
    """A fault list, a clock, and probers that see what is broken.

    `dark` and `losing` are arcs and switches.
    """

    def __init__(self, *, cover=2, seed=1, plan=None, **dimensions):
        self.plan = plan or Plan(**dimensions)
        self.faults = FaultCorrelator(self.plan)
        self.random = Random(seed)
        self.now = 100.0
        self.dark = set()
        self.losing = {}
        self.log = []
        self.count_every = 0.5
        """Seconds between two readings of the probers' counts; a busy controller reads late."""
        self.probes, self.through_at = {}, {}
        segmenter = self.faults.segmenter
        for host in self.plan.hosts:
            for plane in range(self.plan.planes):
                t0 = self.plan.t0_name(plane, host.rack)
                self.probes[f"{host.name} {t0}"] = segmenter.t0_probe(host.name, plane)
                for k in range(self.plan.spines):
                    if (host.downlink - k - plane) % self.plan.hosts_per_rack < cover:
                        t1 = self.plan.t1_name(plane, k)
                        self.probes[f"{host.name} {t1}"] = segmenter.t1_probe(host.name, plane, t1)
        self.states = dict.fromkeys(self.probes, "ok")
        self.counts = dict.fromkeys(self.probes, (0, 0))
        for probe in self.probes:
            self.report_state(probe, "ok", self.now)
        self.run(2.0)

    def report_state(self, path_name, state, start_time):
        self.states[path_name] = state
        self.faults.path(path_name, self.probes[path_name], state, source=MAPPER, now=self.now, t=start_time)
        self.note()

    def note(self):
        for change, fault in self.faults.changes():
            self.log.append(f"{change} {fault.location} ({fault.kind})")

    def run(self, seconds, step=0.05):
        """Let time pass: probes see a change after 0.5 s, counts are read every `count_every`."""
        end_time, broken_at = self.now + seconds, self.now
        while self.now < end_time:
            self.now += step
            while (due := self.faults.next_timer()) is not None and due <= self.now:
                self.faults.on_timer(due)
                self.note()
            for path_name, trace in self.probes.items():
                is_dead = not self.dark.isdisjoint(trace.parts)
                state = self.states[path_name]
                if is_dead and state == "ok" and self.now - broken_at > 0.3 + self.random.random() * 0.3:
                    self.report_state(path_name, "down", broken_at + self.random.random() * 0.1)
                elif not is_dead and state == "down" and self.now - broken_at > 0.3 + self.random.random() * 0.3:
                    self.report_state(path_name, "ok", self.now)
            if round(self.now / step) % round(self.count_every / step) == 0:
                self.count()
        self.note()

    def count(self):
        for path_name, trace in self.probes.items():
            arriving_share = float(self.dark.isdisjoint(trace.parts))
            for part, share in self.losing.items():
                arriving_share *= (1 - share) ** trace.parts.count(part)
            lost = sum(self.random.random() > arriving_share for _ in range(5))
            sent, lost_before = self.counts[path_name]
            self.counts[path_name] = (sent + 5, lost_before + lost)
            self.through_at[path_name] = self.now if lost < 5 else self.through_at.get(path_name)
            times = {"now": self.now, "through_at": self.through_at[path_name]}
            self.faults.counts(path_name, trace, sent + 5, lost_before + lost, source=MAPPER, **times)

    def complain(self, lost_min=2):
        """Let the probers report a path as lossy."""
        for path_name, (_, lost) in self.counts.items():
            if lost >= lost_min and self.states[path_name] == "ok":
                self.report_state(path_name, "lossy", self.now - 3)

    def break_link(self, link):
        self.dark = {link.lower.interface, link.upper.interface}

    @property
    def active(self):
        return [(f.location, f.kind) for f in self.faults.active()]


def both_ways(link, share):
    return {link.lower.interface: share, link.upper.interface: share}


DEFAULT = {"planes": 1, "racks": 2, "spines": 2, "hosts_per_rack": 2}
LARGE_FABRIC = {"planes": 1, "racks": 3, "spines": 3, "hosts_per_rack": 3}


@pytest.mark.parametrize("dimensions", [DEFAULT, LARGE_FABRIC])
def test_silent__every_link_and_switch_is_named_and_cleared_alone(dimensions):
    plan = Plan(**dimensions)
    for cause in (*plan.links, *plan.switches):
        world = World(**dimensions)
        world.dark = {cause.name} if cause in plan.switches else {cause.lower.interface, cause.upper.interface}
        world.run(3.0)
        kind = "blackhole" if cause in plan.switches else "lossy link"
        assert world.active == [(cause.name, kind)], world.log
        world.dark = set()
        world.run(3.0)
        changes = [line for line in world.log if not line.startswith("updated")]
        assert changes == [f"raised {cause.name} ({kind})", f"cleared {cause.name} ({kind})"]


def test_silent__names_of_ones_own_do_not_change_what_a_suspect_is():
    """A T0-T1 link whose lower end begins with `h`, and a NIC link whose host begins with `p`."""
    plan = renamed_plan(Plan(**DEFAULT))
    for link, kind in ((plan.link("hub1", "hub3"), "T0-T1"), (plan.link("p-gpu0", "hub1"), "NIC-T0")):
        world = World(plan=plan)
        world.break_link(link)
        world.run(3.0)
        (fault,) = world.faults.active()
        assert fault.text == f"{kind} link {link.name} loses everything while its ports are up"
        assert kind_of(link, FailureMode.REPORTED_DOWN) == {"NIC-T0": "NIC port", "T0-T1": "link"}[kind]


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_silent__one_way_is_still_the_link(end):
    """Packets are lost only when they are sent into one end are lost; self-probes alone cannot tell which."""
    world = World(**DEFAULT)
    link = world.plan.link("p0-t0-1", "p0-t1-0")
    world.dark = {getattr(link, end).interface}
    world.run(3.0)
    assert world.active == [(link.name, "lossy link")]
    (fault,) = world.faults.active()
    assert fault.direction is None and "->" not in fault.text


@pytest.mark.parametrize("ends", ["lower", "upper", "both"])
def test_silent__loops_tell_the_direction(ends):
    """Loops cross the link one way, and go round over another T1; what they tell survives a restart."""
    world = World(**DEFAULT)
    link = world.plan.link("p0-t0-1", "p0-t1-0")
    a, k = link.lower.node, link.upper.node
    for walk in (("h2", a, k, "p0-t0-0", "p0-t1-1", a, "h2"), ("h2", a, "p0-t1-1", "p0-t0-0", k, a, "h2")):
        path_name = " ".join(walk)
        world.probes[path_name] = world.faults.segmenter.from_nodes(walk)
        world.states[path_name], world.counts[path_name] = "ok", (0, 0)
    world.dark = {
        port.interface for end, port in (("lower", link.lower), ("upper", link.upper)) if ends in (end, "both")
    }
    world.run(4.0)
    (fault,) = world.faults.active()
    direction = {"lower": f"{a} -> {k}", "upper": f"{k} -> {a}", "both": "both"}[ends]
    assert fault.direction == fault.to_json()["direction"] == direction
    restored_faults = FaultCorrelator(world.plan)
    restored_faults.restore([fault.to_json()], now=0.0, confirm_s=1.0)
    assert [(f.direction, f.arcs) for f in restored_faults.active()] == [(direction, fault.arcs)]


def test_silent__evs_tell_the_direction_of_a_nic_link():
    """Packets of others to the host still arrive on that plane; what it sends itself does not."""
    world = World(**DEFAULT)
    plan, faults = world.plan, world.faults
    outward, backward = (
        faults.segmenter.data(plan.host(sender), plan.host(receiver), 0)
        for sender, receiver in (("h0", "h2"), ("h2", "h0"))
    )
    world.dark = {"h0-eth0"}
    world.run(0.5)
    faults.path("h0 h2 0x0000", outward, "down", source=EV, now=world.now)
    for _ in range(10):
        world.run(0.5)
        faults.path("h2 h0 0x0000", backward, "ok", source=EV, now=world.now)
    assert [(f.location, f.direction) for f in faults.active()] == [("h0 p0-t0-0", "h0 -> p0-t0-0")]


def test_silent__t0_with_one_host_cannot_be_told_from_its_nic():
    world = World(planes=1, racks=3, spines=2, hosts_per_rack=1)
    world.dark = {"p0-t0-0"}
    world.run(4.0)
    assert world.active == [("p0-t0-0 or h0 p0-t0-0", "unclear")]
    (fault,) = world.faults.active()
    assert fault.text == "cannot tell: T0 p0-t0-0 or NIC-T0 link h0 p0-t0-0 (paths are dead and ports are up)"


def test_silent__what_cannot_be_told_in_two_planes_is_told_in_both():
    world = World(planes=2, racks=3, spines=2, hosts_per_rack=1)
    world.dark = {"p0-t0-0", "p1-t0-1"}
    world.run(4.0)
    assert sorted(world.active) == [("p0-t0-0 or h0 p0-t0-0", "unclear"), ("p1-t0-1 or h1 p1-t0-1", "unclear")]


def test_silent__evidence_that_comes_later_narrows_it():
    """A host of another rack reaches h0's T0 and its NIC over another way: nothing of that is dead."""
    world = World(planes=1, racks=3, spines=2, hosts_per_rack=1)
    world.dark = {"h0-eth0"}  # what h0 sends, and only that
    world.run(4.0)
    assert world.active == [("p0-t0-0 or h0 p0-t0-0", "unclear")]
    plan, faults = world.plan, world.faults
    trace = faults.segmenter.data(plan.host("h1"), plan.host("h0"), 0x0000)
    faults.path("h1 h0 0x0000", trace, "ok", source=EV, now=world.now, t=world.now)
    world.run(1.0)
    assert world.active == [("h0 p0-t0-0", "lossy link")]
    assert world.log[-1] == "updated h0 p0-t0-0 (lossy link)"
    assert [f.number for f in faults.all_faults()] == [1]


def test_silent__two_at_once_are_two():
    plan = Plan(**LARGE_FABRIC)
    chooser = Random(5)
    for seed in range(12):
        first_link, second_link = chooser.sample([*plan.links], 2)
        world = World(**LARGE_FABRIC, seed=seed)
        world.dark = {p.interface for k in (first_link, second_link) for p in (k.lower, k.upper)}
        world.run(4.0)
        active_faults = world.active
        certain = {name for name, kind in active_faults if kind != "unclear"}
        assert certain <= {first_link.name, second_link.name}, (first_link.name, second_link.name, world.log)
        unclear = [name for name, kind in active_faults if kind == "unclear"]
        alternatives = {name for text in unclear for name in text.split(" or ")}
        assert {first_link.name, second_link.name} - certain <= alternatives, active_faults


@pytest.mark.parametrize("count_every", [0.5, 1.0, 1.5])
def test_silent__three_dead_uplinks_are_not_their_t0(count_every):
    """The T0's own probes come back, but that is read later than the probes of the uplinks are given up."""
    world = World(planes=1, racks=4, spines=4, hosts_per_rack=2)
    links = [world.plan.link("p0-t0-1", f"p0-t1-{k}") for k in (0, 1, 3)]
    world.count_every = count_every
    world.dark = {port.interface for link in links for port in (link.lower, link.upper)}
    world.run(4.0)
    changes = [line for line in world.log if not line.startswith("updated")]
    assert sorted(changes) == [f"raised {link.name} (lossy link)" for link in links]


def test_silent__a_witness_who_never_speaks_is_not_waited_for():
    """No process reads the counts: what is on all dead paths is named, later."""
    world = World(planes=1, racks=4, spines=4, hosts_per_rack=2)
    world.count_every = 100.0
    world.dark = {"p0-t0-1"}
    world.run(1.0)
    plan, segmenter = world.plan, world.faults.segmenter
    far = segmenter.data(plan.host("h0"), plan.host("h2"), 0x0000)
    world.faults.path("h0 h2 0x0000", far, "down", source=EV, now=world.now)
    world.run(5.0)
    assert world.active == [("p0-t0-1", "blackhole")]


def test_silent__a_port_that_is_down_explains_the_dead_paths():
    world = World(**DEFAULT)
    link = world.plan.link("p0-t0-0", "p0-t1-0")
    world.break_link(link)
    for port in (link.lower, link.upper):
        world.faults.port(port.interface, "DOWN", source="gnmi x", now=world.now)
    world.run(3.0)
    assert world.active == [(link.name, "link")]
    (fault,) = world.faults.active()
    assert [record["source"] for record in fault.evidence()] == ["gnmi x", MAPPER]
    assert fault.evidence()[1]["after_s"] > 0.3
    for port in (link.lower, link.upper):
        world.faults.port(port.interface, "UP", source="gnmi x", now=world.now)
    assert world.active == []
    world.dark = set()
    world.run(3.0)
    assert world.active == [] and len(world.faults.all_faults()) == 1


def test_silent__what_ports_tell_later_is_the_same_fault():
    world = World(**DEFAULT)
    link = world.plan.link("p0-t0-0", "p0-t1-0")
    world.break_link(link)
    world.run(3.0)
    world.faults.port(link.lower.interface, "DOWN", source="gnmi x", now=world.now)
    world.run(1.0)
    assert world.active == [(link.name, "link")]
    assert [f.number for f in world.faults.all_faults()] == [1]


@pytest.mark.parametrize("share", [0.03, 0.1, 0.5])
def test_lossy__every_link_is_named(share):
    plan = Plan(**DEFAULT)
    for number, link in enumerate(plan.links):
        world = World(**DEFAULT, seed=number)
        world.losing = both_ways(link, share)
        for _ in range(12):
            world.run(1.0)
            world.complain()
        assert world.active == [(link.name, "lossy link")], (link.name, world.log, world.counts)
        (fault,) = world.faults.active()
        assert share / 4 < fault.loss < 4 * share


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_lossy__loops_tell_the_direction(end):
    world = World(**DEFAULT, seed=3)
    link = world.plan.link("p0-t0-1", "p0-t1-0")
    a, k = link.lower.node, link.upper.node
    for host in ("h2", "h3"):
        for walk in ((host, a, k, "p0-t0-0", "p0-t1-1", a, host), (host, a, "p0-t1-1", "p0-t0-0", k, a, host)):
            path_name = " ".join(walk)
            world.probes[path_name] = world.faults.segmenter.from_nodes(walk)
            world.states[path_name], world.counts[path_name] = "ok", (0, 0)
    world.losing = {getattr(link, end).interface: 0.2}
    for _ in range(12):
        world.run(1.0)
        world.complain()
    (fault,) = world.faults.active()
    assert (fault.location, fault.direction) == (link.name, f"{a} -> {k}" if end == "lower" else f"{k} -> {a}")


T0_TO_T1, T1_TO_T0 = "p0-t0-0 -> p0-t1-0", "p0-t1-0 -> p0-t0-0"


def directions(*, round_trip, outward, backward, uplink_count=75):
    """Return the finding on p0-t0-0 p0-t1-0 from (sent, lost) of probes and of loops.

    `round_trip`: probes there and back over the link; `outward` and `backward`: loops that cross it that way only;
    `uplink_count`: number of probes, none of them lost, over links of the other T1 that the loops cross.
    """
    segmenter = PathSegmenter(Plan(planes=1, racks=2, spines=2, hosts_per_rack=1))
    trials = {
        "round trip": (round_trip, "h0 p0-t0-0 p0-t1-0 p0-t0-0 h0"),
        "outward": (outward, "h0 p0-t0-0 p0-t1-0 p0-t0-1 p0-t1-1 p0-t0-0 h0"),
        "backward": (backward, "h0 p0-t0-0 p0-t1-1 p0-t0-1 p0-t1-0 p0-t0-0 h0"),
        "nic": ((75, 0), "h0 p0-t0-0 h0"),
        "uplink": ((uplink_count, 0), "h0 p0-t0-0 p0-t1-1 p0-t0-0 h0"),
        "far 0": ((75, 0), "h1 p0-t0-1 p0-t1-0 p0-t0-1 h1"),
        "far 1": ((uplink_count, 0), "h1 p0-t0-1 p0-t1-1 p0-t0-1 h1"),
    }
    trials = {
        key: PathSample(segmenter.from_nodes(tuple(walk.split())), *counts) for key, (counts, walk) in trials.items()
    }
    findings, _ = explain_losses(segmenter, trials, [key for key, trial in trials.items() if trial.lost])
    assert [finding.explanations for finding in findings] == [((segmenter.plan.link("p0-t0-0", "p0-t1-0"),),)]
    return {segmenter.direction(arc) for arc in findings[0].arcs}


def test_lossy__the_direction_is_told_when_enough_packets_tell_it():
    assert directions(round_trip=(75, 30), outward=(75, 30), backward=(75, 0)) == {T0_TO_T1}
    assert directions(round_trip=(75, 30), outward=(75, 0), backward=(75, 30)) == {T1_TO_T0}
    assert directions(round_trip=(75, 48), outward=(75, 30), backward=(75, 30)) == {T0_TO_T1, T1_TO_T0}
    assert directions(round_trip=(75, 30), outward=(9, 3), backward=(9, 0)) == set()


def test_lossy__what_crosses_a_link_twice_has_two_chances_to_lose():
    """Probes there and back lose twice what the loops outwards do.

    That speaks for both ways, whatever a few loops backwards did not lose.
    """
    assert directions(round_trip=(75, 33), outward=(73, 14), backward=(30, 0)) == set()
    assert directions(round_trip=(75, 20), outward=(73, 20), backward=(50, 0)) == {T0_TO_T1}


def test_lossy__a_loop_that_loses_elsewhere_maybe_tells_no_direction():
    """One way loses, and so do other links on the way of both loops, over which nobody else sends."""
    assert directions(round_trip=(75, 30), outward=(75, 30), backward=(75, 20), uplink_count=75) == {T0_TO_T1, T1_TO_T0}
    assert directions(round_trip=(75, 30), outward=(75, 30), backward=(75, 20), uplink_count=0) == set()
    # What comes back lost nowhere.
    assert directions(round_trip=(75, 30), outward=(75, 30), backward=(75, 0), uplink_count=0) == {T0_TO_T1}


def test_lossy__what_another_cause_explains_accuses_nobody():
    """Test two NICs that lose, and the loops of one of them over the T0 of the other.

    The loops lose what they lose at their own end, and are no evidence against that T0 or its uplinks; nor is it told
    for both which it is, NIC link or T0.
    """
    segmenter = PathSegmenter(Plan(planes=1, racks=3, spines=2, hosts_per_rack=1))
    a, b, c, s, t = "p0-t0-0", "p0-t0-1", "p0-t0-2", "p0-t1-0", "p0-t1-1"
    walks = {
        f"h1 {b} h1": 10,
        f"h1 {b} {s} {b} h1": 13,
        f"h1 {b} {t} {b} h1": 10,
        f"h1 {b} {s} {a} {t} {b} h1": 12,
        f"h1 {b} {t} {a} {s} {b} h1": 17,
        f"h2 {c} h2": 25,
        f"h2 {c} {s} {c} h2": 18,
        f"h2 {c} {t} {c} h2": 16,
        f"h2 {c} {s} {b} {t} {c} h2": 25,
        f"h2 {c} {t} {b} {s} {c} h2": 24,
        f"h0 {a} h0": 0,
        f"h0 {a} {s} {a} h0": 0,
        f"h0 {a} {t} {a} h0": 0,
    }
    trials = {
        (walk, n): PathSample(segmenter.from_nodes(tuple(walk.split())), 70, lost)
        for walk, lost in walks.items()
        for n in range(2 if walk.count("t0") == 3 else 1)  # loops are sent for the links of both T1s
    }
    findings, unexplained_paths = explain_losses(
        segmenter, trials, [key for key, trial in trials.items() if trial.lost]
    )
    names = [sorted(cause.name for cause in finding.causes) for finding in findings]
    assert sorted(names) == [[f"h1 {b}", b], [f"h2 {c}", c]] and not unexplained_paths


def test_lossy__odd_losses_everywhere_are_no_fault():
    for seed in range(10):
        world = World(**LARGE_FABRIC, seed=seed)
        world.losing = {part: 0.0003 for trace in world.probes.values() for part in trace.parts}
        world.run(8.0)
        world.complain(lost_min=1)
        world.run(8.0)
        assert world.log == []


def test_lossy__one_bad_path_does_not_accuse_what_the_others_cross_unharmed():
    """Test an EV that loses half its packets, beside many that lose nothing over the same T0."""
    world = World(**DEFAULT)
    plan, faults = world.plan, world.faults
    trace = faults.segmenter.data(plan.host("h0"), plan.host("h2"), 0x0000)
    for second in range(8):
        faults.counts("h0 h2 0x0000", trace, 20 * second, 10 * second, source=EV, now=world.now)
        faults.path("h0 h2 0x0000", trace, "down", source=EV, now=world.now)
        world.run(1.0)
    assert world.active == [], world.log


# ---- EVs alone ----------------------------------------------------------------------------------------------


class Evs:
    """World of EVs without a mapper: QPs between all pairs of hosts."""

    def __init__(self, **dimensions):
        self.plan = Plan(**dimensions)
        self.faults = FaultCorrelator(self.plan)
        self.now = 50.0
        self.paths = {
            f"{a.name} {b.name} {ev:#06x}": self.faults.segmenter.data(a, b, ev)
            for a in self.plan.hosts
            for b in self.plan.hosts
            if a != b
            for ev in self.plan.evs(a, b)
        }

    def report_bad(self, *names):
        for name in names:
            self.faults.path(name, self.paths[name], "down", source=EV, now=self.now, t=self.now - 0.02)

    def report_good(self, *names):
        for name in names:
            self.faults.path(name, self.paths[name], "ok", source=EV, now=self.now, t=self.now)

    def crossing(self, part):
        return [name for name, trace in self.paths.items() if part in trace.parts]

    def run(self, seconds):
        end_time = self.now + seconds
        while (due := self.faults.next_timer()) is not None and due <= end_time:
            self.now = max(due, self.now)
            self.faults.on_timer(self.now)
        self.now = end_time

    @property
    def active(self):
        return [(f.location, f.kind) for f in self.faults.active()]


def test_evs__intersection_of_the_bad_minus_what_the_good_prove():
    evs = Evs(**{**DEFAULT, "racks": 3})
    dead_evs = evs.crossing("p0-t0-0-eth3")  # from T0 0 up to T1 0
    evs.report_bad(*dead_evs)
    evs.run(0.3)
    evs.report_good(*(name for name in evs.paths if name not in dead_evs))
    evs.run(2.0)
    assert evs.active == [("p0-t0-0 p0-t1-0", "lossy link")]


def test_evs__one_bad_ev_leaves_a_choice_and_says_so():
    evs = Evs(**DEFAULT)
    evs.report_bad("h0 h2 0x0000")
    evs.run(0.3)
    evs.report_good("h0 h2 0x0001")  # the other T1: clears NICs and T0s
    evs.run(4.0)
    assert evs.active == [("p0-t1-0 or p0-t0-0 p0-t1-0 or p0-t0-1 p0-t1-0", "unclear")]
    evs.report_good("h1 h3 0x0000")  # the same way from end to end, for others: nothing of it is dead
    evs.run(1.0)
    assert evs.active == []


def test_evs__one_that_recovers_soon_was_no_fault():
    evs = Evs(**DEFAULT)
    evs.report_bad("h0 h2 0x0000")
    evs.run(0.7)
    evs.report_good("h0 h2 0x0000")
    evs.run(5.0)
    assert evs.active == [] and evs.faults.all_faults() == []


def test_evs__a_first_guess_that_a_prober_corrects_becomes_part_of_what_it_was():
    """Three dead uplinks at one end are one dead NIC link to the only flow there, until the prober tells."""
    evs = Evs(planes=1, racks=4, spines=4, hosts_per_rack=2)
    segmenter = evs.faults.segmenter
    evs.report_bad("h4 h6 0x0000", "h4 h6 0x0001", "h4 h6 0x0002")
    evs.run(0.3)
    evs.report_good("h5 h0 0x0000", "h0 h6 0x0003", "h0 h7 0x0003")
    evs.run(2.0)
    assert evs.active == [("h4 p0-t0-2", "lossy link")]
    for host in ("h4", "h6", "h7"):
        evs.faults.path(f"{host} T0", segmenter.t0_probe(host, 0), "ok", source=MAPPER, now=evs.now)
    for t1 in ("p0-t1-0", "p0-t1-1", "p0-t1-2"):
        evs.faults.path(
            f"h7 {t1}", segmenter.t1_probe("h7", 0, t1), "down", source=MAPPER, now=evs.now, t=evs.now - 1.9
        )
        evs.faults.path(f"h4 {t1}", segmenter.t1_probe("h4", 0, t1), "ok", source=MAPPER, now=evs.now)
    evs.run(1.0)
    assert evs.active == [(f"p0-t0-3 p0-t1-{k}", "lossy link") for k in range(3)]
    assert [fault.location for fault in evs.faults.all_faults()] == [location for location, _ in evs.active]  # merged


def test_evs__of_a_cut_link_do_not_outlive_it_as_another_fault():
    evs = Evs(**DEFAULT)
    evs.faults.port("p0-t0-0-eth3", "DOWN", source="gnmi x", now=evs.now)
    evs.run(0.5)
    dead_evs = evs.crossing("p0-t0-0-eth3")
    evs.report_bad(*dead_evs)
    evs.run(2.0)
    evs.faults.port("p0-t0-0-eth3", "UP", source="gnmi x", now=evs.now)
    evs.report_bad("h1 h3 0x0000")  # told late
    evs.run(4.0)
    assert evs.active == []
    evs.report_good(*dead_evs)
    evs.run(20.0)
    assert evs.active == [] and len(evs.faults.all_faults()) == 1


def test_evs__still_bad_long_after_the_port_came_back_are_a_fault():
    evs = Evs(**{**DEFAULT, "racks": 3})
    evs.faults.port("p0-t0-0-eth3", "DOWN", source="gnmi x", now=evs.now)
    dead_evs = evs.crossing("p0-t0-0-eth3")
    evs.report_bad(*dead_evs)
    evs.run(2.0)
    evs.faults.port("p0-t0-0-eth3", "UP", source="gnmi x", now=evs.now)
    evs.report_good(*(name for name in evs.paths if name not in dead_evs))
    evs.run(20.0)
    assert evs.active == [("p0-t0-0 p0-t1-0", "lossy link")]
    assert len(evs.faults.all_faults()) == 2


# ---- flaps --------------------------------------------------------------------------------------------------


def test_flap__is_one_fault_that_stays_until_it_is_quiet():
    evs = Evs(**DEFAULT)
    for _ in range(5):
        evs.faults.port("p0-t0-0-eth3", "DOWN", source="gnmi x", now=evs.now)
        evs.run(1.0)
        evs.faults.port("p0-t0-0-eth3", "UP", source="gnmi x", now=evs.now)
        evs.run(1.0)
    (fault,) = evs.faults.active()
    assert (fault.number, fault.flaps) == (1, 2) and "flapping" in fault.text
    changes = [change for change, _ in evs.faults.changes()]
    assert changes.count("raised") == 3, changes  # then it is known for what it is
    evs.run(6.0)
    assert evs.active == [] and len(evs.faults.all_faults()) == 1


def test_silent__dead_for_a_moment_is_held_as_lossy():
    """A dozen probes in a row may be lost on a link that loses many.

    It is not cleared before that can be told.
    """
    world = World(**DEFAULT)
    link = world.plan.link("p0-t0-0", "p0-t1-0")
    world.break_link(link)
    world.run(2.0)
    assert world.active == [(link.name, "lossy link")]
    world.dark, world.losing = set(), both_ways(link, 0.2)
    for _ in range(5):
        world.run(1.0)
        world.complain()
        assert world.active == [(link.name, "lossy link")], world.log
    assert sum(line.startswith("raised") for line in world.log) == 1


# ---- congestion ---------------------------------------------------------------------------------------------


def test_full_queue__what_evs_lose_there_is_no_fault():
    """Test incast without trimming.

    Every path to one host loses packets at its T0's port, and none of them is broken.
    """
    evs = Evs(**DEFAULT)
    victim = [name for name in evs.paths if name.split()[1] == "h0"]
    for second in range(8):
        evs.report_bad(*victim)
        evs.faults.full_queue("p0-t0-0-eth1", now=evs.now)
        evs.run(1.0)
        for name in victim:
            evs.faults.counts(name, evs.paths[name], 100 * second, 30 * second, source=EV, now=evs.now)
    assert evs.active == [] and evs.faults.all_faults() == []
    evs.run(6.0)  # the queue is not full any more, and they are still dead: now it counts
    assert len(evs.active) == 1


def test_full_queue__elsewhere_excuses_nothing():
    evs = Evs(**{**DEFAULT, "racks": 3})
    dead_evs = evs.crossing("p0-t0-0-eth3")
    evs.report_bad(*dead_evs)
    evs.faults.full_queue("p0-t0-2-eth1", now=evs.now)
    evs.run(0.3)
    evs.report_good(*(name for name in evs.paths if name not in dead_evs))
    evs.run(2.0)
    assert evs.active == [("p0-t0-0 p0-t1-0", "lossy link")]
