"""Peers that break the rules, by mistake or on purpose: nothing outside is written, nothing crashes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.events import QpError, Status
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    Nack,
    NackReason,
    Opcode,
    Packet,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Write,
)
from tests.hosts.engine.engine_pair import MTU, Pair, lose_first

REGION = 4096


def pair_with_fence() -> Pair:
    """Return a pair whose region has other registered memory around it, which no test may change."""
    pair = Pair(psn=100, region=REGION, planes=2, uplinks=2)
    pair.fences = [bytearray(b"\xee" * 64), bytearray(b"\xee" * 64)]
    pair.b.endpoint.register(pair.fences[0], va=pair.region.va - 64)
    pair.b.endpoint.register(pair.fences[1], va=pair.region.va + REGION)
    return pair


def untouched(pair: Pair) -> bool:
    return pair.memory == bytes(REGION) and all(set(f) == {0xEE} for f in pair.fences)


# ---- through the front door: a write that asks for too much ------------------------------------------------


@pytest.mark.parametrize(
    "offset, size, rkey_change",
    [(0, 16, 1), (REGION, 1, 0), (REGION - 8, 16, 0), (-8, 16, 0), (REGION - 600, 1000, 0), (1 << 40, 3, 0)],
)
def test_write__wrong_rkey_or_out_of_bounds_writes_nothing(offset: int, size: int, rkey_change: int) -> None:
    pair = pair_with_fence()
    region = pair.region
    pair.a.qp.post_write(b"\x55" * size, region.va + offset, region.rkey ^ rkey_change, now=0.0)
    pair.a.qp.post_write(b"\x66" * 10, region.va, region.rkey, now=0.0)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "REMOTE_ACCESS"), (2, "FLUSHED")]
    assert untouched(pair)
    [error] = pair.events_of(QpError, "b")
    assert error.status is Status.REMOTE_ACCESS and "region" in error.detail


def test_write__what_came_before_a_refused_one_completes() -> None:
    pair = pair_with_fence()
    pair.filter = lambda s, p: [] if getattr(p, "syndrome", None) == Syndrome.ACK else None
    for offset in (0, 100, REGION):
        pair.a.qp.post_write(b"\x55" * 10, pair.region.va + offset, pair.region.rkey, now=pair.now)
        pair.run(0.02)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS"), (2, "SUCCESS"), (3, "REMOTE_ACCESS")], "the NAK's MSN says 2"


def test_write__lost_nak_is_repeated() -> None:
    pair = pair_with_fence()
    naks: list[Packet] = []

    def lose_one(source: str, packet: Packet) -> list[float] | None:
        if isinstance(packet, TransportAck) and packet.syndrome != Syndrome.ACK and not naks:
            naks.append(packet)
            return []
        return None

    pair.filter = lose_one
    pair.a.qp.post_write(b"x", pair.region.va + REGION, pair.region.rkey, now=0.0)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "REMOTE_ACCESS")] and naks


# ---- forged data packets -----------------------------------------------------------------------------------


def data(pair: Pair, **changes: Any) -> Write:
    """Return the packet a requestor would send first, with changes."""
    valid_write = Write(
        pair.b.qp.qpn,
        0x001,
        0,
        4,
        2,
        Opcode.WRITE_ONLY,
        100,
        0,
        pair.region.va,
        pair.region.rkey,
        16,
        b"\x55" * 16,
        104,
        timestamp=7,
    )
    return replace(valid_write, **changes)


def to_b(pair: Pair, packet: Packet, plane: int = 0, peer: str = "a") -> list[Packet]:
    """Deliver a packet to b; return b's answers."""
    pair.b.endpoint.receive(packet, plane, peer, pair.now)
    return [answer for _, _, answer in pair.b.endpoint.transmit(pair.now)]


def test_write__payload_longer_than_its_message_is_refused() -> None:
    pair = pair_with_fence()
    [nak] = to_b(pair, data(pair, dma_length=15))
    assert isinstance(nak, TransportAck) and nak.syndrome == Syndrome.NAK_INVALID_REQUEST
    assert untouched(pair)


@pytest.mark.parametrize(
    "changes",
    [
        {"opcode": Opcode.WRITE_FIRST, "dma_length": REGION + 1},
        {"opcode": Opcode.WRITE_LAST, "dma_length": REGION},  # would have begun before the region
        {"opcode": Opcode.WRITE_MIDDLE, "va": (1 << 64) - 8},
        {"opcode": Opcode.WRITE_ONLY, "va": 0},
        {"dma_length": 0xFFFFFFFF},
        {"rkey": 0},
    ],
)
def test_write__message_that_leaves_the_region_is_refused_by_any_of_its_packets(changes: dict[str, Any]) -> None:
    pair = pair_with_fence()
    [nak] = to_b(pair, data(pair, **changes))
    assert isinstance(nak, TransportAck)
    assert (nak.syndrome, nak.psn) == (Syndrome.NAK_REMOTE_ACCESS, 100)
    assert untouched(pair)


