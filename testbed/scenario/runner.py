"""Runs of a scenario, one after another or side by side, judged and written down. command.py is its face.

report = carry_out(document, where="virtual", out=folder, tell=Progress())
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from testbed.scenario.expand import Run, expand
from testbed.scenario.expect import Verdict, judge
from testbed.scenario.load import Document, ScenarioError
from testbed.scenario.measure import Measured
from testbed.scenario.names import check
from testbed.scenario.outcome import Outcome
from testbed.scenario.repeats import Spread, spreads
from testbed.scenario.results import LoadMeter, Results, again


class Tell(Protocol):
    """Who is told how it goes."""

    def begins(self, runs: list[Run]) -> None: ...

    def progress(self, run: Run, share: float, now: float) -> None: ...

    def ends(self, run: Run, outcome: Outcome) -> None: ...


@dataclass(slots=True)
class Report:
    """What came of a scenario."""

    scenario: str
    title: str
    runs: list[tuple[Run, Outcome]]
    verdicts: list[Verdict]
    repeats: list[Spread]
    """Median and spread of what rules and figures name; of single values without repeats."""
    folder: Path | None
    wall_s: float
    """Of all its runs together, whether side by side or not."""

    @property
    def passed(self) -> bool:
        """Every rule held in every run, and so in every repeat."""
        return all(verdict.passed for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Verdicts and metrics; series stay in the folder."""
        return {
            "scenario": self.scenario, "title": self.title, "passed": self.passed,
            "folder": str(self.folder) if self.folder else None, "wall_s": round(self.wall_s, 2),
            "runs": [
                {"name": run.name, "label": run.label, "seed": run.seed, "duration_s": outcome.duration_s,
                 "metrics": outcome.metrics, "notes": outcome.notes}
                for run, outcome in self.runs
            ],
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "repeats": [spread.to_json() for spread in self.repeats],
        }  # fmt: skip


def plan_runs(document: Document, where: str, *, seed: int | None = None, repeat: int | None = None) -> list[Run]:
    """All runs of a file, names checked. Raises ScenarioError with every problem found."""
    runs = expand(document, where, seed=seed, repeat=repeat)
    problems = []
    for run in runs:
        for problem in check(document, run.scenario):
            if problem not in problems:
                problems.append(problem)
    if problems:
        raise ScenarioError(document.path, problems)
    return runs


Begun = list["Future[tuple[Outcome, dict[str, Any]]]"]
"""Runs of a scenario that a Crew carries out, in their order: outcome, load of the machine."""


class Crew:
    """Processes for virtual runs. These need nothing of each other: any number of processes gives the same outcomes.

    All runs of a command are handed in at once, so that the last run of a scenario leaves no process idle.
    """

    def __init__(self, jobs: int) -> None:
        self._pool = ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn"))

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_why: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def hand_in(self, runs: list[Run]) -> Begun:
        """They begin in the order in which they were handed in."""
        return [self._pool.submit(_in_child, run) for run in runs]


def carry_out(
    document: Document, where: str, tell: Tell, *, out: Path | None = None, seed: int | None = None,
    repeat: int | None = None, jobs: int = 1, options: dict[str, Any] | None = None, begun: Begun | None = None
) -> Report:  # fmt: skip
    """Run, write down and judge a scenario. Raises ScenarioError, ResultsError.

    `options`: of the live back end; `begun`: its virtual runs, already in the hands of a Crew.
    """
    runs = plan_runs(document, where, seed=seed, repeat=repeat)
    first = runs[0].scenario
    results = None
    if out is not None:
        names = [run.name for run in runs]
        command = again(document.path, where, seed, repeat, options or {})
        results = Results.create(out, document, first.title, where, runs[0].seed, names, command, options)
    tell.begins(runs)
    done: dict[int, Outcome] = {}
    wall_s = 0.0
    if begun is not None:
        outcomes = _as_they_end(runs, begun, tell)
    elif where == "virtual" and jobs > 1 and len(runs) > 1:
        outcomes = _side_by_side(runs, tell, min(jobs, len(runs)))
    else:
        outcomes = _one_by_one(runs, where, tell, options or {})
    for number, outcome, load in outcomes:
        run = runs[number]
        wall_s += load["wall_s"]
        outcome.metrics = Measured(outcome, run.scenario).all()
        if load["overloaded"]:
            outcome.notes.append(f"the machine was overloaded: times are {load['times']}")
        done[number] = outcome
        if results is not None:
            results.add(outcome, load)
    pairs = [(run, done[number]) for number, run in enumerate(runs)]
    measured = [(run.name, run.label, Measured(outcome, run.scenario)) for run, outcome in pairs]
    verdicts = judge(first, measured, where)
    repeats = spreads(first, measured, verdicts)
    if results is not None:
        results.finish(verdicts, repeats)
    return Report(first.name, first.title, pairs, verdicts, repeats, out, wall_s)


def _one_by_one(
    runs: list[Run], where: str, tell: Tell, options: dict[str, Any]
) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    carry = _virtual if where == "virtual" else _live(options)
    for number, run in enumerate(runs):
        meter = LoadMeter()

        def progress(share: float, now: float, run: Run = run, meter: LoadMeter = meter) -> None:
            meter.look()
            tell.progress(run, share, now)

        outcome = carry(run, progress)
        tell.ends(run, outcome)
        yield number, outcome, meter.read(where)


def _virtual(run: Run, progress: Callable[[float, float], None]) -> Outcome:
    from testbed.scenario.virtual import run_virtual

    return run_virtual(run, progress)


def _live(options: dict[str, Any]) -> Callable[[Run, Callable[[float, float], None]], Outcome]:
    from testbed.scenario.live import run_live

    return lambda run, progress: run_live(run, progress, **options)


def _in_child(run: Run) -> tuple[Outcome, dict[str, Any]]:
    meter = LoadMeter()
    outcome = _virtual(run, lambda _share, _now: None)
    return outcome, meter.read("virtual")


def _side_by_side(runs: list[Run], tell: Tell, jobs: int) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    with Crew(jobs) as crew:
        yield from _as_they_end(runs, crew.hand_in(runs), tell)


def _as_they_end(runs: list[Run], begun: Begun, tell: Tell) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    numbers = {future: number for number, future in enumerate(begun)}
    for future in as_completed(numbers):
        number = numbers[future]
        outcome, load = future.result()
        tell.ends(runs[number], outcome)
        yield number, outcome, load
