"""Bytes of the RoCEv2 RC packets: hand-written vectors, both codecs, hostile packets."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.events import Status
from mrc_testbed.hosts.engine.qp import EngineQpState
from mrc_testbed.hosts.engine.rocev2.rc_codec import rc_write_size
from mrc_testbed.hosts.engine.rocev2.rc_packets import (
    RC_END,
    RC_IMM,
    RC_START,
    RC_WRITES,
    Cnp,
    RcAck,
    RcOpcode,
    RcSyndrome,
    RcWrite,
)
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, WireError
from mrc_testbed.hosts.engine.wire.packets import Write
from mrc_testbed.hosts.scapy.codec import ScapyCodec
from tests.hosts.engine.engine_pair import MTU
from tests.hosts.engine.rocev2.rocev2_pair import RcPair

STRUCT, SCAPY = Codec(), ScapyCodec()
OVER_IPV6 = Addressing(ip_address("fd00:1::a").packed, ip_address("fd00:2::b").packed)
OVER_IPV4 = Addressing(ip_address("10.0.0.1").packed, ip_address("10.0.0.2").packed)
EV = 0x00010305
HEAD = (0x123, EV, 0, 0, 2)
# Opcode, SE/M/pad/tver, P_Key, variant + QP, A + reserved, PSN; then headers and payload: from the IBTA figures.
BTH = {
    "first": ("06 00 ffff 00 000123 80 000abc0000100000002000 aabbccdd 0000000801020304"),
    "middle": ("07 00 ffff 00 000123 00 000abd05060708"),
    "last imm": ("09 90 ffff 00 000123 80 000abedeadbeef010203 00"),
    "ack": ("11 00 ffff 00 000123 00 000abc1f 000008"),
    "nak": ("11 00 ffff 00 000123 00 000abc60 000008"),
    "cnp": ("81 00 ffff 40 000123 00 000000" + "00" * 16),
}
SIZE = {op: rc_write_size(op, 4) for op in RC_WRITES}
RECORDS = {
    "first": RcWrite(
        *HEAD,
        RcOpcode.WRITE_FIRST,
        0xABC,
        bytes([1, 2, 3, 4]),
        SIZE[RcOpcode.WRITE_FIRST],
        0x100000002000,
        0xAABBCCDD,
        8,
        ack_request=True,
    ),
    "middle": RcWrite(*HEAD, RcOpcode.WRITE_MIDDLE, 0xABD, bytes([5, 6, 7, 8]), SIZE[RcOpcode.WRITE_MIDDLE]),
    "last imm": RcWrite(
        *HEAD,
        RcOpcode.WRITE_LAST_IMM,
        0xABE,
        bytes([1, 2, 3]),
        SIZE[RcOpcode.WRITE_LAST_IMM],
        imm=0xDEADBEEF,
        ack_request=True,
        solicited=True,
    ),
    "ack": RcAck(*HEAD, 0xABC, 0x1F, 8),
    "nak": RcAck(*HEAD, 0xABC, 0x60, 8),
    "cnp": Cnp(*HEAD),
}


def plain(record):
    return replace(record, payload=bytes(record.payload)) if isinstance(record, RcWrite) else record


@pytest.mark.parametrize("codec", [STRUCT, SCAPY], ids=["struct", "scapy"])
@pytest.mark.parametrize("name", RECORDS)
def test_vectors__bytes_both_ways(name, codec):
    frame = codec.encode(RECORDS[name], OVER_IPV6).join()
    assert frame[48:-4] == bytes.fromhex(BTH[name])
    assert plain(codec.decode(frame)) == RECORDS[name]


def invent(rng: Random):
    kind = rng.randrange(8)
    head = (rng.getrandbits(24), rng.getrandbits(32), 0, rng.choice((0, 46)), rng.randrange(4))
    if kind == 0:
        return Cnp(*head)
    if kind == 1:
        return RcAck(*head, rng.getrandbits(24), rng.getrandbits(8), rng.getrandbits(24))
    opcode = rng.choice(sorted(RC_WRITES))
    payload = rng.randbytes(rng.randrange(40))
    record = RcWrite(*head, opcode, rng.getrandbits(24), payload, rc_write_size(opcode, len(payload)))
    if opcode in RC_START:
        record.va, record.rkey, record.dma_length = rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(32)
    if opcode in RC_IMM:
        record.imm = rng.getrandbits(32)
    record.ack_request, record.solicited = bool(rng.randrange(2)), bool(rng.randrange(2))
    return record


@pytest.mark.parametrize("seed", range(30))
def test_round_trip__both_codecs_agree(seed):
    rng = Random(seed)
    record = invent(rng)
    addressing = rng.choice((OVER_IPV6, OVER_IPV4))
    if addressing is OVER_IPV4:
        record.ev &= 0xFFFF
    frame = STRUCT.encode(record, addressing).join()
    assert SCAPY.encode(record, addressing).join() == frame
    assert plain(STRUCT.decode(frame)) == record == plain(SCAPY.decode(frame))


def refit(frame: bytes, body: bytes) -> bytes:
    """Return `frame` with another BTH and rest, lengths and iCRC made right."""
    from mrc_testbed.hosts.engine.wire.icrc import icrc_ipv6

    length = 8 + len(body) + 4
    head = frame[:4] + length.to_bytes(2, "big") + frame[6:44] + length.to_bytes(2, "big") + frame[46:48]
    return head + body + icrc_ipv6(head + body).to_bytes(4, "little")


def outcome(codec, frame):
    try:
        return plain(codec.decode(frame))
    except WireError:
        return "refused"


@given(st.sampled_from(sorted(RECORDS)), st.integers(0, 2**64), st.booleans())
def test_damaged__refused_by_both_or_the_same_record(name, seed, longer):
    rng = Random(seed)
    frame = STRUCT.encode(RECORDS[name], OVER_IPV6).join()
    body = bytearray(frame[48:-4])
    for _ in range(rng.randrange(3)):
        body[rng.randrange(len(body))] = rng.getrandbits(8)
    body = (
        bytes(body) + rng.randbytes(rng.randrange(5)) if longer else bytes(body[: 12 + rng.randrange(len(body) - 11)])
    )
    damaged_frame = refit(frame, body)
    assert outcome(STRUCT, damaged_frame) == outcome(SCAPY, damaged_frame)


def test_trimmed_codepoint__refused():
    with pytest.raises(WireError, match="only data packets"):
        STRUCT.decode(STRUCT.encode(replace(RECORDS["first"], dscp=12), OVER_IPV6).join())


# ---- hostile peers ------------------------------------------------------------------------------------------


def write(pair: RcPair, opcode: RcOpcode, data: bytes, number: int = 0, **fields) -> RcWrite:
    """Return a packet as b would get it from a."""
    qp = pair.a.qp
    return RcWrite(
        pair.b.qp.qpn,
        0,
        0,
        0,
        2,
        opcode,
        qp.first_psn + number & 0xFFFFFF,
        data,
        rc_write_size(opcode, len(data)),
        **fields,
    )


def give(pair: RcPair, *packets) -> None:
    for packet in packets:
        pair.b.endpoint.receive(packet, 0, "a", pair.now)
    pair.run(0.1)


def reth_at(pair: RcPair, offset: int, length: int) -> dict[str, int]:
    return {"va": pair.region.va + offset, "rkey": pair.region.rkey, "dma_length": length}


@pytest.mark.parametrize(
    ("case", "packets", "syndrome"),
    [
        ("wrong R_Key", lambda p: [write(p, RcOpcode.WRITE_ONLY, b"x", va=p.region.va, rkey=1, dma_length=1)], 0x62),
        ("leaves the region", lambda p: [write(p, RcOpcode.WRITE_FIRST, bytes(MTU), **reth_at(p, 0, 1 << 20))], 0x62),
        ("before it", lambda p: [write(p, RcOpcode.WRITE_ONLY, b"x", **reth_at(p, -1, 1))], 0x62),
        ("wraps", lambda p: [write(p, RcOpcode.WRITE_ONLY, b"xy", **reth_at(p, 2**64 - 1 - p.region.va, 2))], 0x62),
        ("middle first", lambda p: [write(p, RcOpcode.WRITE_MIDDLE, bytes(MTU))], 0x61),
        ("only is longer", lambda p: [write(p, RcOpcode.WRITE_ONLY, b"xy", **reth_at(p, 0, 1))], 0x61),
        ("only is shorter", lambda p: [write(p, RcOpcode.WRITE_ONLY, b"x", **reth_at(p, 0, 2))], 0x61),
        ("only above PMTU", lambda p: [write(p, RcOpcode.WRITE_ONLY, bytes(MTU + 1), **reth_at(p, 0, MTU + 1))], 0x61),
        ("short first", lambda p: [write(p, RcOpcode.WRITE_FIRST, b"x", **reth_at(p, 0, 2 * MTU))], 0x61),
        ("first is all", lambda p: [write(p, RcOpcode.WRITE_FIRST, bytes(MTU), **reth_at(p, 0, MTU))], 0x61),
        (
            "first again",
            lambda p: [
                write(p, RcOpcode.WRITE_FIRST, bytes(MTU), 0, **reth_at(p, 0, 2 * MTU)),
                write(p, RcOpcode.WRITE_FIRST, bytes(MTU), 1, **reth_at(p, 0, 2 * MTU)),
            ],
            0x61,
        ),
        (
            "more than announced",
            lambda p: [
                write(p, RcOpcode.WRITE_FIRST, bytes(MTU), 0, **reth_at(p, 0, MTU + 1)),
                write(p, RcOpcode.WRITE_MIDDLE, bytes(MTU), 1),
            ],
            0x61,
        ),
        (
            "last is longer",
            lambda p: [
                write(p, RcOpcode.WRITE_FIRST, bytes(MTU), 0, **reth_at(p, 0, MTU + 1)),
                write(p, RcOpcode.WRITE_LAST, b"xy", 1),
            ],
            0x61,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_writes__nak_error_and_nothing_written(case, packets, syndrome):
    pair = RcPair()
    pair.memory[:] = b"\xee" * len(pair.memory)
    first_bytes = pair.b.qp.counters.bytes_received
    sent = packets(pair)
    give(pair, *sent)
    assert pair.b.qp.state is EngineQpState.ERROR
    (nak,) = pair.sent(RcAck, "b")
    assert nak.packet.syndrome == syndrome
    valid_bytes = MTU if len(sent) > 1 else 0  # a FIRST that was right
    assert pair.b.qp.counters.bytes_received - first_bytes == valid_bytes
    assert set(pair.memory[valid_bytes:]) == {0xEE}
    give(pair, sent[-1])  # still sending: told again
    assert len(pair.sent(RcAck, "b")) == 2


def test_hostile_region_gone_between_two_packets():
    pair = RcPair()
    give(pair, write(pair, RcOpcode.WRITE_FIRST, bytes(MTU), 0, **reth_at(pair, 0, 2 * MTU)))
    pair.b.endpoint.deregister(pair.region)
    give(pair, write(pair, RcOpcode.WRITE_LAST, bytes(MTU), 1))
    assert pair.sent(RcAck, "b")[-1].packet.syndrome == RcSyndrome.NAK_REMOTE_ACCESS


@pytest.mark.parametrize("seed", range(20))
def test_hostile_answers__the_transfer_ends_right(seed):
    """Forged ACKs and NAKs for PSNs never sent or long past, CNPs, packets of MRC: no effect on the data."""
    pair, rng = RcPair(seed=seed, rc={"retry_cnt": 7}), Random(seed)
    data = pair.bytes(40 * MTU)
    pair.write(data)
    for _ in range(60):
        pair.run(0.0005)
        lead, lag = rng.randrange(100, 1 << 22), rng.randrange(1, 1 << 22)
        psn = (pair.a.qp.baseline.requestor.una_psn + rng.choice((lead, -lag))) & 0xFFFFFF
        syndrome = rng.choice((0x1F, 0x60, 0x61, 0x62, 0x63, 0x25, 0x7F, 0x00))
        forged_packet = rng.choice(
            (
                RcAck(pair.a.qp.qpn, 0, 0, 46, 0, psn, syndrome, rng.getrandbits(24)),
                Cnp(pair.a.qp.qpn, 0, 0, 46, 0),
                Write(pair.a.qp.qpn, 0, 0, 0, 0, 0xCA, psn, 0, 0, 0, 1, b"x", 100),
                RcAck(pair.a.qp.qpn + 1, 0, 0, 46, 0, psn, syndrome, 0),
            )
        )
        pair.a.endpoint.receive(forged_packet, 0, "b", pair.now)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")] and bytes(pair.memory[: len(data)]) == data


def test_nak_of_the_peer__blames_the_work_request():
    pair = RcPair()
    pair.a.qp.post_write(b"abc", pair.region.va, pair.region.rkey ^ 1, now=0.0)
    pair.write(b"def")
    pair.run_until_quiet()
    assert pair.completions() == [(1, "REMOTE_ACCESS"), (2, "FLUSHED")]
    assert pair.a.qp.state is EngineQpState.ERROR and Status.REMOTE_ACCESS.value in pair.a.qp.error


def test_opcodes__mrc_is_rc_or_c0():
    from mrc_testbed.hosts.engine.wire.packets import Opcode

    rc = {op.name: int(op) for op in RcOpcode if op in RC_WRITES or op is RcOpcode.ACKNOWLEDGE}
    assert {name: value | 0xC0 for name, value in rc.items()} == {n: int(Opcode[n]) for n in rc}
    assert RC_END < RC_WRITES
