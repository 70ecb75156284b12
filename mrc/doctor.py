"""`mrc doctor`: what this machine has for the testbed, what it lacks, and the cure."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Check:
    """One line of the doctor: `needed` says whether the testbed works without it."""

    name: str
    ok: bool
    found: str
    cure: str = ""
    needed: bool = True


def checks() -> Iterator[Check]:
    """Every check in the order shown. Looks only; changes nothing."""
    everything = (
        _root, _namespaces, _packet_socket, _tools, _packages, _headers, _engine, _processors, _leftovers, _bmv2,
    )  # fmt: skip
    for check in everything:
        yield from check()


def _root() -> Iterator[Check]:
    yield Check("root", os.geteuid() == 0, f"uid {os.geteuid()}", "run with sudo: namespaces and raw sockets need root")


def _namespaces() -> Iterator[Check]:
    path = Path("/proc/self/ns/net")
    yield Check("network namespaces", path.exists(), str(path), "a kernel with CONFIG_NET_NS")


def _packet_socket() -> Iterator[Check]:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except (OSError, AttributeError) as error:
        yield Check("AF_PACKET", False, str(error), "root (CAP_NET_RAW) and a kernel with CONFIG_PACKET")
    else:
        yield Check("AF_PACKET", True, "raw packet sockets open")


TOOLS = {
    "mnexec": "apt-get install --no-install-recommends mininet",
    "ip": "apt-get install iproute2",
    "ethtool": "apt-get install ethtool",
    "gcc": "apt-get install gcc libc6-dev",
    "cpp": "apt-get install cpp",
}


def _tools() -> Iterator[Check]:
    for tool, cure in TOOLS.items():
        path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        yield Check(tool, path is not None, path or "not on PATH", cure)


def _packages() -> Iterator[Check]:
    for module in ("mininet", "finsy", "jinja2", "lark", "msgspec", "psutil", "pyroute2", "rich", "scapy"):
        here = importlib.util.find_spec(module) is not None
        yield Check(f"python {module}", here, "importable" if here else "missing", "make setup")


def _headers() -> Iterator[Check]:
    path = Path(sysconfig.get_paths()["include"]) / "Python.h"
    here = path.exists()
    cure = "apt-get install python3-dev: without it the fast NIC does everything in Python, about 1.5 times slower"
    yield Check("Python.h", here, str(path) if here else f"no {path}", cure, needed=False)


def _engine() -> Iterator[Check]:
    from compiled import state

    found = state()
    yield Check(
        "compiled engine", found.active, found.why, "mrc compile: virtual runs and agents are several times faster",
        needed=False,
    )  # fmt: skip


def _processors() -> Iterator[Check]:
    count = len(os.sched_getaffinity(0))
    yield Check("processors", count >= 2, str(count), "2 or more: rates and times mean little on one", needed=False)


def _leftovers() -> Iterator[Check]:
    from ipc.rundir import RunFiles

    state = RunFiles().state_file
    yield Check(
        "leftovers", not state.exists(), f"{state} {'exists' if state.exists() else 'is not there'}",
        "a fabric is up, or a run was killed: mrc clean (the next start does it too)", needed=False,
    )  # fmt: skip


def _bmv2() -> Iterator[Check]:
    for tool in ("simple_switch_grpc", "p4c-bm2-ss"):
        path = shutil.which(tool)
        yield Check(
            tool, path is not None, path or "not on PATH",
            "only for --target bmv2: scripts/install-bmv2; the embedded switch needs none", needed=False,
        )  # fmt: skip


def healthy(results: list[Check]) -> bool:
    """Whether nothing that is needed is missing."""
    return all(check.ok for check in results if check.needed)


def run(emit: Callable[[Check], None]) -> bool:
    """Emit every check; True when nothing that is needed is missing."""
    results = []
    for check in checks():
        results.append(check)
        emit(check)
    return healthy(results)
