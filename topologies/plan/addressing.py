"""uSIDs, EVs and the addresses made of them: mrc-protocol §8. Numbers in, numbers out.

::

    EV     31..16 free   15..8 plane   7..0 T0 uplink (= T1 number)
    uSID   15..12 role   11..8 plane   7..0 number          role 1 = T1, 2 = T0, 3 = NIC downlink
    uA     15..12 E or F 11..8 plane   7..0 number          E = down: NIC of a T0, rack of a T1;  F = up: T1 of a T0
    DA     locator fcbb:bb00::/32, then up to six uSIDs; 0x0000 ends the list

A uN uSID names a switch; a uA uSID names a cable of the switch that reads it, and lies in the range that RFC 9800
leaves to each switch for its own (0xE000 to 0xFFFF). A list may mix both. Longer lists go on in an SRH.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LOCATOR = 0xFCBB_BB00
LOCATOR_BITS = 32
USID_BITS = 16
USIDS_PER_ADDRESS = 6
SEGMENTS_MAX = 127
"""Addresses that an SRH can hold: its length field counts 8 bytes in 8 bits (RFC 8754 §2)."""

ROLE_T1 = 1
ROLE_T0 = 2
ROLE_DOWNLINK = 3
ROLE_ADJACENCY_DOWN = 0xE
ROLE_ADJACENCY_UP = 0xF


class PlanError(ValueError):
    """The dimensions, or a name or number asked of the plan, do not exist; the message says what would."""


def usid(role: int, plane: int, number: int) -> int:
    """Return the 16-bit uSID of a role, plane and number (§8.3).

    Roles: 1 T1, 2 T0, 3 NIC downlink; 14, 15 adjacency down, up.
    """
    return role << 12 | plane << 8 | number


def make_ev(plane: int, uplink: int) -> int:
    """EV of a plane and a T0 uplink number (§8.3)."""
    return plane << 8 | uplink


def ev_plane(ev: int) -> int:
    """Plane that a §8.3 EV names. Random EVs (ecmp, flow-ecmp) name none: `Plan.ev_planes` tells theirs."""
    return ev >> 8 & 0xFF


def ev_uplink(ev: int) -> int:
    """T0 uplink that a §8.3 EV names."""
    return ev & 0xFF


def carrier(*usids: int) -> int:
    """128-bit uSID carrier address: locator, the uSIDs, zeros. Raises PlanError beyond six."""
    if len(usids) > USIDS_PER_ADDRESS:
        raise PlanError(f"{len(usids)} uSIDs do not fit in one address (at most {USIDS_PER_ADDRESS})")
    value = LOCATOR
    for usid_ in usids:
        value = value << USID_BITS | usid_
    return value << USID_BITS * (USIDS_PER_ADDRESS - len(usids))


def usids_of(address: int) -> tuple[int, ...]:
    """The uSIDs of a carrier address up to the end marker."""
    out: list[int] = []
    for shift in range(128 - LOCATOR_BITS - USID_BITS, -1, -USID_BITS):
        usid_ = address >> shift & 0xFFFF
        if not usid_:
            break
        out.append(usid_)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class SegmentList:
    """A uSID list of any length: `carriers` in the order they are used, the first being the outer DA."""

    carriers: tuple[int, ...]

    @property
    def destination(self) -> int:
        """Outer destination address with which the packet leaves its source."""
        return self.carriers[0]

    @property
    def srh(self) -> tuple[int, ...]:
        """Segment List of the SRH, last address first (RFC 8754 §2), without the first carrier.

        That is the reduced form of RFC 8986 §5.2.

        Empty: no SRH. Segments Left starts at `len(srh)`; a switch that ends a carrier takes `srh[Segments Left - 1]`
        for the new DA and counts Segments Left down.
        """
        return self.carriers[:0:-1]

    @property
    def usids(self) -> tuple[int, ...]:
        return tuple(usid_ for address in self.carriers for usid_ in usids_of(address))


def segment_list(usids: Sequence[int], per_carrier: int = USIDS_PER_ADDRESS) -> SegmentList:
    """Cut a uSID list into carriers of at most `per_carrier` uSIDs.

    With fewer than six, a short path takes an SRH too: for tests. Raises PlanError for no or too many uSIDs.
    """
    if not 1 <= per_carrier <= USIDS_PER_ADDRESS:
        raise PlanError(f"{per_carrier} uSIDs in an address: give 1 to {USIDS_PER_ADDRESS}")
    if not usids or 0 in usids:
        raise PlanError(f"a uSID list has one uSID at least, and none of them is 0; got {[hex(u) for u in usids]}")
    cut = [carrier(*usids[offset : offset + per_carrier]) for offset in range(0, len(usids), per_carrier)]
    if len(cut) - 1 > SEGMENTS_MAX:
        raise PlanError(f"{len(usids)} uSIDs make {len(cut)} addresses, and an SRH holds {SEGMENTS_MAX}")
    return SegmentList(tuple(cut))


@dataclass(frozen=True, slots=True)
class AddressTemplate:
    """Outer destination address of a (source, destination) pair with plane and uplink left at zero (§8.2).

    `address(ev)` fills them in: 2 shifts and 2 ORs a packet, nothing stored per path.
    """

    base: int
    plane_unit: int
    """Sum of 1 << (bit of the plane nibble) over the uSIDs present: times the plane, ORed in."""
    uplink_shift: int | None
    """Bit of the T1 uSID's number; None inside a rack, where there is no T1."""

    def address(self, ev: int) -> int:
        """The 128-bit outer DA of `ev` as an integer."""
        value = self.base | self.plane_unit * ev_plane(ev)
        if self.uplink_shift is not None:
            value |= ev_uplink(ev) << self.uplink_shift
        return value


def template(usids: tuple[int, ...], uplink_at: int | None) -> AddressTemplate:
    """Return the template of uSIDs whose planes are 0.

    `uplink_at` is the index of the uSID that takes the uplink number.
    """
    shift = [128 - LOCATOR_BITS - USID_BITS * (i + 1) for i in range(len(usids))]
    return AddressTemplate(
        base=carrier(*usids),
        plane_unit=sum(1 << (low + 8) for low in shift),
        uplink_shift=None if uplink_at is None else shift[uplink_at],
    )
