"""Rig of the switch benchmarks: forwarder between two cables in a network namespace, frames, load.

enter_namespace()                               # empty, and ends with the process
one = Forwarder("embedded", "e", lambda: thread_ns(os.getpid(), "p4-forward"))
make_cables(one)
drive(loader, one, head, size, window, packets) # tools/bench/load.c: frames in a closed loop through the forwarder
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.topologies.plan import Plan, SwitchRoutes, carrier
from tools.bench.plan_entries import load_plan

BENCH_FOLDER = Path(__file__).parent
LOAD = BENCH_FOLDER / "load.c"

FRAME_BYTES = (158, 1158, 4214)
"""A SACK-sized frame, data frames with 1024 and with 4096 bytes of payload."""
ETHERNET = bytes.fromhex("02000000000202000000000186dd")
IPV6 = bytes.fromhex("61200000")
"""Version, a trimmable DSCP, ECT(0), no flow label."""
CLONE_NEWNET = 0x4000_0000


@dataclass
class Forwarder:
    """One candidate: name, suffix of its two inner interfaces, and CPU time of its forwarding thread."""

    name: str
    key: str
    cpu_ns: Callable[[], int]
    samples: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    softirq: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    hop_us: dict[int, list[float]] = field(default_factory=dict)
    lost: int = 0

    def interfaces(self) -> tuple[str, str, str, str]:
        """(load in, switch in, switch out, load out)."""
        return f"b{self.key}la", f"b{self.key}sa", f"b{self.key}sb", f"b{self.key}lb"


def load_routes(device: P4Device, plan: Plan) -> SwitchRoutes:
    """srv6.p4 and the whole tables of the first T0 into `device`."""
    load_plan(device, plan, plan.switches[0])
    return plan.srv6_routes(plan.switches[0])


def frame_heads(plan: Plan, routes: SwitchRoutes) -> dict[int, bytes]:
    """Return the headers of a frame of each size: Ethernet, uSID carrier, inner IPv6, UDP, BTH.

    The carrier leads to the first neighbour.
    """
    outer = carrier(routes.own_usid, routes.next_hops[0][0], 0x2001, 0x3000).to_bytes(16, "big")
    return {
        size: b"".join(
            (
                ETHERNET,
                IPV6 + (size - 54).to_bytes(2, "big") + bytes((41, 64)) + _addresses(plan)[:16] + outer,
                _transport(plan, size - 54),
            )
        )
        for size in FRAME_BYTES
    }


def plain_heads(plan: Plan) -> dict[int, bytes]:
    """Return the headers of a frame of each size without the outer header, as spray.p4 forwards them."""
    return {size: ETHERNET + _transport(plan, size - 14) for size in FRAME_BYTES}


def _addresses(plan: Plan) -> bytes:
    return b"".join(plan.address(plan.hosts[i], 0).packed for i in (0, -1))


def _transport(plan: Plan, size: int) -> bytes:
    """IPv6, UDP and BTH of `size` bytes from the first host to the last."""
    return b"".join(
        (
            IPV6 + (size - 40).to_bytes(2, "big") + bytes((17, 64)) + _addresses(plan),
            bytes.fromhex("c00012b7") + (size - 40).to_bytes(2, "big") + b"\0\0",
            bytes.fromhex("0600ffff0000001180000001"),
        )
    )


def make_cables(forwarder: Forwarder) -> None:
    """Two veth pairs that carry nothing but our frames."""
    load_in, switch_in, switch_out, load_out = forwarder.interfaces()
    for end_a, end_b in ((load_in, switch_in), (switch_out, load_out)):
        ip("link", "add", end_a, "type", "veth", "peer", "name", end_b)
        for name in (end_a, end_b):
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            ip("link", "set", name, "mtu", "9216", "arp", "off", "up")


def ip(*arguments: str) -> None:
    """Run iproute2's `ip`. Raises RuntimeError."""
    process = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {process.stderr.strip()}")


def drive(loader: Path, forwarder: Forwarder, head: bytes, size: int, window: int, packets: int) -> dict[str, Any]:
    """Run tools/bench/load.c through a forwarder; its figures."""
    first, _, _, last = forwarder.interfaces()
    command = [str(loader), first, last, str(window), str(packets), head.hex(), str(size)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if process.returncode:
        raise RuntimeError(f"tools/bench/load.c failed: {process.stderr.strip()}")
    figures: dict[str, Any] = json.loads(process.stdout)
    return figures


def thread_ns(pid: int, name: str | None = None) -> int:
    """Return the on-CPU nanoseconds of a process's thread of that name (None: of all its threads)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if name is None or (task / "comm").read_text().strip() == name:
            total += int((task / "schedstat").read_text().split()[0])
    return total


def enter_namespace() -> None:
    """Move this process into an empty network namespace, and let it die with its parent.

    Raises RuntimeError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise RuntimeError(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}: run it as root")
    libc.prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
