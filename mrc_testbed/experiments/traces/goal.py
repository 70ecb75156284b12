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
from mrc_testbed.hosts.traffic.program import AnyTask, Compute, Program, RankTasks, ReceiveMessage, SendMessage
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

LINE_MAX = 4096
"""Bytes of a line."""
RANKS_MAX = 4096
NANOSECONDS = 1e9
NUMBER_MAX = 1 << 53
"""Above it a number is a mistake: 104 days of nanoseconds, 8 PiB."""

_RANKS = re.compile(r"num_ranks\s+(\d+)")
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_TASK = re.compile(
    r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?"
    r"(?:calc\s+(?P<calc>\d+)|send\s+(?P<sent>\d+)b\s+to\s+(?P<to>\d+)|recv\s+(?P<got>\d+)b\s+from\s+(?P<source>-1|\d+))"
    r"(?:\s+tag\s+(?P<tag>-1|\d+))?(?:\s+cpu\s+(?P<cpu>\d+))?(?:\s+nic\s+(?P<nic>\d+))?"
)
_WAIT = re.compile(r"(?P<label>[A-Za-z]\w*)\s+(?P<how>i?requires)\s+(?P<other>[A-Za-z]\w*)")
WOULD_DO = (
    "`num_ranks N`, `rank R {`, `[label:] calc NS`, `send Nb to R tag T`, `recv Nb from R tag T`, `a requires b`, `}`"
)


@dataclass
class _Rank:
    tasks: list[AnyTask] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    waits: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)


def read_goal(path: Path) -> Program:
    """The program of a GOAL text file. Raises TraceError."""
    count: int | None = None
    ranks: dict[int, _Rank] = {}
    now: _Rank | None = None
    last = 0
    for number, text in _lines(path):
        last = number
        if found := _RANKS.fullmatch(text):
            count = int(found[1][:10])
            if not 2 <= count <= RANKS_MAX:
                raise TraceError(path, f"num_ranks {found[1]}: 2 to {RANKS_MAX}", number)
        elif found := _RANK.fullmatch(text):
            which = int(found[1][:10])
            if now is not None:
                raise TraceError(path, f"rank {which} begins before the rank before it has ended with `}}`", number)
            if count is None or which >= count or which in ranks:
                why = "num_ranks comes first" if count is None else f"num_ranks is {count}"
                why = "stands twice" if which in ranks else why
                raise TraceError(path, f"rank {which}: {why}", number)
            now = ranks[which] = _Rank()
        elif text == "}" and now is not None:
            now = None
        elif now is None:
            raise TraceError(path, f"{_shown(text)} outside of a rank: {WOULD_DO}", number)
        else:
            _take(path, number, text, now)
    if now is not None:
        raise TraceError(path, "ends within a rank: is it cut off? A rank ends with `}`", last)
    if count is None:
        raise TraceError(path, f"no num_ranks: not a GOAL schedule in text form ({WOULD_DO})")
    if missing := sorted(set(range(count)) - set(ranks)):
        raise TraceError(path, f"num_ranks is {count}, but rank {missing[0]} is not there ({len(missing)} missing)")
    return Program(path.stem, tuple(RankTasks(tuple(_waiting(ranks[one]))) for one in range(count)))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines without comments, numbered; those that are empty are left out. Never more than one in memory."""
    within = False
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(LINE_MAX + 1):
                number += 1
                if len(raw) > LINE_MAX:
                    raise TraceError(path, f"a line of more than {LINE_MAX} bytes: not a GOAL schedule", number)
                try:
                    text = raw.decode("ascii")
                except UnicodeDecodeError:
                    raise TraceError(
                        path, "not text: give the text that a binary GOAL file (txt2bin) was made from", number
                    ) from None
                text, within = _without_comments(text, within)
                if text := text.strip():
                    yield number, text
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None


def _without_comments(text: str, within: bool) -> tuple[str, bool]:
    """The text outside of comments, and whether one goes on in the next line."""
    out = ""
    while text:
        if within:
            _, end, text = text.partition("*/")
            within = not end
            continue
        at = min((at for mark in ("//", "#", "/*") if (at := text.find(mark)) >= 0), default=len(text))
        out += text[:at]
        if not text.startswith("/*", at):
            break
        text, within = text[at + 2 :], True
    return out, within


def _take(path: Path, number: int, text: str, rank: _Rank) -> None:
    """One line within a rank."""
    if found := _TASK.fullmatch(text):
        if len(rank.tasks) >= TASKS_MAX:
            raise TraceError(path, f"more than {TASKS_MAX} tasks in a rank", number)
        if found["label"] in rank.labels:
            raise TraceError(path, f"label {found['label']} stands twice in a rank", number)
        if found["label"]:
            rank.labels[found["label"]] = len(rank.tasks)
        rank.tasks.append(_task(path, number, found))
        return
    waits = _WAIT.fullmatch(text)
    if waits is None:
        raise TraceError(path, f"{_shown(text)} is no line of GOAL: {WOULD_DO}", number)
    for label in (waits["label"], waits["other"]):
        if label not in rank.labels:
            raise TraceError(path, f"no task is labelled {label} above in this rank", number)
    after, begun = rank.waits.setdefault(rank.labels[waits["label"]], ([], []))
    (after if waits["how"] == "requires" else begun).append(rank.labels[waits["other"]])


def _task(path: Path, number: int, found: re.Match[str]) -> AnyTask:
    values = {key: int(value) for key, value in found.groupdict().items() if value is not None and key != "label"}
    if too_large := [key for key, value in values.items() if value > NUMBER_MAX]:
        raise TraceError(path, f"{too_large[0]} {found[too_large[0]]}: at most {NUMBER_MAX}", number)
    if values.get("source") == -1 or values.get("tag") == -1:
        raise TraceError(path, "receives from any rank, or with any tag (-1), are not known: name rank and tag", number)
    name = found["label"] or ""
    if found["calc"]:
        return Compute(seconds=values["calc"] / NANOSECONDS, lane=values.get("cpu", 0), name=name)
    if found["sent"]:
        return SendMessage(peer=values["to"], size=values["sent"], tag=values.get("tag", 0), name=name)
    return ReceiveMessage(peer=values["source"], size=values["got"], tag=values.get("tag", 0), name=name)


def _waiting(rank: _Rank) -> Iterator[AnyTask]:
    """Tasks with what they wait for."""
    for at, task in enumerate(rank.tasks):
        after, begun = rank.waits.get(at, ([], []))
        yield replace(task, after=tuple(dict.fromkeys(after)), once_begun=tuple(dict.fromkeys(begun)))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
