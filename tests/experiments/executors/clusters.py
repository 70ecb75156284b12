"""Clusters for tests, each on this machine alone: Slurm with one node, Ray with two.

Why there is none is said.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import pytest

START_S = 60.0
"""Longest wait until a cluster answers."""
SLURM_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(command: list[str], text: str, name: str, logs: Path | None = None) -> None:
    deadline = time.monotonic() + START_S
    while text not in subprocess.run(command, capture_output=True, text=True).stdout:
        if time.monotonic() > deadline:
            last = "\n".join(path.read_text()[-1500:] for path in sorted(logs.glob("*.log"))) if logs else ""
            pytest.fail(f"{name} did not come up in {START_S:.0f} s\n{last}")
        time.sleep(0.2)


def without_slurm() -> str:
    """Return why there can be no Slurm here; empty when there can."""
    if not has("submitit"):
        return "`make test` installs the extra `slurm` (submitit)"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing_programs = [name for name in SLURM_PROGRAMS if shutil.which(name, path=path) is None]
    if missing_programs:
        return f"no {', '.join(missing_programs)}: apt-get install slurmctld slurmd slurm-client munge (CI does it)"
    return "" if os.geteuid() == 0 else "needs root: slurmd runs tasks as their users"


SLURM_CONF = """\
ClusterName=mrc-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm(folder: Path) -> Iterator[None]:
    """Run Debian's Slurm daemons with a munge key of their own, on loopback.

    Processes of ours, ended by their handles.
    """
    folder.mkdir()
    for name in ("state", "spool", "log"):
        (folder / name).mkdir()
    os.chmod(folder, 0o755)  # munge refuses a socket that others cannot reach
    temporary = Path(gettempdir())
    for parent in folder.parents:
        if temporary in parent.parents:
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    host = socket.gethostname().split(".")[0]
    ports = free_port(), free_port()
    (folder / "slurm.conf").write_text(SLURM_CONF.format(host=host, ports=ports, folder=folder))
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
    munge = [
        "munged",
        "--foreground",
        "--force",
        f"--key-file={folder}/munge.key",
        f"--socket={folder}/munge.sock",
        f"--pid-file={folder}/munged.pid",
        f"--seed-file={folder}/munge.seed",
        f"--log-file={folder}/log/munged.log",
    ]
    commands = [munge, ["slurmctld", "-D", "-c"], ["slurmd", "-D"]]
    daemons = []
    conf_before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = env["SLURM_CONF"]
    try:
        for command in commands:
            program = shutil.which(command[0], path=path)
            with (folder / "log" / f"{command[0]}.out.log").open("wb") as log:
                daemons.append(subprocess.Popen([program, *command[1:]], stdout=log, stderr=log, env=env))
            if command is munge:
                wait_for(["ls", str(folder)], "munge.sock", "munged", folder / "log")
        wait_for(["sinfo", "--noheader", "--format=%t"], "idle", "Slurm's node", folder / "log")
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        if conf_before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = conf_before


WITHOUT_RAY = "the extra `ray` is not installed (240 MB): MRC_RAY=1 make test installs it"


@contextmanager
def ray_cluster(folder: Path) -> Iterator[list[subprocess.Popen]]:
    """Run a Ray head and another node, of one CPU each, on loopback; yield the processes of both."""
    port, nodes = free_port(), []
    temp_dir = Path(f"/tmp/mrc-ray-{os.getpid()}")  # its sockets have long names, and 107 bytes are the limit
    node_options = [
        "--node-ip-address=127.0.0.1",
        "--num-cpus=1",
        "--object-store-memory=80000000",
        "--block",
        "--disable-usage-stats",
    ]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={temp_dir}"]
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    address_before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    try:
        for role_options in (head, [f"--address=127.0.0.1:{port}"]):
            with (folder / f"ray-{len(nodes)}.log").open("wb") as log:
                nodes.append(subprocess.Popen([*ray, "start", *role_options, *node_options], stdout=log, stderr=log))
            wait_for([*ray, "status"], f"/{len(nodes)}.0 CPU", f"node {len(nodes)} of Ray", folder)
        yield nodes
    finally:
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        if address_before is None:
            del os.environ["RAY_ADDRESS"]
        else:
            os.environ["RAY_ADDRESS"] = address_before
        shutil.rmtree(temp_dir, ignore_errors=True)
