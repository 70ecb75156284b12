"""Any trace: a damaged file of every kind is a program or an error of one line; the number of ranks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.model import TraceWork
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace, trace_of
from mrc_testbed.hosts.traffic.program_check import check
from tests.experiments.traces import (
    test_connection_matrix,
    test_goal,
    test_goal_binary,
    test_nccl_log,
    test_nccl_tests,
    test_workload_text,
)
from tests.experiments.traces.chakra_files import frame_messages, node, old_node
from tests.experiments.traces.goal_binary_files import pack
from tests.experiments.traces.kineto_files import collective, span, write_rank
from tests.experiments.traces.test_recognition import all_reduce, chakra_json
from tests.repository import ROOT

SEED = 20_261_128
MUTATIONS = 80
NAMES = (
    "step.goal step.bin chakra.0.et old.0.et job.0.json graph.0.json kineto.json simai.txt perm.cm nccl.log table.txt"
)
MICRO = "MICRO\n1\nar -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n"


def kineto_bytes(folder: Path) -> bytes:
    """Return the file of a rank of PyTorch's profiler."""
    path = write_rank(folder, 0, [span("kernel", "gemm", 0, 50), collective("allreduce", 50, 100)])
    data = path.read_bytes()
    path.unlink()
    return data


def samples(folder: Path) -> dict[str, bytes]:
    """Return a sound file of each kind by the name it has."""
    matrix = "0->1 id 1 start 0 size 10 send_done_trigger 1\n0->3 id 2 trigger 1 size 5 prio 2\n"
    table = "all_reduce_perf\n" + test_nccl_tests.RANKS + test_nccl_tests.HEAD + test_nccl_tests.ROWS
    simai = test_workload_text.SIMAI + "2\n" + test_workload_text.FIRST + test_workload_text.LAST
    log = test_nccl_log.job(("AllReduce", {}), ("Broadcast", {"root": 1}))
    joining = node(2, "COMM_COLL_NODE", data=[1], comm_type=0, comm_size=64, pg_name="1")
    old_nodes = [
        old_node(1, "COMP_NODE", runtime=3),
        old_node(2, "COMM_COLL_NODE", parents=[1], comm_type=0, comm_size=64),
    ]
    graph = {"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": 0, "comm_size": 64, "data_deps": []}]}
    return {
        "step.goal": test_goal.STEP.encode(),
        "step.bin": pack(test_goal_binary.BINARY_STEP),
        "chakra.0.et": frame_messages(node(1, "COMP_NODE", micros=3), joining),
        "old.0.et": frame_messages(*old_nodes),
        "job.0.json": chakra_json(all_reduce()).encode(),
        "graph.0.json": json.dumps(graph).encode(),
        "kineto.json": kineto_bytes(folder),
        "simai.txt": simai.encode(),
        "perm.cm": (test_connection_matrix.HEAD.format(2, 1) + matrix + "trigger id 1 oneshot\n").encode(),
        "nccl.log": log.encode(),
        "table.txt": table.encode(),
    }


def damage(data: bytes, source: random.Random) -> bytes:
    """Return a file with some damage: bytes gone, twice, changed, or a number that became large."""
    for _ in range(source.randint(1, 3)):
        low = source.randrange(len(data) + 1)
        high = min(len(data), low + source.choice((1, 2, 8, 64)))
        part = data[low:high]
        changes = (
            b"",
            part * 2,
            source.randbytes(len(part)),
            bytes(source.choice(b"0123456789-. \n\t:\xff") for _ in part),
            b"9" * source.choice((1, 5, 20)) + part,
        )
        data = data[:low] + source.choice(changes) + data[high:]
    return data


@pytest.mark.parametrize("name", NAMES.split())
def test_damaged_file__is_a_program_or_an_error_of_one_line(tmp_path, name):
    source = random.Random(f"{SEED} {name}")
    sound = samples(tmp_path)[name]
    errors = []
    for _ in range(MUTATIONS):
        (tmp_path / name).write_bytes(damage(sound, source))
        # A job of two ranks: the second file is sound.
        if ".0." in name:
            (tmp_path / name.replace(".0.", ".1.")).write_bytes(sound)
        try:
            check(read_trace(tmp_path / name))
        except TraceError as error:
            errors.append(str(error))
    assert errors and all(str(tmp_path) in error and "\n" not in error for error in errors)


def test_ranks__are_those_of_the_workload_in_a_scenario(tmp_path):
    (tmp_path / "micro.txt").write_text(MICRO)
    work = {"trace": str(tmp_path / "micro.txt"), "name": "job"}
    assert len(trace_of(TraceWork(**work, ranks=4)).ranks) == 4
    assert len(trace_of(TraceWork(**work, ranks=["h0", "h1"])).ranks) == 2
    with pytest.raises(TraceError, match="give --ranks N"):
        trace_of(TraceWork(**work))


def test_groups__of_a_kind_without_any_are_refused(tmp_path):
    (tmp_path / "micro.txt").write_text(MICRO)
    (tmp_path / "groups.json").write_text("{}")
    with pytest.raises(TraceError, match="kind 'workload text' names no process groups"):
        read_trace(tmp_path / "micro.txt", groups=tmp_path / "groups.json", ranks=2)


@pytest.mark.parametrize("command", ["scenario", "trace"])
def test_convert__writes_goal_that_is_read(tmp_path, command):
    source, out = ROOT / "examples" / "traces" / "simai.txt", tmp_path / "simai.goal"
    result = CliRunner().invoke(app, [command, "convert", str(source), str(out)])
    assert result.exit_code == 0 and "simai.goal: GOAL text, " in "".join(result.output.splitlines()), result.output
    assert "all-reduces: " in result.output
    trace, schedule = check(read_trace(source)), check(read_trace(out))
    assert schedule.seconds == pytest.approx(trace.seconds) and schedule.messages > 100
    assert schedule.sent_bytes == pytest.approx(trace.sent_bytes, rel=0.05)
    refusal = CliRunner().invoke(app, ["scenario", "convert", str(source), str(tmp_path / "no" / "x.goal")])
    assert isinstance(refusal.exception, UsageError) and "x.goal: cannot be written: " in str(refusal.exception)


EXAMPLES = {
    "permutation.cm": "8 ranks, 17 tasks",
    "nccl.log": "1 x all_gather of 256 KiB among 4 ranks",
    "all_reduce_perf.txt": "1 x all_reduce_tree of 1 KiB among 8 ranks",
    "simai.txt": "all-reduces: ",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example__is_shown(name):
    result = CliRunner().invoke(app, ["scenario", "trace", str(ROOT / "examples" / "traces" / name)])
    assert result.exit_code == 0 and EXAMPLES[name] in " ".join(result.output.split()), result.output
