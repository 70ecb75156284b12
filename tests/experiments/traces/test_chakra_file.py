"""Files of Chakra traces: those older than GlobalMetadata, the feeder's JSON, values of every kind."""

from __future__ import annotations

import json

import pytest

from mrc_testbed.experiments.traces.chakra_file import read_file
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective
from tests.experiments.traces.chakra_files import node, old_node, write, write_without_metadata


def test_file_without_metadata__has_its_first_node(tmp_path):
    nodes = [node(1, "COMP_NODE", micros=40), node(2, "COMM_COLL_NODE", data=[1], comm_type="ALL_REDUCE", comm_size=64)]
    program = read_trace(write_without_metadata(tmp_path, [nodes] * 2))
    compute, collective = program.ranks[0].tasks
    assert isinstance(compute, Compute) and compute.seconds == pytest.approx(40e-6)
    assert isinstance(collective, JoinCollective) and collective.after == (0,)


def test_file_until_2023__has_its_own_attributes_and_numbers(tmp_path):
    nodes = [
        old_node(1, "COMP_NODE", runtime=300),
        old_node(2, "COMM_COLL_NODE", parents=[1], comm_type=1, comm_size=4096, involved_dim=[True, True]),
        old_node(3, "COMM_COLL_NODE", parents=[2], comm_type=3, comm_size=4096),
    ]
    program = read_trace(write_without_metadata(tmp_path, [nodes] * 2))
    compute, exchange, scatter = program.ranks[1].tasks
    assert compute.seconds == pytest.approx(300e-6)
    assert (exchange.kind, scatter.kind, exchange.after, scatter.after) == ("all_to_all", "reduce_scatter", (0,), (1,))


def test_file_until_2023__with_dimensions_left_out_is_refused(tmp_path):
    nodes = [old_node(1, "COMM_COLL_NODE", comm_type=0, comm_size=4096, involved_dim=[True, False])]
    with pytest.raises(TraceError, match=r"involved_dim \[1, 0\]"):
        read_trace(write_without_metadata(tmp_path, [nodes] * 2))


def test_metadata__with_attributes_is_no_node(tmp_path):
    path = write(tmp_path, [[node(1, "COMP_NODE")]])
    assert [n.id for n in read_file(path, 0).nodes] == [1]
    data = path.read_bytes()
    # A version, and an attribute with a text.
    metadata = b"\x0a\x050.0.4" + b"\x12\x07\x0a\x01k\xea\x01\x01v"
    path.write_bytes(bytes([len(metadata)]) + metadata + data[data[0] + 1 :])
    assert [n.id for n in read_file(path, 0).nodes] == [1]


def test_json_of_the_feeder__is_read(tmp_path):
    nodes = [
        {"Id": 1, "Name": "gemm", "NodeType": 4, "data_deps": [], "runtime": 70, "is_cpu_op": False},
        {"Id": 2, "Name": "ar", "NodeType": 7, "data_deps": [1], "comm_type": 0, "comm_size": 4096},
    ]
    for rank in range(2):
        (tmp_path / f"job.{rank}.json").write_text(json.dumps({"workload_graph": nodes}))
    compute, collective = read_trace(tmp_path).ranks[0].tasks
    assert compute.seconds == pytest.approx(70e-6) and collective.after == (0,) and collective.size == 4096


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"workload_graph": 3}, "workload_graph is no list of nodes"),
        ({"workload_graph": [3]}, "3 is no node"),
        ({"id": "1", "name": "x", "type": "COMM_MAGIC_NODE"}, r"node 1 \(x\) is of type COMM_MAGIC_NODE \(known: META"),
    ],
)
def test_json__that_is_wrong_gets_one_line(tmp_path, data, words):
    for rank in range(2):
        (tmp_path / f"job.{rank}.json").write_text(json.dumps(data))
    with pytest.raises(TraceError, match=words):
        read_trace(tmp_path / "job.0.json")
