"""Canvas of the report's figures: colours, axes, legends and marks of faults.

Colours are a set that people with colour blindness can distinguish (Okabe and Ito), one per run, the same in every
figure; the paper's lines are dashed, in the colour of their run. INK becomes the page's own text colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from mrc_testbed.experiments.language.metric_names import find
from mrc_testbed.experiments.language.model import Figure
from mrc_testbed.experiments.metrics.assertions import unit_of
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.faults import MARKS_MAX, fault_times

INK = "#1d2734"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK, "#999933")
GREY = "#8a8f96"
BEGIN, END = "#c74040", "#9aa0a6"
"""Colours of lines where faults begin and end."""
WIDTH, HEIGHT = 8.0, 3.4
"""Size of a figure, inches."""
DASHES = ("-", (0, (5, 3)), (0, (2, 2)), (0, (7, 2, 2, 2)))
AT_ONCE = 0.01
"""Share of the run below which faults of two runs count as simultaneous."""
FAULTS_NAMED = 3
"""Faults of a run whose names are written into the figure; more would cover it."""

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "mrc",
        "font.sans-serif": ["DejaVu Sans", "sans-serif"],
        "font.size": 9.5,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "grid.color": GREY,
        "legend.frameon": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10.5,
    }
)

Runs = Sequence[tuple[str, dict[str, Any], Measurement]]
"""(name, label, measurement) of every run, repeats included."""


@dataclass(slots=True)
class Drawing:
    """A figure, the name of its files, and its description in words."""

    name: str
    title: str
    text: str
    """Caption and alternative text."""
    canvas: Canvas
    remarks: list[tuple[str, str]] = field(default_factory=list)
    """(subject, words) printed beside the figure: distances to the paper, depth and length of a fall."""


def canvas_of(title: str, height: float = HEIGHT, columns: int = 1) -> tuple[Canvas, list[Axes]]:
    """Return a canvas `height` inches high with `columns` panels side by side; the first has the title."""
    canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
    axes = canvas.subplots(1, columns, sharey=True, squeeze=False)[0]
    axes[0].set_title(title)
    return canvas, list(axes)


def legend(canvas: Canvas, axes: Axes, columns: int = 4) -> None:
    """Draw the legend below the figure, where it covers nothing; none for a single line."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)), fontsize=8.5)


def scale_of(figure: Figure, measurement: Measurement, runs: Runs) -> tuple[float, str]:
    """Return the divisor of the values, and the name of the axis."""
    unit = unit_of(figure.metric, measurement)
    if figure.of == "baseline":
        return measurement.baseline(figure.metric) or 1.0, "share of the rate before the fault"
    if figure.of == "capacity":
        return measurement.outcome.capacity_bps or 1.0, "share of the NICs' capacity"
    if figure.of is not None:
        for _, label, base_run in runs:
            if label.get("variant") == figure.of and base_run.outcome.repeat == measurement.outcome.repeat:
                return base_run.value(figure.metric) or 1.0, f"share of {figure.of}"
    long = unit == "s" and any((run_measurement.value(figure.metric) or 0.0) >= 1.0 for _, _, run_measurement in runs)
    names = {"bit/s": (1e6, "Mb/s"), "bytes": (1e3, "kB"), "s": (1.0, "s") if long else (1e-3, "ms")}
    return names.get(unit, (1.0, unit))


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each run's line: MRC's thick in the first colour, the others thin above it.

    Dashes differ, so that all of several coinciding lines can be seen.
    """
    first = [name for name in names if name.casefold() == "mrc"]
    other_names = [name for name in names if name not in first]
    colours = COLOURS[1:] if first else COLOURS
    out = {name: {"color": COLOURS[0], "lw": 3.2, "zorder": 1.9} for name in first}
    for index, name in enumerate(other_names):
        out[name] = {"color": colours[index % len(colours)], "lw": 1.6, "zorder": 2, "ls": DASHES[index % len(DASHES)]}
    return out


def title_of(figure: Figure, runs: Runs) -> str:
    """Return the figure's title in the scenario, or a text from its metric."""
    if figure.title or not runs:
        return figure.title or figure.metric
    measurement = runs[0][2]
    metric = find(figure.metric, measurement.outcome.works(), measurement.plan.measure.queues)
    return f"{figure.metric}: {metric.text}" if metric else figure.metric


def mark_faults(axes: Axes, measurement: Measurement, named: bool) -> None:
    """Draw vertical lines where faults began and ended, up to MARKS_MAX; a few with their names."""
    marks = fault_times(measurement)
    for t, _, is_start in marks if len(marks) <= MARKS_MAX else []:
        axes.axvline(t, color=BEGIN if is_start else END, lw=1.0, ls="-" if is_start else ":", zorder=0.5)
    if named and len(marks) <= FAULTS_NAMED:
        for number, (t, text, _) in enumerate(marks):
            short_text = text if len(text) <= 44 else text[:41] + "..."
            axes.annotate(
                short_text,
                (t, 0),
                xycoords=("data", "axes fraction"),
                xytext=(4, 5 + 11 * number),
                fontsize=8,
                color=BEGIN,
                textcoords="offset points",
                zorder=9,
                bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0},
            )


def mark_all(axes: Axes, groups: dict[str, Runs], looks: dict[str, dict[str, Any]]) -> bool:
    """Mark faults of several runs: one line for simultaneous faults, else one per run in its colour.

    Returns True when the runs have different faults; no fault is marked then.
    """
    marks_by_run = {run: fault_times(repeats[0][2]) for run, repeats in groups.items()}
    if len({tuple(text for _, text, _ in marks) for marks in marks_by_run.values()}) > 1:
        return True
    end = max((repeats[0][2].outcome.duration_s for repeats in groups.values()), default=0.0)
    first = next(iter(groups.values()))[0][2] if groups else None
    late = any(
        max(ts) - min(ts) > AT_ONCE * end
        for ts in zip(*([t for t, _, _ in m] for m in marks_by_run.values()), strict=True)
    )
    if first is not None and not late:
        mark_faults(axes, first, named=True)
    elif late:
        for run, marks in marks_by_run.items():
            for t, _, is_start in marks if len(marks) <= MARKS_MAX else []:
                axes.axvline(t, color=looks[run]["color"], lw=1.0, ls="-" if is_start else ":", zorder=0.5)
    return False
