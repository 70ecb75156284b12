"""`mrc bench fluid --detect`: time until a dead T0-T1 link is known and used again, by probe cost.

Two ways to know of a dead link: QPs lose packets on it, which takes no probes (fluid run); Clustermapper's probes miss
`LOSSES` times in a row, which each NIC port pays for in probes a second (formula: a rack's hosts share its uplinks
out). And QPs' own probes bring an EV back when the link is alive again, one each interval for each bad EV (fluid runs
other intervals).
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from statistics import mean
from typing import Any, Final

from rich.console import Console

from mrc_testbed.console.progress import Progress
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.files.whole_files import write_output

LOSSES: Final = 3
"""Probes missed in a row that make a link down, as controller and Clustermapper count them (§9)."""
BUDGETS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Clustermapper's probes of T0-T1 links, a second and NIC port."""
INTERVALS_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Intervals of a QP's probes over a bad EV; 0.2 is the default."""
CUT_S, MENDED_S, END_S = 1.0, 3.0, 12.0
SCENARIO: Final = """title: Links cut and mended
fabric: {{planes: 8, racks: 16, spines: 16, hosts_per_rack: 16}}
workload: [{{permutation: all, name: job, message: 64K, depth: 4}}]
transport: {{config: {{probe_interval_s: {interval}, probe_timeout_s: {timeout}}}}}
duration: {end}s
faults: [{{at: {cut}s, cut: {{random: fabric-links, count: 20}}, for: {down}s}}]
measure: {{every: 100ms}}
"""


@dataclass(frozen=True, slots=True)
class ReturnTimes:
    """Retirements and returns of EVs with one probe interval; seconds."""

    interval_s: float
    retired_s: float
    """Mean time from the cut until an EV was retired."""
    back_s: float
    """Mean time from the mending until an EV was good again."""
    probes_per_s: float
    """Probes of a bad EV per second."""
    evs: int


def clustermapper_s(probes_per_s: float, hosts_per_rack: int, uplinks: int) -> float:
    """Mean time until a dead T0-T1 link is known, with so many probes a second and NIC port.

    A link gets the probes of all hosts of its rack, shared over the uplinks; the first is half an interval away.
    """
    interval = uplinks / (hosts_per_rack * probes_per_s)
    return interval * (LOSSES - 0.5)


def returns(console: Console) -> list[ReturnTimes]:
    """Fluid runs of 256 NICs, one an interval."""
    out = []
    with Progress(console, "bench fluid --detect", guess_s=30.0) as progress:
        for interval in INTERVALS_S:
            progress.step(f"a probe each {interval} s", quiet=True)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "returns.yaml"
                text = SCENARIO.format(
                    interval=interval, timeout=interval / 2, cut=CUT_S, down=MENDED_S - CUT_S, end=END_S
                )
                path.write_text(text, encoding="utf-8")
                (run,) = plan_runs(read(path), "fluid").runs
            outcome = FluidRunner().run(run)
            evs = [event for event in outcome.events if event["what"] == "ev"]
            bad_times = {(ev["qpn"], ev["ev"]): ev["t"] for ev in evs if ev["new"] == "assumed_bad"}
            good_times = {(ev["qpn"], ev["ev"]): ev["t"] for ev in evs if ev["old"] == "assumed_bad"}
            # Only EVs that came back have a whole interval of probes.
            probed_s = sum(good_times[key] - bad_times[key] for key in good_times)
            out.append(
                ReturnTimes(
                    interval,
                    mean(bad_times.values()) - CUT_S,
                    mean(good_times.values()) - MENDED_S,
                    outcome.counters["probes"] / probed_s,
                    len(bad_times),
                )
            )
    return out


def run(console: Console, figure: Path | None) -> dict[str, Any]:
    """Both, printed and as JSON; drawn where a file is given."""
    return_times = returns(console)
    for times in return_times:
        console.print(
            f"a probe each {times.interval_s:g} s: retired {1e3 * times.retired_s:.0f} ms after the cut, back "
            f"{times.back_s:.2f} s after it is mended, {times.probes_per_s:.1f} probes a second and bad EV "
            f"({times.evs} EVs)"
        )
    mapper_times = [(budget, clustermapper_s(budget, 256, 256)) for budget in BUDGETS]
    for budget, seconds in mapper_times:
        console.print(f"Clustermapper, {budget} probes a second and NIC port: known after {1e3 * seconds:.3g} ms")
    if figure is not None:
        draw(return_times, mapper_times, figure)
        console.print(f"drawn: {figure}")
    return {"returns": [asdict(times) for times in return_times], "clustermapper": mapper_times}


def draw(return_times: list[ReturnTimes], mapper_times: list[tuple[int, float]], path: Path) -> None:
    """Two panels: until a dead link is known, and until a mended one is used again."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left_axes, right_axes) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left_axes.loglog(
        [x for x, _ in mapper_times], [1e3 * y for _, y in mapper_times], "o-", label="Clustermapper, 3 probes missed"
    )
    left_axes.axvline(1000, color="0.7", linestyle=":", label="every link each millisecond, as in the paper")
    left_axes.axhline(
        1e3 * return_times[0].retired_s, color="C2", label="a QP's own packets (10 ms round trip), no probes"
    )
    # A thousandth of the line above, for round trips of 10 us instead of 10 ms.
    left_axes.axhline(return_times[0].retired_s, color="C2", linestyle="--", label="the same, 10 us round trip")
    left_axes.set(xlabel="probes a second and NIC port", ylabel="ms", title="until a dead T0-T1 link is known")
    left_axes.set_ylim(0.01, 5e3)
    left_axes.legend(fontsize=7, loc="upper right")
    right_axes.loglog([times.probes_per_s for times in return_times], [times.back_s for times in return_times], "o-")
    for times in return_times:
        point = times.probes_per_s, times.back_s
        right_axes.annotate(f"{times.interval_s:g} s", point, textcoords="offset points", xytext=(6, 4))
    right_axes.set(
        xlabel="probes a second and bad EV (marks: interval)", ylabel="s", title="until a mended link is used again"
    )
    right_axes.grid(True, which="both", alpha=0.2)
    left_axes.grid(True, which="both", alpha=0.2)
    image = BytesIO()
    figure.savefig(image, dpi=110, format=path.suffix[1:] or "png")
    write_output(path, image.getvalue())
    pyplot.close(figure)
