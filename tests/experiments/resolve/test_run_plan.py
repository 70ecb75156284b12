"""A run with every default filled in.

What is derived, what is refused, what is told apart from the document.
"""

import ast
import pickle
import re
from pathlib import Path

import pytest

from mrc_testbed.experiments.language.expand import expand
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.topologies.plan import Mode, Outline
from tests.repository import ROOT

TEXT = """\
title: two tiers
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 8M, rtt: 20ms, jitter: 1ms, fabric: {rate: 4M, delay: 1ms}}
mode: stev
workload:
  - {stream: h0 h1, name: flow, pin: [p0-t1-0]}
  - {stream: h1 h0, name: other, transport: {pmtu: 512}}
  - {collective: all_reduce, name: job, iterations: 7}
duration: 3s
faults: [{at: 2s, cut: h0 p0-t0-0, for: 0.5s}, {at: 1s, cut: h1 p1-t0-1}]
"""


def planned_runs(folder: Path, text: str = TEXT, backend: str = "virtual"):
    path = folder / "mine.yaml"
    path.write_text(text)
    return plan_runs(read(path), backend).runs


def test_resolve__every_default_is_filled_in(tmp_path):
    (plan,) = planned_runs(tmp_path)
    assert (plan.fabric.mode, plan.fabric.pmtu_bytes) == (Mode.STEV, 1024)
    assert (plan.fabric.host_link.rate_bps, plan.fabric.fabric_link.rate_bps) == (8e6, 4e6)
    assert (plan.fabric.fabric_link.delay_s, plan.lines.fabric.delay_s) == (1e-3, 1e-3)
    assert plan.lines.nic.jitter_s == plan.lines.fabric.jitter_s == 1e-3
    assert plan.nic_bps == 16e6
    assert plan.host_queues is None
    assert plan.fabric_queues.trim_bytes == plan.queues.trim_bytes / 2 == 10_000
    assert (plan.duration_s, plan.ends_s, plan.iterations) == (3.0, 3.0, {"job": 7})
    assert plan.pins == (("flow", "h0", "h1", ("p0-t1-0",)),)
    assert (plan.engine.congestion.base_rtt_s, plan.engine.qp.pmtu_bytes) == (0.02, 1024)


def test_incast__each_sender_is_pinned_to_a_node_of_its_own(tmp_path):
    """Paths that are given instead of hashed: E20's victim at the paper's scale."""
    text = """\
title: pinned
fabric: {planes: 1, racks: 2, spines: 2, hosts_per_rack: 2}
workload: [{incast: h0, name: incast, sources: [h2, h3], pins: [p0-t1-1, p0-t1-0]}]
duration: 1s
"""
    (plan,) = planned_runs(tmp_path, text)
    assert [(flow.source, flow.pin) for flow in plan.work().flows] == [("h2", ("p0-t1-1",)), ("h3", ("p0-t1-0",))]
    for wrong_text, error_text in (
        (text.replace("[p0-t1-1, p0-t1-0]", "[p0-t1-1]"), "pins: 1 nodes and 2 senders: as many of each"),
        (text.replace("p0-t1-0]", "p0-t1-7]"), "no node 'p0-t1-7'"),
        (text + "mode: flow-ecmp\n", "an EV names no path"),
    ):
        with pytest.raises(ScenarioError, match=error_text):
            planned_runs(tmp_path, wrong_text)


def test_resolve__work_and_faults_in_their_order(tmp_path):
    (plan,) = planned_runs(tmp_path)
    work = plan.work()
    assert work.names == ("flow", "other", "job")
    assert [flow.work for flow in work.flows] == ["flow", "other"]
    assert (work.senders, work.hosts) == ({"h0", "h1"}, ["h0", "h1"])
    assert [step.time.seconds for step in plan.steps()] == [1.0, 2.0, 2.5]


def test_resolve__repeats_differ_in_their_seeds_alone(tmp_path):
    first_run, second_run = planned_runs(tmp_path, TEXT + "repeat: 2\nseed: 5\n")
    assert (first_run.seed, first_run.name, second_run.seed, second_run.name) == (5, "#1", 6, "#2")
    assert first_run.fabric is second_run.fabric


def test_resolve__mistakes_of_all_runs_with_their_lines(tmp_path):
    text = TEXT.replace("h0 h1, name", "$from h1, name") + "sweep: {from: [h0, h8, h9]}\n"
    with pytest.raises(ScenarioError) as caught:
        planned_runs(tmp_path, text)
    assert {problem.line for problem in caught.value.problems} == {6}
    assert {name for name in ("h8", "h9") if name in str(caught.value)} == {"h8", "h9"}


def test_resolve__a_rate_that_no_plan_takes_has_a_line_and_a_cure(tmp_path):
    with pytest.raises(ScenarioError, match=r":3:1: links: rate_bps = .*: give 1000 to 1e\+12") as caught:
        planned_runs(tmp_path, TEXT.replace("rate: 4M", "rate: 8000G"))
    assert len(caught.value.problems) == 1


def test_resolve__a_large_fabric_is_an_outline(tmp_path):
    text = (
        TEXT.replace("racks: 2", "racks: 300")
        .replace("hosts_per_rack: 1", "hosts_per_rack: 4")
        .replace("p1-t0-1}", "p1-t0-0}")
    )
    (plan,) = planned_runs(tmp_path, text, "fluid")
    assert isinstance(plan.fabric, Outline)
    assert (plan.fabric.mode, len(plan.fabric.hosts)) == (Mode.STEV, 1200)


def test_run_plan__is_the_same_in_another_process(tmp_path):
    """Once a Config that had been pickled refused its own defaults when something else was changed."""
    (plan,) = planned_runs(tmp_path)
    copied_plan = pickle.loads(pickle.dumps(plan))
    assert copied_plan == plan
    transport = plan.work().flows[1].transport
    assert copied_plan.config_for(transport) == plan.config_for(transport) != plan.engine
    assert copied_plan.config_for(plan.transport) is None


def test_resolve__trusts_a_run_without_its_document(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace("h0 h1, name", "h7 h1, name"))
    (run,) = expand(read(path), "virtual")
    assert resolve(run).fabric.planes == 2


# ---- nobody below knows the document --------------------------------------------------------------------------

LOWER_ROOMS = ("backend", "virtual", "fluid", "live", "metrics", "report")
FOR_VERDICTS = {"name", "title", "paper", "expect", "bounds", "figures", "model_copy", "sweep", "variants"}
"""Fields of a Scenario that are read below resolve: titles, which name variants, rules and figures."""


@pytest.mark.parametrize("room", LOWER_ROOMS)
def test_rooms_below_resolve__read_titles_and_rules_alone(room):
    read_there = set()
    for path in sorted((ROOT / "mrc_testbed/experiments" / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.search(r"(^|\.)_?scenario$", ast.unparse(node.value)):
                read_there.add(node.attr)
    assert read_there <= FOR_VERDICTS
