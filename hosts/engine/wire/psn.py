"""Packet sequence numbers, modulo 2**24: the only module that knows they wrap.

On the wire a PSN has 24 bits and "a before b" means 0 < (b - a) mod 2**24 < 2**23 (mrc-protocol §2.15). Inside the
engine a PSN is *unwrapped*: a plain int that only grows, whose low 24 bits are the wire's. `unwrap` turns a
received value into the one nearest to a number we already know, `wire` goes back, and everything between
is ordinary arithmetic. `unwrap_number` serves the 16-bit MSN and RQMSN.
"""

from __future__ import annotations

from typing import Final

PSN_BITS: Final = 24
PSN_MASK: Final = (1 << PSN_BITS) - 1
PSN_HALF: Final = 1 << (PSN_BITS - 1)


def wire(number: int) -> int:
    """Return the 24 bits that travel for an unwrapped PSN."""
    return number & PSN_MASK


def unwrap(psn: int, near: int) -> int:
    """Return the PSN whose low bits are `psn` in [near - 2**23, near + 2**23).

    May be negative when `near` is small: such a number is before everything we ever sent.
    """
    return near + (psn - near + PSN_HALF & PSN_MASK) - PSN_HALF


def unwrap_number(number: int, near: int, bits: int) -> int:
    """Return the number with low bits `number` in [near - 2**(bits-1), near + 2**(bits-1))."""
    half = 1 << (bits - 1)
    return near + ((number - near + half) & ((1 << bits) - 1)) - half


def precedes(a: int, b: int) -> bool:
    """Whether wire PSN `a` comes before wire PSN `b` (§2.15)."""
    return 0 < (b - a) & PSN_MASK < PSN_HALF


def advance(old_value: int, new_value: int, bits: int = PSN_BITS) -> int:
    """Return how far a wrapping counter moved from `old_value` to `new_value`; 0 when the new is older.

    Used for rcvd_bytes (nscc.md §1.3): 0xFFFFFE -> 0x000003 is 5, 0x000003 -> 0xFFFFFE is stale, hence 0.
    """
    step = (new_value - old_value) & ((1 << bits) - 1)
    return step if step < 1 << (bits - 1) else 0
