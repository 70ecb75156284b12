"""Chakra traces: what is read, and what is refused in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrc_testbed.experiments.traces.command import summarize_trace
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.collectives import bus_factor_of
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective, ReceiveMessage, SendMessage
from mrc_testbed.hosts.traffic.program_check import check
from tests.experiments.traces.chakra_files import NUMBERS, frame_messages, node, write

RANKS = 4
GENERATOR = shutil.which("chakra_generator")


def test_training_trace__becomes_a_program(tmp_path):
    def rank(number: int):
        return [
            node(1, "COMP_NODE", micros=500, is_cpu_op=False),
            node(2, "COMM_COLL_NODE", data=[1], comm_type="ALL_REDUCE", comm_size=1 << 20, is_cpu_op=False),
            node(3, "COMP_NODE", micros=20, control=[1], is_cpu_op=True),
            node(4, "MEM_LOAD_NODE", data=[2]),
        ]

    program = read_trace(write(tmp_path, [rank(r) for r in range(RANKS)]))
    assert [type(task) for task in program.ranks[2].tasks] == [Compute, JoinCollective, Compute, Compute]
    first, collective, aside, last = program.ranks[2].tasks
    assert (first.seconds, first.lane, aside.lane) == (0.0005, 0, 1)
    assert (collective.kind, collective.size, collective.group, collective.after) == (
        "all_reduce",
        1 << 20,
        (0, 1, 2, 3),
        (0,),
    )
    assert aside.after == (0,) and last.after == (1,)
    assert check(program).seconds == pytest.approx(0.00052)


def test_folder__and_scales(tmp_path):
    write(
        tmp_path, [[node(1, "COMP_NODE", micros=100), node(2, "COMM_COLL_NODE", comm_type="BARRIER", comm_size=0)]] * 2
    )
    program = read_trace(tmp_path, compute_scale=1000, size_scale=0.5)
    compute, barrier = program.ranks[0].tasks
    assert compute.seconds == pytest.approx(0.1) and barrier.kind == "all_reduce_tree"


def test_messages__meet_their_halves(tmp_path):
    sender = [node(1, "COMM_SEND_NODE", comm_src=0, comm_dst=1, comm_size=5000, comm_tag=7)]
    receiver = [node(9, "COMM_RECV_NODE", comm_src=0, comm_dst=1, comm_size=5000, comm_tag=7)]
    program = read_trace(write(tmp_path, [sender, receiver]))
    assert program.ranks[0].tasks[0] == SendMessage(peer=1, size=5000, tag=7, name="COMM_SEND_NODE")
    assert program.ranks[1].tasks[0] == ReceiveMessage(peer=0, size=5000, tag=7, name="COMM_RECV_NODE")


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE", "GATHER", "SCATTER"])
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("root", [0, 1])
def test_collective__that_is_made_of_messages(tmp_path, kind, ranks, root):
    nodes = [
        node(1, "COMM_COLL_NODE", comm_type=kind, comm_size=4000, root_rank=root),
        node(2, "COMP_NODE", data=[1], micros=5),
    ]
    program = read_trace(write(tmp_path, [nodes] * ranks))
    ideal = check(program)
    assert ideal.messages == ranks - 1 and ideal.seconds == pytest.approx(5e-6)
    sends = [sum(isinstance(task, SendMessage) for task in rank_program.tasks) for rank_program in program.ranks]
    outwards = kind in ("BROADCAST", "SCATTER")
    assert (sends[root] > 0) == outwards
    last = program.ranks[root].tasks[-1]
    assert last.after == (len(program.ranks[root].tasks) - 2,), "waits for all messages of the collective"


@pytest.mark.parametrize(
    ("kind", "sent_bytes"),
    [
        ("ALL_REDUCE", 6 * 4096),
        ("REDUCE_SCATTER", 3 * 4096),
        ("ALL_TO_ALL", 3 * 4096),
        ("ALL_GATHER", 12 * 4096),
        ("GATHER", 3 * 4096),
        ("SCATTER", 3 * 1024),
        ("BROADCAST", 3 * 4096),
    ],
)
def test_collective__its_size_is_what_a_rank_puts_in(tmp_path, kind, sent_bytes):
    nodes = [node(1, "COMM_COLL_NODE", comm_type=kind, comm_size=4096)]
    program = read_trace(write(tmp_path, [nodes] * RANKS))
    collectives = summarize_trace(program)["collectives"]
    # An all-reduce of 4 KiB sends 1.5 times its buffer from each rank, the others (n - 1) / n of the larger one.
    of_rings = sum(round(c["size"] * bus_factor_of(c["kind"], RANKS)) * RANKS for c in collectives)
    messages = [task.size for rank in program.ranks for task in rank.tasks if isinstance(task, SendMessage)]
    assert of_rings + sum(messages) == sent_bytes


def test_collective__made_of_messages_ends_beside_a_computation(tmp_path):
    nodes = [
        node(1, "COMP_NODE", micros=500),
        node(2, "COMM_COLL_NODE", comm_type="BROADCAST", comm_size=4000),
        node(3, "COMP_NODE", data=[2], micros=400, is_cpu_op=True),
    ]
    # Lane 0 computes all the time; what waits for the broadcast has a lane of its own.
    assert check(read_trace(write(tmp_path, [nodes] * 2))).seconds == pytest.approx(500e-6)


def group_node(number: int, group: str):
    return node(number, "COMM_COLL_NODE", comm_type="ALL_GATHER", comm_size=64, pg_name=group)


def test_groups__are_those_who_name_them_unless_somebody_says(tmp_path):
    traces = [[group_node(1, "a" if rank < 2 else "b")] for rank in range(RANKS)]
    assert [rank_program.tasks[0].group for rank_program in read_trace(write(tmp_path, traces)).ranks] == [
        (0, 1),
        (0, 1),
        (2, 3),
        (2, 3),
    ]
    groups_json = json.dumps([{"pg_name": "a", "ranks": [0, 2]}, {"pg_name": "b", "ranks": [1, 3]}])
    metadata = node(7, "METADATA_NODE", name="## process_group:init ##", inputs=groups_json)
    traces = [[metadata, group_node(1, "ab"[rank % 2])] for rank in range(RANKS)]
    assert read_trace(write(tmp_path, traces)).ranks[3].tasks[1].group == (1, 3)
    groups = tmp_path / "groups.json"
    groups.write_text('{"a": [0, 3], "b": [1, 2]}')
    traces = [[group_node(1, "abba"[rank])] for rank in range(RANKS)]
    assert read_trace(write(tmp_path, traces), groups=groups).ranks[3].tasks[0].group == (0, 3)


def with_groups(*groups: dict) -> list:
    """Return a node that lists process groups, and one that joins group "1"."""
    return [
        node(7, "METADATA_NODE", name="## process_group:init ##", inputs=json.dumps(groups)),
        group_node(1, "1"),
    ]


def test_groups__that_ranks_say_otherwise_are_refused_with_rank_and_group(tmp_path):
    traces = [with_groups({"pg_name": "1", "ranks": [0, 1]}), with_groups({"pg_name": "1", "ranks": [0, 1, 2]})]
    with pytest.raises(TraceError, match=r"rank 1 that process group '1' is ranks \[0, 1, 2\], .* \[0, 1\]"):
        read_trace(write(tmp_path, [*traces, [node(1, "COMP_NODE")]]))


def test_groups__with_a_rank_that_is_not_there_are_refused(tmp_path):
    traces = [with_groups({"pg_name": "1", "ranks": [0, 1, 9]})] * 2
    with pytest.raises(TraceError, match=r"process group '1', ranks \[0, 1, 9\]: the trace has ranks 0 to 1"):
        read_trace(write(tmp_path, traces))


@pytest.mark.parametrize("kind", ["bool_list", "int32_list", "int64_list", "uint64_list"])
def test_dimensions__count_in_every_kind_of_list(tmp_path, kind):
    def ranks(*values: int) -> list:
        joining = reduce_node()
        getattr(joining.attr.add(name="involved_dim"), kind).values.extend(values)
        return [[joining]] * 2

    assert read_trace(write(tmp_path, ranks(1, 1))).ranks[0].tasks[0].group == (0, 1)
    for values in ((1, 0), ()):
        with pytest.raises(TraceError, match="has involved_dim"):
            read_trace(write(tmp_path, ranks(*values)))


def test_dimensions__of_a_group_with_a_name_are_refused_unless_a_file_says_its_ranks(tmp_path):
    joining = group_node(1, "1")
    joining.attr.add(name="involved_dim").bool_list.values.extend([True, False])
    path = write(tmp_path, [[joining]] * 2)
    with pytest.raises(TraceError, match=r"involved_dim \[1, 0\]"):
        read_trace(path)
    groups = tmp_path / "groups.json"
    groups.write_text('{"1": [0, 1]}')
    assert read_trace(path, groups=groups).ranks[0].tasks[0].group == (0, 1)


def test_notes__say_what_is_left_out(tmp_path):
    nodes = [
        reduce_node(comm_priority=2),
        reduce_node(2, comm_type="BROADCAST"),
        node(3, "MEM_LOAD_NODE", tensor_size=4),
    ]
    notes = " ".join(read_trace(write(tmp_path, [nodes] * 2)).notes)
    assert "comm_priority of 2 nodes" in notes and "2 nodes of memory" in notes and "have no root_rank" in notes


def reduce_node(number: int = 1, **attributes):
    return node(number, "COMM_COLL_NODE", **{"comm_type": "ALL_REDUCE", "comm_size": 64, **attributes})


BAD_TRACES = {
    "node 1 .two lines. has comm_size -1": [reduce_node(comm_size=-1, name="two\nlines")],
    "needs the number comm_size": [node(1, "COMM_COLL_NODE", comm_type=0)],
    "has comm_type 12 ": [reduce_node(comm_type=12)],
    "has comm_size -1: 0 to": [reduce_node(comm_size=-1)],
    "has comm_size 4611686018427387904": [reduce_node(comm_size=1 << 62)],
    "waits for node 9, which is not there": [node(1, "COMP_NODE", data=[9])],
    "two nodes have the id 1": [node(1, "COMP_NODE"), node(1, "COMP_NODE")],
    "needs the number comm_dst": [node(1, "COMM_SEND_NODE", comm_size=4)],
    "without a receiver": [node(1, "COMM_SEND_NODE", comm_size=4, comm_dst=1)],
    "a circle of 2 tasks": [node(1, "COMP_NODE", data=[2]), node(2, "COMP_NODE", data=[1])],
    "has root_rank 7": [reduce_node(comm_type="BROADCAST", root_rank=7)],
    "has comm_src 1 in the trace of rank 0": [node(1, "COMM_SEND_NODE", comm_src=1, comm_dst=1, comm_size=4)],
    "has comm_tag -1: messages with any tag": [node(1, "COMM_SEND_NODE", comm_dst=1, comm_size=4, comm_tag=-1)],
    "has num_ops 512 and no duration_micros": [node(1, "COMP_NODE", num_ops=512)],
    "has pg_name True": [reduce_node(pg_name=True)],
    "has involved_dim True": [reduce_node(involved_dim=True)],
    "has involved_dim 'x'": [reduce_node(involved_dim="x")],
}


@pytest.mark.parametrize("text", BAD_TRACES)
def test_trace__that_is_wrong_gets_one_line(tmp_path, text):
    with pytest.raises(TraceError, match=text) as error:
        read_trace(
            write(
                tmp_path,
                [
                    BAD_TRACES[text],
                    [trace_node for trace_node in BAD_TRACES[text] if trace_node.type == NUMBERS["COMM_COLL_NODE"]],
                ],
            )
        )
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_file__that_is_missing_or_strange_gets_one_line(tmp_path):
    path = write(tmp_path, [[reduce_node()]] * 3)
    (tmp_path / "job.1.et").unlink()
    for bad_path, text in ((path, "rank 1 has no file, rank 2 has"), (tmp_path / "no.et", "no such file or folder")):
        with pytest.raises(TraceError, match=text):
            read_trace(bad_path)
    (tmp_path / "job.1.et").write_bytes(path.read_bytes()[:-3])
    with pytest.raises(TraceError, match=r"job.1.et: cut off after 1 messages: the next lacks 3 bytes"):
        read_trace(path)
    (tmp_path / "job.1.et").write_bytes(b"")
    with pytest.raises(TraceError, match="empty"):
        read_trace(path)
    (tmp_path / "job.1.et").write_bytes(frame_messages() + b"\x02ab" + b"\xff" * 9)
    with pytest.raises(TraceError, match="no message of a Chakra trace"):
        read_trace(path)
    write(tmp_path, [[reduce_node()]] * 2, name="other")
    with pytest.raises(TraceError, match=r"traces of several jobs \(job, other"):
        read_trace(tmp_path)


def test_gigabyte_of_junk__is_refused_at_once(tmp_path):
    for name, first in (("zeros", b""), ("long", b"\xff\xff\xff\x7f")):
        for rank in range(2):
            with (tmp_path / f"{name}.{rank}.et").open("wb") as file:
                file.write(first)
                file.truncate(1 << 30)
        with pytest.raises(TraceError, match=r"of type 0|at most 16777216: not a Chakra trace"):
            read_trace(tmp_path / f"{name}.0.et")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes__are_a_program_or_a_trace_error(tmp_path, data):
    path = write(tmp_path, [[reduce_node(), node(2, "COMP_NODE", data=[1], micros=3)]] * 2)
    content = path.read_bytes()
    offset = data.draw(st.integers(0, len(content)))
    path.write_bytes(
        content[:offset] + data.draw(st.binary(max_size=6)) + content[data.draw(st.integers(offset, len(content))) :]
    )
    error_text = ""
    try:
        check(read_trace(path))
    except TraceError as error:
        error_text = str(error)
    assert "\n" not in error_text


@pytest.mark.skipif(
    GENERATOR is None, reason="no chakra_generator on PATH: the extra `chakra-tests` has it, with some 120 packages"
)
def test_traces_of_mlc_chakra__are_read(tmp_path):
    subprocess.run([GENERATOR, "--num_npus", "8"], cwd=tmp_path, check=True, capture_output=True)
    names = {path.name.partition(".")[0] for path in tmp_path.glob("*.et")}
    assert {"ALL_REDUCE", "BROADCAST", "one_comp_node"} <= names
    for name in names - {"one_comm_send_node", "one_comm_recv_node"}:
        assert len(read_trace(tmp_path / f"{name}.0.et").ranks) == 8
    with pytest.raises(TraceError, match="needs the number comm_dst"):
        read_trace(Path(tmp_path / "one_comm_send_node.0.et"))
