"""The functions of mrc.h, called by a C program (check_mrc.c)."""

from __future__ import annotations

import re

import pytest

from mrc_testbed.hosts.libmrc import INCLUDE
from tests.hosts.libmrc import c_programs


@pytest.mark.parametrize("test", c_programs.tests_of("check_mrc"))
def test_mrc(processes, test):
    c_programs.run([str(c_programs.program("check_mrc")), test], processes)


def test_mrc__each_function_is_called():
    functions = set(re.findall(r"\b(mrc_\w+)\([^;{]*\);", (INCLUDE / "mrc.h").read_text(encoding="utf-8")))
    calls = set(re.findall(r"\b(mrc_\w+)\(", (c_programs.FOLDER / "check_mrc.c").read_text(encoding="utf-8")))
    assert functions - calls == set()
