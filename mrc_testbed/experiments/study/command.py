"""`mrc study`: its output and exit codes. cli/scenarios.py parses."""

from __future__ import annotations

import gc
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mrc_testbed.console import terminal
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.command import (
    EXIT_BAD_FILE,
    EXIT_FAILED,
    EXIT_PASSED,
    find,
    measured_costs,
    print_resume_state,
)
from mrc_testbed.experiments.executors.choice import crew_of
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.language.yaml_loader import ScenarioError
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import default_folder, refusal, refuse_taken
from mrc_testbed.experiments.study.carry_out import PreparedStudy, StudyReport, carry_out_study, described, missing
from mrc_testbed.experiments.study.picture import draw
from mrc_testbed.experiments.study.plan import StudyPlan, plan_study
from mrc_testbed.experiments.study.stopping import PointProgress
from mrc_testbed.experiments.study.tables import as_table, in_words, shown_unit
from mrc_testbed.experiments.virtual.estimate import duration
from mrc_testbed.files.package import SCENARIOS
from mrc_testbed.ipc.signals import terminating
from mrc_testbed.native_build import state

STUDIES = SCENARIOS / "studies"
"""Studies that come with the testbed."""


def find_study(name: str) -> Path:
    """File of a study by path or by name. Raises UsageError."""
    path = Path(name)
    if path.is_file():
        return path
    there = STUDIES / f"{name}.yaml"
    if path.suffix == "" and "/" not in name and there.is_file():
        return there
    known = ", ".join(sorted(one.stem for one in STUDIES.glob("*.yaml"))) or "none"
    raise UsageError(f"no study {name!r}: give a file, or one of {known}")


class StudyDisplay:
    """Progress of a study on a console: points that are decided and runs, with a line for each point's result."""

    def __init__(self, console: Console, plan: StudyPlan) -> None:
        self._plan = plan
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left, at most"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            speed_estimate_period=600.0,
        )
        self._ended = self._decided = 0
        self._told: set[int] = set()

    def __enter__(self) -> StudyDisplay:
        self._task = self.bar.add_task(escape(self._plan.name), total=float(len(self._plan.runs)))
        self.bar.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self.bar.stop()

    def begins(self, points: list[PointProgress]) -> None:
        self._points = points
        self._show()

    def progress(self, run: RunPlan, share: float, now: float) -> None:
        """Runs of a study are many and short: those that ended are progress enough."""

    def ends(self, _run: RunPlan) -> None:
        self._show()

    def decided(self, point: PointProgress) -> None:
        """Print what came of a point, once."""
        if point.point.number in self._told:
            return
        self._told.add(point.point.number)
        said = described(self._plan, [point])
        (one,) = said["points"]
        parts = []
        for name, found in one["metrics"].items():
            scale, unit = shown_unit(said, name)
            parts.append(f"{name} {in_words(found, scale)}{f' {unit}' if unit else ''}")
        self.bar.console.print(
            escape(f"{point.point.name}: {', '.join(parts)}; {one['seeds']} seeds"), style="dim", soft_wrap=True
        )

    def _show(self) -> None:
        seeds = self._plan.study.seeds.max
        done = sum(seeds if point.is_decided else point.there for point in self._points)
        decided = sum(point.is_decided for point in self._points)
        text = f"{self._plan.name}: {decided} of {len(self._points)} points"
        self.bar.update(self._task, completed=done, description=escape(text))


def run(
    name: str,
    *,
    out: Path | None,
    resume: Path | None,
    jobs: int,
    executor: ExecutorOptions,
    as_json: bool,
    estimate: bool,
) -> int:
    """Carry a study out, or tell how long that takes; returns the exit code."""
    console = terminal.console(stderr=as_json)
    if resume is not None and out is not None:
        raise UsageError("--resume says where the results are: leave --out away")
    try:
        plan = plan_study(find_study(name), lambda scenario: find([scenario])[0])
    except ScenarioError as error:
        console.print(escape(str(error)), style="red", soft_wrap=True)
        return EXIT_BAD_FILE
    if not state().active:
        console.print(
            f"engine in Python ({state().reason}); compiled, virtual runs take a fifth of the time", style="dim"
        )
    gc.freeze()  # modules stay: what is collected after a run is the run's alone
    if estimate:
        return _estimate(console, plan, executor, jobs, as_json)
    with ExitStack() as stack:
        stack.enter_context(terminating())
        report = _carried_out(stack, console, plan, out, resume, executor, jobs)
    print_report(console, report)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    return EXIT_FAILED if any(point.causes for point in report.points) else EXIT_PASSED


