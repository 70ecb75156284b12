"""Wires: cables between devices of one event loop, without the kernel.

No root: nothing here is an interface.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, TableEntry
from mrc_testbed.switch.device.loop import EventLoop, PacketIn, PortError, PortEvent
from mrc_testbed.switch.device.port_numbers import CPU_PORT
from mrc_testbed.switch.device.traffic import Impairment, PortSettings
from tests.switch.mini_program import BY_MAC, FORWARD, frame, mini

WAIT_S = 10.0
"""Longest wait for what must happen, seconds; only a failure takes that long."""


class Chain:
    """Devices 1, 2 and 3 in a row: port 2 of each is wired to port 1 of the next, r1-l2 and r2-l3."""

    def __init__(self) -> None:
        self.loop = EventLoop(ring_kib=256)
        self.loop.start()
        self.loop.add_wire("r1", "l2")
        self.loop.add_wire("r2", "l3")
        self.devices = {number: P4Device(number, f"d{number}") for number in (1, 2, 3)}
        ports = {1: {2: "r1"}, 2: {1: "l2", 2: "r2"}, 3: {1: "l3"}}
        for number, device in self.devices.items():
            device.load(mini())
            self.loop.attach(device)
            self.loop.add_ports(device, ports[number])
        self.events: list[PacketIn | PortEvent] = []

    def route(self, device: int, port: int, dst: int = 1) -> None:
        match = FieldMatch.exact(1, dst.to_bytes(6, "big"))
        call = ActionCall(FORWARD, ((1, port.to_bytes(2, "big")),))
        self.devices[device].insert(TableEntry(BY_MAC, (match,), call))

    def route_to_cpu(self) -> None:
        """Route frames through all three devices to the CPU of the last one."""
        for device, port in ((1, 2), (2, 2), (3, CPU_PORT)):
            self.route(device, port)

    def send(self, payload: bytes) -> None:
        self.loop.inject(self.devices[1], frame(0, payload=payload))

    def wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"not within {WAIT_S:g} s; events: {self.events}"
            select.select([self.loop], [], [], 0.01)
            self.events += self.loop.events()

    def frames(self, count: int) -> list[bytes]:
        """Return the first `count` frames that the CPU of device 3 got."""

        def got() -> list[bytes]:
            return [e.frame for e in self.events if isinstance(e, PacketIn) and e.device_id == 3]

        self.wait(lambda: len(got()) >= count)
        return got()

    def state(self, device: int, port: int) -> tuple[bool, bool] | None:
        """Return the last reported (up, admin_up) of a port; None before any report."""
        states = [
            (e.is_up, e.admin_up)
            for e in self.events
            if isinstance(e, PortEvent) and (e.device_id, e.port) == (device, port)
        ]
        return states[-1] if states else None

    def close(self) -> None:
        self.loop.close()
        for device in self.devices.values():
            device.close()


@pytest.fixture
def chain() -> Iterator[Chain]:
    with contextlib.closing(Chain()) as chain:
        yield chain


def test_forward__every_size_through_three_devices(chain: Chain) -> None:
    chain.route_to_cpu()
    sizes = (0, 1, 100, 4096, 4264, 5000, 9188)
    sent = [frame(0, payload=bytes([size % 251]) * size) for size in sizes]
    for data in sent:
        chain.loop.inject(chain.devices[1], data)
    assert chain.frames(len(sent)) == sent
    ends = chain.loop.wires()
    octets = sum(map(len, sent))
    assert (ends["r1"].tx_packets, ends["r1"].tx_bytes) == (ends["l2"].rx_packets, ends["l2"].rx_bytes)
    assert (ends["l3"].rx_packets, ends["l3"].rx_bytes) == (len(sent), octets)
    stats = chain.loop.ports(chain.devices[2])
    assert (stats[1].rx_packets, stats[2].tx_packets, stats[2].tx_bytes) == (len(sent), len(sent), octets)
    assert stats[1].interface == "l2" and stats[1].up


def test_port_0__is_a_port_like_any_other(chain: Chain) -> None:
    """Out of port 0, in by port 0, down and up again; the CPU port stays none."""
    chain.loop.add_wire("r0", "l0")
    chain.loop.add_port(chain.devices[1], 0, "r0")
    chain.loop.add_port(chain.devices[3], 0, "l0")
    chain.route(1, 0)
    chain.route(3, CPU_PORT)
    chain.send(b"by port 0")
    assert chain.frames(1) == [frame(0, payload=b"by port 0")]
    assert chain.loop.ports(chain.devices[1])[0].tx_packets == chain.loop.ports(chain.devices[3])[0].rx_packets == 1
    chain.loop.set_wire("r0", is_up=False)
    chain.wait(lambda: chain.state(3, 0) == (False, True))
    with pytest.raises(PortError, match="without the CPU port"):
        chain.loop.add_port(chain.devices[1], CPU_PORT, "r0")


def test_forward__in_order_past_a_pool_of_free_frames(chain: Chain) -> None:
    chain.route_to_cpu()
    for burst in range(20):
        for number in range(50):
            chain.send(struct.pack(">I", burst * 50 + number))
        got = chain.frames(50 * burst + 50)
    assert [int.from_bytes(data[-4:], "big") for data in got] == list(range(1000))


def test_port_send__past_the_pipeline_by_a_wire(chain: Chain) -> None:
    chain.route(2, CPU_PORT)
    chain.loop.send(chain.devices[1], 2, frame(0, payload=b"by hand"))
    chain.wait(lambda: PacketIn(2, frame(0, payload=b"by hand")) in chain.events)


def test_loop__a_frame_that_goes_round_for_ever_stops_nobody(chain: Chain) -> None:
    chain.route(1, 2)
    chain.route(2, 1)  # back where it came from
    chain.send(b"round and round")
    chain.wait(lambda: chain.loop.wires()["r1"].rx_packets > 10_000)
    chain.route(1, 2, dst=2)
    chain.route(2, 2, dst=2)
    chain.route(3, CPU_PORT, dst=2)
    chain.loop.inject(chain.devices[1], frame(0, dst=2, payload=b"meanwhile"))
    assert chain.frames(1) == [frame(0, dst=2, payload=b"meanwhile")]
    chain.loop.set_wire("r1", False)
    first, second = chain.devices[1], chain.devices[2]
    chain.wait(lambda: chain.loop.ports(first)[2].tx_down + chain.loop.ports(second)[1].tx_down > 0)


def test_set_wire__either_end_cuts_it_for_both(chain: Chain) -> None:
    chain.route_to_cpu()
    chain.wait(lambda: chain.state(1, 2) == chain.state(2, 1) == (True, True))
    assert chain.loop.set_wire("l2", False) and not chain.loop.set_wire("l2", False)
    chain.wait(lambda: chain.state(1, 2) == (False, True) and chain.state(2, 1) == (False, False))
    chain.send(b"lost")
    chain.wait(lambda: chain.loop.ports(chain.devices[1])[2].tx_down == 1)
    assert chain.loop.set_wire("r1", False) and chain.loop.set_wire("l2", True)
    assert not chain.loop.wires()["l2"].up and chain.loop.wires()["l2"].admin_up
    chain.loop.set_wire("r1", True)
    chain.wait(lambda: chain.state(1, 2) == chain.state(2, 1) == (True, True))
    chain.send(b"again")
    assert chain.frames(1) == [frame(0, payload=b"again")]
    ends = chain.loop.wires()
    assert [ends[name].carrier_changes for name in ("r1", "l2", "r2")] == [2, 2, 0]


def test_detach__an_end_outlives_its_port(chain: Chain) -> None:
    chain.route_to_cpu()
    chain.send(b"one")
    chain.frames(1)
    chain.loop.detach(chain.devices[2])
    chain.send(b"to nobody")
    chain.wait(lambda: chain.loop.wires()["l2"].rx_packets == 2)
    with pytest.raises(PortError, match="a port is at one of its ends"):
        chain.loop.remove_wire("l2")
    chain.loop.attach(chain.devices[2])
    chain.loop.add_ports(chain.devices[2], {1: "l2", 2: "r2"})
    chain.send(b"two")
    assert chain.frames(2) == [frame(0, payload=b"one"), frame(0, payload=b"two")]


def test_refuses__what_cannot_be(chain: Chain) -> None:
    with pytest.raises(PortError, match="l2: is port 1 of device 2"):
        chain.loop.add_port(chain.devices[3], 7, "l2")
    with pytest.raises(PortError, match="one of these is an end of a wire already"):
        chain.loop.add_wire("new", "l3")
    with pytest.raises(PortError, match="or they are the same"):
        chain.loop.add_wire("new", "new")
    with pytest.raises(PortError, match="mtu 20000: give 68 to 16366 bytes"):
        chain.loop.add_wire("a", "b", 20000)
    with pytest.raises(PortError, match="is no interface name"):
        chain.loop.add_wire("a", "b" * 16)
    for call in (chain.loop.remove_wire, lambda name: chain.loop.set_wire(name, True)):
        with pytest.raises(PortError, match="no wire has an end 'nowhere'"):
            call("nowhere")
    assert set(chain.loop.wires()) == {"r1", "l2", "r2", "l3"}


def test_remove__frees_the_names(chain: Chain) -> None:
    chain.loop.add_wire("a", "b", 1500)
    assert (chain.loop.wires()["b"].far, chain.loop.wires()["b"].mtu) == ("a", 1500)
    chain.loop.remove_wire("b")
    chain.loop.add_wire("b", "a")
    chain.loop.remove_wire("a")
    assert set(chain.loop.wires()) == {"r1", "l2", "r2", "l3"}


def test_mtu__longer_frames_and_no_frames_are_dropped_by_the_sender(chain: Chain) -> None:
    for size in (9215 + 14 + 2, 13):
        chain.loop.send(chain.devices[1], 2, bytes(size))
    stats = chain.loop.ports(chain.devices[1])[2]
    assert (stats.tx_dropped, stats.tx_packets) == (2, 0)
    assert chain.loop.wires()["r1"].tx_dropped == 2


def test_traffic__delay_loss_and_rate_of_a_port_on_a_wire(chain: Chain) -> None:
    """The settings are the traffic manager's, which knows no cable: the same settings as on an interface."""
    chain.route_to_cpu()
    sends = Impairment(delay_us=2000, loss_pattern="0001")
    chain.devices[1].traffic.set(2, PortSettings(rate_bps=10_000_000, output=sends))
    for number in range(8):
        chain.send(bytes([number]) * 1000)
    assert [data[-1] for data in chain.frames(6)] == [0, 1, 2, 4, 5, 6]
    state = chain.devices[1].traffic.state(2)
    assert state.output.lost_pkts == 2 and sum(queue.transmit_pkts for queue in state.queues) == 8


