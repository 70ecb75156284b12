"""Tables of the C runtime against a model in a few lines of Python.

Any order of writes, then lookups and reads.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, Match, TableEntry, TableError
from mrc_testbed.switch.device.schema import canonical
from tests.switch.mini_program import BY_ACL, BY_ADDR, BY_BOTH, BY_MAC, FORWARD, frame, mini

WIDTHS = {
    BY_MAC: {1: (Match.EXACT, 48)},
    BY_ADDR: {1: (Match.LPM, 32)},
    BY_BOTH: {1: (Match.EXACT, 8), 2: (Match.LPM, 32)},
    BY_ACL: {1: (Match.TERNARY, 16), 2: (Match.RANGE, 8), 3: (Match.OPTIONAL, 8)},
}
BUILT_IN = TableEntry(
    BY_BOTH,
    (FieldMatch.exact(1, b"\xee"), FieldMatch.lpm(2, b"\x0a\0\0\0", 8)),
    ActionCall(FORWARD, ((1, b"\x09"),)),
)


def similar_numbers(bits: int) -> st.SearchStrategy[int]:
    """Draw numbers that often agree in their first bits, so that entries collide and cover each other."""
    return st.builds(lambda high, low: high << (bits - 4) | low, st.integers(0, 3), st.integers(0, 3))


@st.composite
def field_match(draw: st.DrawFn, field_id: int, kind: Match, bits: int) -> FieldMatch | None:
    all_ones = (1 << bits) - 1
    value = draw(similar_numbers(bits))
    if kind == Match.EXACT:
        return FieldMatch.exact(field_id, canonical(value))
    if draw(st.integers(0, 4)) == 0:
        return None
    if kind == Match.LPM:
        length = draw(st.sampled_from([1, 2, 3, 4, bits - 3, bits - 2, bits - 1, bits]))
        return FieldMatch.lpm(field_id, canonical(value & all_ones ^ value & all_ones >> length), length)
    if kind == Match.TERNARY:
        mask = draw(similar_numbers(bits).filter(bool))
        return FieldMatch.ternary(field_id, canonical(value & mask), canonical(mask))
    if kind == Match.RANGE:
        low, high = sorted((value, draw(similar_numbers(bits))))
        return FieldMatch.range(field_id, canonical(low), canonical(high))
    return FieldMatch.optional(field_id, canonical(value))


@st.composite
def table_entry(draw: st.DrawFn, table_id: int) -> TableEntry:
    matches = [draw(field_match(i, kind, bits)) for i, (kind, bits) in WIDTHS[table_id].items()]
    priority = draw(st.integers(1, 3)) if table_id == BY_ACL else 0
    port = draw(st.integers(1, 500))
    action = ActionCall(FORWARD, ((1, canonical(port)),))
    return TableEntry(table_id, tuple(m for m in matches if m), action, priority)


def key_of(entry: TableEntry) -> tuple[object, ...]:
    return (entry.table_id, entry.match, entry.priority)


def covers(match: FieldMatch, bits: int, value: int) -> bool:
    match_value = int.from_bytes(match.value, "big")
    if match.kind == Match.LPM:
        return value >> (bits - match.prefix_len) == match_value >> (bits - match.prefix_len)
    if match.kind == Match.TERNARY:
        return value & int.from_bytes(match.mask, "big") == match_value
    if match.kind == Match.RANGE:
        return match_value <= value <= int.from_bytes(match.high, "big")
    return value == match_value


def model_lookup(entries: list[TableEntry], table_id: int, values: dict[int, int]) -> ActionCall | None:
    """Return the action of the best entry, by a model; `entries`: oldest first."""
    best_action, best_rank = None, (-1, -1)
    for entry in entries:
        fields = {m.field_id: m for m in entry.match}
        if entry.table_id != table_id or not all(
            covers(m, WIDTHS[table_id][i][1], values[i]) for i, m in fields.items()
        ):
            continue
        rank = (entry.priority, sum(m.prefix_len or 0 for m in entry.match))
        if rank > best_rank:
            best_action, best_rank = entry.action, rank
    return best_action


def device_lookup(device: P4Device, table_id: int, values: dict[int, int]) -> list[tuple[int, bytes]]:
    fields = {
        BY_MAC: lambda v: frame(0, dst=v[1]),
        BY_ADDR: lambda v: frame(1, a=v[1]),
        BY_BOTH: lambda v: frame(2, c=v[1], a=v[2]),
        BY_ACL: lambda v: frame(v[3], b=v[1], c=v[2]),
    }
    return device.process(1, fields[table_id](values))


@pytest.mark.parametrize("table_id", WIDTHS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_writes__lookup_and_read_agree_with_the_model(table_id: int, data: st.DataObject) -> None:
    device = P4Device(1)
    device.load(mini())
    model: dict[tuple[object, ...], TableEntry] = {key_of(BUILT_IN): BUILT_IN}
    for entry in data.draw(st.lists(table_entry(table_id), max_size=40)):
        operation = data.draw(st.sampled_from(["insert", "insert", "insert", "modify", "delete"]))
        exists = key_of(entry) in model
        if operation == "insert":
            is_refused = exists
        else:
            is_refused = not exists
        if is_refused:
            with pytest.raises(TableError) as caught:
                getattr(device, operation)(entry)
            assert caught.value.code == ("ALREADY_EXISTS" if exists else "NOT_FOUND")
            continue
        getattr(device, operation)(entry)
        if operation == "delete":
            del model[key_of(entry)]
        else:
            model[key_of(entry)] = entry
    model_entries = list(model.values())
    got = [replace(e, counter=None) for e in device.read(table_id)]
    assert got == [e for e in model_entries if e.table_id == table_id]
    for entry in got:
        assert device.read_one(entry).action == entry.action
    for _ in range(10):
        values = {i: data.draw(similar_numbers(bits)) for i, (_, bits) in WIDTHS[table_id].items()}
        if table_id == BY_ACL and values[3] in (0, 1, 2, 4, 5):
            continue  # the program sends those elsewhere
        action = model_lookup(model_entries, table_id, values)
        port = None if action is None else int.from_bytes(action.params[0][1], "big")
        default = [509] if table_id == BY_ADDR else [0] if table_id == BY_BOTH else []
        sent = [egress_port for egress_port, _ in device_lookup(device, table_id, values)]
        if table_id == BY_BOTH and port is None:
            assert sent == []  # no default action: egress_spec stays at drop
        else:
            assert sent == ([port] if port else default)
    device.close()


def test_hash__thousands_of_entries_found_and_deleted() -> None:
    device = P4Device(1)
    device.load(mini())
    addresses = [(i * 2654435761) % (1 << 32) for i in range(9000)]
    for number, address in enumerate(addresses):
        action = ActionCall(FORWARD, ((1, canonical(number % 500 + 1)),))
        device.insert(TableEntry(BY_ADDR, (FieldMatch.lpm(1, canonical(address), 32),), action))
    for number, address in enumerate(addresses):
        assert device.process(1, frame(1, a=address))[0][0] == number % 500 + 1
    for address in addresses[::2]:
        device.delete(TableEntry(BY_ADDR, (FieldMatch.lpm(1, canonical(address), 32),)))
    for number, address in enumerate(addresses):
        assert device.process(1, frame(1, a=address))[0][0] == (number % 500 + 1 if number % 2 else 509)


def test_priority__the_older_wins_among_equals() -> None:
    device = P4Device(1)
    device.load(mini())
    for port, low in ((5, b"\x01"), (6, b"\x02")):
        action = ActionCall(FORWARD, ((1, bytes([port])),))
        device.insert(TableEntry(BY_ACL, (FieldMatch.range(2, low, b"\x09"),), action, 7))
    assert [device.process(1, frame(9, c=c))[0][0] for c in (1, 2, 9)] == [5, 5, 5]
    device.insert(TableEntry(BY_ACL, (), ActionCall(FORWARD, ((1, b"\x07"),)), 8))
    assert device.process(1, frame(9, c=1))[0][0] == 7
