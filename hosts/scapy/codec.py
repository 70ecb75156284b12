"""The second codec: records <-> scapy packets <-> bytes, through the layers of hosts/scapy/layers.py.

Same interface and same verdicts as hosts/engine/wire/codec.py, written independently from it: every frame that one
refuses the other refuses too, and a test holds them together. `to_scapy` and `to_record` are for people who want
the packet in between; a hundred times slower than the struct codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP, in4_chksum
from scapy.layers.inet6 import IPv6, in6_chksum
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw
from scapy.utils import checksum

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.rocev2.rc_codec import RC_OPCODES
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcPacket, RcWrite
from mrc_testbed.hosts.engine.wire.codec import Addressing, EncodedPacket, ev_to_fields, fields_to_ev
from mrc_testbed.hosts.engine.wire.packets import (
    IMM_OPCODES,
    NOMINAL_OVERHEAD,
    WRITE_OPCODES,
    EndpointRequest,
    EndpointResponse,
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
from mrc_testbed.hosts.scapy import layers
from mrc_testbed.hosts.scapy.layers import (
    AETH,
    BTH,
    EETH,
    ERTH,
    ICRC,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    TSETH,
    CCState,
    ImmDt,
)
from mrc_testbed.hosts.scapy.rocev2 import rc_packet, rc_record

CE = 3
_HEADERS = (AETH, BTH, EETH, ERTH, METH, NETH, PETH, RETH, SETH, TSETH, CCState, ImmDt)
HEADER_BYTES: dict[type[ScapyPacket], int] = {layer: len(layer()) for layer in _HEADERS}
"""Bytes of each header."""
UDP_BYTES = 8
PROTOCOL_UDP = 17
MORE_FRAGMENTS = 1


class ScapyCodec:
    """Codec through scapy, with the interface of `mrc_testbed.hosts.engine.wire.codec.Codec`."""

    def __init__(self, config: Config | None = None) -> None:
        config = config or Config()
        self.dport = config.wire.udp_dport
        self._layout = config.wire.ev_layout
        self._pkey = config.wire.pkey
        self._ports = {*layers.UDP_PORTS, self.dport}
        self._trimmed = {
            config.dscp.trimmed: NackReason.TRIMMED,
            config.dscp.trimmed_lasthop: NackReason.TRIMMED_LASTHOP,
        }
        layers.bind_udp_port(self.dport)

    # ---- records to packets -----------------------------------------------------------------------------

    def encode(self, record: PacketRecord, addressing: Addressing) -> EncodedPacket:
        """Return the bytes of a record, all in the frame's first piece."""
        return EncodedPacket(bytes(self.to_scapy(record, addressing)), b"", b"")

    def to_scapy(self, record: PacketRecord, addressing: Addressing) -> ScapyPacket:
        """Return the record as IP / UDP / BTH / ... / ICRC; building it computes iCRC and lengths."""
        half = len(addressing.pair) // 2
        source, destination = (str(ip_address(part)) for part in (addressing.pair[:half], addressing.pair[half:]))
        sport, label = ev_to_fields(record.ev, self._layout)
        traffic_class = record.dscp << 2 | record.ecn
        ip: ScapyPacket
        if addressing.is_ipv4:
            ip = IP(src=source, dst=destination, tos=traffic_class, ttl=addressing.hop_limit, id=0, flags="DF")
        else:
            ip = IPv6(src=source, dst=destination, tc=traffic_class, fl=label, hlim=addressing.hop_limit)
        transport = rc_packet(record) if isinstance(record, (RcWrite, RcAck, Cnp)) else MAKERS[type(record)](record)
        transport.dqpn, transport.pkey = record.dest_qp, self._pkey
        return ip / UDP(sport=sport, dport=self.dport, chksum=0) / transport

    # ---- bytes to records -------------------------------------------------------------------------------

    def decode(
        self,
        packet: bytes | memoryview,
        plane: int = 0,
        outer_traffic_class: int | None = None,
        _outer_label: int | None = None,
    ) -> Packet | RcPacket:
        """Return the record in an inner packet (IP header first), as wire.Codec.decode. Raises only WireError."""
        packet_bytes = bytes(packet)
        version = packet_bytes[0] >> 4 if packet_bytes else 0
        if version not in (4, 6):
            raise WireError("no IPv6 or IPv4 header")
        shortest = (40 if version == 6 else 20) + UDP_BYTES + HEADER_BYTES[BTH]
        if len(packet_bytes) < shortest:
            raise WireError(f"shorter than its headers ({len(packet_bytes)} bytes)")
        try:
            return self.to_record(
                (IPv6 if version == 6 else IP)(packet_bytes), packet_bytes, plane, outer_traffic_class
            )
        except (struct.error, IndexError, ValueError, Scapy_Exception) as error:
            if isinstance(error, WireError):
                raise
            raise WireError(f"scapy cannot dissect it: {error}") from error

    def to_record(
        self, ip: ScapyPacket, packet_bytes: bytes, plane: int, outer_traffic_class: int | None
    ) -> Packet | RcPacket:
        """Return the record of a dissected packet; `packet_bytes`: as they arrived, for lengths and sums."""
        header, ip_length, traffic_class, label = _ip_fields(ip, packet_bytes)
        udp = ip.payload
        if not isinstance(udp, UDP):
            raise WireError("not UDP")
        bth = udp.payload
        if udp.dport not in self._ports or not isinstance(bth, BTH):
            raise WireError(f"UDP port {udp.dport}")
        if udp.len != ip_length:
            raise WireError("UDP length differs from the IP payload's")
        if bth.opcode not in layers.OPCODES:
            raise WireError(f"opcode {bth.opcode:#04x}")
        if bth.tver:
            raise WireError(f"tver {bth.tver}")
        dscp, ecn = traffic_class >> 2, traffic_class & 3
        # The outer DSCP wins and CE is kept from either header (§1.2).
        if outer_traffic_class is not None:
            outer_ecn = outer_traffic_class & 3
            dscp, ecn = outer_traffic_class >> 2 & 0x3F, CE if ecn == CE else outer_ecn
        common_fields = {
            "dest_qp": bth.dqpn,
            "ev": fields_to_ev(udp.sport, label, self._layout),
            "plane": plane,
            "dscp": dscp,
            "ecn": ecn,
        }
        present = len(packet_bytes) - header
        opcode = RC_OPCODES.get(bth.opcode) or Opcode(bth.opcode)
        if dscp in self._trimmed:
            if present > ip_length:
                raise WireError("longer than its IP header says")
            return _trimmed_write(
                packet_bytes[header + UDP_BYTES :], bth, opcode, common_fields, ip_length, self._trimmed[dscp]
            )
        if present != ip_length:
            raise WireError("length differs from what its IP header says")
        if present < UDP_BYTES + HEADER_BYTES[BTH] + layers.ICRC_BYTES:
            raise WireError("no room for an iCRC")
        if udp.chksum and not _udp_checksum_right(ip, packet_bytes[header:]):
            raise WireError("UDP checksum")
        body = packet_bytes[header + UDP_BYTES : -layers.ICRC_BYTES]
        if layers.icrc_of(bth, body) != int.from_bytes(packet_bytes[-layers.ICRC_BYTES :], "little"):
            raise WireError("iCRC")
        if isinstance(opcode, RcOpcode):
            return rc_record(bth, common_fields, len(body), ip_length)
        if opcode in WRITE_OPCODES:
            return _write_record(bth, opcode, common_fields, len(body), ip_length)
        return _control_record(bth, opcode, common_fields, len(body))


