"""Start of a host's NIC process, by the first program that needs it. It ends with the fabric."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE, START_VARIABLE, library, library_folder
from mrc_testbed.ipc.rundir import TOKEN_VARIABLE, FabricError, RunFiles, read_json
from mrc_testbed.switch.system.gcc import MissingToolError

START_S = 30.0
"""Longest time until the process answers, seconds: a busy machine reads its modules slowly."""
LIMITS = tuple(name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE")
"""Names of the limits of a process (`ulimit`); OFILE is another name of one."""
_ASK_S = 0.02
log = logging.getLogger("mrc_testbed.hosts.nicd")


def program_environment(folder: Path, host: str, *, dlopen: bool = False) -> dict[str, str]:
    """Return the variables with which a program finds libmrc and the device of a host; `dlopen` as below.

    Raises BuildError.
    """
    command = ["mrc_testbed.hosts.nicd.launch", str(folder), host]
    return environment_of(RunFiles(folder).nic_socket(host), command, dlopen=dlopen)


def environment_of(nic_socket: Path, command: Sequence[str], *, dlopen: bool = False) -> dict[str, str]:
    """Return the variables for libmrc: a NIC process's socket, the module that starts one.

    None without a C compiler. `dlopen`: libmrc also as libibverbs.so.1, for programs that load it by that name.

    Raises BuildError.
    """
    try:
        path, folder_of_names = str(library()), str(library_folder())
    except MissingToolError as error:
        log.warning("%s: programs find no RDMA device", error)
        return {}
    preload = os.environ.get("LD_PRELOAD")
    search_path = os.environ.get("LD_LIBRARY_PATH")
    by_name = {"LD_LIBRARY_PATH": ":".join([folder_of_names, *([search_path] if search_path else [])])}
    return {
        **(by_name if dlopen else {}),
        SOCKET_VARIABLE: str(nic_socket),
        # Python needs more addresses than a program's limit may leave it; root may raise the limit.
        START_VARIABLE: (
            f"ulimit -v unlimited 2>/dev/null; LD_PRELOAD= exec {shlex.join([sys.executable, '-m', *command])}"
        ),
        "LD_PRELOAD": ":".join([path, *([preload] if preload else [])]),
    }


def ensure_nic_process(files: RunFiles, host: str) -> None:
    """Start the NIC process of a host, in the network namespace of the host, unless it answers already.

    Raises FabricError with the end of its log when it does not come up, HostOffError for a host without power.
    """
    files.check_host_on(host)
    path = files.nic_socket(host)
    path.parent.mkdir(mode=0o711, exist_ok=True)
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two programs that start at once, one starts it
        if not _answers(path):
            _start(files, host)


def _start(files: RunFiles, host: str) -> None:
    log, path = files.log(f"nic-{host}"), files.nic_socket(host)
    module = ["-m", "mrc_testbed.hosts.nicd", "--host", host, "--run-dir", str(files.path)]
    environment = {**os.environ, TOKEN_VARIABLE: read_json(files.state_file)["token"], "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["nsenter", f"--target={_pid_of(files, host)}", "--net", "--", sys.executable, *module],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C at the terminal is for the program alone
        )
    deadline = time.monotonic() + START_S
    while not _answers(path):
        if process.poll() is not None:
            raise FabricError(f"the NIC process of {host} ended with {process.returncode}: {_last_line(log)}")
        if time.monotonic() > deadline:
            process.kill()
            raise FabricError(f"the NIC process of {host} did not answer in {START_S:.0f} s. Cure: see {log}")
        time.sleep(_ASK_S)


def take_limits_of(pid: int) -> list[str]:
    """Take over the limits (`ulimit`) of a process; return the names of those that stay lower."""
    kept_limits = []
    for name in LIMITS:
        try:
            resource.setrlimit(getattr(resource, name), resource.prlimit(pid, getattr(resource, name)))
        except (OSError, ValueError):
            kept_limits.append(name)
    return kept_limits


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(str(path)) == 0


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else f"nothing in {log}"


def _pid_of(files: RunFiles, host: str) -> int:
    """Return a process in the namespaces of a host. Raises FabricError."""
    try:
        return int(read_json(files.hosts_file)[host])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FabricError(f"no process is known in {host}. Cure: `mrc up`, whose hosts can be entered") from error


def main(argv: list[str] | None = None) -> int:
    """Start the NIC process of a host of the fabric in a run folder (arguments: folder, host)."""
    folder, host = sys.argv[1:] if argv is None else argv
    files = RunFiles(folder)
    try:
        # The limits of the program that begins the process are not for the programs after it.
        if kept_limits := take_limits_of(_pid_of(files, host)):
            print(
                f"libmrc: the NIC process of {host} has this program's {', '.join(kept_limits)}: raising them "
                "needs CAP_SYS_RESOURCE. Cure: begin with a program without limits",
                file=sys.stderr,
            )
        ensure_nic_process(files, host)
    except (FabricError, OSError) as error:
        print(f"libmrc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
