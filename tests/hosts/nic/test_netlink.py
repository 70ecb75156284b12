"""Link messages of the kernel, good and hostile."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.nic import netlink


def newlink(name: bytes, flags: int, index: int = 5) -> bytes:
    attribute = struct.pack("=HH", 4 + len(name) + 1, 3) + name + b"\0"
    return netlink.IFINFOMSG.pack(0, 1, index, flags, 0) + attribute


@pytest.mark.parametrize(
    ("flags", "admin", "carrier"),
    [(0x10001, True, True), (0x1, True, False), (0x10000, False, True), (0, False, False)],
)
def test_links__flags_of_a_message(flags, admin, carrier):
    name, state = netlink.link_message(netlink.RTM_NEWLINK, newlink(b"h0-eth0", flags))
    assert (name, state) == ("h0-eth0", netlink.LinkState(5, admin, carrier))
    assert state.up is (admin and carrier)


def test_links__a_deleted_interface_has_no_index():
    assert netlink.link_message(netlink.RTM_DELLINK, newlink(b"h0-eth0", 0x10001))[1] == netlink.LinkState()


@given(st.binary(max_size=200))
def test_links__hostile_messages_end(noise):
    for kind, body in netlink.netlink_messages(noise):
        netlink.link_message(kind, body)
    netlink.link_message(netlink.RTM_NEWLINK, noise)
