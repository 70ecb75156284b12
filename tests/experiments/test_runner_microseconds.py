"""Runs of microseconds: their units, sweeps with names, files for virtual time alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.console.units import rate_unit, short_seconds, show_rate, show_seconds, time_unit
from mrc_testbed.experiments.console_summary import summary_lines
from mrc_testbed.experiments.language.expand import Changes, expand
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report import figures
from mrc_testbed.experiments.report.page import measured_runs
from mrc_testbed.experiments.report.timeline import timeline
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from tests.experiments.report.small_results import Quiet

TEXT = """\
title: an instant
only: virtual
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 100G, rtt: 10us}
transport: {pmtu: 4096, clock: 0.001}
workload: [{stream: h0 h1, name: flow, message: 64K, depth: 4}]
duration: 400us
faults: [$fault]
sweep:
  fault:
    link: {at: 150us, cut: p0-t0-0 p0-t1-0}
    loss: {at: 150us, loss: {link: p0-t0-0 p0-t1-0, rate: 1%}}
baseline: {from: 50us, to: 150us}
measure: {every: 10us}
expect:
  - {metric: rate.flow, from: 200us, to: 400us, each: 100us, at_least: 0.9, of: baseline, where: {fault: link}}
  - {metric: evs.first_bad, at_most: 100us, where: {fault: link}}
  - {metric: evs.first_bad, at_most: 1us, where: {fault: link}}
figures:
  - {kind: rate_over_time, metric: rate.flow, from: 100us, to: 300us, where: {fault: link}}
  - {kind: bars, metric: evs.first_bad, log: true}
  - {kind: bars, metric: sent, log: true}
  - {kind: bars, metric: control.reacted, log: true}
"""


def write(folder: Path, text: str = TEXT) -> Path:
    path = folder / "instant.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "seconds, text", [(0.0, "0s"), (2.0, "2s"), (0.5, "0.5s"), (0.05, "50ms"), (0.00055, "550us"), (3e-9, "3ns")]
)
def test_short_seconds(seconds, text):
    assert short_seconds(seconds) == text


def test_units__fit_the_longest_value():
    assert [time_unit(end)[0] for end in (0.0, 16.0, 0.2, 0.003, 1e-6)] == ["s", "s", "ms", "us", "ns"]
    assert [rate_unit(peak)[0] for peak in (0.0, 9e9, 8e11, 2e13)] == ["Mb/s", "Mb/s", "Gb/s", "Tb/s"]
    assert (show_rate(1.54e12), show_seconds(0.00029876), show_seconds(4.2961, 4)) == ("1.54 Tb/s", "299 us", "4.296 s")


def test_sweep_with_names__labels_runs_by_them(tmp_path):
    runs = expand(read(write(tmp_path)), "virtual")
    assert [run.name for run in runs] == ["fault=link", "fault=loss"]
    assert [str(run.scenario.faults[0].at) for run in runs] == ["150us"] * 2
    assert [run.scenario.faults[0].action for run in runs] == ["cut", "loss"]
    (only,) = expand(read(write(tmp_path)), "virtual", changes=Changes(sweep={"fault": ["loss"]}))
    assert only.name == "fault=loss"


@pytest.mark.parametrize(
    "text, replacement, says",
    [
        ("only: virtual\n", "only: virtual\nvirtual: {sweep: {fault: [lnik]}}\n", "no value 'lnik' of this sweep"),
        (
            "only: virtual\n",
            "only: virtual\nvirtual: {sweep: {fault: {link: {at: 9ms, cut: p0-t0-0 p0-t1-1}}}}\n",
            r"give a list of names: \[link\]; what they stand for",
        ),
        ("    link: {at: 150us, cut: p0-t0-0 p0-t1-0}\n", "    link: 5\n", "or names with a mapping each"),
        ("cut: p0-t0-0 p0-t1-0}\n", "cat: p0-t0-0 p0-t1-0}\n", "cat"),
        ("only: virtual", "only: life", "only: .*virtual"),
    ],
)
def test_mistakes__are_named(tmp_path, text, replacement, says):
    with pytest.raises(ScenarioError, match=says):
        plan_runs(read(write(tmp_path, TEXT.replace(text, replacement))), "virtual")


def test_only_virtual__is_refused_live_by_itself_and_left_out_among_others(tmp_path):
    with pytest.raises(ScenarioError, match=r"2:7: only: .* virtual time only. Cure: --virtual") as refusal:
        plan_runs(read(write(tmp_path)), "live")
    assert len(refusal.value.problems) == 1
    answer = CliRunner().invoke(app, ["scenario", "validate", str(write(tmp_path))])
    assert answer.exit_code == 0 and "2 virtual runs, none live" in answer.stdout


def test_summary__has_times_in_microseconds(tmp_path):
    report = run_scenario(plan_runs(read(write(tmp_path)), "virtual"), Quiet())
    text = "\n".join(line for _, line in summary_lines(report, 100))
    assert "rate.flow at least 0.9 of baseline from 200us to 400us, in every 100us (fault=link)" in text
    assert "expected  <= 1us" in text and "events from 0 to 400 us:" in text
    assert " 150.000 us  cut p0-t0-0 p0-t1-0" in text and "h0: finds a packet lost over EV 0x0000" not in text
    assert "2 runs, 800 us in" in text
    (first,) = [outcome for run, outcome in report.runs if run.name == "fault=link"]
    measurement = Measurement(first, report.runs[0][0])
    lost_s, withdrawn_s = (measurement.value(name) for name in ("retransmitted.first", "evs.first_bad"))
    assert 0 < lost_s <= withdrawn_s < 60e-6
    first.events = [event for event in first.events if event["what"] != "lost"]
    assert lost_s <= measurement.value("retransmitted.first") <= lost_s + 10e-6, "to one interval, as in live runs"
    assert measurement.value("retransmitted.bytes") == 4096 * measurement.value("retransmitted") > 0


def test_pictures__have_axes_in_microseconds(tmp_path):
    run_scenario(plan_runs(read(write(tmp_path)), "virtual"), Quiet(), out=tmp_path / "results")
    _, runs = measured_runs(tmp_path / "results")
    rate, times, packets, reactions = figures.asked_for(runs[0][2].plan.scenario, runs)
    axes = rate.canvas.axes[0]
    assert axes.get_xlabel() == "time, us" and axes.get_xlim() == pytest.approx((100e-6, 300e-6))
    assert axes.xaxis.get_major_formatter()(150e-6, 0) == "150"
    assert all(round(tick * 1e6) % 25 == 0 for tick in axes.get_xticks())
    assert times.canvas.axes[0].get_xscale() == packets.canvas.axes[0].get_xscale() == "log"
    assert times.canvas.axes[0].xaxis.get_major_formatter()(1e-5, 0) == "10 us"
    assert " not in this run" in [text.get_text() for text in reactions.canvas.axes[0].texts]
    drawing = timeline("fault=link", runs[0][2], [], "#000000")
    assert drawing.canvas.axes[-1].get_xlabel() == "time, us" and drawing.canvas.axes[0].get_ylabel() == "Gb/s"
