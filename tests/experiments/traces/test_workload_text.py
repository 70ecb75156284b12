"""Workloads of ASTRA-sim 1.0 and SimAI as text: order, groups, and what is refused."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, JoinCollective
from mrc_testbed.hosts.traffic.program_check import check

SIMAI = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8 checkpoints: 0 pp_comm 0\n"
FIRST = "a -1 1000 ALLREDUCE 4096 2000 ALLTOALL_EP 8192 3000 REDUCESCATTER_DP_EP 16384 100\n"
LAST = "b -1 10 NONE 0 20 NONE 0 30 ALLGATHER 4096 0\n"


def workload(folder, text: str, name: str = "w.txt"):
    path = folder / name
    path.write_text(text)
    return path


def names_of(program, rank: int = 0) -> list[str]:
    return [task.name for task in program.ranks[rank].tasks]


def test_transformer__goes_forward_and_backward_with_its_groups(tmp_path):
    program = read_trace(workload(tmp_path, SIMAI + "2\n" + FIRST + LAST))
    assert len(program.ranks) == 8
    forward = "a fwd, a fwd, a fwd update, b fwd"
    backward = "b ig, b wg, b wg, a ig, a ig, a ig update, a wg, a wg, a wg update"
    assert ", ".join(names_of(program)) == f"{forward}, {backward}"
    tasks = program.ranks[5].tasks
    joins = [task for task in tasks if isinstance(task, JoinCollective)]
    # Tensor parallelism nearest, then experts, then data.
    assert [join.group for join in joins] == [(4, 5), (1, 3, 5, 7), (5, 7), (1, 5)]
    assert [join.kind for join in joins] == ["all_reduce", "all_gather", "all_to_all", "reduce_scatter"]
    # The gradients of b are gathered while a goes on; what a sends forward and backward is waited for.
    gather = tasks.index(joins[1])
    assert all(gather not in task.after for task in tasks) and tasks[3].after == (2,)
    assert check(program).seconds == pytest.approx((1000 + 10 + 20 + 30 + 2000 + 3000 + 300) * 1e-9)


def test_data__has_weight_gradients_beside_the_computing_below(tmp_path):
    layer = "{} -1 100 NONE 0 100 NONE 0 50 ALLREDUCE 65536 0\n"
    program = read_trace(workload(tmp_path, "DATA\n2\n" + layer.format("a") + layer.format("b")), ranks=4)
    assert names_of(program) == ["a fwd", "b fwd", "b wg", "b wg", "b ig", "a wg", "a wg"]
    assert [task.after for task in program.ranks[0].tasks] == [(), (0,), (1,), (2,), (2,), (4,), (5,)]
    assert {task.group for task in program.ranks[0].tasks if isinstance(task, JoinCollective)} == {(0, 1, 2, 3)}


def test_model__waits_for_input_gradients_with_the_weight_gradients(tmp_path):
    layer = "{} -1 100 ALLGATHER 64 100 ALLREDUCE 64 50 NONE 0 0\n"
    program = read_trace(workload(tmp_path, "MODEL\n2\n" + layer.format("a") + layer.format("b")), ranks=2)
    assert names_of(program) == ["a fwd", "a fwd", "b fwd", "b fwd", "b ig", "b ig", "b wg", "a ig", "a wg"]
    assert program.ranks[0].tasks[7].after == (6, 5)


@pytest.mark.parametrize(("keys", "size"), [("", 4 * 4096), ("all_gpus: 4", 4096)])
def test_all_gather__its_size_is_one_share_in_astra_sim_and_all_of_them_in_simai(tmp_path, keys, size):
    text = f"MODEL {keys}\n1\na -1 5 ALLGATHER 4096 5 ALLREDUCE 8192 5 NONE 0 0\n"
    joins = [
        task
        for task in read_trace(workload(tmp_path, text), ranks=4).ranks[0].tasks
        if isinstance(task, JoinCollective)
    ]
    assert [join.size for join in joins] == [size]


def test_micro_and_inference__have_one_phase(tmp_path):
    micro = "MICRO\n2\n" + "a -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 0\n" * 2
    program = read_trace(workload(tmp_path, micro), ranks=4)
    assert [task.after for task in program.ranks[3].tasks] == [(), ()] and "no order" in program.notes[0]
    inference = "DISTRIBUTED_INFERENCE\n1\na -1 5 ALLREDUCE 64 5 NONE 0 5 NONE 0 0\n"
    compute, join = read_trace(workload(tmp_path, inference, "i.txt"), ranks=2).ranks[0].tasks
    assert isinstance(compute, Compute) and join.after == (0,)


ROW = "a -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 0\n"
BAD_FILES = {
    "does not say how many ranks there are: give --ranks N": "MICRO\n1\n" + ROW,
    r"w.txt:2: line 2 says 3 layers, the file has 1": "MICRO\n3\n" + ROW,
    r"w.txt:3: a layer of 5 fields": "MICRO\n1\na -1 5 NONE 0\n",
    r"w.txt:3: collective 'ALLREDUCEALLTOALL' \(known: NONE, ALLREDUCE": "MICRO\n1\n"
    + ROW.replace("ALLREDUCE", "ALLREDUCEALLTOALL"),
    r"collective 'ALLREDUCE_TP'": "MICRO\n1\n" + ROW.replace("ALLREDUCE", "ALLREDUCE_TP"),
    r"ALLREDUCE in the phase .fwd.: DATA has no collectives there": "DATA\n1\na 0 5 ALLREDUCE 64 5 NONE 0 5 NONE 0 0\n",
    r"time '-5': 0 to": "MICRO\n1\n" + ROW.replace(" 5 NONE 0 5", " -5 NONE 0 5", 1),
    r"w.txt:1: HYBRID_DLRM: its groups are dimensions of a topology": "HYBRID_DLRM 3\n1\n" + ROW,
    r"w.txt:1: 'HYBRID_X': the first line is a parallelism: MICRO": "HYBRID_X\n1\n" + ROW,
    r"pp 12: messages between the stages": "HYBRID_TRANSFORMER all_gpus: 8 pp: 12\n1\n" + ROW,
    r"checkpoints 2: layers that run twice": "HYBRID_TRANSFORMER all_gpus: 8 checkpoints: 2 0 1\n1\n" + ROW,
    r"'3': the first line has pairs": "HYBRID_TRANSFORMER 3 4\n1\n" + ROW,
    r"8 ranks are no multiple of model_parallel_NPU_group 3 x ep 1": "HYBRID_TRANSFORMER model_parallel_NPU_group: 3 "
    "all_gpus: 8\n1\n" + ROW,
    r"9216 ranks: 2 to 4096": "HYBRID_TRANSFORMER all_gpus: 9216\n1\n" + ROW,
}


@pytest.mark.parametrize("words", BAD_FILES)
def test_workload__that_is_wrong_gets_one_line(tmp_path, words):
    with pytest.raises(TraceError, match=words) as error:
        read_trace(workload(tmp_path, BAD_FILES[words]))
    assert "\n" not in str(error.value)


def test_ranks__that_the_file_says_otherwise_are_refused(tmp_path):
    with pytest.raises(TraceError, match="all_gpus is 8, 4 ranks are asked for"):
        read_trace(workload(tmp_path, SIMAI + "1\n" + FIRST), ranks=4)
