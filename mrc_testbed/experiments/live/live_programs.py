"""Programs of users in a live run: started on time, read, ended with the run, and what became of them.

Each has a thread of its own, so that no fault waits for a program. In a host a program is what `mrc exec` would run; as
a training job its ranks are those of `mrc train`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import PROGRAM, CollectiveOutcome, Iteration, Outcome, ProgramOutcome
from mrc_testbed.experiments.resolve.flows import ProgramPlan
from mrc_testbed.hosts.jobs.host_words import host_words, search_path
from mrc_testbed.hosts.jobs.ranks import PATIENCE_S, RankProcess, Ranks
from mrc_testbed.hosts.jobs.training import (
    digest_of,
    free_port,
    nic_counts,
    program_mistake,
    python_words,
    step_of,
    variables_of,
)
from mrc_testbed.hosts.nicd.status import ProgramStatus
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.topologies.lab.fabric import Fabric

OUTPUT_BYTES = 1 << 24
"""Most bytes of lines that are kept of all programs of a run."""
STOP_GRACE_S = 2.0
"""Time that a program has to end by itself at its `stop`."""
COUNT_EVERY_S = 0.2
"""Time between two looks at what NICs count of a program."""


def check_programs(programs: Sequence[ProgramPlan], *, several_machines: bool) -> None:
    """Raise UsageError, with the cure, for programs that cannot be run on this machine."""
    for program in programs:
        mistake = None
        if several_machines:
            mistake = "programs run on one machine only. Cure: without --servers"
        elif program.folder is not None and not os.path.isdir(program.folder):
            mistake = f"no folder {program.folder}. Cure: another `folder` of the workload, from the file's own"
        elif program.backend is not None:
            mistake = program_mistake(Path(program.folder or ".", program.words[0]))
        elif _path_of(program) is None:
            mistake = (
                f"no program {program.words[0]!r} in PATH. Cure: install it, or give its path, from "
                f"{program.folder or 'the folder of `mrc run`'}"
            )
        if mistake is not None:
            raise UsageError(f"workload {program.work}: {mistake}")


def _path_of(program: ProgramPlan) -> str | None:
    name = program.words[0]
    if "/" in name:
        name = os.path.join(program.folder or os.curdir, name)
    return shutil.which(name, path=search_path())


class _Output:
    """Lines of all programs, with their times, as long as there is room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._room = OUTPUT_BYTES
        self._dropped_count = 0

    def add(self, time_s: float, source: str, text: str) -> None:
        line = f"{time_s:10.3f}  {source}: {text}\n".encode()
        with self._lock:
            if len(line) > self._room:
                self._room, self._dropped_count = 0, self._dropped_count + 1
            else:
                self._room -= len(line)
                self._lines.append(line)

    def data(self) -> bytes:
        with self._lock:
            remark = f"... and {self._dropped_count} lines more\n".encode() if self._dropped_count else b""
            return b"".join(self._lines) + remark


