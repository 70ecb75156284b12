"""Conversations in which paths, ports, acknowledgments or peers fail."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.engine.events import (
    Completion,
    EvChanged,
    EvProbeResult,
    EvReplaced,
    PacketLost,
    PlaneChanged,
    QpError,
    Status,
)
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    EndpointResponse,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from tests.hosts.engine.engine_pair import ACKS, MTU, Pair, lose_first


def check_write(pair: Pair, data: bytes, offset: int = 0) -> None:
    """Check that the write arrived and completed."""
    assert pair.memory[offset : offset + len(data)] == data
    assert pair.completions()[-1][1] == "SUCCESS"


# ---- paths ------------------------------------------------------------------------------------------------


def test_cut_path__traffic_goes_on_and_only_its_evs_are_withdrawn() -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 20_000}, framed=True)
    pair.cut(0x001, 0x102)
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    bad_evs = {row["ev"] for row in pair.a.qp.ev_states() if row["state"] == "assumed_bad"}
    assert bad_evs <= {0x001, 0x102} and {e.ev for e in pair.events_of(PacketLost)} <= {0x001, 0x102}
    assert [e.substitute >> 8 for e in pair.events_of(EvReplaced)] == [e.plane for e in pair.events_of(EvReplaced)]


def test_cut_path__comes_back_after_it_is_mended() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 20_000})
    pair.cut(0x000, 0x001)  # all of plane 0
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run(2.0)
    check_write(pair, data)
    assert {pair.state(ev) for ev in (0x000, 0x001)} == {"assumed_bad"}
    assert pair.a.qp.counters.probes_sent >= 16, "two EVs, five probes a second each"
    pair.cut(0x000, 0x001, cut=False)
    pair.run(1.0)
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}
    first_counts = list(pair.a.qp.counters.plane_packets)
    pair.write(data)
    pair.run_until_quiet()
    growth = [now - was for now, was in zip(pair.a.qp.counters.plane_packets, first_counts, strict=True)]
    assert abs(growth[0] - growth[1]) <= 1, "both planes carry the same again"


def test_dead_plane__costs_no_more_than_its_packets_in_flight() -> None:
    pair = Pair(planes=4, uplinks=2, config={"cwnd_bytes": 20_000}, per_packet_s=0.0002)
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run(0.012)
    pair.cut(0x200, 0x201)
    pair.run_until_quiet()
    check_write(pair, data)
    assert {line.packet.psn for line in pair.retransmissions()} == {e.psn for e in pair.events_of(PacketLost)}
    assert {e.plane for e in pair.events_of(PacketLost)} == {2}
    assert pair.events_of(QpError) == []


def test_one_way_cut__of_the_acks_path_does_not_hurt() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 20_000})
    for ev in (0x000, 0x001):
        pair.path("b", ev).cut = True  # plane 0 is dead from b to a: half of the SACKs never come
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)


def test_silence__accuses_no_path_and_a_lone_loss_is_asked_about() -> None:
    """The lost packet may have been the SACK. The path itself is asked; it answers, so it stays."""
    pair = Pair(psn=0, planes=2, uplinks=2)
    victims = lose_first(pair, lambda s, p: isinstance(p, Write))
    pair.write(b"one packet, alone on the wire")
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]
    pair.run(0.5)
    probed_evs = [line.packet.ev for line in pair.sent(ReliabilityProbe)]
    assert victims[0].ev in probed_evs and pair.events_of(EvChanged) == []


def test_silence__a_lone_loss_on_a_dead_path_withdraws_it() -> None:
    pair = Pair(psn=0, planes=2, uplinks=2)
    pair.write(b"one packet, alone on the wire")
    pair.flush()
    (dead_ev,) = [line.packet.ev for line in pair.sent(Write)]
    pair.cut(dead_ev)
    pair._wire.clear()
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]
    assert pair.events_of(EvChanged) == [], "nothing was heard but the retransmission: who knows whose fault it is"
    pair.run(0.5)
    assert pair.state(dead_ev) == "assumed_bad", "it was asked, and others answered meanwhile"
    assert [event.ev for event in pair.events_of(EvChanged)] == [dead_ev]


def test_stall__a_peer_that_sleeps_costs_duplicates_but_no_ev() -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 8000})
    data = pair.bytes(60_000)
    pair.write(data)
    asleep = (0.012, 0.090)  # more than two timeouts
    pair.filter = lambda s, p: [asleep[1] - pair.now] if asleep[0] < pair.now < asleep[1] else None
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.a.qp.counters.timeouts > 0 and pair.b.qp.counters.duplicates > 0
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}


# ---- acknowledgments --------------------------------------------------------------------------------------


def test_tail_loss__timer_and_probe_recover_the_last_packet() -> None:
    pair = Pair(psn=0, planes=2, uplinks=2, framed=True)
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 3)
    data = pair.bytes(4 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    assert [line.packet.psn for line in pair.retransmissions()] == [3]
    assert pair.now == pytest.approx(pair.config.loss.base_timeout_s + 0.010, abs=0.001)


def test_lost_sacks__every_second_one() -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 10_000})
    count = 0

    def every_second(source: str, packet: object) -> list[float] | None:
        nonlocal count
        count += isinstance(packet, Sack)
        return [] if isinstance(packet, Sack) and count % 2 else None

    pair.filter = every_second
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.retransmissions() == []


def test_lost_sacks__all_of_them_for_a_while() -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 10_000})
    pair.filter = lambda s, p: [] if isinstance(p, ACKS) and pair.now < 0.100 else None
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.b.qp.counters.bytes_received == 60_000


def test_lost_transport_ack__is_asked_for_with_a_probe() -> None:
    pair = Pair(planes=2, uplinks=2)
    victims = lose_first(pair, lambda s, p: isinstance(p, TransportAck), times=2)
    data = pair.bytes(5 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    assert len(victims) == 2 and pair.retransmissions() == []
    assert len(pair.sent(ReliabilityProbe)) == 2
    assert pair.completions() == [(1, "SUCCESS")]


def test_sacks_never_complete_a_write() -> None:
    pair = Pair()
    pair.filter = lambda s, p: [] if isinstance(p, TransportAck) else None
    pair.write(pair.bytes(1000))
    pair.run(0.5)
    assert pair.completions() == [] and pair.a.qp.outstanding() == 1


# ---- giving up --------------------------------------------------------------------------------------------


def test_retry_exhaustion__fails_after_the_whole_schedule_and_flushes() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 10_000})
    pair.cut(*(ev for ev, _ in pair.evs))
    pair.write(pair.bytes(20_000))
    pair.write(pair.bytes(100))
    pair.run_until_quiet()
    assert pair.completions() == [(1, "RETRY_EXCEEDED"), (2, "FLUSHED")]
    [error] = pair.events_of(QpError)
    assert error.status is Status.RETRY_EXCEEDED
    # T, T, T, then 2T 4T 8T 16T 32T: dozens of packets expire in each round, each round costs one.
    assert error.at == pytest.approx(65 * pair.config.loss.base_timeout_s, rel=0.01)
    with pytest.raises(ValueError, match="is in error"):
        pair.write(b"more")
    pair.run(2.0)
    assert pair.a.endpoint.next_timer() is None


def test_retry_budget__is_whole_again_when_something_gets_through() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 2000, "linear_cnt": 2, "exp_cnt": 0})
    data = pair.bytes(60_000)
    pair.write(data)
    # Everything is lost for a little more than one timeout, again and again: never two in a row for one packet.
    pair.filter = lambda s, p: [] if isinstance(p, Write) and not p.rtx and pair.now % 0.2 < 0.05 else None
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.a.qp.counters.retry_charges > 2


def test_exp_cnt_25__never_gives_up() -> None:
    pair = Pair(config={"exp_cnt": 25, "timeout_ceiling_s": 0.5})
    pair.cut(*(ev for ev, _ in pair.evs))
    data = pair.bytes(1000)
    pair.write(data)
    pair.run(30.0)
    assert pair.events_of(QpError) == []
    pair.cut(*(ev for ev, _ in pair.evs), cut=False)
    pair.run_until_quiet()
    check_write(pair, data)


# ---- ports ------------------------------------------------------------------------------------------------


def test_local_port_down__its_plane_is_left_at_once_and_its_evs_keep_their_state() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 10_000}, per_packet_s=0.0005)
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run(0.0121)
    pair.port("a", 1, is_up=False)
    down_time = pair.now
    pair.run_until_quiet()
    check_write(pair, data)
    assert not [line for line in pair.sent() if line.time >= down_time and line.packet.plane == 1]
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}
    assert [(e.peer, e.plane, e.up) for e in pair.events_of(PlaneChanged)] == [(None, 1, False)]
    assert [(e.peer, e.plane, e.up) for e in pair.events_of(PlaneChanged, "b")] == [("a", 1, False)]


def test_remote_port_down__is_announced_and_withdrawn_and_readmitted() -> None:
    pair = Pair(planes=3, uplinks=2, framed=True, config={"cwnd_bytes": 10_000}, per_packet_s=0.0005)
    pair.write(pair.bytes(60_000))
    pair.run(0.012)
    pair.port("b", 2, is_up=False)
    pair.run(0.006)
    assert [(e.peer, e.plane, e.up) for e in pair.events_of(PlaneChanged)] == [("b", 2, False)]
    report_time = pair.now
    pair.run_until_quiet()
    assert not [line for line in pair.sent() if line.time > report_time and line.packet.plane == 2]
    pair.port("b", 2, is_up=True)
    pair.run(1.0)
    assert [(e.peer, e.plane, e.up) for e in pair.events_of(PlaneChanged)][-1] == ("b", 2, True)
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}
    data = pair.bytes(30_000)
    first_count = pair.a.qp.counters.plane_packets[2]
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.a.qp.counters.plane_packets[2] > first_count + 30


def test_port_status__is_repeated_until_acknowledged_and_refreshed_while_down() -> None:
    pair = Pair(planes=2)
    pair.run(0.1)
    assert len(pair.sent(EndpointRequest)) == 1, "said once at the connect, all up or not"
    lose_first(pair, lambda s, p: isinstance(p, EndpointResponse), times=2)
    pair.port("a", 0, is_up=False)
    pair.run(0.5)
    assert len(pair.sent(EndpointRequest)) == 4
    pair.run(2.0)
    assert len(pair.sent(EndpointRequest)) == 6, "one refresh a second"
    pair.port("a", 0, is_up=True)
    pair.run(0.5)
    count = len(pair.sent(EndpointRequest))
    pair.run(5.0)
    assert len(pair.sent(EndpointRequest)) == count, "nothing to tell any more"


def test_all_ports_down__may_wait_and_goes_on() -> None:
    pair = Pair(planes=2, config={"cwnd_bytes": 5000, "all_ports_down": "wait"})
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run(0.012)
    for plane in (0, 1):
        pair.port("a", plane, is_up=False)
    pair.run(20.0)
    assert pair.events_of(QpError) == []
    pair.port("a", 1, is_up=True)
    pair.run_until_quiet()
    check_write(pair, data)


@pytest.mark.parametrize("posted_before", [True, False])
def test_all_ports_down__is_charged_like_any_silence(posted_before: bool) -> None:
    pair = Pair(planes=2, config={"linear_cnt": 2, "exp_cnt": 1})
    if posted_before:
        pair.write(pair.bytes(60_000))
        pair.run(0.001)
    for plane in (0, 1):
        pair.port("a", plane, is_up=False)
    if not posted_before:  # nothing in flight: the wait itself is charged
        pair.run(30.0)
        assert pair.events_of(QpError) == [], "with nothing to do there is nothing to charge"
        pair.write(pair.bytes(60_000))
    began = pair.now
    pair.run(30.0)
    (error,) = pair.events_of(QpError)
    assert error.status is Status.RETRY_EXCEEDED
    assert 3 * pair.config.loss.base_timeout_s <= error.at - began <= 5 * pair.config.loss.base_timeout_s + 0.02
    assert [status for _, status in pair.completions()] == ["RETRY_EXCEEDED"]


def test_all_ports_down__for_a_moment_costs_a_part_of_the_budget_only() -> None:
    pair = Pair(planes=2, config={"cwnd_bytes": 5000})
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run(0.012)
    for is_up in (False, True):
        for plane in (0, 1):
            pair.port("a", plane, is_up=is_up)
        pair.run(0.2)
    pair.run_until_quiet()
    check_write(pair, data)


def test_all_ports_down__waiting_with_only_the_transport_ack_missing_charges_nothing() -> None:
    pair = Pair(planes=2, config={"linear_cnt": 1, "exp_cnt": 1, "all_ports_down": "wait"})
    data = pair.bytes(5000)
    pair.filter = lambda s, p: [] if isinstance(p, TransportAck) else None
    pair.write(data)
    pair.run(0.012)
    for plane in (0, 1):
        pair.port("a", plane, is_up=False)
    pair.filter = None
    pair.run(60.0)
    assert pair.events_of(QpError) == [] and pair.completions() == []
    assert pair.a.qp.counters.retry_charges <= 1
    pair.port("a", 1, is_up=True)
    pair.run_until_quiet()
    check_write(pair, data)


@pytest.mark.parametrize("planes", [1, 2])
def test_all_ports_of_both_down__each_learns_that_the_other_is_back(planes: int) -> None:
    pair = Pair(planes=planes, uplinks=1, config={"cwnd_bytes": 5000, "exp_cnt": 25})
    data = pair.bytes(60_000)
    pair.write(data)
    pair.run(0.012)
    for side in ("a", "b"):
        for plane in range(planes):
            pair.port(side, plane, is_up=False)
    pair.run(3.0)
    for side in ("a", "b"):
        for plane in range(planes):
            pair.port(side, plane, is_up=True)
    pair.run_until_quiet()
    check_write(pair, data)


def test_probes__are_not_sent_to_planes_that_are_down_and_at_once_when_they_return() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 10_000})
    pair.cut(0x000, 0x001)
    pair.write(pair.bytes(60_000))
    pair.run(1.0)
    pair.port("b", 0, is_up=False)
    pair.run(0.1)
    count = len(pair.sent(ReliabilityProbe))
    pair.run(2.0)
    assert len(pair.sent(ReliabilityProbe)) == count
    pair.cut(0x000, 0x001, cut=False)
    pair.port("b", 0, is_up=True)
    pair.run(0.6)
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}


# ---- endpoint operations ----------------------------------------------------------------------------------


def test_probe_ev__tells_the_round_trip_or_that_there_was_none() -> None:
    pair = Pair(planes=2, framed=True)
    answered_id = pair.a.endpoint.probe_ev("b", 0x101, 1, now=pair.now)
    pair.cut(0x000)
    lost_id = pair.a.endpoint.probe_ev("b", 0x000, 0, now=pair.now)
    pair.run(0.2)
    results = {e.request_id: e.rtt_s for e in pair.events_of(EvProbeResult)}
    assert results == {answered_id: pytest.approx(0.010), lost_id: None}


def test_destroy_qp__forgets_it() -> None:
    pair = Pair()
    pair.a.endpoint.destroy_qp(pair.a.qp.qpn)
    pair.b.qp.post_write(b"x", 0, 0, now=0.0)
    pair.run(0.02)
    assert pair.a.endpoint.unclaimed_packets == 1
    with pytest.raises(ValueError, match="no QP"):
        pair.a.endpoint.qp(pair.a.qp.qpn)
    assert not [e for e in pair.a.events if isinstance(e, Completion)]
