"""Pictures of a study: a metric over a parameter with its intervals, a line for each combination of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.language.expand import label_parts
from mrc_testbed.experiments.report.canvas import Drawn, canvas_of, legend, styles
from mrc_testbed.experiments.report.pictures import file_of, save
from mrc_testbed.experiments.study.model import Study, StudyFigure
from mrc_testbed.experiments.study.tables import shown_unit

LINES_MAX = 8
"""Lines of one picture; more cannot be distinguished."""


def draw(study: Study, said: dict[str, Any], folder: Path) -> list[Path]:
    """Write SVG and PNG of each figure; returns the PNG files. `said`: as carry_out.described makes it.

    Raises OSError.
    """
    figures = study.figures if study.figures is not None else _default(study, said)
    out = []
    for figure in figures if said["points"] else []:
        folder.mkdir(exist_ok=True)
        drawn = _drawn(figure, said)
        save(drawn, folder)
        out.append(folder / f"{file_of(drawn)}.png")
    return out


def _default(study: Study, said: dict[str, Any]) -> list[StudyFigure]:
    """Each metric over the first parameter with several values, else over the variants."""
    labels = [point["label"] for point in said["points"]]
    several = [name for name in labels[0] if len({str(label[name]) for label in labels}) > 1] if labels else []
    x = next((name for name in several if name != "variant"), several[0] if several else None)
    return [] if x is None else [StudyFigure(metric=metric.metric, x=x) for metric in study.metrics]


def _drawn(figure: StudyFigure, said: dict[str, Any]) -> Drawn:
    scale, unit = shown_unit(said, figure.metric)
    first = said["points"][0]["metrics"][figure.metric]
    how = "Student's t" if first["method"] == "t" else "bootstrap"
    interval = f"{first['of']}, {100 * first['confidence']:g} % interval ({how})"
    title = figure.title or f"{figure.metric} over {figure.x}"
    canvas, (axes,) = canvas_of(title)
    lines: dict[str, list[dict[str, Any]]] = {}
    for point in said["points"]:
        others = {key: value for key, value in point["label"].items() if key != figure.x}
        lines.setdefault(" ".join(label_parts(others)), []).append(point)
    values = list(dict.fromkeys(str(point["label"][figure.x]) for point in said["points"]))
    places = _numbers(values)
    shown = list(lines.items())[:LINES_MAX]
    looks = styles([name for name, _ in shown])
    text = []
    for name, points in shown:
        there = [one for one in points if one["metrics"][figure.metric]["estimate"] is not None]
        found = [one["metrics"][figure.metric] for one in there]
        ys = [one["estimate"] / scale for one in found]
        ends = [
            [(one["estimate"] - one["low"]) / scale for one in found],
            [(one["high"] - one["estimate"]) / scale for one in found],
        ]
        xs = [places[str(one["label"][figure.x])] for one in there]
        axes.errorbar(xs, ys, yerr=ends, label=name or None, capsize=3, marker="o", ms=3.5, **looks[name])
        text.append(f"{name or figure.metric}: " + ", ".join(f"{y:.4g}" for y in ys))
    if figure.log:
        axes.set_xscale("log")
    axes.set_xticks([places[value] for value in values], values)
    axes.minorticks_off()
    axes.set_xlabel(figure.x)
    axes.set_ylabel(f"{figure.metric}{f', {unit}' if unit else ''}")
    if all(
        one["metrics"][figure.metric]["low"] is None or one["metrics"][figure.metric]["low"] >= 0
        for one in said["points"]
    ):
        axes.set_ylim(bottom=0)
    legend(canvas, axes)
    left = f"; {len(lines) - LINES_MAX} lines are left out" if len(lines) > LINES_MAX else ""
    words = f"{title}; {interval}{left}. {'; '.join(text)}"
    axes.text(1.0, 1.02, interval, transform=axes.transAxes, ha="right", fontsize=8)
    return Drawn(f"study-{figure.metric}-over-{figure.x}", title, words, canvas)


def _numbers(values: list[str]) -> dict[str, float]:
    """Where values stand on the axis: at their numbers when all are quantities of a kind, else one after the other."""
    for read in (float, units.share, units.seconds, units.rate, units.size):
        try:
            found = {value: float(read(value)) for value in values}
        except ValueError:
            continue
        if len(set(found.values())) == len(values):
            return found
    return {value: float(number) for number, value in enumerate(values)}
