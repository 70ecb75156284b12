"""Refusals, marks, changing windows, flow control: both ends (§2.10, §5.3, §5.14, §6.5, §6.9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import EvChanged, PacketLost, QpError, Status
from mrc_testbed.hosts.engine.loss.send_window import GIVEN_UP
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, Nack, NackReason, Packet, Sack, Verdict, Write
from tests.hosts.engine.engine_pair import MTU, Pair

RESOURCE = (NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE)


def finish(pair: Pair, size: int = 60_000) -> bytes:
    data = pair.bytes(size)
    pair.write(data)
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    assert pair.completions()[-1][1] == "SUCCESS"
    return data


def reasons(pair: Pair) -> set[int]:
    return {line.packet.reason for line in pair.sent(Nack, "b")}


# ---- resources: the responder refuses, the requestor waits --------------------------------------------------


@pytest.mark.parametrize(
    "limits, reason",
    [
        ({"bitmap_packets": 4}, NackReason.NO_BITMAP),
        ({"rx_buffer_bytes": 3000, "rx_drain_bytes_per_s": 400_000}, NackReason.NO_PKT_BUFFER),
    ],
)
def test_resources__refused_packets_come_again_and_everything_arrives(limits: dict, reason: NackReason) -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 10_000}, config_b=limits, framed=True)
    for n, (ev, _) in enumerate(pair.evs):
        pair.path("a", ev).delay_s = 0.004 + 0.0005 * n
    finish(pair)
    assert reasons(pair) == {reason}
    counters = pair.a.qp.counters
    assert counters.refused > 0 and counters.retry_charges > 0
    assert pair.events_of(PacketLost) == [] and pair.events_of(EvChanged) == [], "no path is to blame (§2.10)"


def test_trims__in_front_of_the_timestamp_are_answered_and_cost_no_path() -> None:
    """A fabric that keeps 78 bytes (118 with SRv6, §4.3).

    The NACK has no timestamp to mirror, and counts all the same.

    Every packet is trimmed on its first way; each is sent again at once, no timer and no EV pays for it.
    """

    def trim(source: str, packet: Packet) -> list[float] | None:
        if isinstance(packet, Write) and not packet.rtx:
            packet.payload, packet.trimmed, packet.timestamp, packet.tsr = b"", NackReason.TRIMMED, None, 0
        return None

    pair = Pair(planes=2, uplinks=4)
    pair.run(0.1)  # at 0 all timestamps are 0 too
    pair.filter = trim
    finish(pair, 40 * MTU)
    assert {line.packet.timestamp for line in pair.sent(Nack, "b")} == {0}
    counters = pair.a.qp.counters
    assert (counters.trimmed, counters.retransmitted, counters.timeouts, counters.lost) == (40, 40, 0, 0)
    assert (
        all(event.new_state != "assumed_bad" for event in pair.events_of(EvChanged))
        and pair.a.qp.paths.profile.usable_planes
    )


def test_nack__of_another_copy_is_told_by_its_timestamp() -> None:
    pair = Pair(psn=0)
    pair.run(0.1)
    pair.write(b"x")
    pair.flush()
    sent = pair.a.qp.requestor.flight.latest(0)
    assert sent is not None
    foreign_nack = Nack(
        pair.a.qp.qpn, 0, 0, 46, 0, 0, NackReason.TRIMMED, sent.ev.value, (sent.timestamp or 0) + 1 & 0xFFFF
    )
    pair.a.endpoint.receive(foreign_nack, 0, "b", pair.now)
    assert sent.state != GIVEN_UP
    pair.a.endpoint.receive(replace(foreign_nack, timestamp=0), 0, "b", pair.now)
    assert sent.state == GIVEN_UP


def test_cc_type__of_another_algorithm_is_not_read_as_nsccs() -> None:
    """§2.8: SETH tells what arrived, the 8 bytes behind it are of a layout we do not know.

    Here they say nonsense.
    """

    def foreign(source: str, packet: Packet) -> list[float] | None:
        if isinstance(packet, Sack):
            packet.cc_type = 5
            packet.timestamp, packet.rcvd_units, packet.ooo_count = 0xBEEF, 0x7F0000, 0x7FFF
            packet.penalty, packet.restore_cwnd = 127, True
        return None

    config = {"cc_algorithm": "uet-1.0-nscc", "link_rate_bps": 8e6, "base_rtt_s": 0.012, "loss_rule": "ooo"}
    pair = Pair(planes=2, uplinks=4, config=config, framed=True)
    pair.filter = foreign
    pair.write(pair.bytes(20 * MTU))
    first_cwnd = pair.a.qp.cc_state()["cwnd_bytes"]
    pair.flush()
    pair.run_until_quiet()
    requestor, counters = pair.a.qp.requestor, pair.a.qp.counters
    assert pair.completions() == [(1, "SUCCESS")], "the part that tells what arrived is read"
    assert counters.foreign_cc == counters.sacks_received > 0
    assert requestor._rcvd_units == 0 and requestor.flight.bytes == 0
    assert pair.a.qp.cc_state()["cwnd_bytes"] >= first_cwnd, "no penalty"
    assert (counters.retransmitted, counters.lost, counters.spurious) == (0, 0, 0), "no recovery by an ooo_count"
    assert requestor.rtt.srtt_s is not None and requestor.rtt.srtt_s < 0.1, "by the time each packet left"


def test_resources__work_slots() -> None:
    pair = Pair(psn=0, planes=2, uplinks=4, config_b={"work_slots": 2})
    pair.filter = lambda s, p: [] if isinstance(p, Write) and p.psn == 0 and not p.rtx else None
    writes = [pair.bytes(100) for _ in range(12)]
    for n, data in enumerate(writes):
        pair.write(data, 100 * n)
    pair.run_until_quiet()
    assert reasons(pair) == {NackReason.NO_RESOURCE}
    assert bytes(pair.memory[:1200]) == b"".join(writes)
    assert [status for _, status in pair.completions()] == ["SUCCESS"] * 12


def nack(pair: Pair, psn: int, reason: int, **changes: Any) -> Nack:
    line = next(line for line in pair.sent() if line.packet.psn == psn & 0xFFFFFF)
    sent = line.packet
    return replace(
        Nack(pair.a.qp.qpn, 0x001, 0, 46, 0, psn & 0xFFFFFF, reason, sent.ev, sent.timestamp or 0),
        **changes,
    )


def to_a(pair: Pair, packet: Packet) -> None:
    pair.a.endpoint.receive(packet, 0, "b", pair.now)


@pytest.mark.parametrize("reason", [*RESOURCE, NackReason.PSN_OOR_WINDOW, 0x55])
def test_refusal__waits_a_round_trip_is_charged_and_leaves_the_ev_alone(reason: int) -> None:
    """0x55: an unknown code counts as NO_RESOURCE (§12 row 31)."""
    pair = Pair(psn=0, planes=2, uplinks=4)
    finish(pair, 10 * MTU)
    pair.filter = lambda s, p: [] if isinstance(p, Write) and p.psn == 10 and not p.rtx else None
    pair.write(pair.bytes(2 * MTU))
    pair.flush()
    nack_time = pair.now
    to_a(pair, nack(pair, 10, reason))
    assert pair.a.qp.counters.retry_charges == 1
    pair.run_until_quiet()
    [retransmission] = pair.retransmissions()
    assert retransmission.time >= nack_time + 0.009 and retransmission.packet.psn == 10
    assert pair.events_of(EvChanged) == [] and pair.a.qp.counters.lost == 0


def test_refusals__without_end_spend_the_retry_budget() -> None:
    pair = Pair(psn=0, config={"linear_cnt": 2, "exp_cnt": 2})

    def refuse(source: str, packet: Packet) -> list[float] | None:
        if not isinstance(packet, Write):
            return None
        answer = Nack(
            pair.a.qp.qpn,
            packet.ev,
            packet.plane,
            46,
            0,
            packet.psn,
            NackReason.NO_RESOURCE,
            packet.ev,
            packet.timestamp or 0,
        )
        # The write is lost and its NACK comes one round trip later, handed over below
        answers.append((pair.now + 0.010, answer))
        return []

    answers: list[tuple[float, Nack]] = []
    pair.filter = refuse
    pair.write(b"x")
    while pair.a.qp.outstanding() and pair.now < 60:
        pair.run(0.001)
        while answers and answers[0][0] <= pair.now:
            to_a(pair, answers.pop(0)[1])
    pair.flush()
    assert pair.completions() == [(1, "RETRY_EXCEEDED")]
    assert len(pair.sent()) >= 4, "one charge a round, not one a packet"


def test_oor_window__behind_cack_is_ignored() -> None:
    pair = Pair(psn=0)
    finish(pair, 4 * MTU)
    first_count = pair.a.qp.counters.refused
    to_a(pair, nack(pair, 2, NackReason.PSN_OOR_WINDOW))
    assert pair.a.qp.counters.refused == first_count and pair.a.qp.counters.retry_charges == 0


def test_unexp_event__ends_the_qp_at_once() -> None:
    pair = Pair(psn=0)
    pair.write(pair.bytes(4 * MTU))
    pair.write(b"second")
    pair.flush()
    to_a(pair, nack(pair, 2, NackReason.UNEXP_EVENT))
    pair.flush()
    assert pair.completions() == [(1, "REMOTE_OPERATION"), (2, "FLUSHED")]
    assert [e.status for e in pair.events_of(QpError)] == [Status.REMOTE_OPERATION]
    assert len(pair.retransmissions()) == 0


def test_unexp_event__about_something_completed_is_an_old_one() -> None:
    pair = Pair(psn=0)
    finish(pair, 4 * MTU)
    to_a(pair, nack(pair, 2, NackReason.UNEXP_EVENT))
    assert pair.a.qp.state.value == "rts"


@pytest.mark.parametrize("reason", list(NackReason))
def test_nack__for_a_delivered_packet_only_judges_the_path(reason: NackReason) -> None:
    pair = Pair(psn=0, planes=2, uplinks=4)
    pair.write(pair.bytes(20 * MTU))
    pair.run(0.011)
    first = pair.sent()[0].packet
    to_a(pair, nack(pair, 0, reason))
    assert pair.state(first.ev) == ("skip" if reason is NackReason.TRIMMED else "good")
    pair.run_until_quiet()
    assert pair.retransmissions() == [] and pair.completions() == [(1, "SUCCESS")]


# ---- marks ------------------------------------------------------------------------------------------------


def mark(pair: Pair, ev: int) -> None:
    """Mark everything over that EV with CE."""
    pair.filter = lambda s, p: setattr(p, "ecn", ECN_CE) if s == "a" and p.ev == ev else None


def test_ce__becomes_skip_once_at_once_and_the_ev_stays_in_use() -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 10_000}, framed=False)
    mark(pair, 0x001)
    finish(pair)
    verdicts = {line.packet.verdict for line in pair.sent(Sack, "b") if line.packet.entropy == 0x001}
    other_verdicts = {line.packet.verdict for line in pair.sent(Sack, "b") if line.packet.entropy != 0x001}
    assert verdicts == {Verdict.SKIP_ONCE} and other_verdicts == {Verdict.NONE}
    sent = {row["ev"]: row["sent"] for row in pair.a.qp.ev_states() if row["active"]}
    share = {ev: n for ev, n in sent.items() if ev >> 8 == 0}
    assert 0 < share[0x001] < min(n for ev, n in share.items() if ev != 0x001)
    assert pair.events_of(EvChanged) == []
    assert pair.b.qp.counters.marks_received == sent[0x001], "each mark is answered: CE is never coalesced"


def test_always_skip__after_so_many_marks_in_a_row() -> None:
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 10_000}, config_b={"always_skip_marks": 4})
    mark(pair, 0x001)
    finish(pair)
    verdicts = [line.packet.verdict for line in pair.sent(Sack, "b") if line.packet.entropy == 0x001]
    assert verdicts[:4] == [Verdict.SKIP_ONCE] * 3 + [Verdict.ALWAYS_SKIP]
    assert next((e.ev, e.cause) for e in pair.events_of(EvChanged)) == (0x001, "the responder judges the path bad")


def test_always_skip__one_clean_packet_starts_the_count_again() -> None:
    pair = Pair(planes=1, uplinks=2, config={"cwnd_bytes": 10_000}, config_b={"always_skip_marks": 4})
    count = 0

    def mark_most(source: str, packet: Packet) -> None:
        nonlocal count
        if isinstance(packet, Write) and packet.ev == 0x001:
            count += 1
            packet.ecn = ECN_CE if count % 3 else packet.ecn

    pair.filter = mark_most
    finish(pair)
    assert count > 10 and pair.events_of(EvChanged) == []


# ---- windows that change ------------------------------------------------------------------------------------


def highest_above_cack(pair: Pair) -> int:
    flight = pair.a.qp.requestor.flight
    return flight.next_psn - 1 - flight.cack


def dynamic(**keys: Any) -> Pair:
    return Pair(
        psn=0,
        planes=2,
        uplinks=4,
        per_packet_s=0.0002,
        region=1 << 20,
        framed=True,
        config={"dynamic_mpr": True, "mpr_packets": 512, "cwnd_bytes": 1 << 20, "timeout": 18},
        **keys,
    )


def test_dynamic_mpr__shrinks_and_grows_without_refusing_anything() -> None:
    pair = dynamic(delay_s=0.05)
    data = pair.bytes(3500 * MTU)
    pair.write(data)
    pair.run(0.15)
    assert highest_above_cack(pair) > 300
    pair.b.qp.set_mpr(128)
    pair.run(0.25)
    widest = 0
    for _ in range(100):
        pair.run(0.001)
        widest = max(widest, highest_above_cack(pair))
    assert widest <= 128
    pair.b.qp.set_mpr(1024)
    pair.run(0.25)
    assert highest_above_cack(pair) > 128
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    assert pair.b.qp.counters.out_of_window == 0 and pair.retransmissions() == []
    assert {line.packet.mpr for line in pair.sent(Sack, "b")} == {4, 1, 8}


def test_dynamic_mpr__holds_back_retransmissions_beyond_the_window() -> None:
    pair = dynamic()
    pair.filter = lambda s, p: [] if isinstance(p, Write) and 0 < p.psn < 300 and not p.rtx else None
    pair.write(pair.bytes(400 * MTU))
    pair.run(0.012)
    pair.b.qp.set_mpr(128)
    excess_packets = []
    packet_filter = pair.filter

    def watch(source: str, packet: Packet) -> Any:
        flight = pair.a.qp.requestor.flight
        mpr = pair.a.qp.requestor._mpr
        if isinstance(packet, Write) and packet.psn > flight.cack + mpr:
            excess_packets.append(packet)
        return packet_filter(source, packet) if packet_filter else None

    pair.filter = watch
    pair.run_until_quiet()
    assert excess_packets == [] and pair.completions() == [(1, "SUCCESS")]


def test_dynamic_mpr__off_unless_both_want_it() -> None:
    pair = Pair(config_b={"dynamic_mpr": True})
    finish(pair, 5000)
    assert {line.packet.mpr for line in pair.sent(Sack, "b")} == {0}
    with pytest.raises(LocalError, match="dynamic_mpr"):
        pair.b.qp.set_mpr(128)
    with pytest.raises(LocalError, match="multiple of 128"):
        dynamic().b.qp.set_mpr(100)


def test_mpr_in_sacks__is_ignored_when_it_was_not_agreed() -> None:
    pair = Pair(psn=0, config={"cwnd_bytes": 1 << 20})
    pair.filter = lambda s, p: setattr(p, "mpr", 1) if isinstance(p, Sack) else None
    pair.write(pair.bytes(240 * MTU))
    pair.flush()
    assert highest_above_cack(pair) == 240
    pair.run_until_quiet()


# ---- receiver flow control ------------------------------------------------------------------------------------


def test_flow_control__the_fill_of_the_buffer_sets_the_penalty() -> None:
    limits = {
        "rx_buffer_bytes": 8000,
        "rx_drain_bytes_per_s": 100_000,
        "flow_control": True,
        "flow_control_start": 0.25,
    }
    pair = Pair(planes=2, uplinks=4, config={"cwnd_bytes": 7000}, config_b=limits, framed=True)
    finish(pair)
    penalties = [line.packet.penalty for line in pair.sent(Sack, "b")]
    assert max(penalties) > 40 and penalties[0] == 0
    assert all(line.packet.restore_cwnd for line in pair.sent(Sack, "b"))


def test_flow_control__off_means_zero_in_every_sack() -> None:
    pair = Pair(config={"cwnd_bytes": 7000})
    finish(pair)
    assert {(line.packet.penalty, line.packet.restore_cwnd) for line in pair.sent(Sack, "b")} == {(0, False)}


def test_flow_control__an_order_of_the_application() -> None:
    pair = Pair()
    pair.b.qp.set_penalty(64)
    finish(pair, 5000)
    pair.b.qp.set_penalty(0)
    finish(pair, 5000)
    orders = [(line.packet.penalty, line.packet.restore_cwnd) for line in pair.sent(Sack, "b")]
    assert set(orders) == {(64, True), (0, True)} and orders[-1] == (0, True), "and then takes its old window again"
    with pytest.raises(LocalError, match="0 to 127"):
        pair.b.qp.set_penalty(128)
