"""Lines that ranks of a training job print, and the variables that they are given."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.jobs import training
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Plan


@pytest.mark.parametrize(
    "line, step",
    [
        ("step    3  loss 2.1  0.050 s", (3, 0.05)),
        ("step 12 1 s", (12, 1.0)),
        ("step 12: in 0.5 s", (12, 0.5)),
        ("stepping 3  0.05 s", None),
        ("step three  0.05 s", None),
        ("step 3  0.05 ms", None),
        ("step 3  . s", None),
    ],
)
def test_step_of__reads_number_and_seconds(line, step):
    assert training.step_of(line) == step


def test_digest_of__is_a_whole_sha_256():
    assert training.digest_of("rank 1: SHA-256 of the parameters " + "ab" * 32) == "ab" * 32
    assert training.digest_of("SHA-256 of the parameters abab") is None


def test_variables_of__a_rank_of_gloo_meets_the_others_on_the_fabric():
    plan = Plan(1, 2, 1, 1)
    hosts = list(plan.hosts)
    over_mrc = training.variables_of(plan, hosts, 1, 29500, "mrc")
    assert {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"} <= set(over_mrc)
    assert "MRC_TRAIN_BACKEND=mrc" in over_mrc
    over_ip = training.variables_of(plan, hosts, 1, 29500, "gloo")
    assert f"MASTER_ADDR={plan.ip_interfaces(hosts[0])[0].ip}" in over_ip and "MRC_TRAIN_BACKEND=gloo" in over_ip


def test_nic_counts__has_nothing_of_a_host_whose_nic_does_not_answer(tmp_path, monkeypatch):
    def time_out(_path):
        raise TimeoutError

    assert training.nic_counts(RunFiles(tmp_path), ["h0"]) == {}
    monkeypatch.setattr(training, "programs_of", time_out)
    assert training.nic_counts(RunFiles(tmp_path), ["h0"]) == {}
