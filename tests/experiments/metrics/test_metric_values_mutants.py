"""Mutants of every metric: 0, nothing, its last part, another's.

Each must give another value than the exam expects.

A metric that METRICS has and the exam has not fails; so does one that the exam cannot tell from a mutant.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from mrc_testbed.experiments.backend.outcome import CollectiveOutcome, FlowOutcome
from mrc_testbed.experiments.language.metric_names import METRICS, Metric
from mrc_testbed.experiments.metrics import metric_values
from mrc_testbed.experiments.metrics.metric_values import Measurement
from tests.experiments import exam
from tests.experiments.backend.test_outcome_gathered import VIRTUAL_VALUES

NEIGHBOURS = {"a": "b", "job": "task", "task": "job", "prog": "tool", "tool": "prog", "p0-t0-0-eth1": "p0-t0-1-eth1"}
EQUIVALENT = {
    "time": "a run has one end",
    **dict.fromkeys(
        VIRTUAL_VALUES, "one number of an outcome: test_outcome_gathered.py has mutants of what it is made of"
    ),
}
"""Metrics whose last part is the whole, and why."""
Mutant = Callable[[pytest.MonkeyPatch, Metric, str], None]


def name_of(metric: Metric) -> str:
    """Return the exam's name of a metric."""
    (name,) = [name for name in exam.EXPECTED_VALUES if name_matches(metric, name)]
    return name


def name_matches(metric: Metric, name: str) -> bool:
    word = next((word for word in ("NAME", "PORT") if word in metric.pattern), None)
    if word is None:
        return metric.pattern == name
    return any(metric.pattern.replace(word, neighbour) == name for neighbour in NEIGHBOURS)


def passes(folder: Path, name: str) -> bool:
    """Return whether the metric has its expected value on the exam and on its outcome of several parts."""
    cases = [(exam.EXPECTED_VALUES[name], exam.CHANGES.get(name, {}))]
    cases += [exam.LAST_PARTS[name]] if name in exam.LAST_PARTS else []
    return all(passes_case(folder, name, expected_value, fields) for expected_value, fields in cases)


def passes_case(folder: Path, name: str, expected_value: float, fields: dict[str, object]) -> bool:
    measurement = exam.measurement(folder)
    for field, value in fields.items():
        setattr(measurement.outcome, field, value)
    value = measurement.value(name)
    return value is not None and value == pytest.approx(expected_value, rel=1e-6)


def replace(monkeypatch: pytest.MonkeyPatch, metric: Metric, value: Callable[[Measurement, str], float | None]) -> None:
    """Let a metric be computed by `value`, a function of the run and the metric's whole name."""
    if metric.series:
        value_between = Measurement.value_between

        def series(measurement: Measurement, name: str, low: float, high: float) -> float | None:
            return (
                value(measurement, name) if name_matches(metric, name) else value_between(measurement, name, low, high)
            )

        monkeypatch.setattr(Measurement, "value_between", series)
        return
    head, _, tail = metric.pattern.replace("PORT", "NAME").partition("NAME")
    named = "NAME" in metric.pattern or "PORT" in metric.pattern
    monkeypatch.setitem(
        metric_values._RUN_METRICS, metric.pattern, lambda m, word: value(m, f"{head}{word}{tail}" if named else head)
    )


def original(metric: Metric) -> Callable[[Measurement, str, float, float], float | None]:
    """Return the function that computes a metric now."""
    if metric.series:
        return Measurement.value_between
    run_metric = metric_values._RUN_METRICS[metric.pattern]
    prefix, _, suffix = metric.pattern.replace("PORT", "NAME").partition("NAME")
    return lambda m, name, _low, _high: run_metric(m, name.removeprefix(prefix).removesuffix(suffix))


def zero(monkeypatch: pytest.MonkeyPatch, metric: Metric, _name: str) -> None:
    replace(monkeypatch, metric, lambda _m, _n: 0.0)


