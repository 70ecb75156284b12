"""`mrc bench spray`: a T1 loses its downlink to a rack; how long are packets sent to it in vain?

In the modes where switches choose the uplink, the T0s of other racks go on using that T1 until somebody tells them: the
controller, which takes it out of their groups towards that rack. A host sends numbered packets to one in the other rack
at a steady pace; what does not arrive was lost, and the last one lost says when it was over. The same cut without the
controller loses the share of that T1 for as long as it lasts. Restoring the link must lose nothing.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from mrc_testbed.console.progress import Progress
from mrc_testbed.hosts.clustermapper.ports import network_namespace
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Mode, Plan
from tools.campaigns.faults import spread

PACKETS_PER_S = 2000
BURST = 2
WATCH_S = 1.5
"""Seconds for which a cut is watched."""
SETTLE_S = 0.5
TARGET_S = 0.2
"""Longest accepted time of losses with the controller, seconds.

The controller's work takes a few milliseconds, but the machine is shared.
"""
UDP_PORT = 4791
ETHERTYPE_IPV6 = 0x86DD
BUFFER_BYTES = 16 << 20
SO_RCVBUFFORCE = 33
_HEAD = struct.Struct("!6s6sH IHBB16s16s HHHH Qd")
"""Ethernet, IPv6, UDP (checksum 0: not checked here), number, time of sending."""


@dataclass(slots=True)
class ProbeStream:
    """Numbered packets from one host to another, each with an EV of its own. Use `start`, then `stop`."""

    out: socket.socket
    receiver: socket.socket
    head: tuple[bytes, bytes, bytes, bytes]
    """MAC to, MAC from, address from, address to."""
    sent: dict[int, float]
    received: set[int]
    running: bool = False
    threads: tuple[threading.Thread, ...] = ()

    @classmethod
    def of_hosts(cls, fabric: Fabric, source: str, destination: str, plane: int) -> ProbeStream:
        plan = fabric.plan
        source_host, destination_host = plan.host(source), plan.host(destination)
        ports = plan.host_port(source_host, plane), plan.host_port(destination_host, plane)
        sockets = []
        for port in ports:
            with network_namespace(fabric.hosts[port.node].pid):
                receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV6))
                receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
                receiver.bind((port.interface, ETHERTYPE_IPV6))
                receiver.settimeout(0.1)
                sockets.append(receiver)
        macs = [bytes.fromhex(plan.mac(port).replace(":", "")) for port in ports]
        source_address, address = (plan.address(host, plane).packed for host in (source_host, destination_host))
        return cls(sockets[0], sockets[1], (macs[1], macs[0], source_address, address), {}, set())

    def start(self) -> None:
        self.running = True
        self.threads = tuple(threading.Thread(target=t, daemon=True) for t in (self._receive, self._send))
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.running = False
        for thread in self.threads:
            thread.join()

    def close(self) -> None:
        self.out.close()
        self.receiver.close()

    def lost_between(self, begin: float, end: float) -> list[float]:
        """Sending times of the packets of that interval that did not arrive."""
        return [t for number, t in self.sent.items() if begin <= t < end and number not in self.received]

    def sent_between(self, begin: float, end: float) -> int:
        return sum(begin <= t < end for t in self.sent.values())

    def _send(self) -> None:
        number, due = 0, time.monotonic()
        while self.running:
            for _ in range(BURST):
                number += 1
                now = time.monotonic()
                # Flow label and port change with each packet, so that hashes spread packets over all uplinks.
                flow = (6 << 28) | (number * 40503 & 0xFFFF)
                udp = 8 + 16
                ports = 0xC000 | (number * 7919 & 0x3FFF)
                to_mac, from_mac, source, destination = self.head
                frame = _HEAD.pack(
                    to_mac,
                    from_mac,
                    ETHERTYPE_IPV6,
                    flow,
                    udp,
                    17,
                    64,
                    source,
                    destination,
                    ports,
                    UDP_PORT,
                    udp,
                    0,
                    number,
                    now,
                )
                self.sent[number] = now
                self.out.send(frame)
            due += BURST / PACKETS_PER_S
            time.sleep(max(due - time.monotonic(), 0.0))

    def _receive(self) -> None:
        source_address = self.head[2]
        while self.running or self._is_sending:
            try:
                frame = self.receiver.recv(256)
            except TimeoutError:
                self._is_sending = False
                continue
            self._is_sending = True
            if len(frame) >= _HEAD.size and frame[22:38] == source_address:
                self.received.add(_HEAD.unpack_from(frame)[13])

    _is_sending: bool = True


def _cut(fabric: Fabric, t1: str, t0: str) -> tuple[float, float]:
    """Cut and restore a downlink under the stream; when each was, monotonic seconds."""
    cut_at = fabric.link(t1, t0, is_up=False)
    time.sleep(WATCH_S)
    restored_at = fabric.link(t1, t0, is_up=True)
    time.sleep(SETTLE_S)
    return cut_at, restored_at


def run(mode: str, rounds: int, console: Console) -> dict[str, Any]:
    """Times in seconds, `met` among the result."""
    plan = Plan(planes=1, racks=2, spines=2, hosts_per_rack=1, mode=Mode.from_name(mode))
    cuts: list[tuple[float, float]] = []
    with (
        Progress(console, "bench spray", guess_s=10.0 + 3.0 * rounds, size=10.0 + 3.0 * rounds) as progress,
        open_fabric(plan, LabOptions(agents=False, mapper=False), console) as fabric,
    ):
        stream = ProbeStream.of_hosts(fabric, "h0", "h1", 0)
        stream.start()
        time.sleep(SETTLE_S)
        for number in range(rounds):
            progress.step(f"cut {number + 1} of {rounds}", quiet=True)
            cuts.append(_cut(fabric, f"p0-t1-{number % plan.spines}", "p0-t0-1"))
        switch_status = fabric.controller.request("switches")["switches"]["p0-t0-0"]
        progress.step("a cut without the controller", quiet=True)
        # Without the controller no switch learns of the cut: the comparison.
        fabric.controller.request("shutdown")
        time.sleep(SETTLE_S)
        lone_cut = _cut(fabric, "p0-t1-0", "p0-t0-1")
        time.sleep(SETTLE_S)
        stream.stop()
        stream.close()
    lost = [stream.lost_between(cut - 0.01, restored_at) for cut, restored_at in cuts]
    lost_for = [max((t - cut for t in times), default=0.0) for times, (cut, _) in zip(lost, cuts, strict=True)]
    lost_after = [len(stream.lost_between(restored_at, restored_at + SETTLE_S - 0.1)) for _, restored_at in cuts]
    without = stream.lost_between(lone_cut[0] - 0.01, lone_cut[1])
    share = len(without) / max(1, stream.sent_between(*lone_cut))
    alone_for_s = max((t - lone_cut[0] for t in without), default=0.0)
    result = {
        "mode": mode,
        "rounds": rounds,
        "packets_per_s": PACKETS_PER_S,
        "watched_s": WATCH_S,
        "with_controller": {
            "lost_for_s": spread(lost_for),
            "lost_packets": spread([float(len(times)) for times in lost]),
            "lost_after_restore": sum(lost_after),
            "live_writes": switch_status["live_writes"],
        },
        "without_controller": {
            "lost_for_s": alone_for_s,
            "lost_packets": len(without),
            "share": share,
        },
        "target_s": TARGET_S,
        "met": max(lost_for) < TARGET_S and alone_for_s > 0.9 * WATCH_S,
    }
    ms = {key: 1e3 * value for key, value in spread(lost_for).items()}
    console.print(
        f"{mode}: a T1-T0 downlink cut under {PACKETS_PER_S} packets/s to that rack, {rounds} times\n"
        f"  with the controller     packets lost for {ms['median']:.1f} ms (median), {ms['p95']:.1f} (p95), "
        f"{ms['max']:.1f} (max); {spread([float(len(t)) for t in lost])['median']:.0f} packets; "
        f"{sum(lost_after)} after restoring\n"
        f"  without the controller  {len(without)} packets, {100 * share:.0f} % of all, "
        f"as long as the cut lasts ({WATCH_S:g} s)"
    )
    console.print("[green]met[/green]" if result["met"] else "[red]not met[/red]")
    return result
