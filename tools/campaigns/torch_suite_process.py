"""Process that has imported PyTorch's suite, and forks one a test: see torch_suite.py.

    python -m tools.campaigns.torch_suite_process BACKEND AS RANKS LIMIT_S [SOCKET ...]

The suite's decorators see the backend AS: gloo, mpi, or cuda: gloo with the CPU in place of GPUs; so BACKEND is asked
all that AS is. It prints the names of its tests as a JSON list, reads a name a line, and prints an outcome a line.
Sockets are those of the NIC processes of the ranks of backend `mrc`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE

LOOK_S = 0.02
"""Time between two looks at a test's process."""
REASON_LINES = 60
"""Lines that are kept of a failure."""


class BackendName(str):
    """Name of a backend, which the suite takes for gloo's and MPI's too where it compares it."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, text: object) -> bool:
        return text in ("gloo", "mpi") or str.__eq__(self, text)

    def __ne__(self, text: object) -> bool:
        return not self == text


def suite_of(backend: str, seen_as: str, ranks: int, folder: str, sockets: list[str]) -> type[unittest.TestCase]:
    """Return PyTorch's suite for a backend; its ranks are forked, so that they need not import it again.

    `seen_as`: backend that the decorators of its tests see; `folder`: where ranks meet a second time.
    """
    is_for_cuda = seen_as == "cuda"
    seen_as = "gloo" if is_for_cuda else seen_as
    os.environ |= {
        "BACKEND": seen_as,
        "WORLD_SIZE": str(ranks),
        "TEMP_DIR": folder,
        "INIT_METHOD": f"file://{folder}/meet",
    }
    import torch

    from tools.campaigns import torch_cpu_device

    if is_for_cuda:
        torch_cpu_device.ask_no_gpus()
    from torch.testing._internal.distributed import distributed_test

    import mrc_testbed.torch  # registers the backend

    os.environ["BACKEND"] = "gloo"  # as decorators have been: the rest is asked when a test runs
    torch.set_num_threads(1)
    distributed_test.BACKEND = BackendName(backend)
    for name in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(distributed_test, name).append(mrc_testbed.torch.process_group.NAME)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank: int, *arguments: Any, **options: Any) -> None:
            if sockets:
                os.environ[SOCKET_VARIABLE] = sockets[rank]
            if is_for_cuda:
                torch_cpu_device.take_cpu()
            super()._run(rank, *arguments, **options)

    return Suite


def outcome(suite: type[unittest.TestCase], name: str) -> tuple[str, str]:
    """Run a test in this process; return its status, and why it was skipped or failed."""
    result = unittest.TestResult()
    suite(name).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    failures = [*result.errors, *result.failures]
    if failures:
        text = failures[0][1].split("\nTo execute this test")[0]
        return "failed", "\n".join(text.strip().splitlines()[-REASON_LINES:])
    return "passed", ""


def run_in_fork(run: Callable[[], tuple[str, str]], limit_s: float) -> tuple[str, str]:
    """Call a function in a process group of its own, until the limit; return what it returns."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        os.dup2(2, 1)  # what tests print is no outcome
        with os.fdopen(write_end, "w") as pipe:
            json.dump(run(), pipe)
        os._exit(0)
    os.close(write_end)
    with suppress(PermissionError):
        os.setpgid(process, process)  # whoever comes first
    deadline = time.monotonic() + limit_s
    while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process, 0)
    os.set_blocking(read_end, False)
    with os.fdopen(read_end, "rb") as answer:
        text = answer.read()
    if not text:
        is_late = time.monotonic() >= deadline
        return "failed", f"not done in {limit_s:g} s" if is_late else "its process ended without a word"
    status, reason = json.loads(text)
    return status, reason


def main() -> None:
    """Print the names, and run the tests that are asked for."""
    backend, seen_as, ranks, limit_s, *sockets = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        suite = suite_of(backend, seen_as, int(ranks), folder, sockets)
        print(json.dumps(unittest.TestLoader().getTestCaseNames(suite)), flush=True)
        for line in sys.stdin:
            print(json.dumps(run_in_fork(partial(outcome, suite, line.strip()), float(limit_s))), flush=True)


if __name__ == "__main__":
    main()
