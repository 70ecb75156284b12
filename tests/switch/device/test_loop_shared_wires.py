"""Shared wires of ports: frames through memory, beside an interface that is cut or captured."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from mrc_testbed.switch.device.loop import FrameRange, PortError, PortEvent
from tests.shared_wire import (
    ASLEEP,
    HEAD,
    PROCESS_CLOSED_AT,
    RING_BYTES,
    SLOT,
    SWITCH_CLOSED_AT,
    TAIL,
    TO_SWITCH,
    WIRE_BYTES,
    WiredProcess,
)
from tests.switch.device.cabled_ports import WAIT_S, Bench, Peer, ip, namespace  # noqa: F401
from tests.switch.mini_program import frame

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network interfaces: run as root"),
]
FRAME_BYTES = 4352
FIRST_PAYLOAD_BYTE = len(frame(0))
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 263, 1, 1


@pytest.fixture
def bench(namespace: None) -> Iterator[Bench]:  # noqa: F811
    with contextlib.closing(Bench()) as bench:
        yield bench


def shared_wire(bench: Bench, interface: str, match: list[FrameRange]) -> WiredProcess:
    process_end, switch_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    process = WiredProcess(process_end, bench.loop.share(interface, switch_end, FRAME_BYTES, match))
    switch_end.detach()
    return process


def marked(first: int, last: int | None = None) -> list[FrameRange]:
    """Return the match of frames whose payload begins with a byte."""
    return [FrameRange(FIRST_PAYLOAD_BYTE, 1, first, first if last is None else last)]


@pytest.fixture
def pair(bench: Bench) -> Iterator[tuple[WiredProcess, WiredProcess]]:
    """Processes at ports 1 and 2, for frames marked 1 and 2; destination 1 is port 1, and 2 is port 2."""
    bench.route(1, 1)
    bench.route(2, 2)
    with (
        contextlib.closing(shared_wire(bench, "s1", marked(1))) as first,
        contextlib.closing(shared_wire(bench, "s2", marked(2))) as second,
    ):
        yield first, second


def frame_to(destination: int, payload: bytes) -> bytes:
    return frame(0, dst=destination, payload=payload)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT_S:g} s"
        time.sleep(0.005)


def test_frames__go_from_process_to_process_in_order_past_the_interfaces(bench, pair):
    first, second = pair
    frames = [frame_to(2, bytes([2]) + number.to_bytes(4, "big") + os.urandom(number % 4000)) for number in range(2000)]
    sent = 0
    received: list[bytes] = []
    while len(received) < len(frames):
        sent += first.send(*frames[sent : len(received) + 200])  # fewer than the second one's ring has slots
        received += second.receive(min(20, sent - len(received)))
    assert received == frames
    counts = bench.loop.shared_counts()
    assert (counts["s1"].rx_packets, counts["s1"].tx_packets) == (2000, 0)
    assert (counts["s2"].tx_packets, counts["s2"].tx_bytes) == (2000, sum(map(len, frames)))
    assert bench.loop.ports(bench.device)[2].tx_packets == 2000, "a port counts what goes over it either way"
    bench.peers[2].socket.settimeout(0)
    with pytest.raises(BlockingIOError):
        bench.peers[2].socket.recv(100)


def test_frames__that_no_process_wants_take_the_interface(bench, pair):
    first, _ = pair
    first.send(frame_to(2, b"\7unwanted"), frame_to(2, b""))
    bench.peers[1].send(frame_to(2, b"\2" * 4400))  # longer than the process takes
    assert sorted(len(bench.peers[2].receive()) for _ in range(3)) == [FIRST_PAYLOAD_BYTE + n for n in (0, 9, 4400)]
    bench.peers[2].send(frame_to(1, b"\1by interface"))
    assert first.receive(1) == [frame_to(1, b"\1by interface")]


def test_match__several_processes_of_a_port_have_each_their_own(bench):
    bench.route(2, 2)
    ranges = [*marked(1, 9), FrameRange(FIRST_PAYLOAD_BYTE + 1, 2, 500, 600, is_outside=True)]
    with (
        contextlib.closing(shared_wire(bench, "s2", ranges)) as low,
        contextlib.closing(shared_wire(bench, "s2", marked(10, 19))) as high,
        contextlib.closing(shared_wire(bench, "s1", [])) as sender,
    ):
        sender.send(*(frame_to(2, bytes([mark]) + (499).to_bytes(2, "big")) for mark in (9, 10, 1, 19, 20)))
        sender.send(*(frame_to(2, bytes([5]) + number.to_bytes(2, "big")) for number in (500, 600, 601)))
        assert [part[FIRST_PAYLOAD_BYTE] for part in low.receive(2)] == [9, 1]
        assert [part[FIRST_PAYLOAD_BYTE] for part in high.receive(2)] == [10, 19]
        assert low.receive(1) == [frame_to(2, bytes([5]) + (601).to_bytes(2, "big"))]
        interface_frames = [bench.peers[2].receive()[FIRST_PAYLOAD_BYTE:] for _ in range(3)]
        assert interface_frames == [b"\x14\x01\xf3", b"\x05\x01\xf4", b"\x05\x02\x58"]


def test_a_full_ring__loses_frames_and_counts_them(bench, pair):
    first, second = pair
    for number in range(60):
        first.send(*(frame_to(2, b"\2" + bytes([number])) for _ in range(10)))
        wait_until(lambda count=(number + 1) * 10: bench.loop.shared_counts()["s2"].tx_packets == count)
    assert second.memory.lost == 600 - second.memory.slots[1] > 0
    assert len(second.receive(second.memory.slots[1])) == second.memory.slots[1]
    first.send(frame_to(2, b"\2after"))
    assert second.receive(1) == [frame_to(2, b"\2after")], "there is room again"


def test_capture__sends_frames_over_the_interface_as_long_as_it_lasts(bench, pair):
    first, _ = pair
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as tcpdump:
        index = socket.if_nametoindex("s2")
        tcpdump.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, struct.pack("@iHH8x", index, PACKET_MR_PROMISC, 0))
        wait_until(lambda: bench.loop.shared_counts()["s2"].open == 0)
        first.send(frame_to(2, b"\2seen"))
        assert bench.peers[2].receive() == frame_to(2, b"\2seen")
    wait_until(lambda: bench.loop.shared_counts()["s2"].open == 1)


def test_a_capture__from_before_the_port_is_seen_too(bench):
    bench.route(2, 2)
    bench.loop.remove_port(bench.device, 2)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as tcpdump:
        index = socket.if_nametoindex("s2")
        tcpdump.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, struct.pack("@iHH8x", index, PACKET_MR_PROMISC, 0))
        bench.loop.add_port(bench.device, 2, "s2")
        with contextlib.closing(shared_wire(bench, "s2", marked(2))):
            wait_until(lambda: bench.loop.shared_counts()["s2"].open == 0)


def test_the_process__can_close_its_wire_for_a_while(bench, pair):
    first, second = pair
    second.memory.set_word(PROCESS_CLOSED_AT, 1)
    first.send(frame_to(2, b"\2seen"))
    assert bench.peers[2].receive() == frame_to(2, b"\2seen")
    second.memory.set_word(PROCESS_CLOSED_AT, 0)
    first.send(frame_to(2, b"\2again"))
    assert second.receive(1) == [frame_to(2, b"\2again")]


def test_a_cut__closes_the_wire_and_drops_what_comes(bench, pair):
    first, second = pair
    ip("link", "set", "h1", "down")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 1 and not e.is_up)
    assert first.memory.word(SWITCH_CLOSED_AT) == 1 and second.memory.word(SWITCH_CLOSED_AT) == 0
    first.send(frame_to(2, b"\2lost"))
    ip("link", "set", "h1", "up")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 1 and e.is_up)
    assert first.memory.word(SWITCH_CLOSED_AT) == 0
    first.send(frame_to(2, b"\2arrives"))
    assert second.receive(1) == [frame_to(2, b"\2arrives")]


def test_an_end__of_either_side_is_the_wires_and_frames_take_the_interface(bench, pair):
    first, second = pair
    second.sock.close()
    wait_until(lambda: bench.loop.shared_counts()["s2"].wires == 0)
    first.send(frame_to(2, b"\2orphan"))
    assert bench.peers[2].receive() == frame_to(2, b"\2orphan")
    bench.loop.remove_port(bench.device, 1)
    assert first.has_ended()
    with pytest.raises(PortError, match="no port is on interface 's1'"):
        shared_wire(bench, "s1", [])
    bench.loop.add_port(bench.device, 1, "s1")
    with contextlib.closing(shared_wire(bench, "s1", [])) as successor:
        successor.send(frame_to(2, b"\2successor"))
        assert bench.peers[2].receive() == frame_to(2, b"\2successor")
        assert bench.loop.shared_counts()["s1"].rx_packets == 2, "counts outlive ports and wires"


def test_requests__that_cannot_be_are_refused(bench):
    sock, _ = socket.socketpair()
    for frame_bytes, match in (
        (63, []),
        (1 << 20, []),
        (FRAME_BYTES, [FrameRange(0, 5, 0, 0)]),
        (FRAME_BYTES, [FrameRange(0, 0, 0, 0)]),
        (FRAME_BYTES, [FrameRange(1 << 31, 1, 0, 0)]),
        (FRAME_BYTES, [FrameRange(0, 1, 0, 0)] * 5),
    ):
        with pytest.raises(PortError, match=r"^s1: "):
            bench.loop.share("s1", sock, frame_bytes, match)
    assert "s1" not in bench.loop.shared_counts()


def write_wildly(rng: random.Random, process: WiredProcess) -> None:
    """Write something into a wire that a process of good will would not."""
    memory = process.memory
    head = memory.ring(TO_SWITCH, HEAD)
    any_word = rng.choice((0, 4, 8, head, memory.ring(TO_SWITCH, TAIL), head + RING_BYTES, head + RING_BYTES + TAIL))
    kind = rng.randrange(6)
    if kind == 0:
        memory.block[rng.randrange(WIRE_BYTES)] = rng.randrange(256)
    elif kind == 1:
        memory.set_word(any_word, rng.choice((0, 1, 1 << 31, (1 << 32) - 1)))
    elif kind == 2:
        memory.set_word(head, rng.randrange(1 << 32))
    elif kind == 3:
        start = memory.slot(TO_SWITCH, rng.randrange(256))
        SLOT.pack_into(memory.block, start, rng.getrandbits(64), rng.choice((0, 13, 5000, 1 << 31)), 0)
    elif kind == 4:
        tail = memory.word(memory.ring(TO_SWITCH, TAIL))
        memory.set_word(head, (tail + rng.randrange(300)) % (1 << 32))
    else:
        memory.set_word(memory.ring(TO_SWITCH, ASLEEP), rng.randrange(2))
    process.sock.send(rng.randbytes(rng.choice((1, 1, 300))))


@pytest.mark.parametrize("seed", range(4))
def test_a_hostile_process__harms_nobody_else(bench, pair, seed):
    """A process may write what it likes into its wire: the frames of the others arrive."""
    sender, receiver = pair
    rng = random.Random(seed)
    hostile_process = shared_wire(bench, "s3", marked(3))
    for _ in range(300):
        write_wildly(rng, hostile_process)
        bench.peers[1].send(frame(0, dst=3, payload=b"\3"))
        if rng.random() < 0.1:
            sender.send(frame_to(2, b"\2fine"))
            assert receiver.receive(1) == [frame_to(2, b"\2fine")]
    hostile_process.close()
    wait_until(lambda: bench.loop.shared_counts()["s3"].wires == 0)
    sender.send(frame_to(2, b"\2fine"))
    assert receiver.receive(1) == [frame_to(2, b"\2fine")]
