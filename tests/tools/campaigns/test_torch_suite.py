"""PyTorch's own tests over backend mrc: verdicts, and some tests on NIC processes, without root."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.hosts.nicd.nic_processes import NicProcesses
from tests.repository import ROOT
from tools.campaigns import torch_suite
from tools.campaigns.torch_suite import SuiteRow

REFUSAL = "ValueError: monitored_barrier is only implemented for GLOO backend."


def row(test="test_all_gather", mrc="passed", gloo="passed", reason=""):
    return SuiteRow(test, 2, mrc, gloo, reason, "", 0.1)


@pytest.mark.parametrize(
    "suite_row, verdict",
    [
        (row(), "passed"),
        (row(mrc="skipped", reason="CUDA is not available."), "skipped"),
        (row(mrc="failed", gloo="failed"), "gloo too"),
        (row(mrc="failed"), "FAILED"),
        (row(mrc="failed", gloo="skipped"), "FAILED"),
        (row("test_monitored_barrier_gloo", mrc="failed", reason=REFUSAL), "refused"),
        # A test of the list that fails for another reason, and one that passes: the list is wrong.
        (row("test_monitored_barrier_gloo", mrc="failed", reason="its process ended"), "FAILED"),
        (row("test_monitored_barrier_gloo"), "FAILED"),
        (row("test_monitored_barrier_failure_order", mrc="skipped"), "skipped"),
        (row("test_monitored_barrier_gloo_rank_0_timeout", mrc="failed", reason=REFUSAL), "FAILED"),
    ],
)
def test_verdict(suite_row, verdict):
    assert suite_row.verdict == verdict


def test_short_reason__is_the_last_error():
    text = "Traceback:\n  File x\nRuntimeError: Process 0 ended\nValueError: no\n\nDuring handling\n  more"
    assert row(mrc="failed", reason=text).short_reason == "ValueError: no"
    assert row(mrc="skipped", reason="Need at least 2 CUDA devices").short_reason == "Need at least 2 CUDA devices"


def test_main__names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["torch_suite"])
    monkeypatch.setattr(torch_suite, "find_spec", lambda name: None if name == "expecttest" else name)
    assert torch_suite.main() == 2
    assert "Cure: pip install expecttest" in capsys.readouterr().out


@pytest.mark.thorough
def test_main__runs_tests_over_both_backends(tmp_path):
    for name in ("torch", "expecttest"):
        pytest.importorskip(name, reason="PyTorch's own tests need it")
    # One of each kind: as gloo is asked, as MPI is, with the CPU in place of GPUs, and one that is refused.
    tests = (
        "test_all_reduce_sum_async",
        "test_all_to_all_single_unequal_split",
        "test_ddp_zero_output_features",
        "test_monitored_barrier_gloo_subgroup",
        "test_nccl_high_priority_stream",
    )
    with NicProcesses(tmp_path) as processes:
        words = ["--sockets", *map(str, processes.sockets.values()), "--ranks", "2", "--only", f"^({'|'.join(tests)})$"]
        result = subprocess.run(
            [sys.executable, "-m", "tools.campaigns.torch_suite", *words, "--json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    rows = json.loads(result.stdout[result.stdout.index("\n[\n") :])
    verdicts = {item["test"]: (item["verdict"], item["gloo"]) for item in rows}
    assert verdicts == {
        "test_all_reduce_sum_async": ("passed", "passed"),
        "test_all_to_all_single_unequal_split": ("passed", "skipped"),
        "test_ddp_zero_output_features": ("passed", "passed"),
        "test_monitored_barrier_gloo_subgroup": ("refused", "passed"),
        "test_nccl_high_priority_stream": ("skipped", "skipped"),
    }
