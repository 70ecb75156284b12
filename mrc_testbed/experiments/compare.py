"""Command `mrc compare A B`: differences of two folders of results.

Compared: scenario, machine, verdicts, metrics.

Repeats of a run are compared by the median of those that did not fail. Runs are matched by name; a run that only one
side has is listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.repeats import base_name
from mrc_testbed.experiments.results import Results, ResultsError, trust

MANIFEST = (
    "scenario",
    "title",
    "where",
    "target",
    "seed",
    "command",
    "machine.commit",
    "machine.kernel",
    "machine.cpu",
    "machine.cpus",
    "machine.python",
    "machine.packages",
)
"""Keys of two manifests that are compared."""
RATES = ("rate.", "algbw.", "busbw.")
"""Metrics in bits/s; also compared as shares of the NICs' capacity where the links differ."""
METRICS_MAX = 60
"""Most metrics printed for a run; --json has all."""
CALM_STARTS = ("Virtual", "Live")
"""Beginnings of `trust` texts that are no warnings."""
CELL = 160
"""Most characters of a cell: a whole list of faults would hide the other rows."""


@dataclass(slots=True)
class ComparedSide:
    """One folder of results."""

    folder: Path
    manifest: dict[str, Any]
    runs: dict[str, list[Outcome]]
    """Repeats of each run, by name without the repeat's number."""
    scenario: dict[str, Any]
    """The file as plain data."""


def read_side(folder: Path) -> ComparedSide:
    """Read a folder of results. Raises ResultsError."""
    results, outcomes = Results.open(folder)
    runs: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault(base_name(outcome.name), []).append(outcome)
    try:
        raw = read(folder / "scenario.yaml").raw
    except ScenarioError as error:
        raise ResultsError(f"{folder}/scenario.yaml: {error.problems[0]}") from None
    return ComparedSide(folder, results.manifest, runs, raw)


def differences(a: Path, b: Path) -> dict[str, Any]:
    """Return all differences, for --json. Raises ResultsError."""
    side_a, side_b = read_side(a), read_side(b)
    return {
        "a": str(a),
        "b": str(b),
        "manifest": list(_manifest(side_a, side_b)),
        "scenario": list(_paths(side_a.scenario, side_b.scenario, "")),
        "trust": {"a": trust(side_a.manifest), "b": trust(side_b.manifest)},
        "verdicts": list(_verdicts(side_a, side_b)),
        "failed": {"a": _failed(side_a), "b": _failed(side_b)},
        "only_a": [name for name in side_a.runs if name not in side_b.runs],
        "only_b": [name for name in side_b.runs if name not in side_a.runs],
        "rows": list(_metrics(side_a, side_b)),
    }


def _failed(side: ComparedSide) -> dict[str, str]:
    """Return name -> first cause of each run that failed."""
    return {repeat.name: repeat.cause for repeats in side.runs.values() for repeat in repeats if repeat.cause}


def _manifest(side_a: ComparedSide, side_b: ComparedSide) -> Iterator[dict[str, Any]]:
    for key in MANIFEST:
        a, b = _value_at(side_a.manifest, key), _value_at(side_b.manifest, key)
        if isinstance(a, dict) and isinstance(b, dict):
            for part in sorted({*a, *b}):
                if a.get(part) != b.get(part):
                    yield {"key": part, "a": a.get(part), "b": b.get(part)}
        elif a != b:
            yield {"key": key, "a": a, "b": b}


