"""Codec between packet records and bytes, from the inner IP header up to the iCRC.

No scapy, no copies of payload.

The outer SRv6 header and Ethernet are the NIC's (their layouts are in headers.py). Everything received is hostile:
`Codec.decode` returns a record that passed every check below or raises WireError, nothing else::

    length of IP, UDP and headers exact; IPv4 without options or fragments; UDP port 4791 or 4971; UDP checksum
    zero or right; tver 0; a known opcode; pad right; iCRC right

A trimmed packet (told by its DSCP) has lost its tail and with it the iCRC: it is read up to METH and what is left of
TSETH, and its lengths may exceed what is there (§3.8, §4.3). Bit positions: headers.py; the hot paths repeat them as
struct formats.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.rocev2.rc_codec import RC_OPCODES, decode_rc, encode_rc
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcPacket, RcWrite
from mrc_testbed.hosts.engine.wire.headers import (
    AETH,
    BTH,
    CONTROL_HEADERS,
    EETH,
    ERTH,
    FTYPE_TIMESTAMP,
    IPV4,
    NETH,
    PETH,
    write_headers,
)
from mrc_testbed.hosts.engine.wire.icrc import IPV4_PREFIX, IPV6_PREFIX, LRH, icrc_ipv4, icrc_ipv6
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_CE,
    IMM_OPCODES,
    NOMINAL_OVERHEAD,
    WRITE_OPCODES,
    EndpointRequest,
    EndpointResponse,
    Envelope,
    Nack,
    NackReason,
    Opcode,
    Packet,
    PacketRecord,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.engine.wire.payload import buffer_of

UDP_PORTS: Final = frozenset((4791, 4971))
"""Destination ports accepted (§1.3)."""
PROTOCOL_UDP: Final = 17
IPV6_SIZE: Final = 40
IPV4_SIZE: Final = 20
UDP_SIZE: Final = 8
BTH_SIZE: Final = 12
ICRC_SIZE: Final = 4

_OPCODES: Final = {int(op): op for op in Opcode}
_RC_RECORDS: Final = (RcWrite, RcAck, Cnp)
_WRITE_SIZE: Final = {
    (op, ts): sum(layout.size for layout in write_headers(op, ts)) for op in WRITE_OPCODES for ts in (False, True)
}
_CONTROL_SIZE: Final = {
    op: sum(layout.size for layout in control_header) for op, control_header in CONTROL_HEADERS.items()
}

# Formats of the hot paths. First IPv6 word = version, traffic class, flow label; BTH = opcode, se/m/pad/tver, pkey,
# variant + dest_qp, a/r/rtx/ts + psn. tests/hosts/engine/wire/test_headers.py holds them against headers.py.
_IPV6_UDP_BTH: Final = Struct(">IHBB32sHHHHBBHII")
_IPV4_HEADER: Final = Struct(">BBHHHBBH8s")
_MASKED_UDP_BTH: Final = Struct(">HHHHBBHII")
_UDP_BTH: Final = Struct(">HHHHBBHII")
_IPV6_START: Final = Struct(">IHB")
_METH_TSETH_RETH: Final = Struct(">HHHHQII")
_METH_RETH: Final = Struct(">HHQII")
_METH_TSETH: Final = Struct(">HHHH")
_SETH_CC: Final = Struct(">HHIHHIBBhQHHI")
_WORD: Final = Struct(">I")
_HALF_WORD: Final = Struct(">H")
_ICRC: Final = Struct("<I")
_PADDING: Final = (b"", b"\0", b"\0\0", b"\0\0\0")

FLAG_A: Final = 0x80
FLAG_RTX: Final = 0x20
FLAG_TS: Final = 0x10
FLAG_SE: Final = 0x80
FLAGS_SE_OR_M: Final = 0xC0


class EncodedPacket(NamedTuple):
    """Packet of a codec in three pieces, to be gathered by sendmsg: nothing of the payload was copied."""

    header: bytes
    """Inner IP up to and including the last extension header."""
    payload: bytes | memoryview
    trailer: bytes
    """Padding and iCRC."""

    def join(self) -> bytes:
        return b"".join(self)

    @property
    def size(self) -> int:
        """Number of bytes of the inner packet."""
        return len(self.header) + len(self.payload) + len(self.trailer)


class Addressing:
    """Inner addresses of one direction between two ports, with what can be computed once for them.

    `source`, `destination`: 16 bytes (IPv6) or 4 bytes (IPv4) each. Raises ValueError for anything else.
    """

    __slots__ = ("_prefix_crc", "hop_limit", "is_ipv4", "pair")

    def __init__(self, source: bytes, destination: bytes, hop_limit: int = 64) -> None:
        if len(source) != len(destination) or len(source) not in (4, 16):
            raise ValueError(f"addresses of {len(source)} and {len(destination)} bytes: need 16 (IPv6) or 4 (IPv4)")
        self.pair = bytes(source) + bytes(destination)
        self.is_ipv4 = len(source) == 4
        self.hop_limit = hop_limit
        self._prefix_crc: dict[int, int] = {}

    def prefix_crc(self, length: int) -> int:
        """CRC register after LRH and the masked IPv6 header of a packet with that payload length."""
        crc = self._prefix_crc.get(length)
        if crc is None:
            masked_header = LRH + b"\x6f\xff\xff\xff" + _HALF_WORD.pack(length) + b"\x11\xff" + self.pair
            crc = self._prefix_crc[length] = crc32(masked_header)
        return crc


def ev_to_fields(ev: int, layout: str = "L") -> tuple[int, int]:
    """Return the (UDP source port, IPv6 flow label) that carry an EV (§1.4)."""
    low, high = ev & 0xFFFF, ev >> 16 & 0xFFFF
    return (low, high) if layout == "L" else (high, low)


def fields_to_ev(sport: int, flow_label: int, layout: str = "L") -> int:
    """Return the EV of a received packet; flow label bits 19:16 are ignored (§12 row 4).

    IPv4: give flow label 0.
    """
    label = flow_label & 0xFFFF
    return label << 16 | sport if layout == "L" else sport << 16 | label


def addresses(packet: bytes | memoryview) -> tuple[bytes, bytes]:
    """Return (source, destination) of an inner packet, for the NIC's checks.

    Raises WireError when there is no header.
    """
    version = packet[0] >> 4 if len(packet) else 0
    if version == 6 and len(packet) >= IPV6_SIZE:
        return bytes(packet[8:24]), bytes(packet[24:40])
    if version == 4 and len(packet) >= IPV4_SIZE:
        return bytes(packet[12:16]), bytes(packet[16:20])
    raise WireError(f"no IP header in {len(packet)} bytes")


def write_size(opcode: Opcode, payload: int, timestamp: bool) -> int:
    """Return the nominal size (UDP length + 40) of a write with that many payload bytes (§6.2)."""
    padded_size = payload + (-payload & 3)
    return UDP_SIZE + BTH_SIZE + _WRITE_SIZE[opcode, timestamp] + padded_size + ICRC_SIZE + NOMINAL_OVERHEAD


def nominal_size(config: Config) -> Callable[[Opcode, int, bool], int]:
    """Return a function for the nominal size of a write, by Config.qp.rcvd_counts (§12 row 15).

    Its arguments are those of write_size.
    """
    extra = NOMINAL_EXTRA[config.qp.rcvd_counts]
    return write_size if extra is None else lambda opcode, payload, timestamp: payload + extra


NOMINAL_EXTRA: Final[dict[str, int | None]] = {"udp+40": None, "payload+40": NOMINAL_OVERHEAD, "payload": 0}
"""Config.qp.rcvd_counts -> bytes added to the payload; None = the size on the wire counts."""


class Codec:
    """Encodes and decodes with one configuration. Keeps no state between packets."""

    __slots__ = ("_control", "_layout", "_pkey", "_ports", "_trimmed", "dport")

    def __init__(self, config: Config | None = None) -> None:
        config = config or Config()
        self.dport = config.wire.udp_dport
        self._ports = UDP_PORTS | {config.wire.udp_dport}
        self._layout = config.wire.ev_layout
        self._pkey = config.wire.pkey
        self._trimmed = {
            config.dscp.trimmed: NackReason.TRIMMED,
            config.dscp.trimmed_lasthop: NackReason.TRIMMED_LASTHOP,
        }

    # ---- encode -----------------------------------------------------------------------------------------

    def encode(self, record: PacketRecord, addressing: Addressing) -> EncodedPacket:
        """Encode a record; raises ValueError for values that fit no field (a bug of the caller)."""
        if type(record) is Write:
            return self._encode_write(record, addressing)
        if isinstance(record, _RC_RECORDS):
            return self._encode_rc(record, addressing)
        opcode, flags, psn, body = _control_body(record)
        header, crc = self._start(record, addressing, opcode, 0, flags, psn, len(body))
        return EncodedPacket(header + body, b"", _ICRC.pack(crc32(body, crc)))

    def _encode_write(self, record: Write, addressing: Addressing) -> EncodedPacket:
        opcode, payload = record.opcode, buffer_of(record.payload)
        pad = -len(payload) & 3
        timestamp = record.timestamp
        flags = (FLAG_A if record.ack_request else 0) | (FLAG_RTX if record.rtx else 0)
        if timestamp is None:
            body = _METH_RETH.pack(record.rqmsn, record.msn, record.va, record.rkey, record.dma_length)
        else:
            flags |= FLAG_TS
            body = _METH_TSETH_RETH.pack(
                record.rqmsn,
                record.msn,
                timestamp,
                record.tsr << 15 | FTYPE_TIMESTAMP,
                record.va,
                record.rkey,
                record.dma_length,
            )
        if opcode in IMM_OPCODES:
            body += _WORD.pack(record.imm)
        flags1 = (FLAG_SE if record.solicited else 0) | pad << 4
        length = len(body) + len(payload) + pad
        header, crc = self._start(record, addressing, opcode, flags1, flags, record.psn, length)
        crc = crc32(payload, crc32(body, crc))
        padding = _PADDING[pad]
        return EncodedPacket(header + body, payload, padding + _ICRC.pack(crc32(padding, crc) if pad else crc))

    def _encode_rc(self, record: RcPacket, addressing: Addressing) -> EncodedPacket:
        """Encode a packet of the baseline (rc_codec.py)."""
        opcode, variant, flags1, flags, psn, headers, payload = encode_rc(record)
        pad = -len(payload) & 3
        length = len(headers) + len(payload) + pad
        header, crc = self._start(record, addressing, opcode, flags1 | pad << 4, flags, psn, length)
        if variant:  # masked in the iCRC, so it can be set afterwards
            header = b"".join((header[:-8], bytes((variant,)), header[-7:]))
        crc = crc32(_PADDING[pad], crc32(payload, crc32(headers, crc)))
        return EncodedPacket(header + headers, payload, _PADDING[pad] + _ICRC.pack(crc))

    def _start(
        self, record: PacketRecord, addressing: Addressing, opcode: int, flags1: int, flags: int, psn: int, length: int
    ) -> tuple[bytes, int]:
        """IP, UDP and BTH in front of `length` bytes, and the CRC register after them."""
        length += UDP_SIZE + BTH_SIZE + ICRC_SIZE
        sport, label = ev_to_fields(record.ev, self._layout)
        dport, pkey, qpn = self.dport, self._pkey, record.dest_qp
        word = flags << 24 | psn
        traffic_class = record.dscp << 2 | record.ecn
        masked_udp = _MASKED_UDP_BTH.pack(sport, dport, length, 0xFFFF, opcode, flags1, pkey, 0xFF000000 | qpn, word)
        # The kept prefix CRC is for IPv6; the masked IPv4 header is summed anew.
        if addressing.is_ipv4:
            ip = _ipv4_header(traffic_class, length, addressing)
            udp = _UDP_BTH.pack(sport, dport, length, 0, opcode, flags1, pkey, qpn, word)
            masked_ip = b"".join((LRH, b"\x45\xff", ip[2:8], b"\xff\x11\xff\xff", addressing.pair))
            return ip + udp, crc32(masked_udp, crc32(masked_ip))
        header = _IPV6_UDP_BTH.pack(
            0x60000000 | traffic_class << 20 | label,
            length,
            PROTOCOL_UDP,
            addressing.hop_limit,
            addressing.pair,
            sport,
            dport,
            length,
            0,
            opcode,
            flags1,
            pkey,
            qpn,
            word,
        )
        return header, crc32(masked_udp, addressing.prefix_crc(length))

    # ---- decode -----------------------------------------------------------------------------------------

    def decode(  # noqa: C901 - the checks of one packet, in the order of its bytes
        self,
        packet: bytes | memoryview,
        plane: int = 0,
        outer_traffic_class: int | None = None,
        outer_label: int | None = None,
    ) -> Packet | RcPacket:
        """Return the record in an inner packet (IP header first).

        Raises WireError, and no other error.

        `outer_traffic_class`: of the outer header where there was one; its DSCP wins and CE counts in either (§1.2).
        `outer_label`: its flow label, which only a class WireVariants reads.
        A write's payload is a view into `packet`: use it before the buffer is used again.
        """
        if len(packet) < 1:
            raise WireError("empty packet")
        version = packet[0] >> 4
        if version == 6:
            ip, ev, traffic_class, length, is_udp = self._ipv6(packet)
        elif version == 4:
            ip, ev, traffic_class, length, is_udp = self._ipv4(packet)
        else:
            raise WireError(f"IP version {version}")
        if not is_udp:
            raise WireError("not UDP")
        dscp, ecn = traffic_class >> 2, traffic_class & 3
        # The outer DSCP wins, and CE is kept from either header (§1.2).
        if outer_traffic_class is not None:
            dscp = outer_traffic_class >> 2 & 0x3F
            ecn = ECN_CE if ECN_CE in (ecn, outer_traffic_class & 3) else outer_traffic_class & 3
        sport, dport, udp_length, checksum, opbyte, flags1, _, qpn, word = _UDP_BTH.unpack_from(packet, ip)
        if dport not in self._ports:
            raise WireError(f"UDP port {dport}")
        if udp_length != length:
            raise WireError(f"UDP length {udp_length} in {length} bytes of IP payload")
        opcode = _OPCODES.get(opbyte)  # None: the baseline's
        if opcode is None and opbyte not in RC_OPCODES:
            raise WireError(f"opcode {opbyte:#04x}")
        if flags1 & 0x0F:
            raise WireError(f"tver {flags1 & 0x0F}")
        if self._layout == "L":
            ev |= sport
        else:
            ev = sport << 16 | ev >> 16
        envelope = (qpn & 0xFFFFFF, ev, plane, dscp, ecn)
        body = ip + UDP_SIZE + BTH_SIZE
        present = len(packet) - ip
        trimmed = self._trimmed.get(dscp)
        # A trimmed packet lost its tail with the iCRC; its lengths are those of the whole one (§4.3).
        if trimmed is not None:
            if present > length:
                raise WireError(f"{present} bytes behind an IP header that announces {length}")
            if opcode is None:
                raise WireError(f"{RC_OPCODES[opbyte].name} with a TRIMMED codepoint: only data packets are trimmed")
            return _decode_trimmed(packet, body, opcode, flags1, word, envelope, length, trimmed)
        if present != length:
            raise WireError(f"{present} bytes behind an IP header that announces {length}")
        if length < UDP_SIZE + BTH_SIZE + ICRC_SIZE:
            raise WireError(f"{length} bytes have no room for an iCRC")
        # Zero: the sender computed none.
        if checksum and udp_checksum(packet, ip, version):
            raise WireError("UDP checksum")
        view = memoryview(packet)
        crc = (icrc_ipv6 if version == 6 else icrc_ipv4)(view[:-ICRC_SIZE])
        if crc != _ICRC.unpack_from(packet, len(packet) - ICRC_SIZE)[0]:
            raise WireError("iCRC")
        if opcode is None:
            return decode_rc(view, body, RC_OPCODES[opbyte], flags1, word, envelope, length)
        if opcode in WRITE_OPCODES:
            return _decode_write(view, body, opcode, flags1, word, envelope, length)
        if flags1 & 0x30 or len(packet) - ICRC_SIZE - body != _CONTROL_SIZE[opcode]:
            raise WireError(f"{opcode.name}: {len(packet) - ICRC_SIZE - body} bytes after BTH, pad {flags1 >> 4 & 3}")
        return _DECODERS[opcode](packet, body, word, envelope)

    @staticmethod
    def _ipv6(packet: bytes | memoryview) -> tuple[int, int, int, int, bool]:
        """Return header size, EV half of the flow label << 16, traffic class, IP payload length, is UDP.

        Raises WireError when the packet is too short.
        """
        if len(packet) < IPV6_PREFIX:
            raise WireError(f"{len(packet)} bytes are too few for IPv6, UDP and BTH")
        word, length, next_header = _IPV6_START.unpack_from(packet)
        return IPV6_SIZE, (word & 0xFFFF) << 16, word >> 20 & 0xFF, length, next_header == PROTOCOL_UDP

    @staticmethod
    def _ipv4(packet: bytes | memoryview) -> tuple[int, int, int, int, bool]:
        """Return the five values of _ipv6; half the EV stays zero, for IPv4 has no flow label (§1.4)."""
        if len(packet) < IPV4_PREFIX:
            raise WireError(f"{len(packet)} bytes are too few for IPv4, UDP and BTH")
        ip = IPV4.unpack(packet)
        if ip["ihl"] != 5 or ip["flags"] & 1 or ip["fragment_offset"]:
            raise WireError("IPv4 with options or fragmented")
        if _ones_sum(packet[:IPV4_SIZE]) != 0xFFFF:
            raise WireError("IPv4 header checksum")
        traffic_class = ip["dscp"] << 2 | ip["ecn"]
        return IPV4_SIZE, 0, traffic_class, ip["total_length"] - IPV4_SIZE, ip["protocol"] == PROTOCOL_UDP


# ---- IPv4 and checksums -----------------------------------------------------------------------------------


def _ipv4_header(traffic_class: int, length: int, addressing: Addressing) -> bytes:
    """20 bytes: no options, don't fragment, identification 0."""
    fields = (0x45, traffic_class, IPV4_SIZE + length, 0, 0x4000, addressing.hop_limit, PROTOCOL_UDP)
    checksum = ~_ones_sum(_IPV4_HEADER.pack(*fields, 0, addressing.pair)) & 0xFFFF
    return _IPV4_HEADER.pack(*fields, checksum, addressing.pair)


