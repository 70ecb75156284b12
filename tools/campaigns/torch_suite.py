"""PyTorch's own tests of torch.distributed, with backend `mrc` over the running fabric, beside gloo.

`python -m tools.campaigns.torch_suite` with the options of `--help`, beside `mrc up -d --rate none --hosts-per-rack 4`.

The suite is that of the installed PyTorch. Its decorators see `gloo`, so `mrc` is asked all that gloo is. A test runs
in a process with a limit of time, its ranks on hosts of the fabric, one a host. What gloo skips or fails on the same
machine is no fault of `mrc`. A test of what `mrc` refuses must fail and its words must name the refusal (REFUSALS).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from mrc_testbed.cli.training import choose_hosts
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.libmrc import library
from mrc_testbed.ipc.rundir import FabricError, RunFiles
from mrc_testbed.topologies.plan import Plan

LIMIT_S = 120.0
"""Longest time of a test: above the minute after which its groups time out."""
ONLY_MPI = "Only MPI"
"""Words of the reasons for which gloo is not asked what MPI is."""
NEEDS_GPU = r"CUDA (devices|is not available)"
"""Words of the reasons for which tests are not run without GPUs."""
COUNTS = (2, 3, 4, 8)
"""Ranks of a job; the suite runs with each."""


@dataclass(frozen=True)
class SuiteRefusal:
    """Tests of something that `mrc` has not, and words of the error that each of them ends with."""

    tests: str
    """Pattern of their whole names."""
    subject: str
    words: str


REFUSALS = (
    SuiteRefusal(
        "test_monitored_barrier_(gloo|gloo_subgroup|failure_order|wait_all_ranks)",
        "dist.monitored_barrier, which PyTorch itself keeps for gloo; the group's own method is there",
        "monitored_barrier is only implemented for GLOO backend",
    ),
)


@dataclass
class SuiteRow:
    """A test with a number of ranks: how it ended over `mrc` and over gloo, with the reasons."""

    test: str
    ranks: int
    mrc: str
    gloo: str
    reason: str
    gloo_reason: str
    seconds: float

    @property
    def verdict(self) -> str:
        """Return what the test says of `mrc`: passed, skipped, gloo too, refused, FAILED."""
        if refusal := refusal_of(self.test):
            is_refused = self.mrc == "failed" and refusal.words in self.reason
            return "refused" if is_refused else "skipped" if self.mrc == "skipped" else "FAILED"
        if self.mrc == "failed":
            return "gloo too" if self.gloo == "failed" else "FAILED"
        return self.mrc

    @property
    def short_reason(self) -> str:
        """Return the reason in a line: of an error, its last one."""
        if self.verdict == "refused" and (refusal := refusal_of(self.test)):
            return refusal.subject
        lines = [line for line in self.reason.splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return (errors or lines or [""])[-1].strip()[:200]


def refusal_of(test: str) -> SuiteRefusal | None:
    """Return the refusal that a test is about, if any."""
    return next((refusal for refusal in REFUSALS if re.fullmatch(refusal.tests, test)), None)


class SuiteProcess:
    """Process that has imported the suite, for a backend and a number of ranks. A context manager.

    `seen_as`: backend that the decorators of its tests see: gloo, mpi, or cuda: gloo with the CPU in place of GPUs.
    """

    def __init__(self, backend: str, seen_as: str, *, ranks: int, limit_s: float, sockets: Sequence[Path] = ()) -> None:
        words = (backend, seen_as, str(ranks), str(limit_s), *map(str, sockets))
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.torch_suite_process", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1", **({"LD_PRELOAD": str(library())} if sockets else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self.tests: list[str] = self._read()

    def _read(self) -> list[str]:
        line = self._answers.readline()
        if not line:
            raise UsageError("the process with PyTorch's suite ended. Cure: run tools.campaigns.torch_suite_process")
        answer: list[str] = json.loads(line)
        return answer

    def run(self, test: str) -> tuple[str, str]:
        """Run a test; return its status, and the reason. Raises UsageError when the process ended."""
        print(test, file=self._questions, flush=True)
        status, reason = self._read()
        return status, reason

    def __enter__(self) -> SuiteProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(BrokenPipeError):
            self._questions.close()
        self._process.wait()


class BackendSuite:
    """The suite over a backend, a process for each that its decorators may see. A context manager."""

    def __init__(self, backend: str, ranks: int, limit_s: float, sockets: Sequence[Path] = ()) -> None:
        self._make = partial(SuiteProcess, backend, ranks=ranks, limit_s=limit_s, sockets=sockets)
        self._stack = ExitStack()
        self._processes = {"gloo": self._stack.enter_context(self._make("gloo"))}

    @property
    def tests(self) -> list[str]:
        return self._processes["gloo"].tests

    def run(self, test: str, seen_as: str = "gloo") -> tuple[str, str]:
        """Run a test that sees a backend; return its status, and the reason. Raises UsageError."""
        if seen_as not in self._processes:
            self._processes[seen_as] = self._stack.enter_context(self._make(seen_as))
        return self._processes[seen_as].run(test)

    def __enter__(self) -> BackendSuite:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def run_test(test: str, ranks: int, over_mrc: BackendSuite, over_gloo: BackendSuite) -> SuiteRow:
    """Run a test over both; return its row. Raises UsageError."""
    began_at = time.monotonic()
    status, reason = over_mrc.run(test)
    gloo_status, gloo_reason = over_gloo.run(test)
    if status == "skipped" and ONLY_MPI in reason:
        status, reason = over_mrc.run(test, "mpi")
    elif status == "skipped" and re.search(NEEDS_GPU, reason):
        # Whether it is a test without a GPU at all, gloo says.
        cpu_status, cpu_reason = over_gloo.run(test, "cuda")
        if cpu_status == "passed":
            gloo_status, gloo_reason = cpu_status, cpu_reason
            status, reason = over_mrc.run(test, "cuda")
    return SuiteRow(test, ranks, status, gloo_status, reason, gloo_reason, round(time.monotonic() - began_at, 1))


def run_suite(sockets: Sequence[Path], ranks: int, pattern: str, limit_s: float) -> list[SuiteRow]:
    """Run the tests that a pattern finds, over the NIC processes of `sockets` and over gloo; show each.

    Raises UsageError.
    """
    rows = []
    with BackendSuite("mrc", ranks, limit_s, sockets) as over_mrc, BackendSuite("gloo", ranks, limit_s) as over_gloo:
        for test in over_mrc.tests:
            if re.search(pattern, test):
                rows.append(row := run_test(test, ranks, over_mrc, over_gloo))
                of_gloo = f" (gloo {row.gloo})" if row.gloo != row.mrc else ""
                line = f"{ranks} ranks, {test}: {row.verdict}{of_gloo}, {row.seconds} s  {row.short_reason}"
                console().print(line, markup=False, soft_wrap=True)
    return rows


def print_table(rows: Sequence[SuiteRow]) -> None:
    """Print how many tests ended how for each number of ranks, and why tests were skipped or refused."""
    for ranks in sorted({row.ranks for row in rows}):
        counts = Counter(row.verdict for row in rows if row.ranks == ranks)
        console().print(f"{ranks} ranks: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    reasons = Counter((row.verdict, row.short_reason) for row in rows if row.verdict in ("skipped", "refused"))
    for (verdict, reason), count in reasons.most_common():
        console().print(f"{count:5} {verdict}: {reason}", markup=False, soft_wrap=True)


def main() -> int:
    """Run the suite with each number of ranks; return 1 when a test failed over `mrc` alone."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.torch_suite", description="PyTorch's own tests")
    parser.add_argument("--ranks", default=",".join(map(str, COUNTS)), help="numbers of ranks, with commas")
    parser.add_argument("--only", default="", help="pattern that the names of tests hold")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="longest time of a test in seconds")
    parser.add_argument("--sockets", type=Path, nargs="+", help="NIC processes of the ranks, in place of the fabric's")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    missing_modules = [name for name in ("torch", "expecttest") if find_spec(name) is None]
    if missing_modules:
        names = " ".join(missing_modules)
        console().print(f"PyTorch's tests need what is not installed. Cure: pip install {names}")
        return 2
    rows = []
    # A row is shown as soon as it is there; the table comes at the end.
    try:
        for ranks in map(int, arguments.ranks.split(",")):
            sockets = arguments.sockets or fabric_sockets(ranks)
            rows += run_suite(sockets[:ranks], ranks, arguments.only, arguments.limit)
    except (FabricError, OSError, UsageError, ValueError) as error:
        console().print(f"cannot run the suite: {error}. Cure: mrc up -d --rate none --hosts-per-rack 4")
        return 2
    if not rows:
        console().print(f"no test is named '{arguments.only}'. Cure: a part of test_all_reduce_sum")
        return 2
    print_table(rows)
    if arguments.json:
        print(json.dumps([{**asdict(row), "verdict": row.verdict} for row in rows], indent=1))
    return 1 if any(row.verdict == "FAILED" for row in rows) else 0


def fabric_sockets(ranks: int) -> list[Path]:
    """Return the sockets of as many hosts of the running fabric. Raises FabricError, UsageError."""
    files = RunFiles(RunFiles().path)
    hosts = choose_hosts(Plan.from_json(files.read_plan()), [], ranks)
    return [files.nic_socket(host.name) for host in hosts]


if __name__ == "__main__":
    sys.exit(main())
