"""Tests of carried IP packets: encapsulation, the kernel's filter, the paced size, hostile lengths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.wire.codec import Codec
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.hosts.nic.ip_packet import IP_OVERHEAD, IpPacket, carried_packet, carries_ip, encode_ip
from mrc_testbed.hosts.nic.paced import inner_bytes
from mrc_testbed.hosts.nic.qpns import AGENT_QPNS, program
from mrc_testbed.topologies.plan import Plan
from tests.hosts.nic.test_qpns import run

PAYLOAD = b"\x45" + bytes(range(1, 120))


def wire_frame(plan: Plan, packet: IpPacket, plane: int = 1) -> bytes:
    """Return the frame of a packet from h0 to h2 as its last switch hands it over."""
    h0, _, h2, _ = plan.hosts
    encapsulation = Encapsulation(plan, h0, h2, plane)
    inner = encode_ip(packet, encapsulation.addressing, "L")
    frame = bytearray(encapsulation.outer(packet.ev, inner.header[:4], inner.size) + inner.join())
    if plan.mode.outer_header:
        frame[38:54] = plan.nic_address(h2, plane).to_bytes(16, "big")
    return bytes(frame)


@pytest.mark.parametrize("mode", ["srv6", "ecmp"])
def test_packet__arrives_as_it_left_with_its_sender(mode):
    plan = Plan(mode=mode)
    packet = IpPacket(0x0101, PAYLOAD, dscp=0)
    frame = wire_frame(plan, packet)
    inner = Decapsulation(plan, plan.hosts[2], 1, Codec()).unwrap(frame)
    assert inner.peer == "h0" and carries_ip(inner.data) and carried_packet(inner.data) == PAYLOAD
    assert inner_bytes(packet) == len(inner.data) == IP_OVERHEAD + len(PAYLOAD)
    source_port = int.from_bytes(inner.data[40:42], "big")
    assert source_port == 0x0101


@pytest.mark.parametrize("mode", ["srv6", "ecmp"])
def test_filter__takes_it_for_the_agent_alone_whatever_its_bytes_say_at_the_qpn(mode):
    plan = Plan(mode=mode)
    for byte in (0x00, 0x02, 0x7F, 0xFF):
        frame = wire_frame(plan, IpPacket(0x0101, bytes((byte,)) * 60, dscp=0))
        outer = plan.mode.outer_header
        assert run(program(AGENT_QPNS[0], AGENT_QPNS[-1], True, outer), frame)
        assert not run(program(0x30000, 0x3FFFF, False, outer), frame)


def test_mrc_decoder__refuses_it():
    plan = Plan()
    frame = wire_frame(plan, IpPacket(0x0101, PAYLOAD, dscp=0))
    with pytest.raises(WireError):
        Decapsulation(plan, plan.hosts[2], 1, Codec()).open(frame)


@given(length=st.integers(0, 0xFFFF), udp_length=st.integers(0, 0xFFFF))
def test_lengths__that_contradict_each_other_or_the_frame_are_refused(length, udp_length):
    inner = bytearray(IP_OVERHEAD + 40)
    inner[4:6], inner[6], inner[42:44], inner[44:46] = (
        length.to_bytes(2, "big"),
        17,
        (6080).to_bytes(2, "big"),
        udp_length.to_bytes(2, "big"),
    )
    assert carries_ip(inner)
    if length == udp_length and 8 < length <= 48:
        assert len(carried_packet(inner)) == length - 8
    else:
        with pytest.raises(WireError):
            carried_packet(inner)
