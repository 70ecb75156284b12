"""Commands `mrc run`, `mrc scenario validate|list|show`, `mrc compare`: output and exit codes.

cli/app.py parses the command line.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mrc_testbed.console import terminal, units
from mrc_testbed.console.progress import Progress as RestingProgress
from mrc_testbed.errors import DISK_FULL_ERRNOS, EXIT_UNWRITTEN, UsageError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.console_summary import summary_lines
from mrc_testbed.experiments.executors.choice import crew_of
from mrc_testbed.experiments.executors.crew import Crew
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.language.expand import is_for
from mrc_testbed.experiments.language.yaml_loader import Document, ScenarioError, read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import RESULTS, ResultsError, default_folder, refuse_taken, refuse_twice
from mrc_testbed.experiments.runner import Checkpoint, RunReport, RunSet, plan_runs, plan_to_show, run_scenario
from mrc_testbed.experiments.traces.command import Replay, program_of, scenario_of
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.virtual.estimate import (
    Piece,
    choose_samples,
    describe_estimate,
    describe_memory,
    estimate,
    measure,
)
from mrc_testbed.files.memory import free_memory
from mrc_testbed.files.package import SCENARIOS
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.signals import SignalExit, terminating
from mrc_testbed.native_build import state
from mrc_testbed.topologies.lab.options import EMBEDDED

if TYPE_CHECKING:
    from mrc_testbed.experiments.live.live_run import LiveRunner

NO_RULES = "nothing is expected but what every run must hold: nothing dies, fails, is damaged, left out or unfinished"
EXIT_PASSED, EXIT_FAILED, EXIT_BAD_FILE = 0, 1, 2
"""Exit codes: every rule held; a rule did not hold; a file is not a scenario."""


def find(names: list[str]) -> list[Path]:
    """Return files of scenarios given by path, or else by name (`e10`). Raises UsageError."""
    out = []
    for name in names:
        path = Path(name)
        if not path.exists() and path.suffix == "" and "/" not in name:
            path = SCENARIOS / f"{name}.yaml"
        if path.is_dir():
            out += sorted(path.glob("*.yaml"))
        elif path.exists():
            out.append(path)
        else:
            known = ", ".join(sorted(file.stem for file in SCENARIOS.glob("*.yaml"))) or "none"
            raise UsageError(f"no scenario {name!r}: give a file, or one of {known}")
    if not out:
        raise UsageError("no scenario: give a file or a name; `mrc scenario list` shows them")
    return out


class Display:
    """Progress bars of the current scenario and of all scenarios, on stderr when stdout is for JSON."""

    def __init__(self, console: Console, scenarios: int, runs: int) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            speed_estimate_period=600.0,
        )
        self._scenarios = scenarios
        self._total_task = self.bar.add_task("", total=float(runs)) if scenarios > 1 else None
        self._number = self._ended_count = 0
        self._name = ""
        self._task: Any = None
        self._shares: dict[str, float] = {}
        self.stopped = False
        """Whether on_stop() has printed how many runs are kept."""
        self.costs: dict[str, float] = {}
        """Estimated seconds by run, the weights of the bar's shares; empty: equal weights."""

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_exception_info: object) -> None:
        self.bar.stop()

    def scenario(self, name: str, runs: int) -> None:
        """Show the next scenario. `runs`: number of its runs, with those that exist already."""
        self._name, self._runs = name, runs
        self._number += 1
        if self._task is not None:
            self.bar.remove_task(self._task)
            self._task = None

    def on_start(self, runs: list[RunPlan]) -> None:
        self._ended_before = self._ended_count
        self._shares = {run.name: 0.0 for run in runs}
        total = sum(self.costs.get(run.name, 1.0) for run in runs)
        self._task = self.bar.add_task(escape(self._name), total=total or 1.0)
        self._show(escape(self._name))

    def on_progress(self, run: RunPlan, share: float, now: float) -> None:
        self._shares[run.name] = share
        self._show(escape(f"{self._name}: {run.name} at {units.show_length(now)}, {100 * share:.0f} %"))

    def on_end(self, run: RunPlan, _outcome: Outcome) -> None:
        self._ended_count += 1
        self._shares[run.name] = 1.0
        self._show(escape(f"{self._name}: {run.name}"))

    def on_stop(self, kept_count: int, folder: Path) -> None:
        self.stopped = True
        text = f"runs that ended are in {folder} ({kept_count} of {self._runs}); `mrc report` makes a page of them"
        self.bar.console.print(escape(text if kept_count else _nothing_kept(self._name)), soft_wrap=True)

    def _show(self, text: str) -> None:
        completed = sum(share * self.costs.get(name, 1.0) for name, share in self._shares.items())
        self.bar.update(self._task, completed=completed, description=text)
        if self._total_task is not None:
            text = f"scenario {self._number} of {self._scenarios}"
            self.bar.update(
                self._total_task, completed=self._ended_before + sum(self._shares.values()), description=text
            )


