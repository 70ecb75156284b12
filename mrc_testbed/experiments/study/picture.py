"""Pictures of a study: a metric over a parameter with intervals; a line per combination of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.language.expand import label_parts
from mrc_testbed.experiments.report.canvas import Drawing, canvas_of, legend, styles
from mrc_testbed.experiments.report.pictures import file_of, save
from mrc_testbed.experiments.study.model import Study, StudyFigure
from mrc_testbed.experiments.study.tables import shown_unit

LINES_MAX = 8
"""Lines of one picture; more cannot be distinguished."""


def draw(study: Study, summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write SVG and PNG of each figure; return the PNG files. `summary`: from carry_out.summarize_study.

    Raises OSError.
    """
    figures = study.figures if study.figures is not None else _default(study, summary)
    out = []
    for figure in figures if summary["points"] else []:
        folder.mkdir(exist_ok=True)
        drawing = _draw_figure(figure, summary)
        save(drawing, folder)
        out.append(folder / f"{file_of(drawing)}.png")
    return out


def _default(study: Study, summary: dict[str, Any]) -> list[StudyFigure]:
    """Return a figure of each metric over the first parameter with several values, else over the variants."""
    labels = [point["label"] for point in summary["points"]]
    varying_keys = [name for name in labels[0] if len({str(label[name]) for label in labels}) > 1] if labels else []
    x = next((name for name in varying_keys if name != "variant"), varying_keys[0] if varying_keys else None)
    return [] if x is None else [StudyFigure(metric=metric.metric, x=x) for metric in study.metrics]


def _draw_figure(figure: StudyFigure, summary: dict[str, Any]) -> Drawing:
    scale, unit = shown_unit(summary, figure.metric)
    first = summary["points"][0]["metrics"][figure.metric]
    method = "Student's t" if first["method"] == "t" else "bootstrap"
    interval = f"{first['of']}, {100 * first['confidence']:g} % interval ({method})"
    title = figure.title or f"{figure.metric} over {figure.x}"
    canvas, (axes,) = canvas_of(title)
    lines: dict[str, list[dict[str, Any]]] = {}
    for point in summary["points"]:
        line_label = {key: value for key, value in point["label"].items() if key != figure.x}
        lines.setdefault(" ".join(label_parts(line_label)), []).append(point)
    values = list(dict.fromkeys(str(point["label"][figure.x]) for point in summary["points"]))
    positions = _numbers(values)
    # Points without an estimate (fewer than two values) are left out of their line.
    drawn_lines = list(lines.items())[:LINES_MAX]
    variants = [str(point["label"].get("variant", "")) for point in summary["points"]]
    looks = styles(
        {name: str(points[0]["label"].get("variant", name)) for name, points in drawn_lines}, filter(None, variants)
    )
    text = []
    for name, points in drawn_lines:
        measured_points = [point for point in points if point["metrics"][figure.metric]["estimate"] is not None]
        metrics = [point["metrics"][figure.metric] for point in measured_points]
        ys = [metric["estimate"] / scale for metric in metrics]
        ends = [
            [(metric["estimate"] - metric["low"]) / scale for metric in metrics],
            [(metric["high"] - metric["estimate"]) / scale for metric in metrics],
        ]
        xs = [positions[str(point["label"][figure.x])] for point in measured_points]
        axes.errorbar(xs, ys, yerr=ends, label=name or None, capsize=3, marker="o", ms=3.5, **looks[name])
        text.append(f"{name or figure.metric}: " + ", ".join(f"{y:.4g}" for y in ys))
    if figure.log:
        axes.set_xscale("log")
    axes.set_xticks([positions[value] for value in values], values)
    axes.minorticks_off()
    axes.set_xlabel(figure.x)
    axes.set_ylabel(f"{figure.metric}{f', {unit}' if unit else ''}")
    if all(
        point["metrics"][figure.metric]["low"] is None or point["metrics"][figure.metric]["low"] >= 0
        for point in summary["points"]
    ):
        axes.set_ylim(bottom=0)
    legend(canvas, axes)
    omitted_text = f"; {len(lines) - LINES_MAX} lines are left out" if len(lines) > LINES_MAX else ""
    words = f"{title}; {interval}{omitted_text}. {'; '.join(text)}"
    axes.text(1.0, 1.02, interval, transform=axes.transAxes, ha="right", fontsize=8)
    return Drawing(f"study-{figure.metric}-over-{figure.x}", title, words, canvas)


def _numbers(values: list[str]) -> dict[str, float]:
    """Return positions of values on the axis.

    Their numbers, where all are distinct quantities of one kind; else 0, 1, 2, ...
    """
    for read in (float, units.share, units.seconds, units.rate, units.size):
        try:
            numbers = {value: float(read(value)) for value in values}
        except ValueError:
            continue
        if len(set(numbers.values())) == len(values):
            return numbers
    return {value: float(number) for number, value in enumerate(values)}
