"""Collectives made of messages: broadcast and reduce over a binomial tree; gather and scatter direct.

A reduce computes no sums: its messages go up the tree, each as large as the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.hosts.traffic.program import AnyTask, Compute, ReceiveMessage, SendMessage

MARKER_LANE = 254
"""Lane of tasks that take no time and only join others: they wait for no computation.

LogGOPSim counts lanes in a byte: with a lane 255 it has none, and crashes.
"""
EXPANDED_KINDS = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")


@dataclass(frozen=True, slots=True)
class Expansion:
    """Messages of one rank: first those received, then those sent. `tasks` adds a task that ends them."""

    receives: tuple[tuple[int, int], ...]
    """(peer, bytes)."""
    sends: tuple[tuple[int, int], ...]
    tag: int

    def __len__(self) -> int:
        return len(self.receives) + len(self.sends)

    def tasks(self, first: int, dependencies: tuple[int, ...], name: str) -> list[AnyTask]:
        """Return tasks numbered from `first`, which start when the tasks of `dependencies` have ended."""
        tasks: list[AnyTask] = [
            ReceiveMessage(peer=peer, size=size, tag=self.tag, name=name, after=dependencies)
            for peer, size in self.receives
        ]
        receive_numbers = tuple(range(first, first + len(tasks)))
        tasks += [
            SendMessage(peer=peer, size=size, tag=self.tag, name=name, after=receive_numbers or dependencies)
            for peer, size in self.sends
        ]
        all_numbers = tuple(range(first, first + len(tasks)))
        return [*tasks, Compute(seconds=0.0, lane=MARKER_LANE, name=name, after=all_numbers or dependencies)]


def expand(kind: str, group: tuple[int, ...], position: int, root: int, size: int, tag: int) -> Expansion:
    """Return the messages of the rank at `position` of the group.

    `root`: position of the root; `size`: bytes of the whole buffer.
    """
    count = len(group)
    relative = (position - root) % count

    def rank(number: int) -> int:
        return group[(number + root) % count]

    if kind in ("GATHER", "SCATTER"):
        part_bytes = max(1, size // count)
        peers = tuple((rank(number), part_bytes) for number in range(1, count))
        gathered_in, gathered_out = (peers, ()) if relative == 0 else ((), ((rank(0), part_bytes),))
        return (
            Expansion(gathered_in, gathered_out, tag) if kind == "GATHER" else Expansion(gathered_out, gathered_in, tag)
        )
    # In a binomial tree the parent of a number is the number without its lowest one bit.
    parent = ((rank(relative & (relative - 1)), size),) if relative else ()
    bits = (relative & -relative).bit_length() - 1 if relative else count.bit_length()
    children = tuple((rank(relative | 1 << bit), size) for bit in reversed(range(bits)) if relative | 1 << bit < count)
    return Expansion(parent, children, tag) if kind == "BROADCAST" else Expansion(children, parent, tag)
