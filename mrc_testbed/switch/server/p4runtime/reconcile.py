"""RECONCILE_AND_COMMIT: another program, with all that the old one held, as far as the new one has the same objects.

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
from mrc_testbed.switch.server.p4runtime.roles import EVERYTHING
from mrc_testbed.switch.server.p4runtime.snapshot import Contents
from mrc_testbed.switch.server.p4runtime.write import prepare

_KINDS = (
    "action_profile_member",
    "action_profile_group",
    "value_set_entry",
    "packet_replication_engine_entry",
    "digest_entry",
)
"""Entities read and written unchanged, in an order in which references are there before they are needed."""


def carry_over(old: Contents, new: Contents) -> None:
    """Writes what `old` holds to `new`, which has been loaded and nothing else. Raises RpcError INVALID_ARGUMENT."""
    for kind in _KINDS:
        request = p4r.ReadRequest(entities=[p4r.Entity()])
        getattr(request.entities[0], kind).SetInParent()
        for entity in read_entities(old, request, EVERYTHING)[0]:
            if kind == "value_set_entry" and not entity.value_set_entry.members:
                continue
            update = p4r.Update.MODIFY if kind == "value_set_entry" else p4r.Update.INSERT
            _do(f"{kind.replace('_', ' ')}: ", prepare(new, p4r.Update(type=update, entity=entity), EVERYTHING))
    _entries(old.device, new.device)
    _defaults(old, new.device)
    _meters(old.device, new.device)
    _cells(old.device, new.device)


def _do(what: str, step: Callable[..., object], *arguments: object) -> None:
    try:
        step(*arguments)
    except (RpcError, TableError) as error:
        text = f"RECONCILE_AND_COMMIT: {what}{error} (VERIFY_AND_COMMIT begins without the old entries)"
        raise RpcError(rpc_code.INVALID_ARGUMENT, text) from None


def _key(entry: TableEntry) -> tuple[object, ...]:
    return entry.table_id, entry.match, entry.priority


def _entries(old: P4Device, new: P4Device) -> None:
    """The new program's initial entries give way to what the old tables hold, where the old program had them too."""
    names = {table.id: table.name for table in old.schema.tables.values()}
    fresh = P4Device(old.device_id, old.name)
    try:
        assert old.program is not None
        fresh.load(old.program)
        before = {_key(entry): entry for entry in fresh.read()}
    finally:
        fresh.close()
    theirs = {_key(entry): entry for entry in new.read()}
    held = {_key(entry) for entry in old.read()}
    for key in before:
        if key in theirs and key not in held and not theirs[key].is_const:
            new.delete(theirs[key])
    for entry in old.read():
        key = _key(entry)
        if entry.is_const or (key in before and before[key] == replace(entry, counter=before[key].counter)):
            _count(new, theirs.get(key), entry)
            continue
        step = new.modify if key in theirs else new.insert
        _do(f"table {names[entry.table_id]}: ", step, entry)
        if entry.table_id in old.schema.metered:
            config = old.read_direct_meter(entry)
            if config is not None:
                _do(f"table {names[entry.table_id]}: ", new.write_direct_meter, entry, config)


def _count(new: P4Device, there: TableEntry | None, entry: TableEntry) -> None:
    """An initial entry of both programs goes on counting."""
    if there is not None and there.counter is not None and entry.counter is not None:
        new.modify(replace(there, action=None, counter=entry.counter))


def _defaults(old: Contents, new: P4Device) -> None:
    """Default actions that a client has set."""
    fresh = P4Device(old.device.device_id, old.device.name)
    try:
        fresh.load(old.pipeline.program)
        before = {entry.table_id: entry for entry in fresh.read(defaults=True) if entry.is_default}
    finally:
        fresh.close()
    for entry in old.device.read(defaults=True):
        if not entry.is_default:
            continue
        was = before[entry.table_id]
        if entry.action != was.action or entry.metadata or entry.cookie:
            _do("default entry: ", new.modify, entry)
        elif entry.counter is not None:
            there = new.schema.tables.get(entry.table_id)
            if there is not None and there.direct_counter:
                new.modify(TableEntry(entry.table_id, is_default=True, counter=entry.counter))


def _meters(old: P4Device, new: P4Device) -> None:
    for meter in old.schema.meters.values():
        for index, config in old.read_meter(meter.id):
            if config is not None:
                _do(f"meter {meter.name}: ", new.write_meter, meter.id, index, config)


def _cells(old: P4Device, new: P4Device) -> None:
    for counter in old.schema.counters.values():
        there = new.schema.counters.get(counter.id)
        if there is not None and (there.size, there.kind) == (counter.size, counter.kind):
            for index, data in old.read_counter(counter.id):
                if data.packets or data.bytes:
                    new.write_counter(counter.id, index, data)
    for register in old.schema.registers.values():
        there = new.schema.registers.get(register.id)
        if there is not None and (there.size, there.kind) == (register.size, register.kind):
            for index, value in old.read_register(register.id):
                if value:
                    new.write_register(register.id, index, value)
