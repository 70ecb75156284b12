"""Summary of result sets as Markdown tables beside the paper's numbers: those of docs/results.md.

mrc report SET... --summary            # a set: a folder of results, or a folder of such folders

Results of one kind (virtual, live, live on another target) become one column, whatever set they are in: seeds 1, 2 and
3 in three sets, or `--repeat 3` in one, are three values, shown as median and spread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from mrc_testbed.experiments.metrics.assertions import ALWAYS
from mrc_testbed.experiments.metrics.repeats import base_name
from mrc_testbed.experiments.report.paper_reference import ratio_distance
from mrc_testbed.experiments.results import folders_below, read_manifest


@dataclass(slots=True)
class _Rule:
    """One rule on one run, over all results of a kind."""

    values: list[float] = field(default_factory=list)
    repeats_held: int = 0
    repeats: int = 0
    failed: list[str] = field(default_factory=list)
    """Measured values of the results in which the rule did not hold."""


Kinds = dict[str, dict[str, list[dict[str, Any]]]]
"""Kind (`virtual`, `live`, ...) -> scenario -> its manifests."""


def summary(folders: list[Path]) -> str:
    """Return Markdown: origin, verdicts by scenario, numbers next to the paper's. Raises ResultsError."""
    kinds = _read(folders)
    names = sorted({name for kind in kinds.values() for name in kind}, key=_order)
    return "\n".join([*_origin_lines(kinds), "", *_verdicts(kinds, names), "", *_numbers(kinds, names)]) + "\n"


def _read(folders: list[Path]) -> Kinds:
    kinds: Kinds = {}
    for folder in folders:
        for path in folders_below(folder):
            manifest = read_manifest(path)
            kinds.setdefault(_kind(manifest), {}).setdefault(str(manifest["scenario"]), []).append(manifest)
    return dict(sorted(kinds.items(), key=lambda item: (item[0] != "virtual", item[0])))


def _kind(manifest: dict[str, Any]) -> str:
    target = manifest.get("target")
    return str(manifest["where"]) + (f" {target}" if target not in (None, "embedded") else "")


# ---- origin -------------------------------------------------------------------------------------------------------


def _origin_lines(kinds: Kinds) -> list[str]:
    """Return a line for each column: seeds, machine, commit, commands."""
    lines = []
    for kind, manifests_by_scenario in kinds.items():
        manifests = [manifest for manifests in manifests_by_scenario.values() for manifest in manifests]
        seeds = sorted({run["seed"] for manifest in manifests for run in manifest["runs"]})
        commits = sorted({str(manifest["machine"]["commit"]) for manifest in manifests})
        machines = sorted({f"{manifest['machine']['cpus']} x {manifest['machine']['cpu']}" for manifest in manifests})
        days = sorted({manifest["began"][:10] for manifest in manifests})
        overloaded_count = sum(run["load"]["overloaded"] for manifest in manifests for run in manifest["runs"])
        runs = sum(len(manifest["runs"]) for manifest in manifests)
        text = f"**{kind}**: {len(manifests)} results, {runs} runs; seed{'s' if len(seeds) > 1 else ''} "
        text += (
            f"{', '.join(map(str, seeds)) or '–'}; {_span(days)}; commit {', '.join(commits)}; {', '.join(machines)}"
        )
        if kind.startswith("live"):
            text += f"; overloaded in {overloaded_count} of {runs} runs (marked *: times are not to be trusted there)"
        lines.append(f"* {text}. Made by {_commands(manifests)}")
    return lines


def _span(days: list[str]) -> str:
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _commands(manifests: list[dict[str, Any]]) -> str:
    """Return the commands; commands that differ in the scenario alone become one."""
    shapes: dict[str, list[str]] = {}
    for manifest in manifests:
        command = manifest.get("command") or ""
        match = re.match(r"(mrc run) (\S+)(.*)", command)
        if match:
            shapes.setdefault(f"{match[1]} FILE{match[3]}", []).append(match[2])
    texts = []
    for shape, files in shapes.items():
        file = files[0] if len(set(files)) == 1 else "scenarios/NAME.yaml"
        texts.append(
            f"`{shape.replace('FILE', file)}`" + (f" ({len(set(files))} scenarios)" if file != files[0] else "")
        )
    return ", ".join(texts) or "unknown commands"


# ---- verdicts -----------------------------------------------------------------------------------------------------


