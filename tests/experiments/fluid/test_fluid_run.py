"""Scenarios on the fluid model, beside the same in virtual time; what it refuses; fabrics of any size."""

import json
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from mrc_testbed.console import terminal
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.command import Display
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner, modelled
from mrc_testbed.experiments.language.expand import Run
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from tests.repository import SCENARIOS
from tools.campaigns.fluid import DrawnRun, retired_evs

HEAD = """title: Any
fabric: {planes: 4, racks: 4, spines: 4, hosts_per_rack: 1}
workload: [{permutation: all, name: job, message: 64K, depth: 4}]
measure: {every: 50ms}
"""
JOBS = "{collective: all_reduce, name: job, size: 64K, ranks: 2, jobs: 2, iterations: 500}"
START = HEAD + "duration: 400ms\nfaults: [{at: 0s, silent: {random: fabric-links, share: 10%}}]\n"
FLAP = HEAD + "duration: 2s\nfaults: [{at: 500ms, cut: {random: fabric-links, count: 2}, for: 300ms}]\n"


def runs(name: str, backend: str = "fluid", scale: str | None = None) -> list[Run]:
    return plan_runs(read(SCENARIOS / f"{name}.yaml"), backend, scale=scale).runs


def only(tmp_path: Path, text: str, backend: str = "fluid") -> Run:
    path = tmp_path / "any.yaml"
    path.write_text(text, encoding="utf-8")
    (run,) = plan_runs(read(path), backend).runs
    return run


def run_both(run: Run) -> tuple[Outcome, Outcome]:
    """Run in packets, and in the fluid model with the same EVs."""
    virtual = DrawnRun(run)
    return virtual.carry_out(lambda *_: None), FluidRunner(virtual.evs).run(run)


def settled_rate(outcome: Outcome) -> float:
    return mean(sum(values[-4:]) / 4 for values in outcome.series.received_bps.values())


# ---- beside the packets ---------------------------------------------------------------------------------------


def test_start__beside_the_packets(tmp_path):
    """The fabric is not one of those it was calibrated on."""
    run = only(tmp_path, START, "virtual")
    packets, fluid = run_both(run)
    assert settled_rate(fluid) == pytest.approx(settled_rate(packets), rel=0.01)
    assert retired_evs(fluid) == retired_evs(packets) and packets.evs_bad > 0
    assert fluid.evs_bad == packets.evs_bad
    assert sum(flow.lost for flow in fluid.flows) == pytest.approx(sum(flow.lost for flow in packets.flows), rel=0.1)
    assert [flow.name for flow in fluid.flows] == [flow.name for flow in packets.flows]


def test_flap__beside_the_packets(tmp_path):
    run = only(tmp_path, FLAP, "virtual")
    packets, fluid = run_both(run)
    values = [Measurement(outcome, run) for outcome in (packets, fluid)]
    assert retired_evs(fluid) == retired_evs(packets)
    for metric, tolerance in (("evs.first_bad", 0.2), ("evs.restored", 0.02)):
        packet_value, fluid_value = (value.value(metric) for value in values)
        assert fluid_value == pytest.approx(packet_value, rel=tolerance), metric
    assert settled_rate(fluid) == pytest.approx(settled_rate(packets), rel=0.01)
    assert fluid.evs_bad == packets.evs_bad == 0


@pytest.mark.thorough
def test_slow_flows__beside_the_packets(tmp_path):
    """Flows of as many hosts as uplinks share links unequally.

    The model knows who gets how much.
    """
    text = HEAD.replace("hosts_per_rack: 1", "hosts_per_rack: 4").replace("planes: 4", "planes: 2") + "duration: 1s\n"
    run = only(tmp_path, text, "virtual")
    packets, fluid = ([mean(values[10:]) for values in o.series.received_bps.values()] for o in run_both(run))
    assert sum(fluid) == pytest.approx(sum(packets), rel=0.05)
    assert mean(sorted(fluid)[:4]) == pytest.approx(mean(sorted(packets)[:4]), rel=0.1)
    assert np.corrcoef(packets, fluid)[0, 1] > 0.7


