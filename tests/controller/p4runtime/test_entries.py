"""Entries by name: their text, what is refused, and what has to be written to end a difference."""

from types import SimpleNamespace

import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.entries import (
    Difference,
    compare,
    digest,
    find,
    number_text,
    to_bytes,
    updates_for,
    with_watch_ports,
)


def next_hop(catalog, usid=0xFCBBBB001301, port=3):
    return catalog.table_entry("usid_next", {"locator_usid": usid}, "forward", {"port": port})


def descriptions(updates, catalog):
    return [f"{p4r.Update.Type.Name(u.type)} {catalog.describe(u.entity)}" for u in updates]


# ---- text ---------------------------------------------------------------------------------------------------


def test_text__exact(srv6):
    assert str(next_hop(srv6)) == "usid_next locator_usid=0xfcbbbb001301 forward(port=3)"


def test_text__no_params(srv6):
    entry = srv6.table_entry("my_usid", {"locator_usid": 1}, "shift")
    assert str(entry) == "my_usid locator_usid=0x000000000001 shift()"


def test_text__lpm_default_and_groups(spray):
    entries = [
        spray.table_entry("route", {"dst_addr": (0xFD00_0001 << 96, 32)}, "spray", {"uplink_group": 1}),
        spray.table_entry("hash_seed", None, "set_hash_seed", {"seed": 0x3F2A90C1}),
        spray.group_entry("uplinks", {"uplink_group": 1}, 1),
        spray.member("uplink_selector", 3, "use_uplink", {"port": 3}),
        spray.group("uplink_selector", 1, {4: 4, 3: 3}),
    ]
    assert [str(e) for e in entries] == [
        "route dst_addr=fd00:1::/32 spray(uplink_group=1)",
        "hash_seed default set_hash_seed(seed=0x3f2a90c1)",
        "uplinks uplink_group=1 group(1)",
        "uplink_selector member 3: use_uplink(port=3)",
        "uplink_selector group 1: member 3 weight 1 watch 3, member 4 weight 1 watch 4",
    ]


def test_group__keeps_its_max_size_when_members_go(spray):
    """Test that the maximal size stays: a MODIFY that changed it would be refused.

    P4Runtime specification, "Action Profile Group Programming".
    """
    sizes = {
        spray.group("uplink_selector", 1, dict.fromkeys(ports, 1)).entity.action_profile_group.max_size
        for ports in ([], [4], [3, 4])
    }
    assert len(sizes) == 1 and sizes.pop() >= 2


def test_text__does_not_depend_on_padding_or_order(srv6):
    entity = p4r.Entity()
    entity.CopyFrom(next_hop(srv6).entity)
    entity.table_entry.match[0].exact.value = b"\0\0\xfc\xbb\xbb\x00\x13\x01"
    entity.table_entry.action.action.params[0].value = b"\0\0\0\x03"
    assert srv6.describe(entity) == next_hop(srv6)


def test_text__of_what_the_program_does_not_have(srv6):
    entity = p4r.Entity()
    entity.table_entry.table_id = 0x2000099
    entity.table_entry.priority = 7
    entity.table_entry.match.add(field_id=4).ternary.value = b"\x05"
    entity.table_entry.action.action.action_id = 9
    entity.table_entry.action.action.params.add(param_id=2, value=b"\x01")
    assert str(srv6.describe(entity)) == ("table 0x02000099 field4=0x5&&&0x0 priority=7 action 0x00000009(param2=0x1)")


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_text__of_any_bytes_a_switch_may_send(spray, data):
    entity = p4r.Entity()
    try:
        entity.ParseFromString(data)
    except DecodeError:
        return
    assert str(spray.describe(entity))


@pytest.mark.parametrize(
    ("value", "bits", "text"),
    [
        (3, 9, "3"),
        (511, 9, "511"),
        (512, 9, "0x200"),  # too wide: a switch may say anything, and it must not look like a port
        (1, 17, "0x00001"),
        (0xFD00 << 112, 128, "fd00::"),
        (1 << 128, 128, "0x1" + "0" * 32),
        (5, 0, "0x5"),
    ],
)
def test_number__by_width(value, bits, text):
    assert number_text(value, bits) == text


@given(st.integers(min_value=0, max_value=1 << 130))
def test_bytes__are_canonical(value):
    data = to_bytes(value)
    assert int.from_bytes(data, "big") == value
    assert data == b"\0" or data[0] != 0


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("usid_nxt", {}, "forward", {}), "no table 'usid_nxt' (has: SwitchIngress.admit.punt, "),
        (("usid_next", {"locator_usid": 1}, "x", {}), "usid_next: no action 'x' (has: SwitchIngress.transit.forward, "),
        (("usid_next", {"x": 1}, "forward", {"port": 1}), "usid_next: no match field 'x' (has: locator_usid)"),
        (("usid_next", {}, "forward", {"port": 1}), "usid_next: no value for match field locator_usid"),
        (("usid_next", {"locator_usid": 1}, "forward", {}), "usid_next: forward: parameter 'port' is missing"),
        (
            ("usid_next", {"locator_usid": 1}, "forward", {"port": 1, "vlan": 2}),
            "usid_next: forward: no parameter 'vlan' (has: port)",
        ),
        (
            ("usid_next", {"locator_usid": 1 << 48}, "forward", {"port": 1}),
            "usid_next: locator_usid = 281474976710656: does not fit 48 bits",
        ),
        (
            ("usid_next", {"locator_usid": 1}, "forward", {"port": 512}),
            "usid_next: forward: port = 512: does not fit 9 bits",
        ),
    ],
)
def test_table_entry__refused_by_name(srv6, call, message):
    with pytest.raises(InputError) as caught:
        srv6.table_entry(*call)
    assert message in str(caught.value)


