"""`mrc bench faults --virtual`: random fault sets against the correlator in virtual time.

See docs/controller.md.

A model of a fabric has one to four things break in it, at once or one after the other, and makes the observations that
the real sources would make of it: port states of both ends, lost streams, Clustermapper's verdicts and counts (its own
prober, with the fate of each probe), EV events and counts of hosts with QPs between random pairs, counters of
switches, digests. Each comes with a delay of its own, sources overtake each other, and some of it is lost. What the
correlator named is compared with what was broken.

A set is `wrong` as soon as anything was named that was not broken, be it for a moment; it is `exact` when in the end
all that somebody could see is named and nothing is left open; `cannot tell` when what was broken is among the
candidates of what could not be told; `missed` when something that could be seen has no name in the end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mrc_testbed.controller.faults.correlator import COUNTERS, Fault, FaultCorrelator, Tap
from mrc_testbed.controller.faults.forwarding import Forwarding, Reading
from mrc_testbed.controller.faults.observations import header_of, line_of
from mrc_testbed.controller.faults.path_segments import Cause, PathSegments
from mrc_testbed.controller.sources.clustermapper import (
    COUNTS_EVERY_S,
    COUNTS_WHEN_BAD_S,
    TOGETHER_S,
    ClustermapperSource,
)
from mrc_testbed.controller.sources.host_agents import ASK_EVERY_S, HostAgentSource
from mrc_testbed.controller.sources.queue_drops import ASK_EVERY_S as COUNTERS_EVERY_S
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.hosts.clustermapper.prober import Prober, ProberSettings, target_json
from mrc_testbed.hosts.clustermapper.targets import loops_of, targets_of
from mrc_testbed.topologies.plan import Host, Link, Plan, Switch

FABRICS = (
    (1, 2, 2, 2), (2, 2, 2, 2), (1, 3, 3, 2), (1, 4, 4, 2), (1, 3, 2, 1), (1, 2, 3, 3), (1, 4, 2, 1), (2, 3, 2, 2),
)  # fmt: skip
"""(planes, racks, spines, hosts in a rack); each set takes one."""
QUIET_S = 2.0
"""Seconds without faults at the beginning."""
WATCHED_S, WATCHED_LOSSY_S = 8.0, 14.0
"""Times from the last fault to the judgement, seconds.

A lossy link takes two windows of probes and the time for a choice.
"""
CHUNK = 25
"""Sets that one process runs before it reports."""
ROUND_S = 0.1
SEND_S = 0.08
"""Between two packets of an EV."""
PROBE_S = 0.2
"""Between two probes of an EV that was withdrawn."""
ODD_LOSS = 0.0003
"""Packets of hosts that a busy machine loses."""
FULL_LOSS = 0.2
"""Packets that a full queue drops."""
GNMI = "gnmi 127.0.0.1:9339"

RESULT_WRONG, RESULT_EXACT, RESULT_UNCLEAR, RESULT_MISSED = "wrong", "exact", "cannot tell", "missed"


@dataclass(frozen=True, slots=True)
class InjectedCause:
    """One cause. `arcs`: the directions of a link that are dead or lose; `loss`: share of packets."""

    kind: str
    element: Link | Switch
    time: float
    arcs: frozenset[str] = frozenset()
    loss: float = 1.0

    @property
    def calls(self) -> str:
        """The controller's word for it."""
        if isinstance(self.element, Switch):
            return "blackhole" if self.kind == "black hole" else f"T{self.element.tier}"
        if self.kind != "link down":
            return "lossy link"
        return "NIC port" if self.element.lower.node.startswith("h") else "link"

    @property
    def parts(self) -> frozenset[str]:
        """Arcs and switches that do not forward."""
        return self.arcs if isinstance(self.element, Link) else frozenset({self.element.name})

    def touches(self, cause: InjectedCause) -> bool:
        """One of them is a part of the other's place, or both are the same."""
        ends = [
            end_cause.element.ends if isinstance(end_cause.element, Link) else {end_cause.element.name}
            for end_cause in (self, cause)
        ]
        if isinstance(self.element, Link) and isinstance(cause.element, Link):
            return self.element == cause.element
        return not ends[0].isdisjoint(ends[1])

    def __str__(self) -> str:
        text = f"{self.kind} {self.element.name} at {self.time:.2f}"
        return text + (f" {sorted(self.arcs)} {self.loss:.2f}" if self.kind in ("one-way cut", "lossy link") else "")


