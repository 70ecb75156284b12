"""Impairments of one direction of a link: which of its packets are hit, decided packet by packet."""

from __future__ import annotations

from random import Random

from mrc_testbed.faults.target import PacketChoice


class Picker:
    """Decides which packets of one direction a choice hits, in the order in which they are sent."""

    __slots__ = ("_data", "_number", "_packets", "_pattern", "_rate", "_rng")

    def __init__(self, rng: Random, choice: PacketChoice) -> None:
        self._rate, self._pattern = choice.rate, choice.pattern or ""
        self._packets = frozenset(choice.packets or ())
        self._data = None if choice.only is None else choice.only == "data"
        self._rng = rng
        self._number = -1

    @property
    def hits_all(self) -> bool:
        """Whether every packet is hit."""
        return self._data is None and (self._rate == 1 or (self._pattern != "" and "0" not in self._pattern))

    def hits(self, is_data: bool) -> bool:
        """Return whether the next packet is hit."""
        if self._data is not None and is_data is not self._data:
            return False
        if self._rate is not None:
            return self._rng.random() < self._rate
        self._number += 1
        if self._pattern:
            return self._pattern[self._number % len(self._pattern)] == "1"
        return self._number in self._packets


class Lateness:
    """Impairment that delays packets by `seconds`, or (`twin`) a copy of them."""

    __slots__ = ("hits", "seconds", "twin")

    def __init__(self, picker: Picker, seconds: float, twin: bool) -> None:
        self.hits = picker.hits
        self.seconds, self.twin = seconds, twin