def _nothing_kept(name: str) -> str:
    return f"no run of {name} had ended: nothing of it is kept"


def run(
    names: list[str],
    *,
    backend: str,
    seed: int | None,
    repeat: int | None,
    out: Path | None,
    jobs: int,
    as_json: bool,
    live_runner: LiveRunner | None = None,
    scale: str | None = None,
    resume: Path | None = None,
    replay: tuple[Path, Replay] | None = None,
    executor: ExecutorOptions | None = None,
    halves: bool = False,
) -> int:
    """Run scenarios and return the exit code. Every file is read before the first run starts.

    `live_runner`: back end of live runs; `replay`: a trace, and how to replay it, instead of scenarios; `scale`: a
    scale of the files, whose time is estimated before the runs; `resume`: folder of stopped results to complete, as
    `--out` named it; `executor`: executor of virtual runs, processes here by default; `halves`: virtual runs one after
    the other, each in two processes.
    """
    executor = executor or ExecutorOptions()
    console = terminal.console(stderr=as_json)
    target = EMBEDDED if live_runner is None else live_runner.lab.target
    try:
        paths = find(names) if replay is None else [_write_replay_scenario(console, *replay, live=backend == "live")]
    except TraceError as error:
        console.print(escape(f"mrc: error: {error}"), style="red", soft_wrap=True)
        return EXIT_BAD_FILE
    run_sets, refusals = _plan_all(
        console,
        paths,
        backend,
        live_runner,
        lambda document: plan_runs(document, backend, target=target, seed=seed, repeat=repeat, scale=scale),
    )
    if refusals:
        print_mistakes(console, refusals, as_json=as_json)
        return EXIT_BAD_FILE
    if not run_sets:
        raise UsageError("no scenario remains to be run: give one that is not left out")
    if halves:
        run_sets, jobs = [run_set.in_halves() for run_set in run_sets], 1
    folders = _folders(out if resume is None else resume, run_sets, resuming=resume is not None)
    for run_set in run_sets if backend == "live" else ():
        _print_limits(console, run_set)
    if backend == "virtual" and not state().active:
        console.print(
            f"engine in Python ({state().reason}); compiled, virtual runs take a fifth of the time", style="dim"
        )
    if backend == "virtual":
        gc.freeze()  # modules stay: what is collected after a run is the run's alone
    with ExitStack() as stack:
        stack.enter_context(terminating())
        reports = _run_all(stack, console, run_sets, folders, live_runner, executor, jobs, resuming=resume is not None)
    if len(reports) > 1:
        failed = [report.scenario for report in reports if not report.passed]
        summary = f"{len(failed)} failed: {', '.join(failed)}" if failed else "all passed"
        console.print(f"{len(reports)} scenarios: {summary}", style="red" if failed else "green")
    if as_json:
        print(json.dumps([report.to_json() for report in reports], indent=2))
    if any(report.unwritten for report in reports):
        return EXIT_UNWRITTEN
    return EXIT_PASSED if all(report.passed for report in reports) else EXIT_FAILED


