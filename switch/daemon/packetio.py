"""Packet-in and packet-out: the bits in front of a frame at the CPU port <-> PacketMetadata.

The layout is that of the program's headers `@controller_header("packet_in")` and `("packet_out")`: the fields of
controller_packet_metadata in the P4Info one after the other, most significant bit first, whole bytes in sum.
"""

from __future__ import annotations

from finsy.proto import p4i, p4r, rpc_code

from switch.daemon.errors import RpcError
from switch.daemon.translate import canonical, integer


def _header(p4info: p4i.P4Info, name: str) -> list[p4i.ControllerPacketMetadata.Metadata]:
    for header in p4info.controller_packet_metadata:
        if header.preamble.name == name:
            return list(header.metadata)
    return []


def packet_in_message(p4info: p4i.P4Info, frame: bytes) -> p4r.StreamMessageResponse | None:
    """A frame from the CPU port as a packet-in; None for one shorter than its header."""
    fields = _header(p4info, "packet_in")
    bits = sum(field.bitwidth for field in fields)
    size = (bits + 7) // 8
    if len(frame) < size:
        return None
    packet = p4r.PacketIn(payload=frame[size:])
    rest, left = int.from_bytes(frame[:size], "big"), size * 8
    for field in fields:
        left -= field.bitwidth
        value = rest >> left & (1 << field.bitwidth) - 1
        packet.metadata.add(metadata_id=field.id, value=canonical(value))
    return p4r.StreamMessageResponse(packet=packet)


def packet_out_frame(p4info: p4i.P4Info, packet: p4r.PacketOut) -> bytes:
    """A packet-out as a frame for the CPU port. Raises RpcError INVALID_ARGUMENT."""
    fields = _header(p4info, "packet_out")
    given = {metadata.metadata_id: metadata.value for metadata in packet.metadata}
    known = ", ".join(f"{field.id} {field.name}" for field in fields) or "none"
    unknown = set(given) - {field.id for field in fields}
    if unknown or len(given) != len(packet.metadata):
        which = f"no metadata {min(unknown)}" if unknown else "metadata given twice"
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"packet-out: {which} (has: {known})")
    value = bits = 0
    for field in fields:
        if field.id not in given:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"packet-out: metadata {field.id} {field.name} is missing")
        number = integer(given[field.id], f"packet-out metadata {field.name}")
        if number >> field.bitwidth:
            raise RpcError(
                rpc_code.OUT_OF_RANGE, f"packet-out: {field.name} = {number} does not fit {field.bitwidth} bits"
            )
        value = value << field.bitwidth | number
        bits += field.bitwidth
    size = (bits + 7) // 8
    return (value << size * 8 - bits).to_bytes(size, "big") + packet.payload
