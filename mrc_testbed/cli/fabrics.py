"""Fabrics as things: `mrc ls`, `mrc attach`, `mrc down`, `mrc clean`, `mrc exec`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.options import FabricName, Json, ServersFile, asked_folder, read_servers, require_root
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import Cell, Style, console, table
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.ipc.fabrics import FabricRecord
    from mrc_testbed.topologies.lab.fabric import Fabric
    from mrc_testbed.topologies.servers import Servers

DOWN_S = 2.0
"""Duration of the removal of a fabric, an estimate for the first time, seconds."""
POLL_MS = 200

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", autocompletion=offer.fabrics, help="Name of the fabric (default: the only one)."),
]


def folder_for(name: str | None) -> Path:
    """Return the run folder of a fabric that is brought up; without a name the first free one's.

    Raises UsageError when a fabric of that name is up.
    """
    from mrc_testbed.ipc.fabrics import Fabrics

    fabrics = Fabrics()
    folder = fabrics.folder(fabrics.free_name() if name is None else name)
    for record in fabrics.records():
        if record.is_alive and record.name == name:
            raise UsageError(
                f"the fabric {name} is up already (pid {record.state.front_pid}). Cure: `mrc attach {name}`, "
                f"`mrc down {name}`, or another --name"
            )
    return folder


def print_where(fabric: Fabric, *, detached: bool) -> None:
    """Print the name and the ports of a fabric beside others, and how to reach one in the background."""
    from mrc_testbed.ipc.fabrics import Fabrics
    from mrc_testbed.ipc.rundir import FIRST_NAME

    name = Fabrics.name_of(fabric.run_dir.path)
    ports = ", ".join(f"{purpose} {number}" for purpose, number in sorted(fabric.run_dir.state.ports.items()))
    if name != FIRST_NAME or fabric.plan.interface_prefix:
        begin = fabric.plan.interface_prefix
        names = f", interfaces of its switches {begin}p0-t0-0-eth1 ..." if begin else ""
        print(f"fabric {name}: ports {ports}{names}")
    if detached:
        print(f"{name} is up: `mrc attach {name}` opens its prompt, `mrc down {name}` removes it")


def list_fabrics(as_json: Json = False) -> None:
    """List the fabrics of this machine: name, state, mode, size, hosts, begin, pid, ports."""
    from mrc_testbed.ipc.fabrics import Fabrics

    records = Fabrics().records()
    if as_json:
        print(json.dumps([_to_json(record) for record in records], indent=2))
        return
    if not records:
        print("no fabric is up: `mrc up` starts one, `mrc up -d` in the background")
        return
    looks = {"up": "good", "starting": "warn", "dead": "bad"}
    style = Style.for_stream(sys.stdout)
    rows: list[list[Cell]] = []
    for record in records:
        data = _to_json(record)
        ports = " ".join(f"{purpose} {number}" for purpose, number in data["ports"].items())
        state: Cell = (data["state"], looks[data["state"]])
        rows.append(
            [record.name, state, data["mode"], data["size"], str(data["hosts"]), data["since"], str(data["pid"]), ports]
        )
    print(table(style, ("name", "state", "mode", "size", "hosts", "since", "pid", "ports"), rows))
    for record in records:
        if not record.is_alive:
            print(style.fold(f"{record.name} is dead: its front process has gone. Cure: `mrc clean` removes the rest"))


def _to_json(record: FabricRecord) -> dict[str, Any]:
    from mrc_testbed.topologies.plan import Plan

    plan = Plan.from_json(record.plan) if record.plan else None
    return {
        "name": record.name,
        "state": record.condition,
        "mode": str(plan.mode) if plan else "-",
        "size": f"{plan.planes} x ({plan.racks} T0 + {plan.spines} T1)" if plan else "-",
        "hosts": len(plan.hosts) if plan else 0,
        "since": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.state.began_at)),
        "pid": record.state.front_pid,
        "ports": record.ports(),
        "command": record.state.command,
        "run_dir": str(record.files.path),
    }


def take_down(
    name: Name = None,
    every: Annotated[bool, typer.Option("--all", help="Take every fabric down.")] = False,
    as_json: Json = False,
) -> None:
    """Take a fabric down: end its processes and remove all that it made; of a dead one, what it left.

    Fabrics of root need root; those of --rootless are their user's, whose command sees no other.
    """
    from mrc_testbed.ipc.fabrics import Fabrics

    if every and name is not None:
        raise UsageError(f"--all takes every fabric down: leave out {name}")
    fabrics = Fabrics()
    records = fabrics.records() if every else [fabrics.choose(name, dead=True)]
    if not records and not as_json:
        print("no fabric is up")
    lines = console(stderr=as_json)
    removals = []
    for record in records:
        with Progress(lines, "down", guess_s=DOWN_S, text=f"removing {record.name}"):
            leftovers = _end(record)
        removals.append({"name": record.name, "state": record.condition, "removed": leftovers})
        if not as_json:
            print(f"{record.name} is down" + (f": removed {', '.join(leftovers)}" if leftovers else ""))
    if as_json:
        print(json.dumps(removals, indent=2))


def _end(record: FabricRecord) -> list[str]:
    """End the front process of a fabric, which removes everything, and remove what is left; return that.

    Raises FabricError when something will not go.
    """
    from mrc_testbed.ipc.rundir import RunDir

    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(record.state.front_pid)
        try:
            if record.is_alive:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
                _wait_for_end(record, pidfd)
        finally:
            os.close(pidfd)
    with RunDir(record.files.path) as run_dir:
        return run_dir.clean_leftovers()


def _wait_for_end(record: FabricRecord, pidfd: int) -> None:
    """Wait until a front process has ended. Raises FabricError when it does nothing more."""
    from mrc_testbed.ipc.patience import LocalWork, Patience
    from mrc_testbed.ipc.rundir import FabricError

    patience = Patience()
    patience.follow(record.name, LocalWork(record.state.front_pid))
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    while not poll.poll(POLL_MS):
        patience.update()
        if patience.is_over(record.name):
            raise FabricError(
                f"{record.name} (pid {record.state.front_pid}) does not end. Cure: `kill -9 {record.state.front_pid}`, "
                f"then `mrc down {record.name}` again"
            )


def clean(servers: ServersFile = None) -> None:
    """Remove the leftovers of killed runs: interfaces, processes and files that their run folders record.

    A living fabric stays. With --servers, clean each of those machines too.
    """
    from mrc_testbed.ipc.fabrics import Fabrics
    from mrc_testbed.ipc.rundir import RunDir

    machines = read_servers(servers)
    fabrics = Fabrics()
    records = fabrics.records()
    for record in records:
        if record.is_alive:
            cure = f"`mrc down {record.name}` ends it"
            print(f"clean: {record.name} is up and stays (pid {record.state.front_pid}): {cure}")
            continue
        with RunDir(record.files.path) as run_dir:
            leftovers = run_dir.clean_leftovers()
        print(f"clean: removed {', '.join(leftovers)}" if leftovers else f"clean: {record.name} left nothing behind")
    if not any(record.files.path == fabrics.base for record in records):  # files of a run without a record
        if fabrics.base.exists() and fabrics.base.stat().st_uid != os.geteuid():
            print(f"clean: nothing of yours to do ({fabrics.base} is another user's). Cure for that: use sudo")
        elif fabrics.base.exists():
            with RunDir(fabrics.base) as run_dir:
                run_dir.clean_leftovers()
            if not records:
                print("clean: nothing was left behind")
        elif not records:
            print(f"clean: nothing to do ({fabrics.base} does not exist)")
    if machines is not None:
        _clean_machines(machines)


def _clean_machines(machines: Servers) -> None:
    """Clean up on each machine of the file after this one. Exit code 1 when one could not be cleaned."""
    import tempfile

    from mrc_testbed.ipc.rundir import FabricError, RunDir
    from mrc_testbed.topologies.lab.cluster.remote_machine import RemoteMachine

    failed = False
    with tempfile.TemporaryDirectory(prefix="mrc-clean-") as sockets:
        for machine in machines.machines:
            if machine.is_local:
                continue
            try:
                report = RemoteMachine(machine, RunDir(sockets), lambda _part, _reason: None).clean()
                print(f"{machine.name}: {report}", flush=True)
            except FabricError as error:
                failed = True
                print(f"{machine.name}: {error}", file=sys.stderr, flush=True)
    if failed:
        raise typer.Exit(1)


def attach(name: Name = None) -> None:
    """Open a prompt on a fabric that is up; `detach` or Ctrl-D leaves it running."""
    from mrc_testbed.cli.host_shell import node_words
    from mrc_testbed.cli.prompt.attached import AttachedCLI
    from mrc_testbed.cli.running_fabric import RunningFabric
    from mrc_testbed.ipc.fabrics import Fabrics

    folder = asked_folder(Fabrics().choose(name).name)
    cli = AttachedCLI(
        Fabrics.name_of(folder), RunningFabric(folder), lambda node, words: node_words(folder, node, words)
    )
    cli.attach()
    raise typer.Exit(1 if cli.failures and not cli.session.is_terminal else 0)


def execute(
    node: Annotated[str, typer.Argument(autocompletion=offer.nodes, help="Host or switch of the running fabric.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="Program and its arguments; none: a shell.")
    ] = None,
    stay_here: Annotated[
        bool,
        typer.Option("--here", help="Stay in this terminal's network; only the RDMA device is the host's."),
    ] = False,
    dlopen: Annotated[
        bool,
        typer.Option("--dlopen", help="Let the program find libmrc as libibverbs.so.1 too."),
    ] = False,
    fabric: FabricName = None,
) -> None:
    """Run a program in a host of the running fabric, at this terminal; without a program, a shell.

    Programs that use RDMA find the host's device, mrc0 (docs/rdma-programs.md). A user whom `mrc up --allow` lets in
    needs no root, with --here.
    """
    from mrc_testbed.cli.guest import find_guest
    from mrc_testbed.cli.host_shell import run_as_guest, run_in_node

    if (guest := find_guest(fabric)) is not None:
        run_as_guest(guest, node, words or [], stay_here=stay_here, dlopen=dlopen)
    folder = asked_folder(fabric)
    require_root("exec", ", or let root start the fabric with `mrc up --allow USER`")
    run_in_node(folder, node, words or [], stay_here=stay_here, dlopen=dlopen)


def ssh(
    context: typer.Context,
    node: Annotated[str, typer.Argument(autocompletion=offer.nodes, help="Host or switch of the running fabric.")],
    fabric: FabricName = None,
) -> None:
    """Let sh run words in a host: ssh's command line, for mpirun and others that start by ssh."""
    execute(node, ["sh", "-c", " ".join(context.args)] if context.args else [], fabric=fabric)


