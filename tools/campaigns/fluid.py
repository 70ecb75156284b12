"""`mrc bench fluid`: the fluid model beside the packet simulator by metric, and with 131,072 NICs.

Four cases run on both, over fabrics and seeds, with the EVs that the packet simulator drew: a permutation that starts
on a fabric with dead T0-T1 links (E2), with and without the denylist; links that flap under it (E3); a T1 that dies and
comes back (E11); a T0 that dies (E10). `--fabric` names others, `--calibrate` measures what the model takes from the
packet simulator (tools/campaigns/fluid_calibration.py), on fabrics other than those of the comparison.
"""

from __future__ import annotations

import gc
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Table

from mrc_testbed.console.progress import Progress
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner, settings_of, shape_of
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.simulator.fluid.calibration import CALIBRATIONS
from mrc_testbed.simulator.fluid.model import ASSUMED_BAD, simulate
from mrc_testbed.simulator.fluid.outages import DOWNLINK, UPLINK, Outages
from mrc_testbed.simulator.fluid.shape import QueuePairs, Singles
from tools.campaigns import fluid_calibration

Fabric: TypeAlias = tuple[int, int, int, int]
"""Planes, racks, spines, hosts a rack."""
SCHEMA = "mrc-bench-fluid/2"
FABRICS = ((4, 8, 8, 8), (4, 16, 8, 4), (8, 8, 8, 8))
"""64 hosts each."""
HEAD = """title: {0}
fabric: {{planes: {1}, racks: {2}, spines: {3}, hosts_per_rack: {4}}}
workload:
  - {{permutation: all, name: job, message: 64K, depth: 4}}
measure: {{every: 10ms}}
"""
CASES = {
    "start": """duration: 3s
faults:
  - {at: 0s, silent: {random: fabric-links, share: 5%}}
variants:
  start: {}
  "start, denylist": {control_plane: {denylist: all}}
""",
    "flaps": """duration: 4s
faults:
  - {poisson: {rate: 4, start: 500ms, stop: 3s}, cut: {random: fabric-links, count: 1}, for: 300ms}
variants:
  flaps: {}
""",
    "T1 off": """duration: 3s
faults:
  - {at: 1s, power_off: p1-t1-0, for: 500ms}
variants:
  "T1 off": {}
""",
    "T0 off": """duration: 2s
faults:
  - {at: 1s, power_off: p1-t0-0}
variants:
  "T0 off": {}
""",
}
"""Scenarios by name, without their heads."""
PAPER = """title: Start of 131,072 NICs
fabric: {planes: 8, racks: 512, spines: 256, hosts_per_rack: 256}
links: {rate: 100G, rtt: 10us}
transport: {pmtu: 4096, clock: 0.001}
workload: [{stream: h0 h300, name: any}]
duration: 61s
measure: {every: 1s}
"""
"""The paper's rates and round trip; hosts start within a minute."""
STAGGERED_S = 60.0


@dataclass(frozen=True, slots=True)
class Error:
    """A metric of one run by both."""

    fabric: str
    seed: int
    case: str
    metric: str
    packets: float
    fluid: float

    @property
    def relative(self) -> float | None:
        """Error of the fluid model against the packet simulator; None where that has 0."""
        return (self.fluid - self.packets) / self.packets if self.packets else None


def run(seeds: int, calibrate: bool, console: Console, fabrics: Sequence[Fabric] = ()) -> dict[str, Any]:
    """Calibrate, or run the comparison and the large fabric; return the result as JSON.

    `fabrics`: instead of FABRICS.
    """
    if calibrate:
        calibrations = {}
        with Progress(console, "bench fluid --calibrate", guess_s=400.0 * seeds) as progress:
            for pipe in fluid_calibration.PIPES:
                calibrations[pipe] = fluid_calibration.calibrate(
                    pipe, seeds, lambda text: progress.step(text, quiet=True)
                )
        for pipe, pipe_fit in calibrations.items():
            console.print(f"{pipe}, measured: {pipe_fit}")
        return {
            "schema": SCHEMA,
            "calibration": {pipe: asdict(calibration) for pipe, calibration in calibrations.items()},
            "in_use": [asdict(calibration) for calibration in CALIBRATIONS],
        }
    errors = compare(seeds, console, fabrics or FABRICS)
    table = error_table(errors)
    console.print(_table_of(table))
    start = big_start()
    console.print(
        f"{start['nics']:,} NICs x {start['evs']} EVs, 1 % of T0-T1 links dead: {start['wall_s']:.0f} s, "
        f"{start['cpu_s']:.0f} s of CPU, {start['memory_bytes'] / 1e9:.2f} GB; {start['bad']:,} EVs retired, "
        f"{start['lost']:,.0f} packets lost, at most {start['lost_worst']:.0f} of a QP"
    )
    return {"schema": SCHEMA, "errors": [asdict(error) for error in errors], "table": table, "start": start}


