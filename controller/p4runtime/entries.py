"""Table entries by name: built from names, written as one canonical line of text, compared, digested.

The text is the normal form. Two entries are the same exactly when their lines are, however a target pads its byte
strings or orders its fields::

    usid_next locator_usid=0xfcbbbb001301 forward(port=3)
    route dst_addr=fd00:1::/32 spray(uplink_group=1)
    hash_seed default set_hash_seed(seed=0x3f2a90c1)
    uplinks uplink_group=1 group(1)
    uplink_selector member 3: use_uplink(port=3)
    uplink_selector group 1: member 3 weight 1 watch 3, member 4 weight 1 watch 4

The part before the action is what a switch can hold once (`NamedEntry.key`), the rest is its value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any, Protocol, TypeVar

from finsy import P4Schema
from finsy.p4schema import P4MatchType
from finsy.proto import p4r

from mrc_testbed.controller.errors import InputError

DECIMAL_BITS = 16
"""Numbers up to this width are written in decimal, wider ones in hex, 128 bits as an IPv6 address."""


class _NamedItem(Protocol):
    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=_NamedItem)


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """Entity that the controller can write: a table entry, a default entry, a profile member or group."""

    key: str
    """Table and match, or profile and number: what a switch can hold once."""
    value: str
    """Action with its parameters, or the members of a group."""
    entity: p4r.Entity = field(compare=False)

    def __str__(self) -> str:
        return f"{self.key} {self.value}"

    @property
    def is_default(self) -> bool:
        return self.entity.table_entry.is_default_action


def digest(entries: Iterable[NamedEntry]) -> str:
    """Return 16 hex digits that are the same for the same set of lines."""
    text = "\n".join(sorted(str(entry) for entry in entries))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- values -------------------------------------------------------------------------------------------------


def to_bytes(value: int) -> bytes:
    """Return P4Runtime's canonical byte string: no leading zeros, at least one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def number_text(value: int, bits: int) -> str:
    """Return a number as text by its width: `3`, `0xfcbbbb001301`, `fd00:1::`. `bits` 0: unknown width."""
    if bits == 128 and value < 1 << 128:
        return str(IPv6Address(value))
    if 0 < bits <= DECIMAL_BITS and value < 1 << bits:
        return str(value)
    return f"0x{value:0{(bits + 3) // 4}x}"


def _bytes_text(data: bytes, bits: int) -> str:
    return number_text(int.from_bytes(data, "big"), bits)


# ---- names --------------------------------------------------------------------------------------------------