def _ones_sum(data: bytes | memoryview) -> int:
    """Return the 16-bit one's complement sum of `data` (padded to even length).

    0xFFFF over data with a right checksum.
    """
    number = int.from_bytes(bytes(data) + b"\0" * (len(data) & 1), "big")
    # 2**16 = 1 modulo 0xFFFF, so the sum of the 16-bit words is the remainder of the whole number.
    return (number % 0xFFFF or 0xFFFF) if number else 0


def udp_checksum(packet: bytes | bytearray | memoryview, ip: int, version: int) -> int:
    """Return the UDP checksum over pseudo header and datagram, checksum field included; 0: right."""
    pair = packet[8:40] if version == 6 else packet[12:20]
    length = len(packet) - ip
    pseudo = bytes(pair) + _WORD.pack(length) + _WORD.pack(PROTOCOL_UDP)
    return ~_ones_sum(pseudo + bytes(packet[ip:])) & 0xFFFF


# ---- data packets -----------------------------------------------------------------------------------------


def _decode_write(
    view: memoryview, body_offset: int, opcode: Opcode, flags1: int, word: int, envelope: Envelope, length: int
) -> Write:
    timestamp, tsr, imm = None, 0, 0
    has_timestamp = bool(word >> 24 & FLAG_TS)
    start = body_offset + _WRITE_SIZE[opcode, has_timestamp]
    # The view ends with padding and iCRC; the iCRC was checked by the caller.
    pad = flags1 >> 4 & 3
    end = len(view) - ICRC_SIZE - pad
    if end < start:
        raise WireError(
            f"{opcode.name}: headers need {start - body_offset} bytes, {len(view) - ICRC_SIZE - body_offset} are there"
        )
    if end - start + pad & 3:
        raise WireError(f"{opcode.name}: pad {pad} after {end - start} bytes")
    if has_timestamp:
        rqmsn, msn, timestamp, tail, va, rkey, dma_length = _METH_TSETH_RETH.unpack_from(view, body_offset)
        tsr = tail >> 15
    else:
        rqmsn, msn, va, rkey, dma_length = _METH_RETH.unpack_from(view, body_offset)
    if opcode in IMM_OPCODES:
        imm = _WORD.unpack_from(view, start - 4)[0]
    flags = word >> 24
    return Write(
        *envelope,
        opcode,
        word & 0xFFFFFF,
        msn,
        va,
        rkey,
        dma_length,
        view[start:end],
        length + NOMINAL_OVERHEAD,
        rqmsn,
        imm,
        timestamp,
        tsr,
        flags & FLAG_A != 0,
        flags & FLAG_RTX != 0,
        flags1 & FLAGS_SE_OR_M != 0,
    )


