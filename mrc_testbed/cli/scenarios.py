"""`mrc run`, `mrc scenario ...`, `mrc compare` for cli/app.py, by experiments/command.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.options import (
    ComputeScale,
    ExecutorChoice,
    Groups,
    Json,
    SizeScale,
    TraceRanks,
    expand_options,
    replay_options,
)
from mrc_testbed.cli.run_request import CPUS, RunRequest
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import DISK_FULL_ERRNOS, UsageError

if TYPE_CHECKING:
    from mrc_testbed.experiments.live.live_run import LiveRunner

scenario_app = typer.Typer(
    help="Check, list and show scenario files.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", autocompletion=offer.scenarios, help="Scenario files, folders of them, or names (`e10`)."
    ),
]


def run(request: RunRequest) -> None:
    """Run scenarios, live or in virtual time, and judge them; exit code 0 when every rule held, else 1."""
    from mrc_testbed.experiments import command

    request.check()
    if request.falls_back:
        console(stderr=True).print("no root: in virtual time; sudo or --rootless makes it live", style="dim")
    replay, executor = request.replay(), request.executor_options()
    runner = _live_runner(request) if request.backend == "live" else None
    raise typer.Exit(
        command.run(
            request.files or [],
            backend=request.backend,
            seed=request.seed,
            repeat=request.repeat,
            out=request.out,
            jobs=request.jobs,
            as_json=request.as_json,
            live_runner=runner,
            scale=request.scale,
            resume=request.resume,
            replay=replay,
            executor=executor,
            halves=request.halves,
        )
    )


def _live_runner(request: RunRequest) -> LiveRunner:
    """The back end of live runs, with root. Raises UsageError, ServersError and FabricError."""
    lab = request.lab_options()
    request.take_root("run", page=request.dash, cure=", or give --virtual")
    from mrc_testbed.experiments.live.live_run import LiveRunner

    pages = None
    if request.dash:
        from mrc_testbed.dash.live_page import RunPages

        pages = RunPages(console(stderr=True).print)
    return LiveRunner(lab, pages, lambda text: console(stderr=True).print(text, style="dim", markup=False))


@scenario_app.command("trace", epilog="Examples: `mrc scenario trace step.goal` · `mrc scenario trace job.0.et --json`")
def show_trace(
    trace: Annotated[
        Path, typer.Argument(help="File of a trace, or the folder with one a rank (docs/traces.md has the kinds).")
    ],
    groups: Groups = None,
    ranks: TraceRanks = None,
    compute_scale: ComputeScale = 1.0,
    size_scale: SizeScale = 1.0,
    as_json: Json = False,
) -> None:
    """Check a trace for `mrc run --trace`: ranks, tasks, collectives, bytes, its time without a network."""
    from mrc_testbed.experiments.traces import command

    replay = replay_options(1, compute_scale, size_scale, groups, "packed", ranks=ranks)
    raise typer.Exit(command.show(trace, replay, as_json))


@scenario_app.command(epilog="Example: `mrc scenario convert examples/traces/simai.txt simai.goal`")
def convert(
    trace: Annotated[Path, typer.Argument(help="File of a trace, or the folder with one a rank (docs/traces.md).")],
    out: Annotated[Path, typer.Argument(help="GOAL text to write.")],
    groups: Groups = None,
    ranks: TraceRanks = None,
    compute_scale: ComputeScale = 1.0,
    size_scale: SizeScale = 1.0,
) -> None:
    """Write any trace as GOAL text, its collectives as messages, and say what was read."""
    from mrc_testbed.experiments.traces import command

    replay = replay_options(1, compute_scale, size_scale, groups, "packed", ranks=ranks)
    raise typer.Exit(command.convert(trace, out, replay))


@scenario_app.command("check", hidden=True, help="Check scenario files, as `mrc scenario validate` does.")
@scenario_app.command(epilog="Example: `mrc scenario validate scenarios/*.yaml`")
def validate(files: Files, as_json: Json = False) -> None:
    """Check scenario files and print each mistake with its line and column."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.validate(files, as_json))