def fabric_of(text: str) -> Fabric:
    """`4x8x8x8` as planes, racks, spines, hosts a rack. Raises UsageError."""
    numbers = text.split("x")
    if len(numbers) != 4 or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise UsageError(f"--fabric {text}: give planes, racks, spines and hosts a rack as 4x8x8x8")
    planes, racks, spines, hosts = map(int, numbers)
    return planes, racks, spines, hosts


def compare(seeds: int, console: Console, fabrics: Sequence[Fabric], cases: Sequence[str] = ()) -> list[Error]:
    """Both on every fabric, case and seed. `cases`: some of CASES."""
    out: list[Error] = []
    with Progress(console, "bench fluid", guess_s=60.0 * seeds * len(fabrics)) as progress:
        for fabric in fabrics:
            for run_plan in (run for case in cases or CASES for run in _runs(fabric, case, seeds)):
                progress.step(f"{fabric}, seed {run_plan.seed}, {run_plan.name}", quiet=True)
                packets, fluid = run_both(run_plan)
                label = str(run_plan.label["variant"])
                out += [
                    Error("x".join(map(str, fabric)), run_plan.seed, label, metric, packets[metric], fluid[metric])
                    for metric in packets
                    if metric in fluid
                ]
    return out


class DrawnRun(VirtualRun):
    """A packet run that keeps the EVs that it began with."""

    def begin(self) -> None:
        """Set up the run, and note the EVs."""
        super().begin()
        shape = shape_of(self.plan)
        self.evs = np.zeros((len(self.flows), shape.planes, shape.evs_per_plane), np.uint16)
        """[QP, plane, EV]: see the model's Settings."""
        for number, flow in enumerate(self.flows):
            states = flow.pairs[0][0].ev_states()
            for plane in range(shape.planes):
                in_plane = sorted((not ev["active"], ev["ev"] & 0xFF) for ev in states if ev["plane"] == plane)
                self.evs[number, plane, : len(in_plane)] = [spine for _, spine in in_plane]


def run_both(run: RunPlan) -> tuple[dict[str, float], dict[str, float]]:
    """Run a plan in packets, and the model with the same EVs; return the metrics of both."""
    virtual = DrawnRun(run)
    packets = virtual.carry_out(lambda *_: None)
    evs = virtual.evs
    del virtual
    gc.collect()  # a fabric is full of cycles
    fluid = FluidRunner(evs).run(run)
    values = metrics_of(packets, run), metrics_of(fluid, run)
    common_evs = retired_evs(packets) & retired_evs(fluid)
    fault_end_s = max((event["t"] for event in packets.events if event["what"] == "fault"), default=0.0)
    for outcome, metrics in zip((packets, fluid), values, strict=True):
        back_s = [event["t"] for event in outcome.events if is_change(event, "good") and ev_of(event) in common_evs]
        if "until all EVs are back" in metrics and back_s:
            metrics["until the EVs that both retired are back"] = max(back_s) - fault_end_s
    return values


def is_change(event: dict[str, Any], state: str) -> bool:
    """Whether an event is the change of an EV to a state."""
    return event["what"] == "ev" and bool(event["new"] == state)


def ev_of(event: dict[str, Any]) -> tuple[str, str, int]:
    """Return (host, peer, EV) of an EV's event."""
    return event["host"], event["peer"], event["ev"]


def retired_evs(outcome: Outcome) -> set[tuple[str, str, int]]:
    """Return the EVs that a run retired."""
    return {ev_of(event) for event in outcome.events if is_change(event, "assumed_bad")}