def no_value(monkeypatch: pytest.MonkeyPatch, metric: Metric, _name: str) -> None:
    replace(monkeypatch, metric, lambda _m, _n: None)


def neighbour_value(monkeypatch: pytest.MonkeyPatch, metric: Metric, name: str) -> None:
    """Another workload's or port's; of a metric of the whole run the next metric's."""
    value_function = original(metric)
    word = next((word for word in NEIGHBOURS if metric.pattern.replace("NAME", word).replace("PORT", word) == name), "")
    if word in NEIGHBOURS and metric.pattern != name:
        other_name = metric.pattern.replace("NAME", NEIGHBOURS[word]).replace("PORT", NEIGHBOURS[word])
        replace(monkeypatch, metric, lambda m, _n: value_function(m, other_name, 0.0, float(exam.SECONDS)))
        return
    names = list(exam.EXPECTED_VALUES)
    neighbour = names[(names.index(name) + 1) % len(names)]
    replace(monkeypatch, metric, lambda m, _n: m.value(neighbour))


def last(monkeypatch: pytest.MonkeyPatch, metric: Metric, _name: str) -> None:
    """Replace a metric by its last interval, or its value from the last parts alone."""
    value_function = original(metric)
    if metric.series:
        end = float(exam.SECONDS)
        replace(monkeypatch, metric, lambda m, n: value_function(m, n, end - 1.0, end))
    else:
        replace(monkeypatch, metric, lambda m, n: value_function(last_parts(m), n, 0.0, float(exam.SECONDS)))


def last_parts(measurement: Measurement) -> Measurement:
    """Return the same run with the last of everything that there are several of."""
    outcome = deepcopy(measurement.outcome)
    outcome.flows = list({flow.work: flow for flow in outcome.flows}.values())
    for flow in outcome.flows:
        flow.latencies_s = flow.latencies_s[-1:]
    outcome.collectives = list(
        {collective_outcome.work: collective_outcome for collective_outcome in outcome.collectives}.values()
    )
    for collective in outcome.collectives:
        collective.iterations = collective.iterations[-1:]
    for program in outcome.programs:
        program.exit_codes, program.digests = program.exit_codes[-1:], program.digests[-1:]
    outcome.events = list({event["what"]: event for event in outcome.events}.values())
    outcome.series.queues = {port: depths[-1:] for port, depths in outcome.series.queues.items()}
    return Measurement(outcome, measurement.plan)


MUTANTS: dict[str, Mutant] = {"0": zero, "nothing": no_value, "another's": neighbour_value, "the last": last}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.pattern)
def test_a_metric_has_the_value_that_the_exam_expects(tmp_path, metric):
    assert passes(tmp_path, name_of(metric))


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.pattern)
def test_a_mutant_of_a_metric_fails_the_exam(tmp_path, monkeypatch, metric, mutant):
    name = name_of(metric)
    MUTANTS[mutant](monkeypatch, metric, name)
    assert passes(tmp_path, name) is (mutant == "the last" and metric.pattern in EQUIVALENT)


def test_parts_of_the_exam_are_all_of_an_outcome():
    """A flow or collective whose fields are left at their defaults would make a metric of them pass as 0."""
    outcome = exam.outcome()
    for flow in outcome.flows:
        assert all(getattr(flow, name) for name in FlowOutcome.__dataclass_fields__)
    fields = set(CollectiveOutcome.__dataclass_fields__) - {"largest_write_bytes"}
    assert all(getattr(collective, name) for collective in outcome.collectives for name in fields)


@pytest.mark.parametrize("name", ["evs.last_bad", "evs.restored", "evs.swapped_in_plane"])
def test_what_the_events_do_not_tell_is_no_number(tmp_path, name):
    """Once it was the number of those that were kept."""
    measurement = exam.measurement(tmp_path)
    measurement.outcome.events_dropped = 1
    assert measurement.value(name) is None
