"""Conversations of two endpoints when nothing, or only a little, goes wrong."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.events import LossCause, PacketLost, WriteImmReceived
from mrc_testbed.hosts.engine.wire.packets import IMM_OPCODES, Opcode, Packet, Sack, TransportAck, Write
from tests.hosts.engine.engine_pair import MTU, Pair, lose_first


def is_first_write(psn: int):
    return lambda source, packet: isinstance(packet, Write) and packet.psn == psn and not packet.rtx


def transfer(pair: Pair, size: int, offset: int = 0) -> bytes:
    """Write `size` random bytes, run to the end, check every byte of the region; returns them."""
    data = pair.bytes(size)
    expected_memory = bytearray(pair.memory)
    expected_memory[offset : offset + size] = data
    wr_id = pair.write(data, offset)
    pair.run_until_quiet()
    assert pair.memory == expected_memory
    assert pair.completions()[-1] == (wr_id, "SUCCESS")
    return data


# ---- in order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framed", [False, True])
def test_write__in_order_in_one_round_trip(framed: bool) -> None:
    pair = Pair(psn=0, framed=framed, uplinks=1)
    transfer(pair, 3 * MTU)
    assert [str(line) for line in pair.sent()] == ["0 psn 0 ev 0x000", "0 psn 1 ev 0x100", "0 psn 2 ev 0x000"]
    assert [line.packet.opcode for line in pair.sent()] == [
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST,
    ]
    assert pair.now == pytest.approx(0.010)


@pytest.mark.parametrize("size", [0, 1, MTU - 1, MTU, MTU + 1, 10 * MTU + 3])
def test_write__any_length(size: int) -> None:
    pair = Pair(psn=0, framed=True)
    transfer(pair, size, offset=5)
    opcodes = [line.packet.opcode for line in pair.sent()]
    assert len(opcodes) == max(1, -(-size // MTU))
    assert opcodes[-1] is (Opcode.WRITE_ONLY if size <= MTU else Opcode.WRITE_LAST)


def test_write__psn_wraps_at_two_to_the_24() -> None:
    pair = Pair(psn=0xFFFFFE, framed=True)
    transfer(pair, 8 * MTU)
    assert [line.packet.psn for line in pair.sent()] == [0xFFFFFE, 0xFFFFFF, 0, 1, 2, 3, 4, 5]


def test_write__wrap_with_loss_on_both_sides_of_it() -> None:
    pair = Pair(psn=0xFFFFF0, framed=True, uplinks=4)
    lost = {0xFFFFFF, 0}
    pair.filter = lambda s, p: [] if isinstance(p, Write) and not p.rtx and p.psn in lost else None
    transfer(pair, 64 * MTU)
    assert sorted(line.packet.psn for line in pair.retransmissions()) == [0, 0xFFFFFF]


def test_write__many_complete_in_posting_order() -> None:
    pair = Pair(uplinks=4)
    data = pair.bytes(40 * 300)
    ids = [pair.write(data[i : i + 300], i) for i in range(0, len(data), 300)]
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    assert pair.completions() == [(wr_id, "SUCCESS") for wr_id in ids]


def test_write__both_ways_at_once() -> None:
    pair = Pair(uplinks=2, framed=True)
    reverse_memory = bytearray(20_000)
    region = pair.a.endpoint.register(reverse_memory)
    forward_data, reverse_data = pair.bytes(20_000), pair.bytes(20_000)
    pair.write(forward_data)
    pair.b.qp.post_write(reverse_data, region.va, region.rkey, now=0.0)
    pair.run_until_quiet()
    assert pair.memory[:20_000] == forward_data and reverse_memory == reverse_data


def test_write_imm__is_delivered_in_order_behind_the_data() -> None:
    pair = Pair(psn=0, uplinks=4, framed=True)
    lose_first(pair, is_first_write(1))
    for _ in range(3):
        pair.b.qp.post_recv()
    pair.write(pair.bytes(4 * MTU), imm=1)
    pair.write(pair.bytes(MTU), 4 * MTU, imm=2)
    pair.write(b"", imm=3)
    pair.run_until_quiet()
    received = [(e.recv_id, e.imm, e.length) for e in pair.events_of(WriteImmReceived, "b")]
    assert received == [(1, 1, 4 * MTU), (2, 2, MTU), (3, 3, 0)]
    assert [line.packet.rqmsn for line in pair.sent() if line.packet.opcode in IMM_OPCODES] == [0, 1, 2]


def test_buffers__are_free_after_completion() -> None:
    pair = Pair()
    local = bytearray(pair.bytes(5000))
    pair.write(local)
    pair.run_until_quiet()
    pair.log.clear()
    local.extend(b"x")  # BufferError while the engine still looks at it


# ---- windows ----------------------------------------------------------------------------------------------


def test_windows__congestion_window_bounds_what_is_in_flight() -> None:
    pair = Pair(config={"cwnd_bytes": 4000}, uplinks=4)
    pair.write(pair.bytes(40_000))
    pair.flush()
    in_flight = sum(line.packet.size for line in pair.sent())
    assert 4000 <= in_flight < 4000 + MTU + 80, "one packet over at most (cwnd > inflight, §5.3)"
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_windows__mpr_of_the_peer_is_never_exceeded() -> None:
    pair = Pair(psn=0, config_b={"mpr_packets": 128}, uplinks=4)
    cack = -1
    highest = 0

    def watch(source: str, packet: Packet) -> list[float] | None:
        nonlocal cack, highest
        if isinstance(packet, Write):
            highest = max(highest, packet.psn)
        return [] if isinstance(packet, Write) and packet.psn == 0 and not packet.rtx else None

    pair.filter = watch
    pair.write(pair.bytes(250 * MTU))
    pair.flush()
    assert highest == 127, "window is cack + 1 .. cack + MPR, cack = -1"
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]
    assert pair.b.qp.counters.out_of_window == 0


def test_ports__transmit_passes_over_planes_without_room() -> None:
    pair = Pair(planes=4, uplinks=1)
    pair.write(pair.bytes(40 * MTU))
    sent = pair.a.endpoint.transmit(0.0, limit=40, room=[0, 3, 0, 2])
    assert sorted(plane for plane, _, _ in sent) == [1, 1, 1, 3, 3]
    assert pair.a.endpoint.transmit(0.0, room=[0, 0, 0, 0]) == []


def test_ports__planes_carry_the_same_when_ports_take_turns() -> None:
    pair = Pair(planes=4, uplinks=4, per_packet_s=0.0001)
    pair.run(0.1)  # port maps are told
    transfer(pair, 60_000)
    packets = pair.a.qp.counters.plane_packets
    assert max(packets) - min(packets) <= 1


# ---- acknowledging ----------------------------------------------------------------------------------------


def test_sack__one_for_four_full_packets() -> None:
    pair = Pair(config={"pmtu_bytes": 4096, "cwnd_bytes": 1 << 20})
    pair.write(bytes(64 << 10))
    pair.run_until_quiet()
    assert len(pair.sent(Sack, "b")) == 4
    assert len(pair.sent(TransportAck, "b")) == 1


def test_sack__the_rest_is_flushed_when_nothing_follows() -> None:
    pair = Pair(psn=0, config={"pmtu_bytes": 4096}, uplinks=1)
    pair.write(bytes(5 * 4096))
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.ack_request)
    pair.run(0.020)
    assert [(round(line.time * 1000, 3), line.packet.cack_psn) for line in pair.sent(Sack, "b")] == [
        (5.0, 3),
    ]
    pair = Pair(psn=0, config={"pmtu_bytes": 4096}, uplinks=1)
    pair.write(bytes(4 * 4096))
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.ack_request)
    pair.run(0.020)
    assert [(round(line.time * 1000, 3), line.packet.cack_psn) for line in pair.sent(Sack, "b")] == [
        (9.0, 2),
    ]


def test_reordering__without_loss_nothing_is_sent_twice() -> None:
    pair = Pair(planes=4, uplinks=4, framed=True, config={"cwnd_bytes": 30_000})
    for n, (ev, _) in enumerate(pair.evs):
        pair.path("a", ev).delay_s = 0.002 + 0.0007 * n  # slowest path: six times the fastest
    transfer(pair, 60_000)
    assert pair.b.qp.counters.out_of_order > 50
    assert pair.retransmissions() == [] and pair.events_of(PacketLost) == []
    assert all(row["state"] == "good" for row in pair.a.qp.ev_states())


def test_reordering__of_the_answers_does_no_harm() -> None:
    pair = Pair(planes=4, uplinks=4, framed=True, config={"cwnd_bytes": 30_000})
    for n, (ev, _) in enumerate(pair.evs):
        pair.path("b", ev).delay_s = 0.002 + 0.0007 * n
    transfer(pair, 60_000)
    assert pair.a.qp.counters.stale_sacks > 0
    assert pair.retransmissions() == []


def test_duplicates__are_neither_written_nor_counted_twice() -> None:
    pair = Pair(uplinks=4, framed=True)
    pair.filter = lambda source, packet: [0.0, 0.003]
    transfer(pair, 20_000)
    responder = pair.b.qp.counters
    pair.run(0.1)
    assert responder.bytes_received == 20_000 and responder.duplicates == len(pair.sent())
    assert pair.completions() == [(1, "SUCCESS")]


# ---- a loss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framed", [False, True])
def test_single_loss__one_retransmission_on_another_ev_and_the_ev_is_bad(framed: bool) -> None:
    pair = Pair(psn=0, planes=2, uplinks=4, framed=framed)
    victims = lose_first(pair, is_first_write(7))
    transfer(pair, 40 * MTU)
    victim = victims[0]
    [retransmission] = pair.retransmissions()
    assert retransmission.packet.psn == 7 and retransmission.packet.ev != victim.ev
    assert retransmission.time == pytest.approx(0.010), "one round trip, no timer"
    [lost] = pair.events_of(PacketLost)
    assert (lost.psn, lost.ev, lost.cause) == (7, victim.ev, LossCause.OVERTAKEN)
    assert pair.state(victim.ev) == "assumed_bad"


def test_single_loss__probes_bring_the_ev_back_after_three_answers() -> None:
    pair = Pair(psn=0, planes=2, uplinks=4)
    victims = lose_first(pair, is_first_write(7))
    transfer(pair, 40 * MTU)
    ev = victims[0].ev
    in_use = {row["ev"] for row in pair.a.qp.ev_states() if row["active"] and row["plane"] == victims[0].plane}
    assert len(in_use) == 3 and ev not in in_use, "the backup of its plane took its slot"
    pair.run(0.600 - pair.now)
    assert pair.state(ev) == "assumed_bad"
    pair.run(0.100)
    assert pair.state(ev) == "good"
    assert pair.a.qp.counters.probes_answered == 3


def test_retransmission__goes_before_new_data_and_is_marked() -> None:
    pair = Pair(psn=0, uplinks=4, config={"cwnd_bytes": 5000})
    lose_first(pair, is_first_write(2))
    transfer(pair, 100 * MTU)
    [retransmission] = pair.retransmissions()
    assert retransmission.packet.dscp == pair.config.dscp.trimmable_retx
    later = [line.packet for line in pair.sent() if line.time == retransmission.time]
    assert later.index(retransmission.packet) == 0


def test_lost_retransmission__is_found_without_a_timer() -> None:
    pair = Pair(psn=0, planes=2, uplinks=4, config={"cwnd_bytes": 5000, "timeout": 20})
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 2, times=2)
    transfer(pair, 200 * MTU)
    assert [line.packet.psn for line in pair.retransmissions()] == [2, 2]
    assert pair.a.qp.counters.timeouts == 0


def test_many_losses__behind_a_window_of_several_bitmaps() -> None:
    pair = Pair(psn=0, planes=4, uplinks=4, config={"cwnd_bytes": 1 << 20, "timeout": 20}, framed=True)
    lost = {3, 70, 71, 140, 199}
    pair.filter = lambda s, p: [] if isinstance(p, Write) and not p.rtx and p.psn in lost else None
    pair.per_packet_s = 0.0001
    transfer(pair, 250 * MTU)
    assert sorted(line.packet.psn for line in pair.retransmissions()) == sorted(lost)
    assert pair.a.qp.counters.timeouts == 0


def test_repeatable__same_seed_same_packets() -> None:
    def run() -> list[str]:
        pair = Pair(seed=9, planes=4, uplinks=4, framed=True)
        pair.filter = lambda s, p: [] if pair.rng.random() < 0.05 else [pair.rng.random() * 0.002]
        transfer(pair, 30_000)
        return [str(line) for line in pair.log]

    assert run() == run()


def test_held_packets__are_those_above_a_hole() -> None:
    pair = Pair(psn=100)
    lose_first(pair, lambda source, p: isinstance(p, Write) and p.psn == 101)
    pair.write(pair.bytes(4 * MTU))
    pair.flush()
    while not pair.b.qp.held_packets():
        pair.step()
    pair.run_until_quiet()
    assert pair.b.qp.held_packets() == 0 and pair.a.qp.config is pair.config