def _ip_fields(ip: ScapyPacket, packet_bytes: bytes) -> tuple[int, int, int, int]:
    """Return (header bytes, announced payload length, traffic class, flow label). Raises WireError."""
    if isinstance(ip, IPv6):
        if ip.nh != PROTOCOL_UDP:
            raise WireError("not UDP")
        return 40, ip.plen, ip.tc, ip.fl
    if ip.ihl != 5 or int(ip.flags) & MORE_FRAGMENTS or ip.frag:
        raise WireError("IPv4 with options or fragmented")
    if checksum(packet_bytes[:20]):
        raise WireError("IPv4 header checksum")
    if ip.proto != PROTOCOL_UDP:
        raise WireError("not UDP")
    return 20, ip.len - 20, ip.tos, 0


def _udp_checksum_right(ip: ScapyPacket, datagram: bytes) -> bool:
    if isinstance(ip, IPv6):
        return bool(in6_chksum(PROTOCOL_UDP, ip, datagram) == 0)  # type: ignore[no-untyped-call]
    return isinstance(ip, IP) and in4_chksum(PROTOCOL_UDP, ip, datagram) == 0


# ---- data packets -----------------------------------------------------------------------------------------


def _write_packet(record: Write) -> ScapyPacket:
    pad = -len(record.payload) & 3
    packet: ScapyPacket = BTH(
        opcode=int(record.opcode),
        se=record.solicited,
        pad=pad,
        a=record.ack_request,
        rtx=record.rtx,
        ts=record.timestamp is not None,
        psn=record.psn,
    )
    packet /= METH(rqmsn=record.rqmsn, msn=record.msn)
    if record.timestamp is not None:
        packet /= TSETH(tx_timestamp=record.timestamp, tsr=record.tsr)
    packet /= RETH(va=record.va, rkey=record.rkey, dma_length=record.dma_length)
    if record.opcode in IMM_OPCODES:
        packet /= ImmDt(immediate=record.imm)
    if record.payload:
        packet /= Raw(bytes(record.payload))
    full_packet: ScapyPacket = packet / ICRC(pad=bytes(pad))
    return full_packet


