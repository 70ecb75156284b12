"""Canvas of the report's figures: titles, axes, styles of lines, legends and marks of faults.

A variant has the colour of line_colours.py in every figure; the paper's lines are dashed, in the colour of their run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import AutoLocator

from mrc_testbed.console import units
from mrc_testbed.experiments.language.metric_names import find
from mrc_testbed.experiments.language.model import Figure
from mrc_testbed.experiments.metrics.assertions import unit_of
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import group_repeats
from mrc_testbed.experiments.report.faults import MARKS_MAX, fault_times, faults_in_words
from mrc_testbed.experiments.report.line_colours import INK, line_colours
from mrc_testbed.experiments.resolve.run_plan import RunPlan

GREY = "#8a8f96"
BEGIN, END = "#c74040", "#9aa0a6"
"""Colours of lines where faults begin and end."""
WIDTH, HEIGHT = 8.0, 3.4
"""Size of a figure, inches."""
DASHES = ("-", (0, (5, 3)), (0, (2, 2)), (0, (7, 2, 2, 2)))
AT_ONCE = 0.01
"""Share of the run below which faults of two runs count as simultaneous."""
FAULTS_NAMED = 3
"""Marks of faults whose names are written above the figure; more would not fit."""
FAULT_NAME_MAX = 44
"""Most characters of a fault's name above a figure."""
NAME_PT, ROW_PT = 4.2, 11
"""Width of a character and height of a row of these names, points."""
TITLE_MAX = 96
"""Most characters of a line of a title."""
COMPARED_MAX = 4
"""Most variants that a title names; more are counted."""

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


def name_times(axes: Axes, end_s: float, start_s: float = 0.0) -> None:
    """Label an x axis of seconds in the unit that fits its end, and let it reach from `start_s` to there."""
    name, unit = units.time_unit(end_s)
    axes.set_xlim(start_s, end_s)
    axes.xaxis.set_major_locator(_TimeLocator(unit))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / unit:.6g}")
    axes.set_xlabel(f"time, {name}")


class _TimeLocator(AutoLocator):
    """Locator of ticks at round numbers of a unit of time."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self._unit = unit

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the ticks of an axis of seconds."""
        return [tick * self._unit for tick in super().tick_values(vmin / self._unit, vmax / self._unit)]


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
    peak = max((run_measurement.value(figure.metric) or 0.0 for _, _, run_measurement in runs), default=0.0)
    name, divisor = {"bit/s": units.rate_unit(peak), "bytes": ("kB", 1e3), "s": units.time_unit(peak)}.get(
        unit, (unit, 1.0)
    )
    return divisor, name


def variant_of(label: Mapping[str, Any], plan: RunPlan) -> str:
    """Return the variant of a run; without variants the transport, or the mode if that is a baseline."""
    if "variant" in label:
        return str(label["variant"])
    kind, mode = plan.transport.kind, plan.fabric.mode
    return mode if kind == "mrc" and mode != "srv6" else kind


