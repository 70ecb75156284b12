"""Figures over a swept size, drawn like Figs 15 to 17 of the paper; the paper's curves are dashed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from mrc_testbed.console import units
from mrc_testbed.experiments.language.model import Figure, Scenario
from mrc_testbed.experiments.metrics.repeats import group_repeats
from mrc_testbed.experiments.report import paper_reference
from mrc_testbed.experiments.report.canvas import (
    Drawing,
    Runs,
    canvas_of,
    legend,
    scale_of,
    styles,
    title_of,
    variant_of,
)

MARKERS = "osv^D*Xp"


def curve(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawing:
    """Draw a metric against a swept size; a panel per value of another sweep, a line per variant.

    Where the paper has such curves, values are shares of the best loss-free value here, as the paper's are of its own.
    """
    title = title_of(figure, runs)
    lines = _lines(figure, runs)
    panel_key = _panel_key(figure, runs)
    panels = list(dict.fromkeys(str(line.label.get(panel_key)) for line in lines)) if panel_key else [""]
    canvas, axes = canvas_of(title, 4.0, len(panels))
    paper_curves = {id(line): paper_reference.curve_of(scenario, line.label) for line in lines}
    top, label = _top(figure, lines, any(paper_curves.values())), ""
    names = list(dict.fromkeys(line.name(panel_key) for line in lines))
    remarks, looks = [], styles({line.name(panel_key): line.variant for line in lines}, scenario.variants)
    # Legend and y axis are the first panel's; every panel has its own sizes.
    for panel, axis in zip(panels, axes, strict=True):
        panel_lines = [line for line in lines if not panel_key or str(line.label.get(panel_key)) == panel]
        for line in panel_lines:
            number = names.index(line.name(panel_key))
            scale, label = (top, "share of MRC's best without loss") if top else (line.scale, line.axis)
            remarks += _draw_line(
                axis, line, paper_curves[id(line)], scale, number, names[number], looks[names[number]], bool(top)
            )
        remarks += _order(panel_lines, paper_curves, panel_key) if top else []
        if panel_key:
            axis.set_title(f"{title}: {panel_key} {panel}" if axis is axes[0] else f"{panel_key} {panel}")
        axis.set_xscale("log", base=2)
        sizes = sorted({x for line in panel_lines for x, _ in line.points})
        axis.set_xticks(sizes, [_size(x) for x in sizes], fontsize=8)
        axis.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
        axis.set_xlabel(f"{figure.x}, bytes")
    axes[0].set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    legend(canvas, axes[0])
    statements = "; ".join(
        f"{line.name('')}: {line.points[-1][1] / line.scale:.4g} {line.axis} at most size" for line in lines
    )
    return Drawing(name, title, f"{title} by {figure.x}. {statements}.", canvas, remarks)


@dataclass(slots=True)
class _Line:
    """One curve: points are (x, median, lowest, highest)."""

    label: dict[str, Any]
    points: list[tuple[float, float]]
    spread: list[tuple[float, float]]
    scale: float
    axis: str
    variant: str

    def name(self, without: str | None) -> str:
        words = (str(v) if k == "variant" else f"{k} {v}" for k, v in self.label.items() if k != without)
        return " ".join(words) or "here"


def _lines(figure: Figure, runs: Runs) -> list[_Line]:
    lines_by_label: dict[str, _Line] = {}
    for repeats in group_repeats(runs).values():
        _, labels, measurement = repeats[0]
        values = [
            value
            for _, _, measurement_of_repeat in repeats
            if (value := measurement_of_repeat.value(figure.metric)) is not None
        ]
        if not values or figure.x not in labels:
            continue
        scale, axis = scale_of(figure, measurement, runs)
        fixed_labels = {key: value for key, value in labels.items() if key != figure.x}
        line = lines_by_label.setdefault(
            str(fixed_labels), _Line(fixed_labels, [], [], scale, axis, variant_of(labels, measurement.plan))
        )
        line.points.append((_number(labels[figure.x]), median(values)))
        line.spread.append((min(values), max(values)))
    return list(lines_by_label.values())


def _panel_key(figure: Figure, runs: Runs) -> str | None:
    """The sweep beside x and variant, when there is just one and it has few values."""
    keys = [key for key in runs[0][1] if key not in ("variant", figure.x)]
    if len(keys) != 1 or len({str(label.get(keys[0])) for _, label, _ in runs}) > 4 or "variant" not in runs[0][1]:
        return None
    return keys[0]


def _top(figure: Figure, lines: list[_Line], paper_has: bool) -> float | None:
    """Our value that counts as 1, where the paper's curves are normalised the same way."""
    if not paper_has or figure.of is not None:
        return None
    full = [
        line for line in lines if (line.label.get("variant"), line.label.get("loss")) == paper_reference.FULL_CURVE
    ] or lines
    return max((y for line in full for _, y in line.points), default=None)


def _draw_line(
    axes: Axes,
    line: _Line,
    paper_points: paper_reference.Points,
    scale: float,
    number: int,
    name: str,
    line_style: dict[str, Any],
    shares: bool,
) -> list[tuple[str, str]]:
    points = sorted((x, y / scale) for x, y in line.points)
    style = {**line_style, "marker": MARKERS[number % len(MARKERS)]}
    axes.plot(*zip(*points, strict=True), label=name, ms=4.5, **style)
    if any(high > low for low, high in line.spread):
        low, high = ([y / scale for y in ends] for ends in zip(*line.spread, strict=True))
        axes.fill_between([x for x, _ in line.points], low, high, color=line_style["color"], alpha=0.2, lw=0)
    if not paper_points or not shares:
        return []
    axes.plot(*zip(*paper_points, strict=True), label=f"{name}, paper", **{**style, "lw": 1.2, "ls": ":", "ms": 2.5})
    words = paper_reference.curve_distance(points, paper_points)
    return [(line.name(""), words)] if words else []


def _order(
    lines: list[_Line], paper_curves: dict[int, paper_reference.Points], panel_key: str | None
) -> list[tuple[str, str]]:
    """Order of the curves at the largest size, here and in the paper."""
    local_values = {line.name(panel_key): max(line.points)[1] for line in lines}
    paper_values = {
        line.name(panel_key): paper_reference.value_at(paper_curves[id(line)], max(line.points)[0])
        for line in lines
        if paper_curves[id(line)]
    }
    words = paper_reference.order_text(local_values, paper_values)
    subject = f"order at {_size(max(lines[0].points)[0])}" + (
        f", {panel_key} {lines[0].label[panel_key]}" if panel_key else ""
    )
    return [(subject, words)] if words else []


def _size(value: float) -> str:
    for unit, factor in (("M", 2**20), ("K", 2**10)):
        if value >= factor and value % factor == 0:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def _number(value: Any) -> float:
    try:
        return float(units.size(value)) if isinstance(value, str) else float(value)
    except (units.UnitError, ValueError):
        return units.seconds(value)
