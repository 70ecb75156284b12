"""Training programs that cannot run are refused, and what others will take."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.traffic.collectives import CollectiveOptions
from mrc_testbed.hosts.traffic.program import (
    Compute,
    JoinCollective,
    Program,
    RankTasks,
    ReceiveMessage,
    SendMessage,
    TrainingProgramError,
)
from mrc_testbed.hosts.traffic.program_check import check


def pair(*tasks, peer_tasks=()) -> Program:
    return Program("bad", (RankTasks(tuple(tasks)), RankTasks(tuple(peer_tasks))))


BAD_PROGRAMS = {
    "message to rank 1, tag 3, without a receiver": pair(SendMessage(peer=1, size=4, tag=3)),
    "waits for message 1 of rank 1 with tag 0, which sends 0": pair(ReceiveMessage(peer=1, size=4)),
    "waits for 8 bytes of rank 1, whose task 0 sends 4": pair(
        ReceiveMessage(peer=1, size=8), peer_tasks=[SendMessage(peer=0, size=4)]
    ),
    "a message to rank 2: there are ranks 0 to 1": pair(SendMessage(peer=2, size=4)),
    "a message of rank -1: there are ranks 0 to 1": pair(ReceiveMessage(peer=-1, size=4)),
    "and a rank does not talk to itself": pair(SendMessage(peer=0, size=4)),
    "rank 1 never joins it": pair(JoinCollective(kind="all_reduce", size=64, group=(0, 1))),
    "is all_gather of 64 bytes at rank 1 and all_reduce of 64 at rank 0": pair(
        JoinCollective(kind="all_reduce", size=64, group=(0, 1)),
        peer_tasks=[JoinCollective(kind="all_gather", size=64, group=(0, 1))],
    ),
    "two or more different ones": pair(JoinCollective(kind="all_reduce", size=64, group=(0,))),
    "no collective 'allreduce'": pair(
        JoinCollective(kind="allreduce", size=64, group=(0, 1)),
        peer_tasks=[JoinCollective(kind="allreduce", size=64, group=(0, 1))],
    ),
    "waits for task 9, which is not there": pair(Compute(seconds=1, after=(9,))),
    "computes for -1 seconds": pair(Compute(seconds=-1)),
    "a message of -4 bytes": pair(SendMessage(peer=1, size=-4)),
    "2048 MiB in messages a step: at most 1024": pair(
        SendMessage(peer=1, size=1 << 31), peer_tasks=[ReceiveMessage(peer=0, size=1 << 31)]
    ),
    r"a circle of 2 tasks that wait for each other: rank 0 task 0 \(a\) for rank 0 task 1 for rank 0 task 0": pair(
        Compute(seconds=1, after=(1,), name="a"), Compute(seconds=1, after=(0,))
    ),
    "a circle of 4 tasks that wait for each other": pair(
        ReceiveMessage(peer=1, size=4),
        SendMessage(peer=1, size=4, after=(0,)),
        peer_tasks=[ReceiveMessage(peer=0, size=4), SendMessage(peer=0, size=4, after=(0,))],
    ),
    "a circle of 1 tasks": pair(Compute(seconds=1, once_begun=(0,))),
}


@pytest.mark.parametrize("text", BAD_PROGRAMS)
def test_program__that_cannot_run_is_refused_in_one_line(text):
    with pytest.raises(TrainingProgramError, match=text) as error:
        check(BAD_PROGRAMS[text])
    assert "\n" not in str(error.value)


def test_collective__that_one_waits_for_behind_another_is_a_circle():
    first = JoinCollective(kind="all_reduce", size=64, group=(0, 1))
    second = JoinCollective(kind="all_reduce", size=64, group=(0, 1), options=CollectiveOptions(), after=(0,))
    receive, send = ReceiveMessage(peer=1, size=4), SendMessage(peer=0, size=4, after=(0,))
    program = pair(first, second, peer_tasks=[first, second])
    assert check(program).collectives == 2
    stuck = Program(
        "s",
        (
            RankTasks((receive, JoinCollective(kind="all_reduce", size=64, group=(0, 1), after=(0,)))),
            RankTasks((JoinCollective(kind="all_reduce", size=64, group=(0, 1)), send)),
        ),
    )
    with pytest.raises(TrainingProgramError, match="a circle of 4 tasks"):
        check(stuck)
