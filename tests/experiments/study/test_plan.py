"""Studies as files: the runs that they ask for, and their mistakes by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.command import find
from mrc_testbed.experiments.language.yaml_loader import ScenarioError
from mrc_testbed.experiments.study.command import STUDIES
from mrc_testbed.experiments.study.plan import plan_study
from tests.experiments.study.test_command import SCENARIO, STUDY, write_study


def planned_study(folder: Path, study: str = STUDY, scenario: str = SCENARIO):
    return plan_study(write_study(folder, study, scenario), lambda name: find([name])[0])


def test_plan__has_the_studys_values_above_all_of_the_files(tmp_path):
    plan = planned_study(tmp_path)
    assert [point.name for point in plan.points] == [
        "mrc loss=0% fabric.planes=1",
        "mrc loss=0% fabric.planes=2",
        "mrc loss=10% fabric.planes=1",
        "mrc loss=10% fabric.planes=2",
    ]
    assert len(plan.runs) == 24 and [run.seed for run in plan.runs[::4]] == [3, 4, 5, 6, 7, 8]
    run = plan.runs[plan.number(2, 3)]
    assert (run.scenario.links.rate, run.scenario.fabric.planes, run.seed) == (7e6, 2, 5)
    assert run.scenario.transport.config == {"exp_cnt": 3}


def test_plan__without_parameters_is_the_scenarios_own_sweep(tmp_path):
    text = "title: x\nscenario: flow.yaml\nmetrics: [{metric: time}]\n"
    assert [point.name for point in planned_study(tmp_path, text).points] == ["mrc loss=2%", "rocev2 loss=2%"]


@pytest.mark.parametrize(
    ("old_text", "new_text", "says"),
    [
        ("title: a study", "titel: a study", "1:1: titel: no key 'titel' here (did you mean title?)"),
        ("scenario: flow.yaml", "scenario: flaw", "no scenario 'flaw': give a file, or one of"),
        (
            "variants: [mrc]",
            "variants: [mrk]",
            "3:12: variants.0: no variant 'mrk' in the scenario (did you mean mrc",
        ),
        (
            "  loss: [0%",
            "  los: [0%",
            "6:3: parameters.los: no key or sweep 'los' in the scenario (did you mean",
        ),
        (
            "loss: [0%, 10%]",
            "loss: [0%, 1000%]",
            "6:3: parameters.loss: makes faults.0.loss.rate wrong: share '10",
        ),
        ("loss: [0%, 10%]", "loss: {from: 1}", "6:3: parameters.loss: a list of values, or {from, to, step} or"),
        (
            "fabric.planes: {",
            "fabrik.planes: {",
            "7:3: parameters.fabrik.planes: makes fabrik wrong: no key 'fab",
        ),
        ("links.rate: 7M", "links.rate: fast", "4:19: set.links.rate: makes links.rate wrong: rate 'fast'"),
        (
            "set: {",
            "set: {loss: 1%, ",
            "4:13: set.loss: loss is a sweep of the scenario: give it as a parameter",
        ),
        ("min: 2", "min: 1", "8:24: seeds.min: input should be greater than or equal to 2; got 1"),
        ("max: 6", "max: 1", "8:32: seeds.max"),
        ("max: 6", "max: 9999, first: 3", "duplicate key"),
        ("metric: rate.flow", "metric: rate.flaw", "10:14: metrics.0.metric: no metric 'rate.flaw' (did you mean"),
        ("within: 3%", "within: 3s", "10:33: metrics.0.within: rate '3s': no unit 's'"),
        ("within: 3%", "within: 0", "10:33: metrics.0.within: 0: must be above 0"),
        (
            "method: bootstrap",
            "method: t",
            "11:5: metrics.1: method: t with of: median. Cure: give method: bootstrap",
        ),
        ("metric: lost", "metric: rate.flow", "11:14: metrics.1.metric: duplicate metric rate.flow"),
    ],
)
def test_mistakes__have_their_line(tmp_path, old_text, new_text, says):
    assert old_text in STUDY
    with pytest.raises((ScenarioError, UsageError)) as error:
        planned_study(tmp_path, STUDY.replace(old_text, new_text))
    assert says in str(error.value), str(error.value)


def test_mistakes__of_figures_have_their_line(tmp_path):
    text = STUDY + "figures:\n  - {metric: rate.flow, x: los}\n  - {metric: tim, x: loss}\n"
    with pytest.raises(ScenarioError) as error:
        planned_study(tmp_path, text)
    assert "13:28: figures.0.x: no parameter 'los' (did you mean loss?)" in str(error.value)
    assert "14:14: figures.1.metric: no metric 'tim' among the study's" in str(error.value)


def test_mistakes__of_the_scenario_are_told_with_its_name(tmp_path):
    with pytest.raises(ScenarioError, match=r"flow\.yaml:5:\d+: .*no host"):
        planned_study(tmp_path, scenario=SCENARIO.replace("h0 h1", "h0 h9"))


def test_too_many_runs__are_refused(tmp_path):
    text = STUDY.replace("0%, 10%", ", ".join(f"{n / 10}%" for n in range(52))).replace("max: 6", "max: 1000")
    with pytest.raises(ScenarioError, match=":8:1: seeds: 104 points with up to 1000 seeds are 104,000 runs: at"):
        planned_study(tmp_path, text)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_studies_that_come_with_the_testbed_are_good(path):
    if "\nscenario:" in path.read_text():
        assert plan_study(path, lambda name: find([name])[0]).points
