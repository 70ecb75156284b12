"""Table entries of a switch of the plan, one function a program (p4src/srv6.p4, p4src/spray.p4).

Static routes here; the egress discipline, which both programs share, in qos.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry, short_name
from mrc_testbed.controller.p4runtime.qos import DEFAULT, Discipline, discipline_entries
from mrc_testbed.topologies.plan import LOCATOR, USID_BITS, Mode, Plan, Switch

UPLINK_GROUP = 1
"""Group of all uplinks of a T0. 0 means `not sprayed` in spray.p4's metadata."""


def locator_usid(usid: int) -> int:
    """Return the /48 of a uSID: locator and uSID, as `srv6.p4` matches it (mrc-protocol §8.1)."""
    return LOCATOR << USID_BITS | usid


def srv6_entries(plan: Plan, switch: Switch, catalog: Catalog) -> list[NamedEntry]:
    """Return the entries of `srv6.p4`, written once (§8.1).

    Own uN -> shift; own uAs -> shift and leave; uSID of every neighbour -> its port.
    """
    routes = plan.srv6_routes(switch)
    entries = [catalog.table_entry("my_usid", {"locator_usid": locator_usid(routes.own_usid)}, "shift")]
    for usid, port in routes.adjacencies:
        key = {"locator_usid": locator_usid(usid)}
        entries.append(catalog.table_entry("my_usid", key, "shift_and_forward", {"port": port}))
    for usid, port in routes.next_hops:
        key = {"locator_usid": locator_usid(usid)}
        entries.append(catalog.table_entry("usid_next", key, "forward", {"port": port}))
    return entries


def hash_seed(switch: Switch) -> int:
    """Return the seed of a T0's hash, 32 bits: another one per switch, the same in every run."""
    return zlib.crc32(switch.name.encode())


CHOICES: dict[Mode, tuple[str, dict[str, int]]] = {
    Mode.STEV: ("by_ev", {"shift": 0, "mask": 0xFF}),
    Mode.SWITCH_SPRAY: ("at_random", {}),
    Mode.ECMP: ("by_hash", {}),
    Mode.FLOW_ECMP: ("by_hash", {}),
    Mode.SRV6: ("by_hash", {}),  # spray.p4 given by hand in a plan of the other program: hash as ever
}
"""Choice of the uplink at a T0: action of `uplink_choice`. The EV has it in its low 8 bits (§8.3)."""


def spray_entries(plan: Plan, switch: Switch, catalog: Catalog) -> list[NamedEntry]:
    """Return the entries of `spray.p4` (§8.4).

    Down by the longest prefix; up by a group with a member for each uplink that watches its port.
    """
    routes = plan.spray_routes(switch)
    entries = [
        catalog.table_entry("route", {"dst_addr": (int(prefix), length)}, "forward", {"port": port})
        for prefix, length, port in routes.down_routes
    ]
    if not routes.up_routes:
        return entries
    for prefix, length in routes.up_routes:
        key = {"dst_addr": (int(prefix), length)}
        entries.append(catalog.table_entry("route", key, "spray", {"uplink_group": UPLINK_GROUP}))
    entries.append(catalog.table_entry("uplink_choice", None, *CHOICES[plan.mode]))
    for number, port in enumerate(routes.uplinks):
        entries.append(catalog.table_entry("ev_uplinks", {"uplink": number}, "use_uplink", {"port": port}))
    entries.append(catalog.table_entry("hash_seed", None, "set_hash_seed", {"seed": hash_seed(switch)}))
    for port in routes.uplinks:
        entries.append(catalog.member("uplink_selector", port, "use_uplink", {"port": port}))
    entries.append(catalog.group("uplink_selector", UPLINK_GROUP, {port: port for port in routes.uplinks}))
    entries.append(catalog.group_entry("uplinks", {"uplink_group": UPLINK_GROUP}, UPLINK_GROUP))
    return entries


@dataclass(frozen=True, slots=True)
class ProgramRoutes:
    """Function that fills the tables of one P4 program, and a table only that program has."""

    entries: Callable[[Plan, Switch, Catalog], list[NamedEntry]]
    mark: str


PROGRAMS = {
    "srv6": ProgramRoutes(srv6_entries, mark="usid_next"),
    "spray": ProgramRoutes(spray_entries, mark="uplinks"),
}


def recognise(catalog: Catalog) -> str:
    """Return the program a P4Info belongs to. Raises InputError listing known programs and its tables."""
    tables = {short_name(table.name) for table in catalog.schema.tables}
    for name, program in PROGRAMS.items():
        if program.mark in tables:
            return name
    programs = ", ".join(f"{name} (table {program.mark})" for name, program in PROGRAMS.items())
    raise InputError(
        f"p4info.txtpb: unknown program with the tables {', '.join(sorted(tables))}; known programs: {programs}"
    )


def entries_of(
    program: str, plan: Plan, switch: Switch, catalog: Catalog, discipline: Discipline = DEFAULT
) -> list[NamedEntry]:
    """Return the entries of a switch. Raises InputError when the P4Info does not fit the program's routes."""
    try:
        return PROGRAMS[program].entries(plan, switch, catalog) + discipline_entries(plan, switch, catalog, discipline)
    except InputError as error:
        raise InputError(f"{switch.name}: {error}; is this the P4Info of program {program!r}?") from error
