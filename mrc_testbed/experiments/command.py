"""`mrc run`, `mrc scenario validate|list|show`, `mrc compare`: their output and exit codes. cli/app.py parses."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mrc_testbed.console import terminal
from mrc_testbed.console.progress import Progress as RestingProgress
from mrc_testbed.errors import FULL, UNWRITTEN, UsageError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.console_summary import told
from mrc_testbed.experiments.executors.choice import crew_of
from mrc_testbed.experiments.executors.crew import Crew
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import RESULTS, ResultsError, default_folder, refuse_taken, refuse_twice
from mrc_testbed.experiments.runner import Planned, Prepared, RunReport, carry_out, plan_runs
from mrc_testbed.experiments.traces.command import Replay, scenario_of
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.virtual.estimate import Piece, chosen, described, estimate, measure, memory_described
from mrc_testbed.files.memory import free_memory
from mrc_testbed.files.package import SCENARIOS
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.signals import SignalExit, terminating
from mrc_testbed.native_build import state
from mrc_testbed.topologies.lab.options import EMBEDDED

if TYPE_CHECKING:
    from mrc_testbed.experiments.live.live_run import LiveRunner

"""The folder of scenarios that come with the testbed."""
NO_RULES = "nothing is expected but what every run must hold: nothing dies, fails, is damaged, left out or unfinished"
PASSED, FAILED, BAD_FILE = 0, 1, 2
"""Exit codes: every rule held; a rule did not; a file is not a scenario."""


def find(names: list[str]) -> list[Path]:
    """Files of scenarios given by path or, when there is no such path, by name (`e10`). Raises UsageError."""
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
            known = ", ".join(sorted(one.stem for one in SCENARIOS.glob("*.yaml"))) or "none"
            raise UsageError(f"no scenario {name!r}: give a file, or one of {known}")
    if not out:
        raise UsageError("no scenario: give a file or a name; `mrc scenario list` shows them")
    return out


class Display:
    """Progress on a console (stderr when stdout is for JSON): of the scenario that runs, and of all of them."""

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
        self._all = self.bar.add_task("", total=float(runs)) if scenarios > 1 else None
        self._number = self._ended = 0
        self._name = ""
        self._task: Any = None
        self._shares: dict[str, float] = {}
        self.stopped = False
        """stops() told what is kept."""
        self.costs: dict[str, float] = {}
        """Estimated seconds of runs, where there is an estimate; what the bar's shares are weighed by."""

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self.bar.stop()

    def scenario(self, name: str, runs: int) -> None:
        """The next one, and how many runs it has, those that were there before among them."""
        self._name, self._runs = name, runs
        self._number += 1
        if self._task is not None:
            self.bar.remove_task(self._task)
            self._task = None

    def begins(self, runs: list[RunPlan]) -> None:
        self._begun_at = self._ended
        self._shares = {run.name: 0.0 for run in runs}
        total = sum(self.costs.get(run.name, 1.0) for run in runs)
        self._task = self.bar.add_task(escape(self._name), total=total or 1.0)
        self._show(escape(self._name))

    def progress(self, run: RunPlan, share: float, now: float) -> None:
        self._shares[run.name] = share
        self._show(escape(f"{self._name}: {run.name} at {_virtual_time(now)}, {100 * share:.0f} %"))

    def ends(self, run: RunPlan, _outcome: Outcome) -> None:
        self._ended += 1
        self._shares[run.name] = 1.0
        self._show(escape(f"{self._name}: {run.name}"))

    def stops(self, kept: int, folder: Path) -> None:
        self.stopped = True
        text = f"runs that ended are in {folder} ({kept} of {self._runs}); `mrc report` makes a page of them"
        self.bar.console.print(escape(text if kept else _nothing_kept(self._name)), soft_wrap=True)

    def _show(self, text: str) -> None:
        done = sum(share * self.costs.get(name, 1.0) for name, share in self._shares.items())
        self.bar.update(self._task, completed=done, description=text)
        if self._all is not None:
            text = f"scenario {self._number} of {self._scenarios}"
            self.bar.update(self._all, completed=self._begun_at + sum(self._shares.values()), description=text)


def _nothing_kept(name: str) -> str:
    return f"no run of {name} had ended: nothing of it is kept"


