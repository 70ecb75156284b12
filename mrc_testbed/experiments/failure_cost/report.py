"""Table, picture and page of what failures cost a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from mrc_testbed.experiments.failure_cost.model import LEVELS, FailureStudy
from mrc_testbed.experiments.report.canvas import Drawing, canvas_of
from mrc_testbed.experiments.report.line_colours import line_colours
from mrc_testbed.experiments.report.pictures import save
from mrc_testbed.experiments.report.rendering import render
from mrc_testbed.files.whole_files import write_whole

PAGE_FILE = "report.html"
PICTURE = "failures-lost-time"
COLUMNS = ("rates", "goodput", "steps lost", "restarts", "swaps", "hours lost", "down", "stalled", "slower", "failures")
NARROW = ("rates", "goodput", "steps lost", "restarts", "swaps", "hours lost")
"""Columns on the console; the page has all of them."""
FLOOR_HOURS = 0.01
"""Least hours that the picture shows."""


def as_table(rows: list[dict[str, Any]]) -> Table:
    """Return a table with a row for each size, transport and level."""
    table = Table(box=None, pad_edge=False)
    table.add_column("transport", overflow="fold")
    for name in NARROW:
        table.add_column(name, justify="right", overflow="fold", no_wrap=True)
    size = ""
    for row in rows:
        if row["size"] != size:
            size = row["size"]
            table.add_row(f"[bold]{escape(size)}[/bold]")
        name = row["transport"] if row["level"] == LEVELS[0] else ""
        table.add_row(escape(name), *(escape(text) for text in cells(row)[: len(NARROW)]))
    return table


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of the result as texts, in the order of COLUMNS."""
    return [
        row["level"],
        _with_interval(row["goodput"], ".4f"),
        _with_interval(row["steps_lost"], ",.0f"),
        _with_interval(row["restarts"], ",.1f"),
        f"{row['swaps']['mean']:,.1f}",
        _with_interval(row["lost_hours"], ",.1f"),
        *(f"{row['hours'][name]:,.2f}" for name in ("down", "stalled", "slowed")),
        f"{row['failures']['mean']:,.0f}",
    ]


def _with_interval(value: dict[str, float], form: str) -> str:
    return f"{value['mean']:{form}} ± {(value['high'] - value['low']) / 2:{form}}"


def draw(study: FailureStudy, rows: list[dict[str, Any]]) -> Drawing:
    """Return the picture: hours lost by transport, a panel for each size; whiskers from low to high rates."""
    title = f"Hours that a job loses in {study.days:g} days to failures of its network"
    canvas, panels = canvas_of(title, height=3.8, columns=len(study.sizes))
    colours = line_colours(study.transports)
    words = []
    for axes, size in zip(panels, study.sizes, strict=True):
        for position, transport in enumerate(study.transports):
            low, mid, high = (
                next(row for row in rows if (row["size"], row["transport"], row["level"]) == (size, transport, level))
                for level in LEVELS
            )
            # A logarithmic axis has no zero: what loses nothing stands at the floor.
            hours = [max(FLOOR_HOURS, row["lost_hours"]["mean"]) for row in (low, mid, high)]
            ends = [[max(0.0, hours[1] - hours[0])], [max(0.0, hours[2] - hours[1])]]
            axes.bar([position], [hours[1]], width=0.62, color=colours[transport])
            axes.errorbar([position], [hours[1]], yerr=ends, color="#5a6069", capsize=4, lw=1.1)
            axes.text(
                position, max(hours) * 1.25, f"{hours[1]:.3g} h\n{mid['goodput']['mean']:.2%}", ha="center", fontsize=8
            )
            words.append(f"{size}, {transport}: {hours[1]:.3g} h ({hours[0]:.3g} to {hours[2]:.3g})")
        axes.set_yscale("log")
        axes.set_ylim(FLOOR_HOURS, study.days * 24 * 8)
        axes.axhline(study.days * 24, color="#8a8f96", lw=0.8, ls=(0, (4, 3)))
        axes.set_xticks(range(len(study.transports)), [_fold_name(name) for name in study.transports], fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(size)
    panels[0].set_ylabel("hours lost")
    text = f"{title}; bars: mid rates, whiskers: low to high rates, percentages: goodput. {'; '.join(words)}"
    return Drawing(PICTURE, title, text, canvas)


def _fold_name(name: str) -> str:
    return name.replace(", ", ",\n").replace("switch ", "switch\n")


def write_page(study: FailureStudy, result: dict[str, Any], folder: Path) -> Path:
    """Write the picture and the page; return the page's path. Raises OSError."""
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    picture = save(draw(study, result["rows"]), figures)
    page = render(
        "failures.html",
        title=study.title,
        study=study,
        levels=LEVELS,
        picture=picture,
        columns=COLUMNS,
        rows=[(row["size"], row["transport"], cells(row)) for row in result["rows"]],
        counts=[(row["size"], row["transport"], row["parts"]) for row in result["rows"] if row["level"] == LEVELS[0]],
        samples=result["samples"],
        paces=result["paces"],
        sources=study.rows(),
    )
    write_whole(folder / PAGE_FILE, page.encode())
    return folder / PAGE_FILE