def _carried_out(
    stack: ExitStack,
    console: Console,
    plan: StudyPlan,
    out: Path | None,
    resume: Path | None,
    executor: ExecutorOptions,
    jobs: int,
) -> StudyReport:
    folder = resume or out or default_folder(plan.name)
    prepared = None
    if resume is not None:
        prepared = PreparedStudy.resume(plan, folder)
        stack.callback(prepared.results.stop)
        todo = missing(plan, prepared)
        print_resume_state(console, plan.name, prepared.damaged, len(prepared.values), len(prepared.values) + len(todo))
    else:
        refuse_taken([folder])
        todo = plan.runs
    crew = None
    if todo:
        crew = crew_of(executor, jobs) or WorkerPool(1)
        stack.enter_context(crew)
    costs = {}
    if todo and executor.elsewhere:
        firsts = plan.runs[: len(plan.points)]
        costs = measured_costs(console, plan.name, firsts, crew)
        console.print(escape(f"{plan.name}: {executor.describe(firsts, costs)} for one seed of each point"))
    if prepared is None:
        prepared = PreparedStudy.create(plan, folder)
        stack.callback(prepared.results.stop)
    display = stack.enter_context(StudyDisplay(console, plan))
    try:
        return carry_out_study(plan, display, prepared, crew, costs)
    except BaseException:
        display.bar.stop()
        _tell_stopped(console, prepared)
        raise


def _tell_stopped(console: Console, prepared: PreparedStudy) -> None:
    """What there is of a study that did not come to its end."""
    kept, folder = len(prepared.results.manifest["runs"]), prepared.results.folder
    if not kept:
        console.print("no run had ended: nothing is kept")
        return
    console.print(as_table(prepared.results.manifest["study"]))
    console.print(
        escape(f"{kept} runs are in {folder}; the same command with --resume {folder} goes on"), soft_wrap=True
    )


def _estimate(console: Console, plan: StudyPlan, executor: ExecutorOptions, jobs: int, as_json: bool) -> int:
    """Tell how many runs the study has, and how long they take."""
    firsts = plan.runs[: len(plan.points)]
    costs = measured_costs(console, plan.name, firsts, None)
    one, seeds = sum(costs[run.name] for run in firsts), plan.study.seeds
    side = 1 if executor.elsewhere else max(1, jobs)
    least, most = len(firsts) * seeds.min, len(plan.runs)
    if as_json:
        data = {
            "study": plan.name,
            "points": len(firsts),
            "runs_min": least,
            "runs_max": most,
            "cpu_s_min": one * seeds.min,
            "cpu_s_max": one * seeds.max,
        }
        print(json.dumps(data, indent=2))
        return EXIT_PASSED
    beside = f" with {side} side by side" if side > 1 else " of one CPU"
    low, high = duration(one * seeds.min / side), duration(one * seeds.max / side)
    console.print(
        escape(
            f"{plan.name}: {len(firsts)} points, {least:,} to {most:,} runs, about {low} to {high}{beside} "
            "(a short piece of each variant was measured)"
        )
    )
    return EXIT_PASSED


def print_report(console: Console, report: StudyReport) -> None:
    """The table, its pictures, and where everything is."""
    said = described(report.plan, report.points)
    console.print(as_table(said))
    for text in _remarks(report.plan, said):
        console.print(escape(text), style="dim", soft_wrap=True)
    try:
        pictures = draw(report.plan.study, said, report.folder / "figures")
    except OSError as error:
        raise refusal(report.folder / "figures", error, "; the results are whole") from None
    for path in pictures:
        console.print(escape(f"picture: {path}"), style="dim", soft_wrap=True)
    digest = (report.digest or "")[:12]
    console.print(escape(f"{said['runs']:,} runs; results in {report.folder}, digest {digest}"), soft_wrap=True)


def _remarks(plan: StudyPlan, said: dict[str, Any]) -> list[str]:
    """What the numbers are, in words."""
    kinds: dict[str, list[str]] = {}
    for wanted in plan.wanted:
        asked = wanted.asked
        how = "Student's t" if asked.method == "t" else "bootstrap, percentiles"
        kinds.setdefault(f"{asked.of} over seeds, {100 * asked.confidence:g} % interval ({how})", []).append(
            asked.metric
        )
    out = [f"{text}: {', '.join(names)}" for text, names in kinds.items()]
    failed = [(one["name"], one["failed"]) for one in said["points"] if one["failed"]]
    if failed:
        many, (name, causes) = sum(len(causes) for _, causes in failed), failed[0]
        out.append(f"{many} runs failed and are in no interval, the first at {name}: {causes[0]}")
    wide = [one["name"] for one in said["points"] if any(m["narrow"] is False for m in one["metrics"].values())]
    if wide:
        shown = ", ".join(wide[:6]) + (" ..." if len(wide) > 6 else "")
        out.append(f"!: wider than `within` after {plan.study.seeds.max} seeds ({shown}): raise seeds.max")
    return out
