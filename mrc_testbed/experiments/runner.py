"""Runs of a scenario, one after another or side by side, judged and written down. command.py is its face.

report = carry_out(plan_runs(document, "virtual"), tell, out=folder)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.failures import UNWRITTEN
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.backend.protocol import Backend
from mrc_testbed.experiments.executors.crew import Begun, RunLost, RunProgress
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner, modelled, without_unmodelled
from mrc_testbed.experiments.language.expand import environments_of, expand
from mrc_testbed.experiments.language.yaml_loader import Document, Problem, ScenarioError
from mrc_testbed.experiments.metrics.assertions import ALWAYS, ExpectationVerdict, causes, conclude, judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import Spread, spreads
from mrc_testbed.experiments.resolve.run_plan import RunPlan, resolve
from mrc_testbed.experiments.results import LoadMeter, Results, UnwrittenError, again
from mrc_testbed.experiments.run_store import StoredRun
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.topologies.lab.options import LabOptions

if TYPE_CHECKING:
    from mrc_testbed.experiments.live.live_run import LiveRunner


class Tell(Protocol):
    """Listener of a run's progress."""

    def begins(self, runs: list[RunPlan]) -> None: ...

    def progress(self, run: RunPlan, share: float, now: float) -> None: ...

    def ends(self, run: RunPlan, outcome: Outcome, /) -> None: ...

    def stops(self, kept: int, folder: Path) -> None:
        """An exception ended the scenario; `kept`: runs that stay in the folder."""


