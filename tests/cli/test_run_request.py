"""Combinations of options of `mrc run`.

Every row of the table, alone, at the command line and in the document.
"""

import itertools
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli import run_request
from mrc_testbed.cli.app import app
from mrc_testbed.cli.run_request import RULES, RunRequest
from mrc_testbed.errors import UsageError
from tests.repository import ROOT

EXECUTION = {"live": {}, "rootless": {"rootless": True}, "virtual": {"virtual": True}, "fluid": {"fluid": True}}
SOURCE = {"files": {"files": ["e7"]}, "trace": {"trace": Path("step.goal")}}
RESULTS = {"new": {}, "resumed": {"resume": Path("results")}}
RUNS = {
    f"{execution} {source} {results}": {**EXECUTION[execution], **SOURCE[source], **RESULTS[results]}
    for execution, source, results in itertools.product(EXECUTION, SOURCE, RESULTS)
}
"""Every kind of run."""
VALUES = {
    "--virtual": True, "--rootless": True, "--servers": Path("servers.yaml"), "--wires": "veth", "--dash": True,
    "--scale": "paper", "--resume": Path("results"), "--executor": "slurm", "--out": Path("results"), "FILE": ["e7"],
    "--groups": Path("groups.json"), "--iterations": 2, "--fault": ["cut h0 p0-t0-0 at 1s"],
    "--ranks": 4, "--fabric": "planes=8", "--halves": True,
    "--against": "ecmp", "--compute-scale": 2.0, "--size-scale": 2.0,
    "--placement": "random",
}  # fmt: skip
"""A value for each option of the table that is not its default."""


def field_of(option: str) -> str:
    return "files" if option == "FILE" else option.removeprefix("--").replace("-", "_")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.option)
@pytest.mark.parametrize("run", RUNS)
def test_rule__refuses_its_option_where_it_is_not_allowed(rule, run, monkeypatch):
    request = RunRequest(**{**RUNS[run], field_of(rule.option): VALUES[rule.option]})
    monkeypatch.setattr(run_request, "RULES", (rule,))
    if request.kinds & set(rule.run_kinds):
        request.check()
        return
    with pytest.raises(UsageError) as error:
        request.check()
    assert str(error.value) == rule.text and str(error.value).startswith(f"{rule.option} is for ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.option)
def test_rule__is_short_and_never_broken_by_a_default(rule):
    assert len(rule.text.split()) <= 25
    assert not any(RunRequest(**run).has(rule.option) for run in RUNS.values() if field_of(rule.option) not in run)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["e7", "--virtual", "--fluid"], "--virtual"),
        (["e7", "--fluid", "--rootless"], "--rootless"),
        (["e7", "--rootless", "--servers", "servers.yaml"], "--servers"),
        (["e7", "--virtual", "--servers", "servers.yaml"], "--servers"),
        (["e7", "--fluid", "--wires", "veth"], "--wires"),
        (["e7", "--virtual", "--dash"], "--dash"),
        (["e7", "--fluid", "--dash"], "--dash"),
        (["e15", "--scale", "paper"], "--scale"),
        (["e15", "--resume", "results"], "--resume"),
        (["e15", "--fluid", "--resume", "results"], "--resume"),
        (["e7", "--executor", "slurm"], "--executor"),
        (["e7", "--virtual", "--resume", "results", "--out", "results"], "--out"),
        (["e7", "--virtual", "--trace", "step.goal"], "FILE"),
        (["e7", "--virtual", "--groups", "groups.json"], "--groups"),
        (["e7", "--virtual", "--iterations", "2"], "--iterations"),
        (["e7", "--virtual", "--fault", "cut h0 p0-t0-0 at 1s"], "--fault"),
        (["e7", "--virtual", "--against", "ecmp"], "--against"),
        (["e7", "--virtual", "--compute-scale", "2"], "--compute-scale"),
        (["e7", "--virtual", "--size-scale", "2"], "--size-scale"),
        (["e7", "--virtual", "--placement", "random"], "--placement"),
    ],
)
def test_run__every_rule_at_the_command_line(words, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", *words])
    (text,) = (rule.text for rule in RULES if rule.option == option)
    assert isinstance(result.exception, UsageError) and str(result.exception) == text
    assert list(tmp_path.iterdir()) == []


def test_trace__without_root_is_replayed_in_virtual_time(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert RunRequest(trace=Path("step.goal")).backend == "virtual"
    assert RunRequest(trace=Path("step.goal"), rootless=True).backend == "live"
    assert RunRequest(files=["e7"]).backend == "live"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert RunRequest(trace=Path("step.goal")).backend == "live"


def test_run__of_nothing_says_what_to_give():
    with pytest.raises(UsageError, match=r"give scenarios .*, or --trace FILE"):
        RunRequest(virtual=True).check()


def test_page__has_the_same_rules():
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = page.partition("## Options of `mrc run` that go together")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(rule.option, " or ".join(rule.run_kinds), rule.advice) for rule in RULES]
