"""Impairments of one direction of a link: which of its packets are hit, decided packet by packet."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Protocol


class PacketPicker(Protocol):
    """Decides about the packets of one direction, in the order in which they are sent."""

    def hits(self, is_data: bool) -> bool:
        """Whether the next packet is one of them."""


class Picker:
    """Hits packets by chance, by number or in bursts; `only`: "data" or "control", and counts only those."""

    __slots__ = ("_burst", "_data", "_every", "_number", "_packets", "_period", "_rate", "_rng")

    def __init__(
        self, rng: Random, *, rate: float | None = None, every: int | None = None,
        packets: Iterable[int] | None = None, burst: int | None = None, period: int | None = None, only: str = "all",
    ) -> None:  # fmt: skip
        self._rate, self._every, self._burst, self._period = rate, every, burst, period
        self._packets = None if packets is None else frozenset(packets)
        self._data = None if only == "all" else only == "data"
        self._rng = rng
        self._number = -1

    def hits(self, is_data: bool) -> bool:
        """Whether the next packet is one of them."""
        if self._data is not None and is_data is not self._data:
            return False
        if self._rate is not None:
            return self._rng.random() < self._rate
        self._number += 1
        if self._every is not None:
            return self._number % self._every == self._every - 1
        if self._packets is not None:
            return self._number in self._packets
        number = self._number % self._period if self._period else self._number
        return number < (self._burst or 0)


class PatternPicker:
    """Hits packets by a text of 0s and 1s, again and again; 1 is hit."""

    __slots__ = ("_at", "_pattern")

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, -1

    def hits(self, is_data: bool) -> bool:
        """Whether the next packet is hit."""
        self._at = (self._at + 1) % len(self._pattern)
        return self._pattern[self._at] == "1"


class Lateness:
    """Packets that come `seconds` late, or (`twin`) a copy of them."""

    __slots__ = ("hits", "seconds", "twin")

    def __init__(self, picker: PacketPicker, seconds: float, twin: bool) -> None:
        self.hits = picker.hits
        self.seconds, self.twin = seconds, twin
