"""The event loop on real interfaces: veth pairs in a network namespace of the test's own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest

from mrc_testbed.switch.device.entities import (
    ActionCall,
    FieldMatch,
    Group,
    GroupMember,
    GroupRef,
    ProfileMember,
    TableEntry,
)
from mrc_testbed.switch.device.loop import PacketIn, PortError, PortEvent
from mrc_testbed.switch.device.port_numbers import CPU_PORT
from tests.switch.device.cabled_ports import Bench, Peer, ip, make_link, namespace  # noqa: F401
from tests.switch.mini_program import BY_ADDR, BY_HASH, BY_MAC, FORWARD, SPRAY, frame

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network interfaces: run as root"),
]


@pytest.fixture
def bench(namespace: None) -> Iterator[Bench]:  # noqa: F811
    with contextlib.closing(Bench()) as bench:
        yield bench


def test_forward__every_size_arrives_unchanged(bench: Bench) -> None:
    bench.route(1, 2)
    for size in (0, 1, 100, 4192, 4264, 4265, 5000, 9208):  # 4286 bytes of frame fill a slot; more goes the long way
        sent = frame(0, payload=os.urandom(size))
        bench.peers[1].send(sent)
        assert bench.peers[2].receive() == sent


def test_forward__bursts_in_order(bench: Bench) -> None:
    bench.route(1, 2)
    for burst in range(20):
        for number in range(30):
            bench.peers[1].send(frame(0, b=burst * 30 + number))
        got = [int.from_bytes(bench.peers[2].receive()[19:21], "big") for _ in range(30)]
        assert got == list(range(burst * 30, burst * 30 + 30))
    stats = bench.loop.ports(bench.device)
    assert (stats[1].rx_packets, stats[2].tx_packets, stats[2].tx_bytes) == (600, 600, 600 * 22)


def test_receive__vlan_tag_is_put_back(bench: Bench) -> None:
    bench.route(1, CPU_PORT)
    plain_frame = frame(0, payload=b"p" * 60)
    tagged_frame = (
        plain_frame[:12] + b"\x81\x00\x00\x05" + plain_frame[12:]
    )  # the program reads the tag's first byte as op 0
    bench.peers[1].send(tagged_frame)
    assert bench.wait_event(lambda e: isinstance(e, PacketIn)) == PacketIn(7, tagged_frame)


def test_packet_in__frames_for_the_cpu_port_and_packet_out(bench: Bench) -> None:
    bench.route(1, CPU_PORT)
    bench.peers[1].send(frame(0, payload=b"to the controller"))
    event = bench.wait_event(lambda e: isinstance(e, PacketIn))
    assert event == PacketIn(7, frame(0, payload=b"to the controller"))
    bench.route(2, 3)
    bench.loop.inject(bench.device, frame(0, dst=2, payload=b"out"))
    assert bench.peers[3].receive() == frame(0, dst=2, payload=b"out")
    bench.loop.send(bench.device, 2, b"x" * 60)
    assert bench.peers[2].receive() == b"x" * 60


def test_link_cut__port_goes_down_and_works_again(bench: Bench) -> None:
    bench.route(1, 2)
    while len(bench.received_events) < 3:  # the first reports
        bench.wait_event(lambda e: isinstance(e, PortEvent))
    assert sorted((e.port, e.is_up) for e in bench.received_events if isinstance(e, PortEvent)) == [
        (1, True),
        (2, True),
        (3, True),
    ]
    ip("link", "set", "h2", "down")  # the far end: ours loses its carrier
    event = bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2)
    assert (event.interface, event.is_up, event.admin_up) == ("s2", False, True)
    bench.peers[1].send(frame(0))  # lost on the cut cable
    ip("link", "set", "s1", "down")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 1 and not e.admin_up)
    ip("link", "set", "s1", "up")
    ip("link", "set", "h2", "up")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and e.is_up)
    bench.peers[2] = Peer("h2")
    bench.peers[1].send(frame(0, payload=b"again"))
    assert bench.peers[2].receive() == frame(0, payload=b"again")
    assert bench.loop.ports(bench.device)[2].tx_down == 1


def test_interface_deleted__port_waits_for_its_name(bench: Bench) -> None:
    bench.route(1, 2)
    ip("link", "del", "s2")
    removal = bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and not e.ifindex)
    assert not removal.is_up
    bench.peers[1].send(frame(0))
    make_link("s2", "h2")
    return_event = bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and e.is_up)
    assert return_event.ifindex != removal.ifindex
    bench.peers[2] = Peer("h2")
    bench.peers[1].send(frame(0, payload=b"new cable"))
    assert bench.peers[2].receive() == frame(0, payload=b"new cable")


def test_watch_port__group_member_leaves_with_its_link(bench: Bench) -> None:
    for member, port in ((1, 2), (2, 3)):
        bench.device.insert_member(ProfileMember(SPRAY, member, ActionCall(FORWARD, ((1, bytes([port])),))))
    members = (GroupMember(1, watch_port=2), GroupMember(2, watch_port=3))
    bench.device.insert_group(Group(SPRAY, 1, members))
    bench.device.insert(TableEntry(BY_HASH, (FieldMatch.exact(1, b"\x05"),), GroupRef(1)))
    ip("link", "set", "s2", "down")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and not e.is_up)
    for src in range(40):
        bench.peers[1].send(frame(4, src=src, c=5))
    assert [int.from_bytes(bench.peers[3].receive()[6:12], "big") for _ in range(40)] == list(range(40))
    ip("link", "set", "s2", "up")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and e.is_up)


def test_restart__a_device_loses_its_state_and_others_do_not(bench: Bench) -> None:
    bench.route(1, 2)
    bench.peers[1].send(frame(0))
    assert bench.peers[2].receive() == frame(0)
    bench.loop.detach(bench.device)
    bench.device.unload()
    bench.peers[1].send(frame(0))
    bench.power_on()
    assert list(bench.device.read()) == [e for e in bench.device.read() if e.table_id != BY_MAC]
    assert bench.device.stats().received == 0
    bench.route(1, 3)
    bench.peers[1].send(frame(0, payload=b"fresh"))
    assert bench.peers[3].receive() == frame(0, payload=b"fresh")


def test_table_writes__while_packets_flow(bench: Bench) -> None:
    bench.route(1, 2)
    stop = threading.Event()

    def rewrite() -> None:
        entry = TableEntry(BY_ADDR, (FieldMatch.lpm(1, b"\x0a\x00\x00\x00", 8),), ActionCall(FORWARD, ((1, b"\x02"),)))
        while not stop.is_set():
            bench.device.insert(entry)
            bench.device.delete(entry)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(50):
            for number in range(20):
                bench.peers[1].send(frame(1 if number % 2 else 0, a=0x0A000001, b=number))
            got = 0
            while got < 10:  # those by MAC always arrive, the others when the entry happens to be there
                got += bench.peers[2].receive()[14] == 0
    finally:
        stop.set()
        writer.join()
    assert bench.device.stats().received == 1000


def test_add_port__refusals_name_cause_and_cure(bench: Bench) -> None:
    with pytest.raises(PortError, match="mini-switch: port 4: nosuch0: no such interface"):
        bench.loop.add_port(bench.device, 4, "nosuch0")
    with pytest.raises(PortError, match="taken already"):
        bench.loop.add_port(bench.device, 1, "s1")
    with pytest.raises(PortError, match="1 to 15 characters"):
        bench.loop.add_port(bench.device, 4, "x" * 16)
    with pytest.raises(PortError, match="numbered"):
        bench.loop.add_port(bench.device, 511, "s1")
    with pytest.raises(PortError, match=r"no port 9 \(has: 1, 2, 3\)"):
        bench.loop.send(bench.device, 9, b"")
    bench.loop.close()
    with pytest.raises(PortError, match="closed"):
        bench.loop.add_port(bench.device, 4, "s1")
