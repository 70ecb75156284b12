"""Scenarios in virtual time.

Repeatable to the byte, every metric, verdicts that can fail, results, reports.
"""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.console import terminal
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments import command
from mrc_testbed.experiments.command import SCENARIOS
from mrc_testbed.experiments.executors.crew import RunProgress
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.language.expand import environments_of, expand, is_for
from mrc_testbed.experiments.language.metric_names import METRICS
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.live import live_run
from mrc_testbed.experiments.metrics.assertions import judge
from mrc_testbed.experiments.metrics.metric_values import _RUN_METRICS, Measurement
from mrc_testbed.experiments.report.page import report
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner

SCENARIO = """\
title: one link of two planes
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 5M}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 1.5s
faults:
  - {at: 0.5s, cut: p0-t0-0 p0-t1-0, for: 0.3s}
measure: {every: 100ms, latency: true, queues: [p0-t0-1-eth1]}
expect:
  - {metric: qp_errors, at_most: 0}
figures:
  - {kind: rate_over_time, metric: rate.flow, of: baseline}
  - {kind: queue_over_time, metric: queue.p0-t0-1-eth1}
"""


class Quiet:
    """Tells nobody."""

    def on_start(self, runs):
        self.runs = runs

    def on_progress(self, run, share, now):
        assert 0 <= share <= 1

    def on_end(self, run, outcome):
        pass

    def on_stop(self, kept_count, folder):
        pass


def document(tmp_path: Path, text: str = SCENARIO):
    path = tmp_path / "small.yaml"
    path.write_text(text)
    return read(path)


def outcome_of(tmp_path: Path, text: str = SCENARIO, seed: int | None = None):
    (run,) = plan_runs(document(tmp_path, text), "virtual", seed=seed).runs
    return run, VirtualRunner().run(run)


# ---- runs ---------------------------------------------------------------------------------------------------


def test_same_seed_same_bytes(tmp_path):
    first, second = (json.dumps(outcome_of(tmp_path)[1].to_json()) for _ in range(2))
    assert first == second
    assert json.dumps(outcome_of(tmp_path, seed=2)[1].to_json()) != first


def test_side_by_side_gives_the_same(tmp_path):
    run_set = plan_runs(document(tmp_path, SCENARIO + "repeat: 2\n"), "virtual")
    lone_report = run_scenario(run_set, Quiet())
    with WorkerPool(2) as crew:
        shared_report = run_scenario(run_set, Quiet(), news_queue=crew.hand_in(run_set.runs))
    assert [o.to_json() for _, o in lone_report.runs] == [o.to_json() for _, o in shared_report.runs]
    assert [run.seed for run, _ in lone_report.runs] == [1, 2]


def test_a_crew_may_be_ahead_of_the_scenarios_it_works_for(tmp_path):
    file = document(tmp_path, SCENARIO + "variants: {one: {}, two: {links: {rate: 6M}}}\n")
    run_sets = [plan_runs(file, "virtual", seed=seed) for seed in (1, 2)]
    with WorkerPool(2) as crew:
        queues = [crew.hand_in(run_set.runs) for run_set in run_sets]
        shared_reports = [
            run_scenario(run_set, Quiet(), news_queue=queue) for run_set, queue in zip(run_sets, queues, strict=True)
        ]
    for run_set, shared_report in zip(run_sets, shared_reports, strict=True):
        lone_report = run_scenario(run_set, Quiet())
        assert [o.to_json() for _, o in lone_report.runs] == [o.to_json() for _, o in shared_report.runs]
        assert shared_report.wall_s > 0


