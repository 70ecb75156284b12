"""Entries of a switch, as the P4 tutorials' sX-runtime.json has them, as P4Runtime updates.

One key is ours: `action_set` in place of `action_name`, a list of actions of an entry of a table with an action
selector, each with `weight` and `watch_port` where wanted.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r

from mrc_testbed.errors import UsageError

KEYS = {
    "table_entries": "table",
    "multicast_group_entries": "multicast_group_id",
    "clone_session_entries": "clone_session_id",
}
"""Lists of a file, each with the key that its entries need."""
OTHER_KEYS = ("target", "p4info", "bmv2_json")
"""Keys that the tutorials' own runner needs."""
MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


class EntriesError(UsageError):
    """A file of entries that does not fit the program; the message lists every mistake."""


class _EntryError(Exception):
    """A mistake in one entry."""


def read_entries(path: Path, info: p4i.P4Info) -> list[p4r.Update]:
    """Read a file of entries for a program. Raises EntriesError with all mistakes."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EntriesError(f"{path}: {error.strerror}. Cure: give an sX-runtime.json") from None
    except json.JSONDecodeError as error:
        raise EntriesError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise EntriesError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, dict) or not set(data) & {*KEYS, *OTHER_KEYS}:
        raise EntriesError(f"{path}: wants an object with a list {', '.join(KEYS)}")
    updates, mistakes = updates_of(data, info)
    if mistakes:
        raise EntriesError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    return updates


def updates_of(data: dict[str, Any], info: p4i.P4Info) -> tuple[list[p4r.Update], list[str]]:
    """Return the updates of a file's lists, and every mistake in them."""
    program = ProgramNames(info)
    makers: dict[str, Callable[[dict[str, Any]], p4r.Update]] = {
        "table_entries": program.table_update,
        "multicast_group_entries": _group_update,
        "clone_session_entries": _session_update,
    }
    updates, mistakes = [], []
    for key in data:
        if key not in (*KEYS, *OTHER_KEYS):
            mistakes.append(f"{key}: unknown (has: {', '.join(KEYS)})")
    for key, needed_key in KEYS.items():
        records = data.get(key, [])
        if not isinstance(records, list):
            mistakes.append(f"{key} = {records!r}: wants a list")
            continue
        for index, record in enumerate(records):
            try:
                if not isinstance(record, dict) or needed_key not in record:
                    raise _EntryError(f"wants an object with {needed_key}")
                updates.append(makers[key](record))
            except _EntryError as error:
                mistakes.append(f"{key}[{index}]: {error}")
    return updates, mistakes


