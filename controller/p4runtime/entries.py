"""Table entries by name: built from names, written as one canonical line of text, compared, digested.

The text is the normal form. Two entries are the same exactly when their lines are, however a target pads its byte
strings or orders its fields::

    usid_next locator_usid=0xfcbbbb001301 forward(port=3)
    route dst_addr=fd00:1::/32 spray(uplink_group=1)
    hash_seed default set_hash_seed(seed=0x3f2a90c1)
    uplinks uplink_group=1 group(1)
    uplink_selector member 3: use_uplink(port=3)
    uplink_selector group 1: member 3 weight 1 watch 3, member 4 weight 1 watch 4

The part before the action is what a switch can hold once (`NamedEntry.what`), the rest is its value.
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


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=_Named)


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """One thing the controller can write: a table entry, a default entry, a profile member or group."""

    what: str
    value: str
    entity: p4r.Entity = field(compare=False)

    def __str__(self) -> str:
        return f"{self.what} {self.value}"

    @property
    def is_default(self) -> bool:
        return self.entity.table_entry.is_default_action


def digest(entries: Iterable[NamedEntry]) -> str:
    """16 hex digits that are the same for the same set of lines."""
    text = "\n".join(sorted(str(entry) for entry in entries))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- values -------------------------------------------------------------------------------------------------


def to_bytes(value: int) -> bytes:
    """P4Runtime's canonical byte string: no leading zeros, at least one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def number_text(value: int, bits: int) -> str:
    """`3`, `0xfcbbbb001301`, `fd00:1::`: by width, so that a field always looks the same. `bits` 0: unknown."""
    if bits == 128 and value < 1 << 128:
        return str(IPv6Address(value))
    if 0 < bits <= DECIMAL_BITS and value < 1 << bits:
        return str(value)
    return f"0x{value:0{(bits + 3) // 4}x}"


def _bytes_text(data: bytes, bits: int) -> str:
    return number_text(int.from_bytes(data, "big"), bits)


# ---- names --------------------------------------------------------------------------------------------------