def test_write__ahead_of_the_window_is_nacked_or_dropped() -> None:
    pair = Pair(psn=100)
    [nack] = to_b(pair, data(pair, psn=100 + 1024))
    assert isinstance(nack, Nack)
    assert (nack.reason, nack.psn, nack.entropy, nack.timestamp) == (NackReason.PSN_OOR_WINDOW, 1124, 0x001, 7)
    assert to_b(pair, data(pair, psn=100 + 1023)) == []
    dropping_pair = Pair(psn=100, config_b={"oor_action": "drop"})
    assert to_b(dropping_pair, data(dropping_pair, psn=100 + 1024)) == []
    assert bytes(dropping_pair.memory) == bytes(len(dropping_pair.memory))


def test_write__far_behind_is_a_duplicate() -> None:
    pair = Pair(psn=100)
    [sack] = to_b(pair, data(pair, psn=(100 - (1 << 22)) & 0xFFFFFF))
    assert isinstance(sack, Sack) and sack.cack_psn == 99
    assert not any(pair.memory)


def test_write__same_psn_with_other_content_changes_nothing() -> None:
    pair = Pair(psn=100)
    to_b(pair, data(pair))
    to_b(pair, data(pair, payload=b"\x77" * 16))
    assert pair.memory[:16] == b"\x55" * 16


def test_write__from_another_host_or_for_another_qp_is_not_ours() -> None:
    pair = Pair(psn=100)
    assert to_b(pair, data(pair), peer="mallory") == []
    assert to_b(pair, data(pair, dest_qp=999)) == []
    assert pair.b.endpoint.unclaimed_packets == 2
    assert not any(pair.memory)


def test_write_imm__more_than_advertised_is_refused() -> None:
    pair = Pair(psn=100, config_b={"max_wimm": 2})
    for psn, rqmsn in ((102, 1), (103, 2)):
        to_b(pair, data(pair, psn=psn, opcode=Opcode.WRITE_ONLY_IMM, rqmsn=rqmsn, imm=1))
    answers = to_b(pair, data(pair, psn=104, opcode=Opcode.WRITE_ONLY_IMM, rqmsn=3, imm=1))
    assert [a.syndrome for a in answers if isinstance(a, TransportAck)] == [Syndrome.NAK_INVALID_REQUEST]


# ---- trimmed and refused packets --------------------------------------------------------------------------


def test_trimmed__is_nacked_skips_the_ev_and_is_no_loss() -> None:
    pair = Pair(psn=0, planes=2, uplinks=2)
    trimmed: list[Write] = []

    def trim(source: str, packet: Packet) -> None:
        if isinstance(packet, Write) and packet.psn == 1 and not trimmed:
            trimmed.append(packet)
            packet.trimmed, packet.payload = NackReason.TRIMMED, b""

    pair.filter = trim
    content = pair.bytes(6 * MTU)
    pair.write(content)
    pair.run(0.011)
    assert pair.state(trimmed[0].ev) == "skip"
    pair.run_until_quiet()
    assert pair.memory[: len(content)] == content
    [retransmission] = pair.retransmissions()
    assert retransmission.packet.ev != trimmed[0].ev and retransmission.time == pytest.approx(0.010)
    assert (pair.a.qp.counters.trimmed, pair.a.qp.counters.lost) == (1, 0)


def test_trimmed_at_the_last_hop__leaves_the_ev_alone() -> None:
    pair = Pair(psn=0)
    pair.write(pair.bytes(MTU))
    pair.filter = lambda s, p: setattr(p, "trimmed", NackReason.TRIMMED_LASTHOP) if getattr(p, "psn", 1) == 0 else None
    pair.flush()
    pair.filter = None
    pair.run_until_quiet()
    assert pair.a.qp.counters.trimmed == 1
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}
    assert pair.completions() == [(1, "SUCCESS")]


def test_trimmed__without_trim_nack_data_must_not_be_trimmable() -> None:
    pair = Pair(config_b={"trim_nack": False})
    pair.write(b"x")
    pair.run_until_quiet()
    assert {line.packet.dscp for line in pair.sent()} == {pair.config.dscp.no_trim}


