"""Runs of a study, by any executor, until every point has enough seeds; stored as in results.py.

report = carry_out_study(plan, listener, PreparedStudy.create(plan, folder), crew, costs)

Seeds are handed in up to each point's next check, no run that might not be needed. Of a run, only its metrics stay in
memory. DIR/study.yaml is a copy of the study file; DIR/manifest.json has the points and intervals under `study`,
renewed during the study; DIR/study.csv is the table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.executors.crew import Crew, NewsQueue, RunLost, RunProgress
from mrc_testbed.experiments.language.topology import topology_files
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import Results, refusal
from mrc_testbed.experiments.run_store import StoredRun
from mrc_testbed.experiments.runner import LostRuns
from mrc_testbed.experiments.study.plan import StudyPlan
from mrc_testbed.experiments.study.stopping import PointProgress, SeedValues
from mrc_testbed.experiments.study.tables import as_csv
from mrc_testbed.files.whole_files import write_whole

STUDY_FILE, SCENARIO_FILE, TABLE_FILE = "study.yaml", "scenario.yaml", "study.csv"
SCHEMA = "mrc-study-results/1"
RENEW_EVERY_S = 2.0
"""Wall time between two renewals of the folder's summary of a running study."""


class StudyListener(Protocol):
    """Listener of a study's progress."""

    def on_start(self, points: list[PointProgress]) -> None: ...

    def on_progress(self, run: RunPlan, share: float, now: float) -> None: ...

    def on_run_end(self, run: RunPlan) -> None: ...

    def on_point_decided(self, point: PointProgress) -> None: ...


@dataclass(slots=True)
class PreparedStudy:
    """The folder of a study before its runs start, with the values of its complete runs."""

    results: Results
    values: dict[str, SeedValues] = field(default_factory=dict)
    """Run name -> metrics of complete runs; every metric of a failed run is None."""
    damaged_runs: list[str] = field(default_factory=list)

    @classmethod
    def create(cls, plan: StudyPlan, folder: Path) -> PreparedStudy:
        """Create a new folder. Raises ResultsError."""
        study, names = plan.study, [run.name for run in plan.runs]
        command = f"mrc study {plan.path}"
        results = Results.create(
            folder, plan.document, study.title, "virtual", study.seeds.first, names, command, None, study.scale
        )
        results.manifest["study"] = summarize_study(plan, [PointProgress(plan, point) for point in plan.points])
        try:
            results.add_file(STUDY_FILE, plan.path.read_bytes())
            results.write()
        except OSError as error:
            results.stop()
            raise refusal(folder, error) from None
        return cls(results)

    @classmethod
    def resume(cls, plan: StudyPlan, folder: Path) -> PreparedStudy:
        """Take over the complete runs of a folder. Raises ResultsError, also for a folder without a study."""
        values: dict[str, SeedValues] = {}

        def keep(stored_run: StoredRun) -> None:
            values[stored_run.outcome.name] = _seed_values(plan, stored_run.outcome)

        files = {STUDY_FILE: plan.path.read_bytes(), SCENARIO_FILE: plan.document.path.read_bytes()}
        files |= topology_files(plan.document)
        names, study = [run.name for run in plan.runs], plan.study
        results, damaged_runs = Results.reopen(folder, files, "virtual", study.seeds.first, names, study.scale, keep)
        return cls(results, values, damaged_runs)


@dataclass(slots=True)
class StudyReport:
    """Result of a study."""

    plan: StudyPlan
    points: list[PointProgress]
    folder: Path
    digest: str | None
    """Digest of the runs (Results.digest); None: the study was stopped."""

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "digest": self.digest} | summarize_study(self.plan, self.points)


def summarize_study(plan: StudyPlan, points: list[PointProgress]) -> dict[str, Any]:
    """Return a study's points and intervals as JSON data, schema mrc-study-results/1."""
    return {
        "schema": SCHEMA,
        "study": plan.name,
        "title": plan.study.title,
        "scenario": plan.document.name,
        "runs": sum(point.seeds_done for point in points),
        "complete": all(point.is_decided for point in points),
        "points": [_point(plan, point) for point in points],
    }


def _point(plan: StudyPlan, point: PointProgress) -> dict[str, Any]:
    metrics = {}
    for goal in plan.goals:
        interval = point.interval(goal)
        metrics[goal.spec.metric] = {
            "unit": goal.unit,
            "of": goal.spec.of,
            "method": goal.spec.method,
            "confidence": goal.spec.confidence,
            "narrow": point.is_within_bound(goal),
            "values": 0 if interval is None else interval.count,
            "estimate": None if interval is None else interval.estimate,
            "low": None if interval is None else interval.low,
            "high": None if interval is None else interval.high,
            "half_width": None if interval is None else interval.half_width,
        }
    return {
        "name": point.point.name,
        "label": point.point.label,
        "seeds": point.seeds_done,
        "failed": point.causes,
        "decided": point.is_decided,
        "metrics": metrics,
    }


