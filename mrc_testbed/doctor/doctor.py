"""`mrc doctor`: what this machine has for the testbed, what it lacks, and the cure."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import platform
import shutil
import socket
import struct
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.dash import uplot
from mrc_testbed.doctor.rootless import container_kind, obstacle
from mrc_testbed.errors import package_cure
from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import preflight


@dataclass(frozen=True)
class Check:
    """One line of the doctor: `needed` says whether the testbed works without it."""

    name: str
    ok: bool
    found: str
    cure: str = ""
    needed: bool = True
    figures: Mapping[str, float] | None = None
    """Measured numbers by name and unit, for programs."""


def checks() -> Iterator[Check]:
    """Every check in the order shown. Tries what it judges; leaves nothing behind."""
    all_checks = (
        _release,
        _machine,
        _root,
        _rootless,
        _namespaces,
        _packet_socket,
        _tools,
        _host_programs,
        _packages,
        _headers,
        _engine,
        _memory,
        _processors,
        _speed,
        _apt,
        _leftovers,
        _bmv2,
    )
    for check in all_checks:
        yield from check()


RELEASES = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")
"""Releases whose provisioning is tested (tests/test_releases.py) and which the Vagrantfile can boot."""


def _release() -> Iterator[Check]:
    try:
        os_release = platform.freedesktop_os_release()
    except OSError:
        os_release = {}
    name = f"{os_release.get('ID', 'unknown')}-{os_release.get('VERSION_ID', 'unknown')}"
    yield Check(
        "release",
        name in RELEASES,
        f"{name}, Python {platform.python_version()}",
        f"tested are {', '.join(RELEASES)}: others may work where the lines below are ok; the Vagrantfile and the "
        "Dockerfile have tested ones",
        needed=False,
    )


def _machine() -> Iterator[Check]:
    container, machine = container_kind(), virtual_machine()
    hosting = " in ".join(filter(None, [container and f"container ({container})", machine and f"VM ({machine})"]))
    yield Check("machine", True, hosting or "neither VM nor container")


def virtual_machine(root: Path = Path("/")) -> str | None:
    """Return the name that virtual hardware reports, such as "VirtualBox"; None on a real machine."""
    try:
        if " hypervisor" not in (root / "proc/cpuinfo").read_text():
            return None
    except OSError:
        return None
    for name in ("product_name", "sys_vendor"):
        try:
            return (root / "sys/class/dmi/id" / name).read_text().strip()
        except OSError:
            continue
    return "unknown hypervisor"


def _root() -> Iterator[Check]:
    enough = os.geteuid() == 0 or obstacle() is None
    yield Check(
        "root",
        enough,
        f"uid {os.geteuid()}",
        "run with sudo: namespaces and raw sockets need root, and --rootless does not work here (next line)",
    )


def _rootless() -> Iterator[Check]:
    reason = obstacle()
    yield Check(
        "user namespaces",
        reason is None,
        "usable: `mrc demo --rootless` works" if reason is None else "not usable",
        reason or "",
        needed=False,
    )


def _apt() -> Iterator[Check]:
    """Yield a check of apt's locks: set-up would have to wait for them.

    apt holds POSIX locks; only a user who may write the file can query them.
    """
    for path in (Path("/var/lib/dpkg/lock-frontend"), Path("/var/lib/apt/lists/lock")):
        holder = lock_holder(path)
        if holder is not None:
            cure = f"pid {holder} ({procfs.command(holder)}) installs something: set-up waits until it has ended"
            yield Check("apt", False, f"{path} is locked", cure, needed=False)
            return
    yield Check("apt", True, "nobody holds its locks" if os.geteuid() == 0 else "its locks can be seen by root alone")


def lock_holder(path: Path) -> int | None:
    """Process with a POSIX lock on the file; None when there is none, no file, or it may not be looked at."""
    try:
        with path.open("r+b") as file:
            flock = struct.pack("@hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("@hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, flock))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else pid


def _namespaces() -> Iterator[Check]:
    """Yield the check of hosts' namespaces: one is made, with a link in it, as at the start of a fabric."""
    path = Path("/proc/self/ns/net")
    reason = None if path.exists() else f"no {path}: a kernel with CONFIG_NET_NS is needed"
    if reason is None and os.geteuid() == 0:  # without root `user namespaces` makes one
        try:
            preflight.check_namespaces()
        except FabricError as error:
            reason = str(error)
        except OSError:
            reason = "no mnexec on PATH: see its line"
    yield Check(
        "network namespaces", reason is None, "a host can have one" if reason is None else "not usable", reason or ""
    )


