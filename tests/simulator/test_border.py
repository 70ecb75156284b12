"""Packets that cross between the halves of a fabric: each kind comes out as it went in."""

import marshal
from dataclasses import fields, replace

import pytest

from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcWrite
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    EndpointResponse,
    Nack,
    NackReason,
    Opcode,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.engine.wire.payload import TextPart
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes
from mrc_testbed.simulator.border import MARSHAL_VERSION, RECORDS, Border
from mrc_testbed.simulator.frames import Frame
from mrc_testbed.simulator.halves import Half
from mrc_testbed.simulator.message_slots import MessageSlots

CONTENT = MessageBytes("7/h0/h1", 256)
TEXT = CONTENT.text
ENVELOPE = (0xABCDEF, 0xFFFFFFFF, 1, 26, 2)
PART = TextPart(TEXT, 3, 40)
WRITE = Write(*ENVELOPE, Opcode.WRITE_LAST_IMM, 0xFFFFFF, 7, 1 << 63, 9, 1 << 31, PART, 99, 5, 6, 65535, 1, rtx=True)
PACKETS = {
    "write": WRITE,
    "write without TSETH": replace(WRITE, timestamp=None, ack_request=True, solicited=True),
    "bytes": replace(WRITE, payload=memoryview(bytearray(b"payload"))),
    "trimmed": replace(WRITE, payload=b"", trimmed=NackReason.TRIMMED_LASTHOP),
    "trimmed with its part": replace(WRITE, trimmed=NackReason.TRIMMED),
    "sack": Sack(
        *ENVELOPE, 1, -32768, (1 << 64) - 1, 32767, None, 5, 2, 65535, 1 << 23, 9, 8, 127, True, True, 1, 2, 3
    ),
    "answer to a probe": Sack(*ENVELOPE, 1, 2, 3, 4, 65535, 5, 0, 0, 7),
    "nack": Nack(*ENVELOPE, 1, NackReason.NO_RESOURCE, 3),
    "ack": TransportAck(*ENVELOPE, 1, 0x63, 3),
    "probe": ReliabilityProbe(*ENVELOPE, 1, None, 1),
    "request": EndpointRequest(*ENVELOPE, 1, 1, 255),
    "response": EndpointResponse(*ENVELOPE, 1, 1),
    "rocev2": RcWrite(*ENVELOPE, RcOpcode.WRITE_ONLY_IMM, 5, TextPart(TEXT, 1, 2), 99, imm=7),
    "rocev2 ack": RcAck(*ENVELOPE, 1, 0x1F, 3),
    "cnp": Cnp(*ENVELOPE),
}


class Port:
    """Port of a T0 towards a T1; keeps what arrives there."""

    def __init__(self):
        self.arrivals = []

    def deliver(self, frame, time):
        self.arrivals.append((time, frame))


def borders():
    """Return the borders of both halves, one rack each, with the ports at which packets arrive."""
    out = []
    for number in (0, 1):
        ports = [Port(), Port()]
        border = Border(Half(number, None), 2, ["h0", "h1"], ports)
        border.join(MessageSlots(CONTENT, 1, 40))
        out.append((border, ports))
    return out


def test_every_kind_of_packet__is_among_the_examples():
    assert {type(packet) for packet in PACKETS.values()} == {*RECORDS, Sack}


def as_values(packet):
    """Return the fields of a packet with their types, the payload as bytes."""
    values = {field.name: getattr(packet, field.name) for field in fields(packet)}
    if "payload" in values:
        values["payload"] = bytes(packet.payload)
    return {name: (type(value), value) for name, value in values.items()}


@pytest.mark.parametrize("name", PACKETS)
@pytest.mark.parametrize("marks", [(), ("corrupt", "marked"), ("trimmed", "ect")])
def test_packet__comes_out_as_it_went_in(name, marks):
    (border, ports), (other_border, _) = borders()
    packet = PACKETS[name]
    frame = Frame(packet, 4242, "h1", "h0", 0, 2, 1, "trimmed" in marks, True)
    frame.port, frame.is_fresh, frame.ect = 1, False, False
    for mark in marks:
        setattr(frame, mark, True)
    border._unpack(marshal.loads(marshal.dumps(other_border._pack(0.25, frame), MARSHAL_VERSION)))
    ((time, copy),) = ports[1].arrivals
    assert time == 0.25 and type(copy.packet) is type(packet) and as_values(copy.packet) == as_values(packet)
    if isinstance(packet, (Write, RcWrite)) and isinstance(packet.payload, TextPart):
        assert copy.packet.payload.text is TEXT, "receivers compare texts by identity"
    for attribute in Frame.__slots__:
        if attribute not in ("packet", "next_frame"):
            assert getattr(copy, attribute) == getattr(frame, attribute), attribute


def test_gate__keeps_a_packet_for_the_half_of_its_rack():
    (border, _), arrivals = borders()[0], []
    gate = border.gate(lambda time, handler, frame: arrivals.append((time, handler, frame.rack)))
    frames = [Frame(WRITE, 100, "h0", "h1", rack, 0, 0, False, False) for rack in (0, 1, -1)]
    for time, frame in enumerate(frames):
        gate(float(time), "arrive", frame)
    assert arrivals == [(0.0, "arrive", 0), (2.0, "arrive", -1)], "a damaged address has no rack: any T1 drops it"
    assert border._waiting == [(1.0, frames[1], 0)]
