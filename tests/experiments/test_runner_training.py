"""Training jobs, new collectives and traces as scenarios.

In virtual time, at the command line, and live.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.cli.app import main
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.sizes import size_lines
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from tests.experiments.traces.chakra_files import node, write
from tests.repository import ROOT

GOAL = ROOT / "examples/traces/ring-step.goal"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets")

JOB = """
title: a job
fabric: {{planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}}
workload: [{work}]
{more}
"""


def scenario(folder: Path, work: str, extra_yaml: str = "") -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB.format(work=work, more=extra_yaml))
    return path


def measurement(path: Path) -> Measurement:
    (run,) = plan_runs(read(path), "virtual").runs
    return Measurement(VirtualRunner().run(run), run)


KINDS = ("all_reduce_tree", "all_reduce_halving", "all_reduce_hierarchical", "all_to_allv")


@pytest.mark.parametrize("kind", KINDS)
def test_collective__of_each_kind_on_the_virtual_fabric(tmp_path, kind):
    work = f"{{collective: {kind}, name: job, size: 64K, iterations: 3, skew: 1.2, experts: 8, placement: random}}"
    measured_run = measurement(scenario(tmp_path, work))
    assert (
        measured_run.outcome.finished and measured_run.value("wrong.job") == 0 and measured_run.value("busbw.job") > 1e6
    )
    assert len(measured_run.outcome.collectives[0].iterations) == 3


STEP = "{training: {layers: 2, forward: 20ms, backward: 40ms, gradients: %s}, name: job, iterations: 4, warm_up: 1}"


def test_training__overlaps_and_tells_what_is_exposed(tmp_path):
    small_run, large = (measurement(scenario(tmp_path, STEP % size)) for size in ("1K", "512K"))
    computing = 2 * 0.06
    assert computing < small_run.value("iteration.job.p50") < 1.5 * computing
    assert small_run.value("exposed.job") < 0.35 < large.value("exposed.job")
    assert large.value("iteration.job.max") >= large.value("iteration.job.p95") >= large.value("iteration.job.p50")
    assert small_run.value("wrong.job") == large.value("wrong.job") == 0
    exposed_share = large.value("exposed.job")
    assert exposed_share == pytest.approx(1 - computing / large.value("iteration.job.mean"), abs=0.05)


def test_training__of_experts_in_stages_under_a_cut(tmp_path):
    work = (
        "{training: {layers: 4, stages: 2, micro_batches: 2, expert_every: 2, tokens: 32K, gradients: 16K,"
        " activations: 8K, all_reduce: all_reduce_tree}, name: job, iterations: 3, placement: spread}"
    )
    measured_run = measurement(scenario(tmp_path, work, "faults: [{at: 20ms, cut: p1-t0-0 p1-t1-0}]"))
    assert (
        measured_run.outcome.finished and measured_run.value("wrong.job") == 0 and len(measured_run.outcome.flows) == 8
    )


def test_tenants__beside_each_other_have_places_of_their_own(tmp_path):
    work = (
        "{training: {layers: 1}, name: one, ranks: [h0, h2], iterations: 2}, "
        "{collective: all_reduce_tree, name: two, ranks: [h1, h3], size: 64K, iterations: 2}"
    )
    measured_run = measurement(scenario(tmp_path, work))
    assert (
        measured_run.outcome.finished and measured_run.value("iteration.one.mean") and measured_run.value("busbw.two")
    )


def test_trace__is_found_beside_its_scenario_and_replayed(tmp_path):
    (tmp_path / "step.goal").write_text(GOAL.read_text())
    measured_run = measurement(scenario(tmp_path, "{trace: step.goal, name: job, iterations: 3}"))
    assert measured_run.outcome.finished and measured_run.value("wrong.job") == 0
    assert (
        0.065 < measured_run.value("iteration.job.mean") < 0.4 and measured_run.outcome.collectives[0].kind == "trace"
    )


def test_chakra__is_replayed(tmp_path):
    nodes = [
        node(1, "COMP_NODE", micros=20_000),
        node(2, "COMM_COLL_NODE", data=[1], comm_type="ALL_REDUCE", comm_size=65536),
        node(3, "COMM_COLL_NODE", data=[2], comm_type="BROADCAST", comm_size=8192),
    ]
    write(tmp_path, [nodes] * 4)
    measured_run = measurement(scenario(tmp_path, "{trace: job.0.et, name: job, iterations: 2}"))
    assert (
        measured_run.outcome.finished
        and measured_run.value("wrong.job") == 0
        and measured_run.value("iteration.job.mean") > 0.02
    )


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ("{trace: none.goal}", "none.goal: no such file or folder"),
        ("{trace: big.goal}", "trace of 9 ranks on a fabric of 4 hosts"),
        ("{trace: big.goal, ranks: [h0, h1]}", "trace of 9 ranks on a fabric of 4 hosts"),
        ("{training: {layers: 3, stages: 2}}", "4 ranks and 3 layers in 2 stages"),
        ("{training: {}, ranks: 9}", "9 ranks, and 4 hosts are free"),
        ("{training: {}, iterations: 1000}", "less than or equal to 100"),
        ("{collective: all_reduce, ranks: [h0, h0]}", "two different ranks or more"),
        ("{collective: all_reduce_star}", "'all_reduce_tree'"),
        ("{collective: all_gather, at_once: 2}", "only all_to_all takes it"),
    ],
)
def test_mistake__is_told_with_its_line(tmp_path, work, text):
    ranks = "".join(f"rank {r} {{\n}}\n" for r in range(9))
    (tmp_path / "big.goal").write_text(f"num_ranks 9\n{ranks}")
    with pytest.raises(ScenarioError, match=r"job.yaml:4:\d+: ") as caught:
        plan_runs(read(scenario(tmp_path, work)), "virtual")
    assert text in str(caught.value)


def test_hierarchical__needs_racks_of_one_size(tmp_path):
    with pytest.raises(ScenarioError, match="each rank needs a group, and all groups as many"):
        plan_runs(read(scenario(tmp_path, "{collective: all_reduce_hierarchical, ranks: [h0, h1, h2]}")), "virtual")


def test_sizes__are_told_beside_what_fills_the_pipe(tmp_path):
    work = "{collective: all_reduce, name: ring, size: 64K}, {stream: h0 h2, bytes: 1M, name: s}, " + STEP % "64K"
    stream, ring, job = size_lines(plan_runs(read(scenario(tmp_path, work)), "virtual").runs[0])
    assert stream.startswith("s; messages 256 KiB = 256 packets of 1024 B, where 21 fill a host's pipe")
    assert "all_reduce of 64 KiB; largest write 16 KiB = 16 packets" in ring
    assert "training, 192 KiB a rank and step; largest write 16 KiB" in job


def mrc(folder: Path, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "mrc_testbed", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def end_of(folder: Path, monkeypatch, capsys, *words: str) -> tuple[int, str]:
    """Return exit code and output of a command in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["mrc", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), "".join(capsys.readouterr())