def _verdicts(kinds: Kinds, names: list[str]) -> list[str]:
    lines = ["| scenario | " + " | ".join(kinds) + " | what did not hold |", "| --- |" + " --- |" * (len(kinds) + 1)]
    for name in names:
        failed: list[str] = []
        cells = []
        for kind, manifests_by_scenario in kinds.items():
            cells.append(_state(manifests_by_scenario.get(name, [])))
            for (rule, run), record in _rules(manifests_by_scenario.get(name, [])).items():
                if record.repeats_held < record.repeats:
                    times = (
                        f" in {record.repeats - record.repeats_held} of {record.repeats}" if record.repeats > 1 else ""
                    )
                    on = f" ({run})" if run != "run" else ""
                    failed.append(f"{kind}: {rule}{on}{times}: {', '.join(record.failed)}")
        title = next(
            manifests[0]["title"]
            for manifests_by_scenario in kinds.values()
            if (manifests := manifests_by_scenario.get(name))
        )
        lines.append(_row(f"`{name}` {title}", *cells, "; ".join(failed) or "–"))
    return lines


def _state(manifests: list[dict[str, Any]]) -> str:
    """Return the verdict of a scenario: `11/11`, or of several results `3 of 3 passed (33/33)`."""
    if not manifests:
        return "not run"
    verdicts = [verdict for manifest in manifests for verdict in manifest["verdicts"]]
    star = " *" if any(run["load"]["overloaded"] for manifest in manifests for run in manifest["runs"]) else ""
    failed = len(
        {(index, v["run"]) for index, manifest in enumerate(manifests) for v in manifest["verdicts"] if v.get("cause")}
    )
    open_count = sum(not manifest["complete"] for manifest in manifests)
    text = f"{sum(verdict['passed'] for verdict in verdicts)}/{len(verdicts)}"
    if len(manifests) > 1:
        text = f"{sum(bool(manifest.get('passed')) for manifest in manifests)} of {len(manifests)} passed ({text})"
    text += f", {failed} run{'s' if failed > 1 else ''} failed" if failed else ""
    return text + (" (unfinished)" if open_count else "") + star


def _rules(manifests: list[dict[str, Any]]) -> dict[tuple[str, str], _Rule]:
    out: dict[tuple[str, str], _Rule] = {}
    for manifest in manifests:
        failed = {verdict["run"] for verdict in manifest["verdicts"] if verdict.get("cause")}
        for verdict in manifest["verdicts"]:
            if verdict["rule"] == ALWAYS and verdict["passed"]:
                continue
            record = out.setdefault((verdict["rule"], base_name(verdict["run"])), _Rule())
            record.repeats += 1
            record.repeats_held += verdict["passed"]
            record.failed += [] if verdict["passed"] else [verdict["seen"]]
            sound = verdict.get("value") is not None and verdict["run"] not in failed
            record.values += [verdict["value"]] if sound else []
    return out


# ---- numbers ------------------------------------------------------------------------------------------------------


def _numbers(kinds: Kinds, names: list[str]) -> list[str]:
    """Return the rules with a number of the paper: the value of each kind, and its distance."""
    heads = ["what", "paper", *kinds, *(f"{kind} against the paper" for kind in kinds)]
    lines = [_row(*heads), "| --- | ---: |" + " ---: |" * len(kinds) + " --- |" * len(kinds)]
    for name in names:
        papers: dict[tuple[str, str], float] = {}
        for manifests_by_scenario in kinds.values():
            for manifest in manifests_by_scenario.get(name, []):
                for verdict in manifest["verdicts"]:
                    if verdict.get("paper") is not None:
                        papers[verdict["rule"], base_name(verdict["run"])] = verdict["paper"]
        rules = [_rules(manifests_by_scenario.get(name, [])) for manifests_by_scenario in kinds.values()]
        for (rule, run), paper in papers.items():
            values = [records[rule, run].values if (rule, run) in records else [] for records in rules]
            words = [ratio_distance(median(value), paper) if value else "–" for value in values]
            on = f" ({run})" if run != "run" else ""
            lines.append(_row(f"`{name}` {rule}{on}", f"{paper:.3g}", *map(_values, values), *words))
    return lines


def _values(values: list[float]) -> str:
    """Return the values as text: `0.874`, or of several `0.874 (0.871 to 0.876, 3)`."""
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f}, {len(values)})"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _order(name: str) -> tuple[int, int, str]:
    digits = re.match(r"e(\d+)", name)
    return (0, int(digits[1]), name) if digits else (1, 0, name)
