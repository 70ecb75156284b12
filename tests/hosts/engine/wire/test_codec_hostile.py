"""Everything from the wire is hostile: decode gives a record or WireError, never anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, WireError, addresses
from mrc_testbed.hosts.engine.wire.icrc import icrc_ipv6
from mrc_testbed.hosts.engine.wire.packets import NackReason, Write

VECTORS = {
    name: bytes.fromhex(text) for name, text in json.loads((Path(__file__).parent / "annex_a.json").read_text()).items()
}
A, B = VECTORS["A"], VECTORS["B"]
CODEC = Codec()
TC_TRIMMED, TC_LASTHOP = 12 << 2, 16 << 2


def with_icrc(packet: bytearray) -> bytes:
    """Return the packet with the iCRC made right again."""
    pack_into("<I", packet, len(packet) - 4, icrc_ipv6(packet[:-4]))
    return bytes(packet)


def with_byte(offset: int, value: int, packet: bytes = A) -> bytes:
    changed_packet = bytearray(packet)
    changed_packet[offset] = value
    return with_icrc(changed_packet)


def without_byte(packet: bytes, offset: int) -> bytes:
    """The packet with the byte at `offset` taken out and all lengths right."""
    changed_packet = bytearray(packet[:offset] + packet[offset + 1 :])
    length = (len(changed_packet) - 40).to_bytes(2, "big")
    changed_packet[4:6] = changed_packet[44:46] = length
    return with_icrc(changed_packet)


@pytest.mark.parametrize(
    "packet, reason",
    [
        (b"", "empty"),
        (A[:59], "too few"),
        (A[:-1], "announces 64"),
        (A + b"\0", "announces 64"),
        (with_byte(0, 0x70), "IP version 7"),
        (with_byte(6, 6), "not UDP"),
        (with_byte(43, 0xB8), "UDP port 4792"),
        (with_byte(45, 0x3F), "UDP length 63"),
        (with_byte(47, 1), "UDP checksum"),
        (with_byte(48, 0xCC), "opcode 0xcc"),
        (with_byte(49, 0x01), "tver 1"),
        (without_byte(A, 75), "pad 0 after 15 bytes"),
        (with_byte(48, 0xCA, VECTORS["J"]), "headers need 20 bytes, 4 are there"),
        (without_byte(VECTORS["J"], 60), "ACKNOWLEDGE: 3 bytes"),
        (with_byte(48, 0xD1), "ACKNOWLEDGE: 40 bytes"),
        (with_byte(48, 0xDC), "SACK: 40 bytes"),
        (A[:70] + b"\xff" + A[71:], "iCRC"),
        (A[:-4] + bytes(4), "iCRC"),
        (VECTORS["K"][:10] + b"\0\0" + VECTORS["K"][12:], "header checksum"),
    ],
)
def test_decode__says_what_is_wrong(packet: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        CODEC.decode(packet)


def test_decode__both_udp_ports_and_any_pkey_are_accepted() -> None:
    assert CODEC.decode(with_byte(43, 0xB7)) == CODEC.decode(A)
    packet = bytearray(A)
    packet[42:44] = (4971).to_bytes(2, "big")
    packet[50:52] = b"\0\0"
    assert CODEC.decode(with_icrc(packet)) == CODEC.decode(A)


def test_decode__udp_checksum_zero_or_right() -> None:
    packet = bytearray(A)
    total = sum(int.from_bytes(part, "big") for part in words(packet[8:40] + packet[40:])) + 64 + 17
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    packet[46:48] = (~total & 0xFFFF).to_bytes(2, "big")
    assert CODEC.decode(bytes(packet)) == CODEC.decode(A), "the iCRC does not cover the checksum"


def words(data: bytearray) -> list[bytes]:
    return [bytes(data[i : i + 2]) for i in range(0, len(data), 2)]


def test_icrc__does_not_cover_what_changes_in_flight() -> None:
    packet = bytearray(A)
    packet[1] ^= 0x30  # ECN: marked on the way
    packet[7] -= 3  # three hops
    packet[52] = 0xAA  # BTH byte 4
    assert CODEC.decode(bytes(packet)).ecn != CODEC.decode(A).ecn


def test_decode__outer_dscp_wins_and_ce_counts_in_either() -> None:
    assert (CODEC.decode(A, 0, 46 << 2).dscp, CODEC.decode(A, 0, 46 << 2).ecn) == (46, 0)
    assert CODEC.decode(A, 0, 4 << 2 | 3).ecn == 3
    inner = bytearray(A)
    inner[1] |= 0x30
    assert CODEC.decode(bytes(inner), 0, 4 << 2 | 2).ecn == 3


# ---- trimmed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [68, 84, 88, len(A)])
def test_trimmed__is_read_up_to_its_timestamp_whatever_is_left(size: int) -> None:
    record = CODEC.decode(A[:size], 1, TC_TRIMMED)
    assert isinstance(record, Write)
    assert (record.trimmed, record.psn, record.msn, record.timestamp) == (NackReason.TRIMMED, 0xABC, 7, 0x1234)
    assert (record.size, record.payload, record.rkey) == (104, b"", 0), "the size is that of the whole packet"
    assert record.ev == 0x00010305


@pytest.mark.parametrize("size", [64, 66, 67])
def test_trimmed__in_front_of_its_timestamp(size: int) -> None:
    """§4.3: 78 bytes with Ethernet, 118 behind an outer header: BTH.ts is set, and TSETH is gone."""
    record = CODEC.decode(A[:size], 1, TC_TRIMMED)
    assert isinstance(record, Write)
    assert (record.trimmed, record.psn, record.msn, record.timestamp, record.tsr) == (
        NackReason.TRIMMED,
        0xABC,
        7,
        None,
        0,
    )
    assert (record.size, record.ev) == (104, 0x00010305)


def test_trimmed__at_the_last_hop_and_without_timestamp() -> None:
    record = CODEC.decode(B[:64], 1, TC_LASTHOP)
    assert isinstance(record, Write)
    assert (record.trimmed, record.rqmsn, record.rtx) == (NackReason.TRIMMED_LASTHOP, 3, True)


@pytest.mark.parametrize(
    "packet, reason",
    [(A[:63], "ends before"), (B[:63], "ends before"), (VECTORS["C"], "only data"), (A + b"x", "announces")],
)
def test_trimmed__too_short_or_no_write(packet: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        CODEC.decode(packet, 0, TC_TRIMMED)


# ---- noise ------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.binary(max_size=200), st.none() | st.integers(0, 255))
def test_noise__raises_only_wire_error(data: bytes, outer: int | None) -> None:
    for version in (data, b"\x60" + data, b"\x45" + data):
        with suppress(WireError):
            CODEC.decode(version, 0, outer)
        with suppress(WireError):
            addresses(version)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(VECTORS)),
    st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255)), max_size=4),
    st.integers(0, 200),
    st.booleans(),
    st.sampled_from([None, TC_TRIMMED, TC_LASTHOP, 4 << 2 | 3]),
)
def test_mutations__raise_only_wire_error(
    name: str, changes: list[tuple[int, int]], cut: int, seal: bool, outer: int | None
) -> None:
    packet = bytearray(VECTORS[name])
    for offset, value in changes:
        packet[offset % len(packet)] = value
    packet = packet[: cut if cut < len(packet) else None]
    data = with_icrc(packet) if seal and len(packet) > 64 else bytes(packet)
    with suppress(WireError):
        CODEC.decode(memoryview(data), 0, outer)


def test_addressing__refuses_other_sizes() -> None:
    with pytest.raises(ValueError, match="need 16"):
        Addressing(bytes(6), bytes(6))


def test_decode__no_room_for_an_icrc() -> None:
    packet = bytearray(A[:60])
    pack_into(">H", packet, 4, 20)
    pack_into(">H", packet, 44, 20)
    with pytest.raises(WireError, match="20 bytes have no room for an iCRC"):
        CODEC.decode(bytes(packet))


def test_encode__what_is_no_record_is_refused() -> None:
    with pytest.raises(ValueError, match="object is no packet record"):
        CODEC.encode(object(), Addressing(bytes(16), bytes(16)))
