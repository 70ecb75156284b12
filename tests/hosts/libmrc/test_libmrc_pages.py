"""Registered memory, children of fork(), and programs or NIC processes that end (check_memory.c)."""

from __future__ import annotations

import signal

import pytest

from tests.hosts.libmrc import c_programs
from tests.hosts.nicd.nic_processes import NicProcesses

ENDED_FROM_OUTSIDE = ("until_told", "nic_ends", "peer_ends")
TESTS = [test for test in c_programs.tests_of("check_memory") if test not in ENDED_FROM_OUTSIDE]


@pytest.mark.parametrize("test", TESTS)
def test_memory(processes, test):
    c_programs.run([str(c_programs.program("check_memory")), test], processes)


def test_killed__its_queue_pairs_go_at_once_and_another_program_goes_on(processes):
    program = str(c_programs.program("check_memory"))
    with c_programs.start([program, "until_told"], processes) as survivor:
        assert survivor.stdout.readline() == "ready\n"
        counts = processes.qp_counts()
        for _ in range(5):
            with c_programs.start([program, "until_told"], processes) as victim:
                assert victim.stdout.readline() == "ready\n"
                victim.send_signal(signal.SIGKILL)
                victim.wait()
            processes.wait_until(lambda: processes.qp_counts() == counts)
        output, errors = survivor.communicate("", timeout=c_programs.PATIENCE_S)
        assert (survivor.returncode, output) == (0, "passed\n"), errors
    c_programs.run([program, "kinds"], processes)


def test_nic_process_that_ends__no_call_hangs(tmp_path):
    with NicProcesses(tmp_path) as processes:
        c_programs.run_until_the_nic_ends(c_programs.program("check_memory"), processes)
