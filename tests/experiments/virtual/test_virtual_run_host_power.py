"""A host that dies in a virtual run: its flows fail, others go on, the run ends by itself."""

import pytest

from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner

SCENARIO = """\
title: a host dies
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
links: {rate: 40M, rtt: 20ms}
workload:
  - {stream: h0 h2, name: fore, message: 64K, depth: 4, bytes: 4M}
  - {stream: h3 h0, name: back, message: 64K, depth: 4, bytes: 4M}
  - {stream: h1 h3, name: beside, message: 64K, depth: 4, bytes: 4M}
limit: 60s
"""


def run(tmp_path, fault):
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO + f"faults: [{fault}]\n")
    (plan,) = plan_runs(read(path), "virtual").runs
    return VirtualRunner().run(plan)


@pytest.mark.parametrize(
    "fault", ["{at: 200ms, power_off: h0}", "{at: 200ms, power_off: [h0], for: 300ms}", "{at: 200ms, reboot: h0}"]
)
def test_power_off__fails_what_the_host_had_to_do(tmp_path, fault):
    outcome = run(tmp_path, fault)
    flows = {flow.work: flow for flow in outcome.flows}
    assert flows["beside"].completed == 64 and not flows["beside"].failed
    assert flows["fore"].failed and flows["back"].failed
    deaths = {failure.work: failure for failure in outcome.failures if failure.kind == "qp"}
    assert deaths["fore"].text == "fore: h0's QP to h2 died at 200 ms: its host lost its power"
    assert (
        deaths["back"].text.startswith("back: h3's QP to h0 died at") and "nothing got through" in deaths["back"].text
    )
    assert outcome.duration_s < 60


def test_power_off__of_a_rank_ends_its_job(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "title: a job\n"
        "fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}\n"
        "links: {rate: 40M, rtt: 20ms}\n"
        "workload: [{collective: all_reduce, name: job, ranks: [h0, h1, h2, h3], size: 1M, iterations: 50}]\n"
        "limit: 60s\n"
        "faults: [{at: 500ms, power_off: h2}]\n"
    )
    (plan,) = plan_runs(read(path), "virtual").runs
    outcome = VirtualRunner().run(plan)
    assert {failure.kind for failure in outcome.failures} == {"qp", "message", "unfinished"}
    assert outcome.failures[0].text.startswith("job: rank 2's QP to h")
