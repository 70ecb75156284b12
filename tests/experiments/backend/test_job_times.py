"""Times of a job's iterations before and after a fault; the share of jobs that one slowed."""

import json

import pytest

from mrc_testbed.experiments.backend.job_times import job_times
from mrc_testbed.experiments.backend.outcome import CollectiveOutcome, Iteration, JobsOutcome, Outcome
from mrc_testbed.experiments.language.expand import Run
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from tests.experiments.fluid.test_fluid_run import only

WORK = {"collective": "all_reduce", "name": "job", "ranks": 2, "jobs": 3, "iterations": 4}


def plan(seed=1, parts=None, **work):
    """Return the plan of a scenario of three jobs, or of more; `parts`: keys of the file."""
    fabric = {"planes": 2, "racks": 3, "spines": 2, "hosts_per_rack": 2}
    scenario = {"title": "any", "fabric": fabric, "workload": [{**WORK, **work}], **(parts or {})}
    return resolve(Run(Scenario.model_validate(scenario), {}, 0, seed))


def ends(*times):
    """Return the iterations, back to back, that end at these times."""
    return list(zip((0.0, *times), times, strict=False))


# ---- times ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "medians"),
    [
        ((1, 2, 3, 5, 6, 7, 8, 9), (1, 1, 2)),  # the fault at 2.5 is felt once
        ((1, 2, 4, 6, 8), (1, 2, 2)),
        ((1, 2), (1, 8, 8)),  # stands still until the end
        ((1, 2, 3, 4), (1, 1, 6)),
        ((3, 6), None),  # nothing to compare with
    ],
)
def test_job_times(times, medians):
    assert job_times(ends(*times), (0.0, 2.5), 10.0, 100) == medians


def test_job_times__a_job_that_has_ended_does_not_stand_still():
    assert job_times(ends(1, 2, 3, 4), (0.0, 2.5), 10.0, 4) == (1, 1, 1)
    assert job_times(ends(1, 2), (0.0, 2.5), 10.0, 2) is None


# ---- the metric -----------------------------------------------------------------------------------------------


def outcome_of(*jobs):
    """Return an outcome of 10 s with a fault at 2.5 s; each job's iterations end at these times."""
    outcome = Outcome("any", "any", {}, "virtual", 1, 0, "srv6", 1e6, duration_s=10.0)
    outcome.event(2.5, "fault", number=0, action="cut", undo=None, text="cut")
    for number, times in enumerate(jobs):
        iterations = [Iteration(n, a, b, "h0", wrong=n) for n, (a, b) in enumerate(ends(*times))]
        outcome.collectives.append(
            CollectiveOutcome("job", "all_reduce", [f"h{number}"], 1000, 1.0, iterations=iterations)
        )
    return outcome


def test_slowed__share_of_the_jobs():
    measurement = Measurement(outcome_of((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 4, 6), (1, 2, 3.04, 4.08)), plan())
    assert measurement.value("slowed.job") == 0.5  # of 1 and 2 s the median is 1.5 s
    assert measurement.value("slowed.job.once") == 0.5
    assert measurement.value("wrong.job") == 4 * (0 + 1 + 2 + 3)
    assert measurement.value("slowest.job") is None


def test_slowed__by_more_than_measure_says():
    strict = plan(parts={"measure": {"slowed": 0.01}})
    outcome = outcome_of((1, 2, 3.04, 4.08))
    assert Measurement(outcome, plan()).value("slowed.job") == 0.0
    assert Measurement(outcome, strict).value("slowed.job") == 1.0


def test_slowed__no_fault_no_value():
    outcome = outcome_of((1, 2, 3, 4))
    outcome.events.clear()
    assert Measurement(outcome, plan()).value("slowed.job") is None
    with_baseline = plan(parts={"baseline": {"from": 0, "to": 2}})
    assert Measurement(outcome, with_baseline).value("slowed.job") == 0.0


def test_slowed__of_fluid_runs_and_through_a_file():
    outcome = outcome_of()
    assert "jobs" not in outcome.to_json()
    outcome.jobs.append(JobsOutcome("job", [1.0, 1.0], [1.0, 1.2], [1.3, 1.2]))
    read_back = Outcome.from_json(json.loads(json.dumps(outcome.to_json())))
    assert read_back.jobs == outcome.jobs
    for copy in (outcome, read_back):
        copy.flows.clear()
        assert Measurement(copy, plan()).slowed_share("job", once=False) == 0.5
        assert Measurement(copy, plan()).slowed_share("job", once=True) == 1.0


# ---- many jobs in a line --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "hosts_by_job"),
    [
        ("packed", [("h0", "h1"), ("h2", "h3"), ("h4", "h5")]),
        ("spread", [("h0", "h2"), ("h4", "h1"), ("h3", "h5")]),
    ],
)
def test_jobs__hosts_in_the_order_of_their_placement(placement, hosts_by_job):
    groups = plan(placement=placement).work().groups
    assert [group.ranks for group in groups] == hosts_by_job
    assert {group.work for group in groups} == {"job"}


def test_jobs__drawn_by_the_seed_and_no_host_twice():
    draws = [[group.ranks for group in plan(seed, placement="random").work().groups] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert len({host for ranks in draws[0] for host in ranks}) == 6


def test_jobs__in_virtual_time(tmp_path):
    text = """title: Any
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
workload: [{collective: all_reduce, name: job, size: 16K, ranks: 2, jobs: 2, placement: spread, iterations: 8}]
faults: [{at: 150ms, cut: h0 p0-t0-0}]
"""
    run = only(tmp_path, text, "virtual")
    outcome = VirtualRunner().run(run)
    assert [collective.ranks for collective in outcome.collectives] == [["h0", "h2"], ["h1", "h3"]]
    assert [len(collective.iterations) for collective in outcome.collectives] == [8, 8]
    measurement = Measurement(outcome, run)
    assert measurement.value("wrong.job") == 0
    assert measurement.value("slowed.job") in (0.5, 1.0)
