"""The fast NIC on shared wires: the test plays the switch, over a real socket and memory."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.nic import shared_wires
from mrc_testbed.hosts.nic.fast import FastNic
from mrc_testbed.hosts.nic.native import load
from mrc_testbed.hosts.nic.netlink import LinkWatcher
from mrc_testbed.switch.system.gcc import MissingToolError
from tests.hosts.nic.test_fast import H0, PLAN, WAIT_S, a_write, cable, far_end, ip, namespace, received, to_h0  # noqa: F401
from tests.shared_wire import (
    ASLEEP,
    HEAD,
    PROCESS_CLOSED_AT,
    RINGS_AT,
    SWITCH_CLOSED_AT,
    TO_PROCESS,
    TO_SWITCH,
    WAKES,
    WIRE_BYTES,
    WireMemory,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
QPNS = range(1 << 16, 2 << 16)
SLOT_BYTES, SLOTS = 4416, (8, 16)


class SwitchSide:
    """A daemon that makes wires: each is a socket and memory, by the interface it was asked for."""

    def __init__(self, path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(WAIT_S)
        self.wires: dict[str, tuple[socket.socket, WireMemory]] = {}
        self.requests: list[dict] = []

    def accept(self, *, answer: bytes = b'{"ok": true}\n', shape: tuple[int, int, int] = (SLOT_BYTES, *SLOTS)) -> str:
        """Serve one request; return the interface."""
        client, _ = self.listener.accept()
        client.settimeout(WAIT_S)
        request = json.loads(client.makefile().readline())
        self.requests.append(request)
        memfd = os.memfd_create("wire")
        os.ftruncate(memfd, WIRE_BYTES + SLOT_BYTES * sum(SLOTS))
        os.pwrite(memfd, struct.pack("=III", *shape), 0)
        socket.send_fds(client, [answer], [memfd])
        self.wires[request["interface"]] = client, WireMemory(memfd, TO_PROCESS)
        os.close(memfd)
        return request["interface"]

    def close(self) -> None:
        self.listener.close()
        for sock, memory in self.wires.values():
            sock.close()
            memory.close()


@pytest.fixture
def nic(namespace):  # noqa: F811
    try:
        module = load()
    except MissingToolError as error:
        pytest.skip(str(error))
    with contextlib.closing(FastNic(PLAN, H0, Config(), module)) as fast_nic:
        yield fast_nic


@pytest.fixture
def switch(tmp_path):
    with contextlib.closing(SwitchSide(tmp_path / "wires.sock")) as switch_side:
        yield switch_side


@pytest.fixture
def wired_nic(nic, switch, tmp_path):
    """Return the NIC and the switch's side of plane 0's wire; plane 1 has one too."""
    nic.share(tmp_path / "wires.sock", QPNS)
    switch.accept(), switch.accept()
    turns_until(nic, lambda: nic.shared_planes == {0, 1})
    return nic, *switch.wires["p0-t0-0-eth1"]


def turns_until(nic: FastNic, condition: Callable[[], bool]) -> list:
    """Run turns, each after a wait, until a condition holds; return the received packets."""
    end, packets = time.monotonic() + WAIT_S, []
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT_S:g} s"
        select.select([*nic.filenos().values(), *nic.wire_filenos()], [], [], 0.05)
        nic.flush()
        packets += nic.receive(64)
    return packets


def test_share__asks_for_each_port_with_the_frames_of_its_qpns(wired_nic, switch):
    assert sorted(request["interface"] for request in switch.requests) == ["p0-t0-0-eth1", "p1-t0-0-eth1"]
    match = switch.requests[0]["match"]
    assert match == [[20, 1, 41, 41], [96, 2, 6080, 6080, True], [107, 3, QPNS[0], QPNS[-1]]]
    assert switch.requests[0]["frame_bytes"] > 4096 + 142


def test_send__goes_over_the_wire_and_wakes_a_switch_that_sleeps(wired_nic):
    nic, sock, memory = wired_nic
    nic.send(0, "h1", a_write(b"awake"))
    memory.set_word(memory.ring(TO_SWITCH, ASLEEP), 1)
    nic.send(0, "h1", a_write(b"x" * 4096))
    assert sock.recv(8) == b"\0"
    frames = [memory.take(), memory.take()]
    assert b"awake" in frames[0] and len(frames[1]) == 4096 + 142 and memory.take() is None
    assert (nic.counters[0].tx_packets, nic.counters[0].tx_bytes) == (2, sum(map(len, frames)))
    with far_end(0) as far:
        nic.send_many([(0, "h1", a_write(b"<%d>" % n)) for n in range(5)])
        assert all(b"<%d>" % n in memory.take() for n in range(5))
        far.settimeout(0)
        with pytest.raises(BlockingIOError):
            far.recv(10)


def test_send__to_a_full_wire_waits_in_order(wired_nic):
    nic, _, memory = wired_nic
    nic.send_many([(0, "h1", a_write(b"<%d>" % n)) for n in range(20)])
    assert nic.backlog == 20 - SLOTS[0] and nic.room()[0] == 0
    frames = []
    for _ in range(4):
        while (frame := memory.take()) is not None:
            frames.append(frame)
        nic.flush()
    assert [b"<%d>" % n in frame for n, frame in enumerate(frames)] == [True] * 20 and not nic.backlog
    assert nic.counters[0].tx_packets == 20


def test_receive__takes_what_comes_by_wire_and_by_interface(wired_nic):
    nic, sock, memory = wired_nic
    nic.receive(64)
    assert memory.word(memory.ring(TO_PROCESS, ASLEEP)) == 1, "it asks to be woken"
    memory.put(bytes(to_h0(nic, b"by wire")))
    memory.set_word(memory.ring(TO_PROCESS, ASLEEP), 0)
    memory.set_word(memory.ring(TO_PROCESS, WAKES), 1)
    sock.send(b"\0")
    with far_end(0) as far:
        far.send(to_h0(nic, b"by interface"))
    packets = turns_until(nic, lambda: nic.counters[0].rx_packets == 2)
    assert sorted(bytes(packet.payload) for _, _, packet in packets) == [b"by interface", b"by wire"]
    assert not select.select(nic.wire_filenos(), [], [], 0)[0], "the wake has been read"
    memory.put(b"broken"), memory.put(b"x", length=1 << 30)
    nic.receive(64)
    assert nic.counters[0].rx_dropped.total() == 2


def test_a_wake__for_a_frame_that_was_taken_before_is_followed_by_a_sleep(wired_nic):
    """Play a switch that looks whether we sleep after we took its frame and went to sleep again."""
    nic, sock, memory = wired_nic
    nic.receive(64)
    memory.put(bytes(to_h0(nic, b"early")))
    assert len(nic.receive(64)) == 1 and memory.word(memory.ring(TO_PROCESS, ASLEEP)) == 1
    memory.set_word(memory.ring(TO_PROCESS, ASLEEP), 0)
    memory.set_word(memory.ring(TO_PROCESS, WAKES), 1)
    sock.send(b"\0")
    assert nic.receive(64) == [] and memory.word(memory.ring(TO_PROCESS, ASLEEP)) == 1


@pytest.mark.parametrize("closed_word", [SWITCH_CLOSED_AT, PROCESS_CLOSED_AT])
def test_a_closed_wire__leaves_frames_to_the_interface(wired_nic, closed_word):
    nic, _, memory = wired_nic
    memory.set_word(closed_word, 1)
    with far_end(0) as far:
        nic.send(0, "h1", a_write(b"seen"))
        nic.send_many([(0, "h1", a_write(b"seen too"))] * 2)
        assert b"seen" in far.recv(10_000) and b"seen too" in far.recv(10_000)
    assert memory.take() is None


def test_a_capture_or_a_cut__closes_the_wire_as_long_as_it_lasts(wired_nic):
    nic, _, memory = wired_nic
    links = LinkWatcher(["h0-eth0", "h0-eth1"])

    def news() -> bool:
        for interface, state in links.poll():
            nic.link_changed(int(interface[-1]), state)
        for interface, is_captured in links.captures().items():
            nic.capture_changed(int(interface[-1]), is_captured)
        return bool(memory.word(PROCESS_CLOSED_AT))

    with contextlib.closing(links):
        for begin, end in ((("promisc", "on"), ("promisc", "off")), (("down",), ("up",))):
            ip("link", "set", "h0-eth0", *begin)
            turns_until(nic, news)
            ip("link", "set", "h0-eth0", *end)
            turns_until(nic, lambda: not news())


def test_an_interface_made_anew__gets_a_wire_of_its_own(wired_nic, switch, monkeypatch):
    nic, sock, _ = wired_nic
    monkeypatch.setattr(shared_wires, "RETRY_S", 0.0)
    links = LinkWatcher(["h0-eth0"])
    ip("link", "del", "h0-eth0")
    cable(0)
    with contextlib.closing(links):
        turns_until(nic, lambda: any([nic.link_changed(0, state) for _, state in links.poll()]))
    assert sock.recv(8) == b"", "the old wire has ended"
    turns_until(nic, lambda: bool(select.select([switch.listener], [], [], 0)[0]))
    assert switch.accept() == "p0-t0-0-eth1"
    turns_until(nic, lambda: nic.shared_planes == {0, 1})
    nic.send(0, "h1", a_write(b"anew"))
    assert b"anew" in switch.wires["p0-t0-0-eth1"][1].take()


def test_a_switch_that_ends__leaves_frames_to_the_interface_until_the_next_one(wired_nic, switch, monkeypatch):
    nic, sock, memory = wired_nic
    memory.put(bytes(to_h0(nic, b"last")))
    sock.close()
    monkeypatch.setattr(shared_wires, "RETRY_S", 0.0)
    packets = turns_until(nic, lambda: nic.shared_planes == {1})
    assert [bytes(packet.payload) for _, _, packet in packets] == [b"last"]
    with far_end(0) as far:
        nic.send(0, "h1", a_write(b"by interface"))
        assert b"by interface" in far.recv(10_000)
    turns_until(nic, lambda: bool(select.select([switch.listener], [], [], 0)[0]))
    switch.accept()
    turns_until(nic, lambda: nic.shared_planes == {0, 1})


def test_share__without_a_daemon_or_with_one_that_refuses_uses_the_interface(
    nic, switch, tmp_path, caplog, monkeypatch
):
    caplog.set_level("INFO")
    nic.share(tmp_path / "nobody.sock", QPNS)
    nic.flush()
    assert nic.shared_planes == frozenset()
    nic._wires.close()
    monkeypatch.setattr(shared_wires, "RETRY_S", 1000.0)
    nic.share(tmp_path / "wires.sock", QPNS)
    client, _ = switch.listener.accept()
    client.send(b'{"ok": false, "error": "no port is on interface \'p0-t0-0-eth1\'"}\n')
    client.close()
    switch.accept(shape=(SLOT_BYTES, 7, 16))  # not a power of two
    turns_until(nic, lambda: "does not fit its memory" in caplog.text and "no port is on" in caplog.text)
    with far_end(0) as far:
        nic.send(0, "h1", a_write(b"by interface"))
        assert b"by interface" in far.recv(10_000)


@pytest.mark.parametrize(
    "shape", [(0, 8, 16), (16, 8, 16), (1 << 31, 8, 16), (SLOT_BYTES, 0, 16), (SLOT_BYTES, 8, 1 << 20)]
)
def test_memory_of_a_shape_that_cannot_be__is_refused(nic, switch, tmp_path, caplog, shape):
    nic.share(tmp_path / "wires.sock", QPNS)
    switch.accept(shape=shape), switch.accept()
    turns_until(nic, lambda: len(nic.shared_planes) == 1 and "does not fit its memory" in caplog.text)


def test_numbers_that_cannot_be__count_as_an_empty_wire(wired_nic):
    nic, _, memory = wired_nic
    for head in (17, 1 << 31, (1 << 32) - 1):
        memory.set_word(memory.ring(TO_PROCESS, HEAD), head)
        assert nic.receive(64) == []
    memory.set_word(RINGS_AT + 64, 1 << 31)  # the switch says that it took what was never put
    for number in range(40):
        nic.send(0, "h1", a_write(b"%d" % number))
    assert nic.counters[0].tx_packets + nic.backlog == 40


def test_frames_that_found_the_wire_full__are_counted(wired_nic):
    nic, _, memory = wired_nic
    struct.pack_into("=Q", memory.block, memory.ring(TO_PROCESS, 128), 7)
    nic.refresh_counters(), nic.refresh_counters()
    assert nic.counters[0].rx_dropped["ring full"] == 7