@scenario_app.command("list")
def list_(as_json: Json = False) -> None:
    """List the scenarios that come with the testbed."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.listing(as_json))


@scenario_app.command(epilog="Example: `mrc scenario show e10`")
def show(
    name: Annotated[str, typer.Argument(autocompletion=offer.scenarios, help="Scenario file or name.")],
    as_json: Json = False,
) -> None:
    """Show a scenario as it runs: its runs, its faults with all random choices resolved, its rules."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.show(name, as_json))


@scenario_app.command(
    "new", epilog="Examples: `mrc scenario new` · `mrc scenario new mine.yaml --work training --fault loss`"
)
def write_scenario(
    *,
    file: Annotated[Path, typer.Argument(help="File to write; an existing one stays.")] = Path("mine.yaml"),
    work: Annotated[
        str | None, typer.Option("--work", help="stream, incast, permutation, all_reduce or training.")
    ] = None,
    hosts: Annotated[int | None, typer.Option("--hosts", help="Hosts, half of them in each of two racks.")] = None,
    fault: Annotated[
        str | None, typer.Option("--fault", help="cut, loss, blackhole, power_off or none, a third into the run.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Length of the run.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Baseline beside MRC: flow-ecmp, rocev2 or none.")
    ] = None,
) -> None:
    """Write a commented scenario of five answers, which runs at once; options answer without a question."""
    from mrc_testbed.experiments.language.new_scenario import BASELINES, FAULTS, WORKS, Answers, scenario_text
    from mrc_testbed.files.whole_files import write_whole

    if file.exists():
        raise UsageError(f"{file}: exists already; give another name")
    defaults = Answers()
    questions: tuple[tuple[str, object, object], ...] = (
        (f"What runs? ({', '.join(WORKS)})", work, defaults.work),
        ("On how many hosts?", hosts, defaults.hosts),
        (f"What breaks? ({', '.join(FAULTS)})", fault, defaults.fault),
        ("How many seconds long?", seconds, defaults.seconds),
        (f"Compared with what? ({', '.join(BASELINES)})", against, defaults.against),
    )
    # Without a terminal nobody can answer: the defaults do.
    asks = sys.stdin.isatty()
    values: list[Any] = [
        option if option is not None else typer.prompt(text, default=default, err=True) if asks else default
        for text, option, default in questions
    ]
    answers = Answers(*values)
    try:
        write_whole(file, scenario_text(answers).encode())
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        raise UsageError(f"{file}: cannot be written: {error.strerror}; give another place") from None
    print(f"{file}: written; run it: mrc run {file} --virtual")