def _value_at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _paths(a: Any, b: Any, location: str) -> Iterator[dict[str, Any]]:
    """Yield the keys of the scenario files that differ, by path."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            yield from _paths(a.get(key), b.get(key), f"{location}.{key}" if location else str(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (value_a, value_b) in enumerate(zip(a, b, strict=True)):
            yield from _paths(value_a, value_b, f"{location}.{number}")
    elif a != b:
        yield {"key": location, "a": a, "b": b}


def _verdicts(side_a: ComparedSide, side_b: ComparedSide) -> Iterator[dict[str, Any]]:
    """Yield rules that held on one side only, or that only one side has."""
    sides: list[dict[tuple[str, str], list[dict[str, Any]]]] = []
    for side in (side_a, side_b):
        by_rule: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for verdict in side.manifest.get("verdicts", []):
            by_rule.setdefault((verdict["rule"], base_name(verdict["run"])), []).append(verdict)
        sides.append(by_rule)
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        states = [_state_text(by_rule.get(key)) for by_rule in sides]
        values = [", ".join(verdict["seen"] for verdict in by_rule.get(key, [])) for by_rule in sides]
        if states[0] != states[1]:
            yield {
                "rule": key[0],
                "run": key[1],
                "a": states[0],
                "b": states[1],
                "seen_a": values[0],
                "seen_b": values[1],
            }


def _state_text(verdicts: list[dict[str, Any]] | None) -> str:
    if not verdicts:
        return "not judged"
    passed_count = sum(verdict["passed"] for verdict in verdicts)
    if len(verdicts) == 1:
        return "held" if passed_count else "did not hold"
    return f"held in {passed_count} of {len(verdicts)}"


def _metrics(side_a: ComparedSide, side_b: ComparedSide) -> Iterator[dict[str, Any]]:
    for name, repeats_a in side_a.runs.items():
        repeats_b = side_b.runs.get(name)
        if repeats_b is None:
            continue
        capacity = repeats_a[0].capacity_bps, repeats_b[0].capacity_bps
        scaled = all(capacity) and abs(capacity[0] - capacity[1]) > 0.001 * capacity[0]
        for metric in dict.fromkeys([*repeats_a[0].metrics, *repeats_b[0].metrics]):
            a, b = _median(repeats_a, metric), _median(repeats_b, metric)
            if a is not None or b is not None:
                yield _row(name, metric, a, b)
            if a is not None and b is not None and scaled and metric.startswith(RATES):
                yield _row(name, f"{metric} / capacity", a / capacity[0], b / capacity[1])


def _row(run: str, metric: str, a: float | None, b: float | None) -> dict[str, Any]:
    ratio = b / a if a and b is not None else None
    return {"run": run, "metric": metric, "a": a, "b": b, "ratio": ratio}


def _median(repeats: list[Outcome], metric: str) -> float | None:
    values = [value for repeat in repeats if not repeat.cause and (value := repeat.metrics.get(metric)) is not None]
    return median(values) if values else None


# ---- printing -------------------------------------------------------------------------------------------------


def show(data: dict[str, Any], console: Console) -> None:
    """Print the result of differences()."""
    console.print(f"A  {escape(data['a'])}\nB  {escape(data['b'])}", soft_wrap=True)
    for name in ("a", "b"):
        for text in data["trust"][name]:
            console.print(f"{name.upper()}  {escape(text)}", style="dim" if text.startswith(CALM_STARTS) else "yellow")
    differing = [
        *data["manifest"],
        *({**difference, "key": f"scenario: {difference['key']}"} for difference in data["scenario"]),
    ]
    if differing:
        console.print(
            _table(("what was run, on what", "A", "B"), [(_t(d["key"]), _t(d["a"]), _t(d["b"])) for d in differing])
        )
    for name, key in (("A", "only_a"), ("B", "only_b")):
        if data[key]:
            console.print(f"runs that only {name} has: {escape(', '.join(data[key]))}")
    for name in ("a", "b"):
        for run, cause in data["failed"][name].items():
            # its numbers are left out of the medians: the reader must know
            console.print(f"{name.upper()}  {escape(run)} FAILED and is in no number: {escape(cause)}", style="red")
    if data["verdicts"]:
        rows = [
            (
                f"{verdict['rule']} ({verdict['run']})",
                _verdict(verdict["a"], verdict["seen_a"]),
                _verdict(verdict["b"], verdict["seen_b"]),
            )
            for verdict in data["verdicts"]
        ]
        console.print(_table(("verdicts that differ", "A", "B"), rows))
    else:
        console.print("no verdict differs")
    _show_metrics(data["rows"], console)


def _show_metrics(rows: list[dict[str, Any]], console: Console) -> None:
    for run in dict.fromkeys(row["run"] for row in rows):
        run_rows = [row for row in rows if row["run"] == run]
        differing = sorted((row for row in run_rows if row["a"] != row["b"]), key=_distance, reverse=True)
        table = Table(
            box=None, pad_edge=False, title=f"{run}: metrics that differ, the farthest first", title_justify="left"
        )
        for column in ("metric", "A", "B", "B / A"):
            table.add_column(column, justify="left" if column == "metric" else "right", overflow="fold")
        for row in differing[:METRICS_MAX]:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
            table.add_row(escape(row["metric"]), _number(row["a"]), _number(row["b"]), ratio)
        console.print()
        if differing:
            console.print(table)
        more_text = (
            f"; {len(differing) - METRICS_MAX} more differ (--json has them)" if len(differing) > METRICS_MAX else ""
        )
        console.print(
            f"{len(run_rows) - len(differing)} of {len(run_rows)} metrics are equal ({escape(run)}){more_text}"
        )
    if not rows:
        console.print("no run has the same name in both")


def _distance(row: dict[str, Any]) -> float:
    """Return the ratio of two values; infinite where one is unmeasured, so that it is sorted first."""
    a, b = row["a"], row["b"]
    if a is None or b is None or (a == 0) != (b == 0):
        return float("inf")
    low, high = sorted((abs(a), abs(b)))
    return high / low if low else 0.0


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _t(value: Any) -> str:
    """Return a value of a manifest or a scenario as a cell."""
    text = "–" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= CELL else text[: CELL - 4] + " ..."


def _verdict(state: str, value: str) -> str:
    return f"{state}: {value}" if value else state


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.5g}"
