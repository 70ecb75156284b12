"""`mrc train`: ranks of a PyTorch job on hosts of the running fabric, one a host.

A rank has torchrun's variables, its host's RDMA device, and MRC_TRAIN_BACKEND. Its TCP, by which ranks meet, is the
terminal's; with gloo everything is the host's own network, so that gloo's bytes go over the fabric's IP.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from mrc_testbed.cli.host_shell import node_words
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.ip.tun import INTERFACE
from mrc_testbed.hosts.nicd.status import programs_of
from mrc_testbed.ipc.processes import DEATH_SIGNAL
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Host, Plan

BACKENDS = ("mrc", "gloo", "loopback")
"""MRC over the fabric; gloo over the fabric's IP; gloo in the terminal's network, without the fabric."""
BACKEND_VARIABLE = "MRC_TRAIN_BACKEND"
"""Name of torch's backend, for the program to use."""
KEPT_LINES = 30
"""Last lines of each rank, which are shown when it fails."""
PATIENCE_S = 30.0
"""Time after a rank's failure for the others to hear of it and end; then they are killed."""
_STEP = re.compile(r"^step +(\d+)\b.*?([\d.]+) s$")
_DIGEST = re.compile(r"SHA-256 of the parameters (\w{64})")


def choose_hosts(plan: Plan, names: list[str], ranks: int) -> list[Host]:
    """Return the hosts of the ranks: those named, or the first of each rack in turn.

    Raises UsageError, PlanError.
    """
    if len(set(names)) < len(names):
        raise UsageError(f"--hosts {','.join(names)}: one rank a host, as the fabric carries nothing from it to itself")
    if names:
        return [plan.host(name) for name in names]
    if not 1 <= ranks <= len(plan.hosts):
        raise UsageError(f"--ranks {ranks}: the fabric has {len(plan.hosts)} hosts, a rank takes one")
    seats: dict[int, int] = {}
    order = []
    for host in plan.hosts:
        seats[host.rack] = seats.get(host.rack, 0) + 1
        order.append((seats[host.rack], host.rack, host))
    return [host for *_, host in sorted(order, key=lambda item: item[:2])][:ranks]


@dataclass
class TrainingStep:
    """A step as rank 0 printed it, and what the ranks' NICs counted until then."""

    step: int
    seconds: float
    retransmitted: int
    evs_out: int


@dataclass
class TrainingRank:
    """Process of one rank."""

    number: int
    host: str
    process: subprocess.Popen[str]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    digest: str | None = None


