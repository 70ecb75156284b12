"""The runs of a study, by any executor, until every point has enough seeds; written down as results are (results.py).

report = carry_out_study(plan, tell, PreparedStudy.create(plan, folder), crew, costs)

Handed in are the seeds up to each point's next look, no run that might not be needed. What is kept of a run in memory
is its metrics. DIR/study.yaml is the file as it was; DIR/manifest.json has the points and intervals under `study`,
renewed while the study goes on; DIR/study.csv is the table.
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
"""Wall time between two renewals of what the folder says of a study that goes on."""


class StudyTell(Protocol):
    """Listener of a study's progress."""

    def begins(self, points: list[PointProgress]) -> None: ...

    def progress(self, run: RunPlan, share: float, now: float) -> None: ...

    def ends(self, run: RunPlan) -> None: ...

    def decided(self, point: PointProgress) -> None: ...


@dataclass(slots=True)
class PreparedStudy:
    """The folder of a study before its runs begin, and what is in it already."""

    results: Results
    values: dict[str, SeedValues] = field(default_factory=dict)
    """Metrics of the runs that are whole, by name; of one that failed None of each."""
    damaged: list[str] = field(default_factory=list)

    @classmethod
    def create(cls, plan: StudyPlan, folder: Path) -> PreparedStudy:
        """A new folder. Raises ResultsError."""
        study, names = plan.study, [run.name for run in plan.runs]
        command = f"mrc study {plan.path}"
        results = Results.create(
            folder, plan.document, study.title, "virtual", study.seeds.first, names, command, None, study.scale
        )
        results.manifest["study"] = described(plan, [PointProgress(plan, point) for point in plan.points])
        try:
            results.add_file(STUDY_FILE, plan.path.read_bytes())
            results.write()
        except OSError as error:
            results.stop()
            raise refusal(folder, error) from None
        return cls(results)

    @classmethod
    def resume(cls, plan: StudyPlan, folder: Path) -> PreparedStudy:
        """Take over what is whole. Raises ResultsError, also when the folder has no study."""
        values: dict[str, SeedValues] = {}

        def keep(stored: StoredRun) -> None:
            values[stored.outcome.name] = _asked(plan, stored.outcome)

        files = {STUDY_FILE: plan.path.read_bytes(), SCENARIO_FILE: plan.document.path.read_bytes()}
        names, study = [run.name for run in plan.runs], plan.study
        results, damaged = Results.reopen(folder, files, "virtual", study.seeds.first, names, study.scale, keep)
        return cls(results, values, damaged)


@dataclass(slots=True)
class StudyReport:
    """What came of a study."""

    plan: StudyPlan
    points: list[PointProgress]
    folder: Path
    digest: str | None
    """Of its runs (Results.digest); None: it was stopped."""

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "digest": self.digest} | described(self.plan, self.points)


def described(plan: StudyPlan, points: list[PointProgress]) -> dict[str, Any]:
    """A study's points and intervals as JSON, schema mrc-study-results/1."""
    return {
        "schema": SCHEMA,
        "study": plan.name,
        "title": plan.study.title,
        "scenario": plan.document.name,
        "runs": sum(point.there for point in points),
        "complete": all(point.is_decided for point in points),
        "points": [_point(plan, point) for point in points],
    }


def _point(plan: StudyPlan, point: PointProgress) -> dict[str, Any]:
    metrics = {}
    for wanted in plan.wanted:
        interval = point.interval(wanted)
        metrics[wanted.asked.metric] = {
            "unit": wanted.unit,
            "of": wanted.asked.of,
            "method": wanted.asked.method,
            "confidence": wanted.asked.confidence,
            "narrow": point.within(wanted),
            "values": 0 if interval is None else interval.count,
            "estimate": None if interval is None else interval.estimate,
            "low": None if interval is None else interval.low,
            "high": None if interval is None else interval.high,
            "half_width": None if interval is None else interval.half_width,
        }
    return {
        "name": point.point.name,
        "label": point.point.label,
        "seeds": point.there,
        "failed": point.causes,
        "decided": point.is_decided,
        "metrics": metrics,
    }


