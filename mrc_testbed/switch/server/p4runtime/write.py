"""Write: batches of P4Runtime updates to operations of `mrc_testbed.switch.device.device`.

Each update is done in two steps: a handler checks it and gives what carries it out. A batch that is to be done whole or
not at all is checked first, all of it, and then carried out in a transaction of the device; for DATAPLANE_ATOMIC while
packets wait, for as short as that makes it. What failed then says why, all other updates say ABORTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.device.arrays import check_meter
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import (
    ActionCall,
    ActionSet,
    MemberRef,
    TableEntry,
    TableError,
    ValueSetMembers,
)
from mrc_testbed.switch.device.p4data import register_in
from mrc_testbed.switch.server.chassis import Chassis
from mrc_testbed.switch.server.p4runtime.errors import RpcError, code_of
from mrc_testbed.switch.server.p4runtime.replication import replication_in
from mrc_testbed.switch.server.p4runtime.roles import RoleScope, entity_id
from mrc_testbed.switch.server.p4runtime.snapshot import Contents
from mrc_testbed.switch.server.p4runtime.translate import (
    ActionOf,
    counter_in,
    group_in,
    match_in,
    member_in,
    meter_in,
    table_entry_in,
    table_key_in,
)

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
TURN = 256
"""Updates carried out before the other clients of the daemon get a turn."""

Do = Callable[[], object]
Errors = list[RpcError | None]


async def apply_updates(chassis: Chassis, contents: Contents, request: p4r.WriteRequest, scope: RoleScope) -> Errors:
    """Carries out a batch; the error of each update or None.

    Raises RpcError INVALID_ARGUMENT for an unknown atomicity, UNAVAILABLE when the device is switched off meanwhile.
    Call with chassis.writing held.
    """
    if request.atomicity == p4r.WriteRequest.CONTINUE_ON_ERROR:
        return await _one_by_one(chassis, contents, request.updates, scope)
    if request.atomicity not in (p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC):
        known_names = ", ".join(p4r.WriteRequest.Atomicity.keys())
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"atomicity {request.atomicity} (has: {known_names})")
    return _all_or_nothing(contents, request.updates, scope, request.atomicity == p4r.WriteRequest.DATAPLANE_ATOMIC)


async def _one_by_one(chassis: Chassis, contents: Contents, updates: Any, scope: RoleScope) -> Errors:
    errors: Errors = []
    device = chassis.running()
    for count, update in enumerate(updates, 1):
        try:
            prepare(contents, update, scope)()
        except RpcError as error:
            errors.append(error)
        except TableError as error:
            errors.append(_rpc_error(error))
        else:
            errors.append(None)
        if count % TURN == 0:
            await asyncio.sleep(0)
            if chassis.running() is not device:
                raise RpcError(rpc_code.UNAVAILABLE, f"{chassis.name} was switched off and on during the write")
    return errors


def _all_or_nothing(contents: Contents, updates: Any, scope: RoleScope, atomic: bool) -> Errors:
    errors: Errors = [None] * len(updates)
    steps: list[Do] = []
    for index, update in enumerate(updates):
        try:
            steps.append(prepare(contents, update, scope))
        except RpcError as error:
            errors[index] = error
        except TableError as error:
            errors[index] = _rpc_error(error)
    index = 0
    if not any(errors):
        try:
            with contents.device.packets_paused() if atomic else nullcontext(), contents.device.transaction():
                for index in range(len(steps)):
                    steps[index]()
        except RpcError as error:
            errors[index] = error
        except TableError as error:
            errors[index] = _rpc_error(error)
    first_failed = next((number for number, error in enumerate(errors) if error is not None), None)
    if first_failed is None:
        return errors
    abort_error = RpcError(rpc_code.ABORTED, f"not done, or taken back, because update {first_failed} failed")
    return [error or abort_error for error in errors]


def _rpc_error(error: TableError) -> RpcError:
    return RpcError(code_of(error.code), error.message)


def prepare(contents: Contents, update: p4r.Update, scope: RoleScope) -> Do:
    """Checks an update and gives what carries it out. Both raise RpcError and TableError."""
    entity = update.entity
    kind = entity.WhichOneof("entity")
    if kind is None:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "an update without an entity")
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise RpcError(rpc_code.UNIMPLEMENTED, f"{kind} cannot be written here (can: {', '.join(sorted(_HANDLERS))})")
    if update.type not in (INSERT, MODIFY, DELETE):
        raise RpcError(rpc_code.INVALID_ARGUMENT, "an update without a type (want INSERT, MODIFY or DELETE)")
    if scope.ids is not None and not scope.has(entity):
        subject = f"{kind} of {entity_id(entity):#x}" if entity_id(entity) else kind
        raise RpcError(rpc_code.PERMISSION_DENIED, f"{subject}: not among the objects of this role")
    return handler(contents, update.type, getattr(entity, kind))


_OPERATIONS = {INSERT: 0, MODIFY: 1, DELETE: 2}  # as mrc_testbed.switch.device.native numbers them


def _table_entry(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.TableEntry) -> Do:
    device = contents.device
    if kind == DELETE:
        return device.prepare(2, table_key_in(sent))
    if sent.is_const:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "is_const is for reading: only the program has const entries")
    if sent.HasField("time_since_last_hit"):
        raise RpcError(rpc_code.INVALID_ARGUMENT, "time_since_last_hit is for reading")
    entry = table_entry_in(sent)
    step = device.prepare(_OPERATIONS[kind], entry)
    table = device.schema.tables[entry.table_id]
    # What the counter of a default entry has is no change of the entry.
    if entry.is_default and table.profile_id and not (entry.action is None and entry.counter is not None):
        text = f"{table.name}: the default entry of a table with an action profile is constant (P4Runtime §9.1.2)"
        raise RpcError(rpc_code.PERMISSION_DENIED, text)
    with_meter = entry.table_id in device.schema.tables_with_meter
    if not with_meter and sent.HasField("meter_config"):
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"table {entry.table_id} has no direct meter")
    if not with_meter or (kind == INSERT and not sent.HasField("meter_config")):
        return step
    config = meter_in(sent.meter_config) if sent.HasField("meter_config") else None  # P4Runtime §9.1: none ends it
    check_meter(config, f"table {entry.table_id}")
    return partial(_with_meter, device, step, entry, config)


def _with_meter(device: P4Device, step: Do, entry: TableEntry, config: Any) -> None:
    """Write entry and meter at once, for packets.

    Raises RpcError where the action does not read the meter (P4Runtime §9.1.6).
    """
    if config is not None:
        table = device.schema.tables[entry.table_id]
        calls = _calls(device, table.profile_id, entry.action or device.read_one(entry).action)
        if calls and not any(device.schema.actions[call.action_id].metered for call in calls):
            names = ", ".join(device.schema.actions[call.action_id].name for call in calls)
            text = f"{table.name}: {names} does not read the direct meter: leave meter_config out"
            raise RpcError(rpc_code.INVALID_ARGUMENT, text)
    with device.packets_paused():
        step()
        device.write_direct_meter(entry, config)


def _calls(device: P4Device, profile_id: int, action: ActionOf) -> list[ActionCall]:
    """Actions that an entry runs, as far as it fixes them: the members of a group change later."""
    if isinstance(action, ActionSet):
        return [member.action for member in action.members]
    if isinstance(action, MemberRef):
        members = device.read_members(profile_id, action.member_id)
        return [member.action for member in members if member.action is not None]
    return [action] if isinstance(action, ActionCall) else []


def _member(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.ActionProfileMember) -> Do:
    device = contents.device
    operations = {INSERT: device.insert_member, MODIFY: device.modify_member, DELETE: device.delete_member}
    return partial(operations[kind], member_in(sent))


def _group(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.ActionProfileGroup) -> Do:
    device = contents.device
    operations = {INSERT: device.insert_group, MODIFY: device.modify_group, DELETE: device.delete_group}
    if kind == DELETE:
        sent = p4r.ActionProfileGroup(action_profile_id=sent.action_profile_id, group_id=sent.group_id)
    return partial(operations[kind], group_in(sent))


def _only_modify(kind: p4r.Update.Type.ValueType, subject: str) -> None:
    if kind != MODIFY:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"{subject} are always there: only MODIFY them")


def _index(sent: Any) -> int | None:
    """None: all cells."""
    return sent.index.index if sent.HasField("index") else None


def _counter(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.CounterEntry) -> Do:
    _only_modify(kind, "counter cells")
    if not sent.HasField("data"):
        return partial(contents.device.read_counter, sent.counter_id, _index(sent))  # checks, and changes nothing
    return partial(contents.device.write_counter, sent.counter_id, _index(sent), counter_in(sent.data))


def _direct_counter(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.DirectCounterEntry) -> Do:
    _only_modify(kind, "direct counters")
    key, device = table_key_in(sent.table_entry), contents.device
    data = counter_in(sent.data) if sent.HasField("data") else None

    def write() -> None:
        existing = device.read_one(key)
        if existing.counter is None:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"table {existing.table_id} has no direct counter")
        if data is not None:
            device.modify(replace(existing, action=None, counter=data))

    return write


def _register(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.RegisterEntry) -> Do:
    _only_modify(kind, "register cells")
    info, type_bits = contents.pipeline.program.p4info, contents.device.schema.type_bits
    value = register_in(info, type_bits, sent.register_id, sent.data)
    return partial(contents.device.write_register, sent.register_id, _index(sent), value)


def _digest(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.DigestEntry) -> Do:
    digests, device = contents.digests, contents.device
    operations = {INSERT: digests.insert, MODIFY: digests.modify, DELETE: digests.delete}

    def write() -> None:
        saved_state = digests.saved_state(sent.digest_id)
        operations[kind](sent)
        device.on_undo(lambda: digests.restore(sent.digest_id, saved_state))

    return write


def _replication(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.PacketReplicationEngineEntry) -> Do:
    device = contents.device
    operations = {
        INSERT: device.insert_replication,
        MODIFY: device.modify_replication,
        DELETE: device.delete_replication,
    }
    return partial(operations[kind], replication_in(sent, key_only=kind == DELETE))


def _value_set(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.ValueSetEntry) -> Do:
    _only_modify(kind, "value sets")
    members = tuple(tuple(match_in(field) for field in member.match) for member in sent.members)
    return partial(contents.device.write_value_set, ValueSetMembers(sent.value_set_id, members))


def _no_counters(sent: Any) -> None:
    if sent.HasField("counter_data"):
        raise RpcError(rpc_code.UNIMPLEMENTED, "counter_data: meters do not count here")


def _meter(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.MeterEntry) -> Do:
    _only_modify(kind, "meter cells")
    _no_counters(sent)
    config = meter_in(sent.config) if sent.HasField("config") else None
    return partial(contents.device.write_meter, sent.meter_id, _index(sent), config)


def _direct_meter(contents: Contents, kind: p4r.Update.Type.ValueType, sent: p4r.DirectMeterEntry) -> Do:
    _only_modify(kind, "direct meters")
    _no_counters(sent)
    config = meter_in(sent.config) if sent.HasField("config") else None
    return partial(contents.device.write_direct_meter, table_key_in(sent.table_entry), config)


_HANDLERS: dict[str, Callable[[Contents, p4r.Update.Type.ValueType, Any], Do]] = {
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
