"""`mrc run --trace`, `mrc scenario trace`, `convert`: a scenario around a trace, its content, GOAL."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from mrc_testbed.console import terminal, units
from mrc_testbed.console.units import show_size
from mrc_testbed.errors import DISK_FULL_ERRNOS, UsageError
from mrc_testbed.experiments.language.fault_phrase import fault_line
from mrc_testbed.experiments.language.model import MODES
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.experiments.traces.replay_fabric import replay_fabric
from mrc_testbed.faults.terms import suggestion
from mrc_testbed.files.whole_files import write_output
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective, Program
from mrc_testbed.hosts.traffic.program_check import check

ITERATIONS_MAX = 100
"""Most replays of a trace in a run."""
BASELINES: dict[str, dict[str, Any]] = {
    "rocev2": {
        "mode": "flow-ecmp",
        "queues": {"trim": False, "last_hop_ecn": True},
        "transport": {"kind": "rocev2", "config": {"control": "dcqcn", "timeout": 18, "ev_choice": "random"}},
    },
    **{mode: {"mode": mode} for mode in MODES if mode != "srv6"},
}
"""Name of --against -> changes of its variant: RoCEv2 with DCQCN, or MRC in another mode."""
MRC = "MRC"
VARIANTS = {
    "rocev2": "RoCEv2",
    "stev": "STEV",
    "ecmp": "ECMP",
    "switch-spray": "switch spraying",
    "flow-ecmp": "flow-ECMP",
}
"""Name of --against -> name of its variant in tables, titles and figures."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Options of a replay, as a user gives them."""

    iterations: int | None = None
    """Number of replays; None: one, with faults as many as last beyond them."""
    compute_scale: float = 1.0
    size_scale: float = 1.0
    groups: Path | None = None
    ranks: int | None = None
    """Number of ranks, where a workload does not say it."""
    placement: str = "packed"
    faults: tuple[str, ...] = ()
    """Phrases of faults (language/fault_phrase.py)."""
    against: tuple[str, ...] = ()
    """Names of BASELINES that are run beside MRC."""
    fabric: str | None = None
    """Words of the fabric (replay_fabric.py); None: its defaults."""


def scenario_of(trace: Path, replay: Replay, *, live: bool) -> tuple[str, str]:
    """Return name and YAML of a scenario that replays a trace, one host per rank.

    Raises TraceError, UsageError.
    """
    program = program_of(trace, replay)
    ranks = len(program.ranks)
    fabric = replay_fabric(replay.fabric, ranks, live=live)
    plan = fabric.plan
    faults = [fault_line(phrase, plan) for phrase in replay.faults]
    work: dict[str, Any] = {
        "trace": str(trace.resolve()),
        "name": "job",
        "iterations": replay.iterations or _iterations(faults, _step_s(program, fabric.planes * fabric.rate_bps)),
        "placement": replay.placement,
        "compute_scale": replay.compute_scale,
        "size_scale": replay.size_scale,
    }
    if replay.ranks is not None:
        work["ranks"] = replay.ranks
    if replay.groups is not None:
        work["groups"] = str(replay.groups.resolve())
    baselines = dict(map(_baseline, replay.against))
    data: dict[str, Any] = {
        "title": _title(trace, list(baselines), replay.faults),
        **fabric.parts(live=live),
        "workload": [work],
        "limit": 3600,
        "figures": [{"kind": "iterations_over_time"}, {"kind": "iteration_cdf"}],
    }
    if faults:
        data["faults"] = faults
    if baselines:
        data["variants"] = {MRC: {}} | baselines
        # A baseline may lose its connections to a fault: that is a result, and no failure of the comparison.
        data["expect"] = [
            {"failed": "job", "at_least": 0, "where": {"variant": name}, "why": "a baseline may die of a fault"}
            for name in baselines
        ]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", program.name).strip("-") or "trace"
    return f"trace-{name}", json.dumps(data, indent=1)  # JSON is YAML


def program_of(trace: Path, replay: Replay) -> Program:
    """Return the program of a trace, read as the options say. Raises TraceError, UsageError."""
    program = read_trace(
        trace,
        groups=replay.groups,
        ranks=replay.ranks,
        compute_scale=replay.compute_scale,
        size_scale=replay.size_scale,
    )
    if replay.ranks not in (None, len(program.ranks)):
        raise UsageError(f"--ranks {replay.ranks}: the trace has {len(program.ranks)} ranks; leave --ranks out")
    return program


def _title(trace: Path, baselines: list[str], faults: tuple[str, ...]) -> str:
    """Return the title: the trace, what it is replayed over, and a single fault in its own words."""
    over_text = f" over {', '.join([MRC, *baselines[:-1]])} and {baselines[-1]}" if baselines else ""
    under_text = f" under {len(faults)} faults" if len(faults) > 1 else f": {faults[0]}" if faults else ""
    return f"{trace.name}, replayed{over_text}{under_text}"


def _baseline(name: str) -> tuple[str, dict[str, Any]]:
    """Return name and changes of the variant for a name of --against. Raises UsageError."""
    if name not in BASELINES:
        raise UsageError(f"--against {name}: no such baseline ({suggestion(name, BASELINES)})")
    return VARIANTS[name], BASELINES[name]


def _step_s(program: Program, host_bps: float) -> float:
    """Return the least duration of a step: its computing, and its bytes at a host's full rate."""
    ideal = check(program)
    return ideal.seconds + 8 * ideal.sent_bytes / len(program.ranks) / host_bps


def _iterations(faults: list[dict[str, Any]], step_s: float) -> int:
    """Return the number of replays of a step that last until the faults are over, and half as long again.

    Raises UsageError when that is more than a run may have.
    """
    timed_lines = [line for line in faults if not line["at"].endswith("%")]
    if not timed_lines:
        return 1 if not faults else 10
    end_s = max(units.seconds(line["at"]) + units.seconds(line.get("for", 0)) for line in timed_lines)
    count = ITERATIONS_MAX + 1 if step_s <= 0 else max(2, ceil(1.5 * end_s / step_s))
    if count > ITERATIONS_MAX:
        raise UsageError(
            f"--fault: {ITERATIONS_MAX} steps of {units.show_seconds(step_s)} are over by then: "
            "give an earlier fault, --iterations, or a larger --compute-scale"
        )
    return count


def show(trace: Path, replay: Replay, as_json: bool) -> int:
    """Print the content of a trace; return exit code 0. Raises TraceError."""
    program = program_of(trace, replay)
    data = summarize_trace(program)
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        _print_lines(_summary_lines(trace, program, data))
    return 0


def convert(trace: Path, out: Path, replay: Replay) -> int:
    """Write a trace as GOAL text and print what it holds; return exit code 0. Raises UsageError."""
    # Not before: numpy comes with the collectives.
    from mrc_testbed.experiments.traces.goal_text import goal_of

    program = program_of(trace, replay)
    text = goal_of(program)
    lines = _summary_lines(trace, program, summarize_trace(program))
    try:
        write_output(out, text.encode())
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        raise UsageError(f"{out}: cannot be written: {error.strerror or error}") from None
    messages = len(re.findall(r": send ", text))
    _print_lines([*lines, f"{out}: GOAL text, {messages} messages"])
    return 0


def _print_lines(lines: list[str]) -> None:
    print(terminal.Style.for_stream(sys.stdout).fold("\n".join(lines)))


def _summary_lines(trace: Path, program: Program, data: dict[str, Any]) -> list[str]:
    """Return the content of a trace for people."""
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
    return lines + [f"note: {note}" for note in program.notes]


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
        "notes": list(program.notes),
    }
