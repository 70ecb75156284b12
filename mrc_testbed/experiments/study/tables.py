"""A study's points and intervals as a table: CSV for other programs, lines for people."""

from __future__ import annotations

import csv
import io
from typing import Any

from rich.markup import escape
from rich.table import Table

from mrc_testbed.console import units
from mrc_testbed.experiments.metrics.repeats import PLAIN

COLUMNS = (
    "metric",
    "unit",
    "of",
    "method",
    "confidence",
    "estimate",
    "low",
    "high",
    "half_width",
    "values",
    "seeds",
    "failed",
    "decided",
    "narrow",
)
LABEL_WIDTH_MIN = 8
"""Least width of a label, in characters, however narrow the terminal is."""


def as_csv(summary: dict[str, Any]) -> str:
    """Return CSV with a row for each point and metric. `summary`: from carry_out.summarize_study."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    labels = list(summary["points"][0]["label"]) if summary["points"] else []
    writer.writerow(["point", *labels, *COLUMNS])
    for point in summary["points"]:
        for name, metric in point["metrics"].items():
            of_point = {key: point[key] for key in ("seeds", "decided")} | {"failed": len(point["failed"])}
            row = {**metric, "metric": name, **of_point}
            values = ["" if row[column] is None else row[column] for column in COLUMNS]
            writer.writerow([point["name"], *point["label"].values(), *values])
    return file.getvalue()


def as_table(summary: dict[str, Any]) -> Table:
    """Return a table with a row for each point, a column for each metric: estimate ± half of the interval."""
    table = Table(box=None, pad_edge=False)
    labels = list(summary["points"][0]["label"])
    for name in labels or ["point"]:
        table.add_column(escape(str(name)), overflow="fold", min_width=LABEL_WIDTH_MIN)
    metrics = list(summary["points"][0]["metrics"])
    for name in metrics:
        unit = shown_unit(summary, name)[1]
        table.add_column(escape(f"{name}{f', {unit}' if unit else ''}"), justify="right", overflow="fold")
    table.add_column("seeds", justify="right")
    for point in summary["points"]:
        cells = [escape(str(value)) for value in point["label"].values()] or ["all"]
        for name in metrics:
            cells.append(in_words(point["metrics"][name], shown_unit(summary, name)[0]))
        table.add_row(*cells, _seeds(point))
    return table


def _seeds(point: dict[str, Any]) -> str:
    """Return the seeds of a point as text: `20`, `5 so far`, `20, 3 failed`."""
    failed = f", {len(point['failed'])} failed" if point["failed"] else ""
    return f"{point['seeds']}{'' if point['decided'] else ' so far'}{failed}"


def in_words(metric: dict[str, Any], scale: float) -> str:
    """Return a metric as text: `8.12 ± 0.03`, for the bootstrap the ends; `!` marks a too wide interval."""
    if metric["estimate"] is None:
        return "-"
    mark = " !" if metric["narrow"] is False else ""
    if metric["method"] == "t":
        return f"{metric['estimate'] / scale:.4g} ± {metric['half_width'] / scale:.2g}{mark}"
    return f"{metric['estimate'] / scale:.4g} ({metric['low'] / scale:.4g} to {metric['high'] / scale:.4g}){mark}"


def shown_unit(summary: dict[str, Any], metric: str) -> tuple[float, str]:
    """Return the divisor of a metric's values, and the unit of the quotient."""
    values = [point["metrics"][metric] for point in summary["points"]]
    name, divisor = units.fitting_unit(values[0]["unit"], max(abs(value["estimate"] or 0.0) for value in values))
    return divisor, "" if name in PLAIN else name