class _Run:
    """One program of a run."""

    def __init__(self, plan: ProgramPlan, fabric: Fabric, start_time: float, output: _Output) -> None:
        self.plan, self._fabric, self._start_time, self._output = plan, fabric, start_time, output
        self.ranks = Ranks(self._take)
        self.steps: list[Iteration] = []
        self.digests: dict[int, str] = {}
        self.error = ""
        """Error that kept it from starting; empty: it started, or its time did not come."""
        self.started_s: float | None = None
        self.is_over = False
        self.counts: dict[tuple[str, int], ProgramStatus] = {}
        """(host, pid) -> what its NIC counted of a process at the last look."""
        self._counted_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._carry_out, name=f"program {plan.work}", daemon=True)
        self._thread.start()

    def now(self) -> float:
        return time.monotonic() - self._start_time

    def end(self) -> None:
        """End it with the run. Idempotent."""
        self._stop.set()
        self._thread.join()

    # ---- its thread -------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        if self._stop.wait(max(0.0, self.plan.start_s - self.now())):
            return
        self.started_s = self.now()
        try:
            self._start_ranks()
            self.ranks.wait(None if self.plan.backend is None else PATIENCE_S, self._check_ranks)
        except (FabricError, BuildError, OSError) as error:
            self.error = str(error)
        finally:
            self.ranks.end(0.0 if self._stop.is_set() else STOP_GRACE_S)
            self.is_over = True

    def _start_ranks(self) -> None:
        """Start the program on each of its hosts. Raises FabricError, BuildError, OSError."""
        backend, fabric = self.plan.backend, self._fabric
        hosts = [fabric.plan.host(name) for name in self.plan.ranks]
        port, start_folder = free_port(), self.plan.folder or os.getcwd()
        for number, host in enumerate(hosts):
            fabric.run_dir.check_host_on(host.name)
            words, variables = list(self.plan.words), list[str]()
            if backend is not None:
                words, variables = python_words(words), variables_of(fabric.plan, hosts, number, port, backend)
            if backend == "loopback":
                words = ["env", *variables, *words]
            else:
                # The NIC's process enters the host by the same file; ranks of `mrc` meet in our network.
                pid = None if backend == "mrc" else fabric.hosts[host.name].namespace_pid
                words = host_words(
                    fabric.run_dir.path, host.name, pid, words, start_folder=start_folder, environment=variables
                )
            self.ranks.start(host.name, words, fabric.run_dir.state.token, start_folder)

    def _check_ranks(self) -> bool:
        """End ranks whose host has lost its power, count packets; return whether the program has to end."""
        for rank in self.ranks.members:
            if not self._fabric.hosts[rank.host].is_powered and rank.process.poll() is None:
                rank.process.kill()  # a rank of `mrc` is in our network, where the host's end does not reach it
        if time.monotonic() >= self._counted_at + COUNT_EVERY_S:
            sessions = {rank.process.pid for rank in self.ranks.members}
            counts = nic_counts(self._fabric.run_dir, self.plan.ranks)
            # Replaced as a whole: the sampler's thread reads it.
            self.counts = self.counts | {
                key: status for key, status in counts.items() if _session_of(key[1]) in sessions
            }
            self._counted_at = time.monotonic()
        return self._stop.is_set() or (self.plan.stop_s is not None and self.now() >= self.plan.stop_s)

    def _take(self, rank: RankProcess, text: str) -> None:
        now = self.now()
        self._output.add(now, f"{self.plan.work} rank {rank.number} on {rank.host}", text)
        if digest := digest_of(text):
            self.digests[rank.number] = digest
        if rank.number == 0 and (step := step_of(text)) is not None:
            number, seconds = step
            self.steps.append(Iteration(number, now - seconds, now, rank.host, 0))

    # ---- what became of it ------------------------------------------------------------------------------

    def outcome(self) -> ProgramOutcome:
        """Return the program's outcome; it has ended."""
        members, counts = self.ranks.members, self.counts.values()
        ends = [rank.ended_at - self._start_time for rank in members if rank.ended_at is not None]
        has_ended = self.started_s is not None and all(rank.exit_code is not None for rank in members)
        return ProgramOutcome(
            self.plan.work,
            shlex.join(self.plan.words),
            list(self.plan.ranks),
            self.plan.backend,
            self.started_s,
            max(ends, default=None) if has_ended else None,
            [rank.exit_code for rank in members],
            [self.digests.get(rank.number) for rank in members],
            sent=sum(status.packets_sent for status in counts),
            lost=sum(status.lost for status in counts),
            retransmitted=sum(status.retransmitted for status in counts),
        )

    def report_failures(self, outcome: Outcome) -> None:
        """Record in the run's outcome what failed."""
        plan, members, run_end_s = self.plan, self.ranks.members, outcome.duration_s

        def fail(kind: str, at_s: float, text: str, count: int = 1) -> None:
            outcome.fail(kind, at_s, f"{plan.work}: {text}", plan.work, count)

        if self.started_s is None:
            fail("left_out", run_end_s, f"was to start at {plan.start_s:.4g} s: the run was over before")
            return
        if self.error:
            fail("program", self.started_s, f"could not be started: {self.error}")
            return
        failed_ranks = [rank for rank in members if rank.exit_code]
        for rank in failed_ranks:
            at_s = run_end_s if rank.ended_at is None else rank.ended_at - self._start_time
            last_line = next((line for line in reversed(rank.lines) if line.strip()), None)
            words = "it printed nothing" if last_line is None else f"its last line: {last_line}"
            fail("program", at_s, f"rank {rank.number} on {rank.host} {rank.how_it_ended()}; {words}")
        # Ranks that were ended for another's failure, or at `stop`, have not failed themselves.
        stopped_count = sum(rank.is_stopped for rank in members)
        if stopped_count and plan.stop_s is None and not (failed_ranks and plan.backend is not None):
            fail("unfinished", run_end_s, f"{stopped_count} of {len(members)} ranks ran on", stopped_count)
        if plan.steps is not None and plan.stop_s is None and (missing_count := plan.steps - len(self.steps)) > 0:
            text = f"{len(self.steps)} of {plan.steps} steps were printed"
            fail("unfinished", run_end_s, text, missing_count)
        if len(set(self.digests.values())) > 1:
            fail("damage", run_end_s, "the ranks ended with different parameters")


def _session_of(pid: int) -> int | None:
    """Return the session of a process, which is that of the rank that started it; None: it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


class LivePrograms:
    """All programs of a run."""

    def __init__(self, plans: Sequence[ProgramPlan]) -> None:
        self._plans = plans
        self._runs: list[_Run] = []
        self._output = _Output()

    def start(self, fabric: Fabric, start_time: float) -> None:
        """Begin to carry them out; `start_time`: of the workload, CLOCK_MONOTONIC seconds."""
        self._runs = [_Run(plan, fabric, start_time, self._output) for plan in self._plans]

    @property
    def all_over(self) -> bool:
        """Whether each of them has ended."""
        return all(run.is_over for run in self._runs)

    @property
    def share_done(self) -> float | None:
        """Share of their `steps` that are printed; None: no program has a number of them."""
        planned_runs = [(run, run.plan.steps) for run in self._runs if run.plan.steps is not None]
        planned_count = sum(count for _, count in planned_runs)
        done_count = sum(min(len(run.steps), count) for run, count in planned_runs)
        return done_count / planned_count if planned_count else None

    def packets_lost(self) -> tuple[int, int]:
        """Return packets found lost, and packets sent again, of all programs at the last look."""
        counts = [status for run in self._runs for status in run.counts.values()]
        return sum(status.lost for status in counts), sum(status.retransmitted for status in counts)

    def progress(self) -> list[tuple[str, bool]]:
        """Return a label of each, and whether it is over, for a live page."""
        return [(f"program {run.plan.work}", run.is_over) for run in self._runs]

    def end(self) -> None:
        """End those that run on. Idempotent."""
        for run in self._runs:
            run.end()

    def report(self, outcome: Outcome) -> None:
        """Add outcomes, steps, failures and printed lines to the run's outcome; all have ended."""
        outcome.output = self._output.data()
        for run in self._runs:
            result = run.outcome()
            outcome.programs.append(result)
            if run.steps:
                steps = CollectiveOutcome(result.work, PROGRAM, result.ranks, 0, 0.0, iterations=run.steps)
                outcome.collectives.append(steps)
            run.report_failures(outcome)
