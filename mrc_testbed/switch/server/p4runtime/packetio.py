"""Packet-in and packet-out: the bits in front of a frame at the CPU port <-> PacketMetadata.

The layout is that of the program's headers `@controller_header("packet_in")` and `("packet_out")`: the fields of
controller_packet_metadata in the P4Info one after the other, most significant bit first, whole bytes in sum. Fields of
a type with @p4runtime_translation have the program's width there, and are numbers or strings as switch.device.schema
says.
"""

from __future__ import annotations

from collections.abc import Mapping

from finsy.proto import p4i, p4r, rpc_code

from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.schema import MatchField
from mrc_testbed.switch.server.p4runtime.errors import RpcError, code_of

TypeBits = Mapping[str, int]
"""Program's widths of translated types (Schema.type_bits)."""


def _header(p4info: p4i.P4Info, name: str, type_bits: TypeBits) -> list[MatchField]:
    for header in p4info.controller_packet_metadata:
        if header.preamble.name == name:
            return [_field(metadata, type_bits) for metadata in header.metadata]
    return []


def _field(metadata: p4i.ControllerPacketMetadata.Metadata, type_bits: TypeBits) -> MatchField:
    bits = type_bits.get(metadata.type_name.name, metadata.bitwidth)
    text = bits != metadata.bitwidth and not metadata.bitwidth
    return MatchField(metadata.id, metadata.name, bits, text=text)


def packet_in_message(p4info: p4i.P4Info, type_bits: TypeBits, frame: bytes) -> p4r.StreamMessageResponse | None:
    """A frame from the CPU port as a packet-in; None for one shorter than its header."""
    fields = _header(p4info, "packet_in", type_bits)
    bits = sum(field.bits for field in fields)
    size = (bits + 7) // 8
    if len(frame) < size:
        return None
    packet = p4r.PacketIn(payload=frame[size:])
    header_bits, remaining_bits = int.from_bytes(frame[:size], "big"), size * 8
    for field in fields:
        remaining_bits -= field.bits
        packet.metadata.add(
            metadata_id=field.id, value=field.client_bytes(header_bits >> remaining_bits & field.all_ones)
        )
    return p4r.StreamMessageResponse(packet=packet)


def packet_out_frame(p4info: p4i.P4Info, type_bits: TypeBits, packet: p4r.PacketOut) -> bytes:
    """A packet-out as a frame for the CPU port. Raises RpcError INVALID_ARGUMENT, OUT_OF_RANGE."""
    fields = _header(p4info, "packet_out", type_bits)
    values = {metadata.metadata_id: metadata.value for metadata in packet.metadata}
    known = ", ".join(f"{field.id} {field.name}" for field in fields) or "none"
    unknown = set(values) - {field.id for field in fields}
    if unknown or len(values) != len(packet.metadata):
        problem = f"no metadata {min(unknown)}" if unknown else "metadata given twice"
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"packet-out: {problem} (has: {known})")
    value = bits = 0
    for field in fields:
        if field.id not in values:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"packet-out: metadata {field.id} {field.name} is missing")
        try:
            value = value << field.bits | field.number(values[field.id], "packet-out")
        except TableError as error:
            raise RpcError(code_of(error.code), error.message) from None
        bits += field.bits
    size = (bits + 7) // 8
    return (value << size * 8 - bits).to_bytes(size, "big") + packet.payload