def _write_flags(bth: BTH) -> dict[str, Any]:
    return {
        "psn": bth.psn,
        "ack_request": bool(bth.a),
        "rtx": bool(bth.rtx),
        "solicited": bool(bth.se or bth.migreq),  # either position is accepted (§2.2)
    }


def _write_record(bth: BTH, opcode: Opcode, common_fields: dict[str, Any], body: int, udp_length: int) -> Write:
    header_layers = [METH, *([TSETH] if bth.ts else []), RETH, *([ImmDt] if opcode in IMM_OPCODES else [])]
    payload = body - HEADER_BYTES[BTH] - sum(HEADER_BYTES[layer] for layer in header_layers) - bth.pad
    if payload < 0:
        raise WireError(f"{opcode.name} ends before its headers do")
    if payload + bth.pad & 3 or bth.pad > 3:
        raise WireError(f"{opcode.name}: wrong pad")
    optional: dict[str, Any] = {}
    if bth.ts:
        optional["timestamp"], optional["tsr"] = bth[TSETH].tx_timestamp, bth[TSETH].tsr
    if opcode in IMM_OPCODES:
        optional["imm"] = bth[ImmDt].immediate
    return Write(
        **common_fields,
        opcode=opcode,
        msn=bth[METH].msn,
        rqmsn=bth[METH].rqmsn,
        va=bth[RETH].va,
        rkey=bth[RETH].rkey,
        dma_length=bth[RETH].dma_length,
        payload=bth[Raw].load if payload else b"",
        size=udp_length + NOMINAL_OVERHEAD,
        **_write_flags(bth),
        **optional,
    )