def carry_out_study(
    plan: StudyPlan,
    listener: StudyListener,
    prepared_study: PreparedStudy,
    crew: Crew | None,
    costs: Mapping[str, float],
) -> StudyReport:
    """Make the missing runs. Raises ResultsError, errors of a run, and UsageError for lost runs.

    `crew`: None when no run is missing; `costs`: estimated seconds of the first seed's runs, by name.
    """
    results = prepared_study.results
    points = [PointProgress(plan, point) for point in plan.points]
    for number, run in enumerate(plan.runs):
        if (values := prepared_study.values.get(run.name)) is not None:
            points[number % len(points)].take(number // len(points), values)
    study_run = _StudyRun(plan, points, results, listener, crew, costs)
    try:
        study_run.carry_out()
        _finish(plan, points, results)
    except BaseException:  # Ctrl-C and SIGTERM too
        with suppress(OSError):
            _renew(plan, points, results)
        results.stop()
        raise
    return StudyReport(plan, points, results.folder, results.manifest["digest"])


def missing_runs(plan: StudyPlan, prepared_study: PreparedStudy) -> list[RunPlan]:
    """Return the runs that are certain to be needed and not complete yet."""
    points = [PointProgress(plan, point) for point in plan.points]
    for number, run in enumerate(plan.runs):
        if (values := prepared_study.values.get(run.name)) is not None:
            points[number % len(points)].take(number // len(points), values)
    for point in points:
        point.decide()
    return [plan.runs[plan.number(seed, point.point.number)] for point in points for seed in point.missing_seeds()]


class _StudyRun:
    """State of a running study."""

    def __init__(
        self,
        plan: StudyPlan,
        points: list[PointProgress],
        results: Results,
        listener: StudyListener,
        crew: Crew | None,
        costs: Mapping[str, float],
    ) -> None:
        self._plan, self._points, self._results, self._listener, self._crew = plan, points, results, listener, crew
        self._costs = (
            {run.name: costs[plan.runs[number % len(points)].name] for number, run in enumerate(plan.runs)}
            if costs
            else {}
        )
        self._news: NewsQueue = SimpleQueue()
        self._requested_runs: set[int] = set()
        """Numbers of runs that were needed so far."""
        self._waiting: list[int] = []
        """Numbers of requested runs not handed in yet: together they have to be worth a scheduler's task."""
        self._out = 0
        """Number of runs that are handed in and not back."""
        self._lost = LostRuns()
        self._renewed_at = 0.0

    def carry_out(self) -> None:
        """Carry out runs until every point is decided. Raises UsageError at the end for lost runs."""
        self._listener.on_start(self._points)
        self._advance(self._points)
        while self._out:
            number, news = self._news.get()
            run = self._plan.runs[number]
            if isinstance(news, Exception):
                raise news
            if isinstance(news, RunProgress):
                self._listener.on_progress(run, news.share, news.now)
                continue
            self._out -= 1
            # A lost run leaves its point undecided: the other points go on, and `refuse` below names it.
            if isinstance(news, RunLost):
                self._lost.add(run, news)
                self._hand_in()
                continue
            outcome, load = news
            self._results.add(outcome, load)
            seed, point_number = divmod(number, len(self._points))
            self._points[point_number].take(seed, _seed_values(self._plan, outcome))
            self._listener.on_run_end(run)
            self._advance([self._points[point_number]])
        self._lost.refuse()

    def _advance(self, points: list[PointProgress]) -> None:
        """Decide these points, and hand in the runs that they still need."""
        numbers: list[int] = []
        for point in points:
            if point.decide():
                self._listener.on_point_decided(point)
            numbers += [self._plan.number(seed, point.point.number) for seed in point.missing_seeds()]
        new_numbers = [number for number in numbers if number not in self._requested_runs]
        self._requested_runs.update(new_numbers)
        self._waiting = sorted(self._waiting + new_numbers)
        self._hand_in()
        self._renew()

    def _hand_in(self) -> None:
        """Hand in the waiting runs, if they are worth a task or no other run is out."""
        if not self._waiting:
            return
        if self._crew is None:
            raise ValueError("runs are missing, and no crew was given to make them")
        runs = [self._plan.runs[number] for number in self._waiting]
        if self._out and sum(self._costs.get(run.name, self._crew.least_s) for run in runs) < self._crew.least_s:
            return
        numbers, self._waiting = self._waiting, []
        self._out += len(runs)
        self._crew.hand_in(runs, self._costs or None, store=self._results.store, news_queue=self._news, numbers=numbers)

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_at >= RENEW_EVERY_S:
            _renew(self._plan, self._points, self._results)
            self._renewed_at = time.monotonic()


def _seed_values(plan: StudyPlan, outcome: Outcome) -> SeedValues:
    """Return the study's metrics of a run; for a failed run no metrics, and the cause."""
    names = [goal.spec.metric for goal in plan.goals]
    return SeedValues({} if outcome.cause else {name: outcome.metrics.get(name) for name in names}, outcome.cause)


def _renew(plan: StudyPlan, points: list[PointProgress], results: Results) -> None:
    """Write the summary and table of the study so far. Raises OSError."""
    summary = summarize_study(plan, points)
    results.manifest["study"] = summary
    results.write()
    write_whole(results.folder / TABLE_FILE, as_csv(summary).encode())


def _finish(plan: StudyPlan, points: list[PointProgress], results: Results) -> None:
    """Finish the folder: keep the runs that the study needs, and write summary and table."""
    needed_runs = {
        plan.runs[plan.number(seed, point.point.number)].name for point in points for seed in range(point.seeds_needed)
    }
    results.keep_only(needed_runs)
    summary = summarize_study(plan, points)
    results.manifest["study"] = summary
    try:
        write_whole(results.folder / TABLE_FILE, as_csv(summary).encode())
    except OSError as error:
        raise refusal(results.folder / TABLE_FILE, error, "; the runs are whole") from None
    results.finish([], [])
