"""The open points of mrc-protocol §12 that change bytes, as a layer over either codec.

The codecs write and read what the defaults of `Config` say. `in_dialect` returns them as they are for those; else a
Dialect, which changes what a codec has made before it leaves, and makes good on what it has read. So the variants cost
the usual packets nothing, both codecs have the same ones, and the compiled NIC need not know them.

Only the flow label and the UDP checksum lie outside the iCRC; whatever else was changed, it is computed anew (§3).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol
from zlib import crc32

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.codec import (
    BTH_SIZE,
    ICRC_SIZE,
    IPV4_SIZE,
    IPV6_SIZE,
    UDP_SIZE,
    Addressing,
    EncodedPacket,
    ev_to_fields,
    fields_to_ev,
)
from mrc_testbed.hosts.engine.wire.codec import udp_checksum as checksum_of
from mrc_testbed.hosts.engine.wire.icrc import icrc_ipv4, icrc_ipv6
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_CE,
    EndpointRequest,
    EndpointResponse,
    PacketRecord,
    ReliabilityProbe,
    Write,
)

WIRE_FIELDS: Final = (
    "flow_label",
    "flow_label_bits",
    "se_bit",
    "eeth_op_shift",
    "ftype_bare",
    "probe_psn",
    "udp_checksum",
    "decap_dscp",
    "decap_ecn",
)
"""Fields of Config.wire that make a dialect when one of them is not the default."""
SE_BIT: Final = 7
EETH_OP_SHIFT: Final = 2
_DEFAULTS: Final = Config().wire
_WORD: Final = Struct(">I")
_HALF_WORD: Final = Struct(">H")
_ICRC: Final = Struct("<I")
_FTYPE_AT: Final = {ReliabilityProbe: BTH_SIZE + 15, EndpointRequest: BTH_SIZE + 15}
"""Byte of the datagram's payload whose low four bits are ftype."""


class AnyCodec(Protocol):
    """Codec or ScapyCodec."""

    dport: int

    def encode(self, record: Any, addressing: Addressing) -> EncodedPacket: ...
    def decode(
        self,
        packet: bytes | memoryview,
        plane: int = 0,
        outer_traffic_class: int | None = None,
        outer_label: int | None = None,
        /,
    ) -> Any: ...


def speaks_dialect(config: Config) -> bool:
    """Return whether the configuration changes bytes that the codecs write and read by themselves.

    The codecs are Python's and the compiled NIC's.
    """
    return any(getattr(config.wire, name) != getattr(_DEFAULTS, name) for name in WIRE_FIELDS)


def in_dialect(codec: AnyCodec, config: Config, outer_header: bool = True) -> AnyCodec:
    """Return `codec`, or WireVariants over it where the configuration asks for other bytes.

    `outer_header`: packets travel in an outer IPv6 header; without one the inner flow label carries the EV always.
    """
    return WireVariants(codec, config, outer_header) if speaks_dialect(config) else codec


def outer_words(codec: AnyCodec) -> Callable[[bytes | bytearray, int], bytes] | None:
    """Return a function (inner packet, EV) -> first four bytes of the outer header.

    None: they are those of the inner header (§1.2).
    """
    return codec.outer_word if type(codec) is WireVariants else None


