"""`mrc p4`: what it prints of a program, and what it refuses before a lab is made."""

import json
import os

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from tests.repository import P4SRC
from tests.topologies.p4lab.programs import MAC_SWITCH

runner = CliRunner()


def test_check__has_file_line_and_column_of_a_mistake(tmp_path):
    path = tmp_path / "wrong.p4"
    path.write_text(MAC_SWITCH.replace("macs.apply", "mac.apply"))
    result = runner.invoke(app, ["p4", "check", str(path)])
    assert result.exit_code == 1 and f"{path}:" in result.output and "error: " in result.output
    result = runner.invoke(app, ["p4", "check", str(path), str(P4SRC / "srv6.p4"), "--json"])
    assert result.exit_code == 1 and json.loads(result.output)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user is told to be root first")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["p4", "run"], "no program: the topology names none for each switch. Cure: `mrc p4 run my.p4`"),
        (["p4", "run", "my.p4", "--entries", "s9=x.json"], "--entries s9=x.json: no switch 's9' (has: s1)"),
    ],
)
def test_run__refuses_before_a_lab_is_made(words, message):
    result = runner.invoke(app, words)
    assert isinstance(result.exception, UsageError) and str(result.exception) == message
