"""Idle timeouts: time since the last hit, and the client notified of idle entries.

Source: P4Runtime, "Idle-timeout".
"""

from __future__ import annotations

import asyncio

import pytest
from finsy.proto import p4r

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, TableEntry, TableError
from tests.switch.mini_program import BY_ACL, BY_ADDR, BY_MAC, DROP, FORWARD, frame, mini
from tests.switch.server.p4runtime_entities import entries_of, insert, mac_entry, modify
from tests.switch.server.running_server import mini_config, primary_of, running_daemon, use_mini_program

MS = 1_000_000


def entry(number: int, timeout_ns: int = 0) -> TableEntry:
    action = ActionCall(FORWARD, ((1, b"\7"),))
    return TableEntry(BY_MAC, (FieldMatch.exact(1, bytes([number])),), action, idle_timeout_ns=timeout_ns)


@pytest.fixture
def device() -> P4Device:
    """Return a device under a virtual clock, at 0."""
    device = P4Device(1, "s1")
    device.load(mini())
    device.advance(0)
    return device


def idle_destinations(device: P4Device) -> tuple[list[int], float | None]:
    entries, wait_s = device.take_idle()
    return [idle_entry.match[0].value[0] for idle_entry in entries], wait_s


def test_idle__told_once_per_timeout_and_not_while_packets_hit(device: P4Device) -> None:
    device.insert(entry(1, 10 * MS))
    device.insert(entry(2, 25 * MS))
    device.insert(entry(3))
    assert idle_destinations(device) == ([], 0.010)
    device.advance(10 * MS - 1000)
    assert idle_destinations(device) == ([], 0.000001)
    device.advance(10 * MS)
    assert idle_destinations(device) == ([1], 0.010)
    device.inject(1, frame(0, dst=1), 15 * MS)
    device.advance(20 * MS)
    assert idle_destinations(device) == ([], 0.005)
    device.advance(25 * MS)
    assert idle_destinations(device) == ([1, 2], 0.010)
    device.modify(entry(1))
    device.delete(entry(2))
    assert idle_destinations(device) == ([], None)


def test_time_since_last_hit__from_the_insertion_or_the_hit(device: P4Device) -> None:
    device.advance(3 * MS)
    device.insert(entry(1))
    device.advance(5 * MS)
    assert device.read_one(entry(1)).idle_ns == 2 * MS
    device.inject(1, frame(0, dst=1), 6 * MS)
    device.advance(7 * MS)
    device.modify(entry(1, 9 * MS))
    modified_entry = device.read_one(entry(1))
    assert (modified_entry.idle_ns, modified_entry.idle_timeout_ns) == (1 * MS, 9 * MS)
    assert device.read_one(TableEntry(BY_MAC, is_default=True)).idle_ns is None


def test_refusals__by_name(device: P4Device) -> None:
    default = TableEntry(BY_MAC, (), ActionCall(DROP), is_default=True, idle_timeout_ns=1)
    entry_without_timeouts = TableEntry(BY_ADDR, (FieldMatch.lpm(1, b"\1", 32),), entry(1).action, idle_timeout_ns=1)
    for call, bad_entry, words in (
        (device.modify, default, "a default entry has no idle timeout"),
        (device.insert, entry_without_timeouts, "without support_timeout"),
        (device.insert, entry(1, -1), "not in 0"),
    ):
        with pytest.raises(TableError, match=words) as caught:
            call(bad_entry)
        assert caught.value.code == "INVALID_ARGUMENT"


def test_support_timeout__of_a_compiled_program() -> None:
    program = compile_program(
        """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; }
struct headers_t { h_t h; }
struct metadata_t { }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { b.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    table timed { key = { h.h.a : exact; } actions = { NoAction; } support_timeout = true; }
    table plain { key = { h.h.a : exact; } actions = { NoAction; } support_timeout = false; }
    apply { timed.apply(); plain.apply(); s.egress_spec = 1; }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
    )
    timed_table, plain_table = program.p4info.tables
    assert (
        timed_table.idle_timeout_behavior == timed_table.NOTIFY_CONTROL
        and plain_table.idle_timeout_behavior == plain_table.NO_TIMEOUT
    )
    device = P4Device(1)
    device.load(program)
    device.advance(0)
    action = ActionCall(timed_table.action_refs[0].id)
    device.insert(TableEntry(timed_table.preamble.id, (FieldMatch.exact(1, b"\5"),), action, idle_timeout_ns=MS))
    for time_ms in range(1, 4):
        device.inject(1, b"\5", time_ms * MS - 1000)
        device.advance(time_ms * MS)
        assert device.take_idle()[0] == []
    device.advance(4 * MS)
    assert [idle_entry.table_id for idle_entry in device.take_idle()[0]] == [timed_table.preamble.id]


def test_server__notifies_the_primary_and_reads_the_times(monkeypatch) -> None:
    use_mini_program(monkeypatch)

    async def check() -> None:
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            idle_entry = mac_entry(b"\1", idle_timeout_ns=12 * MS, metadata=b"who", controller_metadata=7)
            await client.write(
                insert(idle_entry), insert(mac_entry(b"\2", idle_timeout_ns=10**15)), insert(mac_entry(b"\3"))
            )
            for _ in range(2):
                note = (await client.next_message()).idle_timeout_notification
                assert note.timestamp > 0 and [
                    table_entry.match[0].exact.value for table_entry in note.table_entry
                ] == [b"\1"]
                (notified_entry,) = note.table_entry
                assert (
                    notified_entry.idle_timeout_ns,
                    notified_entry.metadata,
                    notified_entry.controller_metadata,
                ) == (12 * MS, b"who", 7)
            (plain,) = await client.read(entries_of(BY_MAC, match=idle_entry.table_entry.match))
            assert plain == idle_entry  # read-write symmetry
            query = entries_of(0, time_since_last_hit=p4r.TableEntry.IdleTimeout())
            read = [entity.table_entry for entity in await client.read(query)]
            has_times = [read_entry.HasField("time_since_last_hit") for read_entry in read]
            assert has_times == [read_entry.table_id == BY_MAC for read_entry in read]
            reread = next(read_entry for read_entry in read if read_entry.match == idle_entry.table_entry.match)
            assert reread.time_since_last_hit.elapsed_ns > 0
            await client.write(modify(mac_entry(b"\1")))
            assert (await client.read(entries_of(BY_MAC)))[0].table_entry.idle_timeout_ns == 0
            for bad_query in (
                entries_of(BY_ACL, time_since_last_hit=p4r.TableEntry.IdleTimeout()),
                entries_of(BY_MAC, is_default_action=True, time_since_last_hit=p4r.TableEntry.IdleTimeout()),
            ):
                with pytest.raises(Exception, match="has no idle timeouts"):
                    await client.read(bad_query)

    asyncio.run(check())
