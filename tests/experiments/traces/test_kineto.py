"""PyTorch profiler traces as programs: what is sent, when it is computed, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective, ReceiveMessage, SendMessage
from tests.experiments.traces.kineto_files import collective, span, write_rank
from tests.repository import ROOT


def write_job(folder: Path, events: list[dict[str, Any]], *, ranks: int = 2) -> Path:
    for rank in range(ranks):
        write_rank(folder, rank, events, ranks=ranks)
    return folder


def tasks_of(folder: Path, rank: int = 0) -> list[Any]:
    return list(read_trace(folder).ranks[rank].tasks)


@pytest.mark.parametrize("packed", [False, True])
def test_step__computes_communicates_and_overlaps(tmp_path: Path, packed: bool) -> None:
    events = [
        span("kernel", "gemm", 0, 100),
        collective("allreduce", 100, 200),
        span("kernel", "backward", 100, 50),
        # The device waits for the all-reduce, and goes on.
        span("kernel", "optimizer", 310, 90),
    ]
    for rank in range(2):
        path = write_rank(tmp_path, rank, events, packed=packed)
    for source in (tmp_path, path):
        compute, join, overlap, last_compute = read_trace(source).ranks[1].tasks
        assert (compute.seconds, overlap.seconds, last_compute.seconds) == pytest.approx((100e-6, 50e-6, 100e-6))
        assert (join.kind, join.size, join.group, join.after) == ("all_reduce", 4096, (0, 1), (0,))
        assert (overlap.after, set(last_compute.after)) == ((0,), {1, 2})


def test_step__a_kernel_across_the_end_waits_for_nothing(tmp_path: Path) -> None:
    events = [collective("allreduce", 0, 50), span("kernel", "backward", 0, 80), span("kernel", "forward", 80, 20)]
    _, overlap, forward = tasks_of(write_job(tmp_path, events))
    assert (overlap.after, forward.after) == ((), (1,))
    assert (overlap.seconds, forward.seconds) == pytest.approx((50e-6, 50e-6))


@pytest.mark.parametrize(
    ("name", "changes", "kind", "size"),
    [
        ("allreduce", {}, "all_reduce", 4096),
        ("allreduce_coalesced", {"dtype": "BFloat16"}, "all_reduce", 2048),
        ("_allgather_base", {"Out_msg_nelems": 2048}, "all_gather", 8192),
        ("all_gather_into_tensor_coalesced", {"Out_msg_nelems": 2048}, "all_gather", 8192),
        ("_reduce_scatter_base", {"Out_msg_nelems": 512}, "reduce_scatter", 4096),
        ("all_to_allv", {"In_split_size": "[1, 1]", "Out_split_size": "[1, 1]"}, "all_to_all", 4096),
        ("barrier", {"In_msg_nelems": None, "dtype": None}, "all_reduce_tree", 8),
    ],
)
def test_collective__of_each_name(tmp_path: Path, name: str, changes: dict[str, Any], kind: str, size: int) -> None:
    (join,) = [task for task in tasks_of(write_job(tmp_path, [collective(name, 0, 5, **changes)])) if task.name]
    assert isinstance(join, JoinCollective) and (join.kind, join.size) == (kind, size)


def test_tree_and_messages__have_two_halves(tmp_path: Path) -> None:
    broadcast = collective("_broadcast_oop", 0, 5, Rank=1)
    write_rank(tmp_path, 0, [broadcast, collective("send", 9, 5, Dst_Rank=1)])
    write_rank(tmp_path, 1, [broadcast, collective("recv", 9, 5, Src_Rank=0)])
    receive, *_, send = [task for task in tasks_of(tmp_path) if not isinstance(task, Compute)]
    assert isinstance(receive, ReceiveMessage) and receive.peer == 1
    assert isinstance(send, SendMessage) and (send.peer, send.size, send.tag) == (1, 4096, 0)


def test_all_to_all__with_uneven_splits_is_messages(tmp_path: Path) -> None:
    splits = {0: {"In_split_size": "[1, 3]", "Out_split_size": "[2, 2]"}, 1: {"In_split_size": "[2, 2]"}}
    splits[1]["Out_split_size"] = "[3, 1]"
    for rank, changes in splits.items():
        write_rank(tmp_path, rank, [collective("all_to_allv", 0, 5, **changes)])
    sizes = [(type(task).__name__, task.size) for task in tasks_of(tmp_path) if not isinstance(task, Compute)]
    assert sizes == [("ReceiveMessage", 2048), ("SendMessage", 3072)]


@pytest.mark.parametrize(
    "changes",
    [
        {"Process_Group_Ranks": "[0, ..."},
        {"Process_Group_Ranks": None, "Process_Group_Name": "9", "Global_rank_start": 0, "Global_rank_stride": 1},
        {"Process_Group_Ranks": None, "Process_Group_Name": "9"},
    ],
)
def test_group__is_known_by_list_name_steps_or_size(tmp_path: Path, changes: dict[str, Any]) -> None:
    (join,) = [task for task in tasks_of(write_job(tmp_path, [collective("allreduce", 0, 5, **changes)])) if task.name]
    assert join.group == (0, 1)


def test_groups_file__says_what_the_trace_does_not(tmp_path: Path) -> None:
    events = [collective("allreduce", 0, 5, Process_Group_Ranks=None, Process_Group_Name="tp", Group_size=2)]
    folder = tmp_path / "job"
    folder.mkdir()
    write_job(folder, [], ranks=3)
    for rank in (0, 2):
        write_rank(folder, rank, events, ranks=3)
    groups = tmp_path / "groups.json"
    groups.write_text('{"tp": [0, 2]}')
    assert read_trace(folder, groups=groups).ranks[2].tasks[0].group == (0, 2)
    with pytest.raises(TraceError, match="process group 'tp', whose ranks are not said: give --groups FILE"):
        read_trace(folder)


def test_kernel__takes_the_values_of_its_record(tmp_path: Path) -> None:
    values = collective("allreduce", 0, 5)["args"]
    kernel = span("kernel", "ncclKernel_AllReduce", 10, 5, 20, **{"External id": 3})
    record = span("cpu_op", "record_param_comms", 0, 2, **values, **{"External id": 3})
    assert [type(task) for task in tasks_of(write_job(tmp_path, [record, kernel]))] == [JoinCollective]


def test_gloo__is_read_on_the_host(tmp_path: Path) -> None:
    values = collective("allreduce", 0, 5)["args"]
    events = [
        span("cpu_op", "aten::mm", 0, 100),
        span("cpu_op", "record_param_comms", 100, 2, **values),
        span("cpu_op", "gloo:all_reduce", 101, 99, 8),
        span("cpu_op", "record_param_comms", 103, 97, **(values | {"Collective name": "wait"})),
        span("cpu_op", "aten::add", 250, 50),
    ]
    compute, join, last_compute = tasks_of(write_job(tmp_path, events))
    assert (compute.seconds, last_compute.seconds) == pytest.approx((100e-6, 100e-6))
    assert isinstance(join, JoinCollective) and last_compute.after == (0, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Collective_name": "all_reduce_star"}, "has Collective name 'all_reduce_star' (known: allreduce, allgather"),
        ({"Collective_name": None}, "has no Collective name: profile with PyTorch 2.3 or later"),
        ({"In_msg_nelems": None}, "has no 'In msg nelems'"),
        ({"In_msg_nelems": -1}, "has 'In msg nelems' -1: 0 to"),
        ({"dtype": "Quad"}, "has dtype 'Quad' (known: byte,"),
        ({"Process_Group_Ranks": "[1, 2]"}, "ranks [1, 2]: its own is 0, of 2"),
        ({"Collective_name": "broadcast", "Rank": 2}, "has root Rank 2: 0 to 1"),
        ({"Collective_name": "send", "Dst_Rank": 7}, "has Dst Rank 7: 0 to 1"),
        ({"Collective_name": "all_to_allv", "In_split_size": "[1, "}, "has 'In split size' '[1, ': 2 numbers, or none"),
    ],
)
def test_mistakes__name_event_and_file(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError) as refusal:
        read_trace(write_job(tmp_path, [collective("allreduce", 12.5, 5, **changes)]))
    assert words in str(refusal.value)
    assert "node_1000.17000000.pt.trace.json: event 'ncclDevKernel_Sum_f32_RING_LL' at 12.500 us" in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"traceEvents": [', "1: no JSON, or cut off"),
        (b'{"traceEvents": 5}', "no list of traceEvents"),
        (b'{"distributedInfo": {"rank": "x"}, "traceEvents": []}', "no rank in distributedInfo"),
        (b'{"distributedInfo": {"rank": 1}, "traceEvents": []}', "two files of rank 1"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": "x"}]}', "event 'k' has no time"),
    ],
)
def test_damaged_file__gets_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    write_rank(tmp_path, 1, [])
    (tmp_path / "rank0.json").write_bytes(content)
    with pytest.raises(TraceError, match=words):
        read_trace(tmp_path)


def test_rank__without_a_file_is_named(tmp_path: Path) -> None:
    write_rank(tmp_path, 1, [], ranks=3)
    with pytest.raises(TraceError, match=r"rank 0 of 3 has no file \(2 missing\)"):
        read_trace(tmp_path)


def test_gzip__that_is_cut_off_gets_one_line(tmp_path: Path) -> None:
    path = write_rank(tmp_path, 0, [], packed=True)
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": ["x" * 99_999]}).encode())[:-20])
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path)


def test_commands__check_and_replay_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "examples" / "traces" / "kineto"
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["scenario", "trace", str(folder)])
    assert result.exit_code == 0 and "2 x all_reduce of 64 KiB among 2 ranks" in result.output, result.output
    result = CliRunner().invoke(app, ["run", "--trace", str(folder), "--virtual", "--jobs", "1"])
    assert result.exit_code == 0 and "passed" in result.output, result.output
