"""A run in two processes has the outcome of the same run in one, to the digit.

Jitter keeps packets of different senders from arriving at one instant; for those the orders may differ.
"""

import json

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner

FABRIC = """\
title: in halves
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
links: {rate: 40M, rtt: 20ms, jitter: 1ms}
limit: 60s
"""
FLOWS = """\
workload:
  - {stream: h0 h2, name: fore, message: 64K, depth: 4, bytes: 4M}
  - {stream: h3 h0, name: back, message: 64K, depth: 4, bytes: 4M, transport: {qps: 2}}
  - {stream: h1 h0, name: beside, message: 64K, depth: 4, bytes: 2M}
measure: {every: 100ms, latency: true, evs: true, queues: [last-hop]}
"""
JOB = """\
workload: [{collective: all_reduce, name: job, ranks: [h0, h1, h2, h3], size: 1M, iterations: 5}]
measure: {every: 100ms}
"""
SCENARIOS = {
    "flows": FLOWS,
    "link": FLOWS + "faults: [{at: 200ms, cut: p0-t0-0 p0-t1-0, for: 300ms}]\n",
    "share": FLOWS
    + "faults: [{at: 30%, cut: h0 p1-t0-0}, {at: 50%, loss: {link: p0-t0-1 p0-t1-1, rate: 2%}, for: 400ms}]\n",
    "power": FLOWS + "faults: [{at: 200ms, power_off: h0}]\n",
    "denylist": FLOWS
    + "control_plane: {denylist: all}\nfaults: [{at: 100ms, blackhole: p0-t1-1}, {at: 900ms, drain: 1, for: 1s}]\n",
    "job": JOB + "faults: [{at: 200ms, cut: h1 p0-t0-0, for: 100ms}]\n",
    "dead rank": JOB + "faults: [{at: 200ms, power_off: h2}]\n",
    "rocev2": FLOWS.replace("{qps: 2}", "{kind: rocev2}") + "mode: flow-ecmp\n",
}


def plan_of(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(FABRIC + text)
    return plan_runs(read(path), "virtual")


def comparable(outcome):
    """Return an outcome without its choices among equals: order at one instant, and which loss is shown."""
    values = json.loads(json.dumps(outcome.to_json()))
    events = [event for event in values.pop("events") if event["what"] != "lost"]
    values["events"] = sorted(map(json.dumps, events))
    values["paths"] = sorted(map(json.dumps, values["paths"]))
    return values


@pytest.mark.parametrize("name", SCENARIOS)
def test_halves__have_the_outcome_of_one_process(tmp_path, name):
    (run,) = plan_of(tmp_path, SCENARIOS[name]).runs
    shares = []
    single_outcome = VirtualRunner().run(run)
    outcome = VirtualRunner(halves=True).run(run, lambda share, _now: shares.append(share))
    assert comparable(outcome) == comparable(single_outcome)
    assert sum(flow.received_bytes for flow in outcome.flows) > 1e6
    assert shares == sorted(shares)


def test_first_loss_after_each_fault__is_one_event(tmp_path):
    (run,) = plan_of(tmp_path, SCENARIOS["link"]).runs
    for halves in (False, True):
        events = VirtualRunner(halves).run(run).events
        assert [event["what"] for event in events if event["what"] in ("fault", "lost")][:2] == ["fault", "lost"]
        assert sum(event["what"] == "lost" for event in events) <= sum(event["what"] == "fault" for event in events)


def test_fabric_of_one_rack__is_refused(tmp_path):
    assert plan_of(tmp_path, FLOWS).in_halves().halves
    path = tmp_path / "s.yaml"
    path.write_text(FABRIC.replace("racks: 2", "racks: 1") + "workload: [{stream: h0 h1, bytes: 1M}]\n")
    with pytest.raises(UsageError, match=r"^--halves: s: .*: one rack has no halves. Cure: leave --halves out"):
        plan_runs(read(path), "virtual").in_halves()
