"""The unwritten rules: each kind of failure fails a run, unless its scenario wants it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.experiments.backend.failures import UNWRITTEN, audit
from mrc_testbed.experiments.backend.outcome import EVENTS_MAX, Outcome
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner
from mrc_testbed.experiments.language.expand import Run, expand
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.assertions import ALWAYS, ExpectationVerdict, causes, judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner

DEAD_RANK = """\
title: A rank is cut off for good
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
workload:
  - {collective: all_reduce, name: job, size: 64K, iterations: 1000}
  - {stream: h0 h1, name: other, message: 4K}
duration: 8s
faults:
  - {at: 1s, cut: [[h3, p0-t0-1], [h3, p1-t0-1]]}
measure: {every: 500ms}
"""
OTHER_RULE = "  - {metric: rate.other, at_least: 1}\n"


def run_plan(folder: Path, text: str, backend: str = "virtual") -> Run:
    path = folder / "s.yaml"
    path.write_text(text)
    return resolve(expand(read(path), backend)[0])


def verdicts_of(run: Run, outcome: Outcome) -> list[ExpectationVerdict]:
    return judge(run.scenario, [("run", {}, Measurement(outcome, run))], ("virtual",))


@pytest.fixture(scope="module")
def dead_rank(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return VirtualRunner().run(run_plan(tmp_path_factory.mktemp("dead"), DEAD_RANK))


def test_a_dead_rank_fails_the_run_whatever_its_rules_look_at(tmp_path, dead_rank):
    run = run_plan(tmp_path, DEAD_RANK + "expect:\n" + OTHER_RULE)
    verdicts = verdicts_of(run, dead_rank)
    assert dead_rank.finished is False
    (cause,) = causes(verdicts).values()
    assert cause.startswith("job: rank 3's QP to h0 died at ") and cause.endswith("all 4 EVs dead")
    assert {verdict.rule for verdict in verdicts if not verdict.passed} == {
        UNWRITTEN[kind] for kind in ("qp", "message", "unfinished")
    }
    assert next(verdict for verdict in verdicts if "rate.other" in verdict.rule).passed


def test_a_dead_rank_fails_a_fluid_run_too(tmp_path):
    text = DEAD_RANK.replace("  - {stream: h0 h1, name: other, message: 4K}\n", "")
    run = run_plan(tmp_path, text, "fluid")
    outcome = FluidRunner().run(run)
    assert outcome.finished is False
    assert [failure.kind for failure in outcome.failures] == ["qp", "qp", "unfinished"]
    (cause,) = causes(verdicts_of(run, outcome)).values()
    assert cause.startswith("job: rank ") and "no path for longer than the retry budget" in cause


def test_a_dead_rank_does_not_count_as_done_where_the_work_ends_the_run(tmp_path):
    run = run_plan(
        tmp_path, DEAD_RANK.replace("duration: 8s\n", "limit: 60s\n").replace(", message: 4K", ", bytes: 4K")
    )
    outcome = VirtualRunner().run(run)
    assert outcome.finished is False and outcome.duration_s < 10
    assert causes(verdicts_of(run, outcome))


@pytest.mark.parametrize(
    ("rule", "is_held"),
    [
        ("{failed: job}", True),
        ("{failed: job, at_least: 2, at_most: 2, from: 1s, to: 7s, error: retries}", True),
        ("{failed: job, at_least: 0}", True),
        ("{failed: job, at_least: 3}", False),
        ("{failed: job, at_most: 1}", False),
        ("{failed: job, to: 2s}", False),
        ("{failed: job, from: 7s}", False),
        ("{failed: job, error: remote access}", False),
        ("{failed: other}", False),
        ("{failed: other, at_least: 0}", False),
        ("{unfinished: job}", False),
        ("{failed: job, only: live}", False),
        ("{failed: job, scale: big}", False),
    ],
)
def test_a_wanted_failure_says_how_many_when_and_in_what_error(tmp_path, dead_rank, rule, is_held):
    text = DEAD_RANK + "scale: {big: {duration: 9s}}\nexpect:\n  - " + rule + "\n"
    verdicts = verdicts_of(run_plan(tmp_path, text), dead_rank)
    assert all(verdict.passed for verdict in verdicts) is is_held
    assert bool(causes(verdicts)) is not is_held


@pytest.mark.parametrize("kind", UNWRITTEN)
def test_each_kind_of_failure_fails_a_run_and_is_named(tmp_path, kind):
    run = run_plan(tmp_path, DEAD_RANK)
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=8.0)
    (verdict,) = verdicts_of(run, outcome)
    assert verdict.passed and verdict.rule == ALWAYS
    outcome.fail("unfinished", 8.0, "later", "job")
    outcome.fail(kind, 1.5, "switchd died", "job")
    outcome.failures.sort(key=lambda failure: failure.at_s)
    verdicts = verdicts_of(run, outcome)
    assert not any(verdict.passed for verdict in verdicts)
    assert verdicts[0].rule == UNWRITTEN[kind] and causes(verdicts) == {"run": "switchd died"}


FLOW = """\
title: A flow
fabric: {{planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}}
workload: [{{stream: h0 h1, name: flow, message: 4K{work}}}]
{ends}
faults: [{{at: {at}, cut: p0-t0-0 p0-t1-0, for: 100ms}}]
"""


@pytest.mark.parametrize(
    ("work", "ends", "fault_time", "kind", "text"),
    [
        ("", "duration: 1s", "900ms", None, ""),
        (", bytes: 64K", "limit: 8s", "7s", "left_out", "never came"),
        (", start: 9s", "duration: 1s", "100ms", "left_out", "was to start at 9 s"),
        (", bytes: 1G", "duration: 1s", "100ms", "unfinished", "messages are complete"),
        (", bytes: 1G", "limit: 1s", "100ms", "unfinished", "messages are complete"),
        (", bytes: 1G, stop: 500ms", "duration: 1s", "100ms", None, ""),
    ],
)
def test_what_is_left_out_or_not_ended(tmp_path, work, ends, fault_time, kind, text):
    outcome = VirtualRunner().run(run_plan(tmp_path, FLOW.format(work=work, ends=ends, at=fault_time)))
    assert [failure.kind for failure in outcome.failures] == ([kind] if kind else [])
    assert all(text in failure.text for failure in outcome.failures)
    assert outcome.finished is (kind != "unfinished")


def test_fault_that_comes_late__fails_a_run_whose_rules_go_by_time(tmp_path, dead_rank):
    run = run_plan(tmp_path, DEAD_RANK)
    late_outcome = Outcome.from_json(dead_rank.to_json())
    late_outcome.failures.clear()
    next(event for event in late_outcome.events if event["what"] == "fault")["t"] += 1.5
    audit(late_outcome, run.work(), run.steps())
    verdict = next(verdict for verdict in verdicts_of(run, late_outcome) if verdict.rule == UNWRITTEN["late"])
    assert not verdict.passed and verdict.timed and "at 1s came 1.5 s late" in verdict.seen


def test_events_that_verdicts_count_are_kept_however_many_there_are():
    outcome = Outcome("s", "run", {}, "virtual", 1, 0, "srv6", 1e6)
    for _ in range(EVENTS_MAX + 1):
        outcome.event(0.0, "plane", host="h0", peer=None, plane=0, up=False)
    outcome.event(1.0, "qp_error", host="h0", qpn=1, peer="h1", text="died")
    assert outcome.events_dropped == 1 and outcome.events[-1]["what"] == "qp_error"


def test_failures_survive_the_way_to_the_disk(dead_rank):
    read_back = Outcome.from_json(dead_rank.to_json())
    assert read_back.failures == dead_rank.failures and not read_back.finished


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("{failed: jib}", "no workload 'jib'"),
        ("{unfinished: jib}", "no workload 'jib'"),
        ("{failed: job, at_least: 3, at_most: 2}", "at_most 2 is less than at_least 3"),
        ("{failed: job, at_leest: 3}", "at_leest"),
        ("{failed: job, where: {variant: mrc}}", "mrc"),
    ],
)
def test_mistakes_in_such_rules_are_told_with_their_line(tmp_path, rule, text):
    path = tmp_path / "s.yaml"
    path.write_text(DEAD_RANK + "expect:\n  - " + rule + "\n")
    with pytest.raises(ScenarioError) as caught:
        plan_runs(read(path), "virtual")
    assert text in str(caught.value) and ":11:" in str(caught.value) and ": expect.0" in str(caught.value)