class ProgramNames:
    """Objects of a program by name: entries from words, and words for entries."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.info = info
        self._tables = {table.preamble.id: table for table in info.tables}
        self._actions = {action.preamble.id: action for action in info.actions}

    # ---- words -> entries -------------------------------------------------------------------------------

    def table_update(self, record: dict[str, Any]) -> p4r.Update:
        """Return the update of one table entry."""
        table = _find(self.info.tables, record["table"], "table")
        entry = p4r.TableEntry(table_id=table.preamble.id)
        if record.get("default_action"):
            if record.get("match"):
                raise _EntryError(f"{record['table']}: default_action stands without match. Cure: leave one out")
            entry.is_default_action = True
        entry.match.extend(self._match(table, record.get("match") or {}))
        entry.priority = _whole_number(record.get("priority", 0), "priority", 31)
        kinds = {field.match_type for field in table.match_fields}
        needs_priority = bool(kinds & {p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL})
        if needs_priority and not entry.priority and not entry.is_default_action:
            raise _EntryError(f'{record["table"]}: its keys need a priority. Cure: add "priority": 1 (greater wins)')
        if "action_set" in record:
            entry.action.action_profile_action_set.CopyFrom(self._action_set(table, record["action_set"]))
        else:
            entry.action.action.CopyFrom(self._action(table, record))
        kind = p4r.Update.MODIFY if entry.is_default_action else p4r.Update.INSERT
        return p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry))

    def _action_set(self, table: p4i.Table, records: Any) -> p4r.ActionProfileActionSet:
        if not table.implementation_id:
            raise _EntryError(f"{table.preamble.name}: has no action selector. Cure: action_name and action_params")
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise _EntryError(f"action_set = {records!r}: wants a list of actions")
        actions = p4r.ActionProfileActionSet()
        for record in records:
            port = _whole_number(record.get("watch_port", 0), "watch_port", 9)
            actions.action_profile_actions.add(
                action=self._action(table, record),
                weight=_whole_number(record.get("weight", 1), "weight", 31),
                watch_port=port.to_bytes(2, "big").lstrip(b"\0") if port else b"",
            )
        return actions

    def _match(self, table: p4i.Table, record: Any) -> list[p4r.FieldMatch]:
        if not isinstance(record, dict):
            raise _EntryError(f"match = {record!r}: wants an object of keys")
        fields = {field.name: field for field in table.match_fields}
        out = []
        for name, value in record.items():
            field = fields.get(name)
            if field is None:
                raise _EntryError(f"{table.preamble.name}: no key {name!r}{_hint(name, fields)}")
            out.append(_field_match(field, value))
        exact_names = [name for name, field in fields.items() if field.match_type == p4i.MatchField.EXACT]
        if record and (absent_names := [name for name in exact_names if name not in record]):
            raise _EntryError(f"{table.preamble.name}: exact key {absent_names[0]} has no value. Cure: give it one")
        return out

    def _action(self, table: p4i.Table, record: dict[str, Any]) -> p4r.Action:
        ids = {reference.id for reference in table.action_refs}
        actions = [action for action in self.info.actions if action.preamble.id in ids]
        action = _find(actions, record.get("action_name"), f"action of {table.preamble.name}")
        values = record.get("action_params") or {}
        if not isinstance(values, dict):
            raise _EntryError(f"action_params = {values!r}: wants an object")
        params = {param.name: param for param in action.params}
        if unknown_names := [name for name in values if name not in params]:
            raise _EntryError(
                f"{action.preamble.name}: no parameter {unknown_names[0]!r}{_hint(unknown_names[0], params)}"
            )
        if absent_names := [name for name in params if name not in values]:
            raise _EntryError(f"{action.preamble.name}: parameter {absent_names[0]} has no value. Cure: give it one")
        out = p4r.Action(action_id=action.preamble.id)
        for name, param in params.items():
            out.params.add(param_id=param.id, value=_bytes_of(values[name], param.bitwidth, name))
        return out

    # ---- entries -> words -------------------------------------------------------------------------------

    def entry_text(self, entity: p4r.Entity) -> str:
        """Describe an entity in one line."""
        kind = entity.WhichOneof("entity") or "entity"
        if kind != "table_entry":
            return " ".join(f"{kind.replace('_', ' ')} {getattr(entity, kind)}".split())
        entry = entity.table_entry
        table = self._tables.get(entry.table_id)
        name = table.preamble.name if table else f"table {entry.table_id:#x}"
        fields = {field.id: field for field in table.match_fields} if table else {}
        keys = [_match_text(fields.get(match.field_id), match) for match in entry.match]
        key_text = "default" if entry.is_default_action else " ".join(keys) or "any"
        return f"{name} {key_text} -> {self._action_text(entry)}"

    def lack(self, entity: p4r.Entity, info: p4i.P4Info) -> str | None:
        """Tell what of a table entry another program lacks: its table or action; None: nothing of these."""
        if not entity.HasField("table_entry"):
            return None
        entry = entity.table_entry
        if entry.table_id not in {table.preamble.id for table in info.tables}:
            return f"the new program has no table {self._tables[entry.table_id].preamble.name}"
        action_id = entry.action.action.action_id
        if action_id and action_id not in {action.preamble.id for action in info.actions}:
            return f"the new program has no action {self._actions[action_id].preamble.name}"
        return None

    def _action_text(self, entry: p4r.TableEntry) -> str:
        if entry.action.HasField("action_profile_action_set"):
            return f"{len(entry.action.action_profile_action_set.action_profile_actions)} actions"
        call = entry.action.action
        action = self._actions.get(call.action_id)
        params = {param.id: param.name for param in action.params} if action else {}
        values = [f"{params.get(p.param_id, p.param_id)}={int.from_bytes(p.value, 'big'):#x}" for p in call.params]
        return f"{action.preamble.name if action else f'action {call.action_id:#x}'}({', '.join(values)})"


def _match_text(field: p4i.MatchField | None, match: p4r.FieldMatch) -> str:
    name = field.name if field else str(match.field_id)
    kind = match.WhichOneof("field_match_type") or "exact"
    value = getattr(match, kind)
    number = int.from_bytes(value.low if kind == "range" else value.value, "big")
    ends = {
        "lpm": lambda: f"/{match.lpm.prefix_len}",
        "ternary": lambda: f"&&&{int.from_bytes(match.ternary.mask, 'big'):#x}",
        "range": lambda: f"..{int.from_bytes(match.range.high, 'big'):#x}",
    }
    return f"{name}={number:#x}{ends[kind]() if kind in ends else ''}"


def _find(objects: Iterable[Any], name: Any, kind: str) -> Any:
    """Return the object of a full name or an alias, or of the end of a name that only it has."""
    by_name = {object_.preamble.name: object_ for object_ in objects}
    candidates = [by_name[name]] if name in by_name else []
    if not candidates and isinstance(name, str):
        candidates = [object_ for full_name, object_ in by_name.items() if full_name.endswith(f".{name}")]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(candidate.preamble.name for candidate in candidates)
        raise _EntryError(f"{kind} {name!r}: several end so. Cure: give one of {names}")
    raise _EntryError(f"no {kind} {name!r}{_hint(name, by_name)}")


def _hint(name: Any, names: Iterable[str]) -> str:
    close = get_close_matches(str(name), list(names), n=3)
    return f" (did you mean {', '.join(close)}?)" if close else f" (has: {', '.join(names) or 'none'})"


def _field_match(field: p4i.MatchField, value: Any) -> p4r.FieldMatch:
    """Return a key's value: a value, or a pair for lpm, ternary and range keys."""
    kinds = p4i.MatchField
    pair_kinds = {kinds.LPM: "a prefix length", kinds.TERNARY: "a mask", kinds.RANGE: "an upper end"}
    match = p4r.FieldMatch(field_id=field.id)
    name, bits = field.name, field.bitwidth
    if field.match_type in pair_kinds:
        if not isinstance(value, list) or len(value) != 2:
            raise _EntryError(f"{name} = {value!r}: wants a list of a value and {pair_kinds[field.match_type]}")
        first = _bytes_of(value[0], bits, name)
        if field.match_type == kinds.LPM:
            match.lpm.value, match.lpm.prefix_len = first, _whole_number(value[1], f"prefix length of {name}", 16)
        elif field.match_type == kinds.TERNARY:
            match.ternary.value, match.ternary.mask = first, _bytes_of(value[1], bits, f"mask of {name}")
        else:
            match.range.low, match.range.high = first, _bytes_of(value[1], bits, f"upper end of {name}")
        return match
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if field.match_type == kinds.OPTIONAL:
        match.optional.value = _bytes_of(value, bits, name)
    else:
        match.exact.value = _bytes_of(value, bits, name)
    return match


