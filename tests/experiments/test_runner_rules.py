"""Rules of the published experiments hold on the virtual fabric, with their files' seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mrc_testbed.experiments.command import SCENARIOS
from tests.machine_code import needs_compiler
from tests.repository import ROOT

pytestmark = [
    pytest.mark.build,
    pytest.mark.thorough,
    pytest.mark.timeout(1200),
    needs_compiler,
]
PUBLISHED_NAMES = sorted(path.stem for path in SCENARIOS.glob("e*.yaml"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    command = [sys.executable, "-m", "mrc_testbed", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", autouse=True)
def compiled_engine():
    assert run("compile").returncode == 0


@pytest.mark.parametrize("name", PUBLISHED_NAMES)
def test_rules_hold_on_the_virtual_fabric(name, tmp_path):
    result = run("run", name, "--virtual", "--jobs", "1", "--out", str(tmp_path / name))
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
