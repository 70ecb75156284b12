"""Run a scenario: make its runs in turn or side by side, judge them, store them.

report = run_scenario(plan_runs(document, "virtual"), listener, out=folder)

command.py is the command line.
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
from mrc_testbed.experiments.executors.crew import NewsQueue, RunLost, RunProgress
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner, modelled, without_unmodelled
from mrc_testbed.experiments.language.all_mistakes import SCENARIO_FILLERS, with_all_mistakes
from mrc_testbed.experiments.language.expand import environments_of, expand, is_for
from mrc_testbed.experiments.language.topology import topology_files
from mrc_testbed.experiments.language.yaml_loader import Document, Problem, ScenarioError
from mrc_testbed.experiments.metrics.assertions import ALWAYS, ExpectationVerdict, causes, conclude, judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import Spread, spreads
from mrc_testbed.experiments.resolve.run_plan import RunPlan, resolve
from mrc_testbed.experiments.results import LoadMeter, Results, UnwrittenError, rerun_command
from mrc_testbed.experiments.run_store import StoredRun
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.simulator.halves import reason_against
from mrc_testbed.topologies.lab.options import LabOptions

if TYPE_CHECKING:
    from mrc_testbed.experiments.live.live_run import LiveRunner


class RunListener(Protocol):
    """Listener of a run's progress."""

    def on_start(self, runs: list[RunPlan]) -> None: ...

    def on_progress(self, run: RunPlan, share: float, now: float) -> None: ...

    def on_end(self, run: RunPlan, outcome: Outcome, /) -> None: ...

    def on_stop(self, kept_count: int, folder: Path) -> None:
        """React to an exception that ended the scenario; `kept_count` runs stay in the folder."""


