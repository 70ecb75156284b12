"""Scenarios on the fluid model, beside the same in virtual time; what it refuses."""

from pathlib import Path
from statistics import mean

import pytest

from experiments.command import Display
from experiments.fluid.fluid_run import run_fluid
from experiments.language.expand import Run
from experiments.language.yaml_loader import read
from experiments.outcome import Outcome
from experiments.runner import carry_out, plan_runs
from experiments.virtual.virtual_run import run_virtual
from ipc import terminal
from ipc.errors import UsageError

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
START = """title: Start
fabric: {planes: 4, racks: 4, spines: 4, hosts_per_rack: 1}
workload: [{permutation: all, name: job, message: 64K, depth: 4}]
duration: 400ms
faults: [{at: 0s, silent: {random: fabric-links, share: 10%}}]
measure: {every: 50ms}
"""


def runs(name: str, where: str = "fluid") -> list[Run]:
    return plan_runs(read(SCENARIOS / f"{name}.yaml"), where).runs


def settled_rate(outcome: Outcome) -> float:
    return mean(sum(values[-4:]) / 4 for values in outcome.series.received_bps.values())


def test_fluid__beside_the_packets(tmp_path):
    """On a fabric that is not one of those it was calibrated on."""
    path = tmp_path / "start.yaml"
    path.write_text(START, encoding="utf-8")
    (run,) = plan_runs(read(path), "virtual").runs
    packets, fluid = run_virtual(run), run_fluid(run)
    assert settled_rate(fluid) == pytest.approx(settled_rate(packets), rel=0.05)
    assert packets.evs_bad > 0
    assert fluid.evs_bad == pytest.approx(packets.evs_bad, abs=4)  # which EVs are backups is another draw
    assert [flow.name for flow in fluid.flows] == [flow.name for flow in packets.flows]


def test_fluid__same_seed_same_outcome():
    run = runs("e2")[0]
    assert run_fluid(run).to_json() == run_fluid(run).to_json()


def test_fluid__judges_what_it_models_and_names_the_rest(tmp_path):
    planned = plan_runs(read(SCENARIOS / "e2.yaml"), "fluid")
    report = carry_out(planned, Display(terminal.console(stderr=True), 1, 2), out=tmp_path / "results")
    assert report.passed
    assert {verdict.rule.split()[0] for verdict in report.verdicts} == {
        "lost.per_qp.max",
        "loss.total",
        "lost",
        "rate.total",
    }
    for _, outcome in report.runs:
        assert "timeouts" not in outcome.metrics
        assert outcome.notes == ["not judged, the fluid model has no value for it: qp_errors"]


def test_fluid__fails_a_rule_that_does_not_hold(tmp_path):
    path = tmp_path / "start.yaml"
    path.write_text(START + "expect: [{metric: rate.total, at_least: 0.99, of: capacity}]\n", encoding="utf-8")
    report = carry_out(plan_runs(read(path), "fluid"), Display(terminal.console(stderr=True), 1, 1))
    assert not report.passed


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("e10", "transport of flow"),
        ("e3", "after the start"),
        ("e20", "workload incast"),
        ("e15", "mode|transport|work"),
    ],
)
def test_fluid__refuses_by_name(name, refused):
    with pytest.raises(UsageError, match=refused):
        run_fluid(runs(name)[0])
