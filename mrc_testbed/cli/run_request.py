"""The options of `mrc run`, and the rules about which of them go together.

RULES is the only place of such a rule: `check` goes through it, an error is made of its row, and docs/commands.md has
the same rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.options import (
    PLACEMENTS,
    TRACES,
    ComputeScale,
    ExecutorChoice,
    Groups,
    Json,
    LabChoice,
    SizeScale,
    TraceRanks,
    replay_options,
)
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.experiments.traces.command import Replay

CPUS = os.cpu_count() or 1
LIVE_RUNS, ROOT_RUNS, VIRTUAL_RUNS, FLUID_RUNS = (
    "live runs",
    "live runs by root",
    "runs in virtual time",
    "runs on the fluid model",
)
FILE_RUNS, TRACE_RUNS = "runs of scenario files", "runs of a trace"
NEW_RESULTS, RESUMED_RESULTS = "new results", "resumed results"


class RunRule(NamedTuple):
    """Kinds of runs that an option is for; in others it is refused."""

    option: str
    run_kinds: tuple[str, ...]
    advice: str
    """Reason and cure."""

    @property
    def text(self) -> str:
        """The rule as the error that it makes."""
        return f"{self.option} is for {' or '.join(self.run_kinds)}: {self.advice}"


_OF_TRACE = "it says how a trace is replayed; give --trace too, or leave it out"
RULES = (
    RunRule("--virtual", (VIRTUAL_RUNS,), "--fluid has no packets; leave one of the two out"),
    RunRule("--rootless", (LIVE_RUNS, VIRTUAL_RUNS), "the fluid model needs no root; leave it out"),
    RunRule("--servers", (ROOT_RUNS,), "root sets each machine up; leave --virtual, --fluid and --rootless out"),
    RunRule("--wires", (LIVE_RUNS,), "others have no switches to link; leave it out"),
    RunRule("--dash", (LIVE_RUNS,), "of others `mrc dash DIR` makes the page when they are over"),
    RunRule("--scale", (VIRTUAL_RUNS, FLUID_RUNS), "a live fabric keeps its file's size; give --virtual or --fluid"),
    RunRule("--resume", (VIRTUAL_RUNS,), "others are made again from the start; give --virtual too"),
    RunRule(
        "--executor",
        (VIRTUAL_RUNS,),
        "fluid runs take seconds, live ones have --servers; give --virtual, or leave it out",
    ),
    RunRule("--halves", (VIRTUAL_RUNS,), "live and fluid runs have no halves; leave it out"),
    RunRule("--out", (NEW_RESULTS,), "--resume says where the results are; leave --out out"),
    RunRule("FILE", (FILE_RUNS,), "--trace makes its own scenario; give it alone (a file may have `{trace: ...}`)"),
    *(
        RunRule(option, (TRACE_RUNS,), _OF_TRACE)
        for option in (
            "--groups",
            "--ranks",
            "--iterations",
            "--fault",
            "--against",
            "--fabric",
            "--compute-scale",
            "--size-scale",
            "--placement",
        )
    ),
)


@dataclass(frozen=True)
class RunRequest(LabChoice, ExecutorChoice):
    """Options of one `mrc run`."""

    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            autocompletion=offer.scenarios,
            help="Scenario files, folders of them, or names (`e10`); none with --trace.",
        ),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            rich_help_panel=TRACES,
            help="Replay a trace instead: a file of it, or the folder with one a rank (docs/traces.md has the kinds).",
        ),
    ] = None
    groups: Groups = None
    ranks: TraceRanks = None
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            rich_help_panel=TRACES,
            min=1,
            max=100,
            help="Number of replays of a trace (default: 1; with --fault, as many as last beyond it).",
        ),
    ] = None
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            rich_help_panel=TRACES,
            metavar="PHRASE",
            help="Fault during a replay, in the words of the prompt: `cut p1-t0-0 p1-t1-1 at 3 s for 2 s`.",
        ),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            rich_help_panel=TRACES,
            metavar="NAMES",
            help="Baselines replayed beside MRC: rocev2, flow-ecmp, ecmp, stev, switch-spray, with commas between.",
        ),
    ] = None
    fabric: Annotated[
        str | None,
        typer.Option(
            "--fabric",
            rich_help_panel=TRACES,
            metavar="KEY=VALUE,...",
            help="Fabric of a replay: planes, racks, spines, hosts_per_rack, rate, rtt: `planes=8,rate=100G,rtt=10us`.",
        ),
    ] = None
    compute_scale: ComputeScale = 1.0
    size_scale: SizeScale = 1.0
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            rich_help_panel=TRACES,
            autocompletion=offer.one_of(*PLACEMENTS),
            help="Ranks of a trace rack by rack (packed), one of each rack in turn (spread), or random.",
        ),
    ] = PLACEMENTS[0]
    virtual: Annotated[bool, typer.Option("--virtual", help="Run in virtual time: no root, exact, repeatable.")] = False
    fluid: Annotated[
        bool, typer.Option("--fluid", help="Run on the fluid model: rates instead of packets, fabrics of any size.")
    ] = False
    seed: Annotated[int | None, typer.Option("--seed", help="Seed in place of the scenario's.")] = None
    repeat: Annotated[int | None, typer.Option("--repeat", min=1, help="Repeats of each run; seeds count up.")] = None
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the results (default: results/NAME-TIME).")] = (
        None
    )
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Virtual runs side by side (default: number of CPUs).")] = (
        CPUS
    )
    halves: Annotated[
        bool,
        typer.Option(
            "--halves", help="Virtual runs one after the other, each on two CPUs: for a single run of many hosts."
        ),
    ] = False
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale", autocompletion=offer.one_of("paper"), help="Scale of the file, such as `paper`; not live."
        ),
    ] = None
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            help="Folder of earlier results of the same files to complete, in place of --out; virtual only.",
        ),
    ] = None
    dash: Annotated[
        bool, typer.Option("--dash", help="Open the live view: a page that draws the fabric during the run; live only.")
    ] = False
    as_json: Json = False

    @property
    def backend(self) -> str:
        """Back end of the runs: "live", "virtual" or "fluid"."""
        return "fluid" if self.fluid else "virtual" if self.virtual or self.falls_back else "live"

    @property
    def falls_back(self) -> bool:
        """Whether a trace is replayed in virtual time because a live run has no root here."""
        wants_live = self.rootless or self.servers is not None or self.wires is not None or self.dash
        return self.trace is not None and not (self.virtual or self.fluid or wants_live) and os.geteuid() != 0

    @property
    def kinds(self) -> set[str]:
        """Kinds of these runs, in the words of the rules."""
        kinds = {
            "fluid": {FLUID_RUNS},
            "virtual": {VIRTUAL_RUNS},
            "live": {LIVE_RUNS} if self.rootless else {LIVE_RUNS, ROOT_RUNS},
        }
        return {
            *kinds[self.backend],
            FILE_RUNS if self.trace is None else TRACE_RUNS,
            NEW_RESULTS if self.resume is None else RESUMED_RESULTS,
        }

    def has(self, option: str) -> bool:
        """Whether an option of a rule has another value than its default."""
        name = "files" if option == "FILE" else option.removeprefix("--").replace("-", "_")
        (default,) = (field.default for field in fields(self) if field.name == name)
        return getattr(self, name) not in (default, [])

    def check(self) -> None:
        """Raises UsageError for the first rule that is broken, and when there is nothing to run."""
        kinds = self.kinds
        for rule in RULES:
            if self.has(rule.option) and kinds.isdisjoint(rule.run_kinds):
                raise UsageError(rule.text)
        if self.halves and self.executor_options().elsewhere:
            raise UsageError("--halves is for runs in processes of this command: leave --halves or --executor out")
        if not self.files and self.trace is None:
            raise UsageError("give scenarios (`mrc scenario list` shows them), or --trace FILE")

    def replay(self) -> tuple[Path, Replay] | None:
        """The trace to replay, and how. Raises UsageError."""
        if self.trace is None:
            return None
        options = replay_options(
            self.iterations,
            self.compute_scale,
            self.size_scale,
            self.groups,
            self.placement,
            ranks=self.ranks,
            faults=tuple(self.fault or ()),
            against=tuple(name.strip() for name in (self.against or "").split(",") if name.strip()),
            fabric=self.fabric,
        )
        return self.trace, options
