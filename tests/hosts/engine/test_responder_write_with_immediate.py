"""WriteIMM: posted receives, order, the limit in flight, and a missing receive (mrc-protocol §6.3)."""

from __future__ import annotations

from typing import Any

import pytest

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import QpError, ReceiveFlushed, Status, WriteImmReceived
from mrc_testbed.hosts.engine.wire.packets import Nack, NackReason, Opcode, Packet, Syndrome, TransportAck, Write
from tests.hosts.engine.engine_pair import MTU, Pair, lose_first


def received(pair: Pair) -> list[tuple[int, int]]:
    """Return (recv_id, imm) in order of delivery at b."""
    return [(e.recv_id, e.imm) for e in pair.events_of(WriteImmReceived, "b")]


def posted(pair: Pair, count: int) -> None:
    for _ in range(count):
        pair.b.qp.post_recv()


# ---- order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost_psn", [0, 2, 5, 7])
def test_order__an_immediate_waits_for_everything_before_it(lost_psn: int) -> None:
    pair = Pair(psn=0, planes=2, uplinks=4, framed=True)
    posted(pair, 4)
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == lost_psn)
    for n in range(4):
        pair.write(pair.bytes(2 * MTU), n * 2 * MTU, imm=100 + n)
    pair.run(0.006)
    early_count = lost_psn // 2
    assert received(pair) == [(n + 1, 100 + n) for n in range(early_count)]
    pair.run_until_quiet()
    assert received(pair) == [(1, 100), (2, 101), (3, 102), (4, 103)]


def test_order__under_heavy_reordering_and_between_plain_writes() -> None:
    pair = Pair(planes=4, uplinks=4, framed=True, seed=3)
    posted(pair, 20)
    pair.filter = lambda s, p: [pair.rng.random() * 0.02]
    for n in range(20):
        pair.write(pair.bytes(300), n * 600, imm=n)
        pair.write(pair.bytes(300), n * 600 + 300)
    pair.run_until_quiet()
    assert received(pair) == [(n + 1, n) for n in range(20)]
    assert all(line.packet.rqmsn == 0 or line.packet.msn % 2 == 0 for line in pair.sent())


def test_rqmsn__wraps() -> None:
    pair = Pair(psn=0, framed=True)
    pair.a.qp.requestor._rqmsn = 0xFFFD
    pair.b.qp.responder._rqmsn = 0xFFFD
    posted(pair, 5)
    for n in range(5):
        pair.write(pair.bytes(2 * MTU), imm=n)
    pair.run_until_quiet()
    assert received(pair) == [(n + 1, n) for n in range(5)]
    numbers = [line.packet.rqmsn for line in pair.sent()]
    assert numbers == [0xFFFE, 0xFFFE, 0xFFFF, 0xFFFF, 0, 0, 1, 1, 2, 2]


def test_solicited__travels_with_the_last_packet() -> None:
    pair = Pair(psn=0, framed=True)
    posted(pair, 2)
    pair.write(pair.bytes(2 * MTU), imm=1, solicited=True)
    pair.write(b"", imm=2)
    pair.run_until_quiet()
    assert [e.solicited for e in pair.events_of(WriteImmReceived, "b")] == [True, False]
    assert [line.packet.solicited for line in pair.sent()] == [False, True, False]


# ---- limits -----------------------------------------------------------------------------------------------


def test_limit__the_requestor_keeps_to_what_the_peer_takes() -> None:
    pair = Pair(config_b={"max_wimm": 2})
    posted(pair, 3)
    pair.write(b"a", imm=1)
    pair.write(b"b", imm=2)
    pair.write(b"plain writes are not counted")
    with pytest.raises(LocalError, match="2 WriteIMM at a time"):
        pair.write(b"c", imm=3)
    pair.run_until_quiet()
    pair.write(b"c", imm=3)
    pair.run_until_quiet()
    assert received(pair) == [(1, 1), (2, 2), (3, 3)]


def imm_packet(pair: Pair, psn: int, rqmsn: int, **changes: Any) -> Write:
    return Write(
        pair.b.qp.qpn,
        0x001,
        0,
        4,
        2,
        changes.get("opcode", Opcode.WRITE_ONLY_IMM),
        psn,
        0,
        pair.region.va,
        pair.region.rkey,
        16,
        b"\x55" * 16,
        108,
        rqmsn=rqmsn,
        imm=7,
        timestamp=7,
    )


def to_b(pair: Pair, packet: Packet) -> list[Packet]:
    pair.b.endpoint.receive(packet, 0, "a", pair.now)
    return [answer for _, _, answer in pair.b.endpoint.transmit(pair.now)]


def naks(answers: list[Packet]) -> list[int]:
    return [a.syndrome for a in answers if isinstance(a, TransportAck) and a.syndrome != Syndrome.ACK]


@pytest.mark.parametrize("opcode", [Opcode.WRITE_ONLY_IMM, Opcode.WRITE_MIDDLE, Opcode.WRITE_FIRST])
def test_limit__overflow_is_seen_in_any_packet_of_the_message(opcode: Opcode) -> None:
    pair = Pair(psn=100, config_b={"max_wimm": 2})
    assert naks(to_b(pair, imm_packet(pair, 110, 2, opcode=opcode))) == []
    assert naks(to_b(pair, imm_packet(pair, 111, 3, opcode=opcode))) == [Syndrome.NAK_INVALID_REQUEST]
    assert pair.b.qp.state.value == "error"


