"""Programs in a node of a running fabric, from any terminal: `mrc exec h0 -- CMD`; a shell for none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mrc_testbed.capture.pcap import running_plan
from mrc_testbed.cli.guest import Guest
from mrc_testbed.cli.prompt.word_client import WordClient
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.jobs.host_words import host_words, run_environment
from mrc_testbed.hosts.nicd.door import guest_environment
from mrc_testbed.ipc.framing import JsonlError
from mrc_testbed.ipc.rundir import FabricError, RunFiles, read_json

SHELL = ("bash",)


def node_words(
    folder: Path, node: str, words: Sequence[str], *, stay_here: bool = False, dlopen: bool = False
) -> list[str]:
    """Return the words that run a program in a node of the fabric in a run folder; none: a shell.

    A host's program finds the host's RDMA device; `stay_here`: in our network. `dlopen`: it finds libmrc as
    libibverbs.so.1 too. The program carries the run's token, so it ends with the fabric.

    Raises FabricError, BuildError, PlanError for no such node, and UsageError for no fabric.
    """
    files, environment = RunFiles(folder), list[str]()
    plan = running_plan(folder)
    if not words:
        words = SHELL
        # A user's own start file sets the prompt, so the name of the node is put before it afterwards, once.
        environment.append(f"PROMPT_COMMAND=PS1='{node}:\\w# '; unset PROMPT_COMMAND")
    if node not in {host.name for host in plan.hosts}:
        plan.switch(node)
        return ["env", *run_environment(folder), *environment, *words]  # switches are in the namespace of the machine
    pid = _pid_in(files, node)
    return host_words(
        folder,
        node,
        None if stay_here else pid,
        words,
        start_folder=os.getcwd(),
        dlopen=dlopen,
        environment=environment,
    )


def run_in_node(
    folder: Path, node: str, words: Sequence[str], *, stay_here: bool = False, dlopen: bool = False
) -> None:
    """Become a program in a node. Raises UsageError when it cannot be started, FabricError, PlanError."""
    command = node_words(folder, node, words, stay_here=stay_here, dlopen=dlopen)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}. Cure: apt-get install util-linux") from error


def run_as_guest(guest: Guest, node: str, words: Sequence[str], *, stay_here: bool, dlopen: bool = False) -> None:
    """Become a program of a guest, in his own network, with the RDMA device of a host.

    Raises UsageError when it cannot be started or would need root, BuildError, and PlanError for no such host.
    """
    guest.plan.host(node)
    if not stay_here:
        raise UsageError(
            f"exec {node}: only root enters the host's network. Cure: `mrc exec {node} --here -- PROGRAM`, which stays "
            "in yours and has the host's RDMA device, or sudo"
        )
    os.environ.update({"MRC_HOST": node, **guest_environment(guest.run_dir, node, dlopen=dlopen)})
    command = [*(words or SHELL)]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}") from error


def _pid_in(files: RunFiles, host: str) -> int:
    """Return a process in the namespaces of a host, as the prompt says or as recorded. Raises FabricError."""
    files.check_host_on(host)
    try:
        return WordClient(files.path).host_pid(host)
    except JsonlError as error:
        raise FabricError(str(error)) from error
    except FabricError:  # of `mrc run` or a program, which has no prompt
        try:
            return int(read_json(files.hosts_file)[host])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FabricError(f"no process is known in {host}. Cure: `mrc up`, whose hosts can be entered") from error