def test_errors_in_other_processes_come_back_with_their_traceback(tmp_path):
    (run,) = plan_runs(document(tmp_path), "virtual").runs
    invalid_run = replace(run, scenario=run.scenario.model_copy(update={"workload": None}))
    with WorkerPool(1) as crew:
        run_set = replace(plan_runs(document(tmp_path), "virtual"), runs=[invalid_run])
        with pytest.raises(TypeError) as error:
            run_scenario(run_set, Quiet(), news_queue=crew.hand_in([invalid_run]))
        assert "virtual_run.py" in str(error.value.__cause__)
        run_set = plan_runs(document(tmp_path), "virtual")
        assert run_scenario(run_set, Quiet(), news_queue=crew.hand_in(run_set.runs)).runs


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, r"process of run 'run' was killed \(SIGKILL\) from outside, .* give fewer --jobs"),
        pytest.param(
            signal.SIGTERM,
            "process of run 'run' was ended by SIGTERM from outside",
            marks=pytest.mark.thorough,  # as SIGKILL
        ),
        (signal.SIGSEGV, r"process of run 'run' crashed \(SIGSEGV\): a fault of mrc-testbed.*mrc-crash-\w+.txt"),
        pytest.param(
            signal.SIGABRT,
            r"process of run 'run' crashed \(SIGABRT\): a fault of mrc-testbed",
            marks=pytest.mark.thorough,  # as SIGSEGV
        ),
    ],
)
def test_a_run_whose_process_dies__is_told_with_whose_fault_it_is(tmp_path, monkeypatch, number, words):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    run_set = plan_runs(document(tmp_path, SCENARIO.replace("duration: 1.5s", "duration: 5000s")), "virtual")
    next_run_set = plan_runs(document(tmp_path, SCENARIO), "virtual")
    with WorkerPool(1) as crew:
        news_queue = crew.hand_in(run_set.runs)
        while not isinstance(news_queue.get()[1], RunProgress):
            pass
        (child,) = active_children()
        os.kill(child.pid, number)
        with pytest.raises(UsageError, match=words):
            run_scenario(run_set, Quiet(), news_queue=news_queue)
        assert run_scenario(next_run_set, Quiet(), news_queue=crew.hand_in(next_run_set.runs)).runs, (
            "another process goes on"
        )
    for crash in (tmp_path / "cache" / "crashes").glob("*"):
        assert "Fatal Python error" in crash.read_text() and "run: run" in crash.read_text()


def test_a_cut_link_is_seen_and_forgotten(tmp_path):
    run, outcome = outcome_of(tmp_path)
    measurement = Measurement(outcome, run)
    assert [event["t"] for event in outcome.events if event["what"] == "fault"] == [0.5, 0.8]
    assert 0 < measurement.value("evs.first_bad") < 0.2
    assert measurement.value("lost") == measurement.value("retransmitted") == sum(outcome.series.retransmitted) > 0
    assert [(p["flow"], p["host"], p["peer"], len(p["evs"])) for p in outcome.paths] == [("flow:h0-h1", "h0", "h1", 4)]
    assert measurement.value("damaged") == measurement.value("failed") == 0
    assert measurement.value("reorder.max") > 0
    assert measurement.value("latency.flow.p99") >= measurement.value("latency.flow.p50") > 0
    assert 0.8 < measurement.value("rate.flow") / outcome.capacity_bps < 1.0


def test_the_series_add_up_to_what_was_received(tmp_path):
    _, outcome = outcome_of(tmp_path)
    series = outcome.series
    spans = [b - a for a, b in zip([0.0, *series.times_s[:-1]], series.times_s, strict=True)]
    total_bytes = sum(rate * span / 8 for rate, span in zip(series.received_bps["flow:h0-h1"], spans, strict=True))
    assert total_bytes == pytest.approx(outcome.flows[0].received_bytes, rel=1e-6)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
@pytest.mark.parametrize("transport", ["{kind: mrc}", "{kind: rocev2, qps: 2}"])
def test_collectives_are_right_under_loss(tmp_path, kind, transport):
    text = f"""\
title: collective
fabric: {{planes: 2, racks: 3, spines: 1, hosts_per_rack: 1}}
transport: {transport}
workload: [{{collective: {kind}, size: 20K, iterations: 2, warm_up: 1}}]
faults: [{{at: 0s, loss: {{into: hosts, rate: 10%}}}}]
measure: {{evs: false}}
"""
    _, outcome = outcome_of(tmp_path, text)
    (collective,) = outcome.collectives
    assert outcome.finished
    assert [iteration.wrong for iteration in collective.iterations] == [0, 0]
    assert sum(flow.retransmitted for flow in outcome.flows) > 0