def carry_out_study(
    plan: StudyPlan, tell: StudyTell, prepared: PreparedStudy, crew: Crew | None, costs: Mapping[str, float]
) -> StudyReport:
    """Make what is missing. Raises ResultsError, what a run raises, and UsageError for runs that were lost.

    `crew`: None when nothing is missing; `costs`: estimated seconds of the first seed's runs, by name.
    """
    results = prepared.results
    points = [PointProgress(plan, point) for point in plan.points]
    for number, run in enumerate(plan.runs):
        if (values := prepared.values.get(run.name)) is not None:
            points[number % len(points)].take(number // len(points), values)
    work = _Work(plan, points, results, tell, crew, costs)
    try:
        work.carry_out()
        _finish(plan, points, results)
    except BaseException:  # Ctrl-C and SIGTERM too
        with suppress(OSError):
            _renew(plan, points, results)
        results.stop()
        raise
    return StudyReport(plan, points, results.folder, results.manifest["digest"])


def missing(plan: StudyPlan, prepared: PreparedStudy) -> list[RunPlan]:
    """Runs that are to be made for certain."""
    points = [PointProgress(plan, point) for point in plan.points]
    for number, run in enumerate(plan.runs):
        if (values := prepared.values.get(run.name)) is not None:
            points[number % len(points)].take(number // len(points), values)
    for point in points:
        point.decide()
    return [plan.runs[plan.number(seed, point.point.number)] for point in points for seed in point.missing()]


class _Work:
    """What goes on while a study is carried out."""

    def __init__(
        self,
        plan: StudyPlan,
        points: list[PointProgress],
        results: Results,
        tell: StudyTell,
        crew: Crew | None,
        costs: Mapping[str, float],
    ) -> None:
        self._plan, self._points, self._results, self._tell, self._crew = plan, points, results, tell, crew
        self._costs = (
            {run.name: costs[plan.runs[number % len(points)].name] for number, run in enumerate(plan.runs)}
            if costs
            else {}
        )
        self._begun: NewsQueue = SimpleQueue()
        self._asked: set[int] = set()
        """Runs that were found to be needed."""
        self._waiting: list[int] = []
        """Those of them that wait for company: with a scheduler they are to be worth a task together."""
        self._out = 0
        """Runs in the hands of the crew."""
        self._lost = LostRuns()
        self._renewed_at = 0.0

    def carry_out(self) -> None:
        """Until every point is decided. Raises UsageError in the end for runs that were lost."""
        self._tell.begins(self._points)
        self._advance(self._points)
        while self._out:
            number, news = self._begun.get()
            run = self._plan.runs[number]
            if isinstance(news, Exception):
                raise news
            if isinstance(news, RunProgress):
                self._tell.progress(run, news.share, news.now)
                continue
            self._out -= 1
            if isinstance(news, RunLost):
                self._lost.add(run, news)
                self._hand_in()
                continue
            outcome, load = news
            self._results.add(outcome, load)
            seed, place = divmod(number, len(self._points))
            self._points[place].take(seed, _asked(self._plan, outcome))
            self._tell.ends(run)
            self._advance([self._points[place]])
        self._lost.refuse()

    def _advance(self, points: list[PointProgress]) -> None:
        """Decide these points, and hand in what they need then."""
        todo: list[int] = []
        for point in points:
            if point.decide():
                self._tell.decided(point)
            todo += [self._plan.number(seed, point.point.number) for seed in point.missing()]
        fresh = [number for number in todo if number not in self._asked]
        self._asked.update(fresh)
        self._waiting = sorted(self._waiting + fresh)
        self._hand_in()
        self._renew()

    def _hand_in(self) -> None:
        """What waits, when it is worth a task or nothing else goes on."""
        if not self._waiting:
            return
        if self._crew is None:
            raise ValueError("there are runs to make and nobody to make them")
        runs = [self._plan.runs[number] for number in self._waiting]
        if self._out and sum(self._costs.get(run.name, self._crew.least_s) for run in runs) < self._crew.least_s:
            return
        numbers, self._waiting = self._waiting, []
        self._out += len(runs)
        self._crew.hand_in(
            runs, self._costs or None, store=self._results.store, news_queue=self._begun, numbers=numbers
        )

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_at >= RENEW_EVERY_S:
            _renew(self._plan, self._points, self._results)
            self._renewed_at = time.monotonic()


def _asked(plan: StudyPlan, outcome: Outcome) -> SeedValues:
    """Metrics that the study is about; of a run that failed none, and its cause."""
    names = [wanted.asked.metric for wanted in plan.wanted]
    return SeedValues({} if outcome.cause else {name: outcome.metrics.get(name) for name in names}, outcome.cause)


def _renew(plan: StudyPlan, points: list[PointProgress], results: Results) -> None:
    """What the folder says so far. Raises OSError."""
    said = described(plan, points)
    results.manifest["study"] = said
    results.write()
    write_whole(results.folder / TABLE_FILE, as_csv(said).encode())


def _finish(plan: StudyPlan, points: list[PointProgress], results: Results) -> None:
    """The folder as it is when all is done: runs that the study needs, and no others."""
    needed = {plan.runs[plan.number(seed, point.point.number)].name for point in points for seed in range(point.asked)}
    results.keep_only(needed)
    said = described(plan, points)
    results.manifest["study"] = said
    try:
        write_whole(results.folder / TABLE_FILE, as_csv(said).encode())
    except OSError as error:
        raise refusal(results.folder / TABLE_FILE, error, "; the runs are whole") from None
    results.finish([], [])
