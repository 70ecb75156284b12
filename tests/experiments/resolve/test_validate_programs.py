"""Workloads of kind `program`: what a file may say, and what is refused with its cure."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.runner import plan_runs

TEXT = """\
title: a program
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 2}
workload:
  - {program: echo 'a b' c, name: job}
"""


def plans_of(folder, text, backend="live"):
    path = folder / "program.yaml"
    path.write_text(text)
    return plan_runs(read(path), backend).runs[0].work().programs


def mistakes_of(folder, text, backend="live"):
    with pytest.raises(ScenarioError) as caught:
        plans_of(folder, text, backend)
    return str(caught.value)


def test_program__is_a_text_as_a_shell_splits_it_or_a_list(tmp_path):
    (plan,) = plans_of(tmp_path, TEXT)
    assert (plan.words, plan.ranks, plan.folder) == (("echo", "a b", "c"), ("h0",), None)
    (plan_of_list,) = plans_of(tmp_path, TEXT.replace("echo 'a b' c", "[echo, a b, c]"))
    assert plan_of_list == plan and str(plan) == "`echo 'a b' c` on h0"


def test_program__is_on_the_hosts_that_are_named_or_chosen(tmp_path):
    def ranks(keys):
        return plans_of(tmp_path, TEXT.replace("name: job", f"name: job, {keys}"))[0].ranks

    assert ranks("ranks: [h3, h1]") == ("h3", "h1")
    assert ranks("ranks: 2, placement: spread") == ("h0", "h2")
    assert ranks("ranks: all") == ("h0", "h1", "h2", "h3")


def test_folder__is_taken_from_that_of_the_file(tmp_path):
    (plan,) = plans_of(tmp_path, TEXT.replace("name: job", "folder: .."))
    assert plan.folder == str(tmp_path / "..")


@pytest.mark.parametrize(
    "keys, says",
    [
        ("ranks: 5", "4:45: workload.0.ranks: 5 ranks, and 4 hosts are free: one rank a host"),
        ("ranks: [h0, h0]", "ranks: one rank a host"),
        ("ranks: []", "ranks: one rank a host, and at least one"),
        ("ranks: [h9]", "no host 'h9'"),
        ("start: 2s, stop: 1s", "stop: 1s is not after its start"),
        (
            "transport: {qps: 2}",
            "transport: a program has the transport of the hosts' RDMA devices. Cure: leave it out",
        ),
        ("backend: nccl", "backend: must be one of 'mrc', 'gloo', 'loopback'"),
        ("steps: 0", "steps"),
        ("command: x", "no key 'command' here"),
    ],
)
def test_mistakes__are_named(tmp_path, keys, says):
    text = mistakes_of(tmp_path, TEXT.replace("name: job", f"name: j, {keys}"))
    assert says in text, text


def test_mistakes__of_the_command(tmp_path):
    assert "No closing quotation. Cure: close the quotes" in mistakes_of(
        tmp_path, TEXT.replace("echo 'a b' c", '"echo \'a"')
    )
    assert "workload.0.program: " in mistakes_of(tmp_path, TEXT.replace("echo 'a b' c", "[]"))


@pytest.mark.parametrize("backend", ["virtual", "fluid"])
def test_virtual_time__refuses_the_kind_with_the_cure(tmp_path, backend):
    text = mistakes_of(tmp_path, TEXT, backend)
    assert "4:15: workload.0.program: a program runs on the live fabric only" in text
    assert "Cure: without --virtual, as root, and `only: live` in the file" in text
    text = mistakes_of(tmp_path, f"only: live\n{TEXT}", backend)
    assert "1:7: only: the scenario runs on the live fabric only. Cure: without --virtual, as root" in text


def test_a_stand_in__for_virtual_time_is_taken_there(tmp_path):
    stand_in = "virtual: {workload: [{stream: h0 h2, bytes: 64K}]}\n"
    assert plans_of(tmp_path, TEXT + stand_in, "virtual") == ()
    assert len(plans_of(tmp_path, TEXT + stand_in)) == 1


def test_commands__show_and_validate_a_file_for_live_runs(tmp_path):
    path = tmp_path / "live.yaml"
    path.write_text(f"only: live\n{TEXT}")
    answer = CliRunner().invoke(app, ["scenario", "validate", str(path)])
    assert answer.exit_code == 0 and "no virtual runs, 1 live ones" in answer.stdout
    answer = CliRunner().invoke(app, ["scenario", "show", str(path), "--json"])
    data = json.loads(answer.stdout)
    assert data["sizes"] == ["job: program `echo 'a b' c` on h0"]
    (row,) = [row for row in data["timeline"]["rows"] if row["kind"] == "work"]
    assert row["text"] == "job: `echo 'a b' c` on h0, 0 s until it ends" and row["estimated"]


def test_run__leaves_it_out_of_several_in_virtual_time(tmp_path):
    path, stream = tmp_path / "live.yaml", tmp_path / "stream.yaml"
    path.write_text(f"only: live\n{TEXT}")
    stream.write_text(TEXT.replace("program: echo 'a b' c", "stream: h0 h2, bytes: 4K"))
    words = ["run", str(path), str(stream), "--virtual", "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0 and "live is left out: it runs live only" in answer.output
    answer = CliRunner().invoke(app, ["run", str(path), str(path), "--virtual"])
    assert isinstance(answer.exception, UsageError) and "no scenario remains to be run" in str(answer.exception)
