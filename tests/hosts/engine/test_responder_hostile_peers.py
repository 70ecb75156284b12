"""Peers that lie, replay and overreach, over whole conversations.

Nothing outside a region changes, nothing crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.events import Completion, QpError, Status
from mrc_testbed.hosts.engine.responder import MARKED_EVS
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_CE,
    Nack,
    NackReason,
    Opcode,
    Packet,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)
from tests.hosts.engine.engine_pair import MTU, Pair
from tests.hosts.engine.test_responder_hostile_packets import random_record

REGION = 16 * MTU
FENCE = 4096


class FencedPair(Pair):
    """b's region lies between other registered memory, under other R_Keys.

    `intact` says that none of it changed.
    """

    def __init__(self, **keys: Any) -> None:
        super().__init__(psn=100, region=REGION, **keys)
        self.fences = [bytearray(b"\xee" * FENCE) for _ in range(2)]
        b = self.b.endpoint
        b.register(self.fences[0], va=self.region.va - FENCE)
        b.register(self.fences[1], va=self.region.va + REGION)

    def intact(self) -> bool:
        return all(fence == b"\xee" * FENCE for fence in self.fences)

    def to_b(self, packet: Packet, peer: str = "a") -> list[Packet]:
        self.b.endpoint.receive(copy(packet), 0, peer, self.now)
        return [answer for _, _, answer in self.b.endpoint.transmit(self.now)]

    def to_a(self, packet: Packet) -> None:
        self.a.endpoint.receive(copy(packet), 0, "b", self.now)
        self.flush()

    def data(self, psn: int, va: int, size: int = MTU, **changes: Any) -> Write:
        packet = Write(
            self.b.qp.qpn,
            0x001,
            0,
            4,
            2,
            Opcode.WRITE_ONLY,
            psn,
            0,
            va,
            self.region.rkey,
            size,
            b"\x55" * size,
            size + 88,
            timestamp=7,
        )
        return replace(packet, **changes)


def naks(answers: list[Packet]) -> list[tuple[int, int]]:
    """Return (syndrome, PSN) of the Transport NAKs."""
    acks = [a for a in answers if isinstance(a, TransportAck) and a.syndrome != Syndrome.ACK]
    return [(a.syndrome, a.psn) for a in acks]


# ---- writes that overreach ----------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [op for op in Opcode if op.name.startswith("WRITE")])
@pytest.mark.parametrize("total", [REGION + 1, 1 << 31, 0xFFFFFFFF])
def test_oversized_dma_length__is_refused_or_stays_inside(opcode: Opcode, total: int) -> None:
    pair = FencedPair()
    pair.b.qp.post_recv()
    answers = pair.to_b(
        pair.data(100, pair.region.va, opcode=opcode, dma_length=total, rqmsn=opcode.name[-3:] == "IMM")
    )
    if opcode is Opcode.WRITE_MIDDLE:
        assert naks(answers) == [(Syndrome.NAK_INVALID_REQUEST, 100)], "no message was begun"
        assert pair.memory[:MTU] == b"\x55" * MTU, "it has its own place, and that is inside"
    else:
        assert naks(answers) == [(Syndrome.NAK_REMOTE_ACCESS, 100)] and not any(pair.memory)
    assert pair.intact()


def test_middle_that_overtakes_its_first__writes_inside_only_and_the_message_fails() -> None:
    """A message of 4 packets that leaves the region with its last one; FIRST comes last but one."""
    pair = FencedPair()
    va, total = pair.region.va + REGION - 3 * MTU, 4 * MTU
    assert naks(pair.to_b(pair.data(102, va + 2 * MTU, opcode=Opcode.WRITE_MIDDLE, dma_length=total))) == []
    answers = pair.to_b(pair.data(100, va, opcode=Opcode.WRITE_FIRST, dma_length=total))
    assert naks(answers) == [(Syndrome.NAK_REMOTE_ACCESS, 100)]
    pair.to_b(pair.data(101, va + MTU, opcode=Opcode.WRITE_MIDDLE, dma_length=total))
    assert pair.memory[:-MTU] == bytes(REGION - MTU) and pair.memory[-MTU:] == b"\x55" * MTU
    assert pair.intact() and pair.b.qp.state.value == "error"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_wrong_rkey__in_any_packet_of_a_message(position: int) -> None:
    pair = FencedPair()
    opcodes = (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST)
    for n, opcode in enumerate(opcodes):
        rkey = pair.region.rkey ^ (n == position)
        packet = pair.data(100 + n, pair.region.va + n * MTU, opcode=opcode, dma_length=3 * MTU, rkey=rkey)
        answers = pair.to_b(packet)
        if n == position:
            assert naks(answers) == [(Syndrome.NAK_REMOTE_ACCESS, 100 + n)]
    assert pair.memory[position * MTU :] == bytes(REGION - position * MTU) and pair.intact()


def test_deregistered__in_the_middle_of_a_transfer() -> None:
    pair = FencedPair(config={"cwnd_bytes": 1500})
    pair.write(pair.bytes(12 * MTU))
    pair.run(0.012)
    pair.b.endpoint.deregister(pair.region)
    content = bytes(pair.memory)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "REMOTE_ACCESS")] and pair.memory == content
    pair.memory.extend(b"the owner has it back")


def test_overlapping_writes__leave_bytes_of_one_or_the_other() -> None:
    pair = FencedPair(planes=2, uplinks=4, config={"cwnd_bytes": 1 << 16})
    pair.filter = lambda s, p: [pair.rng.random() * 0.02]
    for n in range(1, 9):
        pair.write(bytes([n]) * (4 * MTU), 2 * n * 40)
    pair.run_until_quiet()
    assert [status for _, status in pair.completions()] == ["SUCCESS"] * 8
    end = 2 * 8 * 40 + 4 * MTU
    assert set(pair.memory[80:end]) <= set(range(1, 9)) and not any(pair.memory[end:]) and not any(pair.memory[:80])
    assert pair.intact()


def test_outside_the_window__in_every_direction_changes_nothing() -> None:
    pair = FencedPair()
    for distance in (-(1 << 23), -(1 << 22), -1, 1024, 1025, 1 << 20, (1 << 23) - 2):
        answers = pair.to_b(pair.data(100 + distance & 0xFFFFFF, pair.region.va))
        assert len(answers) == 1
        kind = Nack if distance >= 1024 else Sack
        assert isinstance(answers[0], kind)
    assert not any(pair.memory) and pair.b.qp.counters.packets_received == 0


# ---- replays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rtx", [False, True])
def test_replay__of_a_whole_transfer_writes_nothing_again(rtx: bool) -> None:
    pair = FencedPair(planes=2, uplinks=2)
    data = pair.bytes(10 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    packets = [line.packet for line in pair.sent()]
    pair.memory[:] = bytes(REGION)
    counters = pair.b.qp.counters
    first_bytes = counters.bytes_received
    for packet in packets:
        payload = data[(packet.psn - 100) * MTU :][:MTU]
        answers = pair.to_b(replace(packet, payload=payload, rtx=rtx))
        assert any(isinstance(a, Sack) for a in answers), "a duplicate is answered: our SACK may have been lost"
    assert not any(pair.memory) and counters.bytes_received == first_bytes
    assert pair.b.qp.state.value == "rts"


def test_replay__of_every_answer_completes_nothing_twice() -> None:
    pair = FencedPair(planes=2, uplinks=2)
    pair.write(pair.bytes(10 * MTU))
    pair.run_until_quiet()
    answers = [line.packet for line in pair.log if line.source == "b"]
    pair.write(pair.bytes(10 * MTU))
    pair.flush()
    for packet in answers * 3:
        pair.to_a(packet)
    assert pair.completions() == [(1, "SUCCESS")], "the second write is not complete, whatever old answers say"
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS"), (2, "SUCCESS")]


# ---- feedback that lies -----------------------------------------------------------------------------------------


def forged_sack(pair: Pair, cack: int, **changes: Any) -> Sack:
    return replace(Sack(pair.a.qp.qpn, 0x001, 0, 46, 0, cack & 0xFFFFFF, 1, 0, 0, None, 0x001, 0, 0, 0), **changes)


LIES: dict[str, Callable[[Pair], Packet]] = {
    "cack never sent": lambda p: forged_sack(p, 5000),
    "cack far behind": lambda p: forged_sack(p, 100 - (1 << 22)),
    "bitmap beyond what was sent": lambda p: forged_sack(p, 99, bitmap=(1 << 64) - 1),
    "bitmap far ahead": lambda p: forged_sack(p, 99, sack_offset=0x7FFF, bitmap=(1 << 64) - 1),
    "bitmap far behind": lambda p: forged_sack(p, 99, sack_offset=-0x8000, bitmap=(1 << 64) - 1),
    "trigger nobody sent": lambda p: forged_sack(p, 99, ack_psn_offset=0x7FFF, entropy=0xDEADBEEF),
    "all bytes of the world received": lambda p: forged_sack(p, 99, rcvd_units=0x7FFFFF),
    "full penalty": lambda p: forged_sack(p, 99, penalty=127, restore_cwnd=True),
    "reserved verdict": lambda p: forged_sack(p, 99, verdict=3),
    "window of none": lambda p: forged_sack(p, 99, mpr=255),
    "answer to a probe of its own": lambda p: forged_sack(p, 99, probe_id=1),
    "ACK never sent": lambda p: TransportAck(p.a.qp.qpn, 0x001, 0, 46, 0, 5000, Syndrome.ACK, 1),
    "NAK never sent": lambda p: TransportAck(p.a.qp.qpn, 0x001, 0, 46, 0, 5000, Syndrome.NAK_REMOTE_ACCESS, 1),
    "RNR NAK": lambda p: TransportAck(p.a.qp.qpn, 0x001, 0, 46, 0, 100, 0x20, 1),
    "sequence NAK": lambda p: TransportAck(p.a.qp.qpn, 0x001, 0, 46, 0, 100, 0x60, 1),
    "NACK never sent": lambda p: Nack(p.a.qp.qpn, 0x001, 0, 46, 0, 5000, NackReason.TRIMMED, 0x001),
    "UNEXP_EVENT never sent": lambda p: Nack(p.a.qp.qpn, 0x001, 0, 46, 0, 5000, NackReason.UNEXP_EVENT, 0x001),
    "NACK of another EV": lambda p: Nack(p.a.qp.qpn, 0x001, 0, 46, 0, 100, NackReason.TRIMMED, 0xBAD),
}


@pytest.mark.parametrize("name", LIES)
def test_lies__the_transfer_goes_on(name: str) -> None:
    pair = FencedPair(planes=2, uplinks=2, config={"cwnd_bytes": 2000})
    data = pair.bytes(14 * MTU)
    pair.write(data)
    pair.flush()
    pair.to_a(LIES[name](pair))
    pair.run(0.007)
    pair.to_a(LIES[name](pair))
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data and pair.intact()
    assert pair.completions() == [(1, "SUCCESS")]
    assert pair.events_of(QpError) == []


def test_lies__all_of_them_all_the_time() -> None:
    rng = Random(7)
    pair = FencedPair(planes=2, uplinks=2, config={"cwnd_bytes": 2000, "exp_cnt": 25, "timeout_ceiling_s": 0.3})
    data = pair.bytes(16 * MTU)
    pair.write(data)
    lies = list(LIES.values())
    for _ in range(3000):
        if not pair.a.qp.outstanding():
            break
        pair.to_a(rng.choice(lies)(pair))
        pair.step()
    pair.run_until_quiet()
    assert pair.memory == data and pair.completions() == [(1, "SUCCESS")]


def test_ack_that_comes_too_early__hurts_only_its_sender() -> None:
    """A responder may lie that all sent so far is here; it is the one who has no data then."""
    pair = FencedPair()
    pair.write(pair.bytes(4 * MTU))
    pair.flush()
    pair.to_a(TransportAck(pair.a.qp.qpn, 0x001, 0, 46, 0, 103, Syndrome.ACK, 1))
    assert pair.completions() == [(1, "SUCCESS")]
    pair.run(0.5)
    assert [e for e in pair.a.events if isinstance(e, Completion)][1:] == [] and pair.a.qp.state.value == "rts"


def test_floods_of_ev_probes_and_port_updates__leave_the_transfer_alone() -> None:
    rng = Random(3)
    pair = FencedPair(planes=2, uplinks=2, config={"cwnd_bytes": 2000})
    data = pair.bytes(14 * MTU)
    pair.write(data)
    for _ in range(500):
        packet = random_record(rng, 2)
        if packet.dest_qp == 2 and getattr(packet, "port_mask", 3) & 3 == 3:
            pair.b.endpoint.receive(packet, 0, "a", pair.now)
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data and pair.completions() == [(1, "SUCCESS")]


@pytest.mark.parametrize("seed", range(6))
def test_anything__at_the_responder_stays_inside_the_region(seed: int) -> None:
    """Writes with fields drawn near every edge: whatever is accepted lies inside, and fences never change."""
    rng = Random(seed)
    pair = FencedPair(planes=2, uplinks=2)
    va = pair.region.va
    for _ in range(800):
        if pair.b.qp.state.value != "rts":
            # The last packet ended the QP, as it may: go on with a new one
            pair = FencedPair(planes=2, uplinks=2, seed=rng.randrange(1 << 30))
            va = pair.region.va
        size = rng.choice((0, 1, 16, MTU))
        address = va + rng.choice((0, -1, -MTU, REGION - size, REGION - size + 1, REGION, rng.randrange(REGION)))
        total = rng.choice((0, size, size, MTU, 3 * MTU, REGION, REGION + 1, 0xFFFFFFFF))
        opcode = rng.choice([op for op in Opcode if op.name.startswith("WRITE")])
        psn = 100 + rng.choice((0, 1, 2, 5, rng.randrange(1100), -1)) & 0xFFFFFF
        pair.to_b(
            pair.data(
                psn,
                address,
                size,
                opcode=opcode,
                dma_length=total,
                rqmsn=rng.choice((0, 1, 2)),
                rkey=pair.region.rkey ^ (rng.random() < 0.05),
                rtx=rng.random() < 0.3,
                ack_request=rng.random() < 0.3,
                trimmed=rng.choice((None,) * 8 + (NackReason.TRIMMED,)),
                ecn=rng.choice((2, 3)),
            )
        )
        assert pair.intact() and len(pair.memory) == REGION
        if pair.b.qp.state.value == "error":
            [error] = [e for e in pair.b.endpoint.events() if isinstance(e, QpError)]
            assert error.status in (Status.REMOTE_ACCESS, Status.REMOTE_INVALID_REQUEST, Status.REMOTE_OPERATION)


def test_marks__of_more_evs_than_are_counted_begin_anew() -> None:
    pair = FencedPair(config_b={"always_skip_marks": 2})

    def verdict(ev: int) -> int:
        answers = pair.to_b(pair.data(100, pair.region.va, ev=ev, ecn=ECN_CE))
        return next(a.verdict for a in answers if isinstance(a, Sack))

    assert [verdict(0x10000), verdict(0x10000)] == [Verdict.SKIP_ONCE, Verdict.ALWAYS_SKIP]
    assert {verdict(ev) for ev in range(MARKED_EVS)} == {Verdict.SKIP_ONCE}
    assert verdict(0x10000) == Verdict.SKIP_ONCE, "what a peer makes us count is bounded"
