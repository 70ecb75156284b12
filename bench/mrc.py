"""`mrc bench mrc`: goodput and CPU per packet of one transfer across the whole fabric on this machine.

Everything runs here: two host agents in Python, every switch in one daemon, three hops each way. CPU is that of the
processes themselves (user + system, /proc/PID/stat), divided by the data packets sent; the limit beside it is what the
machine's processors could carry if they did nothing else.
"""

from __future__ import annotations

import os
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from hosts.client import AgentClient
from testbed.display import bits
from testbed.fabric import open_fabric
from topologies.net import Fabric
from topologies.plan import Plan

TRANSFER_LIMIT_S = 300.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far, seconds."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def run(plan: Plan, size: int, *, nic: str, console: Console, target: str = "embedded") -> dict[str, Any]:
    """Send `size` random bytes from h0 to a host in another rack, as fast as they go. Schema `mrc-bench-mrc/1`.

    Raises the errors of the fabric and of the agents.
    """
    with open_fabric(plan, target=target, nic=nic, console=console) as fabric:
        result = _measure(fabric, plan, size)
    _print(result, console)
    return result


def _measure(fabric: Fabric, plan: Plan, size: int) -> dict[str, Any]:
    source, destination = plan.hosts[0], plan.first_remote_host("h0")
    path = fabric.run_dir.data / "bench-random"
    with path.open("wb") as out:
        left = size
        while left > 0:
            left -= out.write(os.urandom(min(left, 1 << 20)))
    pids = {child.name: child.pid for child in fabric.processes}
    with AgentClient(fabric.run_dir.agent_socket(source.name)) as agent:
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        started = time.monotonic()
        begun = agent.send_file(path, destination.name, dest_path=str(fabric.run_dir.data / "bench-received"))
        result = agent.wait(begun["transfer"], timeout_s=TRANSFER_LIMIT_S)
        cpu = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    counters, seconds = result["counters"], result["duration_s"]
    packets = counters["sent"]
    hops = 3 if source.rack != destination.rack else 1
    agents = {source.name: "requestor", destination.name: "responder"}
    shares = {label: cpu.get(name, 0.0) / packets * 1e6 for name, label in (*agents.items(), ("switchd", "switches"))}
    total = sum(shares.values())
    cores = len(os.sched_getaffinity(0))
    return {
        "schema": "mrc-bench-mrc/1",
        "fabric": plan.to_json(),
        "bytes": size,
        "seconds": round(seconds, 3),
        "wall_seconds": round(time.monotonic() - started, 3),
        "goodput_bps": round(size * 8 / seconds),
        "packets": {key: counters[key] for key in ("sent", "retransmitted", "lost")},
        "cpu_us_per_packet": {label: round(value, 2) for label, value in shares.items()},
        "cpu_us_per_packet_total": round(total, 2),
        "switch_cpu_us_per_packet_and_hop": round(shares["switches"] / hops, 2),
        "processors": cores,
        "limit_bps": round(size / packets * 8 * cores * 1e6 / total) if total else None,
        "sha256_equal": result["sha256"] == result["remote_sha256"],
    }


def _print(result: dict[str, Any], console: Console) -> None:
    table = Table("what", "CPU us per data packet", box=None, padding=(0, 2))
    for label, value in result["cpu_us_per_packet"].items():
        table.add_row(label, f"{value:10.1f}")
    table.add_row("all", f"{result['cpu_us_per_packet_total']:10.1f}")
    console.print(
        f"goodput {bits(result['goodput_bps'])}: {result['bytes']:,} bytes in {result['seconds']:.2f} s, "
        f"{result['packets']['sent']:,} packets ({result['packets']['retransmitted']:,} retransmitted)"
    )
    console.print(table)
    console.print(
        f"switches {result['switch_cpu_us_per_packet_and_hop']:.1f} us per data packet and hop, SACKs on the way back "
        f"included; limit of {result['processors']} processors at this cost: {bits(result['limit_bps'] or 0)}"
    )
