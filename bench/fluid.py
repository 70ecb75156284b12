"""`mrc bench fluid`: the fluid model beside the packet simulator, and a start of 131,072 NICs.

The same scenario, a permutation that starts on a fabric with dead T0-T1 links (E2), runs on both, with and without the
denylist, over fabrics and seeds. `--calibrate` measures what the model takes from the packet simulator (Calibration),
on fabrics other than those of the comparison.
"""

from __future__ import annotations

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

from experiments.fluid.fluid_run import run_fluid, shape_of
from experiments.language.expand import Run
from experiments.language.yaml_loader import read
from experiments.outcome import Outcome
from experiments.runner import plan_runs
from experiments.virtual.virtual_run import run_virtual
from ipc.errors import UsageError
from ipc.progress import Progress
from simulator.fluid.job_start import BAD, CALIBRATION, Calibration, FabricShape, Flows, start_job

Fabric: TypeAlias = tuple[int, int, int, int]
"""Planes, racks, spines, hosts a rack."""
SCHEMA = "mrc-bench-fluid/1"
DURATION_S = 1.0
SETTLED_S = 0.5
"""From here on rates count: dead EVs are retired."""
DEAD_SHARE = "5%"
FABRICS = ((4, 8, 8, 8), (4, 16, 8, 4), (8, 8, 8, 8))
"""64 hosts each."""
CALIBRATED_ON = ((4, 4, 8, 2), (4, 4, 4, 4), (8, 4, 4, 4))
NICS = FabricShape(
    planes=8, racks=512, spines=256, hosts_per_rack=256, rate_bps=100e9, rtt_s=10e-6, frame_bytes=4096 + 142,
    payload_bytes=4096,
)  # fmt: skip
"""131,072 NICs, with the paper's rates and round trip."""
STAGGERED_S = 60.0
SCENARIO = """title: Start with dead links
fabric: {{planes: {0}, racks: {1}, spines: {2}, hosts_per_rack: {3}}}
workload:
  - {{permutation: all, name: job, message: 64K, depth: 4}}
duration: {duration}s
faults:
  - {{at: 0s, silent: {{random: fabric-links, share: {share}}}}}
variants:
  without: {{}}
  with denylist: {{control_plane: {{denylist: all}}}}
measure: {{every: 10ms}}
"""


@dataclass(frozen=True, slots=True)
class Error:
    """A metric of one run by both."""

    fabric: str
    seed: int
    variant: str
    metric: str
    packets: float
    fluid: float

    @property
    def relative(self) -> float | None:
        """Error of the fluid model against the packet simulator; None where that has 0."""
        return (self.fluid - self.packets) / self.packets if self.packets else None


def run(seeds: int, calibrate: bool, console: Console, fabrics: Sequence[Fabric] = ()) -> dict[str, Any]:
    """All of it, as JSON. `fabrics`: instead of FABRICS."""
    if calibrate:
        found = measured_calibration(seeds, console)
        console.print(f"measured: {found}")
        console.print(f"in use:   {CALIBRATION}")
        return {"schema": SCHEMA, "calibration": asdict(found), "in_use": asdict(CALIBRATION)}
    errors = compared(seeds, console, fabrics or FABRICS)
    table = error_table(errors)
    big = big_start()
    console.print(_drawn(table))
    console.print(
        f"{big['nics']:,} NICs x {big['evs']} EVs, 1 % of T0-T1 links dead: {big['wall_s']:.1f} s, "
        f"{big['memory_bytes'] / 1e9:.2f} GB; {big['bad']:,} EVs retired, {big['lost']:,.0f} packets lost, at most "
        f"{big['lost_worst']:.0f} of a QP"
    )
    return {"schema": SCHEMA, "errors": [asdict(one) for one in errors], "table": table, "start": big}


def fabric_of(text: str) -> Fabric:
    """`4x8x8x8` as planes, racks, spines, hosts a rack. Raises UsageError."""
    numbers = text.split("x")
    if len(numbers) != 4 or not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise UsageError(f"--fabric {text}: give planes, racks, spines and hosts a rack as 4x8x8x8")
    planes, racks, spines, hosts = map(int, numbers)
    return planes, racks, spines, hosts


def compared(seeds: int, console: Console, fabrics: Sequence[Fabric]) -> list[Error]:
    """Both on every fabric and seed."""
    out: list[Error] = []
    with Progress(console, "bench fluid", guess_s=30.0 * seeds * len(fabrics)) as progress:
        for fabric in fabrics:
            for one in _runs(fabric, seeds):
                progress.step(f"{fabric}, seed {one.seed}, {one.name}", quiet=True)
                packets, fluid = run_virtual(one), run_fluid(one)
                values = zip(metrics_of(packets), metrics_of(fluid), strict=True)
                label = str(one.label["variant"])
                for (metric, true), (_, ours) in values:
                    out.append(Error("x".join(map(str, fabric)), one.seed, label, metric, true, ours))
    return out


