"""Writes GOAL schedules in the binary form of txt2bin."""

from __future__ import annotations

import struct
from dataclasses import dataclass

SEND, RECEIVE, CALCULATE = 1, 2, 3


@dataclass(frozen=True)
class BinaryTask:
    """One task; `enders` and `starters` are places of the tasks whose end, or begin, it waits for."""

    kind: int
    size: int
    peer: int = 0
    tag: int = 0
    cpu: int = 0
    nic: int = 0
    enders: tuple[int, ...] = ()
    starters: tuple[int, ...] = ()


def pack(ranks: list[list[BinaryTask]]) -> bytes:
    """Return the file of some ranks."""
    offset = 6 + 16 * len(ranks)
    spans, parts = b"", b""
    for tasks in ranks:
        part = _part(tasks)
        spans += struct.pack("<QQ", offset + len(parts), offset + len(parts) + len(part))
        parts += part
    return struct.pack("<QIBB", 4223, len(ranks), 1, 1) + spans + parts


def _part(tasks: list[BinaryTask]) -> bytes:
    roots = [number for number, task in enumerate(tasks) if not task.enders and not task.starters]
    rows, appendix = b"", list[int]()
    for number, task in enumerate(tasks):
        row = [len(task.enders) + len(task.starters), task.kind, task.peer, task.size, task.tag, task.cpu, task.nic]
        for side in ("enders", "starters"):
            followers = [index for index, follower in enumerate(tasks) if number in getattr(follower, side)]
            row += [len(followers), len(appendix)]
            appendix += followers
        rows += struct.pack("<IbIQIBBIIII", *row)
    head = struct.pack(f"<II{len(roots)}I", len(tasks), len(roots), *roots)
    return head + rows + struct.pack(f"<{len(appendix)}I", *appendix)
