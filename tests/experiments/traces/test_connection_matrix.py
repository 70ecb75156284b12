"""Connection matrices of htsim: starts, triggers, and what is refused."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.hosts.traffic.program import Compute, ReceiveMessage, SendMessage

HEAD = "Nodes 4\nConnections {}\nTriggers {}\n"


def matrix(folder, connections: str, triggers: str = ""):
    path = folder / "m.cm"
    head = HEAD.format(len(connections.splitlines()), len(triggers.splitlines()))
    path.write_text(head + connections + triggers)
    return path


def test_connections__are_messages_with_their_starts(tmp_path):
    program = read_trace(matrix(tmp_path, "0->2 id 1 start 0 size 65536\n0->3 start 2500000.0 size 100 prio 3\n"))
    assert len(program.ranks) == 4 and program.ranks[1].tasks == ()
    first, clock, second = program.ranks[0].tasks
    assert (first, second.after) == (SendMessage(peer=2, size=65536, tag=1, name="connection 1"), (1,))
    assert isinstance(clock, Compute) and clock.seconds == pytest.approx(2.5e-6) and clock.after == ()
    assert program.ranks[3].tasks == (ReceiveMessage(peer=0, size=100, tag=2, name="connection 2"),)
    assert program.notes == ("prio of 1 connections is left out: all traffic has one class",)


def test_triggers__start_what_waits_for_them(tmp_path):
    # The second connection stands above the one that it waits for.
    connections = (
        "0->2 id 2 trigger 1 size 10\n0->1 id 1 start 0 size 10 send_done_trigger 1\n"
        "1->0 id 3 start 0 size 10 recv_done_trigger 2\n2->0 id 4 start 0 size 10 recv_done_trigger 2\n"
        "0->3 id 5 trigger 2 size 10\n"
    )
    program = read_trace(matrix(tmp_path, connections, "trigger id 1 oneshot\ntrigger id 2 barrier count 2\n"))
    tasks = program.ranks[0].tasks
    by_name = {(task.name, type(task)): number for number, task in enumerate(tasks)}
    assert tasks[by_name["connection 2", SendMessage]].after == (by_name["connection 1", SendMessage],)
    assert tasks[by_name["connection 5", SendMessage]].after == (
        by_name["connection 3", ReceiveMessage],
        by_name["connection 4", ReceiveMessage],
    )


SEND = "0->1 id 1 start 0 size 10"
BAD_FILES = {
    r"m.cm:4: node '7': 0 to 3": ("0->7 start 0 size 1\n", ""),
    r"m.cm:4: 0->0: a connection of a node with itself": ("0->0 start 0 size 1\n", ""),
    r"m.cm:4: size '0': 1 to": ("0->1 start 0 size 0\n", ""),
    r"'msg' is not known here \(known: id, start": ("0->1 start 0 size 1 msg 3\n", ""),
    r"a start or a trigger, one of them": ("0->1 size 1\n", ""),
    r"a connection without a size": ("0->1 start 0\n", ""),
    r"trigger 9 is not there": (SEND + " send_done_trigger 9\n", ""),
    r"trigger 1 waits for 1 ends, 0 connections name it": (SEND + "\n", "trigger id 1 oneshot\n"),
    r"known are `trigger id N oneshot`": (SEND + " send_done_trigger 1\n", "trigger id 1 multishot\n"),
    r"trigger 1 fires at node 0 and starts a connection of node 2: a message would have to tell it": (
        SEND + " send_done_trigger 1\n2->3 trigger 1 size 1\n",
        "trigger id 1 oneshot\n",
    ),
    r"its triggers make a circle": ("0->1 trigger 1 size 1 send_done_trigger 1\n", "trigger id 1 oneshot\n"),
}


@pytest.mark.parametrize("words", BAD_FILES)
def test_matrix__that_is_wrong_gets_one_line(tmp_path, words):
    with pytest.raises(TraceError, match=words) as error:
        read_trace(matrix(tmp_path, *BAD_FILES[words]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nodes 4\nConnections 2\n" + SEND + "\n", "Connections 2, but the file has 1"),
        ("Nodes 4\nConnections 1\nFailures 1\n", r"m.cm:3: Failures: .* give --fault PHRASE"),
        ("Nodes 8192\nConnections 0\n", "Nodes 8192: 2 to 4096"),
        ("Nodes 4\nhello\n", "'hello' is no line of a connection matrix"),
    ],
)
def test_head__that_is_wrong_gets_one_line(tmp_path, text, words):
    (tmp_path / "m.cm").write_text(text)
    with pytest.raises(TraceError, match=words):
        read_trace(tmp_path / "m.cm")