def test_tap__hears_what_comes_to_an_end_until_it_is_told_not_to(chain: Chain) -> None:
    chain.route_to_cpu()
    reader_end, tap_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader_end:
        reader_end.settimeout(WAIT_S)
        number = chain.loop.tap_wire("l2", tap_end, 20)
        start_ns = time.time_ns()
        chain.send(b"p" * 100)
        message = reader_end.recv(4096)
        at_ns, length, _ = struct.unpack_from("=QII", message)
        sent = frame(0, payload=b"p" * 100)
        assert message[16:] == sent[:20] and length == len(sent)
        assert start_ns <= at_ns <= time.time_ns()
        assert chain.loop.untap_wire(number) == 0
        chain.send(b"unheard")
        chain.frames(2)
        assert reader_end.recv(4096) == b""
    with pytest.raises(PortError, match=f"no tap {number}"):
        chain.loop.untap_wire(number)


def test_tap__a_listener_that_goes_takes_it_along(chain: Chain) -> None:
    chain.route_to_cpu()
    reader_end, tap_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = chain.loop.tap_wire("l3", tap_end, 4096)
    reader_end.close()
    chain.send(b"one")
    chain.frames(1)
    with pytest.raises(PortError, match="no tap"):
        chain.loop.untap_wire(number)
    spare_reader, spare_tap = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with spare_reader, spare_tap, pytest.raises(PortError, match="no wire has an end"):
        chain.loop.tap_wire("nowhere", spare_tap, 4096)


def test_full__as_many_wait_as_in_a_ring_and_the_rest_is_counted() -> None:
    """No thread takes anything: the loop has not been started."""
    with contextlib.closing(EventLoop(ring_kib=128)) as loop:  # two blocks of 14 slots
        loop.add_wire("a", "b")
        device = P4Device(1, "d1")
        try:
            loop.attach(device)
            loop.add_ports(device, {1: "a", 2: "b"})
            for _ in range(40):
                loop.send(device, 1, bytes(60))
            ends = loop.wires()
            assert (ends["a"].tx_packets, ends["b"].rx_packets, ends["b"].rx_dropped) == (40, 12, 12)
            assert loop.ports(device)[2].rx_dropped == 12
        finally:
            loop.close()
            device.close()
