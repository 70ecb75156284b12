"""`mrc study` of failure rates: its runs, its months, and its output.

The folder has the runs in `samples/` and `paces-N/`, each a folder of results, and `failures.json` with the result.
"""

from __future__ import annotations

import gc
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from mrc_testbed.console import terminal
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.command import EXIT_FAILED, EXIT_PASSED, Display, find, print_resume_state
from mrc_testbed.experiments.executors.crew import Crew, NewsQueue
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.failure_cost.model import FailureStudy, read_failure_study
from mrc_testbed.experiments.failure_cost.report import as_table, write_page
from mrc_testbed.experiments.failure_cost.rows import Costs, Paces, pace_rows, result_rows, sample_rows
from mrc_testbed.experiments.failure_cost.samples import sample_costs, sample_paces
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.results import default_folder, refusal, refuse_taken
from mrc_testbed.experiments.runner import Checkpoint, RunReport, RunSet, plan_runs, run_scenario
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.signals import terminating

RESULT_FILE, RATES_FILE = "failures.json", "failures.yaml"
SCHEMA = "mrc-failures-results/1"
SAMPLES = "samples"
"""Folder of the packet runs; the fluid model's are `paces-1`, `paces-2`, ... by size."""


def run(path: Path, *, out: Path | None, resume: Path | None, jobs: int, as_json: bool) -> int:
    """Carry out the study and return the exit code. Raises ScenarioError for mistakes of its files."""
    console = terminal.console(stderr=as_json)
    study = read_failure_study(path)
    folder = resume or out or default_folder(path.stem)
    run_sets = plan_run_sets(study, path)
    folders = [folder / name for name in run_sets]
    if resume is None:
        refuse_taken([folder, *folders])
    gc.freeze()  # modules stay: what is collected after a run is the run's alone
    with ExitStack() as stack:
        stack.enter_context(terminating())
        reports = _make_runs(stack, console, run_sets, folder, jobs, resuming=resume is not None)
    costs = sample_costs(reports[SAMPLES].runs)
    _refuse_missing(study, costs)
    paces = {size: sample_paces(reports[f"paces-{number}"].runs) for number, size in enumerate(study.sizes, 1)}
    with console.status("drawing months of failures"):
        result = _result(study, path, folder, costs, paces, reports)
    try:
        write_whole(folder / RATES_FILE, path.read_bytes())
        write_whole(folder / RESULT_FILE, json.dumps(result, indent=2).encode())
        page = write_page(study, result, folder)
    except OSError as error:
        raise refusal(folder, error, "; the runs are whole") from None
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        console.print(as_table(result["rows"]))
        console.print("± : 95 % interval over drawn months (Student's t); low, mid, high: rates and times", style="dim")
        console.print(escape(f"page: {page}; all numbers: {folder / RESULT_FILE}"), soft_wrap=True)
    failed = [cause for report in reports.values() for cause in report.causes.items()]
    for name, cause in failed:
        console.print(escape(f"{name} failed: {cause}"), style="red", soft_wrap=True)
    return EXIT_FAILED if failed else EXIT_PASSED


def plan_run_sets(study: FailureStudy, path: Path) -> dict[str, RunSet]:
    """Return the planned runs by the name of their folder. Raises ScenarioError, UsageError."""

    def file_of(name: str) -> Path:
        sibling = path.parent / name
        return sibling if sibling.is_file() else find([name])[0]

    samples, paces = read(file_of(study.samples.scenario)), read(file_of(study.paces.scenario))
    out = {SAMPLES: plan_runs(samples, "virtual", repeat=study.samples.seeds)}
    for number, size in enumerate(study.sizes.values(), 1):
        out[f"paces-{number}"] = plan_runs(paces, "fluid", repeat=size.seeds or study.paces.seeds, scale=size.scale)
    return out


def _make_runs(
    stack: ExitStack, console: Console, run_sets: dict[str, RunSet], folder: Path, jobs: int, *, resuming: bool
) -> dict[str, RunReport]:
    """Make the missing runs: packets in worker processes, the fluid model meanwhile in this one."""
    checkpoints: dict[str, Checkpoint] = {}
    for name, run_set in run_sets.items():
        open_folder = Checkpoint.resume if resuming else Checkpoint.create
        checkpoints[name] = open_folder(run_set, folder / name)
        stack.callback(checkpoints[name].results.stop)
        if resuming:
            checkpoint = checkpoints[name]
            print_resume_state(console, name, checkpoint.damages, len(checkpoint.outcomes), len(run_set.runs))
    pending = {name: checkpoints[name].runs_to_make(run_set) for name, run_set in run_sets.items()}
    news_queue: NewsQueue | None = None
    if pending[SAMPLES]:
        crew: Crew = WorkerPool(jobs)
        stack.enter_context(crew)
        news_queue = crew.hand_in(pending[SAMPLES], store=checkpoints[SAMPLES].results.store)
    display = stack.enter_context(Display(console, len(run_sets), sum(map(len, pending.values()))))
    reports = {}
    # The samples last: their worker processes compute while the fluid model runs here.
    for name in [*(name for name in run_sets if name != SAMPLES), SAMPLES]:
        display.scenario(name, len(run_sets[name].runs))
        queue = news_queue if name == SAMPLES else None
        reports[name] = run_scenario(run_sets[name], display, news_queue=queue, checkpoint=checkpoints[name])
    return reports


def _refuse_missing(study: FailureStudy, costs: Costs) -> None:
    """Raise UsageError when the samples lack a failure or a transport of the study."""
    for transport in study.transports:
        for rate in study.rates:
            for level in ("low", "mid", "high"):
                sample = rate.sample_at(level, study.times)
                if (transport, sample) not in costs:
                    raise UsageError(
                        f"{study.samples.scenario}: no sample of {sample!r} under {transport!r}, which the rates of "
                        f"{rate.failure} name: add it to the scenario's sweep, or change `sample`"
                    )


def _result(
    study: FailureStudy, path: Path, folder: Path, costs: Costs, paces: Paces, reports: dict[str, RunReport]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "study": path.stem,
        "title": study.title,
        "folder": str(folder),
        "digests": {name: report.digest for name, report in reports.items()},
        "days": study.days,
        "rows": result_rows(study, costs, paces),
        "samples": sample_rows(costs),
        "paces": pace_rows(paces),
    }
