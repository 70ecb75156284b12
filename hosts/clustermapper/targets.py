"""Which host probes which switch (reference §9). Pure.

Every NIC port probes its T0: there and back over the NIC-T0 link. A T1 is probed by COVER hosts of each rack (fewer in
a smaller rack), so that each T0-T1 link is seen by two hosts where there are two, and no host probes all of them.

Self-probes need SRv6: the uSID list brings them back. In the other modes switches forward by destination, so a host can
send to its own address and the T0 returns it (the T0 probe); nothing makes a T0 send a packet up whose destination is
below it, so there are no T1 probes, and the T0-T1 links are watched by port state and by the hosts' EVs alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from topologies.plan import Link, Plan, make_ev

COVER = 2
"""Hosts of a rack that probe one T1 of a plane."""


class Kind(str, Enum):
    """Where a probe turns round."""

    T0 = "t0"
    T1 = "t1"


@dataclass(frozen=True, slots=True)
class Target:
    """One self-probe: `host` to `switch` and back on `plane`."""

    number: int
    """Its place in the list of all targets; travels in the probe."""
    host: str
    plane: int
    kind: Kind
    switch: str
    ev: int
    """Plane and uplink (§8.3); of a T0 probe the uplink is 0 and means nothing."""
    link: Link
    """The farthest link, the one that this probe is about: NIC-T0 or T0-T1."""
    outer: int | None
    """Outer destination address (128-bit) with which it leaves; None without SRv6."""


def uses_srv6(plan: Plan) -> bool:
    """Whether switches forward on uSIDs, which a self-probe of a T1 needs."""
    return plan.mode.outer_header


def targets_of(plan: Plan) -> tuple[Target, ...]:
    """All targets: host by host, plane by plane, the T0 first."""
    srv6 = uses_srv6(plan)
    out: list[Target] = []
    for host in plan.hosts:
        to_t0, to_t1 = plan.t0_probe_template(host), plan.t1_probe_template(host)
        for plane in range(plan.planes):
            t0 = plan.t0_name(plane, host.rack)
            ev = make_ev(plane, 0)
            outer = to_t0.address(ev) if srv6 else None
            out.append(Target(len(out), host.name, plane, Kind.T0, t0, ev, plan.link(host.name, t0), outer))
            for spine in spines_of(plan, host.downlink, plane) if srv6 else ():
                t1, ev = plan.t1_name(plane, spine), make_ev(plane, spine)
                link = plan.link(t0, t1)
                out.append(Target(len(out), host.name, plane, Kind.T1, t1, ev, link, to_t1.address(ev)))
    return tuple(out)


def spines_of(plan: Plan, downlink: int, plane: int) -> tuple[int, ...]:
    """T1 numbers that the host with this downlink number probes on a plane.

    The T1s of all planes are dealt out to COVER hosts each, one after the other, so that in a rack of many hosts nobody
    has more work than another.
    """
    hosts, before = plan.hosts_per_rack, plane * plan.spines
    return tuple(k for k in range(plan.spines) if (downlink - (before + k) * COVER) % hosts < COVER)
