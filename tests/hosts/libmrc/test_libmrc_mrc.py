"""The functions of mrc.h, called by a C program (check_mrc.c)."""

from __future__ import annotations

import pytest

from tests.hosts.libmrc import c_programs
from tests.hosts.nicd.nic_processes import NicProcesses


@pytest.mark.parametrize("test", [test for test in c_programs.tests_of("check_mrc") if test != "nic_ends"])
def test_mrc(processes, test):
    c_programs.run([str(c_programs.program("check_mrc")), test], processes)


def test_nic_process_that_ends__each_function_says_so(tmp_path):
    with NicProcesses(tmp_path) as processes:
        c_programs.run_until_the_nic_ends(c_programs.program("check_mrc"), processes)
