"""The STF scripts of this folder: NAME_*.stf against p4src/NAME.p4, as `mrc p4 test` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.switch.tools.stf import read_script
from mrc_testbed.switch.tools.stf_run import run_script
from tests.p4src.plan_switch import compiled_program

SCRIPTS = sorted(Path(__file__).parent.glob("*.stf"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script):
    report = run_script(compiled_program(script.stem.partition("_")[0]), read_script(script))
    assert report.passed, report.text()
    assert report.checks > 2


def test_scripts__are_found():
    assert {path.stem.partition("_")[0] for path in SCRIPTS} == {"srv6", "spray"}
