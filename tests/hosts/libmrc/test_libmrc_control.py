"""Controllers in C: mrc_ctl.c over a NIC process (check_control.c)."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.nicd import guests
from tests.hosts.libmrc import c_programs


@pytest.mark.parametrize("test", [test for test in c_programs.tests_of("check_control") if test != "live"])
def test_control(tmp_path, monkeypatch, test):
    monkeypatch.setattr(guests.Caller, "is_root", test != "unprivileged")
    c_programs.run_control([str(c_programs.program("check_control"))], test, tmp_path)
