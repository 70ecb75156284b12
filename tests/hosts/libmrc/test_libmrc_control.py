"""Controllers in C: mrc_ctl.c over a NIC process (check_control.c)."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.nicd import guests
from tests.hosts.libmrc import c_programs
from tests.hosts.nicd.nic_processes import NicProcesses

CUT_EVS = (0x001, 0x100)
"""Paths that are cut for the tests of events and probes."""


@pytest.mark.parametrize("test", [test for test in c_programs.tests_of("check_control") if test != "live"])
def test_control(tmp_path, monkeypatch, test):
    monkeypatch.setattr(guests.Caller, "is_root", test != "unprivileged")
    with NicProcesses(tmp_path) as processes:
        if test in ("events", "old_events", "probes"):
            for ev in CUT_EVS:
                processes.wire.cut(ev)
        c_programs.run([str(c_programs.program("check_control")), test], processes)
