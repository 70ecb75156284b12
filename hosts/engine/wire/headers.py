"""Layouts of every header on our wires: tables of (field, bits), most significant bit first.

No other module has layouts.

`Layout` packs and unpacks any of them through one big integer: exact, and quick enough for control packets. The
two hot paths of codec.py (writes and SACKs) use struct formats instead, and the tests hold those against these
tables. Fields named `res*` are reserved: sent as zero, ignored when received.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mrc_testbed.hosts.engine.wire.packets import Opcode


class Layout:
    """A header: its fields in wire order. `size` is in bytes; widths must add up to whole bytes."""

    __slots__ = ("_fields", "bits", "name", "size")

    def __init__(self, name: str, fields: Iterable[tuple[str, int]]) -> None:
        self.name = name
        self.bits: dict[str, int] = {}
        for field, bits in fields:
            if field in self.bits:
                raise ValueError(f"{name}: field {field} appears twice")
            self.bits[field] = bits
        total = sum(self.bits.values())
        if total % 8:
            raise ValueError(f"{name}: {total} bits are no whole bytes")
        self.size = total // 8
        self._fields = []
        low = total
        for field, bits in self.bits.items():
            low -= bits
            self._fields.append((field, low, (1 << bits) - 1))

    def pack(self, values: Mapping[str, int]) -> bytes:
        """Return the bytes of the header; fields not given are zero.

        Raises ValueError for a value that does not fit.
        """
        number = 0
        for field, low, mask in self._fields:
            value = values.get(field, 0)
            if value & ~mask:
                raise ValueError(f"{self.name}.{field} = {value:#x} does not fit {mask.bit_length()} bits")
            number |= value << low
        return number.to_bytes(self.size, "big")

    def unpack(self, buffer: bytes | memoryview, offset: int = 0) -> dict[str, int]:
        """Fields of the header at `offset`. Raises ValueError when the buffer ends before it does."""
        end = offset + self.size
        if len(buffer) < end:
            raise ValueError(f"{self.name} needs {self.size} bytes, {max(0, len(buffer) - offset)} are left")
        number = int.from_bytes(buffer[offset:end], "big")
        return {field: number >> low & mask for field, low, mask in self._fields}


ETHERNET: Final = Layout("Ethernet", [("destination", 48), ("source", 48), ("ethertype", 16)])

IPV6: Final = Layout(
    "IPv6",
    [
        ("version", 4),
        ("dscp", 6),
        ("ecn", 2),
        ("flow_label", 20),
        ("payload_length", 16),
        ("next_header", 8),
        ("hop_limit", 8),
        ("source", 128),
        ("destination", 128),
    ],
)
"""Inner header, and the outer one of SRv6 mode (next_header 41)."""

IPV4: Final = Layout(
    "IPv4",
    [
        ("version", 4),
        ("ihl", 4),
        ("dscp", 6),
        ("ecn", 2),
        ("total_length", 16),
        ("identification", 16),
        ("flags", 3),
        ("fragment_offset", 13),
        ("ttl", 8),
        ("protocol", 8),
        ("checksum", 16),
        ("source", 32),
        ("destination", 32),
    ],
)

UDP: Final = Layout("UDP", [("sport", 16), ("dport", 16), ("length", 16), ("checksum", 16)])

BTH: Final = Layout(
    "BTH",
    [
        ("opcode", 8),
        ("se", 1),
        ("m", 1),
        ("pad", 2),
        ("tver", 4),
        ("pkey", 16),
        ("res_variant", 8),
        ("dest_qp", 24),
        ("a", 1),
        ("res_r", 1),
        ("rtx", 1),
        ("ts", 1),
        ("res", 4),
        ("psn", 24),
    ],
)
"""§2.2. `res_variant` is left out of the iCRC."""

METH: Final = Layout("METH", [("rqmsn", 16), ("msn", 16)])
TSETH: Final = Layout("TSETH", [("tx_timestamp", 16), ("tsr", 1), ("res", 11), ("ftype", 4)])
RETH: Final = Layout("RETH", [("va", 64), ("rkey", 32), ("dma_length", 32)])
IMMDT: Final = Layout("ImmDt", [("imm", 32)])
AETH: Final = Layout("AETH", [("syndrome", 8), ("msn", 24)])

SETH: Final = Layout(
    "SETH",
    [
        ("type", 4),
        ("nh", 5),
        ("m", 2),
        ("res_r", 3),
        ("pr", 1),
        ("res_r0", 1),
        ("ack_psn_offset", 16),
        ("entropy", 32),
        ("spdcid", 16),
        ("dpdcid", 16),
        ("res", 8),
        ("cack_psn", 24),
        ("cc_type", 4),
        ("cc_fl", 4),
        ("mpr", 8),
        ("sack_offset", 16),
        ("sack_bitmap", 64),
    ],
)
"""§2.8. The two offsets are two's complement; with pr = 1 `ack_psn_offset` is the probe id."""

