"""Several sets of results in one Markdown table: docs/results.md is made by it.

mrc report SET... --summary            # a set is a folder of result folders, one a scenario
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from testbed.scenario.results import SCHEMA, ResultsError


def summary(folders: list[Path]) -> str:
    """Markdown: verdicts by scenario and set, then every number that the paper has one for. Raises ResultsError."""
    sets = [(folder.name, _set(folder)) for folder in folders]
    names = sorted({name for _, one in sets for name in one}, key=_order)
    lines = ["| scenario | " + " | ".join(name for name, _ in sets) + " | what failed |"]
    lines += ["| --- |" + " --- |" * (len(sets) + 1)]
    for name in names:
        cells, failed = [], []
        for _, one in sets:
            if name not in one:
                cells.append("not run")
                continue
            verdicts = one[name]["verdicts"]
            good = sum(verdict["passed"] for verdict in verdicts)
            overload = any(run["load"]["overloaded"] for run in one[name]["runs"])
            cells.append(
                f"{good}/{len(verdicts)}"
                + ("" if one[name]["complete"] else " (cut short)")
                + (" *" if overload else "")
            )
            failed += [f"{v['rule']}: {v['seen']}" for v in verdicts if not v["passed"]]
        title = next(one[name]["title"] for _, one in sets if name in one)
        lines.append(f"| `{name}` {title} | {' | '.join(cells)} | {'; '.join(dict.fromkeys(failed)) or '–'} |")
    return "\n".join([*lines, "", *_numbers(sets, names)]) + "\n"


def _set(folder: Path) -> dict[str, Any]:
    """Manifests of one set by scenario."""
    found = {}
    for path in sorted(folder.glob("*/manifest.json")):
        try:
            manifest = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: {error}") from None
        if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
            raise ResultsError(f"{path} is not of schema {SCHEMA}")
        found[str(manifest["scenario"])] = manifest
    if not found:
        raise ResultsError(f"no results in {folder}: give a folder that holds the folders `mrc run --out` made")
    return found


def _numbers(sets: list[tuple[str, dict[str, Any]]], names: list[str]) -> list[str]:
    """Rules with a number of the paper, and what each set has for it."""
    lines = [
        "| what | paper | " + " | ".join(name for name, _ in sets) + " |",
        "| --- | ---: |" + " ---: |" * len(sets),
    ]
    for name in names:
        rules: dict[tuple[str, str], dict[int, Any]] = {}
        papers: dict[tuple[str, str], float] = {}
        for number, (_, one) in enumerate(sets):
            for verdict in one.get(name, {}).get("verdicts", []):
                if verdict.get("paper") is not None and verdict.get("value") is not None:
                    key = (verdict["rule"], re.sub(r" ?#\d+$", "", verdict["run"]))
                    rules.setdefault(key, {})[number] = verdict["value"]
                    papers[key] = verdict["paper"]
        for key, values in rules.items():
            cells = [f"{values[n]:.3f}" if n in values else "–" for n in range(len(sets))]
            run = f" ({key[1]})" if key[1] != "run" else ""
            lines.append(f"| `{name}` {key[0]}{run} | {papers[key]:.3g} | {' | '.join(cells)} |")
    return lines


def _order(name: str) -> tuple[int, int, str]:
    digits = re.match(r"e(\d+)", name)
    return (0, int(digits[1]), name) if digits else (1, 0, name)