def metrics_of(outcome: Outcome) -> list[tuple[str, float]]:
    """The compared metrics: rates (share of capacity), packets, EVs, and the mean time of loss, seconds."""
    series = outcome.series
    settled = [at for at, end in enumerate(series.times_s) if end > SETTLED_S]
    rates = [mean(values[at] for at in settled) for values in series.received_bps.values()]
    per_host = outcome.capacity_bps / len(rates)
    lost = sum(series.lost)
    when = sum(end * count for end, count in zip(series.times_s, series.lost, strict=True)) / lost if lost else 0.0
    return [
        ("rate, all flows", sum(rates) / outcome.capacity_bps),
        ("rate, slowest flow", min(rates) / per_host),
        ("packets lost", float(lost)),
        ("packets lost, worst QP", float(max(flow.lost_worst_qp for flow in outcome.flows))),
        ("EVs retired", float(outcome.evs_bad)),
        ("EVs denied", float(outcome.evs_denied)),
        ("time until loss is found", when),
    ]


def error_table(errors: list[Error]) -> list[dict[str, Any]]:
    """By metric and variant: mean of both, error of the mean, and largest error of a run."""
    out = []
    for metric, variant in dict.fromkeys((one.metric, one.variant) for one in errors):
        mine = [one for one in errors if (one.metric, one.variant) == (metric, variant)]
        packets, fluid = mean(one.packets for one in mine), mean(one.fluid for one in mine)
        if not packets and not fluid:
            continue
        each = [abs(one.relative) for one in mine if one.relative is not None]
        out.append({
            "metric": metric, "variant": variant, "runs": len(mine), "packets": packets, "fluid": fluid,
            "error": (fluid - packets) / packets if packets else None, "largest": max(each, default=None),
        })  # fmt: skip
    return out


def big_start() -> dict[str, Any]:
    """131,072 NICs, 1 % of T0-T1 links dead, hosts that start within a minute."""
    begun, rng = time.perf_counter(), np.random.default_rng(1)
    alive = rng.random((NICS.planes, NICS.racks, NICS.spines)) >= 0.01
    hosts = np.arange(NICS.hosts)
    flows = Flows(hosts, np.roll(hosts, NICS.hosts // 2), rng.random(NICS.hosts) * STAGGERED_S)
    edges = np.linspace(0.0, STAGGERED_S + 1, 123)
    result = start_job(NICS, alive, flows, edges, seed=1, denied=False, calibration=CALIBRATION)
    return {
        "nics": NICS.hosts, "evs": result.states.shape[1], "wall_s": time.perf_counter() - begun,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "bad": result.count(BAD),
        "lost": float(result.lost.sum()), "lost_worst": float(result.lost.max()),
        "peak_losses_per_s": float((result.lost_series / np.diff(edges)).max()),
    }  # fmt: skip


# ---- calibration ----------------------------------------------------------------------------------------------


def measured_calibration(seeds: int, console: Console) -> Calibration:
    """Constants of the model as the packet simulator shows them, on CALIBRATED_ON.

    Each is scaled until the model's mean is that of the packets: the losses of an EV, the mean time at which a loss is
    found, and the rate of all flows with the denylist.
    """
    lost: list[float] = []
    whens: list[tuple[float, float]] = []
    rates: list[tuple[float, float]] = []
    with Progress(console, "bench fluid --calibrate", guess_s=10.0 * seeds * len(CALIBRATED_ON)) as progress:
        for fabric in CALIBRATED_ON:
            for one in _runs(fabric, seeds):
                progress.step(f"{fabric}, seed {one.seed}, {one.name}", quiet=True)
                packets, fluid = dict(metrics_of(run_virtual(one))), dict(metrics_of(run_fluid(one)))
                if one.label["variant"] != "without":
                    rates.append((packets["rate, all flows"], fluid["rate, all flows"]))
                elif packets["EVs retired"]:
                    lost.append(
                        packets["packets lost"] / packets["EVs retired"] / _packets_per_rtt(shape_of(one.scenario))
                    )
                    whens.append((packets["time until loss is found"], fluid["time until loss is found"]))
    return Calibration(CALIBRATION.detection_rtts * _ratio(whens), mean(lost), CALIBRATION.efficiency * _ratio(rates))


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return sum(packets for packets, _ in pairs) / sum(fluid for _, fluid in pairs)


def _packets_per_rtt(shape: FabricShape) -> float:
    """Packets of one EV in rotation in a base round trip."""
    return shape.rate_bps / 8 / shape.frame_bytes / shape.rotation * shape.rtt_s


def _runs(fabric: Fabric, seeds: int) -> list[Run]:
    """The scenario on that fabric, both variants, with each seed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "start.yaml"
        path.write_text(SCENARIO.format(*fabric, duration=DURATION_S, share=DEAD_SHARE), encoding="utf-8")
        return plan_runs(read(path), "virtual", repeat=seeds).runs


def _drawn(table: list[dict[str, Any]]) -> Table:
    out = Table(box=None, pad_edge=False)
    for column in ("metric", "variant", "runs", "packets", "fluid", "error", "largest"):
        out.add_column(column, justify="left" if column in ("metric", "variant") else "right")
    for row in table:
        error, largest = (("-" if row[key] is None else f"{100 * row[key]:.1f} %") for key in ("error", "largest"))
        out.add_row(
            row["metric"],
            row["variant"],
            str(row["runs"]),
            f"{row['packets']:.4g}",
            f"{row['fluid']:.4g}",
            error,
            largest,
        )
    return out
