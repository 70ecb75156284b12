"""A study file as points and runs, checked: whatever is wrong is told with its line before the first run.

plan = plan_study(Path("scenarios/studies/loss.yaml"), find)
plan.points[0].label             # {"variant": "mrc", "loss": "1%"}
plan.run(seed_number, point)     # Run
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.language.expand import Changes, Run, expand, label_parts, values_of
from mrc_testbed.experiments.language.metric_names import Metric, all_names, find
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.language.yaml_loader import Document, Problem, ScenarioError, parse_model, read
from mrc_testbed.experiments.resolve.run_plan import RunPlan, resolve
from mrc_testbed.experiments.resolve.validate import check, work_names
from mrc_testbed.experiments.study.model import Study, StudyMetric
from mrc_testbed.faults.terms import suggestion

KEYS = Scenario.keys()
NOT_VARIED = ("schema", "name", "title", "variants", "sweep", "expect", "figures", "paper", "repeat", "seed")
"""Keys of a scenario that change no run."""
RUNS_MAX = 100_000
"""Runs of a study at most, all seeds of all points."""
READERS = {"s": units.seconds, "bit/s": units.rate, "bytes": units.size}
"""By a metric's unit, what reads a quantity of it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Half-width that is small enough."""

    value: float
    is_share: bool
    """Of the estimate."""

    def allows(self, half_width: float, estimate: float) -> bool:
        return half_width <= (abs(estimate) if self.is_share else 1.0) * self.value


@dataclass(frozen=True, slots=True)
class Wanted:
    """A metric of the study."""

    asked: StudyMetric
    unit: str
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of variant and parameters."""

    number: int
    label: dict[str, Any]

    @property
    def name(self) -> str:
        return " ".join(label_parts(self.label)) or "all"


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study, ready to be carried out."""

    path: Path
    study: Study
    document: Document
    """The scenario's."""
    points: list[Point]
    runs: list[RunPlan]
    """All that may be needed: seeds outermost, then points."""
    wanted: list[Wanted]

    @property
    def name(self) -> str:
        return self.path.stem

    def number(self, seed: int, point: int) -> int:
        """Place in `runs` of the seed with this number (0: the first) at a point."""
        return seed * len(self.points) + point


def plan_study(path: Path, find_scenario: Callable[[str], Path]) -> StudyPlan:
    """Read a study and its scenario. Raises ScenarioError, whose path is that of the file with the mistake.

    `find_scenario`: file of a scenario that is given by its name; raises UsageError.
    """
    document = read(path)
    study = parse_model(document, document.raw, Study)
    scenario = _scenario(path, study, find_scenario)
    changes = _changes(document, study, scenario)
    try:
        runs = expand(
            scenario, "virtual", seed=study.seeds.first, repeat=study.seeds.max, scale=study.scale, changes=changes
        )
    except ScenarioError as error:
        raise _in_study(document, study, scenario, error) or error from None
    count = len(runs) // study.seeds.max
    if len(runs) > RUNS_MAX:
        text = f"{count} points with up to {study.seeds.max} seeds are {len(runs):,} runs: at most {RUNS_MAX:,}"
        raise ScenarioError(path, [document.problem(("seeds",), text)])
    points = [Point(number, run.label) for number, run in enumerate(runs[:count])]
    _check_names(document, study, scenario, runs[:count], points)
    wanted = _wanted(document, study, [run.scenario for run in runs[:count]])
    _check_figures(document, study, points)
    return StudyPlan(path, study, scenario, points, [resolve(run) for run in runs], wanted)


def _scenario(path: Path, study: Study, find_scenario: Callable[[str], Path]) -> Document:
    beside = path.parent / study.scenario
    return read(beside if beside.is_file() else find_scenario(study.scenario))


def _changes(document: Document, study: Study, scenario: Document) -> Changes:
    """What the study makes different. Raises ScenarioError for names that the scenario does not have."""
    problems = []
    sweeps = scenario.raw.get("sweep") or {}
    keys = [key for key in KEYS if key not in NOT_VARIED]
    for where, given in (("parameters", study.parameters), ("set", study.settings)):
        for name in given:
            if "." in name or name in keys or (where == "parameters" and name in sweeps):
                continue
            known = [*sweeps, *keys] if where == "parameters" else keys
            text = f"no key or sweep {name!r} in the scenario ({suggestion(name, known)}); a path has dots"
            if where == "set" and name in sweeps:
                text = f"{name} is a sweep of the scenario: give it as a parameter with one value"
            problems.append(document.problem((where, name), text))
    variants = scenario.raw.get("variants") or {}
    for at, name in enumerate(study.variants or []):
        if name not in variants:
            has = suggestion(name, variants) if variants else "it has none"
            problems.append(document.problem(("variants", at), f"no variant {name!r} in the scenario ({has})"))
    if problems:
        raise ScenarioError(document.path, problems)
    sweep = {name: values_of(document, ("parameters", name), parameter) for name, parameter in study.parameters.items()}
    paths = frozenset(name for name in sweep if name not in sweeps)
    return Changes(dict(study.settings), sweep, paths, study.variants)


