"""GOAL schedules: what is read, and what is refused with its line."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, ReceiveMessage, SendMessage
from mrc_testbed.hosts.traffic.program_check import check

STEP = """
num_ranks 2   // two of them
/* what rank 0 does,
   in three lines */
rank 0 {
l1: calc 5000 cpu 1
l2: send 4096b to 1 tag 7 cpu 0 nic 1
l2 requires l1
calc 100 # no label
l3: recv 8b from 1
l3 irequires l2
}
rank 1 {
a: recv 4096b from 0 tag 7
b: send 8b to 0
b requires a
}
"""


def goal(folder, text, name="step.goal"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_schedule__becomes_a_program(tmp_path):
    program = read_trace(goal(tmp_path, STEP))
    assert program.ranks[0].tasks == (
        Compute(seconds=5e-6, lane=1, name="l1"),
        SendMessage(peer=1, size=4096, tag=7, name="l2", after=(0,)),
        Compute(seconds=1e-7),
        ReceiveMessage(peer=1, size=8, name="l3", once_begun=(1,)),
    )
    ideal = check(program)
    assert program.notes == ("nic of 1 tasks is left out: a host has one NIC of several planes",)
    assert ideal.messages == 2 and ideal.seconds == pytest.approx(5e-6) and program.name == "step"


def test_schedule__with_windows_lines_and_without_blanks(tmp_path):
    text = "num_ranks 2\r\nrank 0 {\r\nl1:send 1b to 1\r\n}\r\nrank 1 {\r\nrecv 1b from 0\r\n}"
    assert check(read_trace(goal(tmp_path, text))).messages == 1


BAD_SCHEDULES = {
    ":1: num_ranks 1: 2 to 4096": "num_ranks 1\n",
    ":1: 'hello' outside of a rank: `num_ranks N`": "hello\n",
    ":2: rank 5: num_ranks is 2": "num_ranks 2\nrank 5 {\n}\n",
    ":1: rank 0: num_ranks comes first": "rank 0 {\n}\n",
    ":4: rank 0: stands twice": "num_ranks 2\nrank 0 {\n}\nrank 0 {\n}\n",
    "rank 1 is not there": "num_ranks 2\nrank 0 {\n}\n",
    "the file ends within a rank": "num_ranks 2\nrank 0 {\nl1: calc 5\n",
    ":3: 'l1: put 4b to 1' is no line of GOAL": "num_ranks 2\nrank 0 {\nl1: put 4b to 1\n}\n",
    ":3: no task is labelled l1 above": "num_ranks 2\nrank 0 {\nl1 requires l2\n}\n",
    ":4: label l1 stands twice": "num_ranks 2\nrank 0 {\nl1: calc 1\nl1: calc 1\n}\n",
    "any rank, or with any tag": "num_ranks 2\nrank 0 {\nrecv 4b from -1\n}\n",
    "calc 99999999999999999999: at most": "num_ranks 2\nrank 0 {\ncalc 99999999999999999999\n}\n",
    "without a receiver": "num_ranks 2\nrank 0 {\nsend 4b to 1\n}\nrank 1 {\n}\n",
    "a circle of 2 tasks": "num_ranks 2\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\nrank 1 {\n}\n",
    "no num_ranks: not a GOAL schedule": "\n\n",
    "not text: not a GOAL schedule": b"\x00\xff\x01binary",
    "a line of more than 4096 bytes": b"a" * 5000,
}


@pytest.mark.parametrize("text", BAD_SCHEDULES)
def test_schedule__that_is_wrong_gets_one_line(tmp_path, text):
    with pytest.raises(TraceError) as error:
        read_trace(goal(tmp_path, BAD_SCHEDULES[text]))
    assert text in str(error.value) and "\n" not in str(error.value)


def test_gigabyte_of_junk__is_refused_at_once(tmp_path):
    with (tmp_path / "junk.goal").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(TraceError, match="a line of more than 4096 bytes"):
        read_trace(tmp_path / "junk.goal")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_text__is_a_program_or_a_trace_error(tmp_path, data):
    start = data.draw(st.integers(0, len(STEP)))
    end = data.draw(st.integers(start, len(STEP)))
    inserted_text = data.draw(st.text(st.sampled_from("0123456789abcdl{}/*: -\n#requirs"), max_size=12))
    error_text = ""
    try:
        check(read_trace(goal(tmp_path, STEP[:start] + inserted_text + STEP[end:])))
    except TraceError as error:
        error_text = str(error)
    assert "\n" not in error_text