def test_queues_of_one_plane_are_no_losses():
    """Packets of an all-to-all of a long queue are lapped by many of other planes.

    Nothing is lost, nobody accused.
    """
    runs = expand(read(SCENARIOS / "e16.yaml"), "virtual")
    (run,) = [run for run in runs if run.label == {"variant": "mrc", "loss": "0%", "size": 1 << 20}]
    scenario = run.scenario
    overrides = {  # pipes of 43 packets overflow sooner than those of 240
        "links": scenario.links.model_copy(update={"rtt": 0.010}),
        "transport": scenario.transport.model_copy(update={"clock": 1.0, "config": {"backup_per_plane": 0}}),
    }
    run = resolve(replace(run, scenario=scenario.model_copy(update=overrides)))
    measurement = Measurement(VirtualRunner().run(run), run)
    assert measurement.value("trimmed") > 50
    assert (measurement.value("lost"), measurement.value("evs.bad")) == (0, 0)


def test_a_fault_comes_at_its_share_of_the_work(tmp_path):
    text = (
        SCENARIO.replace("depth: 2}", "depth: 2, bytes: 256K}")
        .replace("duration: 1.5s\n", "")
        .replace("at: 0.5s", "at: 50%")
    )
    _run, outcome = outcome_of(tmp_path, text.replace("at: 0.5s", "at: 50%").replace("for: 0.3s", "for: 0.1s"))
    start, ends = [event["t"] for event in outcome.events if event["what"] == "fault"]
    finished_s = outcome.flows[0].finished_s
    assert 0.35 * finished_s < start < 0.65 * finished_s
    assert ends - start == pytest.approx(0.1, abs=1e-6)


def test_overlapping_cuts_end_with_the_last(tmp_path):
    text = SCENARIO.replace("for: 0.3s}", "for: 0.6s}\n  - {at: 0.6s, cut: p0-t0-0 p0-t1-0, for: 0.1s}")
    _, outcome = outcome_of(tmp_path, text.replace("duration: 1.5s", "duration: 2.5s"))
    return_times = [e["t"] for e in outcome.events if e["what"] == "ev" and e["new"] == "good"]
    assert min(return_times) > 1.1


def test_random_targets_follow_the_seed(tmp_path):
    text = SCENARIO.replace("cut: p0-t0-0 p0-t1-0", "cut: {random: fabric-links, count: 2}")
    targets = []
    for seed in (1, 1, 2, 3):
        (run,) = plan_runs(document(tmp_path, text), "virtual", seed=seed).runs
        targets.append(str(run.steps()[0]))
    assert targets[0] == targets[1]
    assert len(set(targets)) > 1


@pytest.mark.parametrize("empty_draw", ["count: 0", "share: 0%"])
def test_no_random_target_is_no_fault(tmp_path, empty_draw):
    text = SCENARIO.replace("cut: p0-t0-0 p0-t1-0", f"cut: {{random: links, {empty_draw}}}")
    run, outcome = outcome_of(tmp_path, text)
    assert [step.targets for step in run.steps()] == [(), ()]
    assert Measurement(outcome, run).value("lost") == 0