def random_set(plan: Plan, rng: random.Random) -> list[InjectedCause]:
    """Return one to four causes, none of them at one place and most often in one plane.

    Planes do not know of each other.
    """
    spread = rng.choice((0.0, 0.05, 1.0, 5.0))
    out: list[InjectedCause] = []
    links, switches = plan.links, plan.switches
    hosts = {host.name for host in plan.hosts}
    for _ in range(rng.randint(1, 4)):
        time = QUIET_S + rng.random() * spread
        kind = rng.choice(
            ("link down", "NIC port down", "switch dead", "black hole", "lossy link", "one-way cut", "one-way cut")
        )
        if kind in ("switch dead", "black hole"):
            cause = InjectedCause(kind, rng.choice(switches), time)
        else:
            is_nic = {"link down": False, "NIC port down": True}.get(kind, rng.random() < 0.3)
            link = rng.choice([candidate for candidate in links if (candidate.lower.node in hosts) is is_nic])
            arcs_of_link = frozenset((link.lower.interface, link.upper.interface))
            one_way = frozenset({rng.choice(sorted(arcs_of_link))})
            match kind:
                case "lossy link":
                    arcs = rng.choice((arcs_of_link, one_way))
                    cause = InjectedCause(kind, link, time, arcs, rng.choice((0.1, 0.2, 0.4)))
                case "one-way cut":
                    cause = InjectedCause(kind, link, time, one_way)
                case _:
                    cause = InjectedCause("link down", link, time, arcs_of_link)
        # Two causes at one place would have one name.
        if not any(cause.element == drawn_cause.element for drawn_cause in out):
            out.append(cause)
    return sorted(out, key=lambda cause: cause.time)


# ---- the model ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WatchedFlow:
    """The packets of one EV of one QP."""

    source: Host
    peer: Host
    ev: int
    trace: PathSegments
    state: str = "good"
    next_at: float = 0.0
    probe_answers: int = 0
    sent: int = 0
    acked: int = 0
    lost: int = 0


