"""Assignment of probe targets to hosts (mrc-protocol §9). Pure.

Every NIC port probes its T0: there and back over the NIC-T0 link. A T1 is probed by COVER hosts of each rack (fewer in
a smaller rack), so that each T0-T1 link is seen by two hosts where there are two, and no host probes all of them.

A self-probe crosses its link both ways. When one of a T1 fails or loses, its host also sends loops, which cross the
suspect link T0_a - T1_k one way only and go on over another rack's T0_b and another T1_j::

    out     T0_a : T1_k : T0_b : T1_j : T0_a : own NIC        crosses T0_a -> T1_k
    back    T0_a : T1_j : T0_b : T1_k : T0_a : own NIC        crosses T1_k -> T0_a

A T0 that none of its own hosts reaches is crossed by such loops of hosts in other racks: it, or all its NICs?

Six uSIDs, which fill one address (§8.1). A loop that comes back clears all it crossed, so that the two tell the
direction whatever is known of the rest: only when neither returns another T0_b and T1_j are tried.

Self-probes need SRv6: the uSID list brings them back. In the other modes switches forward by destination, so a host can
send to its own address and the T0 returns it (the T0 probe); nothing makes a T0 send a packet up whose destination is
below it, so there are no T1 probes, and the T0-T1 links are watched by port state and by the hosts' EVs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from mrc_testbed.topologies.plan import Host, Link, Plan, Switch, make_ev, segment_list

COVER = 2
"""Hosts of a rack that probe one T1 of a plane."""
LOOP_CHOICES = 3
"""Ways round that are tried for a suspect link."""


class TargetKind(str, Enum):
    """A switch or host at which a probe turns round."""

    T0 = "t0"
    T1 = "t1"
    LOOP = "loop"  # nowhere: one direction of a T0-T1 link, round over another T1


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One self-probe: `host` to `switch` and back on `plane`."""

    number: int
    """Index in the list of all targets, carried in the probe."""
    host: str
    plane: int
    kind: TargetKind
    switch: str
    ev: int
    """Plane and uplink (§8.3); of a T0 probe the uplink is 0 and means nothing."""
    link: Link
    """The farthest link, the one that this probe is about: NIC-T0 or T0-T1."""
    outer: int | None
    """Outer destination address (128-bit) with which it leaves; None without SRv6."""
    walk: tuple[str, ...]
    """Nodes in the order they are met, from the host back to it."""
    t1_target: int | None = None
    """Number of the T1's target whose link a loop crosses one way; None for a loop over a T0."""
    choice: int = 0
    """Index of a loop's way round among the possible ones."""

    @property
    def direction(self) -> str | None:
        """Direction in which a loop crosses its link, as `A -> B`; None for other targets."""
        if self.kind is not TargetKind.LOOP:
            return None
        ends = (self.link.lower.node, self.link.upper.node)
        crossed_pair = next(pair for pair in pairwise(self.walk) if set(pair) == set(ends))
        return " -> ".join(crossed_pair)


def uses_srv6(plan: Plan) -> bool:
    """Whether switches forward on uSIDs, which a self-probe of a T1 needs."""
    return plan.mode.outer_header


def targets_of(plan: Plan) -> tuple[ProbeTarget, ...]:
    """Return all self-probes: host by host, plane by plane, the T0 first."""
    srv6 = uses_srv6(plan)
    out: list[ProbeTarget] = []
    for host in plan.hosts:
        to_t0, to_t1 = plan.t0_probe_template(host), plan.t1_probe_template(host)
        for plane in plan.host_planes(host):
            t0 = plan.t0_name(plane, host.rack)
            ev = make_ev(plane, 0)
            outer = to_t0.address(ev) if srv6 else None
            walk: tuple[str, ...] = (host.name, t0, host.name)
            out.append(
                ProbeTarget(len(out), host.name, plane, TargetKind.T0, t0, ev, plan.link(host.name, t0), outer, walk)
            )
            for spine in spines_of(plan, host, plane) if srv6 else ():
                t1, ev = plan.t1_name(plane, spine), make_ev(plane, spine)
                link, walk = plan.link(t0, t1), (host.name, t0, t1, t0, host.name)
                out.append(
                    ProbeTarget(len(out), host.name, plane, TargetKind.T1, t1, ev, link, to_t1.address(ev), walk)
                )
    return tuple(out)