def _virtual_time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def run(
    names: list[str],
    *,
    where: str,
    seed: int | None,
    repeat: int | None,
    out: Path | None,
    jobs: int,
    as_json: bool,
    live: LiveRunner | None = None,
    scale: str | None = None,
    resume: Path | None = None,
    replay: tuple[Path, Replay] | None = None,
    executor: ExecutorOptions | None = None,
) -> int:
    """Run scenarios; returns the exit code. Every file is read before the first one runs.

    `live`: the back end of live runs; `replay`: a trace, and how to replay it, in the place of scenarios.

    `scale`: a name of the files' `scale`, and then the time is estimated first; `resume`: the folder, as `--out` names
    it, of results that were stopped or killed, to go on with instead of beginning anew; `executor`: who makes virtual
    runs, processes here by default.
    """
    executor = executor or ExecutorOptions()
    console = terminal.console(stderr=as_json)
    target = EMBEDDED if live is None else live.lab.target
    try:
        paths = find(names) if replay is None else [_replayed(console, *replay, live=where == "live")]
    except TraceError as error:
        console.print(escape(f"mrc: error: {error}"), style="red", soft_wrap=True)
        return BAD_FILE
    planned: list[Planned] = []
    for path in paths:
        try:
            planned.append(plan_runs(read(path), where, target=target, seed=seed, repeat=repeat, scale=scale))
        except ScenarioError as error:
            console.print(escape(str(error)), style="red", soft_wrap=True)
    if len(planned) < len(paths):
        return BAD_FILE
    folders = _folders(out if resume is None else resume, planned, taken=resume is not None)
    for one in planned if where == "live" else ():
        _tell_limits(console, one)
    if where == "virtual" and not state().active:
        console.print(f"engine in Python ({state().why}); compiled, virtual runs take a fifth of the time", style="dim")
    if where == "virtual":
        gc.freeze()  # modules stay: what is collected after a run is the run's alone
    with ExitStack() as stack:
        stack.enter_context(terminating())
        reports = _carried_out(stack, console, planned, folders, live, executor, jobs, resuming=resume is not None)
    if len(reports) > 1:
        failed = [report.scenario for report in reports if not report.passed]
        said = f"{len(failed)} failed: {', '.join(failed)}" if failed else "all passed"
        console.print(f"{len(reports)} scenarios: {said}", style="red" if failed else "green")
    if as_json:
        print(json.dumps([report.to_json() for report in reports], indent=2))
    if any(report.unwritten for report in reports):
        return UNWRITTEN
    return PASSED if all(report.passed for report in reports) else FAILED


def _carried_out(
    stack: ExitStack,
    console: Console,
    planned: list[Planned],
    folders: list[Path],
    live: LiveRunner | None,
    executor: ExecutorOptions,
    jobs: int,
    *,
    resuming: bool,
) -> list[RunReport]:
    """Every scenario's runs, all handed in before the first one ends; reports are printed as they come."""
    where, scale = planned[0].where, planned[0].scale
    prepared: list[Prepared] = []
    reports: list[RunReport] = []
    display: Display | None = None
    try:
        if resuming:
            _take(stack, prepared, planned, folders, Prepared.resume)
            for one, its in zip(planned, prepared, strict=True):
                tell_kept(console, one.document.path.stem, its.damaged, len(its.done), len(one.runs))
        todo = [one.runs for one in planned]
        if prepared:
            todo = [its.missing(one) for one, its in zip(planned, prepared, strict=True)]
        total = sum(map(len, todo))
        crew = crew_of(executor, min(jobs, total)) if where == "virtual" and total else None
        if crew is not None:
            stack.enter_context(crew)
        if not resuming:
            lab = None if live is None else live.lab
            _take(stack, prepared, planned, folders, lambda one, folder: Prepared.create(one, folder, lab))
        measured = where == "virtual" and (scale is not None or executor.elsewhere)
        costs = [
            _estimated(console, one, runs, jobs, crew, executor) if measured else {}
            for one, runs in zip(planned, todo, strict=True)
        ]
        ahead = [
            crew.hand_in(runs, cost, store=its.results.store) if crew is not None else None
            for runs, cost, its in zip(todo, costs, prepared, strict=True)
        ]
        display = stack.enter_context(Display(console, len(planned), total))
        for one, its, begun, cost in zip(planned, prepared, ahead, costs, strict=True):
            display.costs = cost
            display.scenario(one.document.path.stem, len(one.runs))
            reports.append(carry_out(one, display, live=live, begun=begun, prepared=its))
            print_report(console, reports[-1])
    except (KeyboardInterrupt, SignalExit):
        at = len(reports)
        told = display is not None and display.stopped  # by carry_out, if it came so far
        if not told and at < len(planned) and not (at < len(prepared) and prepared[at].done):
            console.print(escape(_nothing_kept(planned[at].document.path.stem)), soft_wrap=True)
        raise
    return reports


