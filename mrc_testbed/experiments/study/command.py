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
    print_mistakes,
    print_resume_state,
)
from mrc_testbed.experiments.executors.choice import crew_of
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.failure_cost import command as failure_cost
from mrc_testbed.experiments.failure_cost.model import is_failure_study
from mrc_testbed.experiments.language.yaml_loader import ScenarioError
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import default_folder, refusal, refuse_taken
from mrc_testbed.experiments.study.carry_out import (
    PreparedStudy,
    StudyReport,
    carry_out_study,
    missing_runs,
    summarize_study,
)
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
    """Return the file of a study by path or by name. Raises UsageError."""
    path = Path(name)
    if path.is_file():
        return path
    packaged_file = STUDIES / f"{name}.yaml"
    if path.suffix == "" and "/" not in name and packaged_file.is_file():
        return packaged_file
    known = ", ".join(sorted(path.stem for path in STUDIES.glob("*.yaml"))) or "none"
    raise UsageError(f"no study {name!r}: give a file, or one of {known}")


class StudyDisplay:
    """Progress of a study on a console: decided points and runs, and a line for each point's result."""

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
        self._reported_points: set[int] = set()

    def __enter__(self) -> StudyDisplay:
        self._task = self.bar.add_task(escape(self._plan.name), total=float(len(self._plan.runs)))
        self.bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.bar.stop()

    def on_start(self, points: list[PointProgress]) -> None:
        self._points = points
        self._show()

    def on_progress(self, run: RunPlan, share: float, now: float) -> None:
        """Ignore progress within a run: runs of a study are many and short."""

    def on_run_end(self, _run: RunPlan) -> None:
        self._show()

    def on_point_decided(self, point: PointProgress) -> None:
        """Print the result of a point, once."""
        if point.point.number in self._reported_points:
            return
        self._reported_points.add(point.point.number)
        summary = summarize_study(self._plan, [point])
        (point_summary,) = summary["points"]
        parts = []
        for name, metric in point_summary["metrics"].items():
            scale, unit = shown_unit(summary, name)
            parts.append(f"{name} {in_words(metric, scale)}{f' {unit}' if unit else ''}")
        self.bar.console.print(
            escape(f"{point.point.name}: {', '.join(parts)}; {point_summary['seeds']} seeds"),
            style="dim",
            soft_wrap=True,
        )

    def _show(self) -> None:
        seeds = self._plan.study.seeds.max
        seeds_done = sum(seeds if point.is_decided else point.seeds_done for point in self._points)
        decided_count = sum(point.is_decided for point in self._points)
        text = f"{self._plan.name}: {decided_count} of {len(self._points)} points"
        self.bar.update(self._task, completed=seeds_done, description=escape(text))


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
    """Carry a study out, or estimate its duration; return the exit code."""
    console = terminal.console(stderr=as_json)
    if resume is not None and out is not None:
        raise UsageError("--resume says where the results are: leave --out away")
    try:
        file = find_study(name)
        if is_failure_study(file):
            _refuse_options(estimate=estimate, executor=executor)
            return failure_cost.run(file, out=out, resume=resume, jobs=jobs, as_json=as_json)
        plan = plan_study(file, lambda scenario: find([scenario])[0])
    except ScenarioError as error:
        print_mistakes(console, [error], as_json=as_json)
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
        report = _carry_out(stack, console, plan, out, resume, executor, jobs)
    print_report(console, report)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    return EXIT_FAILED if any(point.causes for point in report.points) else EXIT_PASSED


def _refuse_options(*, estimate: bool, executor: ExecutorOptions) -> None:
    """Raise UsageError for options that a study of failure rates does not have."""
    if estimate:
        raise UsageError("--estimate: a study of failure rates has none; docs/failures-cost.md says what it takes")
    if executor.elsewhere:
        raise UsageError(f"--executor {executor.name}: a study of failure rates runs on this machine: leave it away")


