"""Entries that follow what is alive, beside the static ones of the plan (routes.py). Pure.

    dead_ports      in every mode: ports of a switch whose link is down. A packet to one would end at the wire anyhow;
                    with the entry it is counted and the first one is reported in-band (p4src/ingress.p4). No route.
    groups          spray.p4 only: a T1 that can no longer reach a rack leaves the group of uplinks that other racks'
                    T0s use towards that rack, and comes back. A T0's own dead uplink needs no help: members watch it.

srv6.p4 gets no route from here, ever: the requestor acts, not the switch (§8.6).
"""

from __future__ import annotations

from collections.abc import Iterable

from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry
from mrc_testbed.controller.p4runtime.qos import dead_port_entry
from mrc_testbed.controller.reconvergence import PlaneFailures
from mrc_testbed.topologies.plan import Link, Plan, Switch

RACK_GROUPS = 2
"""Group of the uplinks that reach rack 0; rack r has RACK_GROUPS + r, and 1 is all (routes.py)."""


def reach(plan: Plan, plane: int, rack: int, failures: PlaneFailures) -> tuple[int, ...]:
    """Return the numbers of a plane's T1s that reach the T0 of a rack; none where the plane lacks that T0."""
    if not plan.has_t0(plane, rack):
        return ()
    t0 = plan.switch(plan.t0_name(plane, rack))
    out = []
    for number in plan.uplinks(plane, rack):
        t1 = plan.switch(plan.t1_name(plane, number))
        link = plan.link(t0.name, t1.name)
        if link not in failures.down_links | failures.fresh_links and not failures.silent_causes & {link, t1}:
            out.append(number)
    return tuple(out)


def live_entries(
    plan: Plan,
    program: str,
    switch: Switch,
    catalog: Catalog,
    failures: PlaneFailures,
    acted_on: PlaneFailures | None = None,
) -> tuple[NamedEntry, ...]:
    """Return the entries of `switch` beside its static ones.

    `acted_on`: failures that groups follow (reconvergence.py); None: `failures`.
    """
    acted_on = failures if acted_on is None else acted_on
    entries = [dead_port_entry(catalog, number) for number in sorted(_dead_ports(switch, failures.down_links))]
    if program == "spray" and switch.tier == 0:
        for rack in range(plan.racks):
            if rack != switch.number:
                entries += _rack_group(plan, switch, rack, catalog, reach(plan, switch.plane, rack, acted_on))
    return tuple(entries)


def _dead_ports(switch: Switch, links: Iterable[Link]) -> set[int]:
    ends = [port for link in links if switch.name in link.ends for port in (link.lower, link.upper)]
    return {port.number for port in ends if port.node == switch.name}


def _rack_group(
    plan: Plan, switch: Switch, rack: int, catalog: Catalog, t1_numbers: tuple[int, ...]
) -> list[NamedEntry]:
    """Return a group for a rack that not all T1s reach; without any T1 that does, the group of all stays."""
    if not t1_numbers or len(t1_numbers) == len(plan.uplinks(switch.plane, rack)):
        return []
    group, ports = RACK_GROUPS + rack, [plan.uplink_port(number) for number in t1_numbers]
    prefix = int(plan.rack_prefix(switch.plane, rack))
    return [
        catalog.group("uplink_selector", group, {port: port for port in ports}),
        catalog.group_entry("uplinks", {"uplink_group": group}, group),
        catalog.table_entry("route", {"dst_addr": (prefix, 48)}, "spray", {"uplink_group": group}),
    ]


def reason_of(entry_key: str, is_more: bool) -> str:
    """Return the reason under which a write of a live entry is counted."""
    if entry_key.startswith("dead_ports"):
        return "dead port" if is_more else "port alive"
    return "prune" if is_more else "restore"