def metrics_of(outcome: Outcome, run: RunPlan) -> dict[str, float]:
    """The compared metrics: rates (share of capacity), packets, EVs, and times, seconds."""
    series = outcome.series
    settling_s = 0.5 * outcome.duration_s
    settled_indices = [index for index, end in enumerate(series.times_s) if end > settling_s]
    rates = sorted(mean(values[index] for index in settled_indices) for values in series.received_bps.values())
    per_host = outcome.capacity_bps / len(rates)
    lost = sum(series.lost)
    metrics = {
        "rate, all flows": sum(rates) / outcome.capacity_bps,
        "rate, slowest flow": rates[0] / per_host,
        "rate, slowest tenth": mean(rates[: max(1, len(rates) // 10)]) / per_host,
        "packets lost": float(lost),
        "packets lost, worst QP": float(max(flow.lost_worst_qp for flow in outcome.flows)),
        "EVs retired": float(sum(is_change(event, "assumed_bad") for event in outcome.events)),
        "EVs denied": float(outcome.evs_denied),
    }
    measurement = Measurement(outcome, run)
    if lost:
        losses_by_time = zip(series.times_s, series.lost, strict=True)
        fault_s = measurement.first_fault_s or 0.0
        # Flapping links have no one moment from which a loss could be timed.
        if run.label["variant"] != "flaps":
            metrics["time until a loss is found, mean"] = (
                sum(end * count for end, count in losses_by_time) / lost - fault_s
            )
    if measurement.first_fault_s is not None:
        indices_after_fault = [index for index, end in enumerate(series.times_s) if measurement.first_fault_s < end]
        total = [sum(values[index] for values in series.received_bps.values()) for index in indices_after_fault]
        metrics["rate after the fault"] = mean(total) / outcome.capacity_bps
        for metric, name in (
            ("evs.first_bad", "until the first EV is retired"),
            ("evs.restored", "until all EVs are back"),
        ):
            value = measurement.value(metric)
            if value is not None:
                metrics[name] = value
    return metrics


def error_table(errors: list[Error]) -> list[dict[str, Any]]:
    """Return by case and metric: mean of both, error of the mean, and largest error of a run."""
    out = []
    for case, metric in dict.fromkeys((error.case, error.metric) for error in errors):
        metric_errors = [error for error in errors if (error.metric, error.case) == (metric, case)]
        packets, fluid = mean(error.packets for error in metric_errors), mean(error.fluid for error in metric_errors)
        if not packets and not fluid:
            continue
        relative_errors = [abs(error.relative) for error in metric_errors if error.relative is not None]
        out.append(
            {
                "case": case,
                "metric": metric,
                "runs": len(metric_errors),
                "packets": packets,
                "fluid": fluid,
                "error": (fluid - packets) / packets if packets else None,
                "largest": max(relative_errors, default=None),
            }
        )
    return out


def big_start() -> dict[str, Any]:
    """131,072 NICs, 1 % of T0-T1 links dead, hosts that start within a minute."""
    began, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "paper.yaml"
        path.write_text(PAPER, encoding="utf-8")
        (run,) = plan_runs(read(path), "fluid").runs
    shape, rng, always = shape_of(run), np.random.default_rng(1), [(0.0, float("inf"))]
    dead_links = np.argwhere(rng.random((shape.planes, shape.racks, shape.spines)) < 0.01).tolist()
    out = Outages(
        shape, {(way, plane, rack, spine): always for way in (UPLINK, DOWNLINK) for plane, rack, spine in dead_links}
    )
    hosts, starts = np.arange(shape.hosts), rng.random(shape.hosts) * STAGGERED_S
    unit_weights = np.ones(shape.hosts)
    # Each host sends to the one half the fabric away: no two in one rack.
    pairs = QueuePairs(
        hosts, np.roll(hosts, shape.hosts // 2), starts, unit_weights * np.inf, unit_weights, unit_weights * (4 << 20)
    )
    edges, last = np.linspace(0.0, STAGGERED_S + 1, 62), np.zeros(0, np.float32)

    def watch(_: int, rates: Singles) -> None:
        nonlocal last
        last = rates

    result = simulate(shape, pairs, out, settings_of(run, shape), edges, watch)
    return {
        "nics": shape.hosts,
        "evs": shape.planes * shape.evs_per_plane,
        "wall_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "bad": result.count(ASSUMED_BAD),
        "lost": float(result.lost.sum()),
        "lost_worst": float(result.lost.max()),
        "peak_losses_per_s": float((result.lost_series / np.diff(edges)).max()),
        "rate": float(last.mean()) / (shape.planes * shape.payload_bps),
        "slowest": float(last.min()) / (shape.planes * shape.payload_bps),
    }


def _runs(fabric: Fabric, case: str, seeds: int) -> list[RunPlan]:
    """The scenario of a case on that fabric, all variants, with each seed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        path.write_text(HEAD.format(case, *fabric) + CASES[case], encoding="utf-8")
        return plan_runs(read(path), "virtual", repeat=seeds).runs


def _table_of(table: list[dict[str, Any]]) -> Table:
    out = Table(box=None, pad_edge=False)
    for column in ("case", "metric", "runs", "packets", "fluid", "error", "largest"):
        out.add_column(column, justify="left" if column in ("case", "metric") else "right")
    for row in table:
        error, largest = (("-" if row[key] is None else f"{100 * row[key]:+.1f} %") for key in ("error", "largest"))
        out.add_row(
            row["case"],
            row["metric"],
            str(row["runs"]),
            f"{row['packets']:.4g}",
            f"{row['fluid']:.4g}",
            error,
            largest.lstrip("+"),
        )
    return out