def _trimmed_write(
    remainder: bytes,
    bth: BTH,
    opcode: Opcode | RcOpcode,
    common_fields: dict[str, Any],
    udp_length: int,
    reason: NackReason,
) -> Write:
    """Return the record of a trimmed write: BTH, METH and, unless the cut is in front of it, TSETH.

    Headers are read from `remainder`, since no field says where the cut is.
    """
    if not isinstance(opcode, Opcode) or opcode not in WRITE_OPCODES:
        raise WireError(f"{opcode.name} with a TRIMMED codepoint: only data packets are trimmed")
    bth_size = HEADER_BYTES[BTH]
    if len(remainder) < bth_size + HEADER_BYTES[METH]:
        raise WireError(f"trimmed {opcode.name} ends before its METH does")
    meth = METH(remainder[bth_size : bth_size + HEADER_BYTES[METH]])
    optional: dict[str, Any] = {}
    if bth.ts and len(remainder) >= bth_size + HEADER_BYTES[METH] + HEADER_BYTES[TSETH]:
        tseth = TSETH(remainder[bth_size + HEADER_BYTES[METH] : bth_size + HEADER_BYTES[METH] + HEADER_BYTES[TSETH]])
        optional = {"timestamp": tseth.tx_timestamp, "tsr": tseth.tsr}
    return Write(
        **common_fields,
        opcode=opcode,
        msn=meth.msn,
        rqmsn=meth.rqmsn,
        va=0,
        rkey=0,
        dma_length=0,
        payload=b"",
        size=udp_length + NOMINAL_OVERHEAD,
        trimmed=reason,
        **_write_flags(bth),
        **optional,
    )


# ---- packets without data ---------------------------------------------------------------------------------


def _sack_packet(p: Sack) -> ScapyPacket:
    answer: dict[str, Any] = (
        {"ack_psn_offset": p.ack_psn_offset} if p.probe_id is None else {"pr": 1, "probe_id": p.probe_id}
    )
    seth = SETH(
        m=int(p.verdict),
        entropy=p.entropy,
        spdcid=p.spdcid,
        dpdcid=p.dpdcid,
        cack_psn=p.cack_psn,
        cc_type=p.cc_type,
        mpr=p.mpr,
        sack_offset=p.sack_offset,
        sack_bitmap=p.bitmap,
        **answer,
    )
    cc_state = CCState(
        tx_timestamp=p.timestamp,
        ooo_count=p.ooo_count,
        restore_cwnd=p.restore_cwnd,
        rcv_cwnd_pen=p.penalty,
        rcvd_bytes=p.rcvd_units,
    )
    return BTH(opcode="SACK", psn=p.cack_psn, rtx=p.rtx) / seth / cc_state / ICRC()


def _sack_record(bth: BTH, common_fields: dict[str, Any]) -> Sack:
    seth, cc_state = bth[SETH], bth[CCState]
    return Sack(
        **common_fields,
        cack_psn=seth.cack_psn,
        sack_offset=seth.sack_offset,
        bitmap=seth.sack_bitmap,
        ack_psn_offset=0 if seth.pr else seth.ack_psn_offset,
        probe_id=seth.probe_id if seth.pr else None,
        entropy=seth.entropy,
        verdict=seth.m,
        timestamp=cc_state.tx_timestamp,
        rcvd_units=cc_state.rcvd_bytes,
        ooo_count=cc_state.ooo_count,
        mpr=seth.mpr,
        penalty=cc_state.rcv_cwnd_pen,
        restore_cwnd=bool(cc_state.restore_cwnd),
        rtx=bool(bth.rtx),
        spdcid=seth.spdcid,
        dpdcid=seth.dpdcid,
        cc_type=seth.cc_type,
    )


def _nack_packet(p: Nack) -> ScapyPacket:
    neth = NETH(
        reason=int(p.reason),
        entropy=p.entropy,
        spdcid=p.spdcid,
        dpdcid=p.dpdcid,
        nack_psn=p.psn,
        cc_type=p.cc_type,
        tx_timestamp=p.timestamp,
    )
    return BTH(opcode="NACK", psn=p.psn) / neth / ICRC()


def _nack_record(bth: BTH, common_fields: dict[str, Any]) -> Nack:
    neth = bth[NETH]
    return Nack(
        **common_fields,
        psn=neth.nack_psn,
        reason=neth.reason,
        entropy=neth.entropy,
        timestamp=neth.tx_timestamp,
        spdcid=neth.spdcid,
        dpdcid=neth.dpdcid,
        cc_type=neth.cc_type,
    )


