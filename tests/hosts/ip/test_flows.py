"""Tests of flows: their keys, hostile packets, moves when a path is withdrawn, and what is forgotten."""

from __future__ import annotations

import socket
import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.ip import flows
from mrc_testbed.hosts.ip.flows import FlowTable, NotIpError, read_header

A, B = (1, 0), (257, 1)
TCP, UDP, ICMP = 6, 17, 1


def ip4(protocol: int = TCP, ports: tuple[int, int] = (1000, 80), fragment: int = 0) -> bytes:
    addresses = socket.inet_aton("10.64.0.1") + socket.inet_aton("10.64.0.3")
    header = struct.pack(">BBHHHBBH", 0x45, 0, 40, 7, fragment, 64, protocol, 0) + addresses
    return header + struct.pack(">HH", *ports) + bytes(16)


def ip6(next_header: int = UDP, ports: tuple[int, int] = (1000, 80)) -> bytes:
    addresses = socket.inet_pton(socket.AF_INET6, "fd01::1") + socket.inet_pton(socket.AF_INET6, "fd01::3")
    return struct.pack(">IHBB", 6 << 28, 8, next_header, 64) + addresses + struct.pack(">HH", *ports) + bytes(4)


def test_read_header__ports_and_echo_identifiers_tell_flows_apart_fragments_do_not():
    keys = {read_header(packet).flow for packet in (ip4(), ip4(ports=(1001, 80)), ip4(UDP), ip6(), ip6(ports=(9, 80)))}
    assert len(keys) == 5
    assert read_header(ip4(fragment=0x2000)).flow == read_header(ip4(fragment=0x00B9, ports=(3, 4))).flow
    pings = [ip4(ICMP, (0x0800, checksum))[:24] + identifier for checksum, identifier in ((1, b"\0\7"), (2, b"\0\7"))]
    assert read_header(pings[0]).flow == read_header(pings[1]).flow
    assert read_header(pings[0]).flow != read_header(pings[0][:24] + b"\0\x08").flow
    assert read_header(ip6()).destination == socket.inet_pton(socket.AF_INET6, "fd01::3")


@pytest.mark.parametrize("first_byte", [0x00, 0x44, 0x4F, 0x60])
@pytest.mark.parametrize("length", [0, 1, 31])
def test_read_header__bytes_that_are_no_packet_are_refused(first_byte, length):
    packet = (bytes((first_byte,)) + bytes(30))[:length]
    with pytest.raises(NotIpError):
        read_header(packet)


@given(st.binary(max_size=80))
def test_read_header__never_fails_in_another_way(packet):
    try:
        header = read_header(packet)
    except NotIpError:
        return
    assert len(header.source) == len(header.destination) in (4, 16)


def test_is_multicast__groups_and_broadcast_alone():
    for first, last, is_multicast in ((10, 64, False), (224, 239, True), (255, 255, True)):
        packets = [ip4()[:16] + bytes((first,)) + ip4()[17:], ip4()[:16] + bytes((last,)) + ip4()[17:]]
        assert [read_header(packet).is_multicast for packet in packets] == [is_multicast] * 2
    assert read_header(ip6()[:24] + b"\xff\x02" + ip6()[26:]).is_multicast and not read_header(ip6()).is_multicast


def test_flow__keeps_its_path_while_it_is_good_and_moves_once_when_it_is_withdrawn():
    good = {"h2": {A, B}}
    table = FlowTable(good.__getitem__, Random(1))
    path = table.path(b"flow", "h2", 0.0)
    assert {table.path(b"flow", "h2", time) for time in (1.0, 2.0, 3.0)} == {path} and table.move_count == 0
    good["h2"] = {A, B} - {path}
    (other_path,) = good["h2"]
    assert table.path(b"flow", "h2", 4.0) == other_path and table.move_count == 1
    good["h2"] = {A, B}
    assert table.path(b"flow", "h2", 5.0) == other_path and table.move_count == 1
    good["h2"] = set()
    assert table.path(b"flow", "h2", 6.0) is None
    good["h2"] = {A, B}
    assert table.path(b"flow", "h2", 7.0) == other_path


def test_flows__spread_over_all_good_paths():
    table = FlowTable(lambda _peer: [A, B], Random(1))
    paths = [table.path(bytes((number,)), "h2", 0.0) for number in range(100)]
    assert 30 < paths.count(A) < 70
    assert table.paths_in_use(start=0.0) == {("h2", A), ("h2", B)}


def test_flows__the_idle_and_the_excess_are_forgotten(monkeypatch):
    monkeypatch.setattr(flows, "FLOWS_MAX", 3)
    table = FlowTable(lambda _peer: [A], Random(1))
    for number in range(5):
        table.path(bytes((number,)), "h2", float(number))
    assert len(table) == 3
    assert table.paths_in_use(start=4.5) == set()
    table.path(b"new", "h3", 4.0 + flows.IDLE_S)
    assert len(table) == 1 and table.paths_in_use(start=5.0) == {("h3", A)}