@pytest.mark.parametrize(("name", "rate"), [("e10", 0.875), ("e11", 1.0)])
def test_switch_off__leaves_what_the_paper_saw(name, rate):
    (run,) = runs(name)
    outcome = FluidRunner().run(run)
    measurement = Measurement(outcome, run)
    rate_after = measurement.value_between("rate.total", 4.0, 9.0)
    assert rate_after == pytest.approx(rate * measurement.baseline("rate.total"), rel=0.01)
    assert sum(flow.lost for flow in outcome.flows) > 0
    assert measurement.value("qp_errors") == 0


def test_dead_t0__costs_who_receives_by_it_more_than_who_sends_by_it(tmp_path):
    """A sender knows at once; to a receiver three links are on their way, and more until the notice comes."""
    text = (
        HEAD.replace("hosts_per_rack: 1", "hosts_per_rack: 4")
        + "duration: 1s\nfaults: [{at: 500ms, power_off: p1-t0-0}]"
    )
    run = only(tmp_path, text, "virtual")
    lost_packets = []
    for outcome in (VirtualRunner().run(run), FluidRunner().run(run)):
        ends = [(int(flow.source[1:]) < 4, int(flow.target[1:]) < 4, flow.lost) for flow in outcome.flows]
        sent = [lost for sends_by_it, receives_by_it, lost in ends if sends_by_it and not receives_by_it]
        received = [lost for sends_by_it, receives_by_it, lost in ends if receives_by_it and not sends_by_it]
        assert sum(lost for *_, lost in ends) >= sum(sent) + sum(received)
        lost_packets.append((mean(sent), mean(received)))
    (sent_packets, received_packets), (sent_fluid, received_fluid) = lost_packets
    assert sent_fluid == pytest.approx(sent_packets, rel=0.35)
    assert received_fluid == pytest.approx(received_packets, rel=0.15)
    assert received_packets > 2 * sent_packets


# ---- results --------------------------------------------------------------------------------------------------


def test_same_seed_same_outcome():
    run = runs("e3")[0]
    assert FluidRunner().run(run).to_json() == FluidRunner().run(run).to_json()


def test_outcome__survives_json(tmp_path):
    outcome = FluidRunner().run(runs("e11")[0])
    read_back = Outcome.from_json(json.loads(json.dumps(outcome.to_json())))
    assert read_back.to_json() == outcome.to_json()


@pytest.mark.parametrize("name", ["e2", "e3", "e10", "e11"])
def test_judges_by_the_files_own_rules(tmp_path, name):
    report = run_scenario(
        plan_runs(read(SCENARIOS / f"{name}.yaml"), "fluid"),
        Display(terminal.console(stderr=True), 1, 2),
        out=tmp_path / "results",
    )
    assert report.passed
    for _, outcome in report.runs:
        assert "timeouts" not in outcome.metrics and all(map(modelled, outcome.metrics))


def test_names_the_rules_that_it_cannot_judge(tmp_path):
    path = tmp_path / "start.yaml"
    path.write_text(START + "expect: [{metric: marked, at_most: 9}]\n", encoding="utf-8")
    report = run_scenario(plan_runs(read(path), "fluid"), Display(terminal.console(stderr=True), 1, 1))
    assert report.runs[0][1].notes == ["not judged, the fluid model has no value for it: marked"]


def test_fails_a_rule_that_does_not_hold(tmp_path):
    path = tmp_path / "start.yaml"
    path.write_text(START + "expect: [{metric: rate.total, at_least: 0.99, of: capacity}]\n", encoding="utf-8")
    report = run_scenario(plan_runs(read(path), "fluid"), Display(terminal.console(stderr=True), 1, 1))
    assert not report.passed


