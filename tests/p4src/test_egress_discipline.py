"""The egress discipline on a virtual clock.

Classes, marks, trimming, drops (mrc-protocol §4.2 to §4.4).
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from mrc_testbed.controller.p4runtime.qos import Discipline, threshold_entry
from mrc_testbed.hosts.engine.wire.packets import NackReason, Write
from mrc_testbed.topologies.plan import Plan, Thresholds
from tests.p4src.plan_switch import (
    CE,
    CONTROL,
    ECT0,
    MS,
    NO_TRIM,
    NOT_TRIMMABLE,
    QUEUE,
    SECOND,
    TRIMMABLE,
    TRIMMABLE_RETX,
    TRIMMED,
    TRIMMED_LASTHOP,
    Conversation,
    PlannedSwitch,
    dscp_of,
    ecn_of,
)

PLAN = Plan.scaled()
PLAIN = Plan.scaled(mode="stev")
T0 = "p0-t0-0"
DOWNLINK, UPLINK = 1, 3
"""Ports of T0: to h0, and uplink 0."""
FRAME = len(Conversation(PLAN, "h0", "h2").data())
DEPTHS = Thresholds(ecn_min=2, ecn_max=9, trim_at=12, drop_at=36, last_hop=False, control_depth=90)


def t0(plan: Plan = PLAN, want: Discipline | None = None, **depths: object) -> PlannedSwitch:
    """Return a T0 whose uplink 0 has DEPTHS, or what `depths` says."""
    want = want or Discipline()
    switch = PlannedSwitch(plan, T0, want)
    default_depths = {name: getattr(DEPTHS, name) for name in Thresholds.__slots__}
    switch.write(
        threshold_entry(switch.catalog, UPLINK, Thresholds(**{**default_depths, **depths}), want), replace=True
    )
    return switch


def arrivals(switch: PlannedSwitch, until_ns: int) -> list[bytes]:
    return [frame for _, _, frame in switch.device.advance(until_ns)]


# ---- classes ------------------------------------------------------------------------------------------------------


def test_no_entries__one_class_and_no_signal():
    switch = PlannedSwitch(PLAN, T0, want=None)
    switch.slow_down(UPLINK, 1000)
    talk = Conversation(PLAN, "h0", "h2")
    sent = [talk.data(n) for n in range(60)] + [talk.sack()]
    end = switch.offer(1, sent, start_ns=0, gap_ns=1000)
    out = arrivals(switch, end + SECOND)
    assert [len(frame) for frame in out] == [len(frame) for frame in sent]  # in order, whole
    assert {ecn_of(frame) for frame in out[:-1]} == {ECT0}
    assert (switch.counts("marked"), switch.counts("trimmed"), switch.drops(), switch.depth(UPLINK)) == ({}, {}, {}, 0)


def test_control__overtakes_data_and_is_neither_marked_nor_trimmed():
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    switch.slow_down(UPLINK, 100)
    sent = [talk.data(n) for n in range(8)] + [talk.sack(99)]
    end = switch.offer(1, sent, start_ns=0, gap_ns=1000)
    out = [dscp_of(frame) for frame in arrivals(switch, end + SECOND)]
    assert out == [TRIMMABLE, CONTROL] + [TRIMMABLE] * 7
    sacks = [talk.sack(n) for n in range(70)]
    end = switch.offer(1, sacks, start_ns=2 * SECOND, gap_ns=1000)
    assert [dscp_of(frame) for frame in arrivals(switch, end + SECOND)] == [CONTROL] * 70
    assert (switch.counts("trimmed"), switch.drops()) == ({}, {})


def test_middle_class__trimmed_between_control_and_data():
    switch, talk = t0(want=Discipline(trimmed_priority=3)), Conversation(PLAN, "h0", "h2")
    switch.slow_down(UPLINK, 100)
    sent = [talk.data(n) for n in range(14)] + [talk.sack()]
    end = switch.offer(1, sent, start_ns=0, gap_ns=1000)
    order = [dscp_of(frame) for frame in arrivals(switch, end + SECOND)]
    assert order == [TRIMMABLE, CONTROL, TRIMMED] + [TRIMMABLE] * 12


def test_codepoints__are_the_operators():
    want = Discipline(trimmable=20, trimmed=21, trimmed_lasthop=22, control=23)
    switch, talk = t0(want=want), Conversation(PLAN, "h0", "h2")
    switch.set_depth(UPLINK, 12)
    assert dscp_of(switch.device.process(1, talk.data(dscp=20))[0][1]) == 21
    assert dscp_of(switch.device.process(1, talk.data(dscp=TRIMMABLE))[0][1]) == TRIMMABLE  # no entry: NO_TRIM
    switch.set_depth(DOWNLINK, 1000)
    reply = Conversation(PLAN, "h2", "h0")
    arriving = _after_t1(reply.data(dscp=20))
    assert dscp_of(switch.device.process(UPLINK, arriving)[0][1]) == 22


def _after_t1(frame: bytes, hops: int = 2) -> bytes:
    """Return a frame as it reaches the destination's T0: two uSIDs spent."""
    return frame[:42] + frame[42 + 2 * hops : 54] + bytes(2 * hops) + frame[54:]