@pytest.mark.parametrize("reason", [NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE, 0x77])
def test_refused__waits_a_round_trip_and_costs_a_retry_but_no_path(reason: int) -> None:
    pair = Pair(psn=0, planes=2, uplinks=1)
    pair.write(pair.bytes(MTU))
    pair.flush()
    first = pair.sent()[0].packet
    pair._wire.clear()
    pair.now = 0.010
    to_a(pair, Nack(pair.a.qp.qpn, first.ev, 0, 46, 0, 0, reason, first.ev, first.timestamp))
    pair.run_until_quiet()
    [retransmission] = pair.retransmissions()
    assert retransmission.time == pytest.approx(0.010 + pair.config.loss.base_timeout_s), (
        "no RTT known yet: one timeout"
    )
    assert pair.a.qp.counters.retry_charges == 1 and pair.completions() == [(1, "SUCCESS")]
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}


def test_unexpected_event__ends_the_qp() -> None:
    pair = Pair(psn=0)
    pair.write(b"x")
    pair.flush()
    to_a(pair, Nack(pair.a.qp.qpn, 0, 0, 46, 0, 0, NackReason.UNEXP_EVENT, 0))
    pair.flush()
    assert pair.completions() == [(1, "REMOTE_OPERATION")]


# ---- forged feedback --------------------------------------------------------------------------------------


def to_a(pair: Pair, packet: Packet, plane: int = 0) -> None:
    pair.a.endpoint.receive(packet, plane, "b", pair.now)


def sack(pair: Pair, cack: int, **changes: Any) -> Sack:
    valid_sack = Sack(pair.a.qp.qpn, 0x001, 0, 46, 0, cack & 0xFFFFFF, 1, 0, 0, None, 0x001, 0, 0, 0)
    return replace(valid_sack, **changes)


def test_sack__for_packets_never_sent_is_ignored() -> None:
    pair = Pair(psn=100)
    pair.write(pair.bytes(4 * MTU))
    pair.flush()
    to_a(pair, sack(pair, 104))
    to_a(pair, sack(pair, 99, sack_offset=1000, bitmap=(1 << 64) - 1))
    to_a(pair, sack(pair, 99, sack_offset=-30000, bitmap=(1 << 64) - 1, ack_psn_offset=-32768))
    to_a(pair, TransportAck(pair.a.qp.qpn, 0, 0, 46, 0, 104, Syndrome.ACK, 1))
    to_a(pair, TransportAck(pair.a.qp.qpn, 0, 0, 46, 0, 101, 0x20, 1))
    pair.flush()
    assert pair.completions() == [] and pair.a.qp.counters.bad_feedback == 3
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_sack__that_lies_about_everything_only_costs_its_own_sender() -> None:
    pair = Pair(psn=100)
    content = pair.bytes(20 * MTU)
    pair.write(content)
    pair.flush()
    to_a(pair, sack(pair, 105, bitmap=(1 << 64) - 1, rcvd_units=0xFFFFFF, entropy=0xDEADBEEF, verdict=3))
    pair.flush()
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_sack__swearing_that_paths_are_bad_leaves_the_floor() -> None:
    pair = Pair(psn=100, planes=2, uplinks=2)
    pair.write(pair.bytes(20 * MTU))
    pair.flush()
    for ev, _ in pair.evs:
        to_a(pair, sack(pair, 99, entropy=ev, verdict=2))
    assert sum(row["active"] for row in pair.a.qp.ev_states()) == 1
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_answers__to_probes_never_sent_are_ignored() -> None:
    pair = Pair(psn=100)
    to_a(pair, sack(pair, 99, probe_id=5))
    to_a(pair, replace(endpoint_request(), op=3))
    assert pair.a.qp.counters.probes_answered == 0
    assert pair.a.endpoint.transmit(0.0) == []


def endpoint_request() -> EndpointRequest:
    return EndpointRequest(2, 0x001, 0, 46, 0, 7, 0, 0xFFFFFFFF)


def test_port_status__older_updates_do_not_undo_newer_ones() -> None:
    pair = Pair(planes=2)
    to_a(pair, replace(endpoint_request(), request_id=0xFFFF, port_mask=0b01))
    to_a(pair, replace(endpoint_request(), request_id=0, port_mask=0b11))
    to_a(pair, replace(endpoint_request(), request_id=0xFFFF, port_mask=0b01))
    pair.write(pair.bytes(10 * MTU))
    pair.run_until_quiet()
    assert min(pair.a.qp.counters.plane_packets) == 5


def test_any_record__in_any_order_raises_nothing() -> None:
    """Random field values in every kind of packet, at both ends, while a transfer runs."""
    rng = Random(5)
    pair = Pair(psn=0, planes=2, uplinks=2, region=REGION)
    for round_ in range(2000):
        if pair.a.qp.state.value != "rts" or pair.b.qp.state.value != "rts":
            pair = Pair(psn=0, planes=2, uplinks=2, region=REGION, seed=round_)
        if not pair.a.qp.outstanding():
            pair.write(pair.bytes(1000))
        for side, source in ((pair.a, "b"), (pair.b, "a")):
            packet = random_record(rng, side.qp.qpn)
            side.endpoint.receive(packet, rng.randrange(2), source, pair.now)
        pair.step()


