"""The tutorials' sX-runtime.json: values of all kinds, and mistakes by entry."""

import json

import pytest
from finsy.proto import p4i, p4r

from mrc_testbed.topologies.p4lab.entries import EntriesError, ProgramNames, read_entries, updates_of

KINDS = p4i.MatchField


@pytest.fixture
def info():
    """Return a program with a table of each kind of key."""
    out = p4i.P4Info()
    forward = out.actions.add()
    forward.preamble.id, forward.preamble.name = 1, "I.forward"
    forward.params.add(id=1, name="mac", bitwidth=48)
    forward.params.add(id=2, name="port", bitwidth=9)
    drop = out.actions.add()
    drop.preamble.id, drop.preamble.name = 2, "I.drop"
    keys = {"route": [("dst", KINDS.LPM, 32)], "acl": [("a", KINDS.TERNARY, 16), ("b", KINDS.RANGE, 8)]}
    keys |= {"mac": [("dst", KINDS.EXACT, 48), ("port", KINDS.EXACT, 9)], "pick": [("dst", KINDS.EXACT, 32)]}
    for number, (name, fields) in enumerate(keys.items(), 10):
        table = out.tables.add()
        table.preamble.id, table.preamble.name = number, f"I.{name}"
        for field_id, (field, kind, bits) in enumerate(fields, 1):
            table.match_fields.add(id=field_id, name=field, match_type=kind, bitwidth=bits)
        table.action_refs.add(id=1)
        table.action_refs.add(id=2)
    out.tables[3].implementation_id = 99
    return out


def entry(**fields):
    return {"table": "I.route", "action_name": "I.drop", **fields}


FORWARD = {"action_name": "I.forward", "action_params": {"mac": "08:00:00:00:01:11", "port": 3}}


def test_table_entry__has_the_values_of_its_words(info):
    ((update,), mistakes) = updates_of({"table_entries": [entry(match={"dst": ["10.0.1.0", 24]}, **FORWARD)]}, info)
    assert (mistakes, update.type) == ([], p4r.Update.INSERT)
    table_entry = update.entity.table_entry
    assert (table_entry.match[0].lpm.value, table_entry.match[0].lpm.prefix_len) == (b"\n\x00\x01\x00", 24)
    assert [param.value for param in table_entry.action.action.params] == [b"\x08\x00\x00\x00\x01\x11", b"\x03"]
    assert ProgramNames(info).entry_text(update.entity) == (
        "I.route dst=0xa000100/24 -> I.forward(mac=0x80000000111, port=0x3)"
    )


def test_default_action__is_a_modify(info):
    ((update,), mistakes) = updates_of({"table_entries": [entry(default_action=True)]}, info)
    assert (mistakes, update.type, update.entity.table_entry.is_default_action) == ([], p4r.Update.MODIFY, True)


def test_ternary_and_range_keys__are_pairs_with_a_priority(info):
    match = {"a": ["0x10", "0xf0"], "b": [1, 5]}
    ((update,), mistakes) = updates_of({"table_entries": [entry(table="acl", match=match, priority=7)]}, info)
    first, second = update.entity.table_entry.match
    assert (mistakes, first.ternary.mask, second.range.high) == ([], b"\xf0", b"\x05")


def test_action_set__is_a_one_shot_with_watch_ports(info):
    records = [{**FORWARD, "watch_port": 300}, {**FORWARD, "weight": 2}]
    record = {"table": "pick", "match": {"dst": "10.0.0.1"}, "action_set": records}
    ((update,), mistakes) = updates_of({"table_entries": [record]}, info)
    first, second = update.entity.table_entry.action.action_profile_action_set.action_profile_actions
    assert (mistakes, first.watch_port, second.weight, second.watch_port) == ([], b"\x01\x2c", 2, b"")


def test_groups_and_sessions__are_inserted(info):
    replicas = [{"egress_port": 1, "instance": 1}, {"egress_port": 2}]
    data = {
        "multicast_group_entries": [{"multicast_group_id": 5, "replicas": replicas}],
        "clone_session_entries": [{"clone_session_id": 6, "replicas": replicas, "packet_length_bytes": 64}],
    }
    (group, session), mistakes = updates_of(data, info)
    assert mistakes == []
    assert len(group.entity.packet_replication_engine_entry.multicast_group_entry.replicas) == 2
    assert session.entity.packet_replication_engine_entry.clone_session_entry.packet_length_bytes == 64


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (entry(table="I.rout"), "no table 'I.rout' (did you mean I.route"),
        (entry(action_name="nix"), "no action of I.route 'nix' (has: I.forward, I.drop)"),
        (entry(match={"src": 1}), "I.route: no key 'src' (has: dst)"),
        (entry(match={"dst": "10.0.0.1"}), "wants a list of a value and a prefix length"),
        (entry(match={"dst": ["10.0.0.300", 8]}), "'10.0.0.300': wants a number or an address"),
        (entry(action_name="forward", action_params={"port": 1}), "parameter mac has no value"),
        (entry(action_params={"port": 1}), "I.drop: no parameter 'port'"),
        (entry(action_name="forward", action_params={"mac": 1, "port": 512}), "port = 512: does not fit 9 bits"),
        (entry(default_action=True, match={"dst": [1, 2]}), "default_action stands without match"),
        (entry(table="acl", match={"b": [1, 2]}), "its keys need a priority"),
        (entry(table="mac", match={"dst": 1}), "exact key port has no value"),
        (entry(action_set=[]), "I.route: has no action selector"),
        ({"action_name": "I.drop"}, "wants an object with table"),
        (entry(priority=True), "priority = True: wants a whole number"),
    ],
)
def test_mistake__names_entry_and_cure(tmp_path, info, record, message):
    path = tmp_path / "s1-runtime.json"
    path.write_text(json.dumps({"target": "bmv2", "table_entries": [entry(match={"dst": [1, 32]}), record]}))
    with pytest.raises(EntriesError) as error:
        read_entries(path, info)
    assert f"{path}: table_entries[1]: " in str(error.value)
    assert message in str(error.value)


def test_file__is_refused_by_line_or_key(tmp_path, info):
    path = tmp_path / "s1-runtime.json"
    for text, message in (
        ("{,}", ":1:2: not JSON"),
        ("[]", "wants an object"),
        ('{"target": 1, "x": []}', "x: unknown"),
    ):
        path.write_text(text)
        with pytest.raises(EntriesError, match=message):
            read_entries(path, info)


def test_lack__names_table_and_action_of_the_old_program(info):
    (update,), _ = updates_of({"table_entries": [entry(match={"dst": [1, 32]})]}, info)
    names, next_info = ProgramNames(info), p4i.P4Info()
    next_info.CopyFrom(info)
    assert names.lack(update.entity, next_info) is None
    del next_info.actions[1]
    assert names.lack(update.entity, next_info) == "the new program has no action I.drop"
    del next_info.tables[:]
    assert names.lack(update.entity, next_info) == "the new program has no table I.route"