def find(kind: str, name: str, items: Iterable[_N], context: str) -> _N:
    """Return the item whose alias or name is `name`, or ends with `.name`.

    Raises InputError listing the names that exist; its text begins with `context`.
    """
    items = list(items)
    exact = [i for i in items if name in (i.name, getattr(i, "alias", i.name))]
    matches = exact or [i for i in items if i.name.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(i.name for i in matches or items) or "none"
    problem = f"{kind} {name!r} is ambiguous" if matches else f"no {kind} {name!r}"
    raise InputError(f"{context}{problem} (has: {names})")


def short_name(name: str) -> str:
    """Return the last part of a dotted name: `Ingress.transit.usid_next` -> `usid_next`."""
    return name.rpartition(".")[2]


class Catalog:
    """The P4Info of the program that runs: entries from names, text from entities."""

    def __init__(self, schema: P4Schema) -> None:
        self.schema = schema
        self.cookie = schema.p4cookie
        """Number that stands for P4Info and device config together; a switch keeps it with the pipeline."""

    # ---- building ---------------------------------------------------------------------------------------

    def table_entry(
        self, table: str, match: dict[str, Any] | None, action: str, params: dict[str, int] | None = None
    ) -> NamedEntry:
        """Return an entry of `table`; `match` maps field names to int (exact) or (int, prefix length) (lpm).

        `match` None makes it the default entry. Raises InputError for names and values that do not exist.
        """
        context = f"{table}: "
        table_info = find("table", table, self.schema.tables, "")
        ref = find("action", action, table_info.actions, context)
        entry = p4r.TableEntry(table_id=table_info.id, is_default_action=match is None)
        entry.action.action.CopyFrom(self._action(ref, params or {}, f"{context}{action}: "))
        self._set_match(entry, table_info, match or {}, context, complete=match is not None)
        return self.describe(p4r.Entity(table_entry=entry))

    def group_entry(self, table: str, match: dict[str, Any], group: int) -> NamedEntry:
        """Return an entry of a table with an action selector that leads to a group."""
        table_info = find("table", table, self.schema.tables, "")
        if table_info.action_profile is None:
            raise InputError(f"{table}: has no action profile, so no entry of it can lead to a group")
        entry = p4r.TableEntry(table_id=table_info.id)
        entry.action.action_profile_group_id = group
        self._set_match(entry, table_info, match, f"{table}: ", complete=True)
        return self.describe(p4r.Entity(table_entry=entry))

    def member(self, profile: str, member: int, action: str, params: dict[str, int]) -> NamedEntry:
        """Return a member of an action profile."""
        profile_info = find("action profile", profile, self.schema.action_profiles, "")
        tables = [t for t in self.schema.tables if t.action_profile and t.action_profile.id == profile_info.id]
        ref = find("action", action, [a for t in tables for a in t.actions], f"{profile}: ")
        out = p4r.ActionProfileMember(action_profile_id=profile_info.id, member_id=member)
        out.action.CopyFrom(self._action(ref, params, f"{profile}: {action}: "))
        return self.describe(p4r.Entity(action_profile_member=out))

    def group(self, profile: str, group: int, watch_ports: dict[int, int]) -> NamedEntry:
        """Return a group of an action selector; `watch_ports` maps member ids to the port each one watches.

        A member is out while its port is down. The group's max_size does not depend on its members: P4Runtime forbids a
        MODIFY to change it.
        """
        profile_info = find("action profile", profile, self.schema.action_profiles, "")
        max_size = profile_info.max_group_size or profile_info.size
        out = p4r.ActionProfileGroup(action_profile_id=profile_info.id, group_id=group, max_size=max_size)
        for member, port in watch_ports.items():
            out.members.add(member_id=member, weight=1, watch_port=to_bytes(port))
        return self.describe(p4r.Entity(action_profile_group=out))

    def _action(self, ref: Any, params: dict[str, int], context: str) -> p4r.Action:
        action = p4r.Action(action_id=ref.id)
        values = dict(params)
        for param in ref.params:
            if param.name not in values:
                raise InputError(f"{context}parameter {param.name!r} is missing")
            value = _check_width(values.pop(param.name), param.bitwidth, f"{context}{param.name}")
            action.params.add(param_id=param.id, value=to_bytes(value))
        if values:
            find("parameter", next(iter(values)), ref.params, context)
        return action

    def _set_match(
        self, entry: p4r.TableEntry, table: Any, match: dict[str, Any], context: str, *, complete: bool
    ) -> None:
        for name, value in match.items():
            target = find("match field", name, table.match_fields, context)
            out = entry.match.add(field_id=target.id)
            if target.match_type is P4MatchType.EXACT:
                out.exact.value = to_bytes(_check_width(value, target.bitwidth, f"{context}{name}"))
            elif target.match_type is P4MatchType.LPM:
                prefix, length = value
                out.lpm.value = to_bytes(_check_width(prefix, target.bitwidth, f"{context}{name}"))
                out.lpm.prefix_len = length
            else:
                raise InputError(f"{context}{name}: our routes match exactly or by prefix, not {target.match_type}")
        exact_fields = [f for f in table.match_fields if f.match_type is P4MatchType.EXACT]
        missing_fields = [f.name for f in exact_fields if f.id not in {m.field_id for m in entry.match}]
        if complete and missing_fields:
            raise InputError(f"{context}no value for match field {', '.join(missing_fields)}")

    # ---- describing -------------------------------------------------------------------------------------

    def describe(self, entity: p4r.Entity) -> NamedEntry:
        """Return any entity as a NamedEntry. Ids unknown to the program are written as numbers."""
        match entity.WhichOneof("entity"):
            case "table_entry":
                key, value = self._describe_table_entry(entity.table_entry)
            case "action_profile_member":
                member = entity.action_profile_member
                key = f"{self._profile_name(member.action_profile_id)} member {member.member_id}:"
                value = self._action_text(member.action)
            case "action_profile_group":
                group = entity.action_profile_group
                key = f"{self._profile_name(group.action_profile_id)} group {group.group_id}:"
                value = _members_text(group)
            case other:
                key, value = f"{other or 'nothing'}", entity.SerializeToString(deterministic=True).hex()
        return NamedEntry(key, value, entity)

    def _describe_table_entry(self, entry: p4r.TableEntry) -> tuple[str, str]:
        table = self.schema.tables.get(entry.table_id)
        name = short_name(table.name) if table else f"table 0x{entry.table_id:08x}"
        fields = {f.id: f for f in table.match_fields} if table else {}
        if entry.is_default_action:
            key = "default"
        else:
            matches = sorted(entry.match, key=lambda m: m.field_id)
            key = " ".join(_match_text(m, fields.get(m.field_id)) for m in matches) or "*"
        priority = f" priority={entry.priority}" if entry.priority else ""
        return f"{name} {key}{priority}", self._table_action_text(entry.action)

    def _table_action_text(self, action: p4r.TableAction) -> str:
        match action.WhichOneof("type"):
            case "action":
                return self._action_text(action.action)
            case "action_profile_member_id":
                return f"member({action.action_profile_member_id})"
            case "action_profile_group_id":
                return f"group({action.action_profile_group_id})"
            case "action_profile_action_set":
                parts = [
                    f"{self._action_text(member.action)} weight {member.weight}{_watch_text(member.watch_port)}"
                    for member in action.action_profile_action_set.action_profile_actions
                ]
                return f"one of: {', '.join(sorted(parts))}"
            case _:
                return "no action"

    def _action_text(self, action: p4r.Action) -> str:
        action_info = self.schema.actions.get(action.action_id)
        params = {p.id: p for p in action_info.params} if action_info else {}
        parts = []
        for param in sorted(action.params, key=lambda p: p.param_id):
            info = params.get(param.param_id)
            name = info.name if info else f"param{param.param_id}"
            parts.append(f"{name}={_bytes_text(param.value, info.bitwidth if info else 0)}")
        return (
            f"{short_name(action_info.name) if action_info else f'action 0x{action.action_id:08x}'}({', '.join(parts)})"
        )

    def _profile_name(self, profile_id: int) -> str:
        profile_info = self.schema.action_profiles.get(profile_id)
        return short_name(profile_info.name) if profile_info else f"profile 0x{profile_id:08x}"

    # ---- what to read -----------------------------------------------------------------------------------

    def wildcards(self, wanted_entries: Iterable[NamedEntry]) -> list[p4r.Entity]:
        """Return the entities of a read request for everything that the controller may have written.

        Constant tables belong to the program, and a default entry only matters where the plan sets one.
        """
        out = [p4r.Entity(table_entry=p4r.TableEntry(table_id=t.id)) for t in self.schema.tables if not t.is_const]
        for entry in wanted_entries:
            if entry.is_default:
                table = p4r.TableEntry(table_id=entry.entity.table_entry.table_id, is_default_action=True)
                out.append(p4r.Entity(table_entry=table))
        for profile in self.schema.action_profiles:
            out.append(p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=profile.id)))
            out.append(p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=profile.id)))
        return out


