"""Queues of libmrc: events, resets, ends and wraps (check_queues.c)."""

from __future__ import annotations

import pytest

from tests.hosts.libmrc import c_programs


@pytest.mark.parametrize("test", c_programs.tests_of("check_queues"))
def test_queues(processes, test):
    c_programs.run([str(c_programs.program("check_queues")), test], processes)