def _decode_trimmed(
    packet: bytes | memoryview,
    body_offset: int,
    opcode: Opcode,
    flags1: int,
    word: int,
    envelope: Envelope,
    length: int,
    reason: NackReason,
) -> Write:
    """Decode the rest of a trimmed write: BTH, METH and TSETH; RETH is not looked at (§4.3).

    A switch may cut in front of TSETH (78 and 118 bytes there): the record then has no timestamp, as of a packet that
    never had one.
    """
    if opcode not in WRITE_OPCODES:
        raise WireError(f"{opcode.name} with a TRIMMED codepoint: only data packets are trimmed")
    flags = word >> 24
    if len(packet) < body_offset + _SHORT_METH.size:
        raise WireError(f"trimmed {opcode.name} of {len(packet)} bytes ends before its METH does")
    timestamp, tsr = None, 0
    # The switch may have cut the frame in front of TSETH.
    if flags & FLAG_TS and len(packet) >= body_offset + _METH_TSETH.size:
        rqmsn, msn, timestamp, tail = _METH_TSETH.unpack_from(packet, body_offset)
        tsr = tail >> 15
    else:
        rqmsn, msn = _SHORT_METH.unpack_from(packet, body_offset)
    return Write(
        *envelope,
        opcode,
        word & 0xFFFFFF,
        msn,
        0,
        0,
        0,
        b"",
        length + NOMINAL_OVERHEAD,
        rqmsn,
        0,
        timestamp,
        tsr,
        flags & FLAG_A != 0,
        flags & FLAG_RTX != 0,
        flags1 & FLAGS_SE_OR_M != 0,
        reason,
    )


