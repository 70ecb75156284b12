"""Read: from P4Runtime's entities, with their wildcards (§11), to the state of `switch.device` and back.

A zero id, an unset index, an empty match select everything; what does not exist is simply not in the answer. Ids
that the program does not have are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from switch.daemon.chassis import Chassis
from switch.daemon.errors import RpcError, code_of
from switch.daemon.replication import read_replication
from switch.daemon.translate import (
    canonical,
    counter_out,
    group_out,
    match_out,
    member_out,
    meter_out,
    table_action_in,
    table_entry_in,
    table_entry_out,
)
from switch.device import Device
from switch.entities import TableEntry, TableError

CHUNK = 512
"""Entities per ReadResponse: some 50 KiB."""


def read_entities(chassis: Chassis, device: Device, p4info: p4i.P4Info, request: p4r.ReadRequest) -> list[p4r.Entity]:
    """Everything a ReadRequest asks for. Raises RpcError."""
    out: list[p4r.Entity] = []
    for entity in request.entities:
        kind = entity.WhichOneof("entity")
        if kind is None:
            raise RpcError(rpc_code.INVALID_ARGUMENT, "a read of an entity of no kind")
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise RpcError(rpc_code.UNIMPLEMENTED, f"{kind} cannot be read here (can: {', '.join(sorted(_HANDLERS))})")
        try:
            out.extend(handler(chassis, device, p4info, getattr(entity, kind)))
        except TableError as error:
            raise RpcError(code_of(error.code), error.message) from None
    return out


def _entries(device: Device, wanted: p4r.TableEntry) -> list[TableEntry]:
    """The entries a TableEntry filter selects: one when it has a match, else by table, priority and action."""
    if wanted.match:
        try:
            return [device.read_one(table_entry_in(wanted))]
        except TableError as error:
            if error.code == "NOT_FOUND":
                return []
            raise
    action = table_action_in(wanted.action) if wanted.HasField("action") else None
    return [
        entry
        for entry in device.read(wanted.table_id, defaults=wanted.is_default_action)
        if entry.is_default == wanted.is_default_action
        and wanted.priority in (0, entry.priority)
        and (action is None or action == entry.action)
    ]


def _table_entries(
    chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.TableEntry
) -> Iterator[p4r.Entity]:
    const = {table.preamble.id for table in p4info.tables if table.is_const_table}
    for entry in _entries(device, wanted):
        sent = table_entry_out(entry, with_counter=wanted.HasField("counter_data"))
        sent.is_const = entry.table_id in const and not entry.is_default
        if wanted.HasField("meter_config") and entry.table_id in device.schema.metered:
            config = device.read_direct_meter(entry)
            if config is not None:
                sent.meter_config.CopyFrom(meter_out(config))
        if chassis.metadata:
            sent.metadata = chassis.metadata.get((entry.table_id, entry.match, entry.priority), b"")
        yield p4r.Entity(table_entry=sent)


def _members(
    chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.ActionProfileMember
) -> Iterator[p4r.Entity]:
    for member in device.read_members(wanted.action_profile_id, wanted.member_id):
        yield p4r.Entity(action_profile_member=member_out(member))


def _groups(
    chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.ActionProfileGroup
) -> Iterator[p4r.Entity]:
    for group in device.read_groups(wanted.action_profile_id, wanted.group_id):
        yield p4r.Entity(action_profile_group=group_out(group))


def _counters(chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.CounterEntry) -> Iterator[p4r.Entity]:
    ids = [wanted.counter_id] if wanted.counter_id else [counter.preamble.id for counter in p4info.counters]
    index = wanted.index.index if wanted.HasField("index") else None
    for counter_id in ids:
        for at, data in device.read_counter(counter_id, index):
            entry = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=at), data=counter_out(data))
            yield p4r.Entity(counter_entry=entry)


def _direct_counters(
    chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.DirectCounterEntry
) -> Iterator[p4r.Entity]:
    counted = {counter.direct_table_id for counter in p4info.direct_counters}
    table_id = wanted.table_entry.table_id
    if table_id and table_id not in counted:
        raise RpcError(
            rpc_code.INVALID_ARGUMENT,
            f"table {table_id} has no direct counter (have one: {', '.join(map(str, sorted(counted))) or 'none'})",
        )
    for entry in _entries(device, wanted.table_entry):
        if entry.counter is not None:
            sent = table_entry_out(entry)
            sent.ClearField("action")
            yield p4r.Entity(
                direct_counter_entry=p4r.DirectCounterEntry(table_entry=sent, data=counter_out(entry.counter))
            )


def _registers(chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
    ids = [wanted.register_id] if wanted.register_id else [register.preamble.id for register in p4info.registers]
    index = wanted.index.index if wanted.HasField("index") else None
    for register_id in ids:
        for at, value in device.read_register(register_id, index):
            entry = p4r.RegisterEntry(register_id=register_id, index=p4r.Index(index=at))
            entry.data.bitstring = canonical(value)
            yield p4r.Entity(register_entry=entry)


def _digests(chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.DigestEntry) -> Iterator[p4r.Entity]:
    assert chassis.digests is not None  # there is a pipeline
    for entry in chassis.digests.entries(wanted.digest_id):
        yield p4r.Entity(digest_entry=entry)


def _replication(chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: Any) -> Iterator[p4r.Entity]:
    return read_replication(device, wanted)


def _value_sets(
    chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.ValueSetEntry
) -> Iterator[p4r.Entity]:
    for number in [wanted.value_set_id] if wanted.value_set_id else list(device.schema.value_sets):
        entry = p4r.ValueSetEntry(value_set_id=number)
        for member in device.read_value_set(number).members:
            entry.members.add().match.extend(match_out(field) for field in member)
        yield p4r.Entity(value_set_entry=entry)


def _meters(chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.MeterEntry) -> Iterator[p4r.Entity]:
    index = wanted.index.index if wanted.HasField("index") else None
    for meter_id in [wanted.meter_id] if wanted.meter_id else list(device.schema.meters):
        for at, config in device.read_meter(meter_id, index):
            entry = p4r.MeterEntry(meter_id=meter_id, index=p4r.Index(index=at))
            if config is not None:
                entry.config.CopyFrom(meter_out(config))
            yield p4r.Entity(meter_entry=entry)


def _direct_meters(
    chassis: Chassis, device: Device, p4info: p4i.P4Info, wanted: p4r.DirectMeterEntry
) -> Iterator[p4r.Entity]:
    metered, table_id = device.schema.metered, wanted.table_entry.table_id
    if table_id and table_id not in metered:
        has = ", ".join(map(str, sorted(metered))) or "none"
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"table {table_id} has no direct meter (have one: {has})")
    for entry in _entries(device, wanted.table_entry):
        if entry.table_id in metered:
            sent = table_entry_out(entry)
            sent.ClearField("action")
            found = p4r.DirectMeterEntry(table_entry=sent)
            config = device.read_direct_meter(entry)
            if config is not None:
                found.config.CopyFrom(meter_out(config))
            yield p4r.Entity(direct_meter_entry=found)


_HANDLERS: dict[str, Callable[[Chassis, Device, p4i.P4Info, Any], Iterator[p4r.Entity]]] = {
    "table_entry": _table_entries,
    "action_profile_member": _members,
    "action_profile_group": _groups,
    "counter_entry": _counters,
    "direct_counter_entry": _direct_counters,
    "register_entry": _registers,
    "packet_replication_engine_entry": _replication,
    "digest_entry": _digests,
    "value_set_entry": _value_sets,
    "meter_entry": _meters,
    "direct_meter_entry": _direct_meters,
}
