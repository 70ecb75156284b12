"""`mrc bench provision`: a fabric of 64 switches, from nothing to tables that equal the plan.

From an empty machine: namespaces and links, the P4 program compiled (from its cache when it has been before), devices
made, links given their rates and delays, then the controller, which connects to every switch, pushes the pipeline,
writes the static routes and thresholds, reads everything back and compares. Hosts run no agents here. Each round
starts anew; times are wall clock with the CPU seconds of all our processes beside them, for the machine is shared.
With `--wires both` each round is done with links between switches as veth pairs, and as wires inside the daemon; the
target holds for the latter.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.progress import Progress
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import VETH, VIRTUAL, LabOptions
from mrc_testbed.topologies.plan import Plan

SCHEMA = "mrc-bench-provision/2"
BOTH_KINDS = "both"
TARGET_S = 10.0
"""The goal: 64 switches, 8 planes x (4 + 4), from nothing, on 2 cores."""
STEPS = {
    "making the network": "network",
    "compiling": "program",
    "starting switches": "devices",
    "starting controller": "controller",
}
"""Start of a progress message -> the step that begins there."""


@dataclass(frozen=True, slots=True)
class ProvisionRound:
    """One start, with links between switches of one kind.

    `steps_s`: wall clock seconds by step; `total_s` from the first to the last of them.
    """

    wires: str
    total_s: float
    cpu_s: float
    steps_s: dict[str, float]
    switches: int
    verified: int
    entries: int
    gone_s: float
    """Seconds to remove everything again."""


class Steps:
    """Takes the time of a Fabric's progress messages."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.steps: dict[str, float] = {}
        self._open = ("checks", self.began)

    def __call__(self, message: str) -> None:
        now = time.monotonic()
        for start, name in STEPS.items():
            if message.startswith(start):
                self._close(now)
                self._open = (name, now)
        if message.startswith("fabric is up"):
            self._close(now)

    def _close(self, now: float) -> None:
        name, start = self._open
        self.steps[name] = self.steps.get(name, 0.0) + now - start


def one_round(plan: Plan, wires: str | None) -> ProvisionRound:
    """Bring the fabric up, read the controller's counts of writes and reads, and take everything down.

    `wires`: kind of the links between switches; None: the usual one.
    """
    cpu_before = _cpu_s()
    steps = Steps()
    with Fabric(plan, LabOptions(agents=False, wires=wires), progress=steps) as fabric:
        total = time.monotonic() - steps.began
        kind = fabric.wires
        status = fabric.controller.request("status")["switches"].values()
        verification = fabric.controller.request("verify", timeout_s=60.0)
        equal = verification["unchanged_since_start"] and not verification.get("differences")
        verified_count = sum(switch_status["verified"] for switch_status in status) if equal else 0
        entries = sum(switch_status["entries"] for switch_status in status)
        removal_start = time.monotonic()
    removal_s = time.monotonic() - removal_start
    return ProvisionRound(
        kind, total, _cpu_s() - cpu_before, steps.steps, len(plan.switches), verified_count, entries, removal_s
    )


def _cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(subject) for subject in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run(plan: Plan, rounds: int, console: Console, wires: str | None = None) -> dict[str, Any]:
    """Start a fabric `rounds` times; the target holds for the slowest start, with all tables right.

    `wires`: kind of the links between switches, or "both": then as many starts of each, in turns.
    """
    every: list[ProvisionRound] = []
    kinds = (VETH, VIRTUAL) if wires == BOTH_KINDS else (wires,)
    size = rounds * len(kinds) * len(plan.switches)
    with Progress(console, "bench provision", guess_s=0.15 * size, size=size) as progress:
        for number in range(rounds):
            for kind in kinds:
                every.append(one_round(plan, kind))
                progress.share(len(every) / (rounds * len(kinds)))
                progress.step(f"round {number + 1} of {rounds}, wires {every[-1].wires}: {every[-1].total_s:.2f} s")
    # With both kinds of wires the target holds for the last kind, wires in the daemon.
    last_kind_rounds = [round_ for round_ in every if round_.wires == every[-1].wires]
    first_kind_rounds = [round_ for round_ in every if round_.wires != every[-1].wires]
    slowest = max(round_.total_s for round_ in last_kind_rounds)
    is_complete = all(round_.verified == round_.switches for round_ in last_kind_rounds)
    result = {
        "schema": SCHEMA,
        "plan": plan.to_json(),
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "wires": every[-1].wires,
        "rounds": [asdict(round_) for round_ in every],
        "median_s": median(round_.total_s for round_ in last_kind_rounds),
        "slowest_s": slowest,
        "veth_median_s": median(round_.total_s for round_ in first_kind_rounds) if first_kind_rounds else None,
        "target_s": TARGET_S,
        "met": is_complete and slowest < TARGET_S,
    }
    if first_kind_rounds:
        _show_steps(first_kind_rounds, plan, console)
    _show(result, last_kind_rounds, plan, console)
    return result


def _show_steps(rounds: list[ProvisionRound], plan: Plan, console: Console) -> None:
    table = Table(title=f"{len(plan.switches)} switches from nothing, wires {rounds[0].wires}: {plan}")
    for head in ("step", "median s", "slowest s"):
        table.add_column(head, justify="left" if head == "step" else "right")
    for name in rounds[0].steps_s:
        took = [round_.steps_s.get(name, 0.0) for round_ in rounds]
        table.add_row(name, f"{median(took):.2f}", f"{max(took):.2f}")
    table.add_section()
    totals = [round_.total_s for round_ in rounds]
    table.add_row("provisioned", f"{median(totals):.2f}", f"{max(totals):.2f}")
    table.add_row(
        "CPU of all processes",
        f"{median(round_.cpu_s for round_ in rounds):.2f}",
        f"{max(round_.cpu_s for round_ in rounds):.2f}",
    )
    table.add_row(
        "removed again",
        f"{median(round_.gone_s for round_ in rounds):.2f}",
        f"{max(round_.gone_s for round_ in rounds):.2f}",
    )
    console.print(table)


def _show(result: dict[str, Any], rounds: list[ProvisionRound], plan: Plan, console: Console) -> None:
    _show_steps(rounds, plan, console)
    last = rounds[-1]
    if result["veth_median_s"] is not None:
        console.print(
            f"provisioned over virtual wires in {result['median_s']:.2f} s, over veth pairs in "
            f"{result['veth_median_s']:.2f} s (medians): {result['median_s'] / result['veth_median_s']:.2f} x"
        )
    console.print(
        f"{last.verified} of {last.switches} switches hold what the plan says "
        f"({last.entries} entries, read back twice), {result['cpus']} CPUs, load before {result['load_before']:.1f}: "
        f"{'met' if result['met'] else 'NOT MET'}, under {TARGET_S:g} s"
    )