_SHORT_METH: Final = Struct(">HH")


# ---- packets without data ---------------------------------------------------------------------------------


def _control_body(record: PacketRecord) -> tuple[Opcode, int, int, bytes]:
    """Return (opcode, BTH byte 8, BTH PSN, bytes after BTH) of a record without data (§2.13)."""
    try:
        return _BODIES[type(record)](record)
    except KeyError:
        raise ValueError(f"{type(record).__name__} is no packet record") from None


def _sack_body(p: Sack) -> tuple[Opcode, int, int, bytes]:
    probe = p.probe_id is not None
    body = _SETH_CC.pack(
        p.verdict << 5 | probe << 1,
        p.probe_id if probe else p.ack_psn_offset & 0xFFFF,
        p.entropy,
        p.spdcid,
        p.dpdcid,
        p.cack_psn,
        p.cc_type << 4,
        p.mpr,
        p.sack_offset,
        p.bitmap,
        p.timestamp,
        p.ooo_count,
        p.restore_cwnd << 31 | p.penalty << 24 | p.rcvd_units,
    )
    return Opcode.SACK, FLAG_RTX if p.rtx else 0, p.cack_psn, body


def _nack_body(p: Nack) -> tuple[Opcode, int, int, bytes]:
    body = NETH.pack(
        {
            "reason": p.reason,
            "entropy": p.entropy,
            "spdcid": p.spdcid,
            "dpdcid": p.dpdcid,
            "nack_psn": p.psn,
            "cc_type": p.cc_type,
            "tx_timestamp": p.timestamp,
        }
    )
    return Opcode.NACK, 0, p.psn, body