def study(
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", autocompletion=offer.studies, help="Study file, or name (`loss`).")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the results (default: results/NAME-TIME).")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", help="Folder of earlier results of the same file to complete: finished runs are kept."
        ),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print the number and the duration of the runs, and run nothing.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs side by side on this machine.")] = CPUS,
    executor: ExecutorChoice,
    as_json: Json = False,
) -> None:
    """Run a scenario over seeds and parameters in virtual time until its confidence intervals suffice."""
    from mrc_testbed.experiments.study import command

    options = executor.executor_options()
    raise typer.Exit(
        command.run(file, out=out, resume=resume, jobs=jobs, executor=options, as_json=as_json, estimate=estimate)
    )


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of results, or folders that hold several.")
    ],
    out: Annotated[Path, typer.Option("--out", help="New folder for the merged results.")],
    as_json: Json = False,
) -> None:
    """Merge results: the same scenarios from other machines or with other seeds, or parts of a study."""
    from mrc_testbed.experiments import merge as merging

    raise typer.Exit(merging.run(folders, out, as_json))


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of results.")],
    b: Annotated[Path, typer.Argument(help="Folder of results to compare with it.")],
    as_json: Json = False,
) -> None:
    """Compare the metrics of two result folders: two seeds, two commits, live and virtual."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.compare(a, b, as_json))


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folder of results, or a folder of such folders.")
    ],
    summary: Annotated[
        bool, typer.Option("--summary", help="Sets side by side as Markdown, instead of pages.")
    ] = False,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FILE", help="All numbers and series as one Parquet file, instead of pages."),
    ] = None,
    nccl_tests: Annotated[
        Path | None,
        typer.Option(
            "--nccl-tests", metavar="FOLDER", help="Collectives in nccl-tests' JSON, a file each, instead of pages."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a self-contained page with pictures for each scenario's results, and an index for a set.

    Or give the results to other tools: a Parquet file, or nccl-tests' JSON.
    """
    import json

    if sum((summary, as_json, parquet is not None, nccl_tests is not None)) > 1:
        raise UsageError("--summary, --parquet, --nccl-tests and --json exclude each other: give one of them")
    # A shell's `results/*` also has the index that this command wrote there.
    folders = [folder for folder in folders if folder.name != "index.html" or not folder.is_file()] or folders
    if summary:
        from mrc_testbed.experiments.report.summary import summary as summary_text

        print(summary_text(folders), end="")
        return
    if parquet is not None or nccl_tests is not None:
        _export(folders, parquet, nccl_tests)
        return
    from mrc_testbed.experiments.report.page import report as write

    skipped: list[str] = []
    pages = []
    with Progress(console(stderr=True), "report", guess_s=3.0) as progress:
        for folder in folders:
            progress.step(f"drawing {folder}", quiet=True)
            pages += write(folder, skipped, progress.share)
    for text in skipped:
        print(f"{'left out':10s} {text}", file=sys.stderr)
    if as_json:
        entries = [
            {
                "page": str(p.folder / "report.html"),
                "title": p.title,
                "where": p.backend,
                "passed": p.passed,
                "state": p.state,
            }
            for p in pages
        ]
        print(json.dumps(entries, indent=2))
        return
    for page in pages:
        print(f"{page.state:10s} {page.folder / 'report.html'}")
    for folder in folders:
        if (folder / "index.html").exists():
            print(f"{'index':10s} {folder / 'index.html'}")


def _export(folders: list[Path], parquet: Path | None, nccl_tests: Path | None) -> None:
    """Write the results for other tools, and say to which files."""
    skipped: list[str] = []
    try:
        if parquet is not None:
            from mrc_testbed.experiments.export.tables import write_parquet

            print(f"{write_parquet(folders, parquet, skipped):,} rows  {parquet}")
        if nccl_tests is not None:
            from mrc_testbed.experiments.export.nccl_tests import write_nccl_tests

            for file in write_nccl_tests(folders, nccl_tests, skipped):
                print(file)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        raise UsageError(f"{parquet or nccl_tests}: {error.strerror}: give a place that can be written to") from None
    for text in skipped:
        print(f"{'left out':10s} {text}", file=sys.stderr)


def add_commands(app: typer.Typer) -> None:
    """Hang the commands into `mrc`."""
    app.add_typer(scenario_app, name="scenario")
    app.command(
        epilog="Examples: `mrc run e10` · `mrc run scenarios/*.yaml --virtual` · `mrc run my.yaml --virtual` · "
        "`mrc run e15 --virtual --scale paper --out DIR` · `mrc run e15 --virtual --scale paper --resume DIR` · "
        "`mrc run scenarios/*.yaml --virtual --executor slurm --out DIR` · "
        "`mrc run --trace step.goal --virtual --iterations 10` · "
        "`mrc run --trace step.goal --fault 'cut p1-t0-0 p1-t1-1 at 3 s' --against rocev2,flow-ecmp` · "
        "`mrc run e2 --fluid`"
    )(expand_options(run))
    app.command(
        epilog="Examples: `mrc study loss --out results/loss` · `mrc study my.yaml --estimate` · "
        "`mrc study loss --resume results/loss` · `mrc study loss --executor slurm --slurm partition=short`"
    )(expand_options(study))
    app.command(epilog="Example: `mrc merge node1/e15 node2/e15 --out results/e15`")(merge)
    app.command(epilog="Example: `mrc compare results/e10-live results/e10-virtual`")(compare)
    app.command(
        epilog="Examples: `mrc report results/` then open results/index.html · "
        "`mrc report results/ --parquet results.parquet` · `mrc report results/e15 --nccl-tests nccl/`"
    )(report)
