"""Writes of C programs through libmrc, each byte checked by the program (check_writes.c)."""

from __future__ import annotations

import pytest

from tests.hosts.libmrc import c_programs


@pytest.mark.parametrize("test", c_programs.tests_of("check_writes"))
def test_writes(processes, test):
    c_programs.run([str(c_programs.program("check_writes")), test], processes)