def _number(value: Any, name: str) -> int:
    """Return a number, an IPv4, IPv6 or MAC address, or the digits of a text as a number."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise _EntryError(f"{name} = {value!r}: wants a number or an address")
    if isinstance(value, int):
        return value
    if MAC.fullmatch(value):
        return int(value.replace(":", ""), 16)
    try:
        return (
            int(value, 0)
            if value[:2].lower() in ("0x", "0b") or value.isdecimal()
            else int(ipaddress.ip_address(value))
        )
    except ValueError:
        raise _EntryError(
            f"{name} = {value!r}: wants a number or an address, as 7, 0x1f, 10.0.1.1, 08:00:00:00:01:11"
        ) from None


def _bytes_of(value: Any, bits: int, name: str) -> bytes:
    number = _number(value, name)
    if number < 0:
        number += 1 << bits
    if not 0 <= number < 1 << bits:
        raise _EntryError(f"{name} = {value!r}: does not fit {bits} bits")
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")


def _whole_number(value: Any, name: str, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
        raise _EntryError(f"{name} = {value!r}: wants a whole number from 0, below 2**{bits}")
    return value


def _replicas(record: dict[str, Any]) -> list[p4r.Replica]:
    replicas = record.get("replicas")
    if not isinstance(replicas, list) or not all(isinstance(replica, dict) for replica in replicas):
        raise _EntryError(f"replicas = {replicas!r}: wants a list of objects with egress_port and instance")
    return [
        p4r.Replica(
            egress_port=_whole_number(replica.get("egress_port"), "egress_port", 9),
            instance=_whole_number(replica.get("instance", 1), "instance", 16),
        )
        for replica in replicas
    ]


def _insert(entry: p4r.PacketReplicationEngineEntry) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(packet_replication_engine_entry=entry))


def _group_update(record: dict[str, Any]) -> p4r.Update:
    number = _whole_number(record["multicast_group_id"], "multicast_group_id", 16)
    group = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=_replicas(record))
    return _insert(p4r.PacketReplicationEngineEntry(multicast_group_entry=group))


def _session_update(record: dict[str, Any]) -> p4r.Update:
    session = p4r.CloneSessionEntry(
        session_id=_whole_number(record["clone_session_id"], "clone_session_id", 15),
        replicas=_replicas(record),
        packet_length_bytes=_whole_number(record.get("packet_length_bytes", 0), "packet_length_bytes", 16),
    )
    return _insert(p4r.PacketReplicationEngineEntry(clone_session_entry=session))