# ---- trimming -----------------------------------------------------------------------------------------------------


def test_offered_three_times_the_rate__one_third_whole_two_thirds_trimmed_none_lost():
    """The result is that of BMv2.

    500 packets/s of data pass a queue of 500, the other 1000 lose their tails, none is lost.
    """
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    traffic = switch.device.traffic
    traffic.set(UPLINK, traffic.get(UPLINK).with_queue(0, rate_pps=500))
    seconds = 4
    end = switch.offer(1, [talk.data(n) for n in range(1500 * seconds)], start_ns=0, gap_ns=SECOND // 1500)
    got: Counter[int] = Counter(dscp_of(frame) for frame in arrivals(switch, end))
    assert got[TRIMMABLE] == pytest.approx(500 * seconds, abs=2)
    got += Counter(dscp_of(frame) for frame in arrivals(switch, end + SECOND))
    assert got[TRIMMABLE] + got[TRIMMED] == 1500 * seconds
    assert switch.counts("trimmed") == {UPLINK: got[TRIMMED]}
    assert (switch.drops(), switch.depth(UPLINK)) == ({}, 0)


def test_depth__follows_the_queue_and_ends_at_0():
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    switch.slow_down(UPLINK, 1000)
    switch.offer(1, [talk.data(n) for n in range(10)], start_ns=0, gap_ns=1)
    switch.device.advance(100)
    assert switch.depth(UPLINK) == 9  # one is on the wire
    queue_depths = []
    for time_ms in range(1, 12):
        switch.device.advance(time_ms * MS + 1)
        queue_depths.append(switch.depth(UPLINK))
    assert queue_depths == [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]


def test_depth__a_control_packet_does_not_correct_it():
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    switch.slow_down(UPLINK, 1000)
    switch.offer(1, [talk.data(n) for n in range(6)] + [talk.sack()], start_ns=0, gap_ns=1)
    switch.device.advance(MS + 1)  # the SACK has left
    assert switch.depth(UPLINK) == 5


@pytest.mark.parametrize("stuck", [12, 35, 36, 1000])
def test_depth__that_nothing_corrects_is_given_up_after_a_second(stuck):
    """Say the port was taken away with its queue: the count stays, and would keep everybody out."""
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    switch.device.inject(1, talk.data(), 0)
    switch.set_depth(UPLINK, stuck)
    switch.offer(1, [talk.data(n) for n in range(100)], start_ns=SECOND // 100, gap_ns=SECOND // 100)
    out = [dscp_of(frame) for frame in arrivals(switch, 2 * SECOND)]
    assert out == [TRIMMABLE] + [TRIMMED] * 99 + [TRIMMABLE]
    assert switch.depth(UPLINK) == 0


@pytest.mark.parametrize("stamp", [True, False])
@pytest.mark.parametrize(("plan", "cut_size"), [(PLAN, 138), (PLAIN, 98)], ids=["srv6", "no outer header"])
def test_trimmed__is_cut_behind_its_headers_and_nothing_else_changes(plan, cut_size, stamp):
    switch, talk = t0(plan), Conversation(plan, "h0", "h2")
    sent = talk.data(5, stamp=stamp, ecn=CE)
    whole_frames = switch.device.process(1, sent)
    switch.set_depth(UPLINK, 12)
    ((port, frame),) = switch.device.process(1, sent)
    assert [(UPLINK, len(sent))] == [(number, len(whole_frame)) for number, whole_frame in whole_frames]
    assert (port, len(frame), dscp_of(frame), ecn_of(frame)) == (UPLINK, cut_size, TRIMMED, CE)
    head = bytearray(whole_frames[0][1][:cut_size])
    head[14:16] = frame[14:16]
    assert frame == bytes(head)
    assert switch.counts("trimmed") == {UPLINK: 1}


@pytest.mark.parametrize(("plan", "mode"), [(PLAN, "srv6"), (PLAIN, "stev")])
@pytest.mark.parametrize("stamp", [True, False])
def test_trimmed__the_receiver_reads_psn_ev_and_timestamp(plan, mode, stamp):
    """Through T0, T1 and T0: trimmed by the last one."""
    talk = Conversation(plan, "h0", "h2", ev=0x0001)
    first, last = PlannedSwitch(plan, "p0-t0-0"), PlannedSwitch(plan, "p0-t0-1")
    middle = PlannedSwitch(plan, "p0-t1-1")
    ((port, frame),) = first.device.process(1, talk.data(77, stamp=stamp))
    assert port == 4
    ((port, frame),) = middle.device.process(1, frame)
    assert port == 2
    last.set_depth(1, 100)
    ((port, frame),) = last.device.process(4, frame)
    assert (port, dscp_of(frame)) == (1, TRIMMED_LASTHOP)
    assert last.counts("trimmed") == {512 + 1: 1}
    got = talk.received(frame)
    assert isinstance(got, Write)
    assert (got.psn, got.ev, got.trimmed) == (77, 0x0001, NackReason.TRIMMED_LASTHOP)
    assert got.timestamp == (77 if stamp else None)
    assert got.size == talk.received(_at_destination(plan, talk.data(77, stamp=stamp))).size


def _at_destination(plan: Plan, frame: bytes) -> bytes:
    return _after_t1(frame, 3) if plan.mode.outer_header else frame


def test_trimmed__is_never_trimmed_again_nor_marked_anew():
    talk = Conversation(PLAN, "h0", "h2")
    first, last = t0(), PlannedSwitch(PLAN, "p0-t0-1")
    first.set_depth(UPLINK, 12)
    ((_, frame),) = first.device.process(1, talk.data())
    last.set_depth(1, 10_000)
    arriving = frame[:42] + frame[44:54] + bytes(2) + frame[54:]  # the T1's uSID is spent
    ((_, out),) = last.device.process(3, arriving)
    assert (len(out), dscp_of(out)) == (138, TRIMMED)
    assert (last.counts("trimmed"), last.depth(1)) == ({}, 10_000)


def test_trimmed__ipv4_inside_keeps_its_headers():
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    switch.set_depth(UPLINK, 12)
    ((_, frame),) = switch.device.process(1, talk.ipv4_inside())
    assert len(frame) == 98 + 20


@pytest.mark.parametrize(("extra", "trimmed"), [(-1, False), (0, False), (1, True), (4, True)])
def test_short__what_the_cut_would_not_shorten_waits_with_the_others(extra, trimmed):
    """§4.3, but between trim_at and drop_at there is still room for it."""
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    frame = talk.data()[: 138 + extra]
    switch.set_depth(UPLINK, 12)
    ((_, out),) = switch.device.process(1, frame)
    assert (dscp_of(out) == TRIMMED) is trimmed
    assert len(out) == min(138, len(frame))


def test_retransmissions__have_a_threshold_of_their_own():
    switch, talk = t0(want=Discipline(retransmission_share=2.0)), Conversation(PLAN, "h0", "h2")

    def sent_at(depth: int, dscp: int) -> int:
        switch.set_depth(UPLINK, depth)
        return dscp_of(switch.device.process(1, talk.data(dscp=dscp))[0][1])

    assert sent_at(11, TRIMMABLE) == TRIMMABLE
    assert sent_at(12, TRIMMABLE) == TRIMMED
    assert sent_at(23, TRIMMABLE_RETX) == TRIMMABLE_RETX
    assert sent_at(24, TRIMMABLE_RETX) == TRIMMED


# ---- drops --------------------------------------------------------------------------------------------------------


def test_full__what_may_not_be_trimmed_is_dropped_and_counted_by_egress_port():
    switch, talk = t0(), Conversation(PLAN, "h0", "h2")
    for depth, frame in ((35, talk.data(dscp=NO_TRIM)), (35, talk.data()[:138])):
        switch.set_depth(UPLINK, depth)
        assert len(switch.device.process(1, frame)) == 1
    for frame in (talk.data(dscp=NO_TRIM), talk.data()[:138]):
        switch.set_depth(UPLINK, 36)
        assert switch.device.process(1, frame) == []
    assert switch.drops() == {(NOT_TRIMMABLE, UPLINK): 2}
    assert dscp_of(switch.device.process(1, talk.data())[0][1]) == TRIMMED  # trimmable: never dropped
    assert len(switch.device.process(1, talk.sack())) == 1


def test_trimming_off__data_is_dropped_at_its_limit_and_counted():
    switch, talk = t0(want=Discipline(trimming=False)), Conversation(PLAN, "h0", "h2")
    switch.slow_down(UPLINK, 100)
    end = switch.offer(1, [talk.data(n) for n in range(60)], start_ns=0, gap_ns=1000)
    out = arrivals(switch, end + SECOND)
    assert len(out) == 37  # one on the wire and 36 in the queue
    assert switch.drops() == {(QUEUE, UPLINK): 23}
    assert all(dscp_of(frame) == TRIMMABLE for frame in out)


# ---- marks --------------------------------------------------------------------------------------------------------


def standing(
    switch: PlannedSwitch, depth: int, count: int, *, port: int = UPLINK, frame: bytes | None = None
) -> list[bytes]:
    """`count` frames leave the port while exactly `depth` others wait behind each."""
    frame = frame or Conversation(PLAN, "h0", "h2").data()
    ingress = 1 if port == UPLINK else UPLINK
    switch.slow_down(port, 100)
    switch.offer(ingress, [frame] * (depth + 1), start_ns=0, gap_ns=1)
    switch.offer(ingress, [frame] * count, start_ns=9 * MS, gap_ns=10 * MS)
    out = arrivals(switch, 10 * MS * count + 5 * MS)
    return out[1 : 1 + count]


@pytest.mark.parametrize(("depth", "marked"), [(0, False), (4, False), (5, True), (6, True), (11, True)])
def test_step__marks_all_from_its_depth_on(depth, marked):
    switch = t0(ecn_min=5, ecn_max=5)
    out = standing(switch, depth, 40)
    assert {ecn_of(frame) for frame in out} == {CE if marked else ECT0}
    assert (UPLINK in switch.counts("marked")) is marked


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8, 9, 11])
def test_ramp__marks_with_the_probability_of_the_depth(depth):
    switch = t0()
    count = 1500
    share = sum(ecn_of(frame) == CE for frame in standing(switch, depth, count)) / count
    probability = min(1.0, max(0.0, (depth - 2) / 7))
    assert share == pytest.approx(probability, abs=4 * (probability * (1 - probability) / count) ** 0.5 + 1e-9)


