"""The fast NIC on a real cable.

Hostile frames, a cable pulled, an interface made anew, a kernel that takes no more.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import subprocess

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.codec import write_size
from mrc_testbed.hosts.engine.wire.packets import Nack, Opcode, Write
from mrc_testbed.hosts.nic import open_nic
from mrc_testbed.hosts.nic.base import NO_LIMIT, NicError
from mrc_testbed.hosts.nic.encapsulation import Encapsulation
from mrc_testbed.hosts.nic.fast import BACKLOG_FRAMES, FastNic
from mrc_testbed.hosts.nic.native import load
from mrc_testbed.hosts.nic.netlink import LinkState, LinkWatcher
from mrc_testbed.switch.system.gcc import MissingToolError
from mrc_testbed.topologies.plan import Plan
from tests.cables import wait_until_up

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
PLAN = Plan(planes=2, racks=2, spines=1, hosts_per_rack=1)
H0, H1 = PLAN.hosts
CLONE_NEWNET = 0x40000000
WAIT_S = 10.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def scratch_namespace():
    """Put this thread into a fresh network namespace with h0's ports and the cable ends `far0`, `far1`."""
    libc = ctypes.CDLL(None, use_errno=True)
    name = f"zzdnic{os.getpid()}"
    ip("netns", "add", name)
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{name}") as scratch:
        if libc.setns(scratch.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            for plane in range(PLAN.planes):
                cable(plane)
            yield
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)
            ip("netns", "del", name)


def cable(plane: int) -> None:
    ip("link", "add", f"h0-eth{plane}", "type", "veth", "peer", "name", f"far{plane}")
    for end in (f"h0-eth{plane}", f"far{plane}"):
        ip("link", "set", end, "mtu", "9216", "addrgenmode", "none", "up")
    wait_until_up(f"h0-eth{plane}", f"far{plane}")


def far_end(plane: int) -> socket.socket:
    """Return a socket on the switch's side of a cable."""
    cable_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD))
    cable_socket.bind((f"far{plane}", 0x86DD))
    cable_socket.settimeout(WAIT_S)
    return cable_socket


@pytest.fixture
def namespace():
    with scratch_namespace():
        yield


@pytest.fixture(params=["python", "compiled"])
def nic(request, namespace):
    try:
        module = load() if request.param == "compiled" else None
    except MissingToolError as error:
        pytest.skip(str(error))
    with contextlib.closing(FastNic(PLAN, H0, Config(), module)) as fast_nic:
        yield fast_nic


def a_write(payload: bytes, ev: int = 0x0000) -> Write:
    size = write_size(Opcode.WRITE_ONLY, len(payload), True)
    return Write(7, ev, ev >> 8, 4, 2, Opcode.WRITE_ONLY, 9, 1, 1 << 44, 2, len(payload), payload, size, timestamp=1)


def to_h0(nic: FastNic, payload: bytes, plane: int = 0) -> bytearray:
    """Return a frame of h1 as it arrives at port `plane` of h0."""
    capsule = Encapsulation(PLAN, H1, H0, plane)
    inner = nic._codec.encode(a_write(payload), capsule.addressing)
    frame = bytearray(capsule.outer(0, inner.header[:4], inner.size) + inner.join())
    frame[38:54] = PLAN.nic_address(H0, plane).to_bytes(16, "big")
    return frame


def received(nic: FastNic, limit: int = 64) -> list[tuple[int, str, bytes]]:
    """Return everything that waits, after waiting for the first."""
    assert select.select(list(nic.filenos().values()), [], [], WAIT_S)[0]
    return [(plane, peer, bytes(packet.payload)) for plane, peer, packet in nic.receive(limit)]


def test_send__reaches_the_cable_of_its_plane(nic):
    with far_end(1) as far:
        nic.send(1, "h1", a_write(b"x" * 4096, 0x0100))
        frame = far.recv(10_000)
    assert len(frame) == 4096 + 142
    assert frame[38:54].hex() == "fcbbbb00" + "2100" + "1100" + "2101" + "3100" + "0000" * 2
    assert (nic.counters[1].tx_packets, nic.counters[1].tx_bytes) == (1, len(frame))


def frames_at(far: socket.socket, count: int) -> list[bytes]:
    return [far.recv(10_000) for _ in range(count)]