def _plan_all(
    console: Console,
    paths: list[Path],
    backend: str,
    live_runner: LiveRunner | None,
    plan: Callable[[Document], RunSet],
) -> tuple[list[RunSet], list[ScenarioError]]:
    """Return the planned files, and the mistakes of others.

    Of several files those that cannot run here are left out; raises UsageError when a single one cannot.
    """
    run_sets: list[RunSet] = []
    refusals: list[ScenarioError] = []
    for path in paths:
        try:
            document = read(path)
            if len(paths) > 1 and not is_for(document, backend):
                environment = "in virtual time" if backend == "live" else "live"
                console.print(f"{path.stem} is left out: it runs {environment} only", style="dim")
                continue
            run_set = plan(document)
            if live_runner is not None:
                live_runner.check(run_set.runs)
            run_sets.append(run_set)
        except ScenarioError as error:
            refusals.append(error)
        except UsageError as error:
            if len(paths) == 1:
                raise
            console.print(escape(f"{path.stem} is left out: {error}"), style="yellow", soft_wrap=True)
    return run_sets, refusals


def print_mistakes(console: Console, refusals: list[ScenarioError], *, as_json: bool) -> None:
    """Print the mistakes of files for people, and as JSON on standard output."""
    for error in refusals:
        console.print(escape(str(error)), style="red", soft_wrap=True)
    if as_json:
        files = [
            {"file": str(error.path), "problems": [problem.to_json() for problem in error.problems]}
            for error in refusals
        ]
        print(json.dumps({"files": files}, indent=2))


def _run_all(
    stack: ExitStack,
    console: Console,
    run_sets: list[RunSet],
    folders: list[Path],
    live_runner: LiveRunner | None,
    executor: ExecutorOptions,
    jobs: int,
    *,
    resuming: bool,
) -> list[RunReport]:
    """Make the runs of all scenarios; print each report when its scenario ends.

    All runs are handed in before the first one ends, so that no process is idle between scenarios.
    """
    backend, scale = run_sets[0].backend, run_sets[0].scale
    checkpoints: list[Checkpoint] = []
    reports: list[RunReport] = []
    display: Display | None = None
    try:
        if resuming:
            _take_folders(stack, checkpoints, run_sets, folders, Checkpoint.resume)
            for run_set, checkpoint in zip(run_sets, checkpoints, strict=True):
                print_resume_state(
                    console, run_set.document.path.stem, checkpoint.damages, len(checkpoint.outcomes), len(run_set.runs)
                )
        pending_runs = [run_set.runs for run_set in run_sets]
        if checkpoints:
            pending_runs = [
                checkpoint.runs_to_make(run_set) for run_set, checkpoint in zip(run_sets, checkpoints, strict=True)
            ]
        total = sum(map(len, pending_runs))
        crew = crew_of(executor, min(jobs, total)) if backend == "virtual" and total else None
        if crew is not None:
            stack.enter_context(crew)
        if not resuming:
            lab = None if live_runner is None else live_runner.lab
            _take_folders(
                stack, checkpoints, run_sets, folders, lambda run_set, folder: Checkpoint.create(run_set, folder, lab)
            )
        measured = backend == "virtual" and (scale is not None or executor.elsewhere)
        costs = [
            _estimate_costs(console, run_set, runs, jobs, crew, executor) if measured else {}
            for run_set, runs in zip(run_sets, pending_runs, strict=True)
        ]
        news_queues = [
            crew.hand_in(runs, cost, store=checkpoint.results.store) if crew is not None else None
            for runs, cost, checkpoint in zip(pending_runs, costs, checkpoints, strict=True)
        ]
        display = stack.enter_context(Display(console, len(run_sets), total))
        for run_set, checkpoint, news_queue, cost in zip(run_sets, checkpoints, news_queues, costs, strict=True):
            display.costs = cost
            display.scenario(run_set.document.path.stem, len(run_set.runs))
            reports.append(
                run_scenario(run_set, display, live_runner=live_runner, news_queue=news_queue, checkpoint=checkpoint)
            )
            print_report(console, reports[-1])
    except (KeyboardInterrupt, SignalExit):
        index = len(reports)
        is_reported = display is not None and display.stopped  # by run_scenario, if its runs had started
        if not is_reported and index < len(run_sets) and not (index < len(checkpoints) and checkpoints[index].outcomes):
            console.print(escape(_nothing_kept(run_sets[index].document.path.stem)), soft_wrap=True)
        raise
    return reports


