"""RECONCILE_AND_COMMIT: load another program and keep the state of objects that both have.

Objects are the same by their P4Info ids, which follow from their names. All entries that clients wrote must fit the
new program (tables, profiles, value sets, digests, default actions, multicast, clone sessions, configurations of
meters), or nothing changes and the refusal names the first that does not. Initial entries that a client did not touch,
and default actions, become those of the new program. Counts and registers go on where both programs have them in the
same size; where the new one lacks them they end with the object they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableEntry, TableError
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from mrc_testbed.switch.server.p4runtime.read import read_entities
from mrc_testbed.switch.server.p4runtime.roles import FULL_SCOPE
from mrc_testbed.switch.server.p4runtime.snapshot import Contents
from mrc_testbed.switch.server.p4runtime.write import prepare

_KINDS = (
    "action_profile_member",
    "action_profile_group",
    "value_set_entry",
    "packet_replication_engine_entry",
    "digest_entry",
)
"""Kinds of entities that are copied unchanged, each after those it refers to."""


def carry_over(source: Contents, target: Contents) -> None:
    """Write the contents of `source` to `target`, into which only its program has been loaded.

    Raises RpcError INVALID_ARGUMENT.
    """
    for kind in _KINDS:
        request = p4r.ReadRequest(entities=[p4r.Entity()])
        getattr(request.entities[0], kind).SetInParent()
        for entity in read_entities(source, request, FULL_SCOPE)[0]:
            if kind == "value_set_entry" and not entity.value_set_entry.members:
                continue
            update = p4r.Update.MODIFY if kind == "value_set_entry" else p4r.Update.INSERT
            _do(f"{kind.replace('_', ' ')}: ", prepare(target, p4r.Update(type=update, entity=entity), FULL_SCOPE))
    _entries(source.device, target.device)
    _defaults(source, target.device)
    _meters(source.device, target.device)
    _cells(source.device, target.device)


def _do(subject: str, step: Callable[..., object], *arguments: object) -> None:
    try:
        step(*arguments)
    except (RpcError, TableError) as error:
        text = f"RECONCILE_AND_COMMIT: {subject}{error} (VERIFY_AND_COMMIT begins without the old entries)"
        raise RpcError(rpc_code.INVALID_ARGUMENT, text) from None


def _key(entry: TableEntry) -> tuple[object, ...]:
    return entry.table_id, entry.match, entry.priority


def _entries(source: P4Device, target: P4Device) -> None:
    """Carry the entries of the old tables over to the new program.

    An initial entry of the new program that the old one had too gives way to what the old tables hold.
    """
    names = {table.id: table.name for table in source.schema.tables.values()}
    initial_device = P4Device(source.device_id, source.name)
    try:
        assert source.program is not None
        initial_device.load(source.program)
        initial_entries = {_key(entry): entry for entry in initial_device.read()}
    finally:
        initial_device.close()
    target_entries = {_key(entry): entry for entry in target.read()}
    held_keys = {_key(entry) for entry in source.read()}
    # Initial entries that a client deleted from the old tables are deleted from the new ones too.
    for key in initial_entries:
        if key in target_entries and key not in held_keys and not target_entries[key].is_const:
            target.delete(target_entries[key])
    for entry in source.read():
        key = _key(entry)
        # Untouched initial entries become those of the new program: only their counts are carried over.
        if entry.is_const or (
            key in initial_entries and initial_entries[key] == replace(entry, counter=initial_entries[key].counter)
        ):
            _count(target, target_entries.get(key), entry)
            continue
        step = target.modify if key in target_entries else target.insert
        _do(f"table {names[entry.table_id]}: ", step, entry)
        if entry.table_id in source.schema.tables_with_meter:
            config = source.read_direct_meter(entry)
            if config is not None:
                _do(f"table {names[entry.table_id]}: ", target.write_direct_meter, entry, config)


def _count(target: P4Device, target_entry: TableEntry | None, entry: TableEntry) -> None:
    """An initial entry of both programs goes on counting."""
    if target_entry is not None and target_entry.counter is not None and entry.counter is not None:
        target.modify(replace(target_entry, action=None, counter=entry.counter))


def _defaults(source: Contents, target: P4Device) -> None:
    """Default actions that a client has set."""
    initial_device = P4Device(source.device.device_id, source.device.name)
    try:
        initial_device.load(source.pipeline.program)
        initial_entries = {entry.table_id: entry for entry in initial_device.read(defaults=True) if entry.is_default}
    finally:
        initial_device.close()
    for entry in source.device.read(defaults=True):
        if not entry.is_default:
            continue
        was = initial_entries[entry.table_id]
        if entry.action != was.action or entry.metadata or entry.cookie:
            _do("default entry: ", target.modify, entry)
        elif entry.counter is not None:
            target_table = target.schema.tables.get(entry.table_id)
            if target_table is not None and target_table.direct_counter:
                target.modify(TableEntry(entry.table_id, is_default=True, counter=entry.counter))


def _meters(source: P4Device, target: P4Device) -> None:
    for meter in source.schema.meters.values():
        for index, config in source.read_meter(meter.id):
            if config is not None:
                _do(f"meter {meter.name}: ", target.write_meter, meter.id, index, config)


def _cells(source: P4Device, target: P4Device) -> None:
    for counter in source.schema.counters.values():
        target_array = target.schema.counters.get(counter.id)
        if target_array is not None and (target_array.size, target_array.kind) == (counter.size, counter.kind):
            for index, data in source.read_counter(counter.id):
                if data.packets or data.bytes:
                    target.write_counter(counter.id, index, data)
    for register in source.schema.registers.values():
        target_array = target.schema.registers.get(register.id)
        if target_array is not None and (target_array.size, target_array.kind) == (register.size, register.kind):
            for index, value in source.read_register(register.id):
                if value:
                    target.write_register(register.id, index, value)