def _replayed(console: Console, trace: Path, replay: Replay, *, live: bool) -> Path:
    """A scenario around a trace, written to where results go, so that it can be changed; one that was stays.

    Raises TraceError.
    """
    name, text = scenario_of(trace, replay, live=live)
    path, number = RESULTS / f"{name}.yaml", 2
    while path.exists() and path.read_text(encoding="utf-8") != text:
        path, number = RESULTS / f"{name}-{number}.yaml", number + 1
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        if error.errno in FULL:  # with an exit code of its own
            raise
        raise TraceError(path, f"cannot be written: {error.strerror}; run it where you may write") from None
    console.print(
        f"{path}: the scenario made of {trace}; change it and run it for faults, transports and rules",
        style="dim",
        soft_wrap=True,
    )
    return path


def _take(
    stack: ExitStack,
    prepared: list[Prepared],
    planned: list[Planned],
    folders: list[Path],
    by: Callable[[Planned, Path], Prepared],
) -> None:
    """Take the folder of each. Those of scenarios that do not get their turn are left as they were."""
    for one, folder in zip(planned, folders, strict=True):
        prepared.append(by(one, folder))
        stack.callback(prepared[-1].results.stop)


def tell_kept(console: Console, name: str, damaged: list[str], kept: int, planned: int) -> None:
    """Say which runs are there already, and which are made again."""
    for text in damaged:
        console.print(escape(f"{name}: {text}; the run is made again"), style="yellow", soft_wrap=True)
    if kept:
        rest = f"{planned - kept} to make" if kept < planned else "nothing is left to make"
        console.print(escape(f"{name}: {kept} of {planned} runs are there; {rest}"), style="dim", soft_wrap=True)


def _estimated(
    console: Console, planned: Planned, runs: list[RunPlan], jobs: int, crew: Crew | None, executor: ExecutorOptions
) -> dict[str, float]:
    """Estimated seconds by run; printed before the runs begin."""
    name = planned.document.path.stem
    if not runs:
        return {}
    costs = measured_costs(console, name, runs, crew)
    at = f" at scale {planned.scale}" if planned.scale else ""
    text = executor.described(runs, costs) if executor.elsewhere else described(runs, costs, jobs)
    console.print(escape(f"{name}{at}: {text}"))
    memory = "" if executor.elsewhere else memory_described(runs, jobs, free_memory())
    if memory:
        console.print(escape(f"{name}: {memory}"), style="yellow" if "free" in memory else "")
    return costs


def measured_costs(console: Console, name: str, runs: list[RunPlan], crew: Crew | None) -> dict[str, float]:
    """Estimated CPU seconds by run, from pieces of some of them that are made here, with a line of progress."""
    wanted = chosen(runs)
    pool = crew if isinstance(crew, WorkerPool) else None
    measured = ((run, measure(run)) for run in wanted) if pool is None else pool.measure(wanted)
    pieces: dict[str, Piece] = {}
    with console.status("") as status:
        status.update(escape(f"{name}: measuring pieces of {len(wanted)} runs"))
        for run, piece in measured:
            pieces[run.name] = piece
            status.update(escape(f"{name}: measuring pieces of runs, {len(pieces)} of {len(wanted)} done"))
    return estimate(runs, pieces)


def _tell_limits(console: Console, planned: Planned) -> None:
    """Print, before the runs begin, the settings that these switches do not support or support differently."""
    from mrc_testbed.experiments.live.live_run import unlike

    told: dict[str, list[str]] = {}
    for run in planned.runs:
        for text in unlike(run, planned.target):
            told.setdefault(text, []).append(run.name)
    name = planned.document.path.stem
    for text, runs in told.items():
        some = "" if len(runs) == len(planned.runs) else f" ({', '.join(runs)})"
        console.print(escape(f"{name}{some}: {text}"), style=STYLES["note"])


def _folders(out: Path | None, planned: list[Planned], taken: bool) -> list[Path]:
    """For the results of each; without `out` they are named after the time. `taken`: they may hold results.

    Raises ResultsError.
    """
    if out is None:
        return [default_folder(one.document.path.stem) for one in planned]
    folders = [out / one.document.path.stem for one in planned] if len(planned) > 1 else [out]
    if taken:
        if not out.is_dir():
            raise ResultsError(f"no folder {out}: give one that `mrc run --out` made")
        refuse_twice(folders)
    else:
        refuse_taken(folders)
    return folders


STYLES = {"good": "green", "bad": "red", "note": "yellow", "soft": "dim", "": ""}


def print_report(console: Console, report: RunReport) -> None:
    """Verdicts of a scenario, and where its results are."""
    for style, line in told(report, console.width):
        console.print(escape(line), style=STYLES[style], soft_wrap=True)
    if report.unwritten:
        console.print(escape(f"mrc: error: {report.unwritten}"), style="red", soft_wrap=True)


