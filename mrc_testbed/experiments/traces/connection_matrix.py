"""Connection matrices of htsim (`.cm`): one message for each connection.

    Nodes 4
    Connections 2
    Triggers 1
    0->2 id 1 start 0 size 65536 send_done_trigger 1
    0->3 id 2 trigger 1 size 65536
    trigger id 1 oneshot

`start` is picoseconds from the beginning. A connection with a trigger begins when the trigger fires: when connections
that name it are done at their sender, or at their receiver; a `barrier` wants `count` of them. A host is told of what
ended elsewhere by nothing in the file, so a trigger between two hosts is refused, and so are failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.task_list import TaskList
from mrc_testbed.experiments.traces.text_lines import RANKS_MAX, numbered_lines, quote, whole_number
from mrc_testbed.hosts.traffic.program import Program, RankTasks

PICOSECOND = 1e-12
HEADERS = ("Nodes", "Connections", "Triggers", "Failures")
CONNECTIONS_MAX = 1 << 20
KEYS = ("id", "start", "size", "trigger", "send_done_trigger", "recv_done_trigger", "prio")


@dataclass(slots=True)
class _Connection:
    line: int
    source: int
    target: int
    values: dict[str, int]


@dataclass(slots=True)
class _Trigger:
    line: int
    count: int
    ends: list[tuple[int, str]] = field(default_factory=list)
    """Connections by number, and the side, "send" or "recv", whose end counts."""


def read_matrix(path: Path) -> Program:
    """Return the program of a connection matrix. Raises TraceError."""
    counts, connections, triggers = _read(path)
    nodes = counts.get("Nodes", 0)
    if not 2 <= nodes <= RANKS_MAX:
        raise TraceError(path, f"Nodes {nodes}: 2 to {RANKS_MAX}")
    for name, present in (("Connections", len(connections)), ("Triggers", len(triggers))):
        if counts.get(name, 0) != present:
            raise TraceError(path, f"{name} {counts.get(name, 0)}, but the file has {present}")
    _find_ends(path, connections, triggers)
    notes: tuple[str, ...] = ()
    if count := sum("prio" in connection.values for connection in connections):
        notes = (f"prio of {count} connections is left out: all traffic has one class",)
    return Program(path.stem, _Builder(path, nodes, connections, triggers).ranks(), notes)


# ---- the file -----------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, int], list[_Connection], dict[int, _Trigger]]:
    counts: dict[str, int] = {}
    connections: list[_Connection] = []
    triggers: dict[int, _Trigger] = {}
    for line, text in numbered_lines(path, "a connection matrix"):
        words = text.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in HEADERS and len(words) == 2:
            counts[words[0]] = whole_number(path, words[1], words[0], line, 0, CONNECTIONS_MAX)
            if words[0] == "Failures" and counts["Failures"]:
                raise TraceError(path, "Failures: links that fail are not replayed; give --fault PHRASE", line)
        elif "->" in words[0]:
            connections.append(_connection(path, line, words, counts.get("Nodes", 0)))
        elif words[0] == "trigger":
            _add_trigger(path, line, words, triggers)
        elif words[0] == "failure":
            raise TraceError(path, "failure: links that fail are not replayed; give --fault PHRASE", line)
        else:
            raise TraceError(path, f"{quote(text.strip())} is no line of a connection matrix", line)
        if len(connections) > CONNECTIONS_MAX:
            raise TraceError(path, f"more than {CONNECTIONS_MAX} connections", line)
    return counts, connections, triggers


def _connection(path: Path, line: int, words: list[str], nodes: int) -> _Connection:
    source, _, target = words[0].partition("->")
    ends = [whole_number(path, end, "node", line, 0, max(0, nodes - 1)) for end in (source, target)]
    if ends[0] == ends[1]:
        raise TraceError(path, f"{words[0]}: a connection of a node with itself", line)
    values: dict[str, int] = {}
    for key, value in zip(words[1::2], [*words[2::2], ""], strict=False):
        if key not in KEYS:
            raise TraceError(path, f"{quote(key)} is not known here (known: {', '.join(KEYS)})", line)
        # Times may have a fraction, of which htsim takes the whole picoseconds.
        digits = value.partition(".")[0] if key == "start" else value
        values[key] = whole_number(path, digits, key, line, int(key in ("id", "trigger", "size")))
    if "size" not in values:
        raise TraceError(path, "a connection without a size: how much does it send?", line)
    if ("start" in values) == ("trigger" in values):
        raise TraceError(path, "a connection has a start or a trigger, one of them", line)
    return _Connection(line, ends[0], ends[1], values)


def _add_trigger(path: Path, line: int, words: list[str], triggers: dict[int, _Trigger]) -> None:
    """Add a line `trigger id N oneshot`, or `trigger id N barrier count M`. Raises TraceError."""
    if len(words) < 4 or words[1] != "id" or "multishot" in words:
        cure = "`trigger id N oneshot` or `trigger id N barrier count M`"
        raise TraceError(path, f"{quote(' '.join(words))}: known are {cure}", line)
    number = whole_number(path, words[2], "trigger id", line, 1)
    match words[3:]:
        case ["oneshot"]:
            count = 1
        case ["barrier", "count", text] | ["count", text, "barrier"]:
            count = whole_number(path, text, "count", line, 1, CONNECTIONS_MAX)
        case _:
            raise TraceError(path, f"{quote(' '.join(words[3:]))}: a trigger is `oneshot` or `barrier count M`", line)
    if number in triggers:
        raise TraceError(path, f"trigger {number} stands twice", line)
    triggers[number] = _Trigger(line, count)


def _find_ends(path: Path, connections: list[_Connection], triggers: dict[int, _Trigger]) -> None:
    """Give each trigger the connections whose end fires it. Raises TraceError."""
    for index, connection in enumerate(connections):
        for key, side in (("send_done_trigger", "send"), ("recv_done_trigger", "recv"), ("trigger", "")):
            number = connection.values.get(key, 0)
            if number and number not in triggers:
                raise TraceError(path, f"trigger {number} is not there", connection.line)
            if number and side:
                triggers[number].ends.append((index, side))
    for number, trigger in triggers.items():
        if trigger.count != len(trigger.ends):
            text = f"trigger {number} waits for {trigger.count} ends, {len(trigger.ends)} connections name it"
            raise TraceError(path, text, trigger.line)


# ---- the program --------------------------------------------------------------------------------------------


class _Builder:
    """Makes the tasks of the nodes: for each connection a start, a send and a receive."""

    def __init__(self, path: Path, nodes: int, connections: list[_Connection], triggers: dict[int, _Trigger]) -> None:
        self._path, self._connections, self._triggers = path, connections, triggers
        self._lists = [TaskList(node) for node in range(nodes)]
        self._sent: dict[int, int] = {}
        """Number of a connection -> number of its task at the sender."""
        self._received: dict[int, int] = {}

    def ranks(self) -> tuple[RankTasks, ...]:
        """Return the tasks of each node. Raises TraceError."""
        # What fires a trigger comes before what it starts: a task waits for tasks above it.
        waiting = dict(enumerate(self._connections))
        while waiting:
            ready_numbers = [index for index in waiting if self._is_ready(index)]
            if not ready_numbers:
                text = "waits for itself: its triggers make a circle"
                raise TraceError(self._path, text, next(iter(waiting.values())).line)
            for index in ready_numbers:
                self._add(index, waiting.pop(index))
        return tuple(tasks.finish() for tasks in self._lists)

    def _ends_before(self, connection: _Connection) -> list[tuple[int, str]]:
        number = connection.values.get("trigger", 0)
        return self._triggers[number].ends if number else []

    def _is_ready(self, index: int) -> bool:
        return all(number in self._sent for number, _ in self._ends_before(self._connections[index]))

    def _add(self, index: int, connection: _Connection) -> None:
        source, target, values = connection.source, connection.target, connection.values
        dependencies: list[int] = []
        for number, side in self._ends_before(connection):
            first = self._connections[number]
            node = first.source if side == "send" else first.target
            if node != source:
                text = f"trigger {values['trigger']} fires at node {node} and starts a connection of node {source}"
                raise TraceError(self._path, f"{text}: a message would have to tell it", connection.line)
            dependencies.append((self._sent if side == "send" else self._received)[number])
        tag, name = index + 1, f"connection {values.get('id', index + 1)}"
        if values.get("start"):
            # A lane of its own: others do not wait for this clock.
            dependencies = [self._lists[source].compute(values["start"] * PICOSECOND, (), lane=tag, name=name)]
        self._sent[index] = self._lists[source].send(target, values["size"], tuple(dependencies), tag=tag, name=name)
        self._received[index] = self._lists[target].receive(source, values["size"], (), tag=tag, name=name)