def _write_replay_scenario(console: Console, trace: Path, replay: Replay, *, live: bool) -> Path:
    """Write a scenario that replays a trace, among the results, where it can be changed; return its path.

    An existing file with other content stays: the new one gets a number. Raises TraceError.
    """
    name, text = scenario_of(trace, replay, live=live)
    path, number = RESULTS / f"{name}.yaml", 2
    while path.exists() and path.read_text(encoding="utf-8") != text:
        path, number = RESULTS / f"{name}-{number}.yaml", number + 1
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        raise TraceError(path, f"cannot be written: {error.strerror}; run it where you may write") from None
    made_text = f"{path}: the scenario made of {trace}; change it and run it for faults, transports and rules"
    for line in (made_text, *(f"note: {note}" for note in program_of(trace, replay).notes)):
        console.print(line, style="dim", soft_wrap=True, markup=False)
    return path


def _take_folders(
    stack: ExitStack,
    checkpoints: list[Checkpoint],
    run_sets: list[RunSet],
    folders: list[Path],
    make_checkpoint: Callable[[RunSet, Path], Checkpoint],
) -> None:
    """Open the results folder of each scenario. On exit, folders without an ended run are removed."""
    for run_set, folder in zip(run_sets, folders, strict=True):
        checkpoints.append(make_checkpoint(run_set, folder))
        stack.callback(checkpoints[-1].results.stop)


def print_resume_state(console: Console, name: str, damages: list[str], kept_count: int, planned_count: int) -> None:
    """Print how many runs exist already, and which are made again."""
    for text in damages:
        console.print(escape(f"{name}: {text}; the run is made again"), style="yellow", soft_wrap=True)
    if kept_count:
        remaining = f"{planned_count - kept_count} to make" if kept_count < planned_count else "nothing is left to make"
        console.print(
            escape(f"{name}: {kept_count} of {planned_count} runs are there; {remaining}"), style="dim", soft_wrap=True
        )


def _estimate_costs(
    console: Console, run_set: RunSet, runs: list[RunPlan], jobs: int, crew: Crew | None, executor: ExecutorOptions
) -> dict[str, float]:
    """Return the estimated seconds by run; print them before the runs start."""
    name = run_set.document.path.stem
    if not runs:
        return {}
    costs = measured_costs(console, name, runs, crew)
    scale_text = f" at scale {run_set.scale}" if run_set.scale else ""
    text = executor.describe(runs, costs) if executor.elsewhere else describe_estimate(runs, costs, jobs)
    console.print(escape(f"{name}{scale_text}: {text}"))
    memory = "" if executor.elsewhere else describe_memory(runs, jobs, free_memory())
    if memory:
        console.print(escape(f"{name}: {memory}"), style="yellow" if "free" in memory else "")
    return costs


def measured_costs(console: Console, name: str, runs: list[RunPlan], crew: Crew | None) -> dict[str, float]:
    """Return estimated CPU seconds by run, from measured pieces of some runs; show progress."""
    chosen_runs = choose_samples(runs)
    pool = crew if isinstance(crew, WorkerPool) else None
    measurements = ((run, measure(run)) for run in chosen_runs) if pool is None else pool.measure(chosen_runs)
    pieces: dict[str, Piece] = {}
    with console.status("") as status:
        status.update(escape(f"{name}: measuring pieces of {len(chosen_runs)} runs"))
        for run, piece in measurements:
            pieces[run.name] = piece
            status.update(escape(f"{name}: measuring pieces of runs, {len(pieces)} of {len(chosen_runs)} done"))
    return estimate(runs, pieces)


