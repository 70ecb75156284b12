"""`mrc run`, `mrc scenario ...`, `mrc compare` for cli/app.py; experiments/command.py carries them out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.console import units
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import FULL, UsageError

if TYPE_CHECKING:
    from mrc_testbed.experiments.executors.options import ExecutorOptions
    from mrc_testbed.experiments.traces.command import Replay

scenario_app = typer.Typer(
    help="Scenario files: check, list, look into.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CPUS = os.cpu_count() or 1
TRACES = "Traces"
"""Heading of the options that belong to --trace."""
PLACEMENTS = ("packed", "spread", "random")
SCALE_MAX = 1e6
TASK_TIME_MAX_S = 86400.0

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", autocompletion=offer.scenarios, help="Scenario files, folders of them, or names (`e10`)."
    ),
]
Groups = Annotated[
    Path | None,
    typer.Option(
        "--groups",
        rich_help_panel=TRACES,
        help='JSON with the ranks of each process group of a trace: {"0": [0, 1], ...}.',
    ),
]
ComputeScale = Annotated[
    float,
    typer.Option("--compute-scale", rich_help_panel=TRACES, min=0.0, help="Factor on the times that a trace computes."),
]
SizeScale = Annotated[
    float, typer.Option("--size-scale", rich_help_panel=TRACES, min=0.0, help="Factor on the sizes that a trace sends.")
]
CLUSTER = "Clusters"
"""Heading of the options that belong to --executor."""
Executor = Annotated[
    str,
    typer.Option(
        "--executor",
        rich_help_panel=CLUSTER,
        autocompletion=offer.one_of(*offer.EXECUTORS),
        help="Who makes virtual runs: processes here (`local`), a `slurm` or `ray` cluster, or processes of submitit "
        "(`submitit-local`).",
    ),
]
SlurmParameters = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        rich_help_panel=CLUSTER,
        metavar="KEY=VALUE",
        help="Parameter of sbatch, as submitit calls it: partition, account, qos, time (minutes), mem, ...",
    ),
]
TaskTime = Annotated[
    str,
    typer.Option(
        "--task-time",
        rich_help_panel=CLUSTER,
        metavar="TIME",
        help="Short runs are put together into tasks of at least so long, as estimated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout; progress on stderr.")]


def run(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            autocompletion=offer.scenarios,
            help="Scenario files, folders of them, or names (`e10`); none with --trace.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            rich_help_panel=TRACES,
            help="Replay a trace instead: a GOAL file, or a folder (or one file) of Chakra's .et.",
        ),
    ] = None,
    groups: Groups = None,
    iterations: Annotated[
        int, typer.Option("--iterations", rich_help_panel=TRACES, min=1, max=100, help="Times a trace is replayed.")
    ] = 1,
    compute_scale: ComputeScale = 1.0,
    size_scale: SizeScale = 1.0,
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            rich_help_panel=TRACES,
            autocompletion=offer.one_of(*PLACEMENTS),
            help="Ranks of a trace rack by rack (packed), one of each rack in turn (spread), or random.",
        ),
    ] = "packed",
    virtual: Annotated[bool, typer.Option("--virtual", help="In virtual time: no root, exact, repeatable.")] = False,
    fluid: Annotated[
        bool,
        typer.Option("--fluid", help="On the fluid model: rates instead of packets, fabrics of any size."),
    ] = False,
    target: Annotated[
        str,
        typer.Option(
            "--target", autocompletion=offer.one_of(*offer.TARGETS), help="Live switch: `embedded` or `bmv2`."
        ),
    ] = "embedded",
    wires: Annotated[
        str | None,
        typer.Option(
            "--wires",
            autocompletion=offer.one_of(*offer.WIRES),
            help="Live links between switches: `virtual` (default) or `veth` (all that bmv2 has).",
        ),
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option("--servers", help="Live on the machines of this file together (docs/cluster.md)."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Instead of the scenario's.")] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", min=1, help="Times each run; seeds count up.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the results (default: results/NAME-TIME).")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Virtual runs side by side (default: CPUs).")] = CPUS,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale", autocompletion=offer.one_of("paper"), help="A scale of the file, such as `paper`; not live."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            help="Go on with the results of the same files there (in the place of --out): what is whole is kept; "
            "virtual only.",
        ),
    ] = None,
    executor: Executor = "local",
    slurm: SlurmParameters = None,
    task_time: TaskTime = "60s",
    rootless: Annotated[
        bool, typer.Option("--rootless", help="Live without root, in a user namespace, where the kernel allows it.")
    ] = False,
    dash: Annotated[
        bool, typer.Option("--dash", help="With the live view: a page that draws the fabric while it runs; live only.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run scenarios, live in Mininet or in virtual time, and judge them; exit code 0 when every rule held, else 1."""
    from mrc_testbed.experiments import command

    if fluid and (virtual or rootless or dash):
        raise UsageError("--fluid needs no fabric and no root: leave --virtual, --rootless and --dash out")
    if rootless and not virtual:
        from mrc_testbed.dash.server import PREFERRED_PORT
        from mrc_testbed.doctor.rootless import enter

        enter("run", port=PREFERRED_PORT if dash else None)
    if servers is not None:
        from mrc_testbed.topologies.servers import read

        if virtual or fluid or rootless:
            raise UsageError(
                "--servers is of live runs with root on each machine: leave --virtual, --fluid, --rootless out"
            )
        read(servers)
    elif not (virtual or fluid) and scale is None and resume is None and os.geteuid() != 0:
        raise UsageError(
            "a live run needs root (network namespaces, raw sockets): run it with sudo, or give --virtual or --rootless"
        )
    if scale is not None and not (virtual or fluid):
        raise UsageError("--scale is for runs in virtual time or on the fluid model: give --virtual or --fluid too")
    if resume is not None and not virtual:
        raise UsageError("--resume is for runs in virtual time: give --virtual too")
    if (virtual or fluid) and wires is not None:
        raise UsageError("--wires is of live switches, which a virtual or fluid run has not: leave it out")
    where = "virtual" if virtual else "fluid" if fluid else "live"
    used = executor_options(executor, slurm, task_time)
    if used.elsewhere and not virtual:
        kind = "a run on the fluid model takes seconds" if fluid else "a live fabric on several machines is --servers"
        raise UsageError(f"--executor {executor} is for runs in virtual time ({kind}): give --virtual, or leave it out")
    if virtual and dash:
        raise UsageError("--dash is of live runs; of one in virtual time `mrc dash DIR` makes the page when it is over")
    options: dict[str, Any] = {} if virtual or fluid else {"target": target, "wires": wires, "servers": servers}
    if where == "live":
        options["waits"] = lambda text: console(stderr=True).print(text, style="dim", markup=False)
    if dash:
        from mrc_testbed.dash.live_page import RunPages

        options["watched"] = RunPages(console(stderr=True).print)
    replay = _replay(files, trace, groups, iterations, compute_scale, size_scale, placement)
    raise typer.Exit(
        command.run(
            files or [],
            where=where,
            seed=seed,
            repeat=repeat,
            out=out,
            jobs=jobs,
            as_json=as_json,
            options=options,
            scale=scale,
            resume=resume,
            replay=replay,
            executor=used,
        )
    )


