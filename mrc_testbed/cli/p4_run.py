"""`mrc p4 run`: a P4 program of one's own on live switches, between hosts with Linux's own stacks."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_testbed.cli.options import require_root
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.topologies.p4lab.lab import P4Lab

FIRST_PORT = 50051
PORT_MAX = 65000


def run_program(
    program: Annotated[
        Path | None, typer.Argument(metavar="[PROGRAM]", help="P4 program of the switches that name no other.")
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option("--topology", "-t", help="topology.json of the P4 tutorials (default: h1 - s1 - h2)."),
    ] = None,
    entries: Annotated[
        list[str] | None,
        typer.Option(
            "--entries",
            metavar="[SWITCH=]FILE",
            help="Entries of a switch (s1), sX-runtime.json of the P4 tutorials; repeatable.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option("--port", min=1, max=PORT_MAX, help="TCP port of P4Runtime of the first switch; the next follow."),
    ] = FIRST_PORT,
    open_: Annotated[
        bool, typer.Option("--open", help="Let controllers connect without the run's token, as p4runtime_lib does.")
    ] = False,
) -> None:
    """Bring up switches with a P4 program and hosts with Linux's own stacks, and open the Mininet prompt.

    At the prompt `reload` compiles the program again and swaps it under traffic; entries that fit stay.
    """
    require_root("p4 run")
    from mrc_testbed.cli.prompt.lab_shell import LabCLI
    from mrc_testbed.console.progress import Progress
    from mrc_testbed.console.terminal import console
    from mrc_testbed.topologies.p4lab.lab import LabPrograms, P4Lab
    from mrc_testbed.topologies.p4lab.topology import pair_topology, read_topology

    lab_topology = read_topology(topology) if topology is not None else pair_topology()
    if program is None and any(switch.program is None for switch in lab_topology.switches):
        raise UsageError("no program: the topology names none for each switch. Cure: `mrc p4 run my.p4`")
    names = [switch.name for switch in lab_topology.switches]
    programs = LabPrograms(program, _entry_files(entries or [], names), port, open_)
    with ExitStack() as stack:
        with Progress(console(), "p4 run", guess_s=2.0, size=len(names)) as progress:
            lab = stack.enter_context(P4Lab(lab_topology, programs, progress=progress.step))
        _print_start(lab)
        failures = LabCLI(lab).run_session()
    raise typer.Exit(1 if failures and not sys.stdin.isatty() else 0)


def _entry_files(words: list[str], switches: list[str]) -> dict[str, Path]:
    """Return the files of entries by switch. Raises UsageError."""
    files: dict[str, Path] = {}
    for word in words:
        name, mark, path = word.rpartition("=")
        name = name if mark else switches[0]
        if name not in switches:
            raise UsageError(f"--entries {word}: no switch {name!r} (has: {', '.join(switches)})")
        files[name] = Path(path)
    return files


def _print_start(lab: P4Lab) -> None:
    """Print what there is, and how others connect."""
    print(f"{lab.topology}. `help` lists the commands, `exit` ends and removes everything.")
    for switch in lab.topology.switches:
        address = f"127.0.0.1:{lab.tcp_ports[switch.name]}, device {switch.device_id}"
        print(f"  {switch.name}  {lab.source(switch.name)}  P4Runtime {address}")
    if not lab.programs.open_to_all:
        print(f"  Controllers show the token in {lab.run_dir.token_file}; with --open none is wanted.")
    for notice in lab.notices:
        print(f"note: {notice}")
    sys.stdout.flush()
