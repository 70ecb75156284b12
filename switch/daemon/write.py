"""Write: one update at a time, from P4Runtime's entities to the operations of `switch.device`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from finsy.proto import p4r, rpc_code

from switch.daemon.chassis import Chassis
from switch.daemon.errors import RpcError, code_of
from switch.daemon.replication import replication_in
from switch.daemon.translate import counter_in, group_in, integer, match_in, member_in, meter_in, table_entry_in
from switch.device import Device
from switch.entities import TableEntry, TableError, ValueSet

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
TURN = 256
"""Updates carried out before the other clients of the daemon get a turn."""


async def apply_updates(chassis: Chassis, device: Device, updates: Any) -> list[RpcError | None]:
    """Carries out a batch in order, going on after errors; the error of each update or None.

    Raises RpcError UNAVAILABLE when the device is switched off meanwhile. Call with chassis.writing held.
    """
    errors: list[RpcError | None] = []
    for count, update in enumerate(updates, 1):
        try:
            _apply(chassis, device, update)
        except RpcError as error:
            errors.append(error)
        except TableError as error:
            errors.append(RpcError(code_of(error.code), error.message))
        else:
            errors.append(None)
        if count % TURN == 0:
            await asyncio.sleep(0)
            if chassis.running() is not device:
                raise RpcError(rpc_code.UNAVAILABLE, f"{chassis.name} was switched off and on during the write")
    return errors


def _apply(chassis: Chassis, device: Device, update: p4r.Update) -> None:
    kind = update.entity.WhichOneof("entity")
    if kind is None:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "an update without an entity")
    if update.type not in (INSERT, MODIFY, DELETE):
        raise RpcError(rpc_code.INVALID_ARGUMENT, "an update without a type (want INSERT, MODIFY or DELETE)")
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise RpcError(rpc_code.UNIMPLEMENTED, f"{kind} cannot be written here (can: {', '.join(sorted(_HANDLERS))})")
    handler(chassis, device, update.type, getattr(update.entity, kind))


def _table_entry(chassis: Chassis, device: Device, kind: int, sent: p4r.TableEntry) -> None:
    entry = table_entry_in(sent)
    if entry.is_default and kind != MODIFY:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "the default entry is always there: only MODIFY it")
    if kind == DELETE:
        key = _key(device.read_one(entry)) if chassis.metadata else None
        device.delete(entry)
        chassis.metadata.pop(key, None)  # type: ignore[arg-type]
        return
    if sent.HasField("meter_config") and entry.table_id not in device.schema.metered:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"table {entry.table_id} has no direct meter")
    (device.insert if kind == INSERT else device.modify)(entry)
    if sent.HasField("meter_config"):
        device.write_direct_meter(entry, meter_in(sent.meter_config))
    elif kind == MODIFY and entry.table_id in device.schema.metered:
        device.write_direct_meter(entry, None)  # §9.1: a modify without it takes it away
    if sent.metadata or chassis.metadata:
        key = _key(device.read_one(entry))
        if sent.metadata:
            chassis.metadata[key] = sent.metadata
        else:
            chassis.metadata.pop(key, None)


def _key(entry: TableEntry) -> tuple[int, Any, int]:
    return entry.table_id, entry.match, entry.priority


def _member(chassis: Chassis, device: Device, kind: int, sent: p4r.ActionProfileMember) -> None:
    operations = {INSERT: device.insert_member, MODIFY: device.modify_member, DELETE: device.delete_member}
    operations[kind](member_in(sent))


def _group(chassis: Chassis, device: Device, kind: int, sent: p4r.ActionProfileGroup) -> None:
    operations = {INSERT: device.insert_group, MODIFY: device.modify_group, DELETE: device.delete_group}
    operations[kind](group_in(sent))


def _only_modify(kind: int, what: str) -> None:
    if kind != MODIFY:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"{what} are always there: only MODIFY them")


def _counter(chassis: Chassis, device: Device, kind: int, sent: p4r.CounterEntry) -> None:
    _only_modify(kind, "counter cells")
    index = sent.index.index if sent.HasField("index") else None
    device.write_counter(sent.counter_id, index, counter_in(sent.data))


def _direct_counter(chassis: Chassis, device: Device, kind: int, sent: p4r.DirectCounterEntry) -> None:
    _only_modify(kind, "direct counters")
    existing = device.read_one(table_entry_in(sent.table_entry))
    if existing.counter is None:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"table {existing.table_id} has no direct counter")
    device.modify(replace(existing, counter=counter_in(sent.data)))


def _register(chassis: Chassis, device: Device, kind: int, sent: p4r.RegisterEntry) -> None:
    _only_modify(kind, "register cells")
    if sent.data.WhichOneof("data") != "bitstring":
        raise RpcError(rpc_code.UNIMPLEMENTED, f"register {sent.register_id}: only bit<W> cells (data.bitstring)")
    value = integer(sent.data.bitstring, f"register {sent.register_id}")
    device.write_register(sent.register_id, sent.index.index if sent.HasField("index") else None, value)


def _digest(chassis: Chassis, device: Device, kind: int, sent: p4r.DigestEntry) -> None:
    assert chassis.digests is not None  # there is a pipeline
    operations = {INSERT: chassis.digests.insert, MODIFY: chassis.digests.modify, DELETE: chassis.digests.delete}
    operations[kind](sent)


def _replication(chassis: Chassis, device: Device, kind: int, sent: p4r.PacketReplicationEngineEntry) -> None:
    operations = {
        INSERT: device.insert_replication,
        MODIFY: device.modify_replication,
        DELETE: device.delete_replication,
    }
    operations[kind](replication_in(sent))


def _value_set(chassis: Chassis, device: Device, kind: int, sent: p4r.ValueSetEntry) -> None:
    _only_modify(kind, "value sets")
    members = tuple(tuple(match_in(field) for field in one.match) for one in sent.members)
    device.write_value_set(ValueSet(sent.value_set_id, members))


def _meter(chassis: Chassis, device: Device, kind: int, sent: p4r.MeterEntry) -> None:
    _only_modify(kind, "meter cells")
    index = sent.index.index if sent.HasField("index") else None
    device.write_meter(sent.meter_id, index, meter_in(sent.config) if sent.HasField("config") else None)


def _direct_meter(chassis: Chassis, device: Device, kind: int, sent: p4r.DirectMeterEntry) -> None:
    _only_modify(kind, "direct meters")
    config = meter_in(sent.config) if sent.HasField("config") else None
    device.write_direct_meter(table_entry_in(sent.table_entry), config)


_HANDLERS: dict[str, Callable[[Chassis, Device, int, Any], None]] = {
    "table_entry": _table_entry,
    "action_profile_member": _member,
    "action_profile_group": _group,
    "counter_entry": _counter,
    "direct_counter_entry": _direct_counter,
    "register_entry": _register,
    "digest_entry": _digest,
    "packet_replication_engine_entry": _replication,
    "value_set_entry": _value_set,
    "meter_entry": _meter,
    "direct_meter_entry": _direct_meter,
}