def _check_width(value: int, bits: int, context: str) -> int:
    if bits and not 0 <= value < 1 << bits:
        raise InputError(f"{context} = {value}: does not fit {bits} bits")
    return value


def _match_text(match: p4r.FieldMatch, info: Any) -> str:
    name, bits = (info.name, info.bitwidth) if info else (f"field{match.field_id}", 0)
    kind = match.WhichOneof("field_match_type")
    match kind:
        case "exact":
            value = _bytes_text(match.exact.value, bits)
        case "lpm":
            value = f"{_bytes_text(match.lpm.value, bits)}/{match.lpm.prefix_len}"
        case "ternary":
            value = f"{_bytes_text(match.ternary.value, bits)}&&&{_bytes_text(match.ternary.mask, bits)}"
        case "range":
            value = f"{_bytes_text(match.range.low, bits)}..{_bytes_text(match.range.high, bits)}"
        case "optional":
            value = _bytes_text(match.optional.value, bits)
        case _:
            value = f"({kind})"
    return f"{name}={value}"


def _watch_text(watch_port: bytes) -> str:
    return f" watch {int.from_bytes(watch_port, 'big')}" if watch_port else ""


def _members_text(group: p4r.ActionProfileGroup) -> str:
    parts = [
        f"member {member.member_id} weight {member.weight}{_watch_text(member.watch_port)}"
        for member in sorted(group.members, key=lambda m: m.member_id)
    ]
    return ", ".join(parts) or "empty"


