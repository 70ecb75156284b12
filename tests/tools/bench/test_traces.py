"""`mrc bench traces`: its inputs for ASTRA-sim and LogGOPSim, their outputs, the cases here.

Neither is in this tree: scripts in their place print lines of the forms that ASTRA-sim (518bd51) and ATLAHS's LogGOPSim
(8837294) print.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective, Program, RankTasks, ReceiveMessage, SendMessage
from mrc_testbed.simulator.profiles import frame_bytes
from tools.bench import traces

SWITCH = traces.OneSwitch(400e9, 1e-5)
ASTRA = """\
#!/usr/bin/env python3
import glob, sys
words = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
ranks = glob.glob(words["workload-configuration"] + ".*.et")
print("[info] " + open(words["network-configuration"]).read().splitlines()[0])
for rank in range(len(ranks)):
    line = f"sys[{rank}] finished, {40000 + rank} cycles, exposed communication 7 cycles."
    print("[2026-01-01 00:00:00.000] [workload] [info]", line)
"""
LOGGOPSIM = """\
#!/usr/bin/env python3
print("size: 2 (1 CPUs, 1 NICs); L=2412, o=0 g=0, G=0.020000, O=0, P=2, S=2147483647")
print("Times: \\nHost 0: 40000\\nHost 1: 50000")
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def astra(tmp_path: Path) -> Path:
    return script(tmp_path / "AstraSim_Analytical_Congestion_Unaware", ASTRA)


@pytest.fixture
def loggopsim(tmp_path: Path) -> Path:
    script(tmp_path / "txt2bin", "#!/bin/sh\nexec cp $2 $4\n")
    return script(tmp_path / "LogGOPSim", LOGGOPSIM)


def case_of(folder: Path, kind: str = "all_gather", ranks: int = 4, size: int = 1 << 20) -> traces.TraceCase:
    (case,) = traces.collective_cases([kind], [ranks], [size], folder)
    return case


@pytest.mark.parametrize("kind", traces.KINDS)
def test_collective__is_read_back_with_its_size(tmp_path, kind):
    program = case_of(tmp_path, kind).program()
    (task,) = program.ranks[3].tasks
    assert (task.kind, task.size, task.group) == (kind, 1 << 20, (0, 1, 2, 3))


def test_collective__in_chunks_is_one_after_the_other(tmp_path):
    (case,) = traces.collective_cases(["all_gather"], [4], [1 << 20], tmp_path, chunks=4)
    tasks = case.program().ranks[1].tasks
    assert [(task.size, task.after) for task in tasks] == [(1 << 18, numbers) for numbers in ((), (0,), (1,), (2,))]


def test_links__that_only_send_are_refused():
    with pytest.raises(UsageError, match="--rate and --rtt: rtt_s = "):
        assert traces.OneSwitch(1e9, 1e-5).hop_s
    assert traces.OneSwitch(400 * 2**30, 2.3e-6).hop_s == pytest.approx(0.25e-6, rel=0.1)


def test_program__becomes_the_same_chakra_trace(tmp_path):
    sender = (
        Compute(seconds=5e-6, name="a"),
        JoinCollective(kind="reduce_scatter", size=4096, group=(0, 2), after=(0,), name="b"),
        SendMessage(peer=1, size=300, tag=-7, after=(1,), name="c"),
        Compute(seconds=2e-6, lane=1, name="d"),
    )
    receiver = (ReceiveMessage(peer=0, size=300, tag=-7, name="c"),)
    joiner = (JoinCollective(kind="reduce_scatter", size=4096, group=(0, 2), name="b"),)
    program = Program("p", (RankTasks(sender), RankTasks(receiver), RankTasks(joiner)))
    first = traces.write_chakra(program, tmp_path, "job")
    groups = traces.groups_file(tmp_path, "job")
    assert json.loads(groups.read_text()) == {"1": [0, 2]}
    second = read_trace(first, groups=groups)
    tags = {task.tag for rank in second.ranks for task in rank.tasks if isinstance(task, SendMessage | ReceiveMessage)}
    assert len(tags) == 1 and min(tags) >= 0
    bare = [[(type(task), task.name, task.after) for task in rank.tasks] for rank in second.ranks]
    assert bare == [[(type(task), task.name, task.after) for task in rank.tasks] for rank in program.ranks]
    compute, join, _, aside = second.ranks[0].tasks
    assert (compute.seconds, compute.lane, aside.lane) == (pytest.approx(5e-6), 0, 1) and join.group == (0, 2)


def test_program__with_what_chakra_lacks_is_refused_by_rank_and_task(tmp_path):
    irequires = (Compute(seconds=1e-6), Compute(seconds=1e-6, once_begun=(0,)))
    with pytest.raises(UsageError, match=r"rank 0, task 1: .*\(irequires\)"):
        traces.write_chakra(Program("p", (RankTasks(irequires),) * 2), tmp_path, "job")
    neighbours = (JoinCollective(kind="send_recv", size=64, group=(0, 1)),)
    with pytest.raises(UsageError, match="no collective send_recv"):
        traces.write_chakra(Program("p", (RankTasks(neighbours),) * 2), tmp_path, "job")