def _ack_body(p: TransportAck) -> tuple[Opcode, int, int, bytes]:
    return Opcode.ACKNOWLEDGE, 0, p.psn, AETH.pack({"syndrome": p.syndrome, "msn": p.msn})


def _probe_body(p: ReliabilityProbe) -> tuple[Opcode, int, int, bytes]:
    body = PETH.pack(
        {
            "probe_id": p.probe_id,
            "spdcid": p.spdcid,
            "dpdcid": p.dpdcid,
            "tx_timestamp": p.timestamp or 0,
            "tsr": p.tsr,
            "ftype": FTYPE_TIMESTAMP,
        }
    )
    return Opcode.RELIABILITY_PROBE, FLAG_RTX if p.rtx else 0, 0, body


def _request_body(p: EndpointRequest) -> tuple[Opcode, int, int, bytes]:
    body = ERTH.pack(
        {
            "op": p.op,
            "port_status_mask": p.port_mask,
            "tx_timestamp": p.timestamp or 0,
            "tsr": p.tsr,
            "ftype": FTYPE_TIMESTAMP,
        }
    )
    return Opcode.ENDPOINT_REQUEST, FLAG_RTX if p.rtx else 0, p.request_id, body


def _response_body(p: EndpointResponse) -> tuple[Opcode, int, int, bytes]:
    return Opcode.ENDPOINT_RESPONSE, 0, p.request_id, EETH.pack({"op": p.op, "tx_timestamp": p.timestamp})