class World:
    """A fabric with faults, its sources, and the correlator that they tell. Virtual time, seconds."""

    def __init__(
        self,
        plan: Plan,
        causes: list[InjectedCause],
        seed: int,
        make: Callable[..., FaultCorrelator] = FaultCorrelator,
        tap: Tap | None = None,
    ) -> None:
        self.plan, self.causes = plan, causes
        self.rng = random.Random(seed)
        self.faults = make(plan, tap=tap)
        self.segmenter = self.faults.segmenter
        self.first_reports: dict[tuple[str, str, str | None], float] = {}
        """(kind, location, direction) reported as certain, and the time of the first report."""
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._told_until: dict[str, float] = {}
        self._is_busy = self.rng.random() < 0.2
        """The machine is: everything takes longer."""
        self._deaf: dict[str, tuple[float, float]] = {}
        """Sources that the controller hears nothing of for a while: (from, until)."""
        self._dead_switches: set[str] = set()
        self._switches_off: set[str] = set()
        self._losses: dict[str, float] = {}
        self.down_links: set[Link] = set()
        self._received: Counter[str] = Counter()
        self._forwarded: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._down_arcs: set[str] = set()
        self._hops: dict[int, list[tuple[str, str, str]]] = {}
        """Trace, by identity -> (arc, switch that sends it or "", switch that receives it or "") of each hop."""
        # Sources are the real ones, fed with messages instead of sockets.
        targets = targets_of(plan)
        self._targets = (*targets, *loops_of(plan, targets))
        self._walks = [self.segmenter.from_nodes(target.walk) for target in self._targets]
        self._prober = Prober(self._targets, ProberSettings(), 0.0)
        self._rows = [target_json(*pair) for pair in zip(self._targets, self._prober.health, strict=True)]
        folder = Path()
        self._mapper = ClustermapperSource(folder, self.faults, lambda _event: None, lambda: None)
        self._agents = HostAgentSource(folder, plan, self.faults, lambda _event: None, lambda: None)
        self._forwarding = Forwarding(self.segmenter)
        self._reading_due: float | None = None
        self._full_queue, self._full_until = "", 0.0
        """An output queue that is full for a while: it drops data."""
        self.paths = self._random_paths()
        is_lossy = any(cause.kind == "lossy link" for cause in causes)
        self._ends_at = max(cause.time for cause in causes) + (WATCHED_LOSSY_S if is_lossy else WATCHED_S)

    @property
    def probes(self) -> list[PathSegments]:
        """Path segments of Clustermapper's self-probes."""
        return [walk for walk, target in zip(self._walks, self._targets, strict=True) if target.t1_target is None]

    def _random_paths(self) -> list[WatchedFlow]:
        """QPs between random pairs of hosts, with every EV of theirs or a few."""
        out: list[WatchedFlow] = []
        for _ in range(self.rng.choice((0, 1, 2, 4))):
            source, peer = self.rng.sample(self.plan.hosts, 2)
            evs = list(self.plan.evs(source, peer))
            for ev in self.rng.sample(evs, min(len(evs), 6)):
                if not any(p.source is source and p.peer is peer and p.ev == ev for p in out):
                    out.append(WatchedFlow(source, peer, ev, self.segmenter.data(source, peer, ev)))
        return out

    # ---- what happens to a packet -----------------------------------------------------------------------

    def _hop(self, arc: str) -> tuple[str, str, str]:
        """An arc, the switch that sends it, the switch that receives it; "" where that is a host."""
        sender, receiver = map(self._switch, self.segmenter.ends(arc))
        return arc, sender, receiver

    def walks(self, trace: PathSegments) -> bool:
        """Send a packet along; False when it is lost. Counts at switches."""
        hops = self._hops.get(id(trace))
        if hops is None:
            hops = self._hops[id(trace)] = [self._hop(arc) for arc in trace.arcs]
        received, forwarded, losses = self._received, self._forwarded, self._losses
        for arc, sender, receiver in hops:
            if sender:
                if sender in self._dead_switches:
                    return False
                if arc in self._down_arcs:
                    self._dropped[sender] += 1
                    self._digest(arc)
                    return False
                forwarded[arc] += 1
            if arc in losses and self.rng.random() < losses[arc]:
                return False
            if receiver:
                if receiver in self._switches_off:
                    return False
                received[arc] += 1
        return True

    @staticmethod
    def _switch(node: str) -> str:
        return node if node.startswith("p") else ""

    def _digest(self, arc: str) -> None:
        if self.rng.random() < 0.05:  # the switch tells of the first one, and digests are lost
            self._report("digest", 0.1, lambda: self.faults.digest(arc, "dead next hop", now=self.now))

    # ---- what the controller hears ----------------------------------------------------------------------

    def _schedule(self, time: float, action: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._order), action))

    def _report(self, source: str, typical_s: float, action: Callable[[], None]) -> None:
        """Delayed report of a source, in the order of its own stream, unless it is lost."""
        start, end = self._deaf.get(source, (0.0, 0.0))
        if start <= self.now < end:
            return
        delay = self.rng.expovariate(1 / typical_s) * (5 if self._is_busy else 1)
        time = max(self.now + min(delay, 1.0), self._told_until.get(source, 0.0))
        self._told_until[source] = time
        self._schedule(time, action)

    def _goes_deaf(self) -> None:
        """One source in ten loses its stream around the faults, and tells all it has when the stream is back."""
        first = self.causes[0].time
        snapshots = {GNMI: self._all_ports, "mapper": self._all_probes}
        for source, snapshot in snapshots.items():
            if self.rng.random() < 0.1:
                start = first + self.rng.uniform(-0.5, 0.5)
                end = start + self.rng.uniform(0.2, 1.5)
                self._deaf[source] = (start, end)
                self._schedule(end, snapshot)

    def _note(self) -> None:
        for _, fault in self.faults.changes():
            if fault.certain_cause is not None and fault.state.value == "active":
                self.first_reports.setdefault((fault.kind, fault.location, fault.direction), self.now)

    # ---- sources ----------------------------------------------------------------------------------------

    def _break(self, cause: InjectedCause) -> None:
        if isinstance(cause.element, Link):
            for arc in cause.arcs:
                self._losses[arc] = cause.loss
            if cause.kind == "link down":
                self._goes_down(cause.element)
            return
        self._dead_switches.add(cause.element.name)
        if cause.kind == "switch dead":
            self._switches_off.add(cause.element.name)
            self._report(f"stream {cause.element.name}", 0.05, lambda: self._stream_lost(cause.element.name))
            for link in self.plan.links:
                if cause.element.name in link.ends:
                    self._losses |= dict.fromkeys(self.segmenter.arcs(link), 1.0)
                    self._goes_down(link)

    def _stream_lost(self, switch: str) -> None:
        self.faults.stream(switch, False, now=self.now)

    def _goes_down(self, link: Link) -> None:
        """Both ends report, as far as they are switches."""
        self.down_links.add(link)
        self._down_arcs.update(self.segmenter.arcs(link))
        for port in (link.lower, link.upper):
            if port.node.startswith("p"):
                self._report(GNMI, 0.02, partial(self._port, port.interface, "DOWN"))

    def _port(self, interface: str, status: str) -> None:
        self.faults.port(interface, status, source=GNMI, now=self.now)

    def _all_ports(self) -> None:
        for link in self.plan.links:
            for port in (link.lower, link.upper):
                if port.node.startswith("p"):
                    self._port(port.interface, "DOWN" if link in self.down_links else "UP")

    def _round(self) -> None:
        """Clustermapper sends a probe to every target; now and then it wakes up late."""
        prober, now = self._prober, self.now
        if self._is_busy and self.rng.random() < 0.02:
            prober.on_stall(0.06)
        for change in prober.judge(now):
            self._probe_told(change.target.number)
        sequence = prober.begin_round(now)
        for number in sorted(prober.active):
            if not self.walks(self._walks[number]):
                continue
            answer = prober.on_return(number, sequence, self.rng.uniform(0.0005, 0.01))
            if answer is not None:
                self._probe_told(answer.target.number)
        self._schedule(now + ROUND_S, self._round)

    def _probe_told(self, number: int) -> None:
        event = target_json(self._targets[number], self._prober.health[number])
        self._report("mapper", 0.02, lambda: self._hear_probe(event))

    def _hear_probe(self, event: dict[str, Any]) -> None:
        self._mapper.take(event, self.now)
        if event["state"] not in ("ok", "unknown"):
            self._schedule_counts(self.now + TOGETHER_S)

    def _all_probes(self) -> None:
        for number in sorted(self._prober.active):
            if self._prober.health[number].state.value != "unknown":
                self._probe_told(number)

    def _schedule_counts(self, time: float) -> None:
        """Clustermapper's counts are read at that time, unless they are read sooner."""
        if self._reading_due is None or time < self._reading_due:
            self._reading_due = time
            self._schedule(time, lambda: self._read_counts(time))

    def _read_counts(self, due: float) -> None:
        if self._reading_due != due:
            return
        health = self._prober.health
        rows = [
            {
                **self._rows[number],
                "state": health[number].state.value,
                "sent": health[number].sent,
                "lost": health[number].lost,
                "back_at": health[number].back_at,
            }
            for number in sorted(self._prober.active)
        ]
        self._reading_due = None
        self._report("mapper", 0.02, lambda: self._mapper.take_counts(rows, self.now))
        self._schedule_counts(self.now + (COUNTS_WHEN_BAD_S if self.faults.has_path_symptoms else COUNTS_EVERY_S))

    def _read_counters(self) -> None:
        """Read received and forwarded packets of the switches that answer."""
        if self._full_queue and self._full_until + 1.0 > self.now:
            self.faults.full_queue(self._full_queue, now=self.now)
        for plane in sorted(self.faults.planes_with_symptoms):
            for switch in self.plan.switches:
                if switch.plane == plane and switch.name not in self._switches_off:
                    self._forwarding.read(switch, self._reading(switch))
            for verdict in self._forwarding.verdicts(plane):
                state = "ok" if verdict.works else "down"
                self.faults.path(
                    verdict.subject_name,
                    verdict.trace,
                    state,
                    source=COUNTERS,
                    now=self.now,
                    t=verdict.t,
                    says=verdict.says,
                )
        self._schedule(self.now + COUNTERS_EVERY_S + self.rng.random() * 0.1, self._read_counters)

    def _reading(self, switch: Switch) -> Reading:
        received, forwarded = {}, {}
        for port in self.plan.ports(switch.name):
            link = self.plan.link_of_interface(port.interface)
            peer_port = link.upper if link.lower == port else link.lower
            received[port.interface] = self._received[peer_port.interface]
            forwarded[port.interface] = self._forwarded[port.interface]
        return Reading(self.now, received, forwarded, self._dropped[switch.name])

    # ---- hosts ------------------------------------------------------------------------------------------

    def _send(self, path: WatchedFlow) -> None:
        """A packet of an EV, or, while it is withdrawn, a probe of it."""
        came_through = self.walks(path.trace) and self.rng.random() > self._chance(path)
        if path.state == "good":
            path.sent += 1
            path.acked += came_through
            if not came_through:
                path.lost += 1
                path.state, path.probe_answers = "assumed_bad", 0
                self._schedule(self.now + self.rng.uniform(0.02, 0.1), lambda: self._on_ev_change(path, "good"))
        else:
            path.probe_answers = path.probe_answers + 1 if came_through else 0
            if path.probe_answers == 3:
                path.state = "good"
                self._on_ev_change(path, "assumed_bad")
        pause = SEND_S if path.state == "good" else PROBE_S
        self._schedule(self.now + pause, lambda: self._send(path))

    def _chance(self, path: WatchedFlow) -> float:
        """Share of its packets that are lost although nothing is broken."""
        if path.state == "good" and self._full_until > self.now and self._full_queue in path.trace.arcs:
            return FULL_LOSS
        return ODD_LOSS

    def _on_ev_change(self, path: WatchedFlow, old_state: str) -> None:
        new_state = "assumed_bad" if old_state == "good" else "good"
        event = {"t": self.now, "peer": path.peer.name, "ev": path.ev, "old": old_state, "new": new_state, "qpn": 17}
        host = path.source.name
        self._report(f"agent {host}", 0.03, lambda: self._agents.take(host, event, self.now))

    def _ask_agents(self) -> None:
        if self._agents.has_bad:
            asked_at = self.now
            for path in self.paths:
                row = {
                    "ev": path.ev,
                    "state": path.state,
                    "sent": path.sent,
                    "acked": path.acked,
                    "lost": path.lost,
                    "rtt_s": 0.01,
                }
                self._agents.take_health(path.source, path.peer, row, asked_at)
        self._schedule(self.now + ASK_EVERY_S, self._ask_agents)

    def _fill(self) -> None:
        link = self.rng.choice([link for link in self.plan.links if link.lower.node.startswith("p")])
        self._full_queue, self._full_until = self.rng.choice((link.lower, link.upper)).interface, self.now + 2.0

    # ---- time -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the set from before the first fault to the judgement."""
        for switch in self.plan.switches:
            self.faults.stream(switch.name, True, now=0.0)
        self.faults.attend(COUNTERS, now=0.0)
        self._all_ports()
        for cause in self.causes:
            self._schedule(cause.time, partial(self._break, cause))
        self._goes_deaf()
        self._schedule(0.0, self._round)
        self._schedule_counts(0.5)
        self._schedule(0.7, self._read_counters)
        self._schedule(0.8, self._ask_agents)
        for path in self.paths:
            self._schedule(self.rng.random() * SEND_S, partial(self._send, path))
        if self.rng.random() < 0.2:
            self._schedule(self.rng.uniform(1.0, self._ends_at - 5.0), self._fill)
        while self._events and self._events[0][0] <= self._ends_at:
            time, _, action = heappop(self._events)
            while (due := self.faults.next_timer()) is not None and due <= time:
                self.now = max(due, self.now)
                self.faults.on_timer(self.now)
                self._note()
            self.now = time
            action()
            self._note()