def test_astra_inputs__say_the_links_and_the_algorithm_that_was_chosen(tmp_path):
    texts = traces.astra_inputs(SWITCH, case_of(tmp_path).program())
    network = dict(line.split(": ") for line in texts["network.yml"].splitlines())
    assert network["topology"] == "[ Switch ]" and network["npus_count"] == "[ 4 ]"
    assert float(network["bandwidth"].strip("[ ]")) * 2**30 == pytest.approx(400e9 / 8)
    assert float(network["latency"].strip("[ ]")) == pytest.approx(SWITCH.hop_s * 1e9)
    assert json.loads(texts["system.json"])["all-reduce-implementation"] == ["ring"]
    tree = case_of(tmp_path, "all_reduce", 16).program()
    assert traces.algorithms_of(tree) == {"all_reduce_tree": "tree"}
    assert json.loads(traces.astra_inputs(SWITCH, tree)["system.json"])["all-reduce-implementation"] == [
        "doubleBinaryTree"
    ]


def test_astra__its_last_rank_counts(astra, tmp_path):
    assert traces.run_astra(astra, SWITCH, case_of(tmp_path), tmp_path) == pytest.approx(40.003e-6)


def test_astra__without_a_rank_or_with_an_error_is_no_result(astra, tmp_path):
    case = case_of(tmp_path)
    astra.write_text(ASTRA.replace("range(len(ranks))", "range(1)"))
    with pytest.raises(UsageError, match="1 of 4 ranks ended"):
        traces.run_astra(astra, SWITCH, case, tmp_path)
    astra.write_text("#!/bin/sh\necho no >&2; exit 3\n")
    with pytest.raises(UsageError, match=r"--astra-sim .*exit code 3: no"):
        traces.run_astra(astra, SWITCH, case, tmp_path)


def test_astra__gets_a_trace_of_another_kind_as_chakra(astra, tmp_path):
    goal = tmp_path / "step.goal"
    goal.write_text("num_ranks 2\nrank 0 {\na: send 64b to 1 tag 0\n}\nrank 1 {\na: recv 64b from 0 tag 0\n}\n")
    assert traces.run_astra(astra, SWITCH, traces.TraceCase("goal", goal), tmp_path) == pytest.approx(40.001e-6)


def test_loggopsim__its_last_host_counts_and_none_is_no_result(loggopsim, tmp_path):
    case = case_of(tmp_path)
    assert traces.run_loggopsim(loggopsim, SWITCH, case, tmp_path) == pytest.approx(50e-6)
    loggopsim.write_text("#!/bin/sh\necho Maximum finishing time at host 31: 12000 '(1.2e-05 s)'\n")
    assert traces.run_loggopsim(loggopsim, SWITCH, case, tmp_path) == pytest.approx(12e-6)
    loggopsim.write_text("#!/bin/sh\necho nothing\n")
    with pytest.raises(UsageError, match=r"no time of a host\. Output: nothing"):
        traces.run_loggopsim(loggopsim, SWITCH, case, tmp_path)


def test_mrc__a_ring_takes_its_steps_of_full_packets(tmp_path):
    case = case_of(tmp_path)
    # 3 steps of 64 packets: over the link, and the last one over the second link as well.
    frame_s = frame_bytes(traces.PMTU) * 8 / SWITCH.rate_bps
    step_s = 65 * frame_s + 2 * SWITCH.hop_s
    assert traces.run_mrc(SWITCH, case, tmp_path) == pytest.approx(3 * step_s, rel=0.01)
    fluid_s = traces.run_fluid(SWITCH, case.program(), tmp_path)
    # One iteration follows another there, so each waits for its last answer too.
    assert fluid_s == pytest.approx(3 * step_s + 2 * SWITCH.hop_s, rel=0.05)
    assert traces.run_fluid(SWITCH, case_of(tmp_path, "all_to_all").program(), tmp_path) is None


def test_mrc__runs_over_links_as_short_as_those_of_astra_sims_examples(tmp_path):
    links = traces.OneSwitch(400 * 2**30, 2.4e-6)
    case = case_of(tmp_path, size=1 << 18)
    assert 3 * 65536 / 50 / 2**30 < traces.run_mrc(links, case, tmp_path) < 10e-6
    assert traces.run_fluid(links, case.program(), tmp_path) is None


def test_table__has_a_row_for_each_case_and_says_who_refused(astra, loggopsim, tmp_path):
    loggopsim.write_text("#!/bin/sh\nexit 4\n")
    cases = [case_of(tmp_path)]
    quiet = Console(file=io.StringIO())
    result = traces.run(SWITCH, cases, astra=[astra], loggopsim=loggopsim, console=quiet)
    (row,) = result["cases"]
    peer = row["peers"]["ASTRA-sim, unaware"]
    assert peer["difference"] == pytest.approx(row["mrc_s"] / peer["seconds"] - 1)
    text = io.StringIO()
    traces.show(result, Console(file=text, width=200))
    for word in ("all_gather 1 MiB x 4", "ring", "ASTRA-sim, unaware", "40.0", "LogGOPSim: --loggopsim", "exit code 4"):
        assert word in text.getvalue()


def test_command__json_and_what_it_refuses(astra, tmp_path):
    words = ["bench", "traces", "--astra-sim", str(astra), "--kinds", "all_gather", "--sizes", "64K", "--json"]
    answer = CliRunner().invoke(app, [*words, "--ranks", "2"])
    assert answer.exit_code == 0 and json.loads(answer.stdout)["schema"] == traces.SCHEMA
    for option, text in ((["--ranks", "2,x"], "numbers from 2 to 64"), (["--kinds", "ring"], "has: all_reduce")):
        refusal = CliRunner().invoke(app, [*words, *option])
        assert isinstance(refusal.exception, UsageError) and text in str(refusal.exception)
    refusal = CliRunner().invoke(app, ["bench", "traces"])
    assert isinstance(refusal.exception, UsageError) and "nothing to compare with" in str(refusal.exception)
