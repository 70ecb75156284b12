"""`mrc run --trace` and `mrc scenario trace`: a scenario made around a trace, and what a trace holds."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.console import terminal
from mrc_testbed.console.units import show_size
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective, Program
from mrc_testbed.hosts.traffic.program_check import check

PACKED_RACK = 4
"""Hosts of a rack when a trace has more ranks than two racks of them hold."""
LIVE_BPS = 32e6
"""Most bits per second of all NICs of a live fabric together, so that two cores can follow."""
VIRTUAL_LINK_BPS = 10e6
RTT_S = 0.010
PLANES = 4


@dataclass(frozen=True, slots=True)
class Replay:
    """Options of a replay, as a user gives them."""

    iterations: int = 1
    compute_scale: float = 1.0
    size_scale: float = 1.0
    groups: Path | None = None
    placement: str = "packed"


def scenario_of(trace: Path, replay: Replay, *, live: bool) -> tuple[str, str]:
    """Return name and YAML of a scenario that replays a trace, one host per rank. Raises TraceError."""
    program = read_trace(trace, groups=replay.groups, compute_scale=replay.compute_scale, size_scale=replay.size_scale)
    ranks = len(program.ranks)
    per_rack = max(1, min(PACKED_RACK, -(-ranks // 2)))
    rate = min(VIRTUAL_LINK_BPS, LIVE_BPS / PLANES / ranks) if live else VIRTUAL_LINK_BPS
    work: dict[str, Any] = {
        "trace": str(trace.resolve()),
        "name": "job",
        "iterations": replay.iterations,
        "placement": replay.placement,
        "compute_scale": replay.compute_scale,
        "size_scale": replay.size_scale,
    }
    if replay.groups is not None:
        work["groups"] = str(replay.groups.resolve())
    data = {
        "title": f"{trace.name}, replayed",
        "fabric": {"planes": PLANES, "racks": -(-ranks // per_rack), "spines": 2, "hosts_per_rack": per_rack},
        "links": {"rate": round(rate), "rtt": RTT_S * VIRTUAL_LINK_BPS / rate},
        "workload": [work],
        "limit": 3600,
        "figures": [{"kind": "iteration_cdf"}, {"kind": "rate_over_time", "metric": "rate.total"}],
    }
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", program.name).strip("-") or "trace"
    return f"trace-{name}", json.dumps(data, indent=1)  # JSON is YAML


def show(trace: Path, replay: Replay, as_json: bool) -> int:
    """Print the content of a trace; return exit code 0. Raises TraceError."""
    program = read_trace(trace, groups=replay.groups, compute_scale=replay.compute_scale, size_scale=replay.size_scale)
    data = summarize_trace(program)
    if as_json:
        print(json.dumps(data, indent=2))
        return 0
    lines = [
        f"{trace}: {data['ranks']} ranks, {data['tasks']} tasks",
        f"computing: {data['busiest_s']:.6g} s at the busiest rank; {data['ideal_s']:.6g} s a step on a network that "
        "takes no time",
        f"messages: {data['messages']}; sent by all ranks in a step: {show_size(data['sent_bytes'])}",
    ]
    lines += [
        f"collectives: {collective['count']} x {collective['kind']} of {show_size(collective['size'])} "
        f"among {collective['ranks']} ranks"
        for collective in data["collectives"]
    ]
    if data["computations"] and not data["busiest_s"]:
        lines.append(f"none of its {data['computations']} computations takes time: the step is communication alone")
    print(terminal.Style.for_stream(sys.stdout).fold("\n".join(lines)))
    return 0


def summarize_trace(program: Program) -> dict[str, Any]:
    """Return the content of a trace as JSON data; times in seconds, sizes in bytes."""
    ideal = check(program)
    every = [task for rank in program.ranks for task in rank.tasks]
    counts: dict[tuple[str, int, int], float] = {}
    for task in every:
        if isinstance(task, JoinCollective):
            key = (task.kind, task.size, len(task.group))
            counts[key] = counts.get(key, 0.0) + 1 / len(task.group)
    return {
        "name": program.name,
        "ranks": len(program.ranks),
        "tasks": len(every),
        "computations": sum(isinstance(task, Compute) for task in every),
        "messages": ideal.messages,
        "sent_bytes": ideal.sent_bytes,
        "busiest_s": ideal.busiest_s,
        "ideal_s": ideal.seconds,
        "collectives": [
            {"kind": kind, "size": size, "ranks": ranks, "count": round(count)}
            for (kind, size, ranks), count in sorted(counts.items())
        ],
    }