@dataclass(slots=True)
class RunReport:
    """Result of a scenario."""

    scenario: str
    title: str
    runs: list[tuple[RunPlan, Outcome]]
    verdicts: list[ExpectationVerdict]
    repeats: list[Spread]
    """Median and spread of the metrics that rules and figures name; of single values without repeats."""
    folder: Path | None
    wall_s: float
    """Seconds of wall time, the sum over all runs, whether side by side or not."""
    overloaded: bool = False
    """Whether the machine was overloaded in at least one run."""
    digest: str | None = None
    """Results.digest; None: not stored."""
    unwritten: str = ""
    """Error of a full disk, with the cure; empty: the results are stored."""

    @property
    def passed(self) -> bool:
        """Whether every rule held in every run, and so in every repeat."""
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def has_rules(self) -> bool:
        """Whether a rule of the scenario was judged, beside those that every run has."""
        return any(verdict.rule not in (ALWAYS, *UNWRITTEN.values()) for verdict in self.verdicts)

    @property
    def causes(self) -> dict[str, str]:
        """Name -> first cause of each run that failed, whatever its rules look at."""
        return causes(self.verdicts)

    @property
    def inconclusive(self) -> bool:
        """Whether all rules that failed may have failed by the overload of the machine."""
        return self.overloaded and not self.passed and all(verdict.passed or verdict.timed for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return verdicts and metrics; series stay in the folder."""
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
class RunSet:
    """All runs of a scenario file, planned."""

    document: Document
    backend: str
    """"virtual", "fluid" or "live"."""
    runs: list[RunPlan]
    seed: int | None
    """Requested seed of the first repeat; None: the file's."""
    repeat: int | None
    """Requested number of repeats; None: the file's."""
    target: str = "embedded"
    """Switches of live runs."""
    scale: str | None = None
    """Name of a scale of the file; None: the file without a scale."""
    halves: bool = False
    """Whether each run in virtual time takes two processes (simulator/halves.py)."""

    def in_halves(self) -> RunSet:
        """Return the same runs, each in two processes. Raises UsageError for a run that cannot be."""
        for run in self.runs:
            if reason := reason_against(run.fabric.racks, pauses=run.queues.pfc is not None):
                name = f"{self.document.path.stem}: {run.name}"
                raise UsageError(f"--halves: {name}: {reason}. Cure: leave --halves out")
        return replace(self, halves=True)


def plan_runs(
    document: Document,
    backend: str,
    *,
    target: str = "embedded",
    seed: int | None = None,
    repeat: int | None = None,
    scale: str | None = None,
) -> RunSet:
    """Expand a file and resolve its runs. Raises ScenarioError with every problem of the file."""

    def plan(readable: Document) -> RunSet:
        runs = _plan_runs(readable, backend, target=target, seed=seed, repeat=repeat, scale=scale)
        return RunSet(document, backend, runs, seed, repeat, target, scale)

    # Mistakes that such runs of it would have follow from this one; a wrong value of `only` is one of its own.
    if document.raw.get("only") in ("virtual", "live") and not is_for(document, backend):
        text = "the scenario runs in virtual time only. Cure: --virtual, or another scenario"
        if backend != "live":
            text = "the scenario runs on the live fabric only. Cure: without --virtual, as root, or another scenario"
        raise ScenarioError(document.path, [document.problem(("only",), text)])
    return with_all_mistakes(document, plan, SCENARIO_FILLERS)


def plan_to_show(document: Document) -> RunSet:
    """Plan the runs of a file in virtual time, or live ones of a file that is for those.

    Raises ScenarioError.
    """
    return plan_runs(document, "virtual" if is_for(document, "virtual") else "live")


def _plan_runs(
    document: Document, backend: str, *, target: str, seed: int | None, repeat: int | None, scale: str | None
) -> list[RunPlan]:
    """Expand and resolve; raises ScenarioError with the problems of the first pass that has some."""
    runs = expand(document, backend, target=target, seed=seed, repeat=repeat, scale=scale)
    plans: list[RunPlan] = []
    problems: dict[Problem, None] = {}
    for run in runs[: len(runs) // (runs[-1].repeat + 1)]:
        try:
            plans.append(resolve(run, document, outlined=backend == "fluid"))
        except ScenarioError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ScenarioError(document.path, list(problems))
    # Repeats differ in their seeds alone.
    return [replace(plan, repeat=run.repeat, seed=run.seed) for run, plan in zip(runs, cycle(plans), strict=False)]


@dataclass(slots=True)
class Checkpoint:
    """Folder of a scenario's results, and the outcomes that it has before runs start."""

    results: Results
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """Outcomes of runs that need not be made, by number."""
    damages: list[str] = field(default_factory=list)
    """A text for each damaged run, which is made again."""

    @classmethod
    def create(cls, run_set: RunSet, folder: Path, lab: LabOptions | None = None) -> Checkpoint:
        """Make a new folder; `lab`: options of live runs. Raises ResultsError."""
        document, first = run_set.document, run_set.runs[0]
        command = rerun_command(document.path, run_set.backend, run_set.seed, run_set.repeat, lab, run_set.scale)
        names = [run.name for run in run_set.runs]
        return cls(
            Results.create(
                folder,
                document,
                first.scenario.title,
                run_set.backend,
                first.seed,
                names,
                command,
                None if lab is None else lab.target,
                run_set.scale,
            )
        )

    @classmethod
    def resume(cls, run_set: RunSet, folder: Path) -> Checkpoint:
        """Reopen a folder with its whole runs; make it when no run was started. Raises ResultsError."""
        if not (folder / "manifest.json").exists() and not any((folder / "runs").glob("*.json")):
            with suppress(OSError):  # the command was killed before it wrote the manifest
                (folder / "runs").rmdir()
            return cls.create(run_set, folder)
        numbers = {run.name: number for number, run in enumerate(run_set.runs)}
        outcomes: dict[int, Outcome] = {}

        def keep(stored_run: StoredRun) -> None:
            outcomes[numbers[stored_run.outcome.name]] = stored_run.outcome

        files = {"scenario.yaml": run_set.document.path.read_bytes(), **topology_files(run_set.document)}
        results, damages = Results.reopen(
            folder, files, run_set.backend, run_set.runs[0].seed, list(numbers), run_set.scale, keep
        )
        return cls(results, outcomes, damages)

    def runs_to_make(self, run_set: RunSet) -> list[RunPlan]:
        """Return the runs without an outcome."""
        return [run for number, run in enumerate(run_set.runs) if number not in self.outcomes]


def run_scenario(
    run_set: RunSet,
    listener: RunListener,
    *,
    out: Path | None = None,
    live_runner: LiveRunner | None = None,
    news_queue: NewsQueue | None = None,
    checkpoint: Checkpoint | None = None,
) -> RunReport:
    """Run, store and judge a scenario. Raises ResultsError, and UsageError for lost runs.

    `live_runner`: back end of live runs; `news_queue`: news of the virtual runs that a Crew already makes;
    `checkpoint`: instead of `out`. An exception before any run ended leaves `out` as it was.
    """
    if checkpoint is None and out is not None:
        checkpoint = Checkpoint.create(run_set, out, None if live_runner is None else live_runner.lab)
    results, outcomes = (checkpoint.results, dict(checkpoint.outcomes)) if checkpoint is not None else (None, {})
    try:
        return _run_and_judge(run_set, listener, results, live_runner, news_queue, outcomes)
    except BaseException:  # Ctrl-C and SIGTERM too
        if results is not None:
            listener.on_stop(results.stop(), results.folder)
        raise


def _run_and_judge(
    run_set: RunSet,
    listener: RunListener,
    results: Results | None,
    live_runner: LiveRunner | None,
    news_queue: NewsQueue | None,
    outcomes: dict[int, Outcome],
) -> RunReport:
    """Run, store and judge. `outcomes`: those that exist already, by number; the others are added."""
    runs, backend = run_set.runs, run_set.backend
    left_out: list[str] = []
    if backend == "fluid":
        runs, left_out = without_unmodelled(runs)
    first = runs[0].scenario
    pending_numbers = [number for number in range(len(runs)) if number not in outcomes]
    pending_runs = [runs[number] for number in pending_numbers]
    listener.on_start(pending_runs)
    wall_s, is_overloaded, unwritten = 0.0, False, ""
    ended_runs = (
        _one_by_one(pending_runs, _back_end(run_set, live_runner), listener, backend)
        if news_queue is None
        else _as_they_end(pending_runs, news_queue, listener)
    )
    for index, outcome, load in ended_runs:
        number = pending_numbers[index]
        wall_s += load["wall_s"]
        if backend == "fluid":
            outcome.metrics = {key: value for key, value in outcome.metrics.items() if modelled(key)}
            if left_out:
                outcome.notes.append(f"not judged, the fluid model has no value for it: {', '.join(left_out)}")
        if load["overloaded"]:
            is_overloaded = True
            outcome.notes.append(f"the machine was overloaded: times are {load['times']}")
        outcomes[number] = outcome
        if results is not None and not unwritten:
            try:
                results.add(outcome, load)
            except UnwrittenError as error:  # outcomes in memory are judged all the same
                unwritten = str(error)
    pairs = [(run, outcomes[number]) for number, run in enumerate(runs)]
    measurement = [(run.name, run.label, Measurement(outcome, run)) for run, outcome in pairs]
    verdicts = judge(first, measurement, environments_of(backend, run_set.target), run_set.scale)
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
    return RunReport(
        first.name, first.title, pairs, verdicts, repeats, folder, wall_s, is_overloaded, digest, unwritten
    )


def _one_by_one(
    runs: list[RunPlan], runner: Backend, listener: RunListener, backend: str
) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    for number, run in enumerate(runs):
        meter = LoadMeter()

        def progress(share: float, now: float, run: RunPlan = run, meter: LoadMeter = meter) -> None:
            meter.sample()
            listener.on_progress(run, share, now)

        outcome = runner.run(run, progress)
        conclude(run, outcome)
        listener.on_end(run, outcome)
        yield number, outcome, meter.read(backend)


def _back_end(run_set: RunSet, live_runner: LiveRunner | None) -> Backend:
    if run_set.backend == "live":
        from mrc_testbed.experiments.live.live_run import LiveRunner  # needs Mininet, which the other back ends do not

        return live_runner or LiveRunner()
    return FluidRunner() if run_set.backend == "fluid" else VirtualRunner(run_set.halves)


def _as_they_end(
    runs: list[RunPlan], news_queue: NewsQueue, listener: RunListener
) -> Iterator[tuple[int, Outcome, dict[str, Any]]]:
    """Yield (number, outcome, load) of runs as they end, then raise UsageError if any was lost."""
    pending_count, lost = len(runs), LostRuns()
    while pending_count:
        number, news = news_queue.get()
        if isinstance(news, Exception):
            raise news
        if isinstance(news, RunProgress):
            listener.on_progress(runs[number], news.share, news.now)
            continue
        pending_count -= 1
        if isinstance(news, RunLost):
            lost.add(runs[number], news)
            continue
        outcome, load = news
        listener.on_end(runs[number], outcome)
        yield number, outcome, load
    lost.refuse()


class LostRuns:
    """Runs that ended without an outcome, for one error message."""

    NAMES_MAX = 8
    """Most names in the message."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._reasons: dict[str, None] = {}

    def add(self, run: RunPlan, news: RunLost) -> None:
        """Add a lost run."""
        self._names.append(run.name)
        self._reasons[news.reason] = None

    def refuse(self) -> None:
        """Raise UsageError if any run was lost, with the names and the cure."""
        if not self._names:
            return
        names = ", ".join(self._names[: self.NAMES_MAX]) + (" ..." if len(self._names) > self.NAMES_MAX else "")
        reasons = "; ".join(list(self._reasons)[:3])
        raise UsageError(
            f"{len(self._names)} run(s) were lost ({names}): {reasons}. The others are kept; the same command with "
            "--resume makes what is missing"
        )