def styles(variants: Mapping[str, str], all_variants: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the style of each line, by its name; MRC's is thick and below the others.

    `variants`: line -> its variant, whose colour it has. Lines of a single variant have colours of their own instead.
    `all_variants`: those of the report, which a figure may show in part. Dashes distinguish lines that coincide.
    """
    is_several = len(set(variants.values())) > 1 or len(variants) == 1
    keys = variants if is_several else {name: name for name in variants}
    colours = line_colours(keys.values(), all_variants)
    out: dict[str, dict[str, Any]] = {}
    for name, key in keys.items():
        is_mrc = key.casefold() == "mrc" and list(keys.values()).count(key) == 1
        # Dashes count up over all thin lines, so that neither two variants nor two of one coincide unseen.
        thin_count = sum("ls" in style for style in out.values())
        width = {"lw": 3.2, "zorder": 1.9} if is_mrc else {"lw": 1.6, "zorder": 2, "ls": DASHES[thin_count % 4]}
        out[name] = {"color": colours[key], **width}
    return out


def styles_of(runs: Runs, scenario_variants: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each run's line, by its name without the number of its repeat."""
    groups = group_repeats(runs)
    variants = {name: variant_of(repeats[0][1], repeats[0][2].plan) for name, repeats in groups.items()}
    return styles(variants, scenario_variants)


def title_of(figure: Figure, runs: Runs, subject: str = "") -> str:
    """Return the title: compared variants, the drawn quantity, and the faults.

    A title of the scenario is kept, with the variants behind it. `subject`: the quantity, by default the metric's text.
    """
    if not runs:
        return figure.title or subject or figure.metric
    measurement = runs[0][2]
    metric = find(figure.metric, measurement.outcome.works(), measurement.plan.measure.queues)
    if metric and not subject:
        subject = metric.text + (f" ({figure.metric})" if metric.pattern != figure.metric else "")
    subject = subject or figure.metric
    names = list(dict.fromkeys(str(label["variant"]) for _, label, _ in runs if "variant" in label))
    if figure.title:
        compared_text = "" if all(name.casefold() in figure.title.casefold() for name in names) else _list_text(names)
        return textwrap.fill(figure.title + (f": {compared_text}" if compared_text else ""), TITLE_MAX)
    faults = faults_in_words([run_measurement for _, _, run_measurement in runs])
    title = f"{_list_text(names)}: {subject}" if len(names) > 1 else subject[:1].upper() + subject[1:]
    return textwrap.fill(title + (f", {faults}" if faults else ""), TITLE_MAX)


def _list_text(names: Sequence[str]) -> str:
    """Return the compared variants: `MRC, RoCEv2 and flow-ECMP`; empty for a single one."""
    if len(names) < 2:
        return ""
    if len(names) > COMPARED_MAX:
        return f"{len(names)} variants"
    if any("," in name for name in names):
        return "; ".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def mark_faults(axes: Axes, measurement: Measurement, named: bool, end_s: float = 0.0) -> None:
    """Draw vertical lines where faults began and ended, up to MARKS_MAX.

    `named`: a few have their names above. `end_s`: end of the axis; by default that of the run.
    """
    marks = fault_times(measurement)
    for t, _, is_start in marks if len(marks) <= MARKS_MAX else []:
        axes.axvline(t, color=BEGIN if is_start else END, lw=1.0, ls="-" if is_start else ":", zorder=0.5)
    if named and marks and len(marks) <= FAULTS_NAMED:
        _name_marks(axes, marks, end_s or measurement.outcome.duration_s or 1.0)


def _name_marks(axes: Axes, marks: Sequence[tuple[float, str, bool]], end_s: float) -> None:
    """Write the names of marks between the axes and the title, in rows where they would overlap."""
    is_only = sum(is_start for _, _, is_start in marks) == 1
    width = 72 * WIDTH * 0.9
    row_ends: list[float] = []
    for t, text, is_start in marks:
        # The end of the only fault needs no name.
        name = "end" if is_only and not is_start else text
        name = name if len(name) <= FAULT_NAME_MAX else name[: FAULT_NAME_MAX - 3] + "..."
        left_pt = width * t / end_s
        is_to_left = left_pt + NAME_PT * len(name) > width
        left_pt -= NAME_PT * len(name) if is_to_left else 0.0
        row = next((number for number, row_end in enumerate(row_ends) if row_end <= left_pt), len(row_ends))
        row_ends[row : row + 1] = [left_pt + NAME_PT * (len(name) + 2)]
        axes.annotate(
            name,
            (t, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + ROW_PT * row),
            textcoords="offset points",
            ha="right" if is_to_left else "left",
            fontsize=8,
            color=BEGIN if is_start else GREY,
        )
    axes.set_title(axes.get_title(loc="left"), pad=8 + ROW_PT * len(row_ends))


def mark_all(axes: Axes, groups: Mapping[str, Runs], looks: Mapping[str, dict[str, Any]]) -> bool:
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
        mark_faults(axes, first, named=True, end_s=end)
    elif late:
        for run, marks in marks_by_run.items():
            for t, _, is_start in marks if len(marks) <= MARKS_MAX else []:
                axes.axvline(t, color=looks[run]["color"], lw=1.0, ls="-" if is_start else ":", zorder=0.5)
    return False