def test_group_entry__needs_a_selector(srv6):
    with pytest.raises(InputError, match="my_usid: has no action profile"):
        srv6.group_entry("my_usid", {"locator_usid": 1}, 1)


def test_member__of_no_profile(spray):
    with pytest.raises(InputError, match=r"no action profile 'x' \(has: SwitchIngress.choice.uplink_selector\)"):
        spray.member("x", 1, "use_uplink", {"port": 1})


def test_find__by_name_alias_or_last_part_when_only_one_has_it():
    items = [SimpleNamespace(name="A.x.forward", alias="x.forward"), SimpleNamespace(name="A.y.forward")]
    for name in ("A.x.forward", "x.forward"):
        assert find("action", name, items, "") is items[0]
    assert find("action", "y.forward", items, "") is items[1]
    with pytest.raises(InputError, match=r"t: action 'forward' is ambiguous \(has: A.x.forward, A.y.forward\)"):
        find("action", "forward", items, "t: ")


# ---- differences --------------------------------------------------------------------------------------------


def test_compare__missing_wrong_and_too_much(srv6):
    plan = [next_hop(srv6, 1, 1), next_hop(srv6, 2, 2)]
    switch = [next_hop(srv6, 2, 9), next_hop(srv6, 3, 3)]
    differences = compare(plan, switch)
    assert [str(d) for d in differences] == [
        "usid_next locator_usid=0x000000000001 is missing (plan: forward(port=1))",
        "usid_next locator_usid=0x000000000002 is forward(port=9) (plan: forward(port=2))",
        "usid_next locator_usid=0x000000000003 forward(port=3) is not in the plan",
    ]
    assert descriptions(updates_for(differences), srv6) == [
        "DELETE usid_next locator_usid=0x000000000003 forward(port=3)",
        "INSERT usid_next locator_usid=0x000000000001 forward(port=1)",
        "MODIFY usid_next locator_usid=0x000000000002 forward(port=2)",
    ]


def test_compare__equal_is_nothing_to_do(srv6):
    assert compare([next_hop(srv6)], [next_hop(srv6)]) == []
    assert updates_for([]) == []


def test_watch_ports__that_pi_does_not_tell_are_those_that_were_written(spray):
    """Every member comes back with the port of the last; nothing but that is taken for what was written."""
    written_group = spray.group("uplink_selector", 1, {3: 3, 4: 4, 5: 5})
    member = spray.member("uplink_selector", 3, "use_uplink", {"port": 3})
    read_group = spray.group("uplink_selector", 1, {3: 5, 4: 5, 5: 5})
    assert compare([written_group], [read_group]) and with_watch_ports([member, read_group], [written_group]) == [
        member,
        written_group,
    ]
    for foreign_group in (
        spray.group("uplink_selector", 1, {3: 9, 4: 9, 5: 9}),
        spray.group("uplink_selector", 1, {3: 3, 4: 5, 5: 5}),
        spray.group("uplink_selector", 1, {3: 4, 4: 4}),
        spray.group("uplink_selector", 2, {3: 5, 4: 5, 5: 5}),
    ):
        assert with_watch_ports([foreign_group], [written_group]) == [foreign_group]
    fewer = spray.group("uplink_selector", 1, {3: 3, 4: 4})
    assert with_watch_ports([read_group], [fewer, written_group]) == [written_group], (
        "what was written before, or what is about to be"
    )


def test_updates__members_before_groups_before_tables_and_back(spray):
    new_entries = [
        spray.group_entry("uplinks", {"uplink_group": 1}, 1),
        spray.group("uplink_selector", 1, {3: 3}),
        spray.table_entry("hash_seed", None, "set_hash_seed", {"seed": 1}),
        spray.member("uplink_selector", 3, "use_uplink", {"port": 3}),
    ]
    old_entries = [
        spray.member("uplink_selector", 7, "use_uplink", {"port": 7}),
        spray.group("uplink_selector", 2, {7: 7}),
        spray.group_entry("uplinks", {"uplink_group": 2}, 2),
        spray.table_entry("hash_seed", None, "set_hash_seed", {"seed": 0}),
    ]
    assert descriptions(updates_for(compare(new_entries, old_entries)), spray) == [
        "DELETE uplinks uplink_group=2 group(2)",
        "INSERT uplink_selector member 3: use_uplink(port=3)",
        "INSERT uplink_selector group 1: member 3 weight 1 watch 3",
        "INSERT uplinks uplink_group=1 group(1)",
        "MODIFY hash_seed default set_hash_seed(seed=0x00000001)",
        "DELETE uplink_selector group 2: member 7 weight 1 watch 7",
        "DELETE uplink_selector member 7: use_uplink(port=7)",
    ]


def test_updates__a_default_entry_is_always_there(spray):
    seed = spray.table_entry("hash_seed", None, "set_hash_seed", {"seed": 1})
    (update,) = updates_for([Difference(None, seed)])
    assert update.type == p4r.Update.MODIFY


def test_digest__of_the_set(srv6):
    first, second = next_hop(srv6, 1), next_hop(srv6, 2)
    assert digest([first, second]) == digest([second, first]) != digest([first])
    assert len(digest([])) == 16


def test_wildcards__every_table_and_profile_and_the_defaults_we_set(spray, srv6):
    seed = spray.table_entry("hash_seed", None, "set_hash_seed", {"seed": 1})
    entities = spray.wildcards([seed])
    tables = len(spray.schema.tables)
    kinds = [e.WhichOneof("entity") for e in entities]
    assert kinds == ["table_entry"] * (tables + 1) + ["action_profile_member", "action_profile_group"]
    assert [e.table_entry.is_default_action for e in entities[: tables + 1]] == [False] * tables + [True]
    assert len(srv6.wildcards([])) == len(srv6.schema.tables)