def loops_of(plan: Plan, targets: tuple[ProbeTarget, ...]) -> tuple[ProbeTarget, ...]:
    """Return the loops of all T1 targets and over all T0s, numbered behind `targets`."""
    out: list[ProbeTarget] = []
    for target in targets:
        if target.kind is TargetKind.T1:
            out += _loops(plan, target, len(targets) + len(out))
    if uses_srv6(plan) and plan.spines > 1:
        for switch in [switch for switch in plan.switches if switch.tier == 0]:
            out += _loops_over(plan, switch, len(targets) + len(out))
    return tuple(out)


def _loops_over(plan: Plan, switch: Switch, number: int) -> list[ProbeTarget]:
    """Return loops over a T0 from the first host of each of the next two racks, each over other T1s."""
    out: list[ProbeTarget] = []
    plane = switch.plane
    for step in range(1, plan.racks):
        rack = (switch.number + step) % plan.racks
        hosts = plan.hosts_of(plane, rack)
        spines = [k for k in plan.uplinks(plane, rack) if k in plan.uplinks(plane, switch.number)]
        # On an uneven plane a rack may have nobody who could send such a loop, or no two ways.
        if len(out) == COVER or not hosts or len(spines) < 2:
            continue
        host, t0 = hosts[0], plan.t0_name(plane, rack)
        t1_out, t1_back = (plan.t1_name(plane, spines[(rack + k) % len(spines)]) for k in range(2))
        walk = (host.name, t0, t1_out, switch.name, t1_back, t0, host.name)
        outer = segment_list(plan.walk(walk)).destination
        link, ev = plan.link(t1_out, switch.name), make_ev(switch.plane, 0)
        loop_number = number + len(out)
        out.append(
            ProbeTarget(loop_number, host.name, switch.plane, TargetKind.LOOP, switch.name, ev, link, outer, walk)
        )
    return out


def _loops(plan: Plan, target: ProbeTarget, number: int) -> list[ProbeTarget]:
    """Return both loops over the link of a T1's target for each way round; none with one rack or one T1."""
    host, t0, t1 = target.host, target.walk[1], target.switch
    source_host = plan.host(host)
    plane, number_of_t1 = target.plane, plan.switch(t1).number
    racks = [rack for rack in plan.racks_of(plane, number_of_t1) if rack != source_host.rack]
    spines = [k for k in plan.uplinks(plane, source_host.rack) if k != number_of_t1]
    # On a full grid all of them; elsewhere those ways round that exist.
    ways = [way for way in _ways_round(source_host.downlink, racks, spines) if plan.has_fabric_link(plane, *way)]
    out: list[ProbeTarget] = []
    for choice, (rack, spine) in enumerate(ways[:LOOP_CHOICES]):
        far, second_t1 = plan.t0_name(plane, rack), plan.t1_name(plane, spine)
        for t1_out, t1_back in ((t1, second_t1), (second_t1, t1)):
            walk = (host, t0, t1_out, far, t1_back, t0, host)
            outer = segment_list(plan.walk(walk)).destination
            out.append(
                ProbeTarget(
                    number + len(out),
                    host,
                    target.plane,
                    TargetKind.LOOP,
                    t1,
                    target.ev,
                    target.link,
                    outer,
                    walk,
                    t1_target=target.number,
                    choice=choice,
                )
            )
    return out


def _ways_round(first: int, racks: Sequence[int], spines: Sequence[int]) -> list[tuple[int, int]]:
    """Return all pairs of rack and second T1; hosts of a rack begin with different ones."""
    turns = range(first, first + len(racks) * len(spines))
    return [(racks[turn % len(racks)], spines[(turn + turn // len(racks)) % len(spines)]) for turn in turns]


def spines_of(plan: Plan, host: Host, plane: int) -> tuple[int, ...]:
    """T1 numbers that a host probes on a plane.

    The T1s of all planes are dealt out to COVER hosts each, one after the other, so that in a rack of many hosts nobody
    has more work than another.
    """
    hosts, first_index = plan.hosts_of(plane, host.rack), plane * plan.spines
    position = hosts.index(host)
    uplinks = plan.uplinks(plane, host.rack)
    return tuple(k for k in uplinks if (position - (first_index + k) * COVER) % len(hosts) < COVER)
