"""Frames of any link layer down to the BTH: IP in IP, extension headers, fragments."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.capture.explain.packet_facts import facts_of
from tests.capture.explain.made_frames import a_write, made_frame

PACKET = made_frame(a_write(7))[14:]
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION = 0, 43, 44, 51
IP4 = bytes.fromhex("45000000 0000 0000 40 29 0000 0a000001 0a000002")


@pytest.mark.parametrize(
    ("chain", "is_read"),
    [
        ([(HOP_BY_HOP, bytes(7))], True),
        ([(HOP_BY_HOP, bytes(7)), (ROUTING, b"\2" + bytes(22)), (60, bytes(7))], True),
        ([(AUTHENTICATION, b"\4" + bytes(22))], True),
        ([(FRAGMENT, bytes(7))], True),
        ([(FRAGMENT, b"\0\1\x08" + bytes(4))], False),
        ([(99, bytes(7))], False),
    ],
)
def test_extension_headers__are_stepped_over(chain, is_read):
    """An outer header of another network, extension headers, and our packet in it."""
    numbers = [kind for kind, _ in chain] + [41]
    outer = struct.pack("!IHBB", 0x60000000, 0, numbers[0], 64) + bytes(32)
    extensions = b"".join(bytes([kind]) + body for (_, body), kind in zip(chain, numbers[1:], strict=True))
    facts = facts_of(outer + extensions + PACKET, 101)
    assert (facts.opcode is not None) is is_read
    assert (facts.usids is not None) is is_read


def test_ip4_outside__is_gone_through():
    assert facts_of(IP4 + PACKET, 101).opcode is not None
    assert facts_of(IP4[:6] + b"\x00\x09" + IP4[8:] + PACKET, 101).opcode is None, "a later fragment"
    loop = b"\x40" + IP4[1:9] + b"\x04" + IP4[10:]
    assert facts_of(loop * 3, 101).opcode is None, "a header of no length"


@given(st.sampled_from([0, 1, 101, 108, 113, 276, 5]), st.binary(max_size=120))
def test_any_bytes__have_facts(link_type, frame):
    facts_of(frame, link_type)
