"""A study's points and intervals as a table: CSV for other programs, lines for people."""

from __future__ import annotations

import csv
import io
from typing import Any

from rich.markup import escape
from rich.table import Table

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
"""Columns that a label has at least, however narrow the terminal is."""


def as_csv(said: dict[str, Any]) -> str:
    """One row for each point and metric. `said`: as carry_out.described makes it."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    labels = list(said["points"][0]["label"]) if said["points"] else []
    writer.writerow(["point", *labels, *COLUMNS])
    for point in said["points"]:
        for name, found in point["metrics"].items():
            of_point = {key: point[key] for key in ("seeds", "decided")} | {"failed": len(point["failed"])}
            row = {**found, "metric": name, **of_point}
            values = ["" if row[column] is None else row[column] for column in COLUMNS]
            writer.writerow([point["name"], *point["label"].values(), *values])
    return file.getvalue()


def as_table(said: dict[str, Any]) -> Table:
    """One row for each point, a column for each metric: estimate ± half of the interval."""
    table = Table(box=None, pad_edge=False)
    labels = list(said["points"][0]["label"])
    for name in labels or ["point"]:
        table.add_column(escape(str(name)), overflow="fold", min_width=LABEL_WIDTH_MIN)
    metrics = list(said["points"][0]["metrics"])
    for name in metrics:
        unit = shown_unit(said, name)[1]
        table.add_column(escape(f"{name}{f', {unit}' if unit else ''}"), justify="right", overflow="fold")
    table.add_column("seeds", justify="right")
    for point in said["points"]:
        cells = [escape(str(value)) for value in point["label"].values()] or ["all"]
        for name in metrics:
            cells.append(in_words(point["metrics"][name], shown_unit(said, name)[0]))
        table.add_row(*cells, _seeds(point))
    return table


def _seeds(point: dict[str, Any]) -> str:
    """`20`, `5 so far`, `20, 3 failed`."""
    failed = f", {len(point['failed'])} failed" if point["failed"] else ""
    return f"{point['seeds']}{'' if point['decided'] else ' so far'}{failed}"


def in_words(found: dict[str, Any], scale: float) -> str:
    """`8.12 ± 0.03`; the interval of the bootstrap by its ends. `!`: not as narrow as it was to be."""
    if found["estimate"] is None:
        return "-"
    late = " !" if found["narrow"] is False else ""
    if found["method"] == "t":
        return f"{found['estimate'] / scale:.4g} ± {found['half_width'] / scale:.2g}{late}"
    return f"{found['estimate'] / scale:.4g} ({found['low'] / scale:.4g} to {found['high'] / scale:.4g}){late}"


def shown_unit(said: dict[str, Any], metric: str) -> tuple[float, str]:
    """Divisor of a metric's values, and the name of the unit then."""
    found = [point["metrics"][metric] for point in said["points"]]
    unit = found[0]["unit"]
    if unit == "bit/s":
        return 1e6, "Mb/s"
    if unit == "s" and all(abs(one["estimate"] or 0.0) < 1.0 for one in found):
        return 1e-3, "ms"
    return 1.0, "" if unit in PLAIN else unit