def _ack_packet(p: TransportAck) -> ScapyPacket:
    return BTH(opcode="ACKNOWLEDGE", psn=p.psn) / AETH(syndrome=int(p.syndrome), msn=p.msn) / ICRC()


def _ack_record(bth: BTH, common_fields: dict[str, Any]) -> TransportAck:
    return TransportAck(**common_fields, psn=bth.psn, syndrome=bth[AETH].syndrome, msn=bth[AETH].msn)


def _probe_packet(p: ReliabilityProbe) -> ScapyPacket:
    peth = PETH(probe_id=p.probe_id, spdcid=p.spdcid, dpdcid=p.dpdcid, tx_timestamp=p.timestamp or 0, tsr=p.tsr)
    return BTH(opcode="RELIABILITY_PROBE", rtx=p.rtx) / peth / ICRC()


def _probe_record(bth: BTH, common_fields: dict[str, Any]) -> ReliabilityProbe:
    peth = bth[PETH]
    return ReliabilityProbe(
        **common_fields,
        probe_id=peth.probe_id,
        timestamp=peth.tx_timestamp,
        tsr=peth.tsr,
        spdcid=peth.spdcid,
        dpdcid=peth.dpdcid,
        rtx=bool(bth.rtx),
    )


def _request_packet(p: EndpointRequest) -> ScapyPacket:
    erth = ERTH(op=int(p.op), port_status_mask=p.port_mask, tx_timestamp=p.timestamp or 0, tsr=p.tsr)
    return BTH(opcode="ENDPOINT_REQUEST", psn=p.request_id, rtx=p.rtx) / erth / ICRC()


def _request_record(bth: BTH, common_fields: dict[str, Any]) -> EndpointRequest:
    erth = bth[ERTH]
    return EndpointRequest(
        **common_fields,
        request_id=bth.psn & 0xFFFF,
        op=erth.op,
        port_mask=erth.port_status_mask,
        timestamp=erth.tx_timestamp,
        tsr=erth.tsr,
        rtx=bool(bth.rtx),
    )


def _response_packet(p: EndpointResponse) -> ScapyPacket:
    return BTH(opcode="ENDPOINT_RESPONSE", psn=p.request_id) / EETH(op=int(p.op), tx_timestamp=p.timestamp) / ICRC()


def _response_record(bth: BTH, common_fields: dict[str, Any]) -> EndpointResponse:
    eeth = bth[EETH]
    return EndpointResponse(**common_fields, request_id=bth.psn & 0xFFFF, op=eeth.op, timestamp=eeth.tx_timestamp)


MAKERS: dict[type, Callable[[Any], ScapyPacket]] = {
    Write: _write_packet,
    Sack: _sack_packet,
    Nack: _nack_packet,
    TransportAck: _ack_packet,
    ReliabilityProbe: _probe_packet,
    EndpointRequest: _request_packet,
    EndpointResponse: _response_packet,
}
READERS: dict[Opcode, tuple[Callable[[BTH, dict[str, Any]], Packet], tuple[type[ScapyPacket], ...]]] = {
    Opcode.SACK: (_sack_record, (SETH, CCState)),
    Opcode.NACK: (_nack_record, (NETH,)),
    Opcode.ACKNOWLEDGE: (_ack_record, (AETH,)),
    Opcode.RELIABILITY_PROBE: (_probe_record, (PETH,)),
    Opcode.ENDPOINT_REQUEST: (_request_record, (ERTH,)),
    Opcode.ENDPOINT_RESPONSE: (_response_record, (EETH,)),
}


def _control_record(bth: BTH, opcode: Opcode, common_fields: dict[str, Any], body: int) -> Packet:
    reader, headers = READERS[opcode]
    if bth.pad or body != HEADER_BYTES[BTH] + sum(HEADER_BYTES[layer] for layer in headers):
        raise WireError(f"{opcode.name}: wrong length or pad")
    return reader(bth, common_fields)