def executor_options(name: str, slurm: list[str] | None, task_time: str) -> ExecutorOptions:
    """What --executor, --slurm and --task-time say. Raises UsageError."""
    from mrc_testbed.experiments.executors.options import ExecutorOptions

    given: dict[str, str] = {}
    for one in slurm or []:
        key, is_there, value = one.partition("=")
        if not (key and is_there and value):
            raise UsageError(f"--slurm {one}: give KEY=VALUE, such as partition=short")
        given[key.removeprefix("slurm_")] = value
    try:
        task_s = units.seconds(task_time)
    except units.UnitError as error:
        raise UsageError(f"--task-time: {error}") from None
    if not 0 < task_s <= TASK_TIME_MAX_S:
        raise UsageError(f"--task-time {task_time}: above 0, at most a day")
    return ExecutorOptions(name, task_s, given)


def _replay(
    files: list[str] | None, trace: Path | None, groups: Path | None, iterations: int, compute_scale: float,
    size_scale: float, placement: str,
) -> tuple[Path, Replay] | None:  # fmt: skip
    """What --trace asks for. Raises UsageError."""
    if trace is None:
        if not files:
            raise UsageError("give scenarios (`mrc scenario list` shows them), or --trace FILE")
        if (groups, iterations, compute_scale, size_scale, placement) != (None, 1, 1.0, 1.0, "packed"):
            raise UsageError("--groups, --iterations, --compute-scale, --size-scale and --placement belong to --trace")
        return None
    if files:
        raise UsageError(
            "--trace makes its own scenario: give it without files (a file has {trace: ...} as a workload)"
        )
    if placement not in PLACEMENTS:
        raise UsageError(f"--placement {placement}: give one of {', '.join(PLACEMENTS)}")
    return trace, _options(iterations, compute_scale, size_scale, groups, placement)


def _options(iterations: int, compute: float, size: float, groups: Path | None, placement: str) -> Replay:
    """Raises UsageError."""
    from mrc_testbed.experiments.traces.command import Replay

    for option, value in (("--compute-scale", compute), ("--size-scale", size)):
        if not 0 < value <= SCALE_MAX:
            raise UsageError(f"{option} {value:g}: above 0, at most {SCALE_MAX:g}")
    return Replay(iterations, compute, size, groups, placement)


