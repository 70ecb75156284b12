"""Switch of a plan in memory with all entries that the controller would write, for switch benches."""

from __future__ import annotations

from typing import Any

from finsy import P4Schema
from finsy.proto import p4i, p4r

from mrc_testbed.controller.p4runtime.entries import Catalog, compare, updates_for
from mrc_testbed.controller.p4runtime.routes import entries_of
from mrc_testbed.files.package import P4_PROGRAMS
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.server.p4runtime.translate import group_in, member_in, table_entry_in
from mrc_testbed.topologies.plan import Plan, Switch


def load_plan(device: P4Device, plan: Plan, switch: Switch) -> None:
    """The program of the plan's mode and the switch's whole tables into `device`."""
    program = compile_program(P4_PROGRAMS / f"{plan.mode.program}.p4")
    device.load(program)
    write_plan(device, program.p4info, plan, switch)


def write_plan(device: Any, p4info: p4i.P4Info, plan: Plan, switch: Switch) -> None:
    """The switch's whole tables into a device, or anything with its methods, that has the program already."""
    catalog = Catalog(P4Schema(p4info, b"config"))
    for update in updates_for(compare(entries_of(plan.mode.program, plan, switch, catalog), [])):
        entity, is_new = update.entity, update.type == p4r.Update.INSERT
        match entity.WhichOneof("entity"):
            case "table_entry":
                (device.insert if is_new else device.modify)(table_entry_in(entity.table_entry))
            case "action_profile_member":
                device.insert_member(member_in(entity.action_profile_member))
            case "action_profile_group":
                device.insert_group(group_in(entity.action_profile_group))
            case kind:
                raise RuntimeError(f"{switch.name}: the controller writes a {kind}, which this bench does not know")
