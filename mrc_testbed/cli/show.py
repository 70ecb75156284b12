"""Read-only CLI commands in the shell: `mrc links`, `mrc evs h0 h2`, `mrc trace ...`.

They ask the processes of the fabric that `mrc up` runs in another terminal, through its run folder, and print what the
word would (docs/cli.md). Words that change something belong to the process that has to undo it, and are not here.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.options import FabricName, asked_folder
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.cli.guest import Guest

Host = Annotated[str, typer.Argument(autocompletion=offer.hosts, help="Host of the running fabric, e.g. h0.")]
Json = Annotated[bool, typer.Option("--json", help="Print data instead of a table.")]


def run_word(name: str, args: Sequence[str], as_json: bool, fabric_name: str | None, guest: Guest | None = None) -> int:
    """Run a read-only command on the running fabric; returns the exit code, 1 when it found something bad.

    `guest`: the fabric as a guest sees it, for the words that guests have.

    Raises UsageError and what words raise.
    """
    from mrc_testbed.cli.prompt.commands import WORDS, Answer, CliSession, Style
    from mrc_testbed.cli.prompt.commands import CommandError as WordError
    from mrc_testbed.cli.running_fabric import RunningFabric

    fabric = guest or RunningFabric(asked_folder(fabric_name))
    session = CliSession(fabric, sys.stdout, Style.for_stream(sys.stdout))  # type: ignore[arg-type]
    try:
        answer = WORDS[name].run(session, args)
    except WordError as error:
        raise UsageError(str(error)) from error
    if isinstance(answer, Answer) and as_json:
        print(json.dumps(answer.data, indent=2))
    elif answer:
        print(session.style.fold(answer.text if isinstance(answer, Answer) else answer))
    return 0


def check(
    probes: Annotated[int, typer.Argument(metavar="[PROBES]", min=1, help="Probes of each link, host and class.")] = 50,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Probe every link of the running fabric in both classes before a job; exit code 1 when one is bad."""
    from mrc_testbed.cli.prompt.commands.check import PROBE_S, check_fabric
    from mrc_testbed.cli.running_fabric import RunningFabric
    from mrc_testbed.console.terminal import Style

    running_fabric = RunningFabric(asked_folder(fabric))
    with Progress(console(stderr=True), "check", guess_s=PROBE_S * probes, size=probes):
        result = check_fabric(
            running_fabric.mapper,
            probes,
            lambda name: running_fabric.link_is_up(running_fabric.plan.link_named(name)),
        )
    style = Style.for_stream(sys.stdout)
    print(json.dumps(result.to_json(), indent=2) if as_json else style.fold(result.text(style)))
    raise typer.Exit(0 if result.ok else 1)


def links(
    node: Annotated[
        str | None, typer.Argument(autocompletion=offer.nodes, help="Node whose links are shown (default: all).")
    ] = None,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Show state, rate, delay, loss and use of the running fabric's links."""
    raise typer.Exit(run_word("links", [node] if node else [], as_json, fabric))


def faults(
    choice: Annotated[
        str | None,
        typer.Argument(
            metavar="[active|all]",
            autocompletion=offer.one_of("active", "all"),
            help="`active`: present faults only; `all`: every fault since the start (default: the last minute's).",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", help="Observations of a controller (its log/observations.jsonl); needs no fabric."),
    ] = None,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Show the faults that the running fabric's controller knows: root cause, time, observers.

    With --replay, show the diagnosis of a stored run by this version's controller, change by change, in virtual time.
    """
    if replay is None:
        raise typer.Exit(run_word("faults", [choice] if choice else [], as_json, fabric))
    if choice is not None:
        raise UsageError(f"--replay prints every change of its file: leave out {choice!r}")
    from mrc_testbed.capture.replay import replay_faults
    from mrc_testbed.console.terminal import Style

    replayed_faults = replay_faults(replay)
    print(
        json.dumps(replayed_faults.to_json(), indent=2)
        if as_json
        else Style.for_stream(sys.stdout).fold(replayed_faults.text())
    )


def evs(source: Host, destination: Host, fabric: FabricName = None, as_json: Json = False) -> None:
    """Show every path between two hosts of the running fabric: address, state, RTT, loss."""
    raise typer.Exit(run_word("evs", [source, destination], as_json, fabric))


def queues(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[SWITCH|PORT]",
            autocompletion=offer.switches_and_ports,
            help="Switch or port whose queues are shown (default: all).",
        ),
    ] = None,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Show the queues of the running fabric's switch ports: limits, waiting and dropped packets."""
    raise typer.Exit(run_word("queues", [target] if target else [], as_json, fabric))


def devices(
    host: Annotated[
        str | None, typer.Argument(autocompletion=offer.hosts, help="Host whose device is shown (default: all).")
    ] = None,
    flags: Annotated[
        bool, typer.Option("--flags", help="Print gcc's flags for programs that use mrc.h; needs no fabric.")
    ] = False,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Show the RDMA devices of the running fabric's hosts, and the programs that use them (mrc exec)."""
    if flags:
        from mrc_testbed.hosts.libmrc import compile_flags

        print(shlex.join(compile_flags()))
        return
    from mrc_testbed.cli.guest import find_guest

    words = [host] if host else []
    raise typer.Exit(run_word("devices", words, as_json, fabric, find_guest(fabric)))


def counters(
    switch: Annotated[
        str | None,
        typer.Argument(autocompletion=offer.switches, help="Switch whose counters are shown (default: all)."),
    ] = None,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Show the counters of the running fabric's P4 programs, by port and by reason."""
    raise typer.Exit(run_word("counters", [switch] if switch else [], as_json, fabric))


def trace(
    source: Annotated[str, typer.Argument(autocompletion=offer.hosts, help="Sending host, e.g. h0.")],
    destination: Annotated[str, typer.Argument(autocompletion=offer.hosts, help="Receiving host, e.g. h2.")],
    ev: Annotated[
        str, typer.Argument(autocompletion=offer.evs, help="EV such as 0x0101, or PLANE/UPLINK such as 1/1.")
    ],
    full: Annotated[bool, typer.Option("--full", help="Show every step of the program in each switch.")] = False,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Follow one packet through the running fabric: each switch's decision by its present tables.

    `mrc trace convert FILE OUT` is `mrc scenario convert`, for who looks for traces of jobs here.
    """
    if source == "convert":  # no host has this name
        from mrc_testbed.cli.scenarios import convert

        convert(Path(destination), Path(ev))
    from mrc_testbed.capture import trace as tracing

    raise typer.Exit(tracing.run(asked_folder(fabric), source, destination, ev, full=full, as_json=as_json))


EPILOGS: dict[Callable[..., None], str] = {
    check: "Examples: `mrc check` · `mrc check 200 --json`, while `mrc up` runs in another terminal",
    links: "Examples: `mrc links` · `mrc links p1-t0-0`",
    faults: "Examples: `mrc faults` · `mrc faults all --json` · `mrc faults --replay observations.jsonl`",
    evs: "Example: `mrc evs h0 h2`",
    queues: "Examples: `mrc queues` · `mrc queues p0-t0-0`",
    devices: "Examples: `mrc devices` · `mrc devices h0 --json` · `gcc write.c $(mrc devices --flags)`",
    counters: "Examples: `mrc counters` · `mrc counters p0-t0-0`",
    trace: "Examples: `mrc trace h0 h2 0x0101` · `mrc trace h0 h2 1/1 --full`",
}


def add_to(app: typer.Typer) -> None:
    """Give `mrc` these commands."""
    for command, epilog in EPILOGS.items():
        app.command(epilog=epilog)(command)
