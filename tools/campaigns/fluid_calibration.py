"""`mrc bench fluid --calibrate`: what the fluid model takes from the packet simulator, measured anew.

Permutations on fabrics of 8 to 32 hosts, of four planes, whole and with dead links, with the denylist (so
that nothing is lost), run in packets; each QP's EVs in rotation and its settled rate are what a Sharing has to
reproduce. Its three tables are then searched, value by value, for the least error (`Misfit`). Two pipes: 10 Mb/s x 10
ms with a PMTU of 1024, the scenarios' own, and 100 Gb/s x 10 us with 4096, the paper's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Final

import numpy as np

from mrc_testbed.experiments.fluid.fluid_run import shape_of
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.simulator.fluid.calibration import Calibration, calibration_for
from mrc_testbed.simulator.fluid.shape import FabricShape, Floats, QueuePairs
from mrc_testbed.simulator.fluid.sharing import NO_SPINE, Sharing

FABRICS: Final = (
    (4, 4, 4, 4),
    (4, 4, 8, 8),
    (4, 4, 4, 2),
    (4, 4, 8, 2),
    (4, 8, 8, 4),
)
"""Planes, racks, spines, hosts a rack; not those of the comparison.

Those of two hosts a rack have more uplinks than they can use.
"""
SHARES: Final = (0, 5, 15)
"""Percent of the T0-T1 links that are dead."""
PIPES: Final = {
    "own": ("duration: 4s\nmeasure: {every: 50ms}", "message: 64K, depth: 4", 1.0),
    "paper": (
        "links: {rate: 100G, rtt: 10us}\ntransport: {pmtu: 4096, clock: 0.001}\nduration: 3200us\n"
        "measure: {every: 40us}",
        "message: 256K, depth: 16",
        0.001,
    ),
}
"""Lines of a scenario, its messages, and its seconds in the own one's."""
SCENARIO: Final = """title: Settled rates
fabric: {{planes: {0}, racks: {1}, spines: {2}, hosts_per_rack: {3}}}
workload: [{{permutation: all, name: job, {messages}}}]
control_plane: {{denylist: all}}
faults: {faults}
{lines}
"""
ROUNDS: Final = 5
FACTORS: Final = (1.25, 0.8, 1.08, 0.93, 1.02, 0.98)
KINDS: Final = ("delay", "skips", "price")


@dataclass(frozen=True, slots=True)
class SettledRun:
    """A packet run: who had what in rotation, and what rates came of it."""

    shape: FabricShape
    pairs: QueuePairs
    spines: np.ndarray
    rates: Floats
    """Shares of the line."""


def calibrate(pipe: str, seeds: int, report: Callable[[str], None]) -> Calibration:
    """The calibration of a pipe, of `own` or `paper`."""
    runs = []
    for fabric in FABRICS:
        for share in SHARES:
            for seed in range(1, seeds + 1):
                report(f"{pipe}: {'x'.join(map(str, fabric))}, {share} % dead, seed {seed}")
                runs.append(settle(pipe, fabric, share, seed))
    free_rates = [run.rates for run in runs if run.shape.spines > 2 * run.shape.hosts_per_rack]
    best_fit = replace(
        calibration_for(runs[0].shape),
        packets=runs[0].shape.packets_per_rtt,
        top=float(np.median(np.concatenate(free_rates))),
    )
    misfit = misfit_of(best_fit, runs)
    for number in range(ROUNDS):
        for kind in KINDS:
            for index in range(len(getattr(best_fit, kind))):
                for factor in FACTORS:
                    changed_fit = changed_by(best_fit, kind, index, factor)
                    changed_misfit = misfit_of(changed_fit, runs)
                    if changed_misfit < misfit:
                        best_fit, misfit = changed_fit, changed_misfit
        report(f"{pipe}: round {number + 1} of {ROUNDS}: misfit {misfit:.5f}")
    return best_fit


def changed_by(calibration: Calibration, kind: str, index: int, factor: float) -> Calibration:
    """Return a calibration with another value at a place of a table.

    Delay and skips rise with the load, the price falls with the rate.
    """
    values = np.array(getattr(calibration, kind))
    values[index] = values[index] * factor if values[index] else 0.0
    keep = np.minimum if kind == "price" else np.maximum
    changed_values = tuple(round(float(value), 4) for value in keep.accumulate(values))
    if kind == "delay":
        return replace(calibration, delay=changed_values)
    return replace(calibration, skips=changed_values) if kind == "skips" else replace(calibration, price=changed_values)


def misfit_of(calibration: Calibration, runs: list[SettledRun]) -> float:
    """Misfit: squares of the errors of the mean (thrice), of the slowest (by half), and of single rates."""
    errors = []
    for run in runs:
        model_rates = rates_of(calibration, run)
        errors.append(
            3 * (model_rates.mean() / run.rates.mean() - 1) ** 2
            + (model_rates.min() - run.rates.min()) ** 2 / 2
            + ((model_rates - run.rates) ** 2).mean()
        )
    return float(mean(errors))


def rates_of(calibration: Calibration, run: SettledRun) -> Floats:
    """Return the rates that the model gives the QPs of a run."""
    sharing = Sharing(run.shape, calibration, run.pairs)
    has_spine = run.spines != NO_SPINE
    sharing.spine[:] = run.spines
    sharing.share[:] = has_spine / np.maximum(has_spine.sum(axis=2, keepdims=True), 1)
    sharing.send(np.arange(len(run.pairs)), True)
    sharing.settle()
    return sharing.rate.astype(np.float64)


def settle(pipe: str, fabric: tuple[int, int, int, int], share: int, seed: int) -> SettledRun:
    """A permutation in packets until rates stand; the second half counts."""
    run = scenario_run(pipe, fabric, share, seed)
    virtual = VirtualRun(run)
    outcome = virtual.carry_out(lambda *_: None)
    shape = shape_of(run)
    spines = np.full((len(virtual.flows), shape.planes, shape.rotation), NO_SPINE, np.uint16)
    for number, flow in enumerate(virtual.flows):
        flow_counts = [0] * shape.planes
        for ev in flow.pairs[0][0].ev_states():
            # The model gets the EVs that the packet simulator drew, so that both have the same collisions.
            if ev["active"]:
                spines[number, ev["plane"], flow_counts[ev["plane"]]] = ev["ev"] & 0xFF
                flow_counts[ev["plane"]] += 1
    hosts = {host.name: host.number for host in virtual.plan.fabric.hosts}
    count = len(virtual.flows)
    pairs = QueuePairs(
        np.array([hosts[flow.plan.source] for flow in virtual.flows]),
        np.array([hosts[flow.plan.target] for flow in virtual.flows]),
        np.zeros(count),
        np.full(count, np.inf),
        np.ones(count),
        np.full(count, np.inf),
    )
    series = outcome.series.received_bps
    half = len(outcome.series.times_s) // 2
    per_host = outcome.capacity_bps / count
    rates = np.array([mean(series[flow.name][half:]) / per_host for flow in virtual.flows])
    return SettledRun(shape, pairs, spines, rates)


def scenario_run(pipe: str, fabric: tuple[int, int, int, int], share: int, seed: int) -> RunPlan:
    """The run of a pipe on a fabric with so many percent of its links dead."""
    lines, messages, _ = PIPES[pipe]
    faults = f"[{{at: 0s, silent: {{random: fabric-links, share: {share}%}}}}]" if share else "[]"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settled.yaml"
        path.write_text(SCENARIO.format(*fabric, messages=messages, faults=faults, lines=lines), encoding="utf-8")
        (run,) = plan_runs(read(path), "virtual", seed=seed).runs
    return run
