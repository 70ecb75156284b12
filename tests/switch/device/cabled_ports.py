"""The event loop on real interfaces.

A device between veth pairs in a network namespace of the test's own.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrc_testbed.ipc.procfs import thread_seconds
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, TableEntry
from mrc_testbed.switch.device.loop import EventLoop, PacketIn, PortEvent
from tests.cables import wait_until_up
from tests.switch.mini_program import BY_MAC, FORWARD, mini

CLONE_NEWNET = 0x40000000
WAIT_S = 10.0
"""Longest wait for what must happen, seconds; only a failure takes that long.

A frame is waited for longer while the forwarding thread waits for a CPU: beside real-time threads (fabrics with rates)
ordinary ones share 5 % of the time, and a thread of a process that was started by `nice` has a hundredth of that.
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def make_link(switch_end: str, peer_end: str) -> None:
    ip("link", "add", switch_end, "type", "veth", "peer", "name", peer_end)
    for name in (switch_end, peer_end):
        with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as knob:
            knob.write("1")
        ip("link", "set", name, "mtu", "9216", "arp", "off", "up")
    wait_until_up(switch_end, peer_end)


@pytest.fixture(scope="module")
def namespace() -> Iterator[None]:
    """Move the test's thread into an empty network namespace, which dies with its last socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home:
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            for number in (1, 2, 3):
                make_link(f"s{number}", f"h{number}")
            yield
        finally:
            libc.setns(home.fileno(), CLONE_NEWNET)


def no_story() -> str:
    return ""


def waited_s() -> float:
    """Return the time for which this process's threads were ready to run without a CPU, seconds."""
    return sum(wait_s for _, wait_s in thread_seconds(os.getpid()).values())


class Peer:
    """The far end of a port's cable. `story`: what has become of frames, for the message of a failure."""

    def __init__(self, interface: str, story: Callable[[], str] = no_story):
        self.story = story
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: a busy machine loses nothing
        self.socket.bind((interface, 3))
        self.socket.settimeout(WAIT_S)

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def receive(self) -> bytes:
        while True:
            wait_before_s = waited_s()
            try:
                return self.socket.recv(20000)
            except TimeoutError:
                if (starved_s := waited_s() - wait_before_s) < WAIT_S / 2:
                    raise AssertionError(
                        f"no frame in {WAIT_S:g} s, our threads were {starved_s:.2f} s without a CPU: {self.story()}"
                    ) from None


class Bench:
    """A device on ports 1 to 3 with its peers, and the events seen so far."""

    def __init__(self) -> None:
        self.loop = EventLoop(ring_kib=256)
        self.loop.start()
        self.device = P4Device(7, "mini-switch")
        self.power_on()
        self.peers = {number: Peer(f"h{number}", self.story) for number in (1, 2, 3)}
        self.received_events: list[PacketIn | PortEvent] = []
        self.waiting: list[PacketIn | PortEvent] = []

    def story(self) -> str:
        """Return the counters along a frame's path as text.

        The ports', the device's, and the kernel's backlog (/proc/net/softnet_stat).
        """
        softnet = [line.split()[:3] for line in Path("/proc/net/softnet_stat").read_text().splitlines()]
        return f"{self.loop.ports(self.device)}, {self.device.stats()}, backlog taken, dropped, squeezed {softnet}"

    def power_on(self) -> None:
        self.device.load(mini())
        self.loop.attach(self.device)
        self.loop.add_port(self.device, 1, "s1")
        self.loop.add_ports(self.device, {2: "s2", 3: "s3"})

    def route(self, dst: int, port: int, action: int = FORWARD, *params: int) -> None:
        values = [(i, v.to_bytes(2, "big")) for i, v in enumerate((port, *params), 1)]
        match = FieldMatch.exact(1, dst.to_bytes(6, "big"))
        self.device.insert(TableEntry(BY_MAC, (match,), ActionCall(action, tuple(values))))

    def wait_event(self, predicate: Callable[[PacketIn | PortEvent], bool]) -> PacketIn | PortEvent:
        """Wait for the next event that fulfils a predicate; events before it are passed over."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            select.select([self.loop], [], [], 0.2)
            self.waiting += self.loop.events()
            while self.waiting:
                event = self.waiting.pop(0)
                self.received_events.append(event)
                if predicate(event):
                    return event
        raise AssertionError(f"no such event among {self.received_events}")

    def close(self) -> None:
        self.loop.close()
        self.device.close()
        for peer in self.peers.values():
            peer.socket.close()
