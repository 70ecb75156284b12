"""Queues of libmrc: events, resets, ends and wraps (check_queues.c)."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.nicd import program
from tests.hosts.libmrc import c_programs


@pytest.mark.parametrize("test", c_programs.tests_of("check_queues"))
def test_queues(processes, monkeypatch, test):
    monkeypatch.setattr(program, "MAX_OBJECTS", 50)
    c_programs.run([str(c_programs.program("check_queues")), test], processes)
