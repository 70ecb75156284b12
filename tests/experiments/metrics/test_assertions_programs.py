"""Rules on programs of users: which failures count, and what is not known of them."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.backend.failures import close
from mrc_testbed.experiments.backend.outcome import PROGRAM, CollectiveOutcome, Iteration, Outcome, ProgramOutcome
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.assertions import judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.runner import plan_runs

TEXT = """\
title: a program
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
workload: [{program: "true", name: job, ranks: 2}]
expect:
"""


def verdicts(folder, rule, failures=(), steps=()):
    """Return (passed, seen) of each verdict on a run in which ranks of the program failed as told."""
    path = folder / "program.yaml"
    path.write_text(f"{TEXT}  - {rule}\n")
    (plan,) = plan_runs(read(path), "live").runs
    outcome = Outcome("program", "run", {}, "live", 1, 0, "srv6", 0.0, duration_s=9.0)
    codes = [7 if number < len(failures) else 0 for number in range(2)]
    outcome.programs = [ProgramOutcome("job", "true", ["h0", "h1"], None, 0.0, 8.0, codes, [None, None])]
    if steps:
        outcome.collectives = [CollectiveOutcome("job", PROGRAM, ["h0", "h1"], 0, 0.0, iterations=list(steps))]
    for kind, text in failures:
        outcome.fail(kind, 5.0, text, "job")
    close(outcome)
    runs = [("run", {}, Measurement(outcome, plan))]
    return [(verdict.passed, verdict.seen) for verdict in judge(plan.scenario, runs, plan.environments)]


FAILED = ("program", "job: rank 1 on h1 exited with code 7; it printed nothing")


def test_a_rank_that_fails__fails_a_run_that_does_not_expect_it(tmp_path):
    (unwritten, rule) = verdicts(tmp_path, "exit_code <= 9", [FAILED])
    assert unwritten == (False, FAILED[1]) and rule == (True, "7")


def test_a_rule_failed__counts_ranks_of_programs(tmp_path):
    assert [holds for holds, _ in verdicts(tmp_path, "{failed: job, at_most: 1}", [FAILED])] == [True, True]
    (_, (holds, result)) = verdicts(tmp_path, "{failed: job, at_least: 2}", [FAILED])
    assert not holds and result == f"1 of its QPs or ranks failed: {FAILED[1]}"


@pytest.mark.parametrize("metric", ["qp_errors", "timeouts", "evs.bad", "lost.per_qp.max", "reorder.max", "busbw.job"])
def test_what_only_our_flows_know__is_not_measured(tmp_path, metric):
    """A count of 0 would pass a rule that looked at nothing."""
    steps = [Iteration(1, 0.0, 0.5, "h0", 0), Iteration(2, 0.5, 1.0, "h0", 0)]
    (_, (holds, result)) = verdicts(tmp_path, f"{metric} <= 0", steps=steps)
    assert not holds and result == f"{metric} was not measured"
