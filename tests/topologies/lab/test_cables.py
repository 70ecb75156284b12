"""Cables: joined, cut at their plugs, lossy, and what becomes of ports set down by hand.

Real interfaces and frames.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import netdev
from mrc_testbed.topologies.lab.cables import FIGURES, WAKING_FRAME, Cables, CableWatch
from mrc_testbed.topologies.lab.netdev import IFF_NOARP, IFF_UP, NetDevices
from mrc_testbed.topologies.lab.traffic_control import INPUT, OUTPUT, Setting, impairment
from mrc_testbed.topologies.plan import Plan
from tests.cables import wait_until, wait_until_up

root = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes interfaces"),
]
PLAN = Plan(1, 1, 1, 1)
NIC, T0, UPLINK, T1 = "h0-eth0", "p0-t0-0-eth1", "p0-t0-0-eth2", "p0-t1-0-eth1"
CLONE_NEWNET = 0x4000_0000
FRAME = bytes(12) + b"\x88\xb6" + b"x" * 100


class Rig:
    """All cables of PLAN in one namespace, ports up."""

    def __init__(self) -> None:
        self.cables = Cables(PLAN)
        self.devices = NetDevices()
        self.cut: list[str] = []
        self.notices: list[str] = []
        self.cables.create(0x4000_0001, PLAN.mac, {})
        for port in (NIC, T0, UPLINK, T1):
            netdev.forbid_ipv6(port)
            self.devices.set_flags(port, on=IFF_UP | IFF_NOARP)
        wait_until_up(NIC, T0, UPLINK, T1, *self.cables.plugs)

    def carriers(self, *ports: str) -> list[bool]:
        return [self.devices.is_up(port) for port in ports]

    @contextmanager
    def listening(self, port: str) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as receiving_socket:
            receiving_socket.bind((port, 3))
            receiving_socket.settimeout(0.2)
            yield receiving_socket

    def carry(self, sender: str, receiver: str, count: int) -> list[bytes]:
        """Send `count` frames; return those that arrive."""
        with (
            self.listening(receiver) as receiving_socket,
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sending_socket,
        ):
            sending_socket.bind((sender, 0))
            for _ in range(count):
                sending_socket.send(FRAME)
            return received(receiving_socket)

    def watch(self) -> None:
        def cut(port: str) -> None:
            self.cables.set_port(port, False)
            self.cut.append(port)

        self.cables.watch(cut, self.notices.append)


def received(receiving_socket: socket.socket) -> list[bytes]:
    out = []
    try:
        while True:
            out.append(receiving_socket.recv(2048))
    except TimeoutError:
        return out


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Make a rig in a network namespace of its own, which takes all interfaces along when it goes."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as old_namespace:
        assert libc.unshare(CLONE_NEWNET) == 0
        try:
            new_rig = Rig()
            yield new_rig
            new_rig.cables.close()
            new_rig.devices.close()
        finally:
            assert libc.setns(old_namespace.fileno(), CLONE_NEWNET) == 0


class TestCables:
    pytestmark = root

    def test_joined__frames_pass_both_ways_unchanged_and_are_counted(self, rig):
        assert rig.carriers(NIC, T0, UPLINK, T1) == [True] * 4
        assert rig.carry(NIC, T0, 10) == rig.carry(T0, NIC, 10) == [FRAME] * 10
        assert rig.carry(UPLINK, T1, 3) == [FRAME] * 3
        assert [rig.cables.arrived_packets(port) for port in (NIC, T0, UPLINK, T1)] == [10, 10, 0, 3]
        assert rig.cables.came_to("p0-t0-0") == 10

    def test_cut__both_ports_lose_carrier_and_stay_up_themselves(self, rig):
        rig.cables.set_port(T0, False)
        rig.cables.set_port(NIC, False)
        assert rig.carriers(NIC, T0, UPLINK, T1) == [False, False, True, True]
        assert rig.devices.flags(NIC) & rig.devices.flags(T0) & IFF_UP
        rig.cables.set_port(NIC, True)
        assert rig.carriers(NIC, T0) == [False, False], "its other port is still held down"
        rig.cables.set_port(T0, True)
        assert rig.carriers(NIC, T0) == [True, True] and rig.carry(NIC, T0, 5) == [FRAME] * 5

    def test_loss__by_pattern_by_chance_and_of_one_direction(self, rig):
        rig.cables.apply(impairment(NIC, OUTPUT, "loss", 0.0, "0001"))
        assert len(rig.carry(NIC, T0, 20)) == 15 and len(rig.carry(T0, NIC, 20)) == 20
        counts = rig.cables.read(NIC, OUTPUT)
        assert (counts.lost_pkts, counts.lost_octets, counts.loss_pattern) == (5, 5 * len(FRAME), "0001")
        rig.cables.apply(impairment(NIC, OUTPUT, "loss", 0.0, ""))
        rig.cables.apply(impairment(T0, INPUT, "loss", 0.5, "", seed=7))
        first = [len(rig.carry(NIC, T0, 40)), len(rig.carry(NIC, T0, 40))]
        assert all(10 < count < 30 for count in first)
        rig.cables.apply(impairment(T0, INPUT, "loss", 0.5, "", seed=7))
        assert [len(rig.carry(NIC, T0, 40)) for _ in first] == first, "the same seed, the same losses"
        assert rig.cables.read(T0, INPUT).lost_pkts == 2 * (80 - sum(first))
        rig.cables.apply(impairment(NIC, OUTPUT, "loss", 1.0, ""))
        rig.cables.apply(impairment(T0, INPUT, "loss", 0.0, ""))
        assert rig.carry(NIC, T0, 40) == [], "each side of a direction has settings of its own"

    def test_corruption__one_bit_of_frames(self, rig):
        rig.cables.apply(impairment(T0, INPUT, "corrupt", 0.0, "01"))
        frames = rig.carry(NIC, T0, 20)
        corrupt_frames = [frame for frame in frames if frame != FRAME]
        assert len(frames) == 20 and len(corrupt_frames) == rig.cables.read(T0, INPUT).corrupted_pkts == 10
        for frame in corrupt_frames:
            flipped_bits = int.from_bytes(frame, "big") ^ int.from_bytes(FRAME, "big")
            assert len(frame) == len(FRAME) and flipped_bits.bit_count() == 1

    def test_by_hand__a_switch_port_set_down_is_up_again_woken_and_its_cable_cut(self, rig):
        rig.watch()
        with rig.listening(T0) as receiving_socket:
            rig.devices.set_flags(T0, clear=IFF_UP)
            wait_until(lambda: rig.cut == [T0], "cut")
            with pytest.raises(OSError, match="Network is down"):
                receiving_socket.recv(2048)
            frames = received(receiving_socket)  # the kernel may drop the first one: a port that has just come up
            assert set(frames) == {WAKING_FRAME} and CableWatch.WAKINGS - 1 <= len(frames) <= CableWatch.WAKINGS
        assert rig.devices.flags(T0) & IFF_UP and rig.carriers(NIC, T0) == [False, False]
        assert len(rig.notices) == 1 and "`link h0 p0-t0-0 up` joins it" in rig.notices[0]
        rig.cables.set_port(T0, True)
        assert rig.carry(NIC, T0, 5) == [FRAME] * 5
        rig.cables.close()
        rig.cables.close()

    def test_by_hand__a_host_port_set_down_takes_the_carrier_from_the_other_end(self, rig):
        rig.watch()
        rig.devices.set_flags(NIC, clear=IFF_UP)
        wait_until(lambda: rig.carriers(T0) == [False], "no carrier at the switch")
        rig.devices.set_flags(NIC, on=IFF_UP)
        wait_until(lambda: rig.carriers(NIC, T0) == [True, True], "carrier at both ends")
        assert rig.carry(T0, NIC, 5) == [FRAME] * 5 and not rig.notices and not rig.cut
        rig.cables.close()

    def test_by_hand__what_goes_with_the_fabric_is_no_news(self, rig):
        """The cables close first, then the ports go: the watch ends before it sees that."""
        rig.watch()
        rig.cables.close()
        rig.devices.set_flags(T0, clear=IFF_UP)
        assert rig.notices == rig.cut == [] and "cables" not in [thread.name for thread in threading.enumerate()]


def test_nothing_made__is_said():
    cables = Cables(PLAN)
    assert cables.read(T0, INPUT).lost_pkts == 0 and cables.plugs[:2] == ["h0-mid0", "p0-t0-0-mid1"]
    with pytest.raises(FabricError, match="no cables: the fabric is not up"):
        cables.set_port(T0, False)


def test_settings__of_a_cable_are_those_of_a_direction():
    assert {setting.figure for setting in impairment(T0, INPUT, "loss", 0.1, "")} <= set(FIGURES)
    assert Setting(T0, "delay-us", 5, direction=INPUT).figure not in FIGURES
