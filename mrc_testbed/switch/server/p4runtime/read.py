"""Read: from P4Runtime's entities to the state of `switch.device.device` and back.

Wildcards are those of P4Runtime §11.

A zero id, an unset index, an empty match select everything; what does not exist is simply not in the answer, but for
direct counters and meters of an entry that is named. Ids that the program does not have are errors. A request of
several entities answers those that it can, and then fails with an error per entity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, TableEntry, TableError
from mrc_testbed.switch.device.p4data import register_out
from mrc_testbed.switch.server.p4runtime.errors import RpcError, code_of
from mrc_testbed.switch.server.p4runtime.replication import read_replication
from mrc_testbed.switch.server.p4runtime.roles import RoleScope
from mrc_testbed.switch.server.p4runtime.snapshot import Contents
from mrc_testbed.switch.server.p4runtime.translate import (
    counter_out,
    group_out,
    match_out,
    member_out,
    meter_out,
    table_action_in,
    table_entry_out,
    table_key_in,
)

CHUNK = 512
"""Entities per ReadResponse: some 50 KiB."""


def read_entities(
    contents: Contents, request: p4r.ReadRequest, scope: RoleScope
) -> tuple[list[p4r.Entity], list[RpcError | None]]:
    """Return the entities that a ReadRequest selects within the role's scope, and the errors.

    There is one error or None per entity of the request.
    """
    out: list[p4r.Entity] = []
    errors: list[RpcError | None] = []
    for entity in request.entities:
        try:
            entities = _read(contents, entity)
        except RpcError as error:
            errors.append(error)
        except TableError as error:
            errors.append(RpcError(code_of(error.code), error.message))
        else:
            out.extend(entities if scope.ids is None else (match for match in entities if scope.has(match)))
            errors.append(None)
    return out, errors


def _read(contents: Contents, entity: p4r.Entity) -> list[p4r.Entity]:
    kind = entity.WhichOneof("entity")
    if kind is None:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "a read of an entity of no kind")
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise RpcError(rpc_code.UNIMPLEMENTED, f"{kind} cannot be read here (can: {', '.join(sorted(_HANDLERS))})")
    return list(handler(contents, contents.pipeline.program.p4info, getattr(entity, kind)))


def _entries(device: P4Device, entry_filter: p4r.TableEntry) -> list[TableEntry]:
    """Return the entries that a TableEntry filter selects.

    With a match this is one entry; else table, priority, action and metadata select.
    """
    if entry_filter.match:
        try:
            entries = [device.read_one(table_key_in(entry_filter))]
        except TableError as error:
            if error.code == "NOT_FOUND":
                return []
            raise
    else:
        entries = [
            entry
            for entry in device.read(entry_filter.table_id, defaults=entry_filter.is_default_action)
            if entry.is_default == entry_filter.is_default_action and entry_filter.priority in (0, entry.priority)
        ]
    if entry_filter.HasField("action"):
        entries = [entry for entry in entries if _same_action(entry, table_action_in(entry_filter.action))]
    if entry_filter.metadata:
        entries = [entry for entry in entries if entry.metadata == entry_filter.metadata]
    if entry_filter.controller_metadata:
        entries = [entry for entry in entries if entry.cookie == entry_filter.controller_metadata]
    return entries


def _same_action(entry: TableEntry, entry_filter: Any) -> bool:
    """Actions are selected by their id alone; members and groups by theirs."""
    if isinstance(entry_filter, ActionCall) and isinstance(entry.action, ActionCall):
        return entry_filter.action_id in (0, entry.action.action_id)
    return entry_filter is None or entry_filter == entry.action


def _entries_there(device: P4Device, entry_filter: p4r.TableEntry) -> list[TableEntry]:
    """Return entries for direct resources: a named entry must exist. Raises RpcError NOT_FOUND."""
    entries = _entries(device, entry_filter)
    if entry_filter.match and not entries:
        raise RpcError(rpc_code.NOT_FOUND, f"table {entry_filter.table_id}: no such entry")
    return entries


def _table_entries(contents: Contents, _info: p4i.P4Info, entry_filter: p4r.TableEntry) -> Iterator[p4r.Entity]:
    device, with_idle_time = contents.device, entry_filter.HasField("time_since_last_hit")
    if with_idle_time and (entry_filter.table_id or entry_filter.is_default_action):
        tables = device.schema.tables
        if entry_filter.is_default_action or not (
            entry_filter.table_id in tables and tables[entry_filter.table_id].idle_timeout
        ):
            table_id = entry_filter.table_id
            text = f"time_since_last_hit: table {table_id} has no idle timeouts (support_timeout), or this entry"
            raise RpcError(rpc_code.INVALID_ARGUMENT, text)
    for entry in _entries(device, entry_filter):
        sent = table_entry_out(entry, with_counter=entry_filter.HasField("counter_data"))
        if with_idle_time and entry.idle_ns is not None:
            sent.time_since_last_hit.elapsed_ns = entry.idle_ns
        if entry_filter.HasField("meter_config") and entry.table_id in device.schema.tables_with_meter:
            config = device.read_direct_meter(entry)
            if config is not None:
                sent.meter_config.CopyFrom(meter_out(config))
        yield p4r.Entity(table_entry=sent)


def _members(contents: Contents, _info: p4i.P4Info, entry_filter: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
    for member in contents.device.read_members(entry_filter.action_profile_id, entry_filter.member_id):
        yield p4r.Entity(action_profile_member=member_out(member))


def _groups(contents: Contents, _info: p4i.P4Info, entry_filter: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
    for group in contents.device.read_groups(entry_filter.action_profile_id, entry_filter.group_id):
        yield p4r.Entity(action_profile_group=group_out(group))


def _cells(entry: Any, number: int, objects: Any) -> tuple[list[int], int | None]:
    """Return (ids, index) that a counter, meter or register entry selects.

    Raises RpcError for an index without an id.
    """
    index = entry.index.index if entry.HasField("index") else None
    if not number and index is not None:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "an index without an id: leave both out to read everything")
    return [number] if number else [object_.preamble.id for object_ in objects], index


def _counters(contents: Contents, info: p4i.P4Info, entry_filter: p4r.CounterEntry) -> Iterator[p4r.Entity]:
    ids, index = _cells(entry_filter, entry_filter.counter_id, info.counters)
    for counter_id in ids:
        for cell_index, data in contents.device.read_counter(counter_id, index):
            entry = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=cell_index), data=counter_out(data))
            yield p4r.Entity(counter_entry=entry)


def _check_direct(resource: str, tables: set[int], table_id: int) -> None:
    if table_id and table_id not in tables:
        has = ", ".join(map(str, sorted(tables))) or "none"
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"table {table_id} has no direct {resource} (have one: {has})")


def _direct_counters(
    contents: Contents, _info: p4i.P4Info, entry_filter: p4r.DirectCounterEntry
) -> Iterator[p4r.Entity]:
    tables_with_counter = {table.id for table in contents.device.schema.tables.values() if table.direct_counter}
    _check_direct("counter", tables_with_counter, entry_filter.table_entry.table_id)
    for entry in _entries_there(contents.device, entry_filter.table_entry):
        if entry.counter is not None:
            sent = table_entry_out(entry)
            sent.ClearField("action")
            direct_entry = p4r.DirectCounterEntry(table_entry=sent, data=counter_out(entry.counter))
            yield p4r.Entity(direct_counter_entry=direct_entry)


def _registers(contents: Contents, info: p4i.P4Info, entry_filter: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
    ids, index = _cells(entry_filter, entry_filter.register_id, info.registers)
    for register_id in ids:
        for cell_index, value in contents.device.read_register(register_id, index):
            entry = p4r.RegisterEntry(register_id=register_id, index=p4r.Index(index=cell_index))
            entry.data.CopyFrom(register_out(info, contents.device.schema.type_bits, register_id, value))
            yield p4r.Entity(register_entry=entry)


def _digests(contents: Contents, _info: p4i.P4Info, entry_filter: p4r.DigestEntry) -> Iterator[p4r.Entity]:
    for entry in contents.digests.entries(entry_filter.digest_id):
        yield p4r.Entity(digest_entry=entry)


def _replication(contents: Contents, _info: p4i.P4Info, entry_filter: Any) -> Iterator[p4r.Entity]:
    return read_replication(contents.device, entry_filter)


def _value_sets(contents: Contents, _info: p4i.P4Info, entry_filter: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
    for number in [entry_filter.value_set_id] if entry_filter.value_set_id else list(contents.device.schema.value_sets):
        entry = p4r.ValueSetEntry(value_set_id=number)
        for member in contents.device.read_value_set(number).members:
            entry.members.add().match.extend(match_out(field) for field in member)
        yield p4r.Entity(value_set_entry=entry)


def _no_counters(entry_filter: Any) -> None:
    if entry_filter.HasField("counter_data"):
        raise RpcError(rpc_code.UNIMPLEMENTED, "counter_data: meters do not count here")


def _meters(contents: Contents, info: p4i.P4Info, entry_filter: p4r.MeterEntry) -> Iterator[p4r.Entity]:
    _no_counters(entry_filter)
    ids, index = _cells(entry_filter, entry_filter.meter_id, info.meters)
    for meter_id in ids:
        for cell_index, config in contents.device.read_meter(meter_id, index):
            entry = p4r.MeterEntry(meter_id=meter_id, index=p4r.Index(index=cell_index))
            if config is not None:
                entry.config.CopyFrom(meter_out(config))
            yield p4r.Entity(meter_entry=entry)


def _direct_meters(contents: Contents, _info: p4i.P4Info, entry_filter: p4r.DirectMeterEntry) -> Iterator[p4r.Entity]:
    _no_counters(entry_filter)
    device = contents.device
    tables_with_meter = device.schema.tables_with_meter
    _check_direct("meter", tables_with_meter, entry_filter.table_entry.table_id)
    for entry in _entries_there(device, entry_filter.table_entry):
        if entry.table_id in tables_with_meter:
            sent = table_entry_out(entry)
            sent.ClearField("action")
            direct_entry = p4r.DirectMeterEntry(table_entry=sent)
            config = device.read_direct_meter(entry)
            if config is not None:
                direct_entry.config.CopyFrom(meter_out(config))
            yield p4r.Entity(direct_meter_entry=direct_entry)


_HANDLERS: dict[str, Callable[[Contents, p4i.P4Info, Any], Iterator[p4r.Entity]]] = {
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
