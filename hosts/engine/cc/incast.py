"""Incast signal of the receiver: SACKs carry a penalty for a while after a trim at our last hop.

Where switches do not mark on the last hop (§4.4), NSCC hears of incast by trims and delay only, and delay without marks
makes it *grow* (fair increase): trims go on for ever and shares stay unequal (nscc.md §4.3). The receiver's penalty
(§6.9) is the signal that is missing. It covers all QPs of the host, for they share the port that overflowed.
"""

from __future__ import annotations


class IncastSignal:
    """One per endpoint. `penalty` 0..127 for `hold_s` seconds after each trim; 0 = never."""

    __slots__ = ("_hold_ends", "_hold_s", "_penalty")

    def __init__(self, penalty: int = 0, hold_s: float = 0.0) -> None:
        self._penalty, self._hold_s = penalty, hold_s
        self._hold_ends = float("-inf")

    def on_trim(self, now: float) -> None:
        """Note that a packet for us was trimmed at the last hop."""
        self._hold_ends = now + self._hold_s

    def penalty(self, now: float) -> int:
        """rcv_cwnd_pen of a SACK that leaves now, as far as incast goes."""
        return self._penalty if now < self._hold_ends else 0
