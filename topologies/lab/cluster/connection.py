"""Connections to the machines of a cluster: one shared ssh connection each, or local commands.

    with connect(machine, folder, token) as connection:      # ConnectionLostError, with the cure where ssh says why
        connection.run(["uname", "-r"]).stdout
        connection.forward(Forwards(tcp={9560: 9559}))
        connection.popen(["cat"], stdin=PIPE, stdout=PIPE)

One connection for each machine, whatever runs over it (ControlMaster), so sshd's MaxStartups (ten at once) is never
reached; a session takes one of its MaxSessions (ten), forwarded sockets none. When the other side is silent for
SILENCE_S, the connection ends, and with it all that goes over it.
"""

from __future__ import annotations

import abc
import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mrc_testbed.ipc import processes
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.servers import Machine

ALIVE_EVERY_S: Final = 2
SILENCE_S: Final = 3 * ALIVE_EVERY_S
"""Seconds without a sign of the other side after which ssh ends the connection."""
CONNECT_S: Final = 10
"""A bound for the network to carry a first answer, seconds."""
RUN_S: Final = 300.0
"""Limit for a command that is run, seconds.

The command's progress cannot be seen from here, and ssh reports a broken path. A Python that starts takes 0.4 s, and
fifty times as long on a machine that emulates its CPU.
"""
_CURES: Final = (
    ("Host key verification failed", "log in once by hand (`{login}`) and compare its key, or put it into known_hosts"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "it is another machine than before, or was set up anew: see `{login}`"),
    ("Permission denied", "put your public key there (`ssh-copy-id`), or name `user` and `identity` in the file"),
    ("Connection refused", "no sshd listens there: start it, or give its `port`"),
    ("timed out", "is it on, and does a firewall let ssh pass?"),
    ("Could not resolve", "give an IP address, or a name that `getent hosts` knows"),
    ("No route to host", "no network leads there: look at `ip route`"),
    ("Network is unreachable", "no network leads there: look at `ip route`"),
    ("too long for Unix", "set MRC_RUN_DIR to a shorter folder, or give the machine a shorter name"),
    ("failed to execute", "install ssh here (`apt-get install openssh-client`)"),
    ("closed by", "its sshd hung up: MaxStartups or AllowUsers in its sshd_config, see its log"),
    ("reset by", "its sshd hung up: MaxStartups or AllowUsers in its sshd_config, see its log"),
)


class ConnectionLostError(FabricError):
    """A machine cannot be reached, or no longer."""


@dataclass(frozen=True)
class Forwards:
    """Ports and sockets that a connection forwards, in both directions."""

    tcp: Mapping[int, int] = field(default_factory=dict)
    """Port of our loopback -> port of its loopback."""
    inward: Mapping[Path, str] = field(default_factory=dict)
    """Socket to be made here -> socket there."""
    outward: Mapping[str, Path] = field(default_factory=dict)
    """Socket to be made there -> socket here."""