def test_send_many__each_plane_has_its_own_in_order(nic):
    nack = Nack(7, 0, 0, 46, 0, 9, 1, 0)  # never built by the compiled half
    packets = [(n % 2, "h1", a_write(f"<{n}>".encode(), n % 2 << 8)) for n in range(50)]
    packets.insert(21, (0, "h1", nack))
    with far_end(0) as first, far_end(1) as second:
        nic.send_many(packets)
        first_frames, second_frames = frames_at(first, 26), frames_at(second, 25)
    assert [n for n in range(0, 50, 2) if f"<{n}>".encode() not in first_frames[n // 2 + (n > 20)]] == []
    assert b"<" not in first_frames[11]
    assert [f"<{n}>".encode() in frame for n, frame in zip(range(1, 50, 2), second_frames, strict=True)] == [True] * 25
    assert [nic.counters[plane].tx_packets for plane in (0, 1)] == [26, 25]
    assert nic.counters[1].tx_bytes == sum(map(len, second_frames))


def test_send_many__a_port_that_is_down_loses_its_own_alone(nic):
    packets = [(n % 2, "h1", a_write(f"<{n}>".encode(), n % 2 << 8)) for n in range(10)]
    with far_end(1) as far:
        nic.send_many(packets[:2])
        frames_at(far, 1)
        ip("link", "set", "h0-eth0", "down")
        nic.send_many(packets)
        assert all(f"<{n}>".encode() in frame for n, frame in zip(range(1, 10, 2), frames_at(far, 5), strict=True))
    assert nic.counters[0].tx_dropped == {"port down": 5}
    assert nic.counters[1].tx_dropped == {} and nic.backlog == 0


def test_send_many__nothing_overtakes_a_backlog(nic):
    nic.send_many([(0, "h1", a_write(b"first"))] * 2)
    waiting = bytes(12) + b"\x86\xdd" + b"waiting" * 10
    nic._queue(nic._open_ports[0], nic._counters[0], (waiting,))
    with far_end(0) as first, far_end(1) as second:
        nic.send_many([(plane, "h1", a_write(b"behind", plane << 8)) for plane in (0, 1, 0)])
        assert nic.backlog == 3 and b"behind" in second.recv(10_000)
        assert nic.room() == [0, NO_LIMIT] and nic.control_room() is None
        nic.flush()
        frames = frames_at(first, 3)
    assert frames[0] == waiting and all(b"behind" in frame for frame in frames[1:])
    assert nic.backlog == 0 and nic.room() is None


def test_receive__good_frames_between_hostile_ones(nic):
    good_frame, wrong_crc = to_h0(nic, b"good"), to_h0(nic, b"bad!")
    wrong_crc[-1] ^= 1
    with far_end(0) as far:
        for frame in (
            good_frame,
            wrong_crc,
            good_frame[:70],
            bytes(60),
            to_h0(nic, b"y" * 8192),
            fast_to_other(nic),
            good_frame,
        ):
            frame = bytearray(frame)
            frame[12:14] = b"\x86\xdd"
            far.sendto(frame, ("far0", 0x86DD))
    assert received(nic) == [(0, "h1", b"good")] * 2
    dropped = nic.counters[0].rx_dropped
    assert dropped.pop("iCRC") == 1
    assert dropped.pop("longer than the path MTU allows") == 1
    assert dropped.pop("not ours: outer address") == 1
    assert sum(dropped.values()) == 2
    assert nic.counters[0].rx_packets == 2


def fast_to_other(nic: FastNic) -> bytearray:
    frame = to_h0(nic, b"other")
    frame[42:44] = b"\x31\x01"
    return frame


def test_receive__the_ring_goes_round_and_a_full_one_is_counted(nic):
    with far_end(0) as far:
        for turn in range(3):
            for number in range(400):
                far.sendto(to_h0(nic, f"{turn} {number}".encode()), ("far0", 0x86DD))
            assert [p for _, _, p in received(nic, 1000)] == [f"{turn} {n}".encode() for n in range(400)]
        for _ in range(900):
            far.sendto(to_h0(nic, b"too many"), ("far0", 0x86DD))
    received_count = len(received(nic, 1000))
    nic.refresh_counters()
    assert received_count + nic.counters[0].rx_dropped["ring full"] == 900 and received_count >= 500


def test_link__down_and_up_again(nic):
    with contextlib.closing(LinkWatcher(["h0-eth0", "h0-eth1"])) as links:
        ip("link", "set", "h0-eth0", "down")
        for name, state in links.poll():
            assert not nic.link_changed(int(name[-1]), state)
        nic.send(0, "h1", a_write(b"lost"))
        assert nic.counters[0].tx_dropped == {"port down": 1}
        assert select.select(list(nic.filenos().values()), [], [], 0)[0] == []  # the error does not keep us awake
        ip("link", "set", "h0-eth0", "up")
        for name, state in links.poll():
            assert not nic.link_changed(int(name[-1]), state)
        with far_end(0) as far:
            nic.send(0, "h1", a_write(b"again"))
            assert b"again" in far.recv(10_000)
            far.sendto(to_h0(nic, b"back"), ("far0", 0x86DD))
        assert received(nic) == [(0, "h1", b"back")]


def test_link__an_interface_made_anew_is_opened_again(nic):
    nic.send_many([(0, "h1", a_write(b"before"))] * 2)
    with contextlib.closing(LinkWatcher(["h0-eth0", "h0-eth1"])) as links:
        old_fileno = nic.filenos()[0]
        ip("link", "del", "h0-eth0")
        cable(0)
        results = [nic.link_changed(0, state) for name, state in links.poll() if name == "h0-eth0"]
        assert results.count(True) == 1
        assert nic.filenos()[0] != old_fileno
        with far_end(0) as far:
            nic.send_many([(0, "h1", a_write(b"after"))] * 2)
            assert all(b"after" in frame for frame in frames_at(far, 2))
            far.sendto(to_h0(nic, b"anew"), ("far0", 0x86DD))
        assert received(nic) == [(0, "h1", b"anew")]


def test_link__removed_while_the_kernel_drops_news_is_gone(namespace):
    with contextlib.closing(LinkWatcher(["h0-eth0", "h0-eth1"])) as links:
        links._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # room for a message or two
        for number in range(8):
            ip("link", "add", f"full{number}", "type", "veth", "peer", "name", f"more{number}")
        ip("link", "del", "h0-eth0")
        assert links.poll() == [("h0-eth0", LinkState())]
        assert links.states["h0-eth0"] == LinkState() and links.states["h0-eth1"].up


def test_link__a_port_that_leaves_a_bridge_stays(namespace):
    with contextlib.closing(LinkWatcher(["h0-eth0"])) as links:
        ip("link", "add", "bridge", "type", "bridge")
        ip("link", "set", "h0-eth0", "master", "bridge")
        ip("link", "set", "h0-eth0", "nomaster")
        assert LinkState() not in [state for _, state in links.poll()]
        assert links.states["h0-eth0"].up


class FullSocket:
    """A socket of a kernel without memory: takes `room` frames, then none."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.frames: list[bytes] = []

    def sendmsg(self, pieces) -> None:
        if not self.room:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        self.room -= 1
        self.frames.append(b"".join(pieces))


class FullPort:
    """The compiled half of a port over a FullSocket."""

    def __init__(self, c_port, socket: FullSocket) -> None:
        self.build, self.take_counts, self._socket = c_port.build, lambda: (len(socket.frames) - 3, 0, 0, 0), socket

    def add_route(self, peer, route) -> None:
        """Do nothing: no test here sends many."""

    def send(self, route, packet) -> int:
        try:
            self._socket.sendmsg((self.build(route, packet),))
        except OSError as error:
            return error.errno
        return 0

    def put(self, frame) -> int:
        return -1


def test_send__what_the_kernel_does_not_take_waits_in_order_and_then_is_dropped(nic):
    port = nic._open_ports[0]
    real_socket, port.socket = port.socket, FullSocket(2)
    c_port = port.c_port
    if c_port is not None:
        port.c_port = FullPort(c_port, port.socket)
    try:
        for number in range(BACKLOG_FRAMES + 5):
            nic.send(0, "h1", a_write(f"<{number}>".encode()))
        assert nic.backlog == BACKLOG_FRAMES
        assert nic._counters[0].tx_dropped == {"no buffer": 3}
        port.socket.room = 3
        nic.flush()
        assert nic.backlog == BACKLOG_FRAMES - 3
        assert [f"<{n}>".encode() in frame for n, frame in enumerate(port.socket.frames)] == [True] * 5
        assert nic.counters[0].tx_packets == 5
    finally:
        port.socket, port.c_port = real_socket, c_port
        port.backlog.clear()


@pytest.mark.parametrize("kind", ["fast", "scapy"])
def test_open__an_mtu_too_small_is_explained(namespace, kind):
    ip("link", "set", "h0-eth1", "mtu", "1500")
    with pytest.raises(NicError, match=r"h0-eth1: its MTU is 1500 and packets .* need 4\d\d\d: `ip link set"):
        open_nic(kind, PLAN, H0, Config())


@pytest.mark.parametrize("kind", ["fast", "scapy"])
def test_open__a_missing_interface_is_named(namespace, kind):
    with pytest.raises(NicError, match="h1-eth0: no such interface"):
        open_nic(kind, PLAN, H1, Config())


@pytest.mark.parametrize("kind", ["fast", "scapy"])
def test_dialect__of_the_configuration_is_spoken_on_the_cable(kind, namespace):
    """Variants of §12 that change bytes: the label outside only, SE in bit 6, a computed UDP checksum."""
    config = Config.of(flow_label="outer", se_bit=6, udp_checksum="computed")
    ev = 0xABCD0000
    with contextlib.closing(open_nic(kind, PLAN, H0, config)) as nic, far_end(0) as far:
        record = a_write(b"abcd", ev)
        record.plane, record.solicited = 0, True
        nic.send(0, "h1", record)
        nic.flush()
        frame = far.recv(10_000)
        assert int.from_bytes(frame[14:18], "big") & 0xFFFFF == 0xABCD
        assert int.from_bytes(frame[54:58], "big") & 0xFFFFF == 0
        assert frame[54 + 46 : 54 + 48] != b"\0\0" and frame[54 + 49] & 0xC0 == 0x40
        capsule = Encapsulation(PLAN, H1, H0, 0)
        inner = nic._codec.encode(record, capsule.addressing)
        answer = bytearray(capsule.outer(0, nic._codec.outer_word(inner.header, ev), inner.size) + inner.join())
        answer[38:54] = PLAN.nic_address(H0, 0).to_bytes(16, "big")
        far.sendto(answer, ("far0", 0x86DD))
        assert select.select(list(nic.filenos().values()), [], [], WAIT_S)[0]
        ((plane, peer, packet),) = list(nic.receive(8))
        assert (plane, peer, packet.ev, bytes(packet.payload)) == (0, "h1", ev, b"abcd") and packet.solicited
