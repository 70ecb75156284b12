"""A fabric on several machines beside the same on one: packets/s and CPU of one transfer, round about.

Where the machines are namespaces of one (tests/cluster_rig.py), both share its processors: the ratio of CPU is what
counts then, the rate only says how far that goes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from mrc_testbed.files.whole_files import write_random
from mrc_testbed.ipc.agent_client import AgentClient
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import Servers

SCHEMA = "mrc-bench-cluster/1"
TRANSFER_LIMIT_S = 300.0
"""A bound for a transfer that takes seconds: beyond it there is no figure."""
MACHINE_LAYOUTS = ("one", "several")


def run(plan: Plan, servers: Servers, size: int, rounds: int, console: Console) -> dict[str, Any]:
    """Measure transfers of `size` random bytes from h0 to another rack, on one machine and several.

    Raises the errors of the fabric and of the agents.
    """
    results: list[dict[str, Any]] = []
    for _ in range(rounds):
        for layout in MACHINE_LAYOUTS:
            lab = LabOptions(servers=servers if layout == "several" else None, mapper=False)
            with open_fabric(plan, lab, console) as fabric:
                results.append({"machines": layout, **_measure(fabric, plan, size)})
    return {
        "schema": SCHEMA,
        "fabric": plan.to_json(),
        "pmtu": plan.pmtu_bytes,
        "bytes": size,
        "processors": len(os.sched_getaffinity(0)),
        "machines": [machine.address for machine in servers.machines],
        "rounds": results,
        "ratios": _ratios(results),
    }


def _measure(fabric: Fabric, plan: Plan, size: int) -> dict[str, Any]:
    source, destination = plan.hosts[0], plan.first_remote_host("h0")
    path = fabric.run_dir.data / "bench-random"
    write_random(path, size)
    remote_path: Path = fabric.bring(source.name, path)
    with AgentClient(fabric.run_dir.agent_socket(source.name)) as agent:
        cpu_before = _cpu_seconds(fabric)
        dest_path = str(fabric.path_for(destination.name, "bench-received"))
        answer = agent.send_file(remote_path, destination.name, dest_path=dest_path, pmtu=plan.pmtu_bytes)
        result = agent.wait(answer["transfer"], timeout_s=TRANSFER_LIMIT_S)
        cpu_after = _cpu_seconds(fabric)
    sent, seconds = result["counters"]["sent"], result["duration_s"]
    labels = {source.name: "requestor", destination.name: "responder", "switchd": "switches"}
    return {
        "packets_per_s": round(sent / seconds),
        "goodput_bps": round(size * 8 / seconds),
        "retransmitted": result["counters"]["retransmitted"],
        "cpu_us_per_packet": {
            label: round((cpu_after[name] - cpu_before[name]) / sent * 1e6, 2) for name, label in labels.items()
        },
        "sha256_equal": result["sha256"] == result["remote_sha256"],
    }


def _cpu_seconds(fabric: Fabric) -> dict[str, float]:
    """CPU time so far of each host's agent by the host's name, and of all daemons as `switchd`."""
    total: dict[str, float] = defaultdict(float)
    for name, threads in fabric.thread_seconds().items():
        total[name.partition(" of ")[0]] += sum(cpu_s for cpu_s, _ in threads.values())
    return total


def _ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    """Several machines over one, by medians."""

    def median_of(layout: str, key: str) -> float:
        rows = [result for result in results if result["machines"] == layout]
        values = [row[key] if key in row else row["cpu_us_per_packet"][key] for row in rows]
        return float(median(values))

    keys = ("packets_per_s", "requestor", "responder", "switches")
    return {key: round(median_of("several", key) / median_of("one", key), 3) for key in keys}


def table(result: dict[str, Any]) -> str:
    """Medians of the rounds, side by side."""
    keys = ("packets_per_s", "requestor", "responder", "switches")
    lines = [f"{'':<22}{'packets/s':>12}{'requestor':>12}{'responder':>12}{'switches':>12}   (CPU us a packet)"]
    for layout in MACHINE_LAYOUTS:
        rows = [round_ for round_ in result["rounds"] if round_["machines"] == layout]
        values = [median(row[key] if key in row else row["cpu_us_per_packet"][key] for row in rows) for key in keys]
        name = "one machine" if layout == "one" else f"{len(result['machines'])} machines"
        lines.append(f"{name:<22}{values[0]:>12,.0f}" + "".join(f"{value:>12.1f}" for value in values[1:]))
    ratios = result["ratios"]
    lines.append(f"{'ratio':<22}" + "".join(f"{ratios[key]:>12.2f}" for key in keys))
    return "\n".join(lines)