def find(kind: str, name: str, items: Iterable[_N], where: str) -> _N:
    """The item whose alias or name is `name`, or ends with `.name`. Raises InputError listing what there is."""
    items = list(items)
    exact = [i for i in items if name in (i.name, getattr(i, "alias", i.name))]
    found = exact or [i for i in items if i.name.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    names = ", ".join(i.name for i in found or items) or "none"
    problem = f"{kind} {name!r} is ambiguous" if found else f"no {kind} {name!r}"
    raise InputError(f"{where}{problem} (has: {names})")


def short(name: str) -> str:
    """`Ingress.transit.usid_next` -> `usid_next`."""
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
        """An entry of `table`: `match` maps field names to int (exact) or (int, prefix length) (lpm).

        `match` None makes it the default entry. Raises InputError for names and values that do not exist.
        """
        where = f"{table}: "
        found = find("table", table, self.schema.tables, "")
        ref = find("action", action, found.actions, where)
        entry = p4r.TableEntry(table_id=found.id, is_default_action=match is None)
        entry.action.action.CopyFrom(self._action(ref, params or {}, f"{where}{action}: "))
        self._set_match(entry, found, match or {}, where, complete=match is not None)
        return self.describe(p4r.Entity(table_entry=entry))

    def group_entry(self, table: str, match: dict[str, Any], group: int) -> NamedEntry:
        """An entry of a table with an action selector that leads to a group."""
        found = find("table", table, self.schema.tables, "")
        if found.action_profile is None:
            raise InputError(f"{table}: has no action profile, so no entry of it can lead to a group")
        entry = p4r.TableEntry(table_id=found.id)
        entry.action.action_profile_group_id = group
        self._set_match(entry, found, match, f"{table}: ", complete=True)
        return self.describe(p4r.Entity(table_entry=entry))

    def member(self, profile: str, member: int, action: str, params: dict[str, int]) -> NamedEntry:
        """A member of an action profile."""
        found = find("action profile", profile, self.schema.action_profiles, "")
        tables = [t for t in self.schema.tables if t.action_profile and t.action_profile.id == found.id]
        ref = find("action", action, [a for t in tables for a in t.actions], f"{profile}: ")
        out = p4r.ActionProfileMember(action_profile_id=found.id, member_id=member)
        out.action.CopyFrom(self._action(ref, params, f"{profile}: {action}: "))
        return self.describe(p4r.Entity(action_profile_member=out))

    def group(self, profile: str, group: int, watched: dict[int, int]) -> NamedEntry:
        """A group of an action selector: `watched` maps member ids to the port whose loss takes them out.

        Its max_size is the same whatever it holds: P4Runtime forbids a MODIFY to change it.
        """
        found = find("action profile", profile, self.schema.action_profiles, "")
        most = found.max_group_size or found.size
        out = p4r.ActionProfileGroup(action_profile_id=found.id, group_id=group, max_size=most)
        for member, port in watched.items():
            out.members.add(member_id=member, weight=1, watch_port=to_bytes(port))
        return self.describe(p4r.Entity(action_profile_group=out))

    def _action(self, ref: Any, params: dict[str, int], where: str) -> p4r.Action:
        action = p4r.Action(action_id=ref.id)
        given = dict(params)
        for param in ref.params:
            if param.name not in given:
                raise InputError(f"{where}parameter {param.name!r} is missing")
            value = _checked(given.pop(param.name), param.bitwidth, f"{where}{param.name}")
            action.params.add(param_id=param.id, value=to_bytes(value))
        if given:
            find("parameter", next(iter(given)), ref.params, where)
        return action

    def _set_match(
        self, entry: p4r.TableEntry, table: Any, match: dict[str, Any], where: str, *, complete: bool
    ) -> None:
        for name, value in match.items():
            target = find("match field", name, table.match_fields, where)
            out = entry.match.add(field_id=target.id)
            if target.match_type is P4MatchType.EXACT:
                out.exact.value = to_bytes(_checked(value, target.bitwidth, f"{where}{name}"))
            elif target.match_type is P4MatchType.LPM:
                prefix, length = value
                out.lpm.value = to_bytes(_checked(prefix, target.bitwidth, f"{where}{name}"))
                out.lpm.prefix_len = length
            else:
                raise InputError(f"{where}{name}: our routes match exactly or by prefix, not {target.match_type}")
        wanted = [f for f in table.match_fields if f.match_type is P4MatchType.EXACT]
        missing = [f.name for f in wanted if f.id not in {m.field_id for m in entry.match}]
        if complete and missing:
            raise InputError(f"{where}no value for match field {', '.join(missing)}")

    # ---- describing -------------------------------------------------------------------------------------

    def describe(self, entity: p4r.Entity) -> NamedEntry:
        """Any entity as an Entry. Ids unknown to the program are shown as numbers: switches may say anything."""
        match entity.WhichOneof("entity"):
            case "table_entry":
                what, value = self._describe_table_entry(entity.table_entry)
            case "action_profile_member":
                member = entity.action_profile_member
                what = f"{self._profile_name(member.action_profile_id)} member {member.member_id}:"
                value = self._action_text(member.action)
            case "action_profile_group":
                group = entity.action_profile_group
                what = f"{self._profile_name(group.action_profile_id)} group {group.group_id}:"
                value = _members_text(group)
            case other:
                what, value = f"{other or 'nothing'}", entity.SerializeToString(deterministic=True).hex()
        return NamedEntry(what, value, entity)

    def _describe_table_entry(self, entry: p4r.TableEntry) -> tuple[str, str]:
        table = self.schema.tables.get(entry.table_id)
        name = short(table.name) if table else f"table 0x{entry.table_id:08x}"
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
        known = self.schema.actions.get(action.action_id)
        params = {p.id: p for p in known.params} if known else {}
        parts = []
        for param in sorted(action.params, key=lambda p: p.param_id):
            info = params.get(param.param_id)
            name = info.name if info else f"param{param.param_id}"
            parts.append(f"{name}={_bytes_text(param.value, info.bitwidth if info else 0)}")
        return f"{short(known.name) if known else f'action 0x{action.action_id:08x}'}({', '.join(parts)})"

    def _profile_name(self, profile_id: int) -> str:
        known = self.schema.action_profiles.get(profile_id)
        return short(known.name) if known else f"profile 0x{profile_id:08x}"

    # ---- what to read -----------------------------------------------------------------------------------

    def wildcards(self, desired: Iterable[NamedEntry]) -> list[p4r.Entity]:
        """Entities of a read request that returns everything we could have written.

        Constant tables belong to the program, and a default entry only matters where the plan sets one.
        """
        out = [p4r.Entity(table_entry=p4r.TableEntry(table_id=t.id)) for t in self.schema.tables if not t.is_const]
        for entry in desired:
            if entry.is_default:
                table = p4r.TableEntry(table_id=entry.entity.table_entry.table_id, is_default_action=True)
                out.append(p4r.Entity(table_entry=table))
        for profile in self.schema.action_profiles:
            out.append(p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=profile.id)))
            out.append(p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=profile.id)))
        return out