def _packet_socket() -> Iterator[Check]:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except (OSError, AttributeError) as error:
        refused = isinstance(error, PermissionError) and os.geteuid() != 0
        yield Check(
            "AF_PACKET",
            False,
            f"{error} on the machine's own network",
            "root with CAP_NET_RAW (a container: `--cap-add NET_RAW`) and a kernel with CONFIG_PACKET; rootless "
            "fabrics bring their own network",
            needed=not refused,  # without root `root` and `user namespaces` tell whether there is a way
        )
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


def _host_programs() -> Iterator[Check]:
    for tool, package in {"ping": "iputils-ping", "iperf3": "iperf3"}.items():
        path = shutil.which(tool)
        cure = f"apt-get install {package}: hosts of the fabric run it (`h0 {tool} ...` at the prompt)"
        yield Check(tool, path is not None, path or "not on PATH", cure, needed=False)


def _packages() -> Iterator[Check]:
    for module in ("mininet", "finsy", "jinja2", "lark", "msgspec", "psutil", "pyroute2", "rich", "scapy"):
        is_installed = importlib.util.find_spec(module) is not None
        cure = f"{package_cure(module)}, or in a checkout `make setup`"
        yield Check(f"python {module}", is_installed, "importable" if is_installed else "missing", cure)
    yield Check(
        "uPlot",
        uplot.installed(),
        "installed" if uplot.installed() else "missing",
        f"{uplot.CURE}: without it the live view has no curves",
        needed=False,
    )


def _headers() -> Iterator[Check]:
    path = Path(sysconfig.get_paths()["include"]) / "Python.h"
    is_present = path.exists()
    cure = "apt-get install python3-dev: without it the fast NIC does everything in Python, about 1.5 times slower"
    yield Check("Python.h", is_present, str(path) if is_present else f"no {path}", cure, needed=False)


def _engine() -> Iterator[Check]:
    from mrc_testbed.native_build import state

    engine_form = state()
    yield Check(
        "compiled engine",
        engine_form.active,
        engine_form.reason,
        "mrc compile: virtual runs and agents are several times faster",
        needed=False,
    )


def _memory() -> Iterator[Check]:
    from mrc_testbed.files import memory

    reason = memory.obstacle()
    description = (
        "files that hosts receive are in memory"
        if reason is None
        else f"files that hosts receive are on disk: {reason}"
    )
    yield Check(
        "huge pages",
        reason is None,
        description,
        "a packet of 4 KiB in a file costs its host 1 to 8 us more",
        needed=False,
    )


def _processors() -> Iterator[Check]:
    count = len(os.sched_getaffinity(0))
    yield Check("processors", count >= 2, str(count), "2 or more: rates and times mean little on one", needed=False)


def _speed() -> Iterator[Check]:
    from mrc_testbed.doctor.speed import measure_machine

    report = measure_machine()
    yield Check(
        "speed",
        report.speed.slowdown == 1,
        str(report),
        "nothing has to be done: `mrc up` and `mrc demo` take such rates by themselves; more CPUs, or a VM with "
        "hardware help (KVM), are faster",
        needed=False,
        figures=report.to_json(),
    )


def _leftovers() -> Iterator[Check]:
    from mrc_testbed.ipc.rundir import RunFiles

    files = RunFiles()
    yield Check(
        "leftovers",
        not files.has_run,
        f"{files.state_file} {'exists' if files.has_run else 'is not there'}",
        "a fabric is up, or a run was killed: mrc clean (the next start does it too)",
        needed=False,
    )


def _bmv2() -> Iterator[Check]:
    for tool in ("simple_switch_grpc", "p4c-bm2-ss"):
        path = shutil.which(tool)
        yield Check(
            tool,
            path is not None,
            path or "not on PATH",
            "only for --target bmv2: scripts/install-bmv2; the embedded switch needs none",
            needed=False,
        )


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