def validate(names: list[str], as_json: bool) -> int:
    """Read scenarios for both back ends and print their mistakes."""
    found = []
    for path in _told(find(names), "validate"):
        problems: list[Any] = []
        runs: dict[str, int] = {}
        for where, target in (("virtual", "embedded"), ("live", "embedded"), ("live", "bmv2")):
            try:
                runs.setdefault(where, len(plan_runs(read(path), where, target=target).runs))
            except ScenarioError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        problems += _problems_at_scales(path) if not problems else []
        found.append((path, runs, problems))
    if as_json:
        listed = [
            {
                "file": str(path),
                "runs": runs,
                "problems": [{"line": p.line, "at": ".".join(map(str, p.loc)), "text": p.text} for p in problems],
            }
            for path, runs, problems in found
        ]
        print(json.dumps(listed, indent=2))
    else:
        for path, runs, problems in found:
            for problem in problems:
                print(f"{path}: {problem}")
            if not problems:
                print(f"{path}: good; {runs['virtual']} virtual runs, {runs['live']} live ones")
    return BAD_FILE if any(problems for _, _, problems in found) else PASSED


def _told(paths: list[Path], what: str) -> Iterator[Path]:
    """Files one after the other, with a progress line on standard error: a file takes a tenth of a second."""
    with RestingProgress(terminal.console(stderr=True), f"scenario {what}", size=len(paths)) as progress:
        for number, path in enumerate(paths):
            progress.share(number / len(paths), f"reading {path.name}")
            yield path


def _problems_at_scales(path: Path) -> list[Any]:
    """Mistakes of a file that is good without a scale, at each of its scales."""
    document, problems = read(path), []
    for scale in document.raw.get("scale") or {}:
        try:
            plan_runs(document, "virtual", scale=scale)
        except ScenarioError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    return problems


def listing(as_json: bool) -> int:
    """The scenarios that come with the testbed."""
    rows = []
    for path in _told(sorted(SCENARIOS.glob("*.yaml"), key=_order), "list"):
        try:
            runs = plan_runs(read(path), "virtual").runs
            first = runs[0].scenario
            rows.append((path.stem, first.paper.id if first.paper else "", first.title, len(runs)))
        except ScenarioError as error:
            rows.append((path.stem, "?", f"cannot be read: {error.problems[0]}", 0))
    if as_json:
        print(json.dumps([dict(zip(("name", "paper", "title", "runs"), row, strict=True)) for row in rows], indent=2))
        return PASSED
    table = Table(box=None, pad_edge=False)
    for column in ("name", "paper", "runs", "title"):
        table.add_column(column, overflow="fold")
    for name, paper, title, count in rows:
        table.add_row(name, paper, str(count), escape(title))
    terminal.console().print(table)
    return PASSED


def _order(path: Path) -> tuple[int, int, str]:
    digits = "".join(char for char in path.stem[1:3] if char.isdigit())
    return (0, int(digits), path.stem) if path.stem.startswith("e") and digits else (1, 0, path.stem)


def show(name: str, as_json: bool) -> int:
    """A scenario as it will be run: its runs, faults with all random choices resolved, rules."""
    from mrc_testbed.experiments.metrics.assertions import describe
    from mrc_testbed.experiments.resolve.sizes import size_lines

    (path,) = find([name])[:1]
    runs = plan_runs(read(path), "virtual").runs
    plan, first = runs[0], runs[0].scenario
    timeline = [f"{step.time}: {step}" for step in plan.steps()]
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
            "faults": timeline,
            "expect": rules,
        }
        print(json.dumps(data, indent=2))
        return PASSED
    lines = [f"{first.name}: {first.title}"]
    if first.paper:
        lines.append(f"paper: {first.paper.id} {first.paper.figure}: {first.paper.saw}")
        told = (("scaled", first.paper.scaled), ("cannot show", first.paper.cannot))
        lines += [f"  {word}: {text}" for word, text in told if text]
    more = f" and {len(runs) - 12} more (--json has them)" if len(runs) > 12 else ""
    lines += [
        f"fabric: {plan.fabric}, mode {plan.fabric.mode}",
        *(f"  {line}" for line in sizes),
        f"runs ({len(runs)}): {', '.join(run.name for run in runs[:12])}{more}",
        *(["faults of the first run:", *(f"  {line}" for line in timeline)] if timeline else ["no faults"]),
        *(
            ["expected:", *(f"  {rule}" for rule in rules)]
            if rules
            else ["nothing is expected but what every run must hold"]
        ),
    ]
    print(terminal.Style.of(sys.stdout).fold("\n".join(lines)))
    return PASSED


def compare(a: Path, b: Path, as_json: bool) -> int:
    """Print the differences of two result folders; the exit code is always 0."""
    from mrc_testbed.experiments import compare as comparing

    data = comparing.compared(a, b)
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        comparing.show(data, terminal.console())
    return PASSED