def train(
    context: typer.Context,
    program: Annotated[str, typer.Argument(help="Python program of a rank, such as examples/ddp.py.")],
    ranks: Annotated[int, typer.Option("--ranks", min=1, help="Number of ranks, each on a host of its own.")] = 2,
    hosts: Annotated[str, typer.Option("--hosts", help="Hosts of the ranks in order, e.g. h0,h2.")] = "",
    backend: Annotated[
        str, typer.Option("--backend", help="mrc; gloo, over the fabric's IP; or loopback: gloo without the fabric.")
    ] = "mrc",
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Train a PyTorch model on hosts of the running fabric, with a line a step (docs/training.md)."""
    from mrc_testbed.capture.pcap import running_plan
    from mrc_testbed.cli.training import TrainingJob, check_program, choose_hosts
    from mrc_testbed.hosts.jobs.training import BACKENDS

    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}: must be one of {', '.join(BACKENDS)}")
    words = [program, *context.args]
    check_program(words)
    folder = asked_folder(fabric)
    require_root("train")
    plan = running_plan(folder)
    chosen_hosts = choose_hosts(plan, [name for name in hosts.split(",") if name], ranks)
    output = sys.stderr if as_json else sys.stdout
    training = TrainingJob(folder, plan, chosen_hosts, backend, lambda line: print(line, file=output, flush=True))
    status = training.run(words)
    if as_json:
        print(json.dumps(training.to_json(status), indent=2))
    raise typer.Exit(status)


EPILOGS: dict[str, tuple[Callable[..., None], str]] = {
    "ls": (list_fabrics, "Examples: `mrc ls` · `mrc ls --json`"),
    "attach": (attach, "Examples: `mrc attach` · `mrc attach b` · `mrc attach b < commands`"),
    "exec": (
        execute,
        "Examples: `mrc exec h0` · `mrc exec h0 -- ping -c 3 h2` · `mrc exec h0 --fabric b -- ip addr` · "
        "`mrc exec h0 -- ib_write_bw -d mrc0 h2` · `mrc exec h0 --here -- ./write`",
    ),
    "ssh": (
        ssh,
        'Examples: `mrc ssh h0 ip addr` · `mpirun --mca plm_rsh_agent "mrc ssh" -H h0,h2 PROGRAM` (docs/training.md)',
    ),
    "train": (
        train,
        "Examples: `mrc train examples/ddp.py` · `mrc train --ranks 4 examples/ddp.py --steps 50` · "
        "`mrc train --backend gloo examples/ddp.py`",
    ),
    "down": (take_down, "Examples: `mrc down` · `mrc down b` · `mrc down --all`"),
    "clean": (clean, "Examples: `mrc clean` · `mrc clean --servers servers.yaml`"),
}
"""Name of a command -> its function, and its examples."""
_WITH_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
SETTINGS = {"ssh": _WITH_WORDS, "train": _WITH_WORDS}
"""Settings of commands whose words behind the first are another program's, options too."""


def add_to(app: typer.Typer) -> None:
    """Give `mrc` these commands."""
    for name, (command, epilog) in EPILOGS.items():
        app.command(name, epilog=epilog, context_settings=SETTINGS.get(name))(command)