def random_record(rng: Random, qpn: int) -> Packet:
    def near(bits: int) -> int:
        return rng.choice((0, 1, rng.randrange(40), rng.getrandbits(bits), (1 << bits) - 1)) & (1 << bits) - 1

    # Values near the edges and known QPNs and EVs come more often: most packets pass the first checks
    head = (rng.choice((qpn, qpn, qpn, 2)), rng.choice((0, 1, 0x100, 0x101, near(32))), 0, near(6), near(2))
    offset = rng.randrange(-0x8000, 0x8000)
    return rng.choice(
        (
            Write(
                *head,
                rng.choice([op for op in Opcode if op.name.startswith("WRITE")]),
                near(24),
                near(16),
                near(64),
                near(32),
                near(32),
                rng.randbytes(rng.randrange(20)),
                near(16),
                near(16),
                near(32),
                near(16),
                1,
                rng.random() < 0.5,
                rng.random() < 0.5,
                False,
                rng.choice((None, *NackReason)),
            ),
            Sack(
                *head,
                near(24),
                rng.choice((1, offset)),
                near(64),
                rng.choice((1, offset)),
                rng.choice((None, near(16))),
                near(32),
                rng.randrange(4),
                near(16),
                near(24),
            ),
            Nack(*head, near(24), rng.choice((1, 2, 6, 11, 0x55)), near(32), near(16)),
            TransportAck(*head, near(24), rng.choice((0x1F, 0x1F, 0x20, 0x62)), near(24)),
            ReliabilityProbe(*head, near(16)),
            EndpointRequest(*head, near(16), rng.randrange(4), near(32)),
        )
    )


def test_sack__that_forgets_what_it_showed_is_stale() -> None:
    pair = Pair(psn=100)
    pair.write(pair.bytes(8 * MTU))
    pair.flush()
    counters = pair.a.qp.counters
    to_a(pair, sack(pair, 101, sack_offset=2, bitmap=0b1))
    to_a(pair, sack(pair, 101, sack_offset=0, bitmap=0b101))
    assert counters.stale_sacks == 0, "a bitmap may begin before what is acknowledged"
    to_a(pair, sack(pair, 101, sack_offset=0, bitmap=0b001))
    assert counters.stale_sacks == 1
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_sack__of_a_foreign_cc_type_gives_a_round_trip_only_beyond_doubt() -> None:
    pair = Pair(psn=100)
    pair.write(pair.bytes(2 * MTU))
    pair.flush()
    sent_ev = pair.sent()[0].packet.ev
    other_ev = next(ev for ev, _ in pair.evs if ev != sent_ev)
    pair.now = 0.004
    to_a(pair, sack(pair, 99, sack_offset=1, bitmap=0b1, ack_psn_offset=1, entropy=other_ev, cc_type=5))
    assert pair.a.qp.counters.foreign_cc == 1
    assert pair.a.qp.requestor.rtt.srtt_s is None, "it names an EV that the packet did not take"


def test_nack__for_too_many_write_imm_is_ignored_once_all_completed() -> None:
    pair = Pair(psn=100, config={"wimm_overflow": 0x30})
    pair.write(pair.bytes(MTU))
    pair.run_until_quiet()
    to_a(pair, Nack(pair.a.qp.qpn, 0, 0, 46, 0, 100, 0x30, 0x001))
    assert pair.a.qp.sends and pair.events_of(QpError) == []


def test_nack__of_a_trim_without_timestamp_gives_no_round_trip_of_a_retransmission() -> None:
    pair = Pair(psn=100)
    lose_first(pair, lambda source, p: isinstance(p, Write) and p.psn == 103)
    pair.write(pair.bytes(40 * MTU))
    while not pair.retransmissions():
        pair.step()
    retransmission, srtt_s = pair.retransmissions()[0].packet, pair.a.qp.requestor.rtt.srtt_s
    to_a(pair, Nack(pair.a.qp.qpn, 0, 0, 46, 0, 103, NackReason.TRIMMED, retransmission.ev))
    assert pair.a.qp.counters.trimmed == 1 and pair.a.qp.requestor.rtt.srtt_s == srtt_s
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_transport_ack__that_never_comes_ends_the_qp() -> None:
    pair = Pair(config={"linear_cnt": 1, "exp_cnt": 1})
    pair.filter = lambda _source, packet: [] if isinstance(packet, TransportAck) else None
    pair.write(pair.bytes(4 * MTU))
    pair.run_until_quiet()
    assert pair.completions() == [(1, "RETRY_EXCEEDED")]