def test_run_trace__at_the_command_line(tmp_path, monkeypatch, capsys):
    result = mrc(tmp_path, "run", "--trace", str(GOAL), "--virtual", "--iterations", "4", "--compute-scale", "0.5")
    assert result.returncode == 0 and "job: 4 iterations of" in result.stdout and "without computing" in result.stdout
    assert (tmp_path / "results/trace-ring-step.yaml").is_file()
    _, document = end_of(tmp_path, monkeypatch, capsys, "scenario", "show", "results/trace-ring-step.yaml", "--json")
    assert "largest write 128 KiB = 128 packets" in json.loads(document)["sizes"][0]
    scenario_file = tmp_path / "results/trace-ring-step.yaml"
    scenario_file.write_text("# mine")
    assert end_of(tmp_path, monkeypatch, capsys, "run", "--trace", str(GOAL), "--virtual")[0] == 0
    assert scenario_file.read_text() == "# mine" and (tmp_path / "results/trace-ring-step-2.yaml").is_file()
    summary = json.loads(end_of(tmp_path, monkeypatch, capsys, "scenario", "trace", str(GOAL), "--json")[1])
    assert (summary["ranks"], summary["messages"], summary["ideal_s"]) == (4, 12, pytest.approx(0.065))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--trace", "cut.goal"], "cut.goal:2: the file ends within a rank"),
        (["--trace", "nowhere"], "nowhere: no such file or folder"),
        (["--trace", str(GOAL), "e10"], "--trace makes its own scenario"),
        (["--trace", str(GOAL), "--placement", "left"], "give one of packed, spread, random"),
        (["--trace", str(GOAL), "--size-scale", "0"], "--size-scale 0: above 0"),
        (["e10", "--iterations", "5"], "--iterations is for runs of a trace"),
        ([], "give scenarios"),
    ],
)
def test_run_trace__that_cannot_be_gets_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, words, text):
    (tmp_path / "cut.goal").write_text("num_ranks 2\nrank 0 {\n")
    code, output = end_of(tmp_path, monkeypatch, capsys, "run", *words, "--virtual")
    assert code in (1, 2) and text in output and "Traceback" not in output
    assert not (tmp_path / "results").exists()


LIVE_SCENARIO = """
title: a training job, a GOAL trace, a Chakra trace and a skewed all-to-all at once
fabric: {{planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}}
links: {{rate: 4M, rtt: 20ms}}
workload:
  - training: {{layers: 2, gradients: 16K, forward: 5ms, backward: 10ms, all_reduce: all_reduce_hierarchical}}
    name: step
    iterations: 3
  - {{trace: {goal}, name: goal, size_scale: 0.1, iterations: 2}}
  - {{trace: job.0.et, name: chakra, iterations: 2}}
  - {{collective: all_to_allv, name: moe, size: 32K, skew: 1.2, experts: 8, iterations: 3}}
  - {{collective: all_reduce_halving, name: halving, size: 32K, iterations: 2}}
faults: [{{at: 200ms, cut: p1-t0-0 p1-t1-1}}]
expect:
  - {{metric: iteration.step.max, at_most: 20}}
"""


@needs_root
@pytest.mark.root
def test_live__runs_all_of_them_at_once_around_a_cut(tmp_path):
    write(tmp_path, [[node(1, "COMM_COLL_NODE", comm_type="ALL_GATHER", comm_size=32768)]] * 4)
    (tmp_path / "live.yaml").write_text(LIVE_SCENARIO.format(goal=GOAL))
    result = mrc(tmp_path, "run", "live.yaml", "--json", "--out", "out", seconds=200)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    (run,) = (tmp_path / "out/runs").glob("*.json")
    collectives = {collective["work"]: collective for collective in json.loads(run.read_text())["collectives"]}
    assert {name: len(collective["iterations"]) for name, collective in collectives.items()} == {
        "step": 3,
        "goal": 2,
        "chakra": 2,
        "moe": 3,
        "halving": 2,
    }
    assert all(iteration["wrong"] == 0 for collective in collectives.values() for iteration in collective["iterations"])
