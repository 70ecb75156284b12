"""Ranks of jobs, forked from a process that has imported PyTorch.

That import is most of the CPU time of a short job. Run as a program, this is that process, which has no thread but its
first. It reads a job from a line of its input, forks the ranks and answers with how each ended, as JSON. A rank is the
child of a fork, with an environment, an output file and an end of its own: whatever becomes of it, the next job has
new ones.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE, library
from tests.repository import ROOT

MODULES = (
    "mrc_testbed.torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.parallel",
    "torch.profiler",
)
"""Modules that ranks import, and those that PyTorch imports at first use."""
PATIENCE_S = 110
LAST_WORDS_S = 5
"""Time in which a rank that is held up writes where it is."""


@dataclass(frozen=True)
class Job:
    """Program with its arguments, and a rank for each set of variables and output file.

    A rank that still runs after `patience_s` is ended, and writes where it is.
    """

    program: str
    arguments: Sequence[str]
    variables: Sequence[Mapping[str, str]]
    outputs: Sequence[str]
    patience_s: float


@dataclass(frozen=True)
class RankEnd:
    """End of a rank: its exit code or minus a signal, whether it ran on, and its output."""

    code: int
    ran_on: bool
    output: str

    def check(self, rank: int) -> str:
        """Return the output of a rank that ended as it should; raise AssertionError with it where it did not."""
        ending = f"was ended by {signal.Signals(-self.code).name}" if self.code < 0 else f"ended with {self.code}"
        assert self.code == 0, f"rank {rank} {'ran on and ' * self.ran_on}{ending}:\n{self.output}"
        return self.output


class RankServer:
    """The process, and the jobs that are run by it. A context manager."""

    def __init__(self) -> None:
        # Without OMP_NUM_THREADS numpy's OpenBLAS starts a thread as it is loaded.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(library())}
        environment.pop(SOCKET_VARIABLE, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torch.rank_server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        program: Path,
        arguments: Sequence[str],
        variables: Sequence[Mapping[str, str]],
        folder: Path,
        patience_s: float = PATIENCE_S,
    ) -> list[RankEnd]:
        """Run a job, a rank for each set of variables, with files in a folder; return how each rank ended."""
        outputs = [folder / f"rank-{rank}.txt" for rank in range(len(variables))]
        variables_of_ranks = [
            {"RANK": str(rank), "WORLD_SIZE": str(len(variables)), **rank_variables}
            for rank, rank_variables in enumerate(variables)
        ]
        job = Job(str(program), arguments, variables_of_ranks, list(map(str, outputs)), patience_s)
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asdict(job)), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the process that forks the ranks ended"
        return [
            RankEnd(code, ran_on, output.read_text(errors="replace"))
            for (code, ran_on), output in zip(json.loads(answer), outputs, strict=True)
        ]

    def __enter__(self) -> RankServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()


def become_rank(job: Job, rank: int) -> None:
    """Make this process, the child of a fork, a rank of a job: as if it had been started for that alone."""
    output = os.open(job.outputs[rank], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(output)
    os.close(null)
    faulthandler.enable()
    os.environ.update(job.variables[rank])
    sys.argv = [job.program, *job.arguments]
    sys.path[0] = os.path.dirname(job.program)


def wait_for(pids: Sequence[int], patience_s: float) -> list[tuple[int, bool]]:
    """Wait for the ranks; return the exit code of each, and whether it ran on and was ended."""
    descriptors = {os.pidfd_open(pid): pid for pid in pids}
    late_pids = set()
    for seconds, ending in ((patience_s, signal.SIGABRT), (LAST_WORDS_S, signal.SIGKILL)):
        deadline = time.monotonic() + seconds
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        running = dict(descriptors)
        while running and (rest_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(rest_s * 1000):
                poll.unregister(descriptor)
                del running[descriptor]
        late_pids.update(running.values())
        for pid in running.values():
            os.kill(pid, ending)
    for descriptor in descriptors:
        os.close(descriptor)
    codes = {pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    return [(codes[pid], pid in late_pids) for pid in pids]


def main() -> None:
    """Fork the ranks of job after job, until the input ends. In a rank this returns after its program."""
    for module in MODULES:
        importlib.import_module(module)
    tasks = os.listdir("/proc/self/task")
    assert len(tasks) == 1, f"{len(tasks)} threads: a fork would have one of them alone, and what others hold for ever"
    gc.freeze()  # the end of a rank would look through all that PyTorch made as it was imported
    for line in sys.stdin:
        job = Job(**json.loads(line))
        pids = []
        for rank in range(len(job.variables)):
            pid = os.fork()
            if not pid:
                become_rank(job, rank)
                runpy.run_path(job.program, run_name="__main__")
                return  # to the end of a process, with all that PyTorch does there
            pids.append(pid)
        print(json.dumps(wait_for(pids, job.patience_s)), flush=True)


if __name__ == "__main__":
    main()
