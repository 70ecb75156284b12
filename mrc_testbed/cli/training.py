"""`mrc train`: ranks of a PyTorch job on hosts of the running fabric, one a host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from mrc_testbed.cli.host_shell import node_words
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.jobs.fabric_cpu import CpuShares, fabric_pids
from mrc_testbed.hosts.jobs.ranks import KEPT_LINES, PATIENCE_S, RankProcess, Ranks
from mrc_testbed.hosts.jobs.training import (
    digest_of,
    free_port,
    nic_counts,
    program_mistake,
    python_words,
    step_of,
    variables_of,
)
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Host, Plan


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


class TrainingJob:
    """A job on the fabric of a run folder. `show`: takes each line for the terminal."""

    def __init__(self, folder: Path, plan: Plan, hosts: list[Host], backend: str, show: Callable[[str], None]) -> None:
        self._folder, self._files, self._plan = folder, RunFiles(folder), plan
        self._hosts, self._backend, self._show = hosts, backend, show
        self._ranks = Ranks(self._take)
        self._digests: dict[int, str] = {}
        self._cpu = CpuShares()
        self._fabric_pids: dict[str, list[int]] = {}
        self.steps: list[TrainingStep] = []

    def run(self, words: list[str]) -> int:
        """Run a program with its arguments on every host; return the status of the first that failed.

        Raises FabricError, BuildError, UsageError.
        """
        port = free_port()
        try:
            for number, host in enumerate(self._hosts):
                variables = variables_of(self._plan, self._hosts, number, port, self._backend)
                command = self._words(host.name, ["env", *variables, *python_words(words)])
                try:
                    self._ranks.start(host.name, command)
                except OSError as error:
                    raise UsageError(f"cannot run {command[0]}: {error.strerror}") from error
            failed = self._ranks.wait(PATIENCE_S)
        finally:
            self._ranks.end()
        return self._report(failed)

    def _words(self, host: str, words: list[str]) -> list[str]:
        if self._backend == "loopback":
            return words
        return node_words(self._folder, host, words, stay_here=self._backend == "mrc")

    def _take(self, rank: RankProcess, text: str) -> None:
        """Take a rank's line: the first rank's are shown, with what NICs count at each step."""
        if digest := digest_of(text):
            self._digests[rank.number] = digest
        elif rank.number == 0:
            self._show(text + self._counters_at(text))

    def _counters_at(self, text: str) -> str:
        """Return what the ranks' NICs have counted, behind a line of a step."""
        if (number_and_time := step_of(text)) is None:
            return ""
        hosts = [host.name for host in self._hosts] if self._backend == "mrc" else []
        programs = nic_counts(self._files, hosts).values()
        step = TrainingStep(
            *number_and_time,
            sum(program.retransmitted for program in programs),
            sum(program.evs_out for program in programs),
        )
        self.steps.append(step)
        self._end_step()
        return f"  sent again {step.retransmitted}  EVs out {step.evs_out}" if self._backend == "mrc" else ""

    def _end_step(self) -> None:
        """Count the CPU of the ranks, and of the fabric's parts where the job uses it."""
        if self._backend != "loopback" and not self._fabric_pids:
            self._fabric_pids = fabric_pids(self._files, [host.name for host in self._hosts])
        ranks = {"ranks": [rank.process.pid for rank in self._ranks.members]}
        self._cpu.end_step(ranks | self._fabric_pids)

    def _report(self, failed: RankProcess | None) -> int:
        """Say how the job ended; return its status."""
        members = self._ranks.members
        if failed is not None:
            for rank in members:
                self._show(f"rank {rank.number} on {rank.host} ended with {rank.process.returncode}; its last lines:")
                for line in list(rank.lines)[-(KEPT_LINES if rank is failed else 3) :]:
                    self._show(f"    {line}")
            return failed.process.returncode if failed.process.returncode > 0 else 1
        seconds = [step.seconds for step in self.steps]
        if seconds:
            self._show(
                f"{len(seconds)} steps: median {median(seconds):.3f} s, slowest {max(seconds):.3f} s; "
                f"{self.steps[-1].retransmitted} packets sent again"
            )
        if cpu := self._cpu.seconds_a_step():
            parts = ", ".join(f"{part} {seconds * 1e3:.1f} ms" for part, seconds in cpu.items())
            self._show(f"CPU of a step: {parts}")
        digests = set(self._digests.values())
        if len(digests) == 1:
            self._show(f"SHA-256 of the parameters, equal on {len(members)} ranks: {digests.copy().pop()}")
        elif digests:
            self._show("the ranks ended with different parameters:")
            for rank in members:
                self._show(f"    rank {rank.number} on {rank.host}: {self._digests.get(rank.number)}")
            return 1
        return 0

    def to_json(self, status: int) -> dict[str, Any]:
        """Return the result for --json."""
        digests = {self._digests.get(rank.number) for rank in self._ranks.members}
        return {
            "backend": self._backend,
            "hosts": [rank.host for rank in self._ranks.members],
            "exit_codes": [rank.process.returncode for rank in self._ranks.members],
            "status": status,
            "cpu_s_a_step": self._cpu.seconds_a_step(),
            "steps": [step.__dict__ for step in self.steps],
            "sha256": digests.pop() if len(digests) == 1 else None,
        }


def check_program(words: list[str]) -> None:
    """Raise UsageError for a program that cannot be read, and without PyTorch."""
    if mistake := program_mistake(Path(words[0])):
        raise UsageError(mistake)
