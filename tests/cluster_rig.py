"""Network namespaces as machines.

Each with its own processes, interfaces, /run, host name and sshd, on one bridge.

    with ClusterRig(tmp_path, 3) as rig:
        rig.servers_file            # for --servers
        rig.kill("b")               # as when its power fails
        rig.stop_sshd("c")

By hand, until Ctrl-C: `.venv/bin/python -m tests.cluster_rig 3` prints the file for `mrc up --servers`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.ipc.processes import DEATH_SIGNAL

NETWORK = "10.213.77"
BRIDGE = "mrcrig0"
MTU = 9500
CLOCK_AHEAD_S = {"b": 5000}
"""Machines whose CLOCK_MONOTONIC counts from another boot."""
_MACHINE = """
set -e
mount -t tmpfs tmpfs /run
mount -t sysfs sysfs /sys
mkdir -p /run/sshd /run/lock
hostname {name}
cp /etc/passwd /run/passwd
cp {folder}/client_key.pub /run/
echo 'tester::4000:4000::/tmp:/bin/bash' >>/run/passwd
mount --bind /run/passwd /etc/passwd
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip addr add {address}/24 dev eth0
ip link set eth0 up mtu {mtu}
{sshd} -D -e -f {config} >>{log} 2>&1 &
echo $! > {folder}/{name}.sshd
trap 'exit 0' TERM
while :; do wait -n || sleep 1; done
"""
_SSHD = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile /run/client_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
"""


def sshd() -> str | None:
    """Return where sshd is, which wants to be called by its whole path."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


@dataclass
class RigMachine:
    name: str
    address: str
    process: subprocess.Popen[bytes]

    @property
    def init(self) -> int:
        """Pid of its first process, as the rest of this machine sees it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])


class ClusterRig:
    """See the module. The front process stays where it is, with an address on the bridge."""

    def __init__(self, folder: Path, count: int = 3, mtu: int = MTU) -> None:
        self.folder, self.mtu = folder, mtu
        self.names = [chr(ord("a") + number) for number in range(count)]
        self.machines: dict[str, RigMachine] = {}
        self.servers_file = folder / "servers.yaml"

    def __enter__(self) -> ClusterRig:
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> ClusterRig:
        for key in ("host_key", "client_key"):
            if not (self.folder / key).exists():
                _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        _remove_links()  # of a rig that was killed
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up", "mtu", str(self.mtu))
        for number, name in enumerate(self.names):
            self._boot(name, f"{NETWORK}.{11 + number}")
        key = (self.folder / "host_key.pub").read_text().split()[:2]
        known_hosts = "".join(f"{machine.address} {' '.join(key)}\n" for machine in self.machines.values())
        (self.folder / "known_hosts").write_text(known_hosts)
        self._write_servers()
        for machine in self.machines.values():
            _await(lambda machine=machine: _accepts(machine.address), f"sshd of machine {machine.name}")
        return self

    def _boot(self, name: str, address: str) -> None:
        config, log = self.folder / f"{name}.sshd_config", self.folder / f"{name}.log"
        config.write_text(_SSHD.format(address=address, folder=self.folder))
        script = _MACHINE.format(
            name=name, address=address, mtu=self.mtu, sshd=sshd(), config=config, log=log, folder=self.folder
        )
        clock = CLOCK_AHEAD_S.get(name)
        ahead = ["--time", f"--monotonic={clock}"] if clock else []
        namespaces = ["--net", "--mount", "--pid", "--uts", "--mount-proc", "--propagation", "private", *ahead]
        process = subprocess.Popen(
            [*DEATH_SIGNAL, "unshare", *namespaces, "--fork", "--kill-child", "--", "bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stderr=log.open("ab"),
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM}),
        )
        machine = self.machines[name] = RigMachine(name, address, process)
        # A cable's end can be put into the machine only once its namespace is there.
        _await(lambda: _has_own_network(machine), f"machine {name}")
        bridge_end = f"{BRIDGE}-{name}"
        _run(
            "ip",
            "link",
            "add",
            bridge_end,
            "mtu",
            str(self.mtu),
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            str(machine.init),
        )
        _run("ip", "link", "set", bridge_end, "master", BRIDGE, "up")

    def _write_servers(self, extra: str = "") -> None:
        key, known_hosts = self.folder / "client_key", self.folder / "known_hosts"
        rows = "".join(
            f"  - {{name: {machine.name}, address: {machine.address}}}\n" for machine in self.machines.values()
        )
        self.servers_file.write_text(
            f"user: root\nidentity: {key}\nssh_options: [UserKnownHostsFile={known_hosts}]\n{extra}machines:\n{rows}"
        )

    def run(self, name: str, *command: str) -> str:
        """Return the output of a command on a machine."""
        enter = ["nsenter", "-t", str(self.machines[name].init), "-n", "-m", "-p", "-u"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, check=True).stdout

    def stop_sshd(self, name: str) -> None:
        """End a machine's sshd and all sessions, and nothing else there."""
        self.run(name, "pkill", "-9", "^sshd")

    def kill(self, name: str) -> None:
        """End everything on a machine at once, as when its power fails."""
        machine = self.machines.pop(name)
        os.kill(machine.init, signal.SIGKILL)
        machine.process.wait()
        subprocess.run(["ip", "link", "del", f"{BRIDGE}-{name}"], capture_output=True)

    def close(self) -> None:
        for name in list(self.machines):
            self.kill(name)
        _remove_links()


def _remove_links() -> None:
    process = subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True)
    for name in (row["ifname"] for row in json.loads(process.stdout)):
        if name.startswith(BRIDGE):
            subprocess.run(["ip", "link", "del", name], capture_output=True)


def _run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")


def _await(condition, subject: str, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{subject} does not come up")
        time.sleep(0.02)


def _has_own_network(machine: RigMachine) -> bool:
    try:
        return os.readlink(f"/proc/{machine.init}/ns/net") != os.readlink("/proc/self/ns/net")
    except (OSError, IndexError):
        return False


def _accepts(address: str) -> bool:
    try:
        socket.create_connection((address, 22), timeout=1.0).close()
    except OSError:
        return False
    return True


def main() -> None:
    """Run machines to try commands on, until Ctrl-C."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("count", type=int, nargs="?", default=3)
    parser.add_argument("--folder", type=Path, help="where its keys and the servers file go (default: a temporary one)")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="mrc-rig-"))
    folder.mkdir(parents=True, exist_ok=True)
    with ClusterRig(folder, arguments.count) as rig:
        print(rig.servers_file, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
