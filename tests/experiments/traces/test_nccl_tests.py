"""Result tables of nccl-tests: rows as collectives, and what is refused."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import ReceiveMessage, SendMessage

RANKS = "# Using devices\n" + "".join(
    f"#  Rank {rank:2} Group  0 Pid   1887 on   worker-{rank} device  0 [0x8d] NVIDIA H100\n" for rank in range(4)
)
HEAD = (
    "#\n#                                             out-of-place          in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       \n"
)


def row(size: int, root: int = -1) -> str:
    return f"{size:12} {size // 4:12}     float     sum {root:7}    27.76   37.78   66.11      0\n"


ROWS = row(0) + row(1024) + row(1 << 20)
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.5\n"


def table(folder, text: str):
    path = folder / "table.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["# Collective test starting: all_reduce_perf\n", "$ ./build/all_reduce_perf -g 1\n"])
def test_rows__are_collectives_one_after_the_other(tmp_path, name):
    program = read_trace(table(tmp_path, name + RANKS + HEAD + ROWS + END))
    assert len(program.ranks) == 4
    assert [(task.size, task.after) for task in program.ranks[3].tasks] == [(1024, ()), (1 << 20, (0,))]
    assert "times of the table are not replayed" in program.notes[0]


def test_root__is_that_of_its_row(tmp_path):
    text = "srun broadcast_perf_mpi -b 1K\n" + RANKS + HEAD + row(1024, 2)
    program = read_trace(table(tmp_path, text))
    assert [sum(isinstance(t, SendMessage) for t in rank.tasks) > 0 for rank in program.ranks][2]
    assert sum(isinstance(t, ReceiveMessage) for rank in program.ranks for t in rank.tasks) == 3


def test_lines__may_have_the_tag_of_mpirun_and_no_root(tmp_path):
    text = "sendrecv_perf\n" + RANKS + HEAD.replace("    root", "") + row(1024).replace("     -1", "")
    tagged_text = "".join(f"[1,0]<stdout>:{line}" for line in text.splitlines(keepends=True))
    send, receive = read_trace(table(tmp_path, tagged_text)).ranks[0].tasks
    assert (send.peer, receive.peer, send.size) == (1, 3, 1024)


BAD_FILES = {
    "does not say which test it is": RANKS + HEAD + ROWS,
    r"test 'hypercube' \(known: all_reduce": "hypercube_perf\n" + RANKS + HEAD + ROWS,
    "has no rows": "all_reduce_perf\n" + RANKS + HEAD,
    "0 lines `#  Rank N": "all_reduce_perf\n" + HEAD + ROWS,
    "not 0 to 7: build nccl-tests with MPI=1": "all_reduce_perf\n" + RANKS + RANKS + HEAD + ROWS,
    "root 9 of 4 ranks": "broadcast_perf\n" + RANKS + HEAD + row(4, 9),
}


@pytest.mark.parametrize("words", BAD_FILES)
def test_table__that_is_wrong_gets_one_line(tmp_path, words):
    with pytest.raises(TraceError, match=words) as error:
        read_trace(table(tmp_path, BAD_FILES[words]))
    assert "\n" not in str(error.value)