@pytest.mark.parametrize("numbers", [(1, 3), (1, 1), (2,), (0, 2), (0xFFFF,), (0x8000,)])
def test_rqmsn__that_is_not_the_next_one_is_refused(numbers: tuple[int, ...]) -> None:
    pair = Pair(psn=100)
    posted(pair, 5)
    for n, rqmsn in enumerate(numbers):
        answers = to_b(pair, imm_packet(pair, 100 + n, rqmsn))
        assert bool(naks(answers)) == (n == len(numbers) - 1)
    assert len(pair.b.endpoint.events()) >= len(numbers) - 1


@pytest.mark.parametrize("first", [0, 1])
def test_rqmsn__peers_may_count_from_zero_or_one(first: int) -> None:
    pair = Pair(psn=100)
    posted(pair, 3)
    for n in range(3):
        assert naks(to_b(pair, imm_packet(pair, 100 + n, first + n))) == []


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("limit", [1, 3])
def test_rqmsn__zero_of_a_plain_write_and_of_the_first_immediate(first: int, limit: int) -> None:
    """RQMSN 0 alone does not tell a plain write from the first WriteIMM.

    Both, of several packets, in any order, up to the limit in flight.
    """
    pair = Pair(config={"first_rqmsn": first}, config_b={"max_wimm": limit}, framed=True, uplinks=4, seed=first + limit)
    pair.filter = lambda s, p: [pair.rng.random() * 0.02]
    posted(pair, 4 * limit)
    for turn in range(4):
        for n in range(limit):
            pair.write(pair.bytes(2 * MTU + 1))
            pair.write(pair.bytes(2 * MTU + 1), imm=turn * limit + n)
        pair.run_until_quiet()
    assert received(pair) == [(n + 1, n) for n in range(4 * limit)]
    assert all(status == "SUCCESS" for _, status in pair.completions())


def test_replay__of_a_delivered_immediate_delivers_nothing() -> None:
    pair = Pair(psn=100)
    posted(pair, 3)
    for _ in range(3):
        to_b(pair, imm_packet(pair, 100, 1))
    pair.flush()
    assert received(pair) == [(1, 7)] and pair.b.qp.receives() == 2


# ---- without a receive ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["nak", "unexp_event"])
@pytest.mark.parametrize("lose_answer", [False, True])
def test_no_receive__both_ends_fail_with_remote_operation_error(rule: str, lose_answer: bool) -> None:
    pair = Pair(psn=0, planes=2, config_b={"no_receive": rule}, framed=True)
    posted(pair, 1)
    if lose_answer:
        lose_first(
            pair, lambda s, p: s == "b" and (isinstance(p, Nack) or getattr(p, "syndrome", 0x1F) != Syndrome.ACK)
        )
    pair.write(b"one", imm=1)
    pair.write(pair.bytes(3 * MTU), imm=2)
    pair.write(b"three", imm=3)
    pair.run_until_quiet()
    assert received(pair) == [(1, 1)]
    statuses = [status for _, status in pair.completions()]
    assert statuses[-2:] == ["REMOTE_OPERATION", "FLUSHED"]
    assert statuses[0] == ("SUCCESS" if rule == "nak" else "FLUSHED"), "a NAK's MSN completes what came before"
    assert [e.status for e in pair.events_of(QpError)] == [Status.REMOTE_OPERATION]
    assert "no posted receive" in pair.events_of(QpError, "b")[0].detail
    if rule == "unexp_event":
        assert {line.packet.reason for line in pair.sent(Nack, "b")} == {NackReason.UNEXP_EVENT}


def test_no_receive__deliver_needs_none() -> None:
    pair = Pair(config_b={"no_receive": "deliver"})
    pair.write(b"one", imm=1)
    pair.run_until_quiet()
    assert received(pair) == [(0, 1)]


def test_receives__come_back_when_the_qp_fails() -> None:
    pair = Pair()
    posted(pair, 2)
    pair.write(b"x", offset=1 << 20)
    pair.run_until_quiet()
    assert [e.recv_id for e in pair.events_of(ReceiveFlushed, "b")] == [1, 2]
    with pytest.raises(LocalError, match="error"):
        pair.b.qp.post_recv()


def test_error__further_packets_are_answered_with_0x62() -> None:
    """A QP that failed for reasons of its own tells a peer that goes on sending (§6.2 step 3)."""
    pair = Pair(config={"linear_cnt": 1, "exp_cnt": 0})
    pair.filter = lambda s, p: [] if s == "b" else None
    reverse_memory = bytearray(10)
    region = pair.a.endpoint.register(reverse_memory)
    pair.b.qp.post_write(b"x", region.va, region.rkey, now=0.0)
    pair.run(1.0)
    assert pair.b.qp.state.value == "error" and pair.a.qp.state.value == "rts"
    pair.filter = None
    pair.write(b"y")
    pair.run_until_quiet()
    assert pair.completions() == [(1, "REMOTE_ACCESS")]
