"""Behaviour and cost of the traffic manager on real interfaces, as part of `mrc bench switch`.

Alone: `python -m tools.bench.traffic`.

rates     frames in a closed loop through a port with a rate: what arrives, in bits/s of frames
delays    single frames at random times through a port with a delay: how late they are, kernel timestamps
cost      CPU per frame of the forwarding thread, with nothing set, and with a rate so high that nothing waits long:
          then each frame is copied into a buffer and leaves by the timer
"""

from __future__ import annotations

import argparse
import contextlib
import json as jsonlib
import os
import random
import socket
import statistics
import struct
import sys
import time
from pathlib import Path
from typing import Any

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.loop import EventLoop
from mrc_testbed.switch.device.traffic import Impairment, PortSettings
from mrc_testbed.switch.system.gcc import build_program
from mrc_testbed.topologies.plan import Plan
from tools.bench.rig import LOAD, Forwarder, drive, enter_namespace, frame_heads, load_routes, make_cables, thread_ns

RATES = (10e6, 100e6)
RATE_SECONDS = 1.5
RATE_FRAME = 1158
DELAYS_US = (0, 500, 5000)
DELAY_FRAMES = 400
COST_PACKETS = 20_000
COST_ROUNDS = 3
FAST_BPS = 10**12

SO_TIMESTAMPNS = 35
PACKET_IGNORE_OUTGOING = 23


def campaign(
    loader: Path, device: P4Device, port: int, heads: dict[int, bytes], forwarder: Forwarder
) -> dict[str, Any]:
    """All three, on a device that forwards between the cables of `forwarder` and leaves by `port`."""
    try:
        return {
            "rates": [_rate(loader, device, port, heads[158], forwarder, int(rate)) for rate in RATES],
            "delays": [_delay(device, port, heads[158], forwarder, delay) for delay in DELAYS_US],
            "cost": [_cost(loader, device, port, head, forwarder, size) for size, head in heads.items()],
        }
    finally:
        device.traffic.reset()


def _rate(loader: Path, device: P4Device, port: int, head: bytes, forwarder: Forwarder, rate: int) -> dict[str, Any]:
    device.traffic.set(port, PortSettings(rate_bps=rate))
    packets = int(rate * RATE_SECONDS / (RATE_FRAME * 8))
    result = drive(loader, forwarder, head, RATE_FRAME, 512, packets)
    got = result["received"] * RATE_FRAME * 8 / result["seconds"]
    return {
        "set_bps": rate,
        "got_bps": round(got),
        "off_percent": round(100 * (got / rate - 1), 3),
        "lost": result["lost"],
    }


def _delay(device: P4Device, port: int, head: bytes, forwarder: Forwarder, delay_us: int) -> dict[str, Any]:
    """Return the lateness of single frames against the delay, microseconds; 0: a frame's own travel time."""
    device.traffic.set(port, PortSettings(output=Impairment(delay_us=delay_us)))
    first, _, _, last = forwarder.interfaces()
    rng = random.Random(1)
    lateness = []
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as out,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as receiver,
    ):
        receiver.setsockopt(263, PACKET_IGNORE_OUTGOING, 1)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver.bind((last, 3))
        receiver.settimeout(1.0)
        out.bind((first, 0))
        data = head + bytes(158 - len(head))
        for _ in range(DELAY_FRAMES):
            sent = time.clock_gettime_ns(time.CLOCK_REALTIME)
            out.send(data)
            _, extra, _, _ = receiver.recvmsg(2048, 64)
            seconds, nanos = struct.unpack("qq", extra[0][2])
            lateness.append((seconds * 1_000_000_000 + nanos - sent) / 1000 - delay_us)
            # Single frames at random times: no frame waits behind another, nor beats with a timer.
            time.sleep(rng.uniform(0.0002, 0.002))
    lateness.sort()
    return {
        "delay_us": delay_us,
        "late_median_us": round(statistics.median(lateness), 1),
        "late_p99_us": round(lateness[len(lateness) * 99 // 100], 1),
        "late_max_us": round(lateness[-1], 1),
        "early": sum(value < 0 for value in lateness),
    }


def _cost(loader: Path, device: P4Device, port: int, head: bytes, forwarder: Forwarder, size: int) -> dict[str, Any]:
    samples: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(COST_ROUNDS):
        for name, settings in (("off", PortSettings()), ("on", PortSettings(rate_bps=FAST_BPS))):
            device.traffic.set(port, settings)
            cpu_before = forwarder.cpu_ns()
            result = drive(loader, forwarder, head, size, 128, COST_PACKETS)
            samples[name].append((forwarder.cpu_ns() - cpu_before) / 1000 / max(1, result["received"]))
    off_ns, on_ns = (statistics.median(samples[name]) for name in ("off", "on"))
    return {"bytes": size, "off_us": round(off_ns, 2), "on_us": round(on_ns, 2), "ratio": round(on_ns / off_ns, 2)}


def table(result: dict[str, Any]) -> list[str]:
    """The figures for people."""
    lines = ["Traffic manager"]
    for row in result["rates"]:
        got, off_percent = row["got_bps"] / 1e6, row["off_percent"]
        lines.append(f"  rate {row['set_bps'] / 1e6:>6.0f} Mb/s: {got:.3f} ({off_percent:+.3f} %), lost {row['lost']}")
    for row in result["delays"]:
        description = f"delay {row['delay_us']} us" if row["delay_us"] else "no delay"
        lines.append(
            f"  {description}: late by median {row['late_median_us']:.1f}, p99 {row['late_p99_us']:.1f}, "
            f"max {row['late_max_us']:.1f} us (the way itself included); early {row['early']}"
        )
    for row in result["cost"]:
        lines.append(
            f"  {row['bytes']:>5} bytes: CPU {row['off_us']:.2f} us a frame with nothing set, "
            f"{row['on_us']:.2f} queued, buffered and timed ({row['ratio']:.2f})"
        )
    return lines


def main() -> int:
    """Command line: the figures, in a namespace of their own."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.traffic", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    enter_namespace()
    with contextlib.ExitStack() as stack:
        device = P4Device(1, "p0-t0-0")
        stack.callback(device.close)
        plan = Plan()
        routes = load_routes(device, plan)
        loop = EventLoop()
        stack.callback(loop.close)
        loop.attach(device)
        loop.start()
        forwarder = Forwarder("embedded", "e", lambda: thread_ns(os.getpid(), "p4-forward"))
        make_cables(forwarder)
        port = routes.next_hops[0][1]
        loop.add_ports(device, {1: forwarder.interfaces()[1], port: forwarder.interfaces()[2]})
        loader = build_program([LOAD], tag="bench-load")
        result = campaign(loader, device, port, frame_heads(plan, routes), forwarder)
    print(jsonlib.dumps(result, indent=2) if options.json else "\n".join(table(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
