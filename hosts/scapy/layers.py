"""Scapy layers for every MRC header, to look at and to forge packets (mrc-protocol §1, §2, §3, §8).

    Ether / USidCarrier / IPv6 / UDP / BTH / METH [/ TSETH] / RETH [/ ImmDt] / Raw / ICRC      a write
    Ether / USidCarrier / IPv6 / UDP / BTH / SETH / CCState / ICRC                             a SACK

Importing this module binds BTH to UDP ports 4791 and 4971 before anything else scapy knows (its own
contrib.roce, or DNS when an EV happens to give source port 53), and USidCarrier to IPv6 packets whose
destination lies in the locator. `show()` names opcodes, verdicts, reasons and port masks, and reads the outer
address as uSIDs.

Layers show whatever arrives, right or wrong; the strict check is the codec's (hosts/scapy/codec.py). All fields
are in network order except the iCRC, which travels least significant byte first (§3).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    DestIP6Field,
    IntField,
    ShortField,
    SignedShortField,
    StrField,
    ThreeBytesField,
    X3BytesField,
    XBitField,
    XByteField,
    XIntField,
    XLEIntField,
    XLongField,
    XShortField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import CookedLinux, Ether
from scapy.packet import Packet, bind_layers, split_layers

from mrc_testbed.topologies import plan

UDP_PORTS = (4791, 4971)
"""RoCEv2's port, which we send, and the one the specification prints, which we accept too (§1.3)."""
ICRC_BYTES = 4

OPCODES = {
    0xC6: "WRITE_FIRST",
    0xC7: "WRITE_MIDDLE",
    0xC8: "WRITE_LAST",
    0xC9: "WRITE_LAST_IMM",
    0xCA: "WRITE_ONLY",
    0xCB: "WRITE_ONLY_IMM",
    0xD1: "ACKNOWLEDGE",
    0xD8: "ENDPOINT_REQUEST",
    0xD9: "ENDPOINT_RESPONSE",
    0xDC: "SACK",
    0xDD: "NACK",
    0xDE: "RELIABILITY_PROBE",
    0x06: "RC_WRITE_FIRST",  # from here: RoCEv2 RC, the baseline
    0x07: "RC_WRITE_MIDDLE",
    0x08: "RC_WRITE_LAST",
    0x09: "RC_WRITE_LAST_IMM",
    0x0A: "RC_WRITE_ONLY",
    0x0B: "RC_WRITE_ONLY_IMM",
    0x11: "RC_ACKNOWLEDGE",
    0x81: "CNP",
}
WRITES = range(0xC6, 0xCC)
WITH_IMMEDIATE = (0xC9, 0xCB, 0x09, 0x0B)
VERDICTS = {0: "NONE", 1: "SKIP_ONCE", 2: "ALWAYS_SKIP", 3: "reserved"}
REASONS = {
    0x01: "TRIMMED",
    0x02: "TRIMMED_LASTHOP",
    0x06: "NO_BITMAP",
    0x07: "NO_PKT_BUFFER",
    0x0A: "NO_RESOURCE",
    0x0B: "PSN_OOR_WINDOW",
    0x19: "UNEXP_EVENT",
}
SYNDROMES = {
    0x1F: "ACK",
    **{0x20 + code: f"RNR NAK, timer {code}" for code in range(32)},  # RC only, as 0x60
    0x60: "NAK PSN sequence error",
    0x61: "NAK invalid request",
    0x62: "NAK remote access error",
    0x63: "NAK remote operational error",
}
ENDPOINT_OPS = {0: "PORT_STATUS_UPDATE", 1: "EV_PROBE"}
TIMESTAMP_TYPES = {0: "none", 1: "timestamp"}
DSCP_NAMES = {
    0: "NO_TRIM",
    4: "TRIMMABLE",
    8: "TRIMMABLE_RETX",
    12: "TRIMMED",
    16: "TRIMMED_LASTHOP",
    46: "CONTROL",
}
ECN_NAMES = {0: "Not-ECT", 1: "ECT(1)", 2: "ECT(0)", 3: "CE"}
USID_ROLES = {plan.ROLE_T1: "T1", plan.ROLE_T0: "T0", plan.ROLE_DOWNLINK: "NIC"}


def traffic_class_text(value: int) -> str:
    """Return `0x12 (TRIMMABLE, ECT(0))` for an IPv6 traffic class (§4.1)."""
    return f"{value:#04x} ({DSCP_NAMES.get(value >> 2, f'DSCP {value >> 2}')}, {ECN_NAMES[value & 3]})"