def _checked(value: int, bits: int, where: str) -> int:
    if bits and not 0 <= value < 1 << bits:
        raise InputError(f"{where} = {value}: does not fit {bits} bits")
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
        f"member {one.member_id} weight {one.weight}{_watch_text(one.watch_port)}"
        for one in sorted(group.members, key=lambda m: m.member_id)
    ]
    return ", ".join(parts) or "empty"


# ---- differences --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between switch and plan: `has` is None when missing, `wants` None when surplus."""

    has: NamedEntry | None
    wants: NamedEntry | None

    @property
    def what(self) -> str:
        """Name of the entry: table and match."""
        one = self.wants or self.has
        return "" if one is None else one.what

    def __str__(self) -> str:
        if self.has is None:
            return f"{self.wants.what} is missing (plan: {self.wants.value})" if self.wants else ""
        if self.wants is None:
            return f"{self.has.what} {self.has.value} is not in the plan"
        return f"{self.has.what} is {self.has.value} (plan: {self.wants.value})"


def compare(desired: Iterable[NamedEntry], actual: Iterable[NamedEntry]) -> list[Difference]:
    """All differences, in the order of their text."""
    wanted, found = {e.what: e for e in desired}, {e.what: e for e in actual}
    return [
        Difference(found.get(what), wanted.get(what))
        for what in sorted(wanted.keys() | found.keys())
        if found.get(what) != wanted.get(what)
    ]


def with_watch_ports(actual: Iterable[NamedEntry], known: Iterable[NamedEntry]) -> list[NamedEntry]:
    """Entries read from PI (BMv2's P4Runtime server), with the watch ports it keeps but does not report.

    It reads every member of a group back with the watch port of the one that was added last. A group that differs from
    a known one of its number in nothing else stands for that one; every other entry stays as it was read.
    """
    groups = [one for one in known if one.entity.HasField("action_profile_group")]
    return [next((group for group in groups if _is_told_by_pi(one, group)), one) for one in actual]


def _is_told_by_pi(read: NamedEntry, written: NamedEntry) -> bool:
    if read.what != written.what:
        return False
    told, group = read.entity.action_profile_group, written.entity.action_profile_group
    ports = {one.watch_port for one in told.members}
    alike = len(ports) <= 1 and ports <= {one.watch_port for one in group.members}
    return alike and _unwatched(told) == _unwatched(group)


def _unwatched(group: p4r.ActionProfileGroup) -> p4r.ActionProfileGroup:
    out = p4r.ActionProfileGroup()
    out.CopyFrom(group)
    del out.members[:]
    for member in sorted(group.members, key=lambda one: one.member_id):
        out.members.add(member_id=member.member_id, weight=member.weight)
    return out


_WRITE_ORDER = ("action_profile_member", "action_profile_group", "table_entry")
"""An entry may only refer to what exists: members, then groups, then tables; deleted the other way round."""
_TABLES = _WRITE_ORDER.index("table_entry")


def updates_for(differences: Iterable[Difference]) -> list[p4r.Update]:
    """The writes that end the differences, in an order every target takes.

    Table entries too many go first, so that a full table has room; members and groups too many last, when nothing
    refers to them any more. An entry that leads to a group is there before a route to it, and goes after it.
    """
    ranked: list[tuple[float, p4r.Update]] = []
    for difference in differences:
        entry = difference.wants or difference.has
        assert entry is not None
        rank: float = _WRITE_ORDER.index(entry.entity.WhichOneof("entity") or "table_entry")
        if difference.wants is None:
            update = p4r.Update(type=p4r.Update.DELETE, entity=entry.entity)
            rank = -1 if rank == _TABLES else 2 * len(_WRITE_ORDER) - rank
            ranked.append((rank + 0.5 if _leads_to_group(entry) else rank, update))
            continue
        is_new = difference.has is None and not entry.is_default
        kind = p4r.Update.INSERT if is_new else p4r.Update.MODIFY
        ranked.append((rank - 0.5 if _leads_to_group(entry) else rank, p4r.Update(type=kind, entity=entry.entity)))
    return [update for _, update in sorted(ranked, key=lambda pair: pair[0])]


def _leads_to_group(entry: NamedEntry) -> bool:
    return bool(entry.entity.table_entry.action.action_profile_group_id)