_BODIES: Final[dict[type, Callable[[Any], tuple[Opcode, int, int, bytes]]]] = {
    Sack: _sack_body,
    Nack: _nack_body,
    TransportAck: _ack_body,
    ReliabilityProbe: _probe_body,
    EndpointRequest: _request_body,
    EndpointResponse: _response_body,
}


def _decode_sack(packet: bytes | memoryview, body_offset: int, word: int, envelope: Envelope) -> Sack:
    (flags, offset, entropy, spdcid, dpdcid, cack, cc, mpr, sack_offset, bitmap, timestamp, ooo, tail) = (
        _SETH_CC.unpack_from(packet, body_offset)
    )
    probe = flags & 0x02
    signed = offset - 0x10000 if offset & 0x8000 else offset
    return Sack(
        *envelope,
        cack & 0xFFFFFF,
        sack_offset,
        bitmap,
        0 if probe else signed,
        offset if probe else None,
        entropy,
        flags >> 5 & 3,
        timestamp,
        tail & 0xFFFFFF,
        ooo & 0x7FFF,
        mpr,
        tail >> 24 & 0x7F,
        tail >> 31 != 0,
        word >> 24 & FLAG_RTX != 0,
        spdcid,
        dpdcid,
        cc >> 4,
    )


def _decode_nack(packet: bytes | memoryview, body_offset: int, word: int, envelope: Envelope) -> Nack:
    h = NETH.unpack(packet, body_offset)
    return Nack(
        *envelope, h["nack_psn"], h["reason"], h["entropy"], h["tx_timestamp"], h["spdcid"], h["dpdcid"], h["cc_type"]
    )


