"""IP packets behind each link layer, tagged or not."""

from __future__ import annotations

import struct

import pytest

from mrc_testbed.capture.explain.explainer import Explainer
from mrc_testbed.capture.explain.link_layer import ip_packet, link_name
from mrc_testbed.capture.explain.packet_facts import facts_of
from mrc_testbed.capture.packet_files import INBOUND, OUTBOUND
from tests.capture.explain.made_frames import PLAN, a_write, made_frame

PACKET = made_frame(a_write(7))[14:]
MACS = bytes(12)
COMMENT = Explainer(PLAN).comment(MACS + b"\x86\xdd" + PACKET, at_ns=0)


@pytest.mark.parametrize(
    ("link_type", "header", "direction", "index"),
    [
        (1, MACS + bytes.fromhex("86dd"), 0, 0),
        (1, MACS + bytes.fromhex("8100 0001 86dd"), 0, 0),
        (1, MACS + bytes.fromhex("88a8 0064 8100 0001 86dd"), 0, 0),
        (113, bytes.fromhex("0004 0001 0006 020000000000 0000 86dd"), OUTBOUND, 0),
        (113, bytes.fromhex("0000 0001 0006 020000000000 0000 8100 0001 86dd"), INBOUND, 0),
        (276, bytes.fromhex("86dd 0000 00000007 0001 04 06 020000000000 0000"), OUTBOUND, 7),
        (101, b"", 0, 0),
        (229, b"", 0, 0),
        (0, struct.pack("=I", 30), 0, 0),
        (108, struct.pack("!I", 24), 0, 0),
    ],
)
def test_packet__behind_its_link_layer(link_type, header, direction, index):
    assert ip_packet(header + PACKET, link_type) == (0x86DD, len(header), direction, index)
    assert Explainer(PLAN).comment(header + PACKET, at_ns=0, link_type=link_type) == COMMENT
    for size in range(len(header) + 1):
        assert facts_of((header + PACKET)[:size], link_type).opcode is None


def test_cooked_capture__tells_ports_apart_by_its_index():
    first, second = (struct.pack("!HHIHBB8x", 0x86DD, 0, index, 1, 0, 6) + PACKET for index in (3, 4))
    explainer = Explainer(PLAN)
    explainer.comment(first, at_ns=0, link_type=276, interface="any")
    comment = explainer.comment(second, at_ns=10**6, link_type=276, interface="any")
    assert comment.endswith("the same packet as frame 1 on interface 3, 1.000 ms before")
    comment_without_times = explainer.comment(first, at_ns=None, link_type=276, interface="any")
    assert "ms before" not in comment_without_times


def test_link_type_that_is_not_read__is_named_and_counted():
    explainer = Explainer(None)
    assert explainer.comment(PACKET, at_ns=0, link_type=105) == "MRC: not read: link type 105 (802.11)"
    assert explainer.comment(PACKET, at_ns=0, link_type=999) == f"MRC: not read: {link_name(999)}"
    assert explainer.unread_links == {105: 1, 999: 1} and not explainer.known_count
