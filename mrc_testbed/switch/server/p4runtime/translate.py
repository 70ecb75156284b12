"""P4Runtime messages <-> mrc_testbed.switch.device.entities, for mrc_testbed.switch.device.device."""

from __future__ import annotations

from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.device.entities import (
    ActionCall,
    ActionSet,
    CounterData,
    FieldMatch,
    Group,
    GroupMember,
    GroupRef,
    Match,
    MemberRef,
    MeterConfig,
    ProfileMember,
    SetMember,
    TableEntry,
)
from mrc_testbed.switch.device.schema import canonical
from mrc_testbed.switch.server.p4runtime.errors import RpcError

ActionOf = ActionCall | MemberRef | GroupRef | ActionSet | None


def integer(value: bytes, subject: str) -> int:
    """Return a byte string as a number.

    Raises RpcError INVALID_ARGUMENT for the empty one, which is not allowed (P4Runtime §8.4).
    """
    if not value:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"{subject}: empty byte string (zero is one zero byte)")
    return int.from_bytes(value, "big")


def action_in(action: p4r.Action) -> ActionCall:
    """An action call."""
    return ActionCall(action.action_id, tuple([(param.param_id, param.value) for param in action.params]))


def action_out(action: ActionCall) -> p4r.Action:
    """P4Runtime's message of an action call."""
    out = p4r.Action(action_id=action.action_id)
    for param_id, value in action.params:
        out.params.add(param_id=param_id, value=value)
    return out


def table_action_in(action: p4r.TableAction) -> ActionOf:
    """Raises RpcError INVALID_ARGUMENT, UNIMPLEMENTED."""
    match action.WhichOneof("type"):
        case "action":
            return action_in(action.action)
        case "action_profile_member_id":
            return MemberRef(action.action_profile_member_id)
        case "action_profile_group_id":
            return GroupRef(action.action_profile_group_id)
        case "action_profile_action_set":
            sent = action.action_profile_action_set
            if sent.action_selection_mode or sent.size_semantics:
                text = (
                    "action_selection_mode, size_semantics (P4Runtime 1.5): the action selector's hold; leave them out"
                )
                raise RpcError(rpc_code.UNIMPLEMENTED, text)
            actions = sent.action_profile_actions
            members = [
                SetMember(action_in(action.action), action.weight, watch_in(action, f"action {number}"))
                for number, action in enumerate(actions, 1)
            ]
            return ActionSet(tuple(members))
    return None


def watch_in(member: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member, subject: str) -> int | None:
    """The port that a member of a group or of a one-shot set depends on. Raises RpcError INVALID_ARGUMENT."""
    kind = member.WhichOneof("watch_kind")
    if kind == "watch_port":
        return integer(member.watch_port, f"watch_port of {subject}") if member.watch_port else None
    if kind == "watch" and member.watch:
        if member.watch < 0:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"watch {member.watch} of {subject}")
        return member.watch
    return None


def table_action_out(action: ActionOf) -> p4r.TableAction | None:
    """P4Runtime's message of what an entry does; None: nothing."""
    match action:
        case ActionCall():
            return p4r.TableAction(action=action_out(action))
        case MemberRef():
            return p4r.TableAction(action_profile_member_id=action.member_id)
        case GroupRef():
            return p4r.TableAction(action_profile_group_id=action.group_id)
        case ActionSet():
            out = p4r.TableAction()
            out.action_profile_action_set.SetInParent()
            for member in action.members:
                sent = out.action_profile_action_set.action_profile_actions.add(weight=member.weight)
                sent.action.CopyFrom(action_out(member.action))
                if member.watch_port is not None:
                    sent.watch_port = canonical(member.watch_port)
            return out
    return None


def match_in(field: p4r.FieldMatch) -> FieldMatch:
    """Raises RpcError INVALID_ARGUMENT for a field without a match."""
    match field.WhichOneof("field_match_type"):
        case "exact":
            return FieldMatch.exact(field.field_id, field.exact.value)
        case "lpm":
            return FieldMatch.lpm(field.field_id, field.lpm.value, field.lpm.prefix_len)
        case "ternary":
            return FieldMatch.ternary(field.field_id, field.ternary.value, field.ternary.mask)
        case "range":
            return FieldMatch.range(field.field_id, field.range.low, field.range.high)
        case "optional":
            return FieldMatch.optional(field.field_id, field.optional.value)
        case "other":
            raise RpcError(rpc_code.UNIMPLEMENTED, f"match field {field.field_id}: match kind `other`")
    raise RpcError(
        rpc_code.INVALID_ARGUMENT,
        f"match field {field.field_id} has no match (leave the field out to match anything)",
    )