def test_marks__only_on_ect_and_never_on_control():
    talk = Conversation(PLAN, "h0", "h2")
    for ecn in (0, CE):
        switch = t0(ecn_min=1, ecn_max=1)
        assert {ecn_of(frame) for frame in standing(switch, 4, 10, frame=talk.data(ecn=ecn))} == {ecn}
        assert switch.counts("marked") == {}
    switch = t0(ecn_min=1, ecn_max=1)
    assert {ecn_of(frame) for frame in standing(switch, 4, 10, frame=talk.sack())} == {0}
    switch = t0(ecn_min=1, ecn_max=1)
    assert {ecn_of(frame) for frame in standing(switch, 4, 10, frame=talk.data(ecn=1))} == {CE}


@pytest.mark.parametrize(("last_hop_ecn", "ecn"), [(False, ECT0), (True, CE)])
def test_last_hop__marks_only_when_the_entry_says_so(last_hop_ecn, ecn):
    switch = PlannedSwitch(PLAN, T0, Discipline(last_hop_ecn=last_hop_ecn))
    frame = _after_t1(Conversation(PLAN, "h2", "h0").data())
    out = standing(switch, 12, 20, port=DOWNLINK, frame=frame)
    assert {ecn_of(marked_frame) for marked_frame in out} == {ecn}


def test_ecn_off__a_standing_queue_marks_nothing():
    switch = t0(want=Discipline(ecn=False))
    assert {ecn_of(frame) for frame in standing(switch, 11, 20)} == {ECT0}


def test_plan__thresholds_of_every_port_are_in_order():
    for name in ("p0-t0-0", "p0-t1-0"):
        for port in PLAN.ports(name):
            depths = PLAN.thresholds(name, port.number)
            assert depths is not None
            order = [depths.ecn_min, depths.ecn_max, depths.trim_at, depths.drop_at, depths.data_limit]
            assert all(a < b for a, b in pairwise(order)) and depths.ecn_min > 0