def test_live_runs_may_have_values_of_their_own(tmp_path):
    text = (
        SCENARIO
        + """
sweep: {size: [64K, 1M, 4M], spare: [a, b]}
live: {links: {rate: 4M}, sweep: {size: [32K, 128K]}}
variants: {mrc: {}, fat: {links: {rate: 40M}, live: {links: {rate: 8M}}}}
"""
    )
    text = text.replace(
        "expect:", "expect:\n  - {metric: lost, at_most: 0, where: {size: last}, compared_to: {size: first}}"
    )
    runs = {backend: expand(document(tmp_path, text), backend) for backend in ("virtual", "live")}
    assert [run.label["size"] for run in runs["live"]] == ["32K", "32K", "128K", "128K"] * 2
    assert len(runs["virtual"]) == 12
    rates = {(backend, run.label["variant"]): run.scenario.links.rate for backend in runs for run in runs[backend]}
    assert rates["live", "mrc"] == 4e6 and rates["live", "fat"] == 8e6 and rates["virtual", "fat"] == 40e6
    for backend, ends in (("virtual", ("64K", "4M")), ("live", ("32K", "128K"))):
        rule = runs[backend][0].scenario.expect[0]
        assert (rule.compared_to["size"], rule.where["size"]) == ends


def test_a_network_that_reacts_gets_its_plane_back(tmp_path):
    text = SCENARIO.replace("cut: p0-t0-0 p0-t1-0, for: 0.3s", "cut: p0-t0-1 p0-t1-0").replace(
        "duration: 1.5s\n", ""
    ) + ("mode: switch-spray\nduration: 3s\nvariants: {never: {}, soon: {control_plane: {react_after: 100ms}}}\n")
    bad_ev_counts = {}
    for run in plan_runs(document(tmp_path, text), "virtual").runs:
        measurement = Measurement(VirtualRunner().run(run), run)
        bad_ev_counts[run.label["variant"]] = measurement.value("evs.bad")
        assert (measurement.value("control.reacted") is not None) == (run.label["variant"] == "soon")
    assert bad_ev_counts["never"] > bad_ev_counts["soon"] == 0


def test_a_denylist_before_the_start_spares_all_losses(tmp_path):
    text = SCENARIO.replace("at: 0.5s, cut: p0-t0-0 p0-t1-0, for: 0.3s", "at: 0s, silent: p0-t0-0 p0-t1-0") + (
        "variants: {off: {}, all: {control_plane: {denylist: all}}}\n"
    )
    lost = {
        r.label["variant"]: Measurement(VirtualRunner().run(r), r)
        for r in plan_runs(document(tmp_path, text), "virtual").runs
    }
    assert lost["off"].value("lost") > 0
    assert lost["all"].value("lost") == 0
    assert lost["all"].value("evs.denied") == 1


# ---- metrics, rules, files ------------------------------------------------------------------------------------


def test_every_metric_is_computed(tmp_path):
    assert set(_RUN_METRICS) == {metric.pattern for metric in METRICS if not metric.series}
    run, outcome = outcome_of(tmp_path)
    values = Measurement(outcome, run).all_values()
    assert len(values) > 35
    assert values["rate.flow"] == values["rate.total"] > 0


def test_a_rule_that_does_not_hold_is_told_with_its_events(tmp_path):
    text = SCENARIO.replace("{metric: qp_errors, at_most: 0}", "{metric: lost, at_most: 0, why: there is a cut}")
    failed_report = run_scenario(plan_runs(document(tmp_path, text), "virtual"), Quiet())
    (failed_verdict,) = [verdict for verdict in failed_report.verdicts if not verdict.passed]
    assert not failed_report.passed
    assert (failed_verdict.rule, failed_verdict.expected, failed_verdict.why) == (
        "lost at most 0",
        "<= 0",
        "there is a cut",
    )
    assert any("cut p0-t0-0 p0-t1-0" in line for line in failed_verdict.events)
    assert any("assumed_bad" in line for line in failed_verdict.events)


def test_results_and_report(tmp_path):
    out = tmp_path / "out"
    run_report = run_scenario(plan_runs(document(tmp_path), "virtual"), Quiet(), out=out)
    assert run_report.passed
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["complete"] and manifest["passed"] and manifest["machine"]["kernel"]
    assert (out / "runs" / "run.csv").read_text().startswith("time_s,rate_bps flow:h0-h1,lost")
    (page,) = report(out)
    text = (out / "report.html").read_text()
    assert page.passed and text.count("<svg") >= 4 and not re.search(r"(src|href)=\"[^#d]", text)
    assert {p.suffix for p in (out / "figures").iterdir()} == {".svg", ".png"}
    (second_page,) = report(out)
    assert second_page.passed


