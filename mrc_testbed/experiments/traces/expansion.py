"""Collectives that are made of messages: broadcast and reduce over a binomial tree, gather and scatter directly.

What a reduce adds up is not computed: its messages go up the tree, each as large as the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.hosts.traffic.program import AnyTask, Compute, ReceiveMessage, SendMessage

EXPANDED = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")


@dataclass(frozen=True, slots=True)
class Expansion:
    """Messages of one rank: those it waits for, then those it sends. `tasks` has one more, which ends it all."""

    receives: tuple[tuple[int, int], ...]
    """(peer, bytes)."""
    sends: tuple[tuple[int, int], ...]
    tag: int

    def __len__(self) -> int:
        return len(self.receives) + len(self.sends)

    def tasks(self, first: int, after: tuple[int, ...], name: str) -> list[AnyTask]:
        """Tasks with numbers from `first` on, which begin when those of `after` have ended."""
        made: list[AnyTask] = [
            ReceiveMessage(peer=peer, size=size, tag=self.tag, name=name, after=after) for peer, size in self.receives
        ]
        here = tuple(range(first, first + len(made)))
        made += [
            SendMessage(peer=peer, size=size, tag=self.tag, name=name, after=here or after) for peer, size in self.sends
        ]
        whole = tuple(range(first, first + len(made)))
        return [*made, Compute(seconds=0.0, name=name, after=whole or after)]


def expand(kind: str, group: tuple[int, ...], place: int, root: int, size: int, tag: int) -> Expansion:
    """What the rank at `place` of the group receives and sends. `root`: its place; `size`: bytes of the whole."""
    count = len(group)
    turned = (place - root) % count

    def rank(number: int) -> int:
        return group[(number + root) % count]

    if kind in ("GATHER", "SCATTER"):
        each = max(1, size // count)
        others = tuple((rank(number), each) for number in range(1, count))
        ours, theirs = (others, ()) if turned == 0 else ((), ((rank(0), each),))
        return Expansion(ours, theirs, tag) if kind == "GATHER" else Expansion(theirs, ours, tag)
    # In a binomial tree the parent of a number is the number without its lowest one bit.
    parent = ((rank(turned & (turned - 1)), size),) if turned else ()
    bits = (turned & -turned).bit_length() - 1 if turned else count.bit_length()
    children = tuple((rank(turned | 1 << bit), size) for bit in reversed(range(bits)) if turned | 1 << bit < count)
    return Expansion(parent, children, tag) if kind == "BROADCAST" else Expansion(children, parent, tag)
