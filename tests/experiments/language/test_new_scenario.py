"""`mrc scenario new`: each answer makes a file without a mistake, which runs and passes."""

from __future__ import annotations

from itertools import product

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.new_scenario import BASELINES, FAULTS, WORKS, Answers, scenario_text
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs


@pytest.mark.parametrize("answers", product(WORKS, FAULTS, BASELINES))
def test_every_answer__makes_a_scenario_that_reads_live_and_virtual(tmp_path, answers):
    work, fault, against = answers
    file = tmp_path / "mine.yaml"
    file.write_text(scenario_text(Answers(work, 6, fault, 2.5, against)))
    for backend in ("virtual", "live"):
        runs = plan_runs(read(file), backend).runs
        assert len(runs) == (1 if against == "none" else 2)
        assert len(runs[0].steps()) == (0 if fault == "none" else 2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"work": "all_redice"}, "--work all_redice: no such answer (did you mean all_reduce?)"),
        ({"hosts": 5}, "--hosts 5: give an even number, 2 to 64"),
        ({"fault": "x"}, "--fault x: no such answer (has: cut, "),
        ({"seconds": 0.0}, "--seconds 0: give 1 to 60"),
        ({"against": "roce"}, "--against roce: no such answer"),
    ],
)
def test_answer__that_is_wrong_says_what_would_do(values, words):
    with pytest.raises(UsageError) as refusal:
        Answers(**values)
    assert words in str(refusal.value)


def test_file__passes_at_once_and_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["scenario", "new", "mine.yaml", "--seconds", "1", "--work", "all_reduce", "--against", "rocev2"]
    assert CliRunner().invoke(app, words).exit_code == 0
    result = CliRunner().invoke(app, ["run", "mine.yaml", "--virtual", "--out", "out"])
    assert result.exit_code == 0, result.output
    repetition = CliRunner().invoke(app, words)
    assert "mine.yaml: exists already" in str(repetition.exception)
