"""A study file as points and runs, checked: mistakes are reported with their lines before any run.

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
from mrc_testbed.experiments.language.all_mistakes import with_all_mistakes
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
"""Unit of a metric -> reader of a quantity in that unit."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Largest half-width that is small enough."""

    value: float
    is_share: bool
    """Whether `value` is a share of the estimate; else it is in the metric's unit."""

    def allows(self, half_width: float, estimate: float) -> bool:
        return half_width <= (abs(estimate) if self.is_share else 1.0) * self.value


@dataclass(frozen=True, slots=True)
class MetricGoal:
    """A metric of the study, and the bound of its interval."""

    spec: StudyMetric
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
    """A checked study, with all its points and runs."""

    path: Path
    study: Study
    document: Document
    """Document of the scenario."""
    points: list[Point]
    runs: list[RunPlan]
    """All runs that may be needed: seeds outermost, then points."""
    goals: list[MetricGoal]

    @property
    def name(self) -> str:
        return self.path.stem

    def number(self, seed: int, point: int) -> int:
        """Return the index in `runs` of the seed with this number (0: the first) at a point."""
        return seed * len(self.points) + point


def plan_study(path: Path, find_scenario: Callable[[str], Path]) -> StudyPlan:
    """Read a study and its scenario. Raises ScenarioError with the path of the file with the mistake.

    `find_scenario`: returns the file of a scenario by its name; raises UsageError.
    """
    document = read(path)
    study = with_all_mistakes(document, lambda readable: parse_model(readable, readable.raw, Study))
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
    goals = _find_goals(document, study, [run.scenario for run in runs[:count]])
    _check_figures(document, study, points)
    return StudyPlan(path, study, scenario, points, [resolve(run) for run in runs], goals)


def _scenario(path: Path, study: Study, find_scenario: Callable[[str], Path]) -> Document:
    sibling_file = path.parent / study.scenario
    return read(sibling_file if sibling_file.is_file() else find_scenario(study.scenario))


def _changes(document: Document, study: Study, scenario: Document) -> Changes:
    """Return the study's changes of the scenario. Raises ScenarioError for names that the scenario lacks."""
    problems = []
    sweeps = scenario.raw.get("sweep") or {}
    keys = [key for key in KEYS if key not in NOT_VARIED]
    for section, values in (("parameters", study.parameters), ("set", study.settings)):
        for name in values:
            if "." in name or name in keys or (section == "parameters" and name in sweeps):
                continue
            known_names = [*sweeps, *keys] if section == "parameters" else keys
            text = f"no key or sweep {name!r} in the scenario ({suggestion(name, known_names)}); a path has dots"
            if section == "set" and name in sweeps:
                text = f"{name} is a sweep of the scenario: give it as a parameter with one value"
            problems.append(document.problem((section, name), text))
    variants = scenario.raw.get("variants") or {}
    for index, name in enumerate(study.variants or []):
        if name not in variants:
            has = suggestion(name, variants) if variants else "known: none"
            problems.append(document.problem(("variants", index), f"no variant {name!r} in the scenario ({has})"))
    if problems:
        raise ScenarioError(document.path, problems)
    sweep = {name: values_of(document, ("parameters", name), parameter) for name, parameter in study.parameters.items()}
    paths = frozenset(name for name in sweep if name not in sweeps)
    return Changes(dict(study.settings), sweep, paths, study.variants)


def _in_study(document: Document, study: Study, scenario: Document, error: ScenarioError) -> ScenarioError | None:
    """Return the mistakes made by the study's own values, at their lines in the study.

    None: the mistakes are the scenario's own.
    """
    names = {"sweep": ("parameters", study.parameters), "set": ("set", study.settings), "scale": ("scale", {})}
    problems = []
    for problem in error.problems:
        key = str(problem.loc[0]) if problem.loc else ""
        section, values = names.get(key, ("", {}))
        if key == "scale" and study.scale is not None and "no scale" in problem.text:
            problems.append(document.problem(("scale",), problem.text))
        elif len(problem.loc) > 1 and problem.loc[1] in values:
            match = re.match(r"makes (\S+) wrong: ", problem.text)
            location = _made_by(study, scenario, match[1].split(".")) if match else None
            problems.append(document.problem(location or (section, str(problem.loc[1])), problem.text))
    return ScenarioError(document.path, problems) if problems else None