def usid_text(packed: bytes) -> str:
    """Return the uSIDs of a carrier address in words: `T0 1, T1 5, T0 2, NIC 11; plane 3` (§8.3)."""
    words, planes = [], set()
    for (usid,) in struct.iter_unpack("!H", packed[4:]):
        if not usid:
            break
        words.append(f"{USID_ROLES.get(usid >> 12, f'role {usid >> 12:#x}')} {usid & 0xFF}")
        planes.add(usid >> 8 & 0xF)
    plane_text = f"plane {planes.pop()}" if len(planes) == 1 else f"planes {', '.join(map(str, sorted(planes)))}"
    return f"{', '.join(words)}; {plane_text}" if words else "no uSID"


class TrafficClassField(BitField):
    """IPv6 traffic class that shows its DSCP and ECN by name."""

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        return traffic_class_text(x) if isinstance(x, int) else repr(x)


class USidAddressField(DestIP6Field):
    """IPv6 destination that shows the uSIDs it carries beside the address."""

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        text = super().i2repr(pkt, x)
        return f"{text} [{usid_text(self.i2m(pkt, x))}]" if isinstance(x, str) else text


class PortMaskField(IntField):
    """32-bit mask, bit p = port of plane p, 1 = usable (§5.12)."""

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        if not isinstance(x, int):
            return repr(x)
        up_planes = [str(p) for p in range(32) if x >> p & 1]
        return f"{x:#010x} (up: {', '.join(up_planes) or 'none'})"


class SackBitmapField(XLongField):
    """64-bit SACK bitmap; bit i stands for PSN cack_psn + sack_offset + i (§2.8)."""

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        if not isinstance(x, int):
            return repr(x)
        first = pkt.cack_psn + pkt.sack_offset if pkt else 0
        psns = [str((first + i) % (1 << 24)) for i in range(64) if x >> i & 1]
        ellipsis = f", {len(psns) - 6} more" if len(psns) > 6 else ""
        return f"{x:#018x} (received: {', '.join(psns[:6]) or 'none'}{ellipsis})"


