"""Meaning of the 32 bits of an EV in each routing mode (§8), and the EVs of a QP's profile.

    srv6        tag | plane | uplink, least significant last: EV[15:8] plane, EV[7:0] T0 uplink (§8.3)
    structured  one field a tier, first hop in the most significant bits (§8.5), and the plane in the lowest ones
    ecmp        any number: switches hash it, so it is drawn at random and the plane is kept beside it (§8.4)

Each format is a record with its widths; `evs` gives the (EV, plane) pairs that QueuePair.connect and EvProfile take.
All values of a profile differ, whatever their plane: feedback names the EV alone. On IPv4 only the low 16 bits travel
(§1.4), so there they must differ in those. Nothing here knows a fabric: numbers in, EVs out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

EV_BITS: Final = 32
IPV4_BITS: Final = 16
"""Half of the EV that fits the UDP source port in layout L."""
EvPlane = tuple[int, int]


class EvFormatError(ValueError):
    """Values do not fit the format; the message says what would."""


def _fit(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 1 << bits:
        raise EvFormatError(f"{name} = {value}: must be 0 to {(1 << bits) - 1} ({bits} bits)")
    return value


@dataclass(frozen=True, slots=True)
class Srv6Format:
    """§8.3; what is left above plane and uplink is the tag, free for the user."""

    plane_bits: int = 8
    uplink_bits: int = 8

    def __post_init__(self) -> None:
        if self.plane_bits < 0 or self.uplink_bits < 0 or self.plane_bits + self.uplink_bits > EV_BITS:
            raise EvFormatError(f"{self.plane_bits} + {self.uplink_bits} bits: an EV has {EV_BITS}")

    def pack(self, plane: int, uplink: int, tag: int = 0) -> int:
        low = self.plane_bits + self.uplink_bits
        _fit("tag", tag, EV_BITS - low)
        return (
            tag << low
            | _fit("plane", plane, self.plane_bits) << self.uplink_bits
            | _fit("uplink", uplink, self.uplink_bits)
        )

    def plane(self, ev: int) -> int:
        return ev >> self.uplink_bits & (1 << self.plane_bits) - 1

    def uplink(self, ev: int) -> int:
        return ev & (1 << self.uplink_bits) - 1

    def evs(self, planes: Iterable[int], uplinks: Iterable[int], tag: int = 0) -> list[EvPlane]:
        """Return one EV for each uplink of each plane.

        Under one T0 only the plane matters: give one uplink (§8.2).
        """
        return [(self.pack(plane, uplink, tag), plane) for plane, uplink in product(planes, list(uplinks))]


@dataclass(frozen=True, slots=True)
class StructuredFormat:
    """§8.5. `widths`: bits of the tiers' fields, first hop first; the digest's example is 10 + 8 + 4.

    The plane is chosen by the port and read by no switch; it is kept in the lowest `plane_bits`, in the reserved
    part, so that EVs of different planes differ.
    """

    widths: tuple[int, ...] = (10, 8, 4)
    plane_bits: int = 8

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or sum(self.widths) + self.plane_bits > EV_BITS:
            raise EvFormatError(
                f"fields of {self.widths} bits, {self.plane_bits} for the plane: one field at least, {EV_BITS} in all"
            )

    def pack(self, plane: int, fields: Sequence[int]) -> int:
        """Return an EV; `fields`: egress choice of each tier, first hop first; missing ones are 0."""
        if len(fields) > len(self.widths):
            raise EvFormatError(f"{len(fields)} fields for {len(self.widths)} tiers: give one field a tier at most")
        value, low = _fit("plane", plane, self.plane_bits), EV_BITS
        for tier, (field, bits) in enumerate(zip(fields, self.widths, strict=False)):
            low -= bits
            value |= _fit(f"field of tier {tier}", field, bits) << low
        return value

    def field(self, ev: int, tier: int) -> int:
        """Return the bits that a switch of that tier reads."""
        low = EV_BITS - sum(self.widths[: tier + 1])
        return ev >> low & (1 << self.widths[tier]) - 1

    def plane(self, ev: int) -> int:
        return ev & (1 << self.plane_bits) - 1

    def evs(self, planes: Iterable[int], choices: Sequence[Iterable[int]]) -> list[EvPlane]:
        """Return one EV for each combination of `choices` (egress numbers of each tier) in each plane."""
        tiers = [list(tier) for tier in choices]
        return [(self.pack(plane, fields), plane) for plane in planes for fields in product(*tiers)]


@dataclass(frozen=True, slots=True)
class EcmpFormat:
    """§8.4. `bits`: 32, or 16 where the flow label does not count (IPv4, or switches that do not hash it)."""

    bits: int = EV_BITS

    def __post_init__(self) -> None:
        if self.bits not in (IPV4_BITS, EV_BITS):
            raise EvFormatError(f"EVs of {self.bits} bits: {EV_BITS}, or {IPV4_BITS} without flow label")

    def evs(self, planes: Iterable[int], count: int, rng: Random) -> list[EvPlane]:
        """Return `count` random distinct EVs for each plane.

        Two may share a path: only statistics covers them all.
        """
        planes = list(planes)
        total = count * len(planes)
        if not 0 < total <= 1 << self.bits:
            raise EvFormatError(f"{count} EVs for each of {len(planes)} planes: 1 to {1 << self.bits} in all")
        if self.bits == IPV4_BITS:
            values = rng.sample(range(1 << IPV4_BITS), total)
        else:
            distinct: dict[int, None] = {}
            while len(distinct) < total:
                distinct[rng.getrandbits(EV_BITS)] = None
            values = list(distinct)
        return [(value, planes[i % len(planes)]) for i, value in enumerate(values)]


EvFormat = Srv6Format | StructuredFormat | EcmpFormat


def distinct_on_ipv4(evs: Iterable[EvPlane]) -> bool:
    """Whether the EVs can be distinguished by the 16 bits that IPv4 carries in layout L (§1.4)."""
    low = [ev & (1 << IPV4_BITS) - 1 for ev, _ in evs]
    return len(set(low)) == len(low)