def _check_names(document: Document, study: Study, scenario: Document, runs: list[Run], points: list[Point]) -> None:
    """Raise ScenarioError for a mistake: at the line of the study's value that made it, or the scenario's."""
    study_problems: dict[str, Problem] = {}
    scenario_problems: list[Problem] = []
    for run, point in zip(runs, points, strict=True):
        for problem in check(scenario, run.scenario):
            location = _made_by(study, scenario, [str(part) for part in problem.loc])
            if location is None:
                scenario_problems += [] if problem in scenario_problems else [problem]
                continue
            key_path = ".".join(map(str, problem.loc))
            text = f"makes {key_path} wrong: {problem.text} (at {point.name})"
            study_problems.setdefault(f"{location} {key_path} {problem.text}", document.problem(location, text))
    if study_problems:
        raise ScenarioError(document.path, list(study_problems.values()))
    if scenario_problems:
        raise ScenarioError(scenario.path, scenario_problems)


def _made_by(study: Study, scenario: Document, loc: list[str]) -> tuple[str, str] | None:
    """Return (section, name) of the study's value behind a key of the scenario; None: no such value.

    The value is at the key, above or below it, or is named in it as `$name`.
    """
    node: Any = scenario.raw
    for part in loc:
        with suppress(ValueError, IndexError):
            node = node.get(part) if isinstance(node, dict) else node[int(part)] if isinstance(node, list) else node
    for name in study.parameters:
        if isinstance(node, str) and f"${name}" in node:
            return "parameters", name
    for section, values in (("parameters", study.parameters), ("set", study.settings)):
        for name in reversed(list(values)):
            path = name.split(".")
            shorter = min(len(path), len(loc))
            if path[:shorter] == loc[:shorter]:
                return section, name
    return None


def _find_goals(document: Document, study: Study, scenarios: list[Scenario]) -> list[MetricGoal]:
    """Return the study's metrics, which every point has, with their bounds. Raises ScenarioError."""
    out, problems = [], []
    for index, spec in enumerate(study.metrics):
        metric: Metric | None = None
        for scenario in scenarios:
            works, ports = work_names(scenario), scenario.measure.queues
            metric = find(spec.metric, works, ports)
            if metric is None:
                text = f"no metric {spec.metric!r} ({suggestion(spec.metric, all_names(works, ports))})"
                problems.append(document.problem(("metrics", index, "metric"), text))
                break
        if metric is None:
            continue
        # A rank is a name: neither its mean nor its interval means anything.
        if metric.unit == "rank":
            text = f"{spec.metric} is the number of a rank, without a mean"
            problems.append(document.problem(("metrics", index, "metric"), text))
            continue
        try:
            out.append(MetricGoal(spec, metric.unit, _bound(spec.within, metric.unit)))
        except ValueError as error:
            problems.append(document.problem(("metrics", index, "within"), str(error)))
    names = [spec.metric for spec in study.metrics]
    for index, name in enumerate(names):
        if name in names[:index]:
            problems.append(document.problem(("metrics", index, "metric"), f"duplicate metric {name}"))
    if problems:
        raise ScenarioError(document.path, problems)
    return out


def _bound(limit: Any, unit: str) -> Bound | None:
    """Return the bound of a metric's `within`; None for None. Raises ValueError."""
    if limit is None:
        return None
    try:
        if isinstance(limit, str) and limit.strip().endswith("%"):
            bound = Bound(units.share(limit), is_share=True)
        else:
            bound = Bound(float(READERS.get(unit, float)(limit)), is_share=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error}; or a share of the estimate, such as 2%") from None
    if not bound.value > 0:
        raise ValueError(f"{limit}: must be above 0")
    return bound


def _check_figures(document: Document, study: Study, points: list[Point]) -> None:
    """Raise ScenarioError for a figure of an unknown metric or parameter."""
    problems = []
    names, labels = [metric.metric for metric in study.metrics], list(points[0].label)
    for index, figure in enumerate(study.figures or []):
        if figure.metric not in names:
            text = f"no metric {figure.metric!r} among the study's ({suggestion(figure.metric, names)})"
            problems.append(document.problem(("figures", index, "metric"), text))
        if figure.x not in labels:
            alternatives = suggestion(figure.x, labels) if labels else "the study has none"
            problems.append(document.problem(("figures", index, "x"), f"no parameter {figure.x!r} ({alternatives})"))
    if problems:
        raise ScenarioError(document.path, problems)