def _carry_out(
    stack: ExitStack,
    console: Console,
    plan: StudyPlan,
    out: Path | None,
    resume: Path | None,
    executor: ExecutorOptions,
    jobs: int,
) -> StudyReport:
    folder = resume or out or default_folder(plan.name)
    prepared_study = None
    if resume is not None:
        prepared_study = PreparedStudy.resume(plan, folder)
        stack.callback(prepared_study.results.stop)
        runs = missing_runs(plan, prepared_study)
        print_resume_state(
            console,
            plan.name,
            prepared_study.damaged_runs,
            len(prepared_study.values),
            len(prepared_study.values) + len(runs),
        )
    else:
        refuse_taken([folder])
        runs = plan.runs
    # A resumed study may be complete: it needs no crew, and only its report is printed.
    crew = None
    if runs:
        crew = crew_of(executor, jobs) or WorkerPool(1)
        stack.enter_context(crew)
    costs = {}
    if runs and executor.elsewhere:
        firsts = plan.runs[: len(plan.points)]
        costs = measured_costs(console, plan.name, firsts, crew)
        console.print(escape(f"{plan.name}: {executor.describe(firsts, costs)} for one seed of each point"))
    if prepared_study is None:
        prepared_study = PreparedStudy.create(plan, folder)
        stack.callback(prepared_study.results.stop)
    display = stack.enter_context(StudyDisplay(console, plan))
    try:
        return carry_out_study(plan, display, prepared_study, crew, costs)
    except BaseException:
        display.bar.stop()
        _print_partial_study(console, prepared_study)
        raise


def _print_partial_study(console: Console, prepared_study: PreparedStudy) -> None:
    """Print the results of a study that was stopped, and the way to resume it."""
    run_count, folder = len(prepared_study.results.manifest["runs"]), prepared_study.results.folder
    if not run_count:
        console.print("no run had ended: nothing is kept")
        return
    console.print(as_table(prepared_study.results.manifest["study"]))
    console.print(
        escape(f"{run_count} runs are in {folder}; the same command with --resume {folder} goes on"), soft_wrap=True
    )


def _estimate(console: Console, plan: StudyPlan, executor: ExecutorOptions, jobs: int, as_json: bool) -> int:
    """Print the number of runs of the study, and how long they take."""
    firsts = plan.runs[: len(plan.points)]
    costs = measured_costs(console, plan.name, firsts, None)
    seed_cost_s, seeds = sum(costs[run.name] for run in firsts), plan.study.seeds
    side = 1 if executor.elsewhere else max(1, jobs)
    runs_min, runs_max = len(firsts) * seeds.min, len(plan.runs)
    if as_json:
        data = {
            "study": plan.name,
            "points": len(firsts),
            "runs_min": runs_min,
            "runs_max": runs_max,
            "cpu_s_min": seed_cost_s * seeds.min,
            "cpu_s_max": seed_cost_s * seeds.max,
        }
        print(json.dumps(data, indent=2))
        return EXIT_PASSED
    cpu_text = f" with {side} side by side" if side > 1 else " of one CPU"
    low, high = duration(seed_cost_s * seeds.min / side), duration(seed_cost_s * seeds.max / side)
    console.print(
        escape(
            f"{plan.name}: {len(firsts)} points, {runs_min:,} to {runs_max:,} runs, about {low} to {high}{cpu_text} "
            "(a short piece of each variant was measured)"
        )
    )
    return EXIT_PASSED


def print_report(console: Console, report: StudyReport) -> None:
    """Print the table, and the paths of pictures and results."""
    summary = summarize_study(report.plan, report.points)
    console.print(as_table(summary))
    for text in _remarks(report.plan, summary):
        console.print(escape(text), style="dim", soft_wrap=True)
    try:
        pictures = draw(report.plan.study, summary, report.folder / "figures")
    except OSError as error:
        raise refusal(report.folder / "figures", error, "; the results are whole") from None
    for path in pictures:
        console.print(escape(f"picture: {path}"), style="dim", soft_wrap=True)
    digest = (report.digest or "")[:12]
    console.print(escape(f"{summary['runs']:,} runs; results in {report.folder}, digest {digest}"), soft_wrap=True)


def _remarks(plan: StudyPlan, summary: dict[str, Any]) -> list[str]:
    """Return remarks on the numbers: kinds of intervals, failed runs, wide intervals."""
    kinds: dict[str, list[str]] = {}
    for goal in plan.goals:
        spec = goal.spec
        method = "Student's t" if spec.method == "t" else "bootstrap, percentiles"
        kinds.setdefault(f"{spec.of} over seeds, {100 * spec.confidence:g} % interval ({method})", []).append(
            spec.metric
        )
    out = [f"{text}: {', '.join(names)}" for text, names in kinds.items()]
    failed = [(point["name"], point["failed"]) for point in summary["points"] if point["failed"]]
    if failed:
        failed_count, (name, causes) = sum(len(causes) for _, causes in failed), failed[0]
        out.append(f"{failed_count} runs failed and are in no interval, the first at {name}: {causes[0]}")
    wide_points = [
        point["name"] for point in summary["points"] if any(m["narrow"] is False for m in point["metrics"].values())
    ]
    if wide_points:
        names = ", ".join(wide_points[:6]) + (" ..." if len(wide_points) > 6 else "")
        out.append(f"!: wider than `within` after {plan.study.seeds.max} seeds ({names}): raise seeds.max")
    return out