@scenario_app.command("trace", epilog="Examples: `mrc scenario trace step.goal` · `mrc scenario trace job.0.et --json`")
def show_trace(
    trace: Annotated[Path, typer.Argument(help="GOAL file, folder of Chakra's .et files, or one of them.")],
    groups: Groups = None,
    compute_scale: ComputeScale = 1.0,
    size_scale: SizeScale = 1.0,
    as_json: Json = False,
) -> None:
    """A trace for `mrc run --trace`, checked: ranks, tasks, collectives, bytes, its time without a network."""
    from mrc_testbed.experiments.traces import command

    raise typer.Exit(command.show(trace, _options(1, compute_scale, size_scale, groups, "packed"), as_json))


@scenario_app.command(epilog="Example: `mrc scenario validate scenarios/*.yaml`")
def validate(files: Files, as_json: Json = False) -> None:
    """Read scenario files and say what is wrong with them, line by line."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.validate(files, as_json))


@scenario_app.command("list")
def list_(as_json: Json = False) -> None:
    """The scenarios that come with the testbed."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.listing(as_json))


@scenario_app.command(epilog="Example: `mrc scenario show e10`")
def show(
    name: Annotated[str, typer.Argument(autocompletion=offer.scenarios, help="Scenario file or name.")],
    as_json: Json = False,
) -> None:
    """A scenario as it will be run: its runs, its faults with all random choices resolved, its rules."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.show(name, as_json))


def study(
    file: Annotated[
        str, typer.Argument(metavar="FILE", autocompletion=offer.studies, help="Study file, or name (`loss`).")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the results (default: results/NAME-TIME).")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Go on with the results there, of the same file: what is whole is kept."),
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say how many runs it has, and how long.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs side by side on this machine.")] = CPUS,
    executor: Executor = "local",
    slurm: SlurmParameters = None,
    task_time: TaskTime = "60s",
    as_json: Json = False,
) -> None:
    """A scenario over seeds and parameters in virtual time: confidence intervals, as many seeds as they need."""
    from mrc_testbed.experiments.study import command

    used = executor_options(executor, slurm, task_time)
    raise typer.Exit(
        command.run(file, out=out, resume=resume, jobs=jobs, executor=used, as_json=as_json, estimate=estimate)
    )


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of results, or folders that hold several.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of all of them together; a new one.")],
    as_json: Json = False,
) -> None:
    """Results of several folders as one: the same scenarios on other machines or with other seeds, parts of a study."""
    from mrc_testbed.experiments import merge as merging

    raise typer.Exit(merging.run(folders, out, as_json))


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of results.")],
    b: Annotated[Path, typer.Argument(help="Folder of results to compare with it.")],
    as_json: Json = False,
) -> None:
    """Metrics of two result folders side by side: two seeds, two commits, live and virtual."""
    from mrc_testbed.experiments import command

    raise typer.Exit(command.compare(a, b, as_json))


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folder of results, or one that holds several.")
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
    """Make a self-contained page with pictures for each scenario's results, and an index for a set of them.

    Or give the results to other tools: a Parquet file, or nccl-tests' JSON.
    """
    import json

    if sum((summary, as_json, parquet is not None, nccl_tests is not None)) > 1:
        raise UsageError("--summary, --parquet, --nccl-tests and --json exclude each other: give one of them")
    # `results/*` of a shell also has the index that this command wrote there.
    folders = [one for one in folders if one.name != "index.html" or not one.is_file()] or folders
    if summary:
        from mrc_testbed.experiments.report.summary import summary as summed

        print(summed(folders), end="")
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
        listed = [
            {
                "page": str(p.folder / "report.html"),
                "title": p.title,
                "where": p.where,
                "passed": p.passed,
                "state": p.state,
            }
            for p in pages
        ]
        print(json.dumps(listed, indent=2))
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
        if error.errno in FULL:  # with an exit code of its own
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
        "`mrc run --trace step.goal --virtual --iterations 10` · `mrc run e2 --fluid`"
    )(run)
    app.command(
        epilog="Examples: `mrc study loss --out results/loss` · `mrc study my.yaml --estimate` · "
        "`mrc study loss --resume results/loss` · `mrc study loss --executor slurm --slurm partition=short`"
    )(study)
    app.command(epilog="Example: `mrc merge node1/e15 node2/e15 --out results/e15`")(merge)
    app.command(epilog="Example: `mrc compare results/e10-live results/e10-virtual`")(compare)
    app.command(
        epilog="Examples: `mrc report results/` then open results/index.html · "
        "`mrc report results/ --parquet results.parquet` · `mrc report results/e15 --nccl-tests nccl/`"
    )(report)
