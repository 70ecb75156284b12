"""Fabric without root: the same command line again, as root of a user namespace.

The namespace has its own network and mounts.

Veth pairs, packet sockets and mounts of an ordinary user are possible there (user_namespaces(7)), and nothing of it
reaches the machine: what was made is gone with the last process. Whether a user may have such a namespace is the
machine's choice; `obstacle` says why not.

Inside, the user is uid 0 and files of the user stay theirs. What only the machine's root may do stays undone: real-time
scheduling and buffers beyond net.core.wmem_max.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.fabrics import Fabrics
from mrc_testbed.ipc.rundir import RunFiles, checked, default_run_dir, read_json, user_run_dir

ROOTLESS_ENV = "MRC_ROOTLESS"
"""Set in the environment of what runs inside."""
LISTENER = "MRC_DASH_SOCKET"
"""Descriptor of a listening socket of the network outside, for the live view."""
UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")
PREPARE = "mount -t sysfs sysfs /sys && ip link set lo up"
"""Commands that run inside before anything else.

They mount /sys of the new network namespace, and set up the loopback of controller and switches.
"""
TRY_S = 60.0
"""Bound for a trial that takes milliseconds, seconds: without an answer users have no namespaces."""

SYSCTLS: Mapping[str, tuple[str, str]] = {
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "15000"),
    "user/max_net_namespaces": ("0", "15000"),
    "user/max_mnt_namespaces": ("0", "15000"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Setting under /proc/sys -> (the value that forbids the namespace, a value that allows it).

Not every kernel has all of them.
"""


def obstacle() -> str | None:
    """Return why such a namespace is impossible here, and the cure; None when it is possible.

    Makes a namespace to find out, in some 20 ms.
    """
    if shutil.which(UNSHARE[0]) is None:
        return "no unshare on PATH: apt-get install util-linux"
    try:
        process = subprocess.run(
            [*UNSHARE, "sh", "-c", PREPARE], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRY_S
        )
    except subprocess.TimeoutExpired:
        return f"`{' '.join(UNSHARE)}` did not end within {TRY_S:g} s: try it by hand"
    if process.returncode == 0:
        return None
    error_lines = process.stderr.strip().splitlines()
    return cause(
        error_lines[-1] if error_lines else f"exit code {process.returncode}", read_sysctls(), container_kind()
    )


def cause(message: str, sysctls: Mapping[str, str], container: str | None) -> str:
    """Return what forbids the namespace, with the cure.

    The inputs are the last words of the attempt, the sysctls and the kind of container.
    """
    for name, (forbids, allows) in SYSCTLS.items():
        if sysctls.get(name) == forbids:
            sysctl_name = name.replace("/", ".")
            return f"{sysctl_name} is {forbids} ({message}): as root, `sysctl -w {sysctl_name}={allows}`"
    if container is not None:
        return (
            f"this container ({container}) forbids it ({message}): start it with `--security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined`, or run as its root "
            "(docs/install.md)"
        )
    return (
        f"the kernel refuses user namespaces ({message}): is this a chroot, or a kernel without CONFIG_USER_NS? "
        "Run as root instead"
    )


def read_sysctls(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Return the values of those SYSCTLS that this kernel has."""
    return {name: (root / name).read_text().strip() for name in SYSCTLS if (root / name).exists()}


def container_kind(root: Path = Path("/")) -> str | None:
    """`docker`, `podman`, or what started the container we are in; None outside. `root` is for tests."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    try:
        return (root / "run/systemd/container").read_text().strip()
    except OSError:
        return os.environ.get("container")  # noqa: SIM112 # so LXC and systemd-nspawn tell their first process


def enter(command: str, *, port: int | None = None) -> None:
    """Become this command line inside, with a run folder of the user's; return only when already inside.

    With a TCP `port` the live view gets a listening socket outside, where browsers are; on any port when that one is
    taken. Raises UsageError, with the cause and the cure, where the machine allows no such namespace.
    """
    if os.environ.get(ROOTLESS_ENV):
        return
    reason = obstacle()
    if reason is not None:
        raise UsageError(f"{command} --rootless: {reason}")
    folder = default_run_dir() if os.environ.get("MRC_RUN_DIR") else checked(user_run_dir())
    command_line = [*UNSHARE, "sh", "-c", f'{PREPARE} && exec "$@"', "mrc"]
    environment = {ROOTLESS_ENV: "1", "MRC_RUN_DIR": str(folder)}
    if port is not None:
        environment[LISTENER] = str(_listen(port))
    _become([*command_line, *_this_command()], environment)


def _listen(port: int) -> int:
    """The descriptor of a listening socket that outlives exec."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.bind(("127.0.0.1", 0))
    sock.listen()
    sock.set_inheritable(True)
    return sock.detach()


def listener() -> socket.socket | None:
    """The socket that `enter` left for the live view; None when this runs on the machine's own network.

    One of its own for each view: those of a command's runs come one after another.
    """
    number = os.environ.get(LISTENER)
    return None if number is None else socket.socket(fileno=os.dup(int(number)))


def join(folder: Path) -> None:
    """Become this command line inside the rootless fabric of a run folder.

    Return if that is not up, or not a rootless one of this user, or when inside.
    """
    run = RunFiles(folder)
    try:
        state = read_json(run.state_file)
        pid = int(state["front_pid"])
        if procfs.start_time(pid) != state["front_start"]:  # another process has its number by now
            return
        namespace, owner = os.stat(f"/proc/{pid}/ns/user").st_ino, os.stat(f"/proc/{pid}").st_uid
    except (OSError, ValueError, KeyError, TypeError):  # none, or of root, or its front process has gone
        return
    if namespace == os.stat("/proc/self/ns/user").st_ino or owner != os.geteuid():
        return
    command_line = ["nsenter", f"--target={pid}", "--user", "--net", "--mount", "--preserve-credentials"]
    command_line += ["env", f"--chdir={Path.cwd()}"]  # a mount namespace is entered at its root
    _become([*command_line, *_this_command()], {ROOTLESS_ENV: "1", "MRC_RUN_DIR": str(Fabrics.base_of(folder))})


def _this_command() -> list[str]:
    return [sys.executable, "-m", "mrc_testbed", *sys.argv[1:]]


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], command, {**os.environ, **environment})
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error.strerror}: apt-get install util-linux") from error