def _decode_ack(packet: bytes | memoryview, body_offset: int, word: int, envelope: Envelope) -> TransportAck:
    h = AETH.unpack(packet, body_offset)
    return TransportAck(*envelope, word & 0xFFFFFF, h["syndrome"], h["msn"])


def _decode_probe(packet: bytes | memoryview, body_offset: int, word: int, envelope: Envelope) -> ReliabilityProbe:
    h = PETH.unpack(packet, body_offset)
    return ReliabilityProbe(
        *envelope, h["probe_id"], h["tx_timestamp"], h["tsr"], h["spdcid"], h["dpdcid"], word >> 24 & FLAG_RTX != 0
    )


def _decode_request(packet: bytes | memoryview, body_offset: int, word: int, envelope: Envelope) -> EndpointRequest:
    h = ERTH.unpack(packet, body_offset)
    return EndpointRequest(
        *envelope,
        word & 0xFFFF,
        h["op"],
        h["port_status_mask"],
        h["tx_timestamp"],
        h["tsr"],
        word >> 24 & FLAG_RTX != 0,
    )


def _decode_response(packet: bytes | memoryview, body_offset: int, word: int, envelope: Envelope) -> EndpointResponse:
    h = EETH.unpack(packet, body_offset)
    return EndpointResponse(*envelope, word & 0xFFFF, h["op"], h["tx_timestamp"])


_DECODERS: Final[dict[Opcode, Callable[[bytes | memoryview, int, int, Envelope], Packet]]] = {
    Opcode.SACK: _decode_sack,
    Opcode.NACK: _decode_nack,
    Opcode.ACKNOWLEDGE: _decode_ack,
    Opcode.RELIABILITY_PROBE: _decode_probe,
    Opcode.ENDPOINT_REQUEST: _decode_request,
    Opcode.ENDPOINT_RESPONSE: _decode_response,
}

assert BTH.size == BTH_SIZE and IPV4.size == IPV4_SIZE
