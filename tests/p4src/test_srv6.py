"""srv6.p4 in memory: the hop trace of mrc-protocol §8.3, and every reason to drop."""

from __future__ import annotations

import pytest

from tests.switch.compiled_programs import Bench, compile_named

LOCATOR = 0xFCBBBB00
MALFORMED_FRAME, NOT_IPV6, HOP_LIMIT, WRONG_USID, UNKNOWN_USID = 1, 2, 3, 4, 5
ETHERNET = bytes.fromhex("020000000002 020000000001 86dd")
SOURCE = bytes.fromhex("fd000003000100000000000000000001")
INNER = bytes.fromhex("6120000100401140") + SOURCE + bytes.fromhex("fd00000300020000000000000000000b")
UDP = bytes.fromhex("030512b700400000")
BTH = bytes.fromhex("ca00ffff0000012390000abc")
PAYLOAD = bytes(range(44))


def address(*usids: int) -> bytes:
    out = LOCATOR.to_bytes(4, "big") + b"".join(usid.to_bytes(2, "big") for usid in usids)
    return out.ljust(16, b"\0")


def frame(*usids: int, hop_limit: int = 64) -> bytes:
    """Return a frame of Annex A's shape: outer IPv6 with a uSID carrier, inner IPv6, UDP, BTH, payload."""
    outer = bytes.fromhex("612000010068 29") + bytes([hop_limit]) + SOURCE + address(*usids)
    return ETHERNET + outer + INNER + UDP + BTH + PAYLOAD


def switch(own_usid: int, hops: dict[int, int]) -> Bench:
    bench = Bench(compile_named("srv6"))
    bench.add("my_usid", (LOCATOR << 16 | own_usid,), "shift")
    for usid, port in hops.items():
        bench.add("usid_next", (LOCATOR << 16 | usid,), "forward", port=port)
    return bench


@pytest.fixture
def t0() -> Bench:
    """T0 number 1 of plane 3: its uplink 5 is port 7."""
    return switch(0x2301, {0x1305: 7, 0x3300: 1})


def test_hop_trace__t0_t1_t0_byte_for_byte(t0):
    """§8.3: source T0 1, uplink 5, destination T0 2, downlink 0x0b, plane 3."""
    t1 = switch(0x1305, {0x2301: 2, 0x2302: 3})
    last = switch(0x2302, {0x330B: 12})
    assert t0.send(1, frame(0x2301, 0x1305, 0x2302, 0x330B, hop_limit=64)) == [
        (7, frame(0x1305, 0x2302, 0x330B, hop_limit=63))
    ]
    assert t1.send(2, frame(0x1305, 0x2302, 0x330B, hop_limit=63)) == [(3, frame(0x2302, 0x330B, hop_limit=62))]
    assert last.send(20, frame(0x2302, 0x330B, hop_limit=62)) == [(12, frame(0x330B, hop_limit=61))]


def test_full_carrier__six_usids_shift(t0):
    usids = (0x2301, 0x1305, 0x2302, 0x330B, 0x3AAA, 0x3BBB)
    assert t0.send(1, frame(*usids)) == [(7, frame(*usids[1:], hop_limit=63))]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame(0x2302, 0x1305), WRONG_USID),
        (frame(0x2401, 0x1305), WRONG_USID),
        (frame(0x2301, 0x1306), UNKNOWN_USID),
        (frame(0x2301), UNKNOWN_USID),
        (frame(0x2301, 0x1305, hop_limit=1), HOP_LIMIT),
        (frame(0x2301, 0x1305, hop_limit=0), HOP_LIMIT),
        (ETHERNET[:12] + b"\x08\x06" + bytes(46), NOT_IPV6),
        (frame(0x2301, 0x1305)[:13], MALFORMED_FRAME),
        (frame(0x2301, 0x1305)[:53], MALFORMED_FRAME),
        (frame(0x2301, 0x1305)[:93], MALFORMED_FRAME),
        (frame(0x2301, 0x1305)[:113], MALFORMED_FRAME),
        (b"", MALFORMED_FRAME),
    ],
)
def test_drop__counted_once_by_reason_and_port(t0, sent, reason):
    assert t0.send(4, sent) == []
    cells = {index: data.packets for index, data in t0.device.read_counter(t0.id("drops")) if data.packets}
    assert cells == {reason << 9 | 4: 1}
    assert t0.device.stats().dropped_ingress == 1


def test_forwarded__counted_by_egress_port_with_bytes(t0):
    sent = frame(0x2301, 0x1305, 0x2302, 0x330B)
    t0.send(1, sent)
    t0.send(2, sent)
    ((_, data),) = t0.device.read_counter(t0.id("forwarded"), 7)
    assert (data.packets, data.bytes) == (2, 2 * len(sent))


@pytest.mark.parametrize("port", [4791, 4971])
def test_both_udp_ports__parse_as_bth(t0, port):
    """§1.3: a frame that ends within the BTH is malformed for both ports, and only for these."""
    short_frame = frame(0x2301, 0x1305)[:110]
    assert t0.send(1, short_frame.replace(b"\x12\xb7", port.to_bytes(2, "big"))) == []
    assert t0.count("drops", MALFORMED_FRAME << 9 | 1) == 1
    assert t0.send(1, short_frame.replace(b"\x12\xb7", b"\x12\xb8"))[0][0] == 7


def test_plain_ipv6__forwarded_on_its_usid_alone(t0):
    """A carrier without an inner header (a self-probe, say) takes the same way."""
    outer = bytes.fromhex("6000000000081140") + SOURCE
    sent = ETHERNET + outer + address(0x2301, 0x3300) + bytes.fromhex("1000200000080000")
    forwarded_frame = ETHERNET + outer[:7] + b"\x3f" + outer[8:] + address(0x3300) + bytes.fromhex("1000200000080000")
    assert t0.send(1, sent) == [(1, forwarded_frame)]


def test_packet_out__leaves_as_given(t0):
    """9 bits of port, 7 of padding, then the frame, which no table touches."""
    sent = frame(0x2302, 0x9999, hop_limit=0)
    assert t0.send(510, (7 << 7).to_bytes(2, "big") + sent) == [(7, sent)]
    assert t0.send(510, (300 << 7).to_bytes(2, "big") + b"x") == [(300, b"x")]


def test_packet_in__carries_the_ingress_port(t0):
    t0.add("punt", (0x88CC,), "to_controller")
    sent = ETHERNET[:12] + b"\x88\xcc" + bytes(range(30))
    assert t0.send(9, sent) == [(510, (9 << 7).to_bytes(2, "big") + sent)]