class MachineConnection(abc.ABC):
    """A machine that answers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __enter__(self) -> MachineConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @abc.abstractmethod
    def command(self, argv: Sequence[str], *, terminal: bool = False, root: bool = True) -> list[str]:
        """Command line for this machine that runs `argv` on the other one, as root by default."""

    @abc.abstractmethod
    def forward(self, forwards: Forwards) -> None:
        """Carry these from now on. Raises FabricError."""

    @abc.abstractmethod
    def alive(self) -> bool:
        """The connection stands, as far as is known."""

    @abc.abstractmethod
    def close(self) -> None:
        """End it, and what goes over it. Idempotent."""

    def run(
        self, argv: Sequence[str], *, input_: bytes | None = None, limit_s: float | None = RUN_S, root: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, whatever its exit code.

        Raises ConnectionLostError when the command does not end in time.

        `limit_s` None: no limit but that of ssh, which ends when the way there breaks.
        """
        feed: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input_ is None else {"input": input_}
        try:
            return subprocess.run(self.command(argv, root=root), capture_output=True, timeout=limit_s, **feed)
        except subprocess.TimeoutExpired:
            raise ConnectionLostError(
                f"{self.machine.name}: no answer to `{shlex.join(argv)}` in {limit_s} s"
            ) from None

    def popen(self, argv: Sequence[str], token: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command; it belongs to the run with that token, and dies with this process."""
        return processes.popen(self.command(argv), token, **options)


class LocalConnection(MachineConnection):
    """Our own machine."""

    def command(self, argv: Sequence[str], *, terminal: bool = False, root: bool = True) -> list[str]:  # noqa: ARG002
        return list(argv)

    def forward(self, forwards: Forwards) -> None:
        """Ports are the same ones here; sockets get a second name."""
        for path, target in forwards.inward.items():
            path.unlink(missing_ok=True)
            path.symlink_to(target)
        for target, path in forwards.outward.items():
            Path(target).unlink(missing_ok=True)
            Path(target).symlink_to(path)

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: a local connection holds nothing open."""


class SshConnection(MachineConnection):
    """A machine behind ssh. `folder` gets the control socket."""

    def __init__(self, machine: Machine, folder: Path, token: str, wait_s: int) -> None:
        super().__init__(machine)
        self._wait_s = wait_s
        self._control = folder / "ssh"
        self._errors = folder / "ssh.log"
        self._prefix: tuple[str, ...] = ()
        with self._errors.open("wb") as errors:
            self._master = processes.popen(
                [*self._ssh("-o", "ControlMaster=yes"), "-N", self._destination],
                token,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self._await_master()
            self._become_root()
        except BaseException:
            self.close()
            raise

    @property
    def _destination(self) -> str:
        user = self.machine.user
        return f"{user}@{self.machine.address}" if user else self.machine.address

    def _ssh(self, *arguments: str) -> list[str]:
        machine = self.machine
        machine_options = [part for option in machine.ssh_options for part in ("-o", option)]
        port = ["-p", str(machine.port)] if machine.port else []
        identity = ["-i", machine.identity] if machine.identity else []
        fixed_options = (
            "BatchMode=yes",
            f"ConnectTimeout={self._wait_s}",
            f"ServerAliveInterval={ALIVE_EVERY_S}",
            f"ServerAliveCountMax={SILENCE_S // ALIVE_EVERY_S}",
            "StreamLocalBindUnlink=yes",
            "LogLevel=ERROR",
            "ForwardX11=no",
            "ForwardAgent=no",
            f"ControlPath={self._control}",
        )
        return [
            "ssh",
            *machine_options,
            *port,
            *identity,
            *(part for option in fixed_options for part in ("-o", option)),
            *arguments,
        ]

    def _await_master(self) -> None:
        limit = time.monotonic() + self._wait_s + 5
        while not self._control.exists():
            if self._master.poll() is not None:
                raise ConnectionLostError(self._error_with_cure())
            if time.monotonic() > limit:
                raise ConnectionLostError(f"{self.machine.name}: ssh to {self._destination} does not answer")
            time.sleep(0.02)

    def _error_with_cure(self) -> str:
        """Return ssh's error text with the cure for that error."""
        message = " ".join(self._errors.read_text(errors="replace").split()) if self._errors.exists() else ""
        login = shlex.join(["ssh", *(["-p", str(self.machine.port)] if self.machine.port else []), self._destination])
        cure = next((cure for mark, cure in _CURES if mark in message), "try `{login}`")
        error = message or f"ssh ended with code {self._master.poll()}"
        return f"{self.machine.name}: no connection to {self._destination}: {error}: {cure.format(login=login)}"

    def _become_root(self) -> None:
        """Find out whether commands need sudo. Raises FabricError where it wants a password."""
        user_id = self.run(["id", "-u"], root=False)
        if user_id.returncode != 0:
            raise ConnectionLostError(f"{self.machine.name}: cannot run commands: {_last(user_id.stderr)}")
        if user_id.stdout.strip() == b"0":
            return
        sudo = self.run(["sudo", "-n", "true"], root=False)
        if sudo.returncode != 0:
            raise FabricError(
                f"{self.machine.name}: {self._destination} cannot become root there ({_last(sudo.stderr)}): log in "
                "as root, or let the user run sudo without a password (NOPASSWD in sudoers)"
            )
        self._prefix = ("sudo", "-n")

    def command(self, argv: Sequence[str], *, terminal: bool = False, root: bool = True) -> list[str]:
        remote_command = shlex.join([*(self._prefix if root else ()), *argv])
        return [
            *self._ssh("-o", "ControlMaster=no"),
            "-tt" if terminal else "-T",
            self._destination,
            "--",
            remote_command,
        ]

    def forward(self, forwards: Forwards) -> None:
        arguments: list[str] = []
        for local_port, remote_port in forwards.tcp.items():
            arguments += ["-L", f"127.0.0.1:{local_port}:127.0.0.1:{remote_port}"]
        for path, socket in forwards.inward.items():
            arguments += ["-L", f"{path}:{socket}"]
        for socket, path in forwards.outward.items():
            arguments += ["-R", f"{socket}:{path}"]
        if not arguments:
            return
        request = subprocess.run(
            [*self._ssh(), "-O", "forward", *arguments, self._destination],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_S,
        )
        if request.returncode != 0:
            raise FabricError(
                f"{self.machine.name}: ssh does not forward our sockets ({_last(request.stderr)}): its "
                "sshd_config needs `AllowTcpForwarding yes` and `AllowStreamLocalForwarding yes` (the defaults)"
            )

    def alive(self) -> bool:
        return self._master.poll() is None

    def close(self) -> None:
        if self._master.poll() is None:
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                subprocess.run(
                    [*self._ssh(), "-O", "exit", self._destination],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=5,
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._master.wait(2)
        if self._master.poll() is None:
            self._master.kill()
            self._master.wait()
        self._control.unlink(missing_ok=True)


def connect(machine: Machine, folder: Path, token: str, wait_s: int = CONNECT_S) -> MachineConnection:
    """Connect to a machine, which has to answer within `wait_s` seconds.

    Raises ConnectionLostError, FabricError.
    """
    if not machine.is_local:
        return SshConnection(machine, folder, token, wait_s)
    if os.geteuid() != 0:
        raise FabricError(f"{machine.name}: a part of a fabric on this machine needs root: run it with sudo")
    return LocalConnection(machine)


def _last(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason given"
