"""Kinds of traces by their content: read, or refused with the name of what the file looks like."""

from __future__ import annotations

import json
import struct

import pytest

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.experiments.traces.recognition import FOREIGN, kind_of

GOAL = "num_ranks 2\nrank 0 {\nb: send 4096b to 1 tag 3\n}\nrank 1 {\nc: recv 4096b from 0 tag 3\n}\n"
FOREIGN_FILES = {
    # name of the file: (bytes, what it looks like)
    "a.goal.gz": (b"\x1f\x8b\x08\x00", "a compressed file (gzip), which is not read here: unpack it with gunzip first"),
    "a.zst": (b"\x28\xb5\x2f\xfd\x04", "a compressed file (zstd)"),
    "a.zip": (b"PK\x03\x04", "an archive (zip)"),
    "a.pcap": (b"\xd4\xc3\xb2\xa1\x02\x00", "a capture of packets"),
    "a.pcapng": (b"\x0a\x0d\x0d\x0a\x1c\x00", "a capture of packets"),
    "pytorch_et.json": (b'{"schema": "1.1.0-chakra.0.0.4", "nodes": []}', "a PyTorch execution trace"),
    "job.sqlite": (b"SQLite format 3\0", "a database of SQLite, as Nsight Systems exports"),
    "notes.txt": (b"hello\n", "text, but of no trace: give a GOAL schedule, a folder of Chakra traces"),
    "mine.yaml": (b"title: t\nworkload: []\n", "a scenario file, which is not read here: run it without --trace"),
    "groups.json": (b'{"0": [0, 1]}', "JSON, but not of a trace"),
}


def chakra_json(*nodes: dict) -> str:
    """Return a rank's file as protobuf's MessageToJson writes it, one object behind the other."""
    return "".join(json.dumps(part, indent=2) for part in ({"version": "0.0.4"}, *nodes))


def all_reduce(**attributes: dict) -> dict:
    """Return a node of an all-reduce of 64 KiB."""
    values = {"comm_type": {"int64Val": "0"}, "comm_size": {"int64Val": "65536"}, **attributes}
    attr = [{"name": name, **value} for name, value in values.items()]
    return {"id": "1", "name": "ar", "type": "COMM_COLL_NODE", "attr": attr}


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_foreign_file__is_refused_by_its_name_and_with_a_cure(tmp_path, name):
    data, words = FOREIGN_FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceError) as refusal:
        read_trace(tmp_path / name)
    assert f"{name}: looks like {words}" in str(refusal.value)


READ_FILES = {
    "goal": GOAL.encode(),
    "goal binary": struct.pack("<QIBB", 4223, 2, 0, 0),
    "chakra json": b'{"version": "0.0.4"}{"id": "1"}',
    "kineto": b'{"traceEvents": []}',
    "workload text": b"HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 8\n19\nmicro_test\t-1\n",
    "connection matrix": b"# made by hand\n\nNodes 4\nConnections 0\n",
    "nccl log": b"[1,0]<stdout>: h:1:2 [0] NCCL INFO AllReduce: opCount 0\n",
    "nccl tests": b"# nThread 1\nh:1:2 [0] NCCL INFO Bootstrap\n#  size  count  type   redop    root\n",
}


@pytest.mark.parametrize("kind", READ_FILES)
def test_kind__is_that_of_the_content(tmp_path, kind):
    (tmp_path / "trace.txt").write_bytes(READ_FILES[kind])
    assert kind_of(tmp_path / "trace.txt") == kind


@pytest.mark.parametrize(("data", "words"), [(b"", "is empty: give a GOAL"), (b"\x01\xff\0", "is binary data: give a")])
def test_file__that_looks_like_nothing_says_so(tmp_path, data, words):
    (tmp_path / "data").write_bytes(data)
    with pytest.raises(TraceError, match=words):
        read_trace(tmp_path / "data")


def test_every_foreign_kind__is_tried():
    words = " ".join(text for _, text in FOREIGN_FILES.values())
    assert [name for name, _, _ in FOREIGN if name.split(" (")[0] not in words] == []


