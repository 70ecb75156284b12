"""Messages about links, taken apart: what they say, and what is no news of an interface."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.switch.system.rtnetlink import (
    HEADER,
    IFLA_CARRIER_CHANGES,
    IFLA_IFNAME,
    IFLA_MTU,
    IFLA_OPERSTATE,
    LINK,
    RTM_DELLINK,
    RTM_NEWLINK,
    InterfaceState,
    link_news,
    parse_link,
)

OPER_UP = 6


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, flags: int, *attributes: bytes, family: int = socket.AF_UNSPEC) -> bytes:
    body = LINK.pack(family, 1, 5, flags, 0) + attribute(IFLA_IFNAME, b"h0-eth0\0") + b"".join(attributes)
    return HEADER.pack(HEADER.size + len(body), kind, 0, 0, 0) + body


@pytest.mark.parametrize(
    ("flags", "admin", "carrier", "oper"),
    [
        (0x10001, True, True, "UP"),
        (0x1, True, False, "UNKNOWN"),
        (0x10000, False, True, "UNKNOWN"),
        (0, False, False, "UNKNOWN"),
    ],
)
def test_link__flags(flags, admin, carrier, oper):
    ((is_there, link),) = link_news(message(RTM_NEWLINK, flags))
    assert is_there and (link.name, link.ifindex) == ("h0-eth0", 5)
    assert (link.admin_up, link.carrier, link.oper_status) == (admin, carrier, oper)


def test_link__attributes():
    numbers = ((IFLA_MTU, 9216), (IFLA_CARRIER_CHANGES, 3))
    words = [attribute(kind, struct.pack("=I", number)) for kind, number in numbers]
    ((_, link),) = link_news(message(RTM_NEWLINK, 0x1, attribute(IFLA_OPERSTATE, bytes([OPER_UP])), *words))
    assert link == InterfaceState("h0-eth0", 5, True, "UP", 9216, 3)


@pytest.mark.parametrize("value", [b"", b"\xff"])
def test_link__an_oper_state_that_nobody_knows(value):
    ((_, link),) = link_news(message(RTM_NEWLINK, 0, attribute(IFLA_OPERSTATE, value)))
    assert link.oper_status == "UNKNOWN"


def test_news__of_two_interfaces_in_one_datagram():
    datagram = message(RTM_NEWLINK, 0x1) + message(RTM_DELLINK, 0x1)
    assert [is_there for is_there, _ in link_news(datagram)] == [True, False]


def test_news__that_a_port_leaves_its_bridge_is_not_that_the_interface_is_gone():
    assert list(link_news(message(RTM_DELLINK, 0x10001, family=socket.AF_BRIDGE))) == []


@given(st.binary(max_size=200))
def test_news__hostile_datagrams_end(noise):
    list(link_news(noise))
    list(link_news(HEADER.pack(HEADER.size + len(noise), RTM_NEWLINK, 0, 0, 0) + noise))
    parse_link(memoryview(noise))
