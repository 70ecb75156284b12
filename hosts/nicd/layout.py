"""Layout of what libmrc and the NIC process share, as in hosts/libmrc/src/nicd.h.

The header owns the numbers; they are read from it, so that no second table can differ.
"""

from __future__ import annotations

import ipaddress
import re
from struct import Struct
from typing import Final, NamedTuple

from mrc_testbed.hosts.libmrc import WIRE_HEADER

_DEFINITION = re.compile(r"^#define NICD_(\w+) (0x[0-9a-f]+|\d+)\b", re.MULTILINE)
NUMBERS: Final = {name: int(number, 0) for name, number in _DEFINITION.findall(WIRE_HEADER.read_text())}
"""Numbers by their names in the header, without `NICD_`."""

MAGIC: Final = NUMBERS["MAGIC"]
VERSION: Final = NUMBERS["VERSION"]
MAX_VALUES: Final = NUMBERS["MAX_VALUES"]
MAX_TEXT: Final = NUMBERS["MAX_TEXT"]
PAGES_BYTES: Final = NUMBERS["PAGES_BYTES"]
SLOT_BYTES: Final = NUMBERS["SLOT_BYTES"]
SLOTS_AT: Final = NUMBERS["SLOTS_AT"]
TAIL_AT: Final = NUMBERS["TAIL_AT"]
HEAD_AT: Final = NUMBERS["HEAD_AT"]
ASLEEP_AT: Final = NUMBERS["ASLEEP_AT"]
SQ_SLOTS: Final = NUMBERS["SQ_SLOTS"]
SQ_BYTES: Final = SLOTS_AT + SQ_SLOTS * SLOT_BYTES
MAX_SGE: Final = NUMBERS["MAX_SGE"]
MAX_INLINE: Final = NUMBERS["MAX_INLINE"]
KIND_SEND: Final = NUMBERS["KIND_SEND"]
KIND_RECV: Final = NUMBERS["KIND_RECV"]
KIND_ARM: Final = NUMBERS["KIND_ARM"]
QP_VALUES: Final = NUMBERS["QP_VALUES"]
DEVICE_VALUES: Final = NUMBERS["DEVICE_VALUES"]
STATUS_VALUES: Final = NUMBERS["STATUS_VALUES"]
NAME_VALUES: Final = NUMBERS["NAME_VALUES"]
FIELD_VALUES: Final = NUMBERS["FIELD_VALUES"]
CC_VALUES: Final = NUMBERS["CC_VALUES"]
EV_ENTRY_VALUES: Final = NUMBERS["EV_ENTRY_VALUES"]
EV_VALUES: Final = NUMBERS["EV_VALUES"]
EP_VALUES: Final = NUMBERS["EP_VALUES"]

HEAD: Final = Struct("<IIII")
"""Header of a request or reply: magic, operation or errno, number of values, bytes of text."""
RECORD: Final = Struct("<IIIIQQIIIIIIQ")
"""struct nicd_record."""
SGE: Final = Struct("<QII")
"""struct nicd_sge."""
COMPLETION: Final = Struct("<QQIIIIIIIII12x")
"""struct nicd_completion."""
EV_EVENT: Final = Struct("<QQQIII28x")
"""struct nicd_ev_event."""
EP_COUNT: Final = Struct("<Q")
"""struct nicd_ep_outcome, before its responses."""
EP_RESPONSE: Final = Struct("<IIII")
"""struct nicd_ep_response."""
EVENT: Final = Struct("<II")
"""struct nicd_event."""


class Record(NamedTuple):
    """One record of a submission ring, as the program wrote it: nothing in it is checked yet."""

    kind: int
    slots: int
    number: int
    flags: int
    wr_id: int
    remote_addr: int
    rkey: int
    imm: int
    opcode: int
    sge_count: int
    inline_bytes: int
    padding: int
    serial: int


def numbers_of(prefix: str) -> dict[str, int]:
    """Return the numbers whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): number for name, number in NUMBERS.items() if name.startswith(prefix)}


def gid_halves(gid: str) -> tuple[int, int]:
    """Return an address as two numbers; IPv4 as ::ffff:a.b.c.d."""
    address = ipaddress.ip_address(gid)
    return halves(int(address) if address.version == 6 else 0xFFFF << 32 | int(address))


def gid_text(high: int, low: int) -> str:
    """Inverse of `gid_halves`."""
    address = ipaddress.IPv6Address(high << 64 | low)
    return str(address.ipv4_mapped or address)


def halves(number: int) -> tuple[int, int]:
    """Return the two values of a number of 128 bits."""
    return number >> 64, number & (1 << 64) - 1