def test_ring__all_its_flows_have_one_pace(tmp_path):
    text = HEAD.replace("{permutation: all, name: job, message: 64K, depth: 4}", "{collective: all_reduce, name: job}")
    text += "duration: 1s\nfaults: [{at: 500ms, cut: h2 p0-t0-2}]\n"
    outcome = FluidRunner().run(only(tmp_path, text))
    series = list(outcome.series.received_bps.values())
    assert len(series) == 4 and all(values == series[0] for values in series)
    # Two flows have three ports of four, and send while the others wait for their last packets.
    assert 0.75 * series[0][5] < series[0][-1] < 0.9 * series[0][5]
    assert outcome.notes == ["job: a ring at the pace of its steps; single late packets are not modelled"]


def test_no_path_left__the_qp_fails(tmp_path):
    text = HEAD + "duration: 30s\nfaults:\n" + "".join(f"  - {{at: 1s, cut: h2 p{p}-t0-2}}\n" for p in range(4))
    outcome = FluidRunner().run(only(tmp_path, text))
    failed = [event for event in outcome.events if event["what"] == "qp_error"]
    assert len(failed) == 2 and all("h2" in (event_of_qp["host"], event_of_qp["peer"]) for event_of_qp in failed)
    assert min(rates[-1] for rates in outcome.series.received_bps.values()) == 0


# ---- any size -------------------------------------------------------------------------------------------------

LARGE = """title: Larger than a plan can be
fabric: {planes: 4, racks: 300, spines: 16, hosts_per_rack: 8}
workload: [{permutation: all, name: job, message: 64K, depth: 4, spread: 500ms}]
duration: 2s
faults: [{at: 1s, power_off: p1-t1-3, for: 200ms}]
measure: {every: 100ms}
"""


def test_large__is_summed_up_by_workload(tmp_path):
    run = only(tmp_path, LARGE)
    outcome = FluidRunner().run(run)
    measurement = Measurement(outcome, run)
    (flow,) = outcome.flows
    spread = outcome.series.spread["job"]
    assert (flow.name, spread.flows) == ("job:2400-flows", 2400)
    late_rate = measurement.value_between("rate.total", 1.8, 2.0)
    assert late_rate == pytest.approx(0.9 * outcome.capacity_bps, rel=0.1)
    least_rate, most_rate = (measurement.value_between(f"rate.job.{end}", 1.8, 2.0) for end in ("min", "max"))
    assert least_rate <= late_rate / 2400 * 1.0001 and late_rate / 2400 <= most_rate * 1.0001
    assert 0.9 < measurement.value_between("jain.job", 1.8, 2.0) <= 1 + 1e-9
    assert outcome.series.received_bps["job:2400-flows"][0] < late_rate / 4  # most have not begun
    assert measurement.value("lost") > 0
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))).series.spread["job"] == spread


def test_events__faults_and_the_ends_stay_where_there_are_too_many(tmp_path, monkeypatch):
    for module in ("mrc_testbed.experiments.backend.outcome", "mrc_testbed.experiments.fluid.fluid_run"):
        monkeypatch.setattr(f"{module}.EVENTS_MAX", 40)
    run = only(tmp_path, LARGE)
    outcome = FluidRunner().run(run)
    kinds = [event["what"] for event in outcome.events]
    assert len(kinds) <= 40 and kinds.count("fault") == 2 and outcome.events_dropped > 0
    assert [event["t"] for event in outcome.events] == sorted(event["t"] for event in outcome.events)
    assert Measurement(outcome, run).value("evs.restored") == pytest.approx(0.55, abs=0.15)


def test_large__other_back_ends_refuse_it_and_say_why(tmp_path):
    path = tmp_path / "any.yaml"
    path.write_text(LARGE, encoding="utf-8")
    with pytest.raises(ScenarioError, match="racks = 300"):
        plan_runs(read(path), "virtual")


@pytest.mark.parametrize("name", ["e2", "e3", "e10", "e11"])
def test_scale_paper__is_the_papers_own_size(name):
    for run in runs(name, scale="paper"):
        fabric = run.scenario.fabric
        assert fabric.racks * fabric.hosts_per_rack in (75_008, 131_072)