@pytest.mark.parametrize("text", ["\ufeff" + GOAL, "// Schritt für alle\n" + GOAL, "/* ü\n*/" + GOAL])
def test_goal__with_a_byte_order_mark_or_comments_in_any_language(tmp_path, text):
    (tmp_path / "step.txt").write_text(text, encoding="utf-8")
    assert kind_of(tmp_path / "step.txt") == "goal"
    assert len(read_trace(tmp_path / "step.txt").ranks) == 2


def test_goal__has_ascii_outside_of_comments(tmp_path):
    (tmp_path / "step.goal").write_text(GOAL.replace("4096b to 1", "٤b to 1"), encoding="utf-8")
    with pytest.raises(TraceError, match=r"step\.goal:3: .* GOAL is ASCII outside of comments"):
        read_trace(tmp_path / "step.goal")


def test_chakra_json__is_read_from_a_folder_or_a_file_of_it(tmp_path):
    for rank in range(2):
        compute = {"id": "2", "name": "gemm", "type": "COMP_NODE", "durationMicros": "70", "dataDeps": ["1"]}
        (tmp_path / f"job.{rank}.json").write_text(chakra_json(all_reduce(), compute))
    for path in (tmp_path, tmp_path / "job.1.json"):
        program = read_trace(path)
        assert [[type(task).__name__ for task in rank.tasks] for rank in program.ranks] == [
            ["JoinCollective", "Compute"]
        ] * 2
    assert program.ranks[0].tasks[1].seconds == pytest.approx(70e-6)
    assert program.ranks[0].tasks[1].after == (0,)


def test_chakra_json__a_file_of_groups_beside_it_is_no_rank(tmp_path):
    for rank in range(2):
        (tmp_path / f"job.{rank}.json").write_text(chakra_json(all_reduce(pg_name={"stringVal": "7"})))
    groups = tmp_path / "groups.json"
    groups.write_text('{"7": [0, 1]}')
    assert len(read_trace(tmp_path, groups=groups).ranks) == 2


@pytest.mark.parametrize(("tail", "words"), [("{", "cut off"), ("[1]", "is no node"), ('{"id": "x"}', "node 2")])
def test_chakra_json__that_is_damaged_gets_one_line(tmp_path, tail, words):
    for rank in range(2):
        (tmp_path / f"job.{rank}.json").write_text(chakra_json(all_reduce()) + tail)
    with pytest.raises(TraceError, match=words):
        read_trace(tmp_path)


def test_dimensions__that_leave_ranks_out_are_refused(tmp_path):
    for rank in range(4):
        node = all_reduce(involved_dim={"boolList": {"values": [True, False]}})
        (tmp_path / f"job.{rank}.json").write_text(chakra_json(node))
    with pytest.raises(TraceError, match=r"job\.0\.json: node 1 \(ar\) has involved_dim \[1, 0\]"):
        read_trace(tmp_path)


def test_groups__of_a_converter_that_wrote_a_list_as_text(tmp_path):
    groups_text = str([json.dumps([{"pg_name": "1", "ranks": [0, 1]}])])
    for rank in range(3):
        metadata = {"id": "90", "name": "## process_group:init ##", "type": "METADATA_NODE"}
        metadata["inputs"] = {"values": groups_text}
        (tmp_path / f"job.{rank}.json").write_text(chakra_json(metadata, all_reduce(pg_name={"stringVal": "1"})))
    with pytest.raises(TraceError, match=r"job\.2\.json: node 1 .* group '1', ranks \[0, 1\], without its own"):
        read_trace(tmp_path)
    (tmp_path / "job.2.json").write_text(chakra_json({"id": "1", "name": "gemm", "type": "COMP_NODE"}))
    assert read_trace(tmp_path).ranks[0].tasks[1].group == (0, 1)


def test_groups__that_are_not_readable_are_no_guess(tmp_path):
    for rank in range(2):
        metadata = {"id": "90", "name": "## process_group:init ##", "type": "METADATA_NODE"}
        metadata["inputs"] = {"values": "[{pg_name"}
        (tmp_path / f"job.{rank}.json").write_text(chakra_json(metadata, all_reduce(pg_name={"stringVal": "1"})))
    with pytest.raises(TraceError, match=r"lists process groups as .* give --groups FILE"):
        read_trace(tmp_path)


def test_folder__without_traces_says_what_it_has(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TraceError, match=r"no files of ranks .* but notes\.txt"):
        read_trace(tmp_path)
