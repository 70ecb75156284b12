"""Words that run a program in a host of a running fabric, from outside of it."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from mrc_testbed.hosts.nicd.launch import program_environment
from mrc_testbed.ipc.rundir import TOKEN_VARIABLE, RunFiles, read_json

IN_FOLDER = 'cd -- "$0" 2>/dev/null; exec "$@"'
"""Script that runs its words where the user is: a mount namespace is entered at its root."""


def run_environment(folder: Path) -> list[str]:
    """Return the variables of each program of a fabric, which ends with it by the run's token."""
    return [
        f"MRC_RUN_DIR={folder}",
        f"{TOKEN_VARIABLE}={read_json(RunFiles(folder).state_file)['token']}",
        f"PATH={search_path()}",
    ]


def search_path() -> str:
    """Return where programs are looked for: this Python's scripts first."""
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])


def host_words(
    folder: Path,
    host: str,
    pid: int | None,
    words: Sequence[str],
    *,
    start_folder: str,
    dlopen: bool = False,
    environment: Sequence[str] = (),
) -> list[str]:
    """Return the words that run a program in the namespaces of a process of a host.

    `pid` None: in our own namespaces. The program finds the host's RDMA device, with `dlopen` libmrc as libibverbs.so.1
    too, and has `environment` beside. `start_folder`: where it starts in the host. Raises BuildError.
    """
    device = program_environment(folder, host, dlopen=dlopen)
    variables = [f"MRC_HOST={host}", *run_environment(folder), *environment]
    variables += [f"{name}={value}" for name, value in device.items()]
    if pid is None:
        return ["env", *variables, *words]
    command = ["nsenter", f"--target={pid}", "--net", "--mount", "--", "env", *variables]
    return [*command, "sh", "-c", IN_FOLDER, start_folder, *words]