class WireVariants:
    """Encodes and decodes as the codec it stands before, `frame_codec`, does."""

    __slots__ = ("_label_outside", "_layout", "_wire", "dport", "frame_codec")

    def __init__(self, codec: AnyCodec, config: Config, outer_header: bool = True) -> None:
        self.frame_codec, self._wire = codec, config.wire
        self._label_outside = outer_header and config.wire.flow_label == "outer"
        self._layout = config.wire.ev_layout
        self.dport = codec.dport

    # ---- out --------------------------------------------------------------------------------------------

    def encode(self, record: PacketRecord, addressing: Addressing) -> EncodedPacket:
        """Encode as the codec does, with all bytes in the frame's first piece."""
        wire = self._wire
        packet = bytearray(self.frame_codec.encode(record, addressing).join())
        is_v6 = not addressing.is_ipv4
        udp = IPV6_SIZE if is_v6 else IPV4_SIZE
        bth = udp + UDP_SIZE
        changed = False
        if is_v6:
            label = 0 if self._label_outside else self.label(record.ev)
            packet[:4] = _WORD.pack(_WORD.unpack_from(packet)[0] & 0xFFF00000 | label)
        if type(record) is Write and record.solicited and wire.se_bit != SE_BIT:
            packet[bth + 1] = packet[bth + 1] & 0x3F | 1 << wire.se_bit
            changed = True
        elif type(record) is EndpointResponse and wire.eeth_op_shift != EETH_OP_SHIFT:
            packet[bth + BTH_SIZE + 1] = (record.op & 3) << wire.eeth_op_shift
            changed = True
        elif type(record) is ReliabilityProbe and wire.probe_psn == "probe_id":
            packet[bth + 10 : bth + 12] = _HALF_WORD.pack(record.probe_id)
            changed = True
        if isinstance(record, (ReliabilityProbe, EndpointRequest)) and record.timestamp is None:
            offset = bth + _FTYPE_AT[type(record)]
            packet[offset] = packet[offset] & 0xF0 | wire.ftype_bare
            changed = True
        # Flow label and UDP checksum lie outside the iCRC; all else needs a new one.
        if changed:
            body = memoryview(packet)[:-ICRC_SIZE]
            packet[-ICRC_SIZE:] = _ICRC.pack((icrc_ipv6 if is_v6 else icrc_ipv4)(body))
        if wire.udp_checksum == "computed":
            packet[udp + 6 : udp + 8] = _HALF_WORD.pack(checksum_of(packet, udp, 6 if is_v6 else 4) or 0xFFFF)
        return EncodedPacket(bytes(packet), b"", b"")

    def label(self, ev: int) -> int:
        """Return the 20 bits of a flow label that carries its half of the EV."""
        label = ev_to_fields(ev, self._layout)[1]
        if self._wire.flow_label_bits == 20:  # any four bits that differ with the EV will do: they are not read
            label |= crc32(_WORD.pack(ev)) & 0xF0000
        return label

    def outer_word(self, inner: bytes | bytearray, ev: int) -> bytes:
        """Version, traffic class and flow label of the outer header."""
        label = 0 if self._wire.flow_label == "inner" else self.label(ev)
        return _WORD.pack(_WORD.unpack_from(inner)[0] & 0xFFF00000 | label)

    # ---- in ---------------------------------------------------------------------------------------------

    def decode(
        self,
        packet: bytes | memoryview,
        plane: int = 0,
        outer_traffic_class: int | None = None,
        outer_label: int | None = None,
    ) -> Any:
        """Decode as the codec does; `outer_label`: flow label of the outer header, where there is one.

        Raises WireError.
        """
        wire = self._wire
        is_v6 = len(packet) > 0 and packet[0] >> 4 == 6
        if outer_traffic_class is not None and is_v6 and len(packet) >= IPV6_SIZE:
            packet, outer_traffic_class = self._decapsulate(packet, outer_traffic_class)
        record = self.frame_codec.decode(packet, plane, outer_traffic_class)
        if is_v6 and self._label_outside and outer_label is not None:
            sport = _HALF_WORD.unpack_from(packet, IPV6_SIZE)[0]
            record.ev = fields_to_ev(sport, outer_label, self._layout)
        if type(record) is EndpointResponse:
            offset = (IPV6_SIZE if is_v6 else IPV4_SIZE) + UDP_SIZE + BTH_SIZE + 1
            record.op = packet[offset] >> wire.eeth_op_shift & 3
        return record

    def _decapsulate(self, packet: bytes | memoryview, outer: int) -> tuple[bytes | memoryview, int]:
        """Return the inner packet and the traffic class to be given to the codec.

        The codec takes its DSCP and ORs both CE.
        """
        wire = self._wire
        inner = _WORD.unpack_from(packet)[0] >> 20 & 0xFF
        dscp = (outer if wire.decap_dscp == "outer" else inner) & 0xFC
        if wire.decap_ecn == "or":
            ecn = ECN_CE if ECN_CE in (outer & 3, inner & 3) else outer & 3
        else:
            ecn = (outer if wire.decap_ecn == "outer" else inner) & 3
        if inner & 3 == ECN_CE and ecn != ECN_CE:  # the codec would see the mark that does not count
            word = _WORD.pack(_WORD.unpack_from(packet)[0] & ~(0xFF << 20) | (dscp | ecn) << 20)
            packet = b"".join((word, packet[4:]))
        return packet, dscp | ecn