def _print_limits(console: Console, run_set: RunSet) -> None:
    """Print the settings that these switches do not support, or support differently."""
    from mrc_testbed.experiments.live.live_run import unlike

    runs_by_text: dict[str, list[str]] = {}
    for run in run_set.runs:
        for text in unlike(run, run_set.target):
            runs_by_text.setdefault(text, []).append(run.name)
    name = run_set.document.path.stem
    for text, runs in runs_by_text.items():
        runs_text = "" if len(runs) == len(run_set.runs) else f" ({', '.join(runs)})"
        console.print(escape(f"{name}{runs_text}: {text}"), style=STYLES["note"])


def _folders(out: Path | None, run_sets: list[RunSet], resuming: bool) -> list[Path]:
    """Return the results folder of each scenario; without `out` its name has the time.

    `resuming`: the folders may hold results. Raises ResultsError.
    """
    if out is None:
        return [default_folder(run_set.document.path.stem) for run_set in run_sets]
    folders = [out / run_set.document.path.stem for run_set in run_sets] if len(run_sets) > 1 else [out]
    if resuming:
        if not out.is_dir():
            raise ResultsError(f"no folder {out}: give one that `mrc run --out` made")
        refuse_twice(folders)
    else:
        refuse_taken(folders)
    return folders


STYLES = {"good": "green", "bad": "red", "note": "yellow", "soft": "dim", "": ""}


def print_report(console: Console, report: RunReport) -> None:
    """Print the verdicts of a scenario and the folder of its results."""
    for style, line in summary_lines(report, console.width):
        console.print(escape(line), style=STYLES[style], soft_wrap=True)
    if report.unwritten:
        console.print(escape(f"mrc: error: {report.unwritten}"), style="red", soft_wrap=True)


def validate(names: list[str], as_json: bool) -> int:
    """Read scenarios for both back ends, print their mistakes, and return the exit code."""
    file_results = []
    for path in _with_progress(find(names), "validate"):
        problems: list[Any] = []
        runs: dict[str, int] = {}
        for backend, target in (("virtual", "embedded"), ("live", "embedded"), ("live", "bmv2")):
            try:
                if not is_for(read(path), backend):
                    continue
                runs.setdefault(backend, len(plan_runs(read(path), backend, target=target).runs))
            except ScenarioError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        # a mistake of the file shows at every scale: one report of it is enough
        problems += _problems_at_scales(path) if not problems else []
        file_results.append((path, runs, problems))
    if as_json:
        rows = [
            {"file": str(path), "runs": runs, "problems": [problem.to_json() for problem in problems]}
            for path, runs, problems in file_results
        ]
        print(json.dumps(rows, indent=2))
    else:
        for path, runs, problems in file_results:
            for problem in problems:
                print(f"{path}:{problem}")
            if not problems:
                live_text = f", {runs['live']} live ones" if "live" in runs else ", none live"
                print(f"{path}: good; {runs.get('virtual', 'no')} virtual runs{live_text}")
    return EXIT_BAD_FILE if any(problems for _, _, problems in file_results) else EXIT_PASSED


def _with_progress(paths: list[Path], command: str) -> Iterator[Path]:
    """Yield files with a progress line on standard error: a file takes a tenth of a second."""
    with RestingProgress(terminal.console(stderr=True), f"scenario {command}", size=len(paths)) as progress:
        for number, path in enumerate(paths):
            progress.share(number / len(paths), f"reading {path.name}")
            yield path


def _problems_at_scales(path: Path) -> list[Any]:
    """Return the mistakes that a file has only at one of its scales."""
    document, problems = read(path), []
    for scale in document.raw.get("scale") or {}:
        try:
            plan_runs(document, "virtual", scale=scale)
        except ScenarioError as error:
            # A fabric may be too large for packets and not for the fluid model.
            with suppress(ScenarioError):
                plan_runs(document, "fluid", scale=scale)
                continue
            problems += [problem for problem in error.problems if problem not in problems]
    return problems


