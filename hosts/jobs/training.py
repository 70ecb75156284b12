"""Ranks of a PyTorch job: torchrun's variables, the lines that are read, what the ranks' NICs count.

A rank has torchrun's variables, its host's RDMA device, and MRC_TRAIN_BACKEND. Its TCP, by which ranks meet, is the
terminal's; with gloo everything is the host's own network, so that gloo's bytes go over the fabric's IP.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mrc_testbed.hosts.ip.tun import INTERFACE
from mrc_testbed.hosts.nicd.status import ProgramStatus, programs_of
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Host, Plan

BACKENDS = ("mrc", "gloo", "loopback")
"""MRC over the fabric; gloo over the fabric's IP; gloo in the terminal's network, without the fabric."""
BACKEND_VARIABLE = "MRC_TRAIN_BACKEND"
"""Name of torch's backend, for the program to use."""
_STEP = re.compile(r"^step +(\d+)\b.*?(\d+(?:\.\d+)?) s$")
_DIGEST = re.compile(r"SHA-256 of the parameters (\w{64})")


def python_words(words: Sequence[str]) -> list[str]:
    """Return the words of a rank: this Python, its program with arguments."""
    return [sys.executable, "-u", *words]


def variables_of(plan: Plan, hosts: Sequence[Host], number: int, port: int, backend: str) -> list[str]:
    """Return torchrun's variables of a rank. MASTER_ADDR: where rank 0 waits for the others."""
    address, interfaces = "127.0.0.1", []
    if backend == "gloo":
        address = str(plan.ip_interfaces(hosts[0])[0].ip)
        interfaces = [f"GLOO_SOCKET_IFNAME={INTERFACE}"]  # else gloo asks for the machine's own name
    return [
        *interfaces,
        f"RANK={number}",
        f"WORLD_SIZE={len(hosts)}",
        "LOCAL_RANK=0",
        "LOCAL_WORLD_SIZE=1",
        f"MASTER_ADDR={address}",
        f"MASTER_PORT={port}",
        f"{BACKEND_VARIABLE}={'mrc' if backend == 'mrc' else 'gloo'}",
    ]


def free_port() -> int:
    """Return a TCP port that nobody has now, for the ranks to meet at."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def program_mistake(program: Path) -> str | None:
    """Return why a program cannot be a rank, with the cure: it cannot be read, or there is no PyTorch."""
    if not program.is_file():
        return f"{program}: no such file. Cure: a Python program, such as examples/ddp.py"
    if importlib.util.find_spec("torch") is None:
        return f"{sys.executable} has no PyTorch. Cure: pip install 'mrc-testbed[torch]' (docs/training.md)"
    return None


def step_of(line: str) -> tuple[int, float] | None:
    """Return number and seconds of a step, of a line `step 3  loss 2.1  0.05 s`."""
    match = _STEP.match(line)
    return None if match is None else (int(match[1]), float(match[2]))


def digest_of(line: str) -> str | None:
    """Return the SHA-256 of a rank's parameters, as it prints it in the end."""
    match = _DIGEST.search(line)
    return None if match is None else match[1]


def nic_counts(files: RunFiles, hosts: Iterable[str]) -> dict[tuple[str, int], ProgramStatus]:
    """Return (host, pid) -> counts of each program by its host's NIC process, where that answers."""
    out: dict[tuple[str, int], ProgramStatus] = {}
    for host in hosts:
        with contextlib.suppress(OSError):  # TimeoutError too
            out |= {(host, status.pid): status for status in programs_of(files.nic_socket(host)) or []}
    return out
