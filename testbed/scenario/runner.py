"""Runs of a scenario, one after another or side by side, judged and written down. command.py is its face.

report = carry_out(document, where="virtual", out=folder, tell=Progress())
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
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

    def ends(self, run: Run, outcome: Outcome, wall_s: float) -> None: ...


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


def carry_out(
    document: Document, where: str, tell: Tell, *, out: Path | None = None, seed: int | None = None,
    repeat: int | None = None, jobs: int = 1, options: dict[str, Any] | None = None
) -> Report:  # fmt: skip
    """Run, write down and judge a scenario. `options`: of the live back end. Raises ScenarioError, ResultsError."""
    began = time.monotonic()
    runs = plan_runs(document, where, seed=seed, repeat=repeat)
    first = runs[0].scenario
    results = None
    if out is not None:
        names = [run.name for run in runs]
        command = again(document.path, where, seed, repeat, options or {})
        results = Results.create(out, document, first.title, where, runs[0].seed, names, command, options)
    tell.begins(runs)
    done: dict[int, Outcome] = {}
    for number, outcome, load in _outcomes(runs, where, tell, jobs, options or {}):
        run = runs[number]
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
    return Report(first.name, first.title, pairs, verdicts, repeats, out, time.monotonic() - began)


def _outcomes(
    runs: list[Run], where: str, tell: Tell, jobs: int, options: dict[str, Any]
) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    if where == "virtual" and jobs > 1 and len(runs) > 1:
        yield from _side_by_side(runs, tell, jobs)
        return
    carry = _virtual if where == "virtual" else _live(options)
    for number, run in enumerate(runs):
        meter, began = LoadMeter(), time.monotonic()

        def progress(share: float, now: float, run: Run = run, meter: LoadMeter = meter) -> None:
            meter.look()
            tell.progress(run, share, now)

        outcome = carry(run, progress)
        tell.ends(run, outcome, time.monotonic() - began)
        yield number, outcome, meter.read(where)


def _virtual(run: Run, progress: Callable[[float, float], None]) -> Outcome:
    from testbed.scenario.virtual import run_virtual

    return run_virtual(run, progress)


def _live(options: dict[str, Any]) -> Callable[[Run, Callable[[float, float], None]], Outcome]:
    from testbed.scenario.live import run_live

    return lambda run, progress: run_live(run, progress, **options)


def _in_child(run: Run) -> tuple[Outcome, float, dict[str, Any]]:
    meter, began = LoadMeter(), time.monotonic()
    outcome = _virtual(run, lambda _share, _now: None)
    return outcome, time.monotonic() - began, meter.read("virtual")


def _side_by_side(runs: list[Run], tell: Tell, jobs: int) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    """Virtual runs need nothing of each other: any number of processes gives the same outcomes."""
    pool = ProcessPoolExecutor(max_workers=min(jobs, len(runs)), mp_context=get_context("spawn"))
    try:
        waiting = {pool.submit(_in_child, run): number for number, run in enumerate(runs)}
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                number = waiting.pop(future)
                outcome, wall_s, load = future.result()
                tell.ends(runs[number], outcome, wall_s)
                yield number, outcome, load
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
