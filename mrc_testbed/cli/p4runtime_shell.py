"""`mrc shell SWITCH`: p4runtime-shell on a switch of the running fabric, in its own environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mrc_testbed.errors import UsageError
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.ipc.rpc import JsonlClient
from mrc_testbed.ipc.rundir import RunFiles

ENVIRONMENT = ".venv-p4runtime-shell"
"""Folder of the environment in a checkout, which scripts/setup makes."""
ELECTION_ID = "0,1"
"""Lower than the controller's, so that the shell reads as a backup and cannot take the switch from it.

Where no controller is, as on a switch with a foreign program, it is enough for writes.
"""


def command(switch: str, run_dir: Path) -> list[str]:
    """The command line for a switch. Raises UsageError when no fabric runs, or it has no such switch."""
    files = RunFiles(run_dir)
    table = files.switches_file
    if not table.is_file():
        raise UsageError(f"no fabric is running ({table} is not there): start one with `mrc up` in another terminal")
    switches = files.read_switches()
    if switch not in switches:
        raise UsageError(f"no switch {switch!r} in the running fabric (has: {', '.join(sorted(switches))})")
    if _is_off(files, switch):
        raise UsageError(f"{switch} is off and has no tables. Cure: `power {switch} on` at the prompt of `mrc up`")
    python = PACKAGE.parent / ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        raise UsageError(f"{python} is not there: `make setup` in a checkout makes it")
    server = switches[switch]
    return [
        str(python),
        "-m",
        "p4runtime_sh",
        "--grpc-addr",
        server["address"],
        "--device-id",
        str(server["device_id"]),
        "--election-id",
        ELECTION_ID,
    ]


def _is_off(files: RunFiles, switch: str) -> bool:
    """Whether the daemon of the switches says so; the shell would wait for a switch that is off for ever."""
    if not files.switchd_socket.exists():
        return False
    daemon = JsonlClient(files.switchd_socket, name="switchd")
    try:
        devices = daemon.request("devices")["devices"]
    finally:
        daemon.close()
    return any(device["name"] == switch and not device["on"] for device in devices)


def open_shell(switch: str, run_dir: Path) -> int:
    """Run the shell until its user leaves; its exit code."""
    argv = command(switch, run_dir)
    is_foreign = RunFiles(run_dir).read_switches()[switch].get("foreign") is True
    role = (
        "its only controller: it reads and writes"
        if is_foreign
        else "a backup: reads work, writes are the controller's"
    )
    print(f"p4runtime-shell on {switch}, as {role}", flush=True)
    return subprocess.run(argv, stdin=sys.stdin, check=False).returncode
