"""NCCL's debug log: who has which rank, what follows what, and what is refused."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import JoinCollective, ReceiveMessage, SendMessage


def start(process: int, pointer: str, rank: int, ranks: int, identity: str | None = "0xa1") -> str:
    """Return the line of a communicator; a process is a device of its own."""
    end = f" commId {identity}" if identity else ""
    return (
        f"h:{process}:{process}9 [0] NCCL INFO ncclCommInitRank comm {pointer} rank {rank} nranks {ranks} cudaDev 0 "
        f"nvmlDev 0 busId 34000{end} - Init COMPLETE\n"
    )


def operation(process: int, name: str, pointer: str, ranks: int, **changes: object) -> str:
    """Return the line of an operation; `changes` of its values."""
    values = {"count": 64, "root": 0, "number": "0", "stream": "0x5", "dtype": 7} | changes
    return (
        f"h:{process}:{process}9 [0] NCCL INFO {name}: opCount {values['number']} sendbuff 0x7f recvbuff (nil) "
        f"count {values['count']} datatype {values['dtype']} op 0 root {values['root']} comm {pointer} "
        f"[nranks={ranks}] stream {values['stream']}\n"
    )


def job(*operations: tuple, ranks: int = 4) -> str:
    """Return the log of a job whose ranks all do the same."""
    out = "".join(start(100 + rank, f"0x{rank}1", rank, ranks) for rank in range(ranks))
    for name, values in operations:
        out += "".join(operation(100 + rank, name, f"0x{rank}1", ranks, **values) for rank in range(ranks))
    return out


def log(folder, text: str):
    path = folder / "nccl.log"
    path.write_text(text)
    return path


def test_collectives__have_sizes_as_nccl_tests_count_them(tmp_path):
    names = ["AllReduce", "AllGather", "ReduceScatter", "AlltoAll"]
    program = read_trace(log(tmp_path, "NCCL version 2.28\n" + job(*[(name, {}) for name in names])))
    tasks = program.ranks[2].tasks
    assert [(task.kind.removesuffix("_tree"), task.size) for task in tasks] == [
        ("all_reduce", 256),
        ("all_gather", 1024),
        ("reduce_scatter", 1024),
        ("all_to_all", 1024),
    ]
    assert [task.after for task in tasks] == [(), (0,), (1,), (2,)]
    assert program.notes[0] == "a log has no times: computing takes none"


def test_streams__do_not_wait_for_each_other(tmp_path):
    text = job(("AllReduce", {"stream": "0x5"}), ("AllReduce", {"stream": "0x6"}), ("AllGather", {"stream": "0x5"}))
    assert [task.after for task in read_trace(log(tmp_path, text)).ranks[0].tasks] == [(), (), (0,)]


def test_smaller_communicator__has_the_ranks_of_the_largest_by_device(tmp_path):
    text = job(("Broadcast", {"root": 1}))
    # Ranks 3 and 1 of the job are 0 and 1 of the smaller one.
    text += start(103, "0xb3", 0, 2, "0xb") + start(101, "0xb1", 1, 2, "0xb")
    text += operation(103, "AllReduce", "0xb3", 2) + operation(101, "AllReduce", "0xb1", 2)
    program = read_trace(log(tmp_path, text))
    join = program.ranks[3].tasks[-1]
    assert isinstance(join, JoinCollective) and join.group == (1, 3)
    assert [sum(isinstance(t, SendMessage) for t in program.ranks[r].tasks) > 0 for r in range(2)] == [False, True]


def test_messages__of_an_op_count_start_together(tmp_path):
    text = job(ranks=2)
    for rank in range(2):
        for name in ("Send", "Recv"):
            text += operation(100 + rank, name, f"0x{rank}1", 2, root=1 - rank, number="1a")
        text += operation(100 + rank, "Send", f"0x{rank}1", 2, root=rank, number="1b")
        text += operation(100 + rank, "AllReduce", f"0x{rank}1", 2, number="1c")
    send, receive, join = read_trace(log(tmp_path, text)).ranks[1].tasks
    assert isinstance(send, SendMessage) and isinstance(receive, ReceiveMessage)
    assert (send.peer, send.size, send.after, receive.after) == (0, 256, (), ())
    assert join.after == (0, 1), "a message to itself crosses no network"


def test_folder_of_logs__without_starts_numbers_ranks_by_process(tmp_path):
    for process in (300, 20):
        (tmp_path / f"nccl.h.{process}.log").write_text(operation(process, "AllReduce", "0xf", 2))
    program = read_trace(tmp_path)
    assert len(program.ranks) == 2 and "numbered by host, process and device" in " ".join(program.notes)


TORN = "h:1:2 [0] NCCL INFO h:2:3 [1] NCCL INFO Broadcast: opCount 0 sendbuff 0x7\n"
BAD_FILES = {
    r"1 of 4 ranks of a communicator are in the log, without Init COMPLETE: log with": operation(
        1, "AllReduce", "0x1", 4
    ),
    r"has a root or a peer, and the log does not say who": operation(1, "Broadcast", "0x1", 2)
    + operation(2, "Broadcast", "0x1", 2),
    r"PutSignal of communicator 0x01 is not known \(known: AllReduce": job(("PutSignal", {})),
    r"has datatype 99": job(("AllReduce", {"dtype": 99})),
    r"Broadcast of communicator 0x01 has root 9: 0 to 3": job(("Broadcast", {"root": 9})),
    r"nccl.log:9: an operation whose line is torn": job(("AllReduce", {})) + TORN,
    r"no operations in it: log with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL": start(1, "0x1", 0, 2),
    r"two processes have rank 0 of 2 .* use NCCL 2.16": start(1, "0x1", 0, 2, None) + start(2, "0x1", 0, 2, None),
    r"has nranks 4, its start said 2": start(1, "0x1", 0, 2) + operation(1, "AllReduce", "0x1", 4),
}


@pytest.mark.parametrize("words", BAD_FILES)
def test_log__that_is_wrong_gets_one_line(tmp_path, words):
    with pytest.raises(TraceError, match=words) as error:
        read_trace(log(tmp_path, BAD_FILES[words]))
    assert "\n" not in str(error.value)