def test_runs_with_names_alike_have_files_of_their_own(tmp_path):
    text = SCENARIO.replace("duration: 1.5s", "duration: 100ms").replace("at: 0.5s", "at: 0.05s")
    run_scenario(
        plan_runs(document(tmp_path, text + "variants: {a+b: {}, a b: {}}\n"), "virtual"), Quiet(), out=tmp_path / "out"
    )
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [run["file"] for run in manifest["runs"]] == ["runs/a_b.json", "runs/a_b_.json"]


def test_the_command_line_tells_by_its_exit_code(tmp_path):
    document(tmp_path)
    path = str(tmp_path / "small.yaml")
    run = CliRunner().invoke
    result = run(app, ["run", path, "--virtual", "--out", str(tmp_path / "a"), "--json"])
    assert result.exit_code == 0 and json.loads(result.stdout)[0]["passed"] is True
    assert run(app, ["run", path, "--virtual", "--seed", "2", "--out", str(tmp_path / "b")]).exit_code == 0
    comparison = run(app, ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    assert comparison.exit_code == 0 and len(json.loads(comparison.stdout)["rows"]) > 20
    document(tmp_path, SCENARIO.replace("qp_errors, at_most: 0", "sent, at_most: 0"))
    assert run(app, ["run", path, "--virtual", "--out", str(tmp_path / "c")]).exit_code == 1
    document(tmp_path, "titel: x")
    assert run(app, ["run", path, "--virtual"]).exit_code == 2
    assert run(app, ["scenario", "validate", path]).exit_code == 2


# ---- the scenarios that come with the testbed -------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", ["virtual", "live"])
def test_scenario_is_good(path, backend):
    if not is_for(read(path), backend):
        with pytest.raises(ScenarioError, match=r"runs (in virtual time|on the live fabric) only\. Cure: "):
            plan_runs(read(path), backend)
        return
    runs = plan_runs(read(path), backend).runs
    scenario = runs[0].scenario
    assert scenario.expect and scenario.figures
    assert path.read_text().startswith("# ")
    if scenario.paper is not None:
        assert scenario.paper.saw and scenario.paper.scaled


def test_all_experiments_are_here():
    ids = {plan_runs(read(path), "virtual").runs[0].scenario.paper.id for path in SCENARIOS.glob("e*.yaml")}
    assert ids == {f"E{number}" for number in range(1, 22)}


def test_the_page_lists_every_metric():
    text = (SCENARIOS.parent / "docs" / "scenarios.md").read_text()
    assert [m.pattern for m in METRICS if f"| `{m.pattern}` | {m.unit} | {m.text} |" not in text] == []


LOST_NACKS = """
title: links of a congested rack fail
fabric: {planes: 1, racks: 2, spines: 4, hosts_per_rack: 1}
links: {rate: 40M, fabric: {rate: 10M}}
transport: {config: {backup_per_plane: 0}}
workload:
  - {stream: h0 h1, name: flow, message: 64K, depth: 8}
faults:
  - {at: $first, cut: p0-t0-0 p0-t1-0}
  - {at: $second, cut: p0-t0-0 p0-t1-1}
  - {at: $third, cut: p0-t0-0 p0-t1-2}
duration: $end
sweep: {first: [GAPs], second: [2GAPs], third: [3GAPs], end: [4GAPs]}
"""


@pytest.mark.parametrize(("gap", "seed"), [(0.5, 8), (1, 3)])
def test_nacks_lost_with_the_way_back_accuse_nobody(tmp_path, gap, seed):
    """E18 once took the good EV for the dead one, whose place the floor then kept for two seconds."""
    text = LOST_NACKS
    for times in (4, 3, 2, ""):
        text = text.replace(f"{times}GAP", str((times or 1) * gap))
    _, outcome = outcome_of(tmp_path, text, seed)
    bad_evs = [event["ev"] for event in outcome.events if event["what"] == "ev" and event["new"] == "assumed_bad"]
    assert sorted(bad_evs) == [0, 1, 2]


ON_BMV2 = """
title: Rates for each target
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 1}
workload:
  - {stream: h0 h1, name: flow}
duration: 3s
faults:
  - {at: 1s, line: {link: h0 p0-t0-0, delay: 5ms}}
live: {links: {rate: 2M, rtt: 50ms}}
bmv2: {links: {rate: 1M}}
variants:
  a: {}
  b: {bmv2: {duration: 2s}}
expect:
  - {metric: rate.total, at_least: 1, only: bmv2}
  - {metric: rate.total, at_least: 2, only: [virtual, embedded]}
  - {metric: rate.total, at_least: 3, only: live}
"""


def test_bmv2__has_parts_and_rules_of_its_own_on_top_of_live(tmp_path):
    (tmp_path / "mine.yaml").write_text(ON_BMV2)
    document = read(tmp_path / "mine.yaml")
    rates = {}
    for target in ("embedded", "bmv2"):
        runs = plan_runs(document, "live", target=target).runs
        rates[target] = [(run.scenario.links.rate, run.scenario.links.rtt, run.scenario.duration) for run in runs]
    assert rates == {"embedded": [(2e6, 0.05, 3.0)] * 2, "bmv2": [(1e6, 0.05, 3.0), (1e6, 0.05, 2.0)]}
    scenario = plan_runs(document, "live", target="bmv2").runs[0].scenario
    rules = [judge(scenario, [], environments_of("live", target)) for target in ("embedded", "bmv2")]
    assert [[verdict.expected for verdict in rule] for rule in rules] == [["a run with "] * 2] * 2
    assert [[verdict.rule.split()[-1] for verdict in rule] for rule in rules] == [["2", "3"], ["1", "3"]]


def test_bmv2__what_it_cannot_do_is_said(tmp_path):
    (tmp_path / "mine.yaml").write_text(ON_BMV2)
    plan = plan_runs(read(tmp_path / "mine.yaml"), "live", target="bmv2").runs[0]
    round_trip, line = live_run.unlike(plan, "bmv2")
    assert "bmv2 cannot delay packets, nor does it serialise a lone one" in round_trip and "the 50 ms of" in round_trip
    assert "faults that set a link's delay leave it as it is" in line
    assert live_run.unlike(plan) == []


def test_display__of_resumed_runs_that_are_stopped_counts_those_that_were_there(tmp_path, capsys):
    """Two of four were there and two more ended: four of four, where it once said "4 of 2"."""
    path = tmp_path / "a.yaml"
    path.write_text(
        "title: four\nfabric: {planes: 1, racks: 1, spines: 1, hosts_per_rack: 2}\nrepeat: 4\n"
        "workload: [{stream: h0 h1, name: flow, bytes: 4K}]\n"
    )
    run_set = plan_runs(read(path), "virtual")
    display = command.Display(terminal.console(), 1, len(run_set.runs))
    display.scenario("a", len(run_set.runs))
    display.on_start(run_set.runs[2:])
    display.on_stop(4, tmp_path)
    assert "(4 of 4)" in capsys.readouterr().out


@pytest.mark.parametrize("backend, target", [("virtual", "embedded"), ("live", "embedded"), ("live", "bmv2")])
@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_variants__have_hosts_of_the_same_rate(path, backend, target):
    """Compared variants send at the same rate over all their planes, wherever they run."""
    if not is_for(read(path), backend):
        return
    runs = plan_runs(read(path), backend, target=target).runs
    rates = {run.scenario.links.rate * run.scenario.fabric.planes for run in runs}
    assert len(rates) == 1, rates