def test_spread__starts_are_drawn_by_the_seed_for_both_back_ends(tmp_path):
    text = HEAD.replace("depth: 4}", "depth: 4, spread: 300ms}") + "duration: 1s\n"
    run = only(tmp_path, text, "virtual")
    starts = [
        [round(flow.started_s, 6) for flow in runner.run(run).flows] for runner in (VirtualRunner(), FluidRunner())
    ]
    assert starts[0] == starts[1] and len(set(starts[0])) == 4 and max(starts[0]) <= 0.3


# ---- refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number", "error_text"),
    [
        ("e20", 0, "workload incast"),
        ("e15", 0, "mode|transport|work|collective|last"),
        ("e12", 0, "transport's settings|fault"),
        ("e18", 1, "tiers of links"),
    ],
)
def test_refuses_by_name(name, number, error_text):
    with pytest.raises(UsageError, match=error_text):
        FluidRunner().run(runs(name)[number])


@pytest.mark.parametrize(
    ("line", "error_text"),
    [
        ("faults: [{at: 0s, loss: {link: p0-t0-0 p0-t1-0, rate: 1%}}]\n", "fault loss: links with loss"),
        ("faults: [{at: 100ms, drain: 1}]\n", "fault drain"),
        ("mode: ecmp\n", "mode ecmp"),
        ("queues: {trim: false}\n", "queues"),
        ("transport: {kind: rocev2}\nmode: flow-ecmp\n", "mode|transport"),
        ("transport: {config: {loss_rule: time}}\n", "loss_rule"),
        ("control_plane: {denylist: lossy}\n", "lossy"),
    ],
)
def test_refuses_what_it_does_not_model(tmp_path, line, error_text):
    with pytest.raises(UsageError, match=error_text):
        FluidRunner().run(only(tmp_path, HEAD + "duration: 400ms\n" + line))


# ---- many jobs ------------------------------------------------------------------------------------------------


def test_jobs__each_at_the_pace_of_its_own_slowest(tmp_path):
    text = HEAD.replace("{permutation: all, name: job, message: 64K, depth: 4}", JOBS) + (
        "duration: 2s\nfaults: [{at: 1s, cut: h0 p0-t0-0}]\n"
    )
    run = only(tmp_path, text)
    outcome = FluidRunner().run(run)
    measurement = Measurement(outcome, run)
    rates = outcome.series.received_bps
    assert list(rates) == ["job:h0-h1", "job:h1-h0", "job:h2-h3", "job:h3-h2"]
    assert rates["job:h0-h1"] == rates["job:h1-h0"] != rates["job:h2-h3"] == rates["job:h3-h2"]
    assert measurement.value("slowed.job") == measurement.value("slowed.job.once") == 0.5
    (jobs,) = outcome.jobs
    sent_bits = 8 * 65536  # of two ranks each sends as much as the size
    assert jobs.before_s[1] == pytest.approx(sent_bits / rates["job:h2-h3"][5], rel=0.01)
    assert jobs.after_s[0] == pytest.approx(sent_bits / rates["job:h0-h1"][-1], rel=0.01)
    assert outcome.notes == ["job: 2 rings, each at the pace of its steps; single late packets are not modelled"]


def test_x_jobs__who_is_slowed():
    shares, slowest = {}, {}
    for run in runs("x-jobs"):
        outcome = FluidRunner().run(run)
        variant = run.label["variant"]
        shares[variant] = Measurement(outcome, run).value("slowed.job")
        (jobs,) = outcome.jobs
        slowest[variant] = max(np.array(jobs.after_s) / jobs.before_s)
    assert shares["nothing"] == 0 and shares["link"] <= 0.5
    assert (shares["t0"], shares["port"]) == (0.5, 0.125)
    # Packets, three seeds: 0.299 s; the slowest job 1.11 to 1.22 after a dead T0, 1.05 to 1.16 after a dead port.
    assert mean(jobs.before_s) == pytest.approx(0.299, rel=0.1)
    assert slowest["t0"] == pytest.approx(1.18, abs=0.05)
    assert slowest["port"] < 1.2