class USidCarrier(IPv6):
    """Outer IPv6 header whose destination is a uSID list (§8.1). 40 bytes, next header 41; no SRH."""

    name = "SRv6 uSID carrier"
    fields_desc = [
        BitField("version", 6, 4),
        TrafficClassField("tc", 0, 8),
        XBitField("fl", 0, 20),
        ShortField("plen", None),
        ByteEnumField("nh", 41, {41: "IPv6"}),
        ByteField("hlim", 64),
        IPv6.fields_desc[6],
        USidAddressField("dst", "fcbb:bb00::"),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> type[Packet]:
        """Return a carrier only when it carries IPv6 to the locator; other IPv6 packets stay scapy's IPv6."""
        if _pkt is None or (_pkt[6:7] == b"\x29" and _pkt[24:28] == plan.LOCATOR.to_bytes(4, "big")):
            return cls
        return IPv6


class BTH(Packet):
    """Base transport header with MRC's flag byte (§2.2), 12 bytes; computes the packet's iCRC."""

    name = "MRC BTH"
    fields_desc = [
        ByteEnumField("opcode", 0xCA, OPCODES),
        BitField("se", 0, 1),
        BitField("migreq", 0, 1),
        BitField("pad", 0, 2),  # bytes of padding before the iCRC
        BitField("tver", 0, 4),
        XShortField("pkey", 0xFFFF),
        XByteField("variant", 0),  # masked in the iCRC
        X3BytesField("dqpn", 0),
        BitField("a", 0, 1),
        BitField("r", 0, 1),
        BitField("rtx", 0, 1),
        BitField("ts", 0, 1),  # TSETH follows METH
        BitField("reserved", 0, 4),
        ThreeBytesField("psn", 0),
    ]

    def mysummary(self) -> str:
        return self.sprintf("MRC %BTH.opcode% qp %BTH.dqpn% psn %BTH.psn%")

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        first = METH if self.opcode in WRITES else AFTER_BTH.get(self.opcode)
        return first or super().guess_payload_class(payload)

    def dissect(self, s: bytes) -> None:
        """Cut padding and iCRC off the end, unless the frame is shorter than UDP says: a trimmed one has none."""
        remainder = self.post_dissect(self.do_dissect(self.pre_dissect(s)))
        self.raw_packet_cache = None  # always build again, so that setting `icrc` to None has it computed
        udp_len = getattr(self.underlayer, "len", None)
        whole = udp_len is None or udp_len - 8 <= len(s)
        trailer = ICRC_BYTES + self.pad
        if not whole or len(remainder) < trailer:
            self.do_dissect_payload(remainder)
            return
        self.do_dissect_payload(remainder[:-trailer])
        self.add_payload(
            ICRC(pad=remainder[-trailer:-ICRC_BYTES], icrc=struct.unpack("<I", remainder[-ICRC_BYTES:])[0])
        )

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        body = pkt + pay
        last = self.lastlayer()
        if isinstance(last, ICRC) and last.icrc is None:
            body = body[:-ICRC_BYTES] + struct.pack("<I", icrc_of(self, body[:-ICRC_BYTES]) or 0)
        return body


class METH(Packet):
    """Message numbers of a request (§2.3). 4 bytes."""

    name = "MRC METH"
    fields_desc = [ShortField("rqmsn", 0), ShortField("msn", 0)]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return TSETH if isinstance(self.underlayer, BTH) and self.underlayer.ts else RETH


class TSETH(Packet):
    """Transmit timestamp (§2.4). 4 bytes."""

    name = "MRC TSETH"
    fields_desc = [
        XShortField("tx_timestamp", 0),
        BitEnumField("tsr", 0, 1, {0: "128 ns", 1: "own unit"}),
        BitField("reserved", 0, 11),
        BitEnumField("ftype", 1, 4, TIMESTAMP_TYPES),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return RETH


class RETH(Packet):
    """Target address of this packet's bytes, and length of the whole message (§2.5). 16 bytes."""

    name = "MRC RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), IntField("dma_length", 0)]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        bth: Packet | None = self
        while bth is not None and not isinstance(bth, BTH):
            bth = bth.underlayer
        return ImmDt if bth is not None and bth.opcode in WITH_IMMEDIATE else super().guess_payload_class(payload)


class ImmDt(Packet):
    """Immediate value (§2.6). 4 bytes."""

    name = "MRC ImmDt"
    fields_desc = [XIntField("immediate", 0)]


class AETH(Packet):
    """Transport ACK or NAK (§2.7). 4 bytes; `msn` counts messages completed in order."""

    name = "MRC AETH"
    fields_desc = [ByteEnumField("syndrome", 0x1F, SYNDROMES), ThreeBytesField("msn", 0)]


class SETH(Packet):
    """Received PSNs, and the verdict on one EV (§2.8). 28 bytes; CCState follows."""

    name = "MRC SETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nh", 0, 5),
        BitEnumField("m", 0, 2, VERDICTS),
        BitField("reserved1", 0, 3),
        BitField("pr", 0, 1),  # answers a reliability probe
        BitField("reserved2", 0, 1),
        ConditionalField(SignedShortField("ack_psn_offset", 0), lambda p: not p.pr),
        ConditionalField(XShortField("probe_id", 0), lambda p: p.pr),
        XIntField("entropy", 0),
        XShortField("spdcid", 0),
        XShortField("dpdcid", 0),
        XByteField("reserved3", 0),
        ThreeBytesField("cack_psn", 0),
        BitField("cc_type", 0, 4),
        BitField("cc_fl", 0, 4),
        ByteField("mpr", 0),  # x 128 packets
        SignedShortField("sack_offset", 1),
        SackBitmapField("sack_bitmap", 0),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return CCState


class CCState(Packet):
    """Congestion feedback of a SACK (§2.8). 8 bytes; `rcvd_bytes` counts units of 256 bytes."""

    name = "MRC CC_STATE"
    fields_desc = [
        XShortField("tx_timestamp", 0),
        BitField("reserved", 0, 1),
        BitField("ooo_count", 0, 15),
        BitField("restore_cwnd", 0, 1),
        BitField("rcv_cwnd_pen", 0, 7),
        ThreeBytesField("rcvd_bytes", 0),
    ]


class NETH(Packet):
    """Reason why a packet was rejected (§2.9, §2.10). 20 bytes."""

    name = "MRC NETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nh", 0, 5),
        BitField("reserved1", 0, 7),
        ByteEnumField("reason", 1, REASONS),
        ByteField("vendor_info", 0),
        XIntField("entropy", 0),
        XShortField("spdcid", 0),
        XShortField("dpdcid", 0),
        XByteField("reserved2", 0),
        ThreeBytesField("nack_psn", 0),
        BitField("cc_type", 2, 4),
        BitField("cc_fl", 0, 4),
        XByteField("reserved3", 0),
        XShortField("tx_timestamp", 0),
    ]


