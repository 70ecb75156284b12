"""The in-memory door and the device's state, with the hand-written program."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import (
    ActionCall,
    CounterData,
    FieldMatch,
    Group,
    GroupMember,
    GroupRef,
    MemberRef,
    ProfileMember,
    TableEntry,
    TableError,
)
from mrc_testbed.switch.device.native import RUNTIME_DIR
from mrc_testbed.switch.device.port_numbers import CPU_PORT
from mrc_testbed.switch.device.schema import canonical
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import build_shared
from tests.switch.mini_program import (
    BY_ACL,
    BY_ADDR,
    BY_BOTH,
    BY_HASH,
    BY_MAC,
    BY_PORT,
    COPY_WIDE,
    CUT,
    DROP,
    FORWARD,
    POP,
    PUSH,
    SEEN_REGISTER,
    SPRAY,
    frame,
    mini,
)


@pytest.fixture
def device() -> P4Device:
    device = P4Device(1, "mini-switch")
    device.load(mini())
    return device


def call(action_id: int, *values: int) -> ActionCall:
    return ActionCall(action_id, tuple((i, canonical(v)) for i, v in enumerate(values, 1)))


def by_mac(dst: int, action: ActionCall | None, **fields: object) -> TableEntry:
    return TableEntry(BY_MAC, (FieldMatch.exact(1, dst.to_bytes(6, "big")),), action, **fields)


def by_hash(c: int, action: ActionCall | MemberRef | GroupRef) -> TableEntry:
    return TableEntry(BY_HASH, (FieldMatch.exact(1, bytes([c])),), action)


# ---- packets ----------------------------------------------------------------------------------------------------


def test_process__actions_reach_the_frame(device: P4Device) -> None:
    plain = frame(0, payload=b"0123456789")
    device.insert(by_mac(1, call(PUSH, 7, 0x8123)))
    [(port, tagged_frame)] = device.process(3, plain)
    assert (port, tagged_frame) == (7, plain[:12] + b"\x81\x00\x81\x23" + plain[12:])
    device.modify(by_mac(1, call(POP, 8)))
    assert device.process(3, plain) == [(8, plain[:12] + plain[16:])]
    device.modify(by_mac(1, call(CUT, 9, 25)))
    assert device.process(3, plain) == [(9, plain[:25])]
    device.modify(by_mac(1, call(COPY_WIDE, 0xAB_0000_0000_0000_00CD)))
    assert device.process(3, plain) == [(3, plain[:21] + b"\xcd" + plain[22:])]
    device.modify(by_mac(1, call(DROP)))
    assert device.process(3, plain) == []
    device.modify(by_mac(1, call(FORWARD, CPU_PORT)))
    assert device.process(3, plain) == [(510, plain)]


def test_process__hostile_frames_never_crash(device: P4Device) -> None:
    rng = random.Random(1)
    device.insert(by_mac(1, call(PUSH, 7, 1)))
    for length in [*range(64), 1500, 9216, 16380, 16384, 16385, 20000]:
        data = rng.randbytes(length)
        device.process(1, data)
        device.process(1, (frame(rng.randrange(6)) + data)[:length])
    assert device.process(1, frame(0, payload=bytes(16384 - 22))) == []  # with 4 bytes more it is too long
    assert device.stats().dropped_size >= 3
    with pytest.raises(ValueError, match="511"):
        device.process(511, b"")


def test_stats__every_frame_is_somewhere(device: P4Device) -> None:
    for _ in range(3):
        device.process(1, frame(0))
    device.process(1, frame(1))
    stats = device.stats()
    assert (stats.received, stats.sent, stats.dropped_ingress) == (4, 1, 3)


def test_spin__counts_as_traffic(device: P4Device) -> None:
    assert device.spin(1, frame(1), 1000) > 0
    assert device.stats().received == 1000


# ---- programs -----------------------------------------------------------------------------------------------------


def test_without_program__everything_is_dropped_and_refused() -> None:
    device = P4Device(1, "empty")
    assert device.process(1, frame(0)) == []
    with pytest.raises(TableError, match="empty: no program is loaded") as caught:
        device.insert(by_mac(1, call(DROP)))
    assert caught.value.code == "FAILED_PRECONDITION"


def test_load__again_begins_afresh_and_unload_forgets(device: P4Device) -> None:
    device.insert(by_mac(1, call(FORWARD, 1)))
    device.process(1, frame(0))
    device.load(mini())
    assert list(device.read(BY_MAC)) == []
    assert device.stats().received == 0
    device.unload()
    assert device.process(1, frame(1)) == []
    device.close()
    device.close()


def test_load__a_bad_library_leaves_the_old_program(device: P4Device, tmp_path: Path) -> None:
    device.insert(by_mac(1, call(FORWARD, 1)))
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;\n")
    stale = tmp_path / "stale.c"
    stale.write_text('#include "p4rt.h"\nconst struct p4_program p4_program = {.abi = 999, .name = "stale"};\n')
    for library, reason in (
        (tmp_path / "missing.so", "missing.so"),
        (build_shared([empty], tag="test"), "exports no p4_program"),
        (build_shared([stale], [RUNTIME_DIR], tag="test"), "compile it again"),
    ):
        with pytest.raises(TableError, match=reason):
            device.load(SimpleNamespace(name="other", library=library, p4info=mini().p4info))
    p4info = mini().p4info.__class__()
    p4info.CopyFrom(mini().p4info)
    p4info.tables[0].match_fields[0].bitwidth = 64
    with pytest.raises(TableError, match="8 bytes in P4Info but 6 in the compiled program"):
        device.load(SimpleNamespace(name="other", library=mini().library, p4info=p4info))
    assert device.process(2, frame(0)) == [(1, frame(0))]


def test_build__failures_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int x = ;\n")
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(BuildError, match=r"bad\.c:1:9"):
        build_shared([source])
    assert list((tmp_path / "cache").iterdir()) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="apt-get install gcc"):
        build_shared([source])


# ---- entries ---------------------------------------------------------------------------------------------------------


def by_addr(*matches: FieldMatch) -> TableEntry:
    return TableEntry(BY_ADDR, matches, call(FORWARD, 1))


def by_acl(*matches: FieldMatch, priority: int = 1) -> TableEntry:
    return TableEntry(BY_ACL, matches, call(FORWARD, 1), priority)


EXACT, LPM, TERNARY, RANGE = FieldMatch.exact, FieldMatch.lpm, FieldMatch.ternary, FieldMatch.range
MAC_5 = (EXACT(1, b"\5"),)

BAD_ENTRIES = {
    "unknown table": (TableEntry(0x0200_0099), "no table with id .*by_mac 0x2000001"),
    "no action": (by_mac(1, None), "by_mac: an entry needs an action"),
    "unknown action": (by_mac(1, call(99)), r"by_mac: no action with id 99 \(has: copy_wide, cut"),
    "missing parameter": (by_mac(1, call(PUSH, 1)), "push has the parameters port 1, tag 2; got 1"),
    "wide parameter": (by_mac(1, call(FORWARD, 512)), "OUT_OF_RANGE: .*forward.port: 0x200 does not fit in 9 bits"),
    "empty value": (TableEntry(BY_MAC, (EXACT(1, b""),), call(DROP)), "by_mac.dst: .*empty byte string"),
    "wide key": (TableEntry(BY_MAC, (EXACT(1, b"\1" + bytes(6)),), call(DROP)), "OUT_OF_RANGE: by_mac.dst: .* 48 bits"),
    "exact left out": (TableEntry(BY_MAC, (), call(DROP)), "dst: is exact, so it must be given"),
    "wrong kind": (by_addr(EXACT(1, b"\1")), "a: is matched lpm, got exact"),
    "unknown field": (by_addr(EXACT(7, b"\1")), r"no match field 7 \(has: a 1\)"),
    "field twice": (by_addr(LPM(1, b"\0", 1), LPM(1, b"\0", 1)), "1 is given twice"),
    "prefix too long": (by_addr(LPM(1, b"\0", 33)), r"33 is not in 1\.\.32"),
    "prefix zero": (by_addr(LPM(1, b"\0", 0)), "leave the field out"),
    "bits outside prefix": (by_addr(LPM(1, b"\1", 8)), "bits outside the mask"),
    "mask zero": (by_acl(TERNARY(1, b"\0", b"\0")), "mask 0"),
    "range empty": (by_acl(RANGE(2, b"\2", b"\1")), "is empty"),
    "range full": (by_acl(RANGE(2, b"\0", b"\xff")), "leave the field"),
    "priority missing": (by_acl(priority=0), "needs a priority"),
    "priority too much": (by_mac(1, call(DROP), priority=3), "priority must be 0"),
    "default action elsewhere": (TableEntry(BY_ACL, (), call(DROP), 1), "PERMISSION_DENIED: .*drop is for the default"),
    "action for a profile": (by_hash(1, call(FORWARD, 1)), "takes its actions from spray"),
    "unknown member": (by_hash(1, MemberRef(5)), r"NOT_FOUND: .*no member 5 in spray \(has: none\)"),
    "member without profile": (TableEntry(BY_MAC, MAC_5, MemberRef(1)), "has no action profile"),
    "insert default": (TableEntry(BY_MAC, (), call(DROP), is_default=True), "only be modified"),
    "counter without one": (
        TableEntry(BY_ADDR, (LPM(1, b"\0", 8),), call(FORWARD, 1), counter=CounterData(1)),
        "no direct counter",
    ),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_insert__refusals_name_the_cause(device: P4Device, case: str) -> None:
    entry, message = BAD_ENTRIES[case]
    with pytest.raises(TableError) as caught:
        device.insert(entry)
    error_text = f"{caught.value.code}: {caught.value}"
    if not message.split(":")[0].isupper():
        message = f"INVALID_ARGUMENT: .*{message}"
    assert re.match(message, error_text)
    assert [e for e in device.read() if e.table_id != BY_BOTH] == []


def test_table_full__resource_exhausted(device: P4Device) -> None:
    device.insert_member(ProfileMember(SPRAY, 1, call(FORWARD, 1)))
    for c in range(8):
        device.insert(by_hash(c, MemberRef(1)))
    with pytest.raises(TableError, match="by_hash: has room for 8 entries") as caught:
        device.insert(by_hash(8, MemberRef(1)))
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_read__initial_entries_and_padded_values_come_back_canonical(device: P4Device) -> None:
    [built_in] = device.read(BY_BOTH)
    assert built_in.match == (FieldMatch.exact(1, b"\xee"), FieldMatch.lpm(2, b"\x0a\0\0\0", 8))
    assert device.process(1, frame(2, a=0x0A050505, c=0xEE))[0][0] == 9
    device.insert(TableEntry(BY_MAC, (FieldMatch.exact(1, bytes(9) + b"\x05"),), call(FORWARD, 0)))
    [entry] = device.read(BY_MAC)
    assert entry.match == (FieldMatch.exact(1, b"\x05"),)
    assert entry.action == ActionCall(FORWARD, ((1, b"\x00"),))


def test_default_entry__set_and_back_to_the_programs(device: P4Device) -> None:
    default = TableEntry(BY_MAC, is_default=True)
    device.modify(TableEntry(BY_MAC, (), call(FORWARD, 4), is_default=True))
    assert device.process(1, frame(0)) == [(4, frame(0))]
    assert device.read_one(default).action == call(FORWARD, 4)
    device.modify(default)
    assert device.process(1, frame(0)) == []
    with pytest.raises(TableError, match="by_addr: its default action is const") as caught:
        device.modify(TableEntry(BY_ADDR, (), call(FORWARD, 4), is_default=True))
    assert caught.value.code == "PERMISSION_DENIED"
    assert next(iter(device.read(BY_MAC, defaults=True))).is_default


def test_direct_counter__counts_sets_and_is_kept_by_modify(device: P4Device) -> None:
    device.insert(by_mac(1, call(FORWARD, 4)))
    for _ in range(3):
        device.process(1, frame(0))
    device.process(1, frame(0, dst=9))
    default, entry = device.read(BY_MAC, defaults=True)
    assert (default.counter, entry.counter) == (CounterData(1, 22), CounterData(3, 66))
    device.modify(by_mac(1, call(FORWARD, 5)))
    assert device.read_one(entry).counter == CounterData(3, 66)
    device.modify(by_mac(1, None, counter=CounterData(10, 100)))
    device.process(1, frame(0))
    assert device.read_one(entry).counter == CounterData(11, 122)
    assert device.read_one(entry).action == call(FORWARD, 5)


# ---- profiles ---------------------------------------------------------------------------------------------------


def hash_ports(device: P4Device, count: int = 200) -> list[int]:
    """Return the ports that frames with different source addresses leave by."""
    return [out[0][0] for src in range(count) if (out := device.process(1, frame(4, src=src, c=5)))]


def test_group__spreads_by_weight_and_leaves_out_dead_ports(device: P4Device) -> None:
    for member, port in ((1, 11), (2, 12), (3, 13)):
        device.insert_member(ProfileMember(SPRAY, member, call(FORWARD, port)))
    members = (GroupMember(1, 2, 11), GroupMember(2, 1, 12), GroupMember(3))
    device.insert_group(Group(SPRAY, 7, members, max_size=4))
    device.insert(by_hash(5, GroupRef(7)))
    ports = hash_ports(device)
    assert ports == hash_ports(device)
    assert 70 < ports.count(11) < 130 and 25 < ports.count(12) < 75 and 25 < ports.count(13) < 75
    device.set_port_up(11, False)
    assert set(hash_ports(device)) == {12, 13}
    device.set_port_up(12, False)
    assert set(hash_ports(device)) == {13}
    device.modify_member(ProfileMember(SPRAY, 3, call(FORWARD, 14)))
    assert set(hash_ports(device)) == {14}
    device.modify_group(Group(SPRAY, 7, members[:2], max_size=4))
    assert hash_ports(device) == []
    device.set_port_up(11, True)
    assert set(hash_ports(device)) == {11}
    assert list(device.read_groups(SPRAY)) == [Group(SPRAY, 7, members[:2], max_size=4)]
    assert [m.member_id for m in device.read_members()] == [1, 2, 3]
    assert [m.action for m in device.read_members(SPRAY, 3)] == [call(FORWARD, 14)]


def test_profile__what_is_in_use_cannot_go(device: P4Device) -> None:
    device.insert_member(ProfileMember(SPRAY, 1, call(FORWARD, 11)))
    device.insert_group(Group(SPRAY, 7, (GroupMember(1),)))
    device.insert(by_hash(5, GroupRef(7)))
    device.insert(by_hash(6, MemberRef(1)))
    for delete, argument in ((device.delete_member, ProfileMember(SPRAY, 1)), (device.delete_group, Group(SPRAY, 7))):
        with pytest.raises(TableError, match="in use") as caught:
            delete(argument)
        assert caught.value.code == "FAILED_PRECONDITION"
    device.delete(by_hash(5, GroupRef(7)))
    device.modify(by_hash(6, MemberRef(1)))
    device.delete_group(Group(SPRAY, 7))
    device.delete(by_hash(6, MemberRef(1)))
    device.delete_member(ProfileMember(SPRAY, 1))
    assert list(device.read_members()) == list(device.read_groups()) == []


@pytest.mark.parametrize(
    ("group", "code", "message"),
    [
        (Group(SPRAY, 0), "INVALID_ARGUMENT", "group id 0"),
        (Group(SPRAY, 1, (GroupMember(9),)), "NOT_FOUND", r"no member 9 \(has: 1\)"),
        (Group(SPRAY, 1, (GroupMember(1, 0),)), "INVALID_ARGUMENT", "weight 0"),
        (Group(SPRAY, 1, (GroupMember(1, 17),)), "RESOURCE_EXHAUSTED", "sum to 17, at most 16"),
        (Group(SPRAY, 1, (GroupMember(1, 3),), max_size=2), "RESOURCE_EXHAUSTED", "at most 2"),
        (Group(SPRAY, 1, (GroupMember(1, watch_port=511),)), "INVALID_ARGUMENT", "watch port 511"),
        (Group(SPRAY, 1, (GroupMember(1), GroupMember(1))), "INVALID_ARGUMENT", "given twice"),
        (Group(SPRAY, 1, max_size=17), "INVALID_ARGUMENT", r"max_size 17 is not in 0\.\.16"),
        (Group(5, 1), "INVALID_ARGUMENT", "no action profile with id 5"),
    ],
)
def test_group__refusals(device: P4Device, group: Group, code: str, message: str) -> None:
    device.insert_member(ProfileMember(SPRAY, 1, call(FORWARD, 11)))
    with pytest.raises(TableError, match=message) as caught:
        device.insert_group(group)
    assert caught.value.code == code
    assert list(device.read_groups()) == []


# ---- counters and registers -----------------------------------------------------------------------------------


def test_counter__counts_by_port_and_can_be_set(device: P4Device) -> None:
    device.process(3, frame(0))
    device.process(400, frame(0))  # beyond the counter's 16 cells: ignored
    assert device.read_counter(BY_PORT, 3) == [(3, CounterData(1, 22))]
    assert sum(c.packets for _, c in device.read_counter(BY_PORT)) == 1
    device.write_counter(BY_PORT, 6, CounterData(10, 0))
    assert [device.count_packets(BY_PORT, offset, cells) for offset, cells in ((0, {3, 5}), (1, {2, 5}), (4, ()))] == [
        1,
        11,
        0,
    ]
    with pytest.raises(TableError, match=r"by_port: index 16 is not in 0\.\.15"):
        device.count_packets(BY_PORT, 10, {1, 6})
    device.write_counter(BY_PORT, None, CounterData())
    assert device.read_counter(BY_PORT, 3) == [(3, CounterData())]
    with pytest.raises(TableError, match=r"by_port: index 16 is not in 0\.\.15") as caught:
        device.read_counter(BY_PORT, 16)
    assert caught.value.code == "OUT_OF_RANGE"


def test_register__wide_cells(device: P4Device) -> None:
    device.write_register(SEEN_REGISTER, 2, (1 << 128) - 2)
    device.process(1, frame(5, c=2))
    device.process(1, frame(5, c=200))
    assert device.read_register(SEEN_REGISTER) == [(0, 0), (1, 0), (2, (1 << 128) - 1), (3, 0)]
    with pytest.raises(TableError, match="does not fit in 128 bits"):
        device.write_register(SEEN_REGISTER, 0, 1 << 128)
