"""GOAL schedules (LogGOPSim, ATLAHS): the text form, line by line.

    num_ranks 2
    rank 0 {
    l1: calc 5000 cpu 1          // nanoseconds
    l2: send 1048576b to 1 tag 7
    l2 requires l1               // begins when l1 has ended; irequires: when it has begun
    }

`calc` takes its nanoseconds on the lane that `cpu` names. A send ends when it is acknowledged, a receive when all is in
memory. `nic` is read and left out: our hosts have one NIC of several planes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.text_lines import NUMBER_MAX, RANKS_MAX, numbered_lines, quote
from mrc_testbed.hosts.traffic.program import AnyTask, Compute, Program, RankTasks, ReceiveMessage, SendMessage
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

NANOSECONDS = 1e9

_RANKS = re.compile(r"num_ranks\s+(\d+)")
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_TASK = re.compile(
    r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?"
    r"(?:calc\s+(?P<calc>\d+)|send\s+(?P<sent>\d+)b\s+to\s+(?P<to>\d+)|recv\s+(?P<got>\d+)b\s+from\s+(?P<source>-1|\d+))"
    r"(?:\s+tag\s+(?P<tag>-1|\d+))?(?:\s+cpu\s+(?P<cpu>\d+))?(?:\s+nic\s+(?P<nic>\d+))?"
)
_WAIT = re.compile(r"(?P<label>[A-Za-z]\w*)\s+(?P<how>i?requires)\s+(?P<other>[A-Za-z]\w*)")
KNOWN_LINES = (
    "`num_ranks N`, `rank R {`, `[label:] calc NS`, `send Nb to R tag T`, `recv Nb from R tag T`, `a requires b`, `}`"
)


@dataclass
class _Rank:
    tasks: list[AnyTask] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    waits: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    nics: int = 0
    """Tasks that name a NIC other than the first."""


def read_goal(path: Path) -> Program:
    """Return the program of a GOAL text file. Raises TraceError."""
    count: int | None = None
    ranks: dict[int, _Rank] = {}
    now: _Rank | None = None
    last = 0
    for number, text in _lines(path):
        last = number
        if match := _RANKS.fullmatch(text):
            count = int(match[1][:10])
            if not 2 <= count <= RANKS_MAX:
                raise TraceError(path, f"num_ranks {match[1]}: 2 to {RANKS_MAX}", number)
        elif match := _RANK.fullmatch(text):
            rank = int(match[1][:10])
            if now is not None:
                raise TraceError(path, f"rank {rank} begins before the rank before it has ended with `}}`", number)
            if count is None or rank >= count or rank in ranks:
                reason = "num_ranks comes first" if count is None else f"num_ranks is {count}"
                reason = "stands twice" if rank in ranks else reason
                raise TraceError(path, f"rank {rank}: {reason}", number)
            now = ranks[rank] = _Rank()
        # A brace without an open rank falls through to the error below.
        elif text == "}" and now is not None:
            now = None
        elif now is None:
            raise TraceError(path, f"{quote(text)} outside of a rank: {KNOWN_LINES}", number)
        else:
            _take(path, number, text, now)
    if now is not None:
        raise TraceError(path, "the file ends within a rank. Cure: complete it; a rank ends with `}`", last)
    if count is None:
        raise TraceError(path, f"no num_ranks: not a GOAL schedule in text form ({KNOWN_LINES})")
    if missing_ranks := sorted(set(range(count)) - set(ranks)):
        raise TraceError(
            path, f"num_ranks is {count}, but rank {missing_ranks[0]} is not there ({len(missing_ranks)} missing)"
        )
    tasks = tuple(RankTasks(tuple(_waiting(ranks[number]))) for number in range(count))
    return Program(path.stem, tasks, nic_notes(sum(rank.nics for rank in ranks.values())))


def nic_notes(count: int) -> tuple[str, ...]:
    """Return the note on tasks that name a NIC other than the first."""
    return (f"nic of {count} tasks is left out: a host has one NIC of several planes",) if count else ()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without comments and empty lines, one in memory at a time."""
    in_comment = False
    for number, line in numbered_lines(path, "a GOAL schedule"):
        text, in_comment = _without_comments(line, in_comment)
        if (text := text.strip()) and not text.isascii():
            raise TraceError(path, f"{quote(text)}: GOAL is ASCII outside of comments", number)
        if text:
            yield number, text


def _without_comments(text: str, in_comment: bool) -> tuple[str, bool]:
    """Return the text outside of comments, and whether a comment goes on in the next line."""
    out = ""
    while text:
        if in_comment:
            _, end, text = text.partition("*/")
            in_comment = not end
            continue
        start = min((start for mark in ("//", "#", "/*") if (start := text.find(mark)) >= 0), default=len(text))
        out += text[:start]
        if not text.startswith("/*", start):
            break
        text, in_comment = text[start + 2 :], True
    return out, in_comment


def _take(path: Path, number: int, text: str, rank: _Rank) -> None:
    """Add one line within a rank: a task, or a dependency of two tasks. Raises TraceError."""
    if match := _TASK.fullmatch(text):
        if len(rank.tasks) >= TASKS_MAX:
            raise TraceError(path, f"more than {TASKS_MAX} tasks in a rank", number)
        if match["label"] in rank.labels:
            raise TraceError(path, f"label {match['label']} stands twice in a rank", number)
        if match["label"]:
            rank.labels[match["label"]] = len(rank.tasks)
        rank.nics += int(match["nic"] or 0) != 0
        rank.tasks.append(_task(path, number, match))
        return
    waits = _WAIT.fullmatch(text)
    if waits is None:
        raise TraceError(path, f"{quote(text)} is no line of GOAL: {KNOWN_LINES}", number)
    for label in (waits["label"], waits["other"]):
        if label not in rank.labels:
            raise TraceError(path, f"no task is labelled {label} above in this rank", number)
    end_waits, start_waits = rank.waits.setdefault(rank.labels[waits["label"]], ([], []))
    (end_waits if waits["how"] == "requires" else start_waits).append(rank.labels[waits["other"]])


def _task(path: Path, number: int, match: re.Match[str]) -> AnyTask:
    values = {key: int(value) for key, value in match.groupdict().items() if value is not None and key != "label"}
    if too_large := [key for key, value in values.items() if value > NUMBER_MAX]:
        raise TraceError(path, f"{too_large[0]} {match[too_large[0]]}: at most {NUMBER_MAX}", number)
    if values.get("source") == -1 or values.get("tag") == -1:
        raise TraceError(path, "receives from any rank, or with any tag (-1), are not known: name rank and tag", number)
    name = match["label"] or ""
    if match["calc"]:
        return Compute(seconds=values["calc"] / NANOSECONDS, lane=values.get("cpu", 0), name=name)
    if match["sent"]:
        return SendMessage(peer=values["to"], size=values["sent"], tag=values.get("tag", 0), name=name)
    return ReceiveMessage(peer=values["source"], size=values["got"], tag=values.get("tag", 0), name=name)


def _waiting(rank: _Rank) -> Iterator[AnyTask]:
    """Yield the tasks of a rank with their dependencies."""
    for index, task in enumerate(rank.tasks):
        end_waits, start_waits = rank.waits.get(index, ([], []))
        yield replace(task, after=tuple(dict.fromkeys(end_waits)), once_begun=tuple(dict.fromkeys(start_waits)))
