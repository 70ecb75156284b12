"""Expansion of an EV into the header fields of a packet (§10.3): format profiles and EV fields.

A packed EV is the bits a profile varies, most significant first. Each field begins with its initial value; for each bit
of its mask, from the most significant down, it takes the next bit of the packed EV. A field with mask 0 is constant.
Fields follow each other, first one most significant; a field of a format that is wider than the profile's is filled
with zeros on the left.

A T0 uplink (8 bits) and a T1 uplink (4 bits) in a structured EV of 10 + 8 + 4 bits, of which two bits are fixed:

>>> t0 = EvField(width=10, init_val=0x200, max_val=0xFF, mask=0x0FF)
>>> t1 = EvField(width=8, mask=0x0F, max_val=0x0F)
>>> packed_width([t0, t1])
12
>>> hex(expand(0xAB5, [t0, t1]))                  # 0x200 | 0xAB, then 0x05, 18 bits in all
'0x2ab05'
>>> hex(expand(0xAB5, [t0, t1], [10, 12]))        # the format's second field is 12 bits wide
'0x2ab005'
>>> hex(collapse(0x2AB005, [t0, t1], [10, 12]))
'0xab5'
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag
from math import prod

from mrc_testbed.hosts.verbs.checks import number
from mrc_testbed.hosts.verbs.errors import VerbsError


class EvFormat(IntFlag):
    """Header fields that carry an expanded EV."""

    STEV = 1 << 0
    """Structured: flow label and UDP source port, at most 32 bits; switches read their subfield."""
    SRV6 = 1 << 1
    """uSID stack in the outer IPv6 address, at most 128 bits (here without SRH)."""
    UDP = 1 << 2
    """UDP source port alone, at most 16 bits; switches hash it (ECMP)."""


MAX_WIDTH = {EvFormat.UDP: 16, EvFormat.STEV: 32, EvFormat.SRV6: 128}
"""Bits of an expanded EV by format (§8.6)."""


@dataclass(frozen=True, slots=True)
class EvField:
    """One field. `width` in bits; `min_val` and `max_val` bound the bits under the mask of generated EVs."""

    width: int
    init_val: int = 0
    min_val: int = 0
    max_val: int = 0
    mask: int = 0

    def __post_init__(self) -> None:
        number("EV field: width", self.width, 1, 128)
        for name in ("init_val", "min_val", "max_val", "mask"):
            number(f"EV field: {name}", getattr(self, name), 0, (1 << 128) - 1)
        for name in ("init_val", "mask"):
            if getattr(self, name) >> self.width:
                raise VerbsError(f"EV field: {name} = {getattr(self, name):#x} is wider than {self.width} bits")
        if self.max_val >> self.bits:
            raise VerbsError(f"EV field: max_val = {self.max_val:#x} is wider than the {self.bits} bits of the mask")
        if self.min_val > self.max_val:
            raise VerbsError(f"EV field: min_val = {self.min_val:#x} is above max_val = {self.max_val:#x}")

    @property
    def bits(self) -> int:
        """Bits of the packed EV this field takes."""
        return self.mask.bit_count()

    @property
    def values(self) -> int:
        """Number of values that a generated EV can have here."""
        return self.max_val - self.min_val + 1

    def overlay(self, bits: int) -> int:
        """Return `init_val` with the low `bits` of a packed EV under the mask."""
        value, bits_left = self.init_val, self.bits
        for position in range(self.width - 1, -1, -1):
            if self.mask >> position & 1:
                bits_left -= 1
                value = value & ~(1 << position) | (bits >> bits_left & 1) << position
        return value

    def extract(self, value: int) -> int:
        """Inverse of `overlay`: the bits under the mask."""
        bits = 0
        for position in range(self.width - 1, -1, -1):
            if self.mask >> position & 1:
                bits = bits << 1 | value >> position & 1
        return bits


def packed_width(fields: Sequence[EvField]) -> int:
    """Bits of a packed EV."""
    return sum(f.bits for f in fields)


def expand(packed: int, fields: Sequence[EvField], format_widths: Sequence[int] | None = None) -> int:
    """Return the expanded EV; raises VerbsError when `packed` has more bits than the masks take."""
    width = packed_width(fields)
    if packed < 0 or packed >> width:
        raise VerbsError(f"EV {packed:#x} does not fit the {width} bits of the profile's fields")
    value, bits_left = 0, width
    for field, format_width in zip(fields, format_widths or [f.width for f in fields], strict=False):
        bits_left -= field.bits
        value = value << format_width | field.overlay(packed >> bits_left & (1 << field.bits) - 1)
    for format_width in (format_widths or [])[len(fields) :]:
        value <<= format_width
    return value


def collapse(value: int, fields: Sequence[EvField], format_widths: Sequence[int] | None = None) -> int:
    """Inverse of `expand`: the packed EV in an expanded one; constant bits are not looked at."""
    widths = list(format_widths or [f.width for f in fields])
    packed, shift = 0, sum(widths)
    for field, width in zip(fields, widths, strict=False):
        shift -= width
        packed = packed << field.bits | field.extract(value >> shift & (1 << width) - 1)
    return packed


def check_fields(fields: Sequence[EvField], format_widths: Sequence[int]) -> None:
    """Whether EV fields fit their format. Raises VerbsError (E2BIG)."""
    if len(fields) > len(format_widths):
        raise VerbsError(f"{len(fields)} EV fields, but the format has {len(format_widths)}", errno.E2BIG)
    for index, (field, width) in enumerate(zip(fields, format_widths, strict=False)):
        if field.width > width:
            raise VerbsError(f"EV field {index} has {field.width} bits, the format's has {width}", errno.E2BIG)


def count_generated(fields: Sequence[EvField]) -> int:
    """Return how many packed EVs the ranges allow."""
    return prod(f.values for f in fields)


def nth_generated(index: int, fields: Sequence[EvField]) -> int:
    """Packed EV number `index` of those the ranges allow; the last field counts fastest."""
    packed, shift = 0, 0
    for field in reversed(fields):
        index, digit = divmod(index, field.values)
        packed |= (field.min_val + digit) << shift
        shift += field.bits
    return packed


def all_generated(fields: Sequence[EvField]) -> Iterator[int]:
    """Return all packed EVs the ranges allow, in order.

    >>> fields = [EvField(4, mask=0b11, max_val=1), EvField(4, mask=0b11, min_val=1, max_val=2)]
    >>> [hex(ev) for ev in all_generated(fields)]
    ['0x1', '0x2', '0x5', '0x6']
    """
    return (nth_generated(i, fields) for i in range(count_generated(fields)))


def t1_usid_ev(address: int) -> int:
    """Return the EV that a whole SRv6 address names.

    It is the T1 uSID, bits 79 to 64, without the role (§8.2, §8.3).
    """
    return address >> 64 & 0x0FFF