# ---- differences --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between switch and plan: `has` is None when missing, `wants` None when surplus."""

    has: NamedEntry | None
    wants: NamedEntry | None

    @property
    def key(self) -> str:
        """Key of the entry: table and match."""
        entry = self.wants or self.has
        return "" if entry is None else entry.key

    def __str__(self) -> str:
        if self.has is None:
            return f"{self.wants.key} is missing (plan: {self.wants.value})" if self.wants else ""
        if self.wants is None:
            return f"{self.has.key} {self.has.value} is not in the plan"
        return f"{self.has.key} is {self.has.value} (plan: {self.wants.value})"


def compare(wanted_entries: Iterable[NamedEntry], actual_entries: Iterable[NamedEntry]) -> list[Difference]:
    """Return all differences, in the order of their text."""
    wanted_by_key, actual_by_key = {e.key: e for e in wanted_entries}, {e.key: e for e in actual_entries}
    return [
        Difference(actual_by_key.get(key), wanted_by_key.get(key))
        for key in sorted(wanted_by_key.keys() | actual_by_key.keys())
        if actual_by_key.get(key) != wanted_by_key.get(key)
    ]


def with_watch_ports(actual: Iterable[NamedEntry], written_entries: Iterable[NamedEntry]) -> list[NamedEntry]:
    """Return entries read from PI (BMv2's P4Runtime server), with watch ports that PI does not report.

    PI reads every member of a group back with the watch port of the member that was added last. A group that differs
    in nothing else from the written group of its number stands for that group; every other entry stays as it was read.
    """
    groups = [entry for entry in written_entries if entry.entity.HasField("action_profile_group")]
    return [next((group for group in groups if _is_read_by_pi(entry, group)), entry) for entry in actual]


def _is_read_by_pi(read_entry: NamedEntry, written_entry: NamedEntry) -> bool:
    if read_entry.key != written_entry.key:
        return False
    read_group, written_group = read_entry.entity.action_profile_group, written_entry.entity.action_profile_group
    ports = {member.watch_port for member in read_group.members}
    alike = len(ports) <= 1 and ports <= {member.watch_port for member in written_group.members}
    return alike and _without_watch_ports(read_group) == _without_watch_ports(written_group)


def _without_watch_ports(group: p4r.ActionProfileGroup) -> p4r.ActionProfileGroup:
    out = p4r.ActionProfileGroup()
    out.CopyFrom(group)
    del out.members[:]
    for member in sorted(group.members, key=lambda m: m.member_id):
        out.members.add(member_id=member.member_id, weight=member.weight)
    return out


_WRITE_ORDER = ("action_profile_member", "action_profile_group", "table_entry")
"""Order of inserts: members, then groups, then tables that refer to them; deletes go in reverse order."""
_TABLES = _WRITE_ORDER.index("table_entry")


def updates_for(differences: Iterable[Difference]) -> list[p4r.Update]:
    """Return the writes that end the differences, in an order every target accepts.

    Surplus table entries go first, so that a full table has room; surplus members and groups last, when nothing refers
    to them any more. An entry that leads to a group is written before a route to it, and deleted after it.
    """
    ranked_updates: list[tuple[float, p4r.Update]] = []
    for difference in differences:
        entry = difference.wants or difference.has
        assert entry is not None
        rank: float = _WRITE_ORDER.index(entry.entity.WhichOneof("entity") or "table_entry")
        if difference.wants is None:
            update = p4r.Update(type=p4r.Update.DELETE, entity=entry.entity)
            rank = -1 if rank == _TABLES else 2 * len(_WRITE_ORDER) - rank
            ranked_updates.append((rank + 0.5 if _leads_to_group(entry) else rank, update))
            continue
        is_new = difference.has is None and not entry.is_default
        kind = p4r.Update.INSERT if is_new else p4r.Update.MODIFY
        ranked_updates.append(
            (rank - 0.5 if _leads_to_group(entry) else rank, p4r.Update(type=kind, entity=entry.entity))
        )
    return [update for _, update in sorted(ranked_updates, key=lambda pair: pair[0])]


def _leads_to_group(entry: NamedEntry) -> bool:
    return bool(entry.entity.table_entry.action.action_profile_group_id)