def _in_study(document: Document, study: Study, scenario: Document, error: ScenarioError) -> ScenarioError | None:
    """Mistakes that the study's own values make, at their lines in the study; None: the scenario has them by itself."""
    names = {"sweep": ("parameters", study.parameters), "set": ("set", study.settings), "scale": ("scale", {})}
    found = []
    for problem in error.problems:
        key = str(problem.loc[0]) if problem.loc else ""
        where, given = names.get(key, ("", {}))
        if key == "scale" and study.scale is not None and "no scale" in problem.text:
            found.append(document.problem(("scale",), problem.text))
        elif len(problem.loc) > 1 and problem.loc[1] in given:
            wrong = re.match(r"makes (\S+) wrong: ", problem.text)
            place = _made_by(study, scenario, wrong[1].split(".")) if wrong else None
            found.append(document.problem(place or (where, str(problem.loc[1])), problem.text))
    return ScenarioError(document.path, found) if found else None


def _check_names(document: Document, study: Study, scenario: Document, runs: list[Run], points: list[Point]) -> None:
    """Raises ScenarioError: at the study's line for what one of its values made, else at that of the scenario."""
    own: dict[str, Problem] = {}
    others: list[Problem] = []
    for run, point in zip(runs, points, strict=True):
        for problem in check(scenario, run.scenario):
            place = _made_by(study, scenario, [str(part) for part in problem.loc])
            if place is None:
                others += [] if problem in others else [problem]
                continue
            where = ".".join(map(str, problem.loc))
            text = f"makes {where} wrong: {problem.text} (at {point.name})"
            own.setdefault(f"{place} {where} {problem.text}", document.problem(place, text))
    if own:
        raise ScenarioError(document.path, list(own.values()))
    if others:
        raise ScenarioError(scenario.path, others)


def _made_by(study: Study, scenario: Document, loc: list[str]) -> tuple[str, str] | None:
    """The value of the study that is at a place of the scenario: there, above it, below it, or as `$name` in it."""
    node: Any = scenario.raw
    for part in loc:
        with suppress(ValueError, IndexError):
            node = node.get(part) if isinstance(node, dict) else node[int(part)] if isinstance(node, list) else node
    for name in study.parameters:
        if isinstance(node, str) and f"${name}" in node:
            return "parameters", name
    for where, given in (("parameters", study.parameters), ("set", study.settings)):
        for name in reversed(list(given)):
            path = name.split(".")
            shorter = min(len(path), len(loc))
            if path[:shorter] == loc[:shorter]:
                return where, name
    return None


def _wanted(document: Document, study: Study, scenarios: list[Scenario]) -> list[Wanted]:
    """Metrics that every point has, and their bounds. Raises ScenarioError."""
    out, problems = [], []
    for at, asked in enumerate(study.metrics):
        metric: Metric | None = None
        for scenario in scenarios:
            works, ports = work_names(scenario), scenario.measure.queues
            metric = find(asked.metric, works, ports)
            if metric is None:
                text = f"no metric {asked.metric!r} ({suggestion(asked.metric, all_names(works, ports))})"
                problems.append(document.problem(("metrics", at, "metric"), text))
                break
        if metric is None:
            continue
        if metric.unit == "rank":
            text = f"{asked.metric} is the number of a rank: it has no mean"
            problems.append(document.problem(("metrics", at, "metric"), text))
            continue
        try:
            out.append(Wanted(asked, metric.unit, _bound(asked.within, metric.unit)))
        except ValueError as error:
            problems.append(document.problem(("metrics", at, "within"), str(error)))
    names = [asked.metric for asked in study.metrics]
    for at, name in enumerate(names):
        if name in names[:at]:
            problems.append(document.problem(("metrics", at, "metric"), f"{name} is there already"))
    if problems:
        raise ScenarioError(document.path, problems)
    return out


def _bound(within: Any, unit: str) -> Bound | None:
    """Raises ValueError."""
    if within is None:
        return None
    try:
        if isinstance(within, str) and within.strip().endswith("%"):
            bound = Bound(units.share(within), is_share=True)
        else:
            bound = Bound(float(READERS.get(unit, float)(within)), is_share=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error}; or a share of the estimate, such as 2%") from None
    if not bound.value > 0:
        raise ValueError(f"{within}: must be above 0")
    return bound


def _check_figures(document: Document, study: Study, points: list[Point]) -> None:
    """Raises ScenarioError."""
    problems = []
    names, labels = [metric.metric for metric in study.metrics], list(points[0].label)
    for at, figure in enumerate(study.figures or []):
        if figure.metric not in names:
            text = f"no metric {figure.metric!r} among the study's ({suggestion(figure.metric, names)})"
            problems.append(document.problem(("figures", at, "metric"), text))
        if figure.x not in labels:
            known = suggestion(figure.x, labels) if labels else "the study has none"
            problems.append(document.problem(("figures", at, "x"), f"no parameter {figure.x!r} ({known})"))
    if problems:
        raise ScenarioError(document.path, problems)
