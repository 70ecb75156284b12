"""A libvirtd of our own, apart from the machine's: its network, processes and folders end with it.

One process holds namespaces of network, mounts and processes. In them /etc, /run and /var/lib of libvirt are folders
under build/vm, and slirp4netns is the way out: no bridge, no rule of a firewall and no VM is left on the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PRIVATE = ("/etc/libvirt", "/run", "/var/cache/libvirt", "/var/lib/libvirt", "/var/log/libvirt")
"""Folders that are our own inside."""
RESOLVER = "10.0.2.3"
"""Address at which slirp4netns answers DNS."""
SETTINGS = {
    "qemu.conf": """\
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
""",
    "libvirtd.conf": 'auth_unix_ro = "none"\nauth_unix_rw = "none"\nunix_sock_group = "root"\n',
}
HOLD = """\
set -e
inside=$1; shift
for folder; do mkdir -p "$folder" "$inside$folder"; mount --bind "$inside$folder" "$folder"; done
mount --bind "$inside/resolv.conf" "$(readlink -f /etc/resolv.conf)"
ip link set lo up
echo ready >"$inside/ready"
exec sleep infinity
"""
"""First process inside: makes the folders ours, then only stays."""
START_S = 60.0


class LibvirtError(Exception):
    """libvirtd does not start."""


@dataclass(frozen=True)
class PrivateLibvirt:
    """libvirtd in its namespaces; all of it lies in one folder."""

    folder: Path

    @property
    def _pid_file(self) -> Path:
        return self.folder / "holder.pid"

    @property
    def _slirp_file(self) -> Path:
        return self.folder / "slirp.pid"

    def holder(self) -> int | None:
        """Pid of the first process inside, as seen from outside; None when there is none."""
        return _live_pid(self._pid_file, b"sleep\0infinity\0")

    def enter(self) -> list[str]:
        """Words before a command that runs it inside."""
        return ["nsenter", f"--target={self.holder()}", "--net", "--mount", "--pid", "--"]

    def start(self) -> None:
        """Make the namespaces and start libvirtd in them, unless they are there."""
        if self.holder() is not None:
            return
        root = self.folder / "inside"
        self._write_settings(root)
        (root / "ready").unlink(missing_ok=True)
        log = (self.folder / "libvirtd.log").open("ab")
        isolate = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        words = [*isolate, "bash", "-c", HOLD, "hold", str(root), *PRIVATE]
        outer = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self._await("the namespaces", (root / "ready").exists, outer)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        self._pid_file.write_text(children[0])
        slirp = ["slirp4netns", "--configure", "--disable-host-loopback", children[0], "tap0"]
        way_out = subprocess.Popen(slirp, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self._slirp_file.write_text(str(way_out.pid))
        for daemon in ("virtlogd", "libvirtd"):
            subprocess.run([*self.enter(), daemon, "--daemon"], stdout=log, stderr=log, check=True)
        self._await("libvirtd", self._answers, outer)

    def _write_settings(self, root: Path) -> None:
        settings = root / "etc/libvirt"
        shutil.rmtree(settings, ignore_errors=True)
        shutil.copytree("/etc/libvirt", settings, symlinks=True)
        for name, text in SETTINGS.items():
            (settings / name).write_text(text)
        (root / "resolv.conf").write_text(f"nameserver {RESOLVER}\n")

    def _answers(self) -> bool:
        words = [*self.enter(), "virsh", "--connect", "qemu:///system", "list"]
        return subprocess.run(words, capture_output=True).returncode == 0

    def _await(self, name: str, is_there: Callable[[], bool], outer: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_S
        while not is_there():
            if outer.poll() is not None or time.monotonic() > end:
                raise LibvirtError(f"{name} did not start: {self.folder / 'libvirtd.log'}")
            time.sleep(0.2)

    def machines(self) -> Sequence[str]:
        """Names of the VMs that libvirtd knows, running or not."""
        words = [*self.enter(), "virsh", "--connect", "qemu:///system", "list", "--all", "--name"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def stop(self) -> None:
        """End the first process inside, all others with it, and slirp4netns, which is outside."""
        pids = [self.holder(), _live_pid(self._slirp_file, b"slirp4netns\0")]
        for pid in pids:
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        for file in (self._pid_file, self._slirp_file):
            file.unlink(missing_ok=True)


def _live_pid(file: Path, command: bytes) -> int | None:
    """Read the pid in a file; None unless that process runs `command`: a pid may be used again."""
    try:
        pid = int(file.read_text())
        return pid if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(command) else None
    except (OSError, ValueError):
        return None
