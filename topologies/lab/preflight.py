"""Checks before a fabric is started; every refusal names cause and cure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.rundir import FabricError

TOOLS = {"mnexec": "mininet", "ip": "iproute2", "setpriv": "util-linux", "bash": "bash"}
"""Program -> Debian and Ubuntu package."""


def check_root() -> None:
    """Raise FabricError unless this process is root."""
    if os.geteuid() != 0:
        raise FabricError("a fabric needs root (network namespaces, raw sockets): run it with sudo, or with --rootless")


def check_tools() -> None:
    """Raise FabricError, with the packages to install, when a program is missing."""
    missing_tools = {tool: package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    if missing_tools:
        raise FabricError(
            f"not on PATH: {', '.join(missing_tools)}: "
            f"`apt-get install {' '.join(sorted(set(missing_tools.values())))}` (or `make setup`)"
        )


NAMESPACE_TRIAL = (
    *("mnexec", "-cn", "sh", "-c"),
    "ip link set lo up && ip link add mrc-trial type veth peer name mrc-trial2 && exec mnexec -a $$ true",
)
"""Command that does what Mininet and we do with namespaces.

Make one, set an interface up, make a link, and enter it from outside (which leaves a chroot). All ends with it.
"""


def check_namespaces() -> None:
    """Raises FabricError when hosts cannot have namespaces: Mininet would wait for their shells for ever."""
    trial = subprocess.run(NAMESPACE_TRIAL, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if trial.returncode != 0:
        reason = trial.stderr.decode(errors="replace").strip() or f"exit code {trial.returncode}"
        raise FabricError(
            f"a host cannot have a network namespace here ({reason}): start a container with `--cap-add NET_ADMIN "
            "--cap-add NET_RAW --cap-add SYS_ADMIN --security-opt apparmor=unconfined`, enter a chroot's folder by "
            "pivot_root or systemd-nspawn instead (docs/install.md)"
        )


def check_tcp_ports(ports: dict[int, str]) -> None:
    """Raises FabricError naming the first port of {port: purpose} that is taken, and by whom."""
    for port, purpose in ports.items():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                raise FabricError(
                    f"port {port} ({purpose}) cannot be used: {_port_user(port, error)}: end it, or choose another port"
                ) from error


def _port_user(port: int, error: Exception) -> str:
    holder = procfs.listener_of(port)
    if holder is None:
        return str(getattr(error, "strerror", None) or error)
    pid, command = holder
    return f"pid {pid} ({command}) listens on it" if pid else "another process listens on it"


def check_interfaces(names: Iterable[str]) -> None:
    """Raises FabricError when interfaces of these names exist: after clean-up they are not ours."""
    existing = sorted(set(names).intersection(os.listdir("/sys/class/net")))
    if not existing:
        return
    rest_text = f" and {len(existing) - 3} more" if len(existing) > 3 else ""
    raise FabricError(
        f"interface {', '.join(existing[:3])}{rest_text} exists already and was not made by a fabric of this "
        f"run folder: end the fabric that uses it (one with another MRC_RUN_DIR?), "
        f"or remove it: `ip link del {existing[0]}`"
    )