CC_STATE: Final = Layout(
    "CC_STATE",
    [
        ("tx_timestamp", 16),
        ("res_r", 1),
        ("ooo_count", 15),
        ("restore_cwnd", 1),
        ("rcv_cwnd_pen", 7),
        ("rcvd_bytes", 24),
    ],
)

NETH: Final = Layout(
    "NETH",
    [
        ("type", 4),
        ("nh", 5),
        ("res0", 7),
        ("reason", 8),
        ("vendor_info", 8),
        ("entropy", 32),
        ("spdcid", 16),
        ("dpdcid", 16),
        ("res", 8),
        ("nack_psn", 24),
        ("cc_type", 4),
        ("cc_fl", 4),
        ("res1", 8),
        ("tx_timestamp", 16),
    ],
)

PETH: Final = Layout(
    "PETH",
    [
        ("type", 4),
        ("nh", 5),
        ("res0", 7),
        ("res1", 8),
        ("vendor_info", 8),
        ("probe_id", 16),
        ("res2", 16),
        ("spdcid", 16),
        ("dpdcid", 16),
        ("tx_timestamp", 16),
        ("tsr", 1),
        ("res3", 11),
        ("ftype", 4),
    ],
)

ERTH: Final = Layout(
    "ERTH",
    [
        ("type", 4),
        ("nh", 5),
        ("res0", 5),
        ("op", 2),
        ("res1", 8),
        ("vendor_info", 8),
        ("port_status_mask", 32),
        ("res2", 32),
        ("tx_timestamp", 16),
        ("tsr", 1),
        ("res3", 11),
        ("ftype", 4),
    ],
)

EETH: Final = Layout(
    "EETH",
    [
        ("type", 4),
        ("nh", 5),
        ("res_r", 3),
        ("op", 2),
        ("res_r0", 2),
        ("res0", 16),
        ("res1", 192),
        ("tx_timestamp", 16),
        ("res2", 16),
        ("res3", 32),
    ],
)
"""§2.12; op at bits 3:2 of byte 1 (§12 row 6)."""

FTYPE_TIMESTAMP: Final = 1
"""ftype of a timestamp in TSETH, PETH and ERTH (§2.4)."""

CONTROL_HEADERS: Final[dict[Opcode, tuple[Layout, ...]]] = {
    Opcode.ACKNOWLEDGE: (AETH,),
    Opcode.ENDPOINT_REQUEST: (ERTH,),
    Opcode.ENDPOINT_RESPONSE: (EETH,),
    Opcode.SACK: (SETH, CC_STATE),
    Opcode.NACK: (NETH,),
    Opcode.RELIABILITY_PROBE: (PETH,),
}
"""Headers after BTH of the packets that carry no data (§2.1)."""


def write_headers(opcode: Opcode, timestamp: bool) -> tuple[Layout, ...]:
    """Headers after BTH of a data packet: METH, [TSETH], RETH, [ImmDt] (§2.1)."""
    imm = (IMMDT,) if opcode in (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM) else ()
    return (METH, *((TSETH,) if timestamp else ()), RETH, *imm)