class TrainingJob:
    """A job on the fabric of a run folder. `show`: takes each line for the terminal."""

    def __init__(self, folder: Path, plan: Plan, hosts: list[Host], backend: str, show: Callable[[str], None]) -> None:
        self._folder, self._files, self._plan = folder, RunFiles(folder), plan
        self._hosts, self._backend, self._show = hosts, backend, show
        self.steps: list[TrainingStep] = []
        self.ranks: list[TrainingRank] = []

    def run(self, words: list[str]) -> int:
        """Run a program with its arguments on every host; return the status of the first that failed.

        Raises FabricError, BuildError, UsageError.
        """
        port = _free_port()
        for number, host in enumerate(self._hosts):
            variables = self._variables(number, port)
            command = [*DEATH_SIGNAL, *self._words(host.name, ["env", *variables, sys.executable, "-u", *words])]
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            except OSError as error:
                self._end()
                raise UsageError(f"cannot run {command[0]}: {error.strerror}") from error
            self.ranks.append(TrainingRank(number, host.name, process))
        readers = [threading.Thread(target=self._read, args=(rank,), daemon=True) for rank in self.ranks]
        for reader in readers:
            reader.start()
        try:
            failed = self._wait()
        finally:
            self._end()
        for reader in readers:
            reader.join()
        return self._report(failed)

    def _variables(self, number: int, port: int) -> list[str]:
        """Return torchrun's variables of a rank. MASTER_ADDR: where rank 0 waits for the others."""
        address, interfaces = "127.0.0.1", []
        if self._backend == "gloo":
            address = str(self._plan.ip_interfaces(self._hosts[0])[0].ip)
            interfaces = [f"GLOO_SOCKET_IFNAME={INTERFACE}"]  # else gloo asks for the machine's own name
        return [
            *interfaces,
            f"RANK={number}",
            f"WORLD_SIZE={len(self._hosts)}",
            "LOCAL_RANK=0",
            "LOCAL_WORLD_SIZE=1",
            f"MASTER_ADDR={address}",
            f"MASTER_PORT={port}",
            f"{BACKEND_VARIABLE}={'mrc' if self._backend == 'mrc' else 'gloo'}",
        ]

    def _words(self, host: str, words: list[str]) -> list[str]:
        if self._backend == "loopback":
            return words
        return node_words(self._folder, host, words, stay_here=self._backend == "mrc")

    def _read(self, rank: TrainingRank) -> None:
        """Take a rank's lines: the first rank's are shown, with what NICs count at each step."""
        assert rank.process.stdout is not None
        for line in rank.process.stdout:
            text = line.rstrip("\n")
            rank.lines.append(text)
            if digest := _DIGEST.search(text):
                rank.digest = digest[1]
            elif rank.number == 0:
                self._show(text + self._counters_at(text))

    def _counters_at(self, text: str) -> str:
        """Return what the ranks' NICs have counted, behind a line of a step."""
        match = _STEP.match(text)
        if match is None:
            return ""
        programs = []
        if self._backend == "mrc":
            for host in self._hosts:
                programs += programs_of(self._files.nic_socket(host.name)) or []
        step = TrainingStep(
            int(match[1]),
            float(match[2]),
            sum(program.retransmitted for program in programs),
            sum(program.evs_out for program in programs),
        )
        self.steps.append(step)
        return f"  sent again {step.retransmitted}  EVs out {step.evs_out}" if self._backend == "mrc" else ""

    def _wait(self) -> TrainingRank | None:
        """Wait for all ranks; return the first that failed, after which the others have PATIENCE_S."""
        failed, deadline = None, float("inf")
        while any(rank.process.poll() is None for rank in self.ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
            if failed is None and (failed := self._failed_rank()) is not None:
                deadline = time.monotonic() + PATIENCE_S
        return failed or self._failed_rank()

    def _failed_rank(self) -> TrainingRank | None:
        return next((rank for rank in self.ranks if rank.process.poll() not in (None, 0)), None)

    def _end(self) -> None:
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGKILL)
            rank.process.wait()

    def _report(self, failed: TrainingRank | None) -> int:
        """Say how the job ended; return its status."""
        if failed is not None:
            for rank in self.ranks:
                status = rank.process.returncode
                self._show(f"rank {rank.number} on {rank.host} ended with {status}; its last lines:")
                for line in list(rank.lines)[-(KEPT_LINES if rank is failed else 3) :]:
                    self._show(f"    {line}")
            return failed.process.returncode if failed.process.returncode > 0 else 1
        seconds = [step.seconds for step in self.steps]
        if seconds:
            self._show(
                f"{len(seconds)} steps: median {median(seconds):.3f} s, slowest {max(seconds):.3f} s; "
                f"{self.steps[-1].retransmitted} packets sent again"
            )
        digests = {rank.digest for rank in self.ranks if rank.digest is not None}
        if len(digests) == 1:
            self._show(f"SHA-256 of the parameters, equal on {len(self.ranks)} ranks: {digests.copy().pop()}")
        elif digests:
            self._show("the ranks ended with different parameters:")
            for rank in self.ranks:
                self._show(f"    rank {rank.number} on {rank.host}: {rank.digest}")
            return 1
        return 0

    def to_json(self, status: int) -> dict[str, Any]:
        """Return the result for --json."""
        digests = {rank.digest for rank in self.ranks}
        return {
            "backend": self._backend,
            "hosts": [rank.host for rank in self.ranks],
            "exit_codes": [rank.process.returncode for rank in self.ranks],
            "status": status,
            "steps": [step.__dict__ for step in self.steps],
            "sha256": digests.pop() if len(digests) == 1 else None,
        }


def _free_port() -> int:
    """Return a TCP port that nobody has now, for the ranks to meet at."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def check_program(words: list[str]) -> None:
    """Raise UsageError for a program that cannot be read, and without PyTorch."""
    if not os.path.isfile(words[0]):
        raise UsageError(f"{words[0]}: no such file. Cure: a Python program, such as examples/ddp.py")
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"{sys.executable} has no PyTorch. Cure: pip install 'mrc-testbed[torch]' (docs/training.md)")
