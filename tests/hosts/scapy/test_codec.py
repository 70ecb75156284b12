"""The scapy codec: Annex A, and the struct codec as reference on valid, damaged and invented packets."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire import headers
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, WireError, write_size
from mrc_testbed.hosts.engine.wire.icrc import icrc_ipv4, icrc_ipv6
from mrc_testbed.hosts.engine.wire.packets import (
    IMM_OPCODES,
    WRITE_OPCODES,
    EndpointRequest,
    EndpointResponse,
    Nack,
    NackReason,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.scapy import layers
from mrc_testbed.hosts.scapy.codec import ScapyCodec

WIRE = {
    k: bytes.fromhex(v)
    for k, v in json.loads((Path(__file__).parents[1] / "engine" / "wire" / "annex_a.json").read_text()).items()
}
STRUCT, SCAPY = Codec(), ScapyCodec()
REQUESTOR, RESPONDER = ip_address("fd00:1::a").packed, ip_address("fd00:2::b").packed
FORWARD, REVERSE = Addressing(REQUESTOR, RESPONDER), Addressing(RESPONDER, REQUESTOR)
OVER_IPV4 = Addressing(ip_address("10.0.0.1").packed, ip_address("10.0.0.2").packed)


def addressing_of(vector: str) -> Addressing:
    if vector == "K":
        return OVER_IPV4
    return FORWARD if WIRE[vector][8:24] == REQUESTOR else REVERSE


def is_same(a, b) -> bool:
    """Return whether records are equal field by field; payloads may be views."""
    plain = [replace(r, payload=bytes(r.payload)) if isinstance(r, Write) else r for r in (a, b)]
    return plain[0] == plain[1]


def verdict(codec, *args):
    """Return the record, or the word "refused"."""
    try:
        record = codec.decode(*args)
    except WireError:
        return "refused"
    return replace(record, payload=bytes(record.payload)) if isinstance(record, Write) else record


@pytest.mark.parametrize("vector", WIRE)
def test_annex_a__decoded_and_encoded_again(vector):
    record = SCAPY.decode(WIRE[vector], 3)
    assert is_same(record, STRUCT.decode(WIRE[vector], 3))
    built = SCAPY.encode(record, addressing_of(vector)).join()
    if vector == "K":  # its identification differs from ours: everything behind the IP header, but for the iCRC
        assert built[20:-4] == WIRE[vector][20:-4]
    else:
        assert built.hex() == WIRE[vector].hex()


u8, u16, u24, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 24, 32))
u64, int16 = st.integers(0, (1 << 64) - 1), st.integers(-(1 << 15), (1 << 15) - 1)
COMMON_FIELDS = {
    "dest_qp": u24,
    "ev": u32,
    "plane": st.integers(0, 15),
    "dscp": st.sampled_from((0, 4, 8, 46, 63)),
    "ecn": st.integers(0, 3),
}


@st.composite
def writes(draw) -> Write:
    opcode = draw(st.sampled_from(sorted(WRITE_OPCODES)))
    payload = draw(st.binary(max_size=70))
    timestamp = draw(st.none() | u16)
    return Write(
        **{key: draw(strategy) for key, strategy in COMMON_FIELDS.items()},
        opcode=opcode,
        psn=draw(u24),
        msn=draw(u16),
        va=draw(u64),
        rkey=draw(u32),
        dma_length=draw(u32),
        payload=payload,
        size=write_size(opcode, len(payload), timestamp is not None),
        rqmsn=draw(u16),
        imm=draw(u32) if opcode in IMM_OPCODES else 0,
        timestamp=timestamp,
        tsr=draw(st.integers(0, 1)) if timestamp is not None else 0,
        ack_request=draw(st.booleans()),
        rtx=draw(st.booleans()),
        solicited=draw(st.booleans()),
    )


@st.composite
def sacks(draw) -> Sack:
    probe_id = draw(st.none() | u16)
    return Sack(
        **{key: draw(strategy) for key, strategy in COMMON_FIELDS.items()},
        cack_psn=draw(u24),
        sack_offset=draw(int16),
        bitmap=draw(u64),
        ack_psn_offset=0 if probe_id is not None else draw(int16),
        probe_id=probe_id,
        entropy=draw(u32),
        verdict=draw(st.integers(0, 3)),
        timestamp=draw(u16),
        rcvd_units=draw(u24),
        ooo_count=draw(st.integers(0, 32767)),
        mpr=draw(u8),
        penalty=draw(st.integers(0, 127)),
        restore_cwnd=draw(st.booleans()),
        rtx=draw(st.booleans()),
        spdcid=draw(u16),
        dpdcid=draw(u16),
        cc_type=draw(st.integers(0, 15)),
    )


ids = {"spdcid": u16, "dpdcid": u16}
nacks = st.builds(
    Nack, **COMMON_FIELDS, psn=u24, reason=u8, entropy=u32, timestamp=u16, cc_type=st.integers(0, 15), **ids
)
acks = st.builds(TransportAck, **COMMON_FIELDS, psn=u24, syndrome=u8, msn=u24)
tsr = st.integers(0, 1)
rtx = st.booleans()
probes = st.builds(ReliabilityProbe, **COMMON_FIELDS, probe_id=u16, timestamp=u16, tsr=tsr, **ids, rtx=rtx)
op = st.integers(0, 3)
requests = st.builds(
    EndpointRequest, **COMMON_FIELDS, request_id=u16, op=op, port_mask=u32, timestamp=u16, tsr=tsr, rtx=rtx
)
responses = st.builds(EndpointResponse, **COMMON_FIELDS, request_id=u16, op=op, timestamp=u16)
records = st.one_of(writes(), sacks(), nacks, acks, probes, requests, responses)


@settings(max_examples=150, deadline=None)
@given(records, st.sampled_from((FORWARD, OVER_IPV4)))
def test_codecs__same_record_same_bytes(record, addressing):
    wire = STRUCT.encode(record, addressing).join()
    assert SCAPY.encode(record, addressing).join().hex() == wire.hex()
    half_ev = addressing is OVER_IPV4  # 16 bits of it travel (§1.4)
    expected_record = replace(record, ev=record.ev & 0xFFFF) if half_ev else record
    assert is_same(SCAPY.decode(wire, record.plane), expected_record)
    assert is_same(STRUCT.decode(wire, record.plane), expected_record)


@settings(max_examples=150, deadline=None)
@given(records, st.data())
def test_codecs__same_verdict_on_damaged_packets(record, data):
    wire = bytearray(STRUCT.encode(record, data.draw(st.sampled_from((FORWARD, OVER_IPV4)))).join())
    for _ in range(data.draw(st.integers(0, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):  # an iCRC that is right lets the damage through to the deeper checks
        icrc = icrc_ipv6 if wire[0] >> 4 == 6 else icrc_ipv4
        wire[-4:] = icrc(bytes(wire[:-4])).to_bytes(4, "little")
    cut = data.draw(st.just(len(wire)) | st.integers(0, len(wire)))
    outer = data.draw(st.none() | st.integers(0, 255) | st.sampled_from((12 << 2, 16 << 2 | 3)))
    damaged_packet = bytes(wire[:cut])
    assert verdict(SCAPY, damaged_packet, 1, outer) == verdict(STRUCT, damaged_packet, 1, outer)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120), st.none() | st.integers(0, 255))
def test_codecs__same_verdict_on_noise(noise, outer):
    for start in (b"", b"\x60", WIRE["A"][:60], WIRE["K"][:40]):
        packet = start + noise
        assert verdict(SCAPY, packet, 0, outer) == verdict(STRUCT, packet, 0, outer)


@pytest.mark.parametrize("size", [64, 67, 68, 72, 84, 100])
@pytest.mark.parametrize("reason", [NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP])
def test_trimmed__what_is_left_is_enough(size, reason):
    """TSETH from 68 bytes on is whole; below, the cut is in front of it (78 bytes with Ethernet)."""
    outer = {NackReason.TRIMMED: 12, NackReason.TRIMMED_LASTHOP: 16}[reason] << 2 | 2
    record = verdict(SCAPY, WIRE["A"][:size], 1, outer)
    assert record == verdict(STRUCT, WIRE["A"][:size], 1, outer)
    timestamp = 0x1234 if size >= 68 else None
    assert (record.trimmed, record.psn, record.msn, record.timestamp) == (reason, 0xABC, 7, timestamp)


def test_ports__a_configured_one_is_understood_too():
    config = Config.of(udp_dport=5000)
    record = STRUCT.decode(WIRE["C"])
    wire = ScapyCodec(config).encode(record, REVERSE).join()
    assert wire == Codec(config).encode(record, REVERSE).join()
    assert is_same(ScapyCodec(config).decode(wire), record)
    assert verdict(SCAPY, wire) == "refused" == verdict(STRUCT, wire)


def test_layout_h__halves_swapped_in_both():
    config = Config.of(ev_layout="H")
    record = replace(STRUCT.decode(WIRE["C"]), ev=0x12345678)
    wire = ScapyCodec(config).encode(record, REVERSE).join()
    assert wire == Codec(config).encode(record, REVERSE).join()
    assert ScapyCodec(config).decode(wire).ev == 0x12345678


LAYERS = {
    headers.BTH: layers.BTH,
    headers.METH: layers.METH,
    headers.TSETH: layers.TSETH,
    headers.RETH: layers.RETH,
    headers.IMMDT: layers.ImmDt,
    headers.AETH: layers.AETH,
    headers.SETH: layers.SETH,
    headers.CC_STATE: layers.CCState,
    headers.NETH: layers.NETH,
    headers.PETH: layers.PETH,
    headers.ERTH: layers.ERTH,
    headers.EETH: layers.EETH,
}


@pytest.mark.parametrize("layout", LAYERS, ids=lambda layout: layout.name)
def test_layers__the_same_bit_positions_as_the_engines_tables(layout):
    """Reserved bits may be cut up differently; every named field has to end at the same bit."""
    assert len(LAYERS[layout]()) == layout.size
    ends, end_bit = set(), 0
    for field in LAYERS[layout].fields_desc:
        if layout is headers.SETH and field.name == "probe_id":  # the other reading of ack_psn_offset
            continue
        end_bit += round(field.sz * 8) if not hasattr(field, "size") or not field.size else field.size
        ends.add(end_bit)
    end_bit = 0
    for name, bits in layout.bits.items():
        end_bit += bits
        assert end_bit in ends or name.startswith("res"), f"{layout.name}.{name} ends at bit {end_bit}"