# ---- the judgement ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """Verdict on a set.

    `seen`: causes that a source could see; `exact` and so on: how many of them fell into each class.
    """

    result: str
    seen_count: int
    exact_count: int
    unclear_count: int
    missed_causes: tuple[str, ...]
    false_reports: tuple[str, ...]
    one_way: int = 0
    """Cuts of one direction of a T0-T1 link that were named; `directions` counts those named with it.

    The direction of a NIC-T0 link may be unknowable.
    """
    directions: int = 0


def is_seen(world: World, cause: InjectedCause) -> bool:
    """Return whether a source reports the cause although the other causes are broken, too.

    Losses count only where no other cause loses packets.
    """
    other_causes = [other_cause for other_cause in world.causes if other_cause is not cause]
    if cause.kind == "switch dead":
        return True
    if cause.kind == "link down":
        return not any(other_cause.kind == "switch dead" and cause.touches(other_cause) for other_cause in other_causes)
    dead_parts = frozenset(
        part
        for other_cause in other_causes
        if other_cause.loss >= 1.0 or cause.loss < 1.0
        for part in other_cause.parts
    ) | _arcs_of_dead_switches(world)
    walks = [*world.probes, *(path.trace for path in world.paths)]
    return any(not cause.parts.isdisjoint(walk.parts) and dead_parts.isdisjoint(walk.parts) for walk in walks)


def _arcs_of_dead_switches(world: World) -> frozenset[str]:
    names = {cause.element.name for cause in world.causes if cause.kind == "switch dead"}
    links = [link for link in world.plan.links if link.ends & names]
    return frozenset(port.interface for link in links for port in (link.lower, link.upper))


def judge(world: World) -> CaseVerdict:
    """Compare the named faults with the injected ones."""
    false_reports = [
        f"{kind} {direction or location}, named at {time:.2f}"
        for (kind, location, direction), time in world.first_reports.items()
        if not any(_is_at(cause, location, direction) for cause in world.causes)
        and not _is_of_dead_switch(world, kind, location)
    ]
    certain: list[Fault] = []
    open_: list[Fault] = []
    for fault in world.faults.active():
        (certain if fault.certain_cause is not None else open_).append(fault)
    for fault in certain:
        # The place is right but its kind may be wrong.
        local_causes = [cause for cause in world.causes if cause.element.name == fault.location]
        if local_causes and not any(cause.calls == fault.kind for cause in local_causes):
            false_reports.append(f"{fault.location} is called {fault.kind} in the end")
    elements = {cause.element for cause in world.causes}
    candidates: set[Cause] = set()
    for fault in open_:
        fitting = [choice for choice in fault.explanations if elements.issuperset(choice)]
        # No explanation consists of broken places alone: the fault blames a sound one.
        if not fitting:
            false_reports.append(f"{fault.text}, and none of it is")
        candidates.update(cause for choice in fitting for cause in choice)
    certain_faults = {fault.location: fault for fault in certain}
    seen_causes = [cause for cause in world.causes if is_seen(world, cause)]
    exact_causes = [cause for cause in seen_causes if cause.element.name in certain_faults]
    unclear_causes = [cause for cause in seen_causes if cause not in exact_causes and cause.element in candidates]
    missed_causes = tuple(
        str(cause) for cause in seen_causes if cause not in exact_causes and cause not in unclear_causes
    )
    one_way_causes = [
        cause
        for cause in exact_causes
        if cause.kind == "one-way cut" and isinstance(cause.element, Link) and cause.element.lower.node.startswith("p")
    ]
    result = (
        RESULT_WRONG
        if false_reports
        else RESULT_MISSED
        if missed_causes
        else RESULT_UNCLEAR
        if unclear_causes or open_
        else RESULT_EXACT
    )
    return CaseVerdict(
        result,
        len(seen_causes),
        len(exact_causes),
        len(unclear_causes),
        missed_causes,
        tuple(false_reports),
        len(one_way_causes),
        sum(certain_faults[cause.element.name].direction is not None for cause in one_way_causes),
    )


def _is_at(cause: InjectedCause, location: str, direction: str | None) -> bool:
    if cause.element.name != location:
        return False
    if direction is None or isinstance(cause.element, Switch):
        return True
    if cause.kind == "link down":
        return True  # both are
    return direction == _direction(cause)


def _direction(cause: InjectedCause) -> str:
    assert isinstance(cause.element, Link)
    if len(cause.arcs) == 2:
        return "both"
    ends = (cause.element.lower.node, cause.element.upper.node)
    return " -> ".join(ends if cause.element.lower.interface in cause.arcs else ends[::-1])


def _is_of_dead_switch(world: World, kind: str, location: str) -> bool:
    """A link of a switch that has gone is down, whichever source reports it first."""
    dead_switches = {cause.element.name for cause in world.causes if cause.kind == "switch dead"}
    return kind in ("link", "NIC port") and not dead_switches.isdisjoint(location.split())


# ---- many ---------------------------------------------------------------------------------------------------


def world_of(
    seed: int, number: int, make: Callable[..., FaultCorrelator] = FaultCorrelator, tap: Tap | None = None
) -> World:
    """Set `number` of a seed, not yet run."""
    rng = random.Random(f"{seed}/{number}")
    plan = Plan(*rng.choice(FABRICS))
    return World(plan, random_set(plan, rng), rng.getrandbits(32), make, tap)


@dataclass(slots=True)
class CauseTally:
    """Counts of verdicts and causes over all sets so far."""

    sets: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    details: list[dict[str, Any]] = field(default_factory=list)
    """Details of every set that is wrong or misses a cause."""

    def add(self, number: int, world: World, verdict: CaseVerdict) -> None:
        self.sets[verdict.result] += 1
        self.causes.update(
            {
                "drawn": len(world.causes),
                "seen": verdict.seen_count,
                RESULT_EXACT: verdict.exact_count,
                RESULT_UNCLEAR: verdict.unclear_count,
                RESULT_MISSED: len(verdict.missed_causes),
                RESULT_WRONG: len(verdict.false_reports),
                "one-way": verdict.one_way,
                "with direction": verdict.directions,
            }
        )
        if verdict.false_reports or verdict.missed_causes:
            self.details.append(
                {
                    "set": number,
                    "plan": str(world.plan),
                    "broken": [str(cause) for cause in world.causes],
                    "wrong": list(verdict.false_reports),
                    "missed": list(verdict.missed_causes),
                    "active": [fault.text for fault in world.faults.active()],
                }
            )

    def merge(self, tally: CauseTally) -> None:
        self.sets.update(tally.sets)
        self.causes.update(tally.causes)
        self.details += tally.details

    def to_json(self) -> dict[str, Any]:
        return {
            "sets": {name: self.sets[name] for name in (RESULT_EXACT, RESULT_UNCLEAR, RESULT_MISSED, RESULT_WRONG)},
            "causes": dict(self.causes),
            "details": sorted(self.details, key=lambda row: row["set"]),
        }


def run_sets(seed: int, numbers: Iterable[int], make: Callable[..., FaultCorrelator] = FaultCorrelator) -> CauseTally:
    """Some sets of a seed, one after the other."""
    tally = CauseTally()
    for number in numbers:
        world = world_of(seed, number, make)
        world.run()
        tally.add(number, world, judge(world))
    return tally


def keep(seed: int, number: int, folder: Path) -> Path:
    """Run a set again and write its observations, for `mrc faults --replay`."""
    calls: list[tuple[str, dict[str, Any]]] = []
    world = world_of(seed, number, tap=lambda name, arguments: calls.append((name, arguments)))
    world.run()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"set-{seed}-{number}.observations.jsonl"
    lines = [line_of(name, arguments, world.segmenter) for name, arguments in calls]
    write_whole(path, b"".join([header_of(world.plan), *lines]))
    return path


def run(seed: int, sets: int, *, jobs: int, folder: Path | None, console: Console) -> dict[str, Any]:
    """Draw that many sets and judge them, in `jobs` processes; the result as JSON, `passed` among it.

    `folder`: where the observations of each set with something wrong or missed are put.
    """
    tally = CauseTally()
    chunks = [range(first, min(first + CHUNK, sets)) for first in range(0, sets, CHUNK)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProcessPoolExecutor(jobs) as pool:
        # Forks here, before the progress bar has its thread: a child could inherit a lock that the thread holds.
        pending = {pool.submit(run_sets, seed, chunk): chunk for chunk in chunks}
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("sets of faults", total=sets)
            for future in as_completed(pending):
                tally.merge(future.result())
                progress.update(task, advance=len(pending[future]), description=f"{tally.sets[RESULT_WRONG]} wrong")
    result = {"seed": seed, "drawn": sets, **tally.to_json()}
    result["passed"] = not tally.sets[RESULT_WRONG]
    for row in result["details"]:
        if folder is not None:
            row["kept"] = str(keep(seed, row["set"], folder))
        console.print(f"set {row['set']} ({row['plan']}): {'; '.join(row['broken'])}", markup=False)
        for text in row["wrong"]:
            console.print(f"    wrong: {text}", markup=False)
        for text in row["missed"]:
            console.print(f"    missed: {text}", markup=False)
    _print(result, console)
    return result


def _print(result: dict[str, Any], console: Console) -> None:
    table = Table(title=f"{result['drawn']} random sets of faults, seed {result['seed']}", title_justify="left")
    for column in ("", "sets", "causes"):
        table.add_column(column, justify="left" if not column else "right")
    for name in (RESULT_EXACT, RESULT_UNCLEAR, RESULT_MISSED, RESULT_WRONG):
        table.add_row(name, str(result["sets"][name]), str(result["causes"].get(name, 0)))
    console.print(table)
    causes = Counter(result["causes"])
    console.print(
        f"{causes['drawn']} causes drawn, {causes['drawn'] - causes['seen']} of them hidden behind others; "
        f"direction told of {causes['with direction']} of {causes['one-way']} one-way cuts of T0-T1 links"
    )
    console.print("[green]passed[/green]" if result["passed"] else "[red]failed[/red]")