@dataclass(slots=True)
class RunReport:
    """What came of a scenario."""

    scenario: str
    title: str
    runs: list[tuple[RunPlan, Outcome]]
    verdicts: list[ExpectationVerdict]
    repeats: list[Spread]
    """Median and spread of what rules and figures name; of single values without repeats."""
    folder: Path | None
    wall_s: float
    """Of all its runs together, whether side by side or not."""
    overloaded: bool = False
    """The machine was, in one of the runs at least."""
    digest: str | None = None
    """Results.digest; None: not written down."""
    unwritten: str = ""
    """Why the disk did not take the results, and the cure."""

    @property
    def passed(self) -> bool:
        """Every rule held in every run, and so in every repeat."""
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def asked(self) -> bool:
        """A rule of the scenario was judged, beside those that every run has."""
        return any(verdict.rule not in (ALWAYS, *UNWRITTEN.values()) for verdict in self.verdicts)

    @property
    def causes(self) -> dict[str, str]:
        """Name -> first cause of each run that failed, whatever its rules look at."""
        return causes(self.verdicts)

    @property
    def inconclusive(self) -> bool:
        """It failed, by nothing but rules that the overloaded machine may have broken."""
        return self.overloaded and not self.passed and all(verdict.passed or verdict.timed for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Verdicts and metrics; series stay in the folder."""
        causes = self.causes
        return {
            "scenario": self.scenario,
            "title": self.title,
            "passed": self.passed,
            "folder": str(self.folder) if self.folder else None,
            "digest": self.digest,
            "wall_s": round(self.wall_s, 2),
            "unwritten": self.unwritten or None,
            "runs": [
                {
                    "name": run.name,
                    "label": run.label,
                    "seed": run.seed,
                    "duration_s": outcome.duration_s,
                    "finished": outcome.finished,
                    "cause": causes.get(run.name),
                    "metrics": outcome.metrics,
                    "notes": outcome.notes,
                }
                for run, outcome in self.runs
            ],
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "repeats": [spread.to_json() for spread in self.repeats],
        }


@dataclass(frozen=True, slots=True)
class Planned:
    """All runs of a file, ready to be carried out."""

    document: Document
    where: str
    """"virtual", "fluid" or "live"."""
    runs: list[RunPlan]
    seed: int | None
    """As requested; None: the file's. So is `repeat`."""
    repeat: int | None
    target: str = "embedded"
    """Switches of live runs."""
    scale: str | None = None
    """Of the file's."""


def plan_runs(
    document: Document,
    where: str,
    *,
    target: str = "embedded",
    seed: int | None = None,
    repeat: int | None = None,
    scale: str | None = None,
) -> Planned:
    """Expand a file and resolve its runs. Raises ScenarioError with every problem found."""
    runs = expand(document, where, target=target, seed=seed, repeat=repeat, scale=scale)
    plans: list[RunPlan] = []
    problems: dict[Problem, None] = {}
    for run in runs[: len(runs) // (runs[-1].repeat + 1)]:
        try:
            plans.append(resolve(run, document, outlined=where == "fluid"))
        except ScenarioError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ScenarioError(document.path, list(problems))
    # Repeats differ in their seeds alone.
    plans = [replace(plan, repeat=run.repeat, seed=run.seed) for run, plan in zip(runs, cycle(plans), strict=False)]
    return Planned(document, where, plans, seed, repeat, target, scale)


@dataclass(slots=True)
class Prepared:
    """The folder of a scenario's results before its runs begin, and what is in it already."""

    results: Results
    done: dict[int, Outcome] = field(default_factory=dict)
    """Runs that need not be made, by number."""
    damaged: list[str] = field(default_factory=list)
    """What was found of runs that are made again, in words."""

    @classmethod
    def create(cls, planned: Planned, folder: Path, lab: LabOptions | None = None) -> Prepared:
        """A new folder; `lab`: of live runs. Raises ResultsError."""
        document, first = planned.document, planned.runs[0]
        command = again(document.path, planned.where, planned.seed, planned.repeat, lab, planned.scale)
        names = [run.name for run in planned.runs]
        return cls(
            Results.create(
                folder,
                document,
                first.scenario.title,
                planned.where,
                first.seed,
                names,
                command,
                None if lab is None else lab.target,
                planned.scale,
            )
        )

    @classmethod
    def resume(cls, planned: Planned, folder: Path) -> Prepared:
        """Take over what is whole; a folder in which nothing was begun is made. Raises ResultsError."""
        if not (folder / "manifest.json").exists() and not any((folder / "runs").glob("*.json")):
            with suppress(OSError):  # killed before the manifest was there
                (folder / "runs").rmdir()
            return cls.create(planned, folder)
        numbers = {run.name: number for number, run in enumerate(planned.runs)}
        done: dict[int, Outcome] = {}

        def keep(stored: StoredRun) -> None:
            done[numbers[stored.outcome.name]] = stored.outcome

        files = {"scenario.yaml": planned.document.path.read_bytes()}
        results, damaged = Results.reopen(
            folder, files, planned.where, planned.runs[0].seed, list(numbers), planned.scale, keep
        )
        return cls(results, done, damaged)

    def missing(self, planned: Planned) -> list[RunPlan]:
        """Runs that are to be made."""
        return [run for number, run in enumerate(planned.runs) if number not in self.done]


def carry_out(
    planned: Planned,
    tell: Tell,
    *,
    out: Path | None = None,
    live: LiveRunner | None = None,
    begun: Begun | None = None,
    prepared: Prepared | None = None,
) -> RunReport:
    """Run, write down and judge a scenario. Raises ResultsError, and UsageError for runs that were lost.

    `live`: back end of live runs; `begun`: its virtual runs that are still to be made, already in the hands of a Crew;
    `prepared`: instead of `out`. An exception before any run ended leaves `out` as it was.
    """
    if prepared is None and out is not None:
        prepared = Prepared.create(planned, out, None if live is None else live.lab)
    results, done = (prepared.results, dict(prepared.done)) if prepared is not None else (None, {})
    try:
        return _judged(planned, tell, results, live, begun, done)
    except BaseException:  # Ctrl-C and SIGTERM too
        if results is not None:
            tell.stops(results.stop(), results.folder)
        raise


def _judged(
    planned: Planned,
    tell: Tell,
    results: Results | None,
    live: LiveRunner | None,
    begun: Begun | None,
    done: dict[int, Outcome],
) -> RunReport:
    """`done`: runs that there are already, by number."""
    runs, where = planned.runs, planned.where
    left_out: list[str] = []
    if where == "fluid":
        runs, left_out = without_unmodelled(runs)
    first = runs[0].scenario
    todo = [number for number in range(len(runs)) if number not in done]
    left = [runs[number] for number in todo]
    tell.begins(left)
    wall_s, overloaded, unwritten = 0.0, False, ""
    outcomes = _one_by_one(left, where, tell, live) if begun is None else _as_they_end(left, begun, tell)
    for place, outcome, load in outcomes:
        number = todo[place]
        wall_s += load["wall_s"]
        if where == "fluid":
            outcome.metrics = {key: value for key, value in outcome.metrics.items() if modelled(key)}
            if left_out:
                outcome.notes.append(f"not judged, the fluid model has no value for it: {', '.join(left_out)}")
        if load["overloaded"]:
            overloaded = True
            outcome.notes.append(f"the machine was overloaded: times are {load['times']}")
        done[number] = outcome
        if results is not None and not unwritten:
            try:
                results.add(outcome, load)
            except UnwrittenError as error:  # what has been computed is judged all the same
                unwritten = str(error)
    pairs = [(run, done[number]) for number, run in enumerate(runs)]
    measurement = [(run.name, run.label, Measurement(outcome, run)) for run, outcome in pairs]
    verdicts = judge(first, measurement, environments_of(where, planned.target), planned.scale)
    repeats = spreads(first, measurement, verdicts)
    if results is not None and not unwritten:
        try:
            results.finish(verdicts, repeats)
        except UnwrittenError as error:
            unwritten = str(error)
    if results is not None and unwritten:
        folder, digest = (results.folder if results.stop() else None), None
    else:
        folder, digest = (results.folder, results.manifest["digest"]) if results else (None, None)
    return RunReport(first.name, first.title, pairs, verdicts, repeats, folder, wall_s, overloaded, digest, unwritten)


def _one_by_one(
    runs: list[RunPlan], where: str, tell: Tell, live: LiveRunner | None
) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    backend = _back_end(where, live)
    for number, run in enumerate(runs):
        meter = LoadMeter()

        def progress(share: float, now: float, run: RunPlan = run, meter: LoadMeter = meter) -> None:
            meter.look()
            tell.progress(run, share, now)

        outcome = backend.run(run, progress)
        conclude(run, outcome)
        tell.ends(run, outcome)
        yield number, outcome, meter.read(where)


def _back_end(where: str, live: LiveRunner | None) -> Backend:
    if where == "live":
        from mrc_testbed.experiments.live.live_run import LiveRunner  # needs Mininet, which others do without

        return live or LiveRunner()
    return FluidRunner() if where == "fluid" else VirtualRunner()


def _as_they_end(runs: list[RunPlan], begun: Begun, tell: Tell) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    """Raises UsageError in the end for runs that were lost: the others are whole by then."""
    left, lost = len(runs), LostRuns()
    while left:
        number, news = begun.get()
        if isinstance(news, Exception):
            raise news
        if isinstance(news, RunProgress):
            tell.progress(runs[number], news.share, news.now)
            continue
        left -= 1
        if isinstance(news, RunLost):
            lost.add(runs[number], news)
            continue
        outcome, load = news
        tell.ends(runs[number], outcome)
        yield number, outcome, load
    lost.refuse()


class LostRuns:
    """Runs that did not come back."""

    SHOWN = 8
    """Names in the message."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._why: dict[str, None] = {}

    def add(self, run: RunPlan, news: RunLost) -> None:
        """One more."""
        self._names.append(run.name)
        self._why[news.why] = None

    def refuse(self) -> None:
        """Raise UsageError if there are any, with their names and the cure."""
        if not self._names:
            return
        names = ", ".join(self._names[: self.SHOWN]) + (" ..." if len(self._names) > self.SHOWN else "")
        why = "; ".join(list(self._why)[:3])
        raise UsageError(
            f"{len(self._names)} run(s) were lost ({names}): {why}. The others are kept; the same command with "
            "--resume makes what is missing"
        )