class PETH(Packet):
    """Reliability probe (§2.11). 16 bytes; the answer is a SACK with pr = 1."""

    name = "MRC PETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nh", 0, 5),
        BitField("reserved1", 0, 7),
        XByteField("reserved2", 0),
        ByteField("vendor_info", 0),
        XShortField("probe_id", 0),
        XShortField("reserved3", 0),
        XShortField("spdcid", 0),
        XShortField("dpdcid", 0),
        XShortField("tx_timestamp", 0),
        BitField("tsr", 0, 1),
        BitField("reserved4", 0, 11),
        BitEnumField("ftype", 1, 4, TIMESTAMP_TYPES),
    ]


class ERTH(Packet):
    """Endpoint request (§2.12). 16 bytes; `op` in bits 1:0 of byte 1."""

    name = "MRC ERTH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nh", 0, 5),
        BitField("reserved1", 0, 5),
        BitEnumField("op", 0, 2, ENDPOINT_OPS),
        XByteField("reserved2", 0),
        ByteField("vendor_info", 0),
        PortMaskField("port_status_mask", 0),
        XIntField("reserved3", 0),
        XShortField("tx_timestamp", 0),
        BitField("tsr", 0, 1),
        BitField("reserved4", 0, 11),
        BitEnumField("ftype", 1, 4, TIMESTAMP_TYPES),
    ]


class EETH(Packet):
    """Endpoint response (§2.12). 36 bytes; `op` in bits 3:2 of byte 1."""

    name = "MRC EETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nh", 0, 5),
        BitField("reserved1", 0, 3),
        BitEnumField("op", 0, 2, ENDPOINT_OPS),
        BitField("reserved2", 0, 2),
        XShortField("reserved3", 0),
        XBitField("reserved4", 0, 192),
        XShortField("tx_timestamp", 0),
        XShortField("reserved5", 0),
        XIntField("service_time", 0),  # encoding unknown: 0
    ]


class ICRC(Packet):
    """Padding and invariant CRC at the end of every whole packet (§3). `icrc=None` is computed when built."""

    name = "MRC iCRC"
    fields_desc = [StrField("pad", b""), XLEIntField("icrc", None)]


AFTER_BTH: dict[int, type[Packet]] = {
    0x06: RETH,
    0x09: ImmDt,
    0x0A: RETH,
    0x0B: RETH,
    0x11: AETH,
    0xD1: AETH,
    0xD8: ERTH,
    0xD9: EETH,
    0xDC: SETH,
    0xDD: NETH,
    0xDE: PETH,
}


def icrc_of(bth: BTH, body: bytes) -> int | None:
    """Return the iCRC of `body` (BTH to the last pad byte) below the IP and UDP headers of `bth` (§3).

    None when there is no IPv6 or option-less IPv4 header directly below UDP, because the sum needs its addresses.
    """
    udp = bth.underlayer
    if not isinstance(udp, UDP):
        return None
    ip = udp.underlayer
    udp_len = 8 + len(body) + ICRC_BYTES if udp.len is None else udp.len
    if isinstance(ip, IPv6):
        length = udp_len if ip.plen is None else ip.plen
        head = struct.pack("!IHBB", 0x6FFFFFFF, length, ip.nh, 0xFF)
    elif isinstance(ip, IP) and not ip.options:
        length = 20 + udp_len if ip.len is None else ip.len
        flags = int(ip.flags) << 13 | ip.frag
        head = struct.pack("!BBHHHBBH", 0x45, 0xFF, length, ip.id, flags, 0xFF, ip.proto, 0xFFFF)
    else:
        return None
    for name in ("src", "dst"):
        head += ip.get_field(name).i2m(ip, ip.getfieldval(name))
    head += struct.pack("!HHHH", udp.sport, udp.dport, udp_len, 0xFFFF)
    return zlib.crc32(b"\xff" * 8 + head + body[:4] + b"\xff" + body[5:])


def _bind_first(lower: type[Packet], upper: type[Packet], **fields: int) -> None:
    """Bind layers ahead of every other binding of `lower`, also when this module is loaded again."""
    split_layers(lower, upper, **fields)
    bind_layers(lower, upper, **fields)
    guess_entry = (fields, upper)
    lower.payload_guess = [guess_entry, *(guess for guess in lower.payload_guess if guess != guess_entry)]


def bind_udp_port(port: int) -> None:
    """Read UDP packets to `port` as MRC; packets built afterwards without a `dport` get this one."""
    _bind_first(UDP, BTH, dport=port)


for _port in reversed(UDP_PORTS):  # so that 4791 is what a built UDP header gets
    bind_udp_port(_port)
_bind_first(Ether, USidCarrier, type=0x86DD)
_bind_first(CookedLinux, USidCarrier, proto=0x86DD)
bind_layers(USidCarrier, IPv6, nh=41)