def match_out(field: FieldMatch) -> p4r.FieldMatch:
    """P4Runtime's message of a match field."""
    out = p4r.FieldMatch(field_id=field.field_id)
    if field.kind is Match.EXACT:
        out.exact.value = field.value
    elif field.kind is Match.LPM:
        out.lpm.value = field.value
        out.lpm.prefix_len = field.prefix_len or 0
    elif field.kind is Match.TERNARY:
        out.ternary.value = field.value
        out.ternary.mask = field.mask or b""
    elif field.kind is Match.RANGE:
        out.range.low = field.value
        out.range.high = field.high or b""
    else:
        out.optional.value = field.value
    return out


def counter_in(data: p4r.CounterData) -> CounterData:
    """Raises RpcError INVALID_ARGUMENT for a negative count."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "a counter cannot be negative")
    return CounterData(data.packet_count, data.byte_count)


def counter_out(data: CounterData) -> p4r.CounterData:
    """P4Runtime's message of a counter value."""
    signed = (1 << 63) - 1  # int64 on the wire
    return p4r.CounterData(packet_count=data.packets & signed, byte_count=data.bytes & signed)


def meter_in(config: p4r.MeterConfig) -> MeterConfig:
    """Raises RpcError INVALID_ARGUMENT for an excess burst, which only other kinds of meters have."""
    if config.eburst:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "eburst: meters here have two rates and three colours")
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def meter_out(config: MeterConfig) -> p4r.MeterConfig:
    """P4Runtime's message of a meter's configuration."""
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


def table_entry_in(entry: p4r.TableEntry) -> TableEntry:
    """Raises RpcError for what is malformed or not supported."""
    if entry.HasField("meter_counter_data"):
        raise RpcError(rpc_code.UNIMPLEMENTED, "meter_counter_data: meters do not count here")
    return TableEntry(
        entry.table_id,
        tuple([match_in(field) for field in entry.match]),
        table_action_in(entry.action) if entry.HasField("action") else None,
        entry.priority,
        entry.is_default_action,
        counter_in(entry.counter_data) if entry.HasField("counter_data") else None,
        entry.idle_timeout_ns,
        entry.metadata,
        entry.controller_metadata,
    )


def table_key_in(entry: p4r.TableEntry) -> TableEntry:
    """Return the key of an entry alone, which is enough for deletions and direct resources."""
    match = tuple([match_in(field) for field in entry.match])
    return TableEntry(entry.table_id, match, None, entry.priority, entry.is_default_action)


def table_entry_out(entry: TableEntry, *, with_counter: bool = False) -> p4r.TableEntry:
    """P4Runtime's message of a table entry; `with_counter`: with what its direct counter has."""
    out = p4r.TableEntry(
        table_id=entry.table_id,
        priority=entry.priority,
        is_default_action=entry.is_default,
        idle_timeout_ns=entry.idle_timeout_ns,
        metadata=entry.metadata,
        controller_metadata=entry.cookie,
        is_const=entry.is_const,
    )
    out.match.extend(match_out(field) for field in entry.match)
    action = table_action_out(entry.action)
    if action is not None:
        out.action.CopyFrom(action)
    if with_counter and entry.counter is not None:
        out.counter_data.CopyFrom(counter_out(entry.counter))
    return out


def member_in(member: p4r.ActionProfileMember) -> ProfileMember:
    """A member of an action profile."""
    action = action_in(member.action) if member.HasField("action") else None
    return ProfileMember(member.action_profile_id, member.member_id, action)


def member_out(member: ProfileMember) -> p4r.ActionProfileMember:
    """P4Runtime's message of a member."""
    out = p4r.ActionProfileMember(action_profile_id=member.profile_id, member_id=member.member_id)
    if member.action is not None:
        out.action.CopyFrom(action_out(member.action))
    return out


def group_in(group: p4r.ActionProfileGroup) -> Group:
    """Raises RpcError INVALID_ARGUMENT."""
    members = [
        GroupMember(member.member_id, member.weight, watch_in(member, f"member {member.member_id}"))
        for member in group.members
    ]
    return Group(group.action_profile_id, group.group_id, tuple(members), group.max_size)


def group_out(group: Group) -> p4r.ActionProfileGroup:
    """P4Runtime's message of a group."""
    out = p4r.ActionProfileGroup(action_profile_id=group.profile_id, group_id=group.group_id, max_size=group.max_size)
    for member in group.members:
        sent = out.members.add(member_id=member.member_id, weight=member.weight)
        if member.watch_port is not None:
            sent.watch_port = canonical(member.watch_port)
    return out
