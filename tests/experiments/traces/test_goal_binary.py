"""GOAL schedules in binary form: the same program as their text, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from tests.experiments.traces.goal_binary_files import CALCULATE, RECEIVE, SEND, BinaryTask, pack
from tests.experiments.traces.test_goal import STEP, goal

BINARY_STEP = [
    [
        BinaryTask(CALCULATE, 5000, cpu=1),
        BinaryTask(SEND, 4096, peer=1, tag=7, nic=1, enders=(0,)),
        BinaryTask(CALCULATE, 100),
        BinaryTask(RECEIVE, 8, peer=1, starters=(1,)),
    ],
    [BinaryTask(RECEIVE, 4096, peer=0, tag=7), BinaryTask(SEND, 8, peer=0, enders=(0,))],
]


def test_binary__is_the_program_of_its_text(tmp_path):
    (tmp_path / "step.bin").write_bytes(pack(BINARY_STEP))
    binary, text = read_trace(tmp_path / "step.bin"), read_trace(goal(tmp_path, STEP))
    assert binary.notes == text.notes
    assert [rank.tasks for rank in binary.ranks] == [
        tuple(replace(task, name="") for task in rank.tasks) for rank in text.ranks
    ]


BAD_FILES = {
    "task 0 of rank 0 has peer or tag -1": [[BinaryTask(RECEIVE, 4, peer=0xFFFFFFFF)], []],
    "task 0 of rank 0 is of type 9": [[BinaryTask(9, 4)], []],
    "task 0 of rank 0 has size 18446744073709551615": [[BinaryTask(CALCULATE, (1 << 64) - 1)], []],
    "1 ranks: 2 to 4096": [[]],
    "without a receiver": [[BinaryTask(SEND, 4, peer=1)], []],
}


@pytest.mark.parametrize("words", BAD_FILES)
def test_binary__that_is_wrong_gets_one_line(tmp_path, words):
    (tmp_path / "step.bin").write_bytes(pack(BAD_FILES[words]))
    with pytest.raises(TraceError, match=words) as error:
        read_trace(tmp_path / "step.bin")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [0, 9, 13, 30, 60, 100])
def test_binary__that_is_cut_off_says_where(tmp_path, size):
    (tmp_path / "step.bin").write_bytes(pack(BINARY_STEP)[: 8 + size])
    with pytest.raises(TraceError, match=r"cut off: .* would be at byte"):
        read_trace(tmp_path / "step.bin")


def test_binary__with_a_task_that_is_not_there_is_refused(tmp_path):
    data = pack(BINARY_STEP)
    (tmp_path / "step.bin").write_bytes(data[:-4] + struct.pack("<I", 99))
    with pytest.raises(TraceError, match="rank 1 has no task 99: its tasks are 0 to 1"):
        read_trace(tmp_path / "step.bin")