def listing(as_json: bool) -> int:
    """List the scenarios that come with the testbed."""
    rows = []
    for path in _with_progress(sorted(SCENARIOS.glob("*.yaml"), key=_order), "list"):
        try:
            runs = plan_to_show(read(path)).runs
            first = runs[0].scenario
            rows.append((path.stem, first.paper.id if first.paper else "", first.title, len(runs)))
        except ScenarioError as error:
            rows.append((path.stem, "?", f"cannot be read: {error.problems[0]}", 0))
    if as_json:
        print(json.dumps([dict(zip(("name", "paper", "title", "runs"), row, strict=True)) for row in rows], indent=2))
        return EXIT_PASSED
    table = Table(box=None, pad_edge=False)
    for column in ("name", "paper", "runs", "title"):
        table.add_column(column, overflow="fold")
    for name, paper, title, count in rows:
        table.add_row(name, paper, str(count), escape(title))
    terminal.console().print(table)
    return EXIT_PASSED


def _order(path: Path) -> tuple[int, int, str]:
    digits = "".join(char for char in path.stem[1:3] if char.isdigit())
    return (0, int(digits), path.stem) if path.stem.startswith("e") and digits else (1, 0, path.stem)


def show(name: str, as_json: bool) -> int:
    """Print a scenario as it will be run: runs, a time line of work and faults, rules."""
    from mrc_testbed.experiments.metrics.assertions import describe
    from mrc_testbed.experiments.resolve.run_timeline import timeline_of
    from mrc_testbed.experiments.resolve.sizes import size_lines

    (path,) = find([name])[:1]
    runs = plan_to_show(read(path)).runs
    # faults and sizes are those of the first run: variants and sweep values may change them
    plan, first = runs[0], runs[0].scenario
    fault_lines = [f"{step.time}: {step}" for step in plan.steps()]
    timeline = timeline_of(plan, describe)
    rules = [describe(rule) for rule in first.expect]
    sizes = list(size_lines(plan))
    if as_json:
        data = {
            "name": first.name,
            "title": first.title,
            "paper": first.paper and first.paper.model_dump(),
            "fabric": str(plan.fabric),
            "sizes": sizes,
            "runs": [run.name for run in runs],
            "faults": fault_lines,
            "timeline": timeline.to_json(),
            "expect": rules,
        }
        print(json.dumps(data, indent=2))
        return EXIT_PASSED
    style = terminal.Style.for_stream(sys.stdout)
    lines = [f"{first.name}: {first.title}"]
    if first.paper:
        lines.append(f"paper: {first.paper.id} {first.paper.figure}: {first.paper.saw}")
        paper_texts = (("scaled", first.paper.scaled), ("cannot show", first.paper.cannot))
        lines += [f"  {word}: {text}" for word, text in paper_texts if text]
    more_text = f" and {len(runs) - 12} more (--json has them)" if len(runs) > 12 else ""
    lines += [
        f"fabric: {plan.fabric}, mode {plan.fabric.mode}",
        *(f"  {line}" for line in sizes),
        f"runs ({len(runs)}): {', '.join(run.name for run in runs[:12])}{more_text}",
        f"the first run{'' if fault_lines else ', without faults'}:",
        *timeline.lines(style.width),
        *(
            ["expected:", *(f"  {rule}" for rule in rules)]
            if rules
            else ["nothing is expected but what every run must hold"]
        ),
    ]
    print(style.fold("\n".join(lines)))
    return EXIT_PASSED


def compare(a: Path, b: Path, as_json: bool) -> int:
    """Print the differences of two result folders; the exit code is always 0."""
    from mrc_testbed.experiments import compare as comparing

    data = comparing.differences(a, b)
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        comparing.show(data, terminal.console())
    return EXIT_PASSED
