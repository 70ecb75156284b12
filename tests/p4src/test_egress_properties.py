"""Each packet offered to the egress discipline comes out once, whole or trimmed, or is counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.controller.p4runtime.qos import Discipline
from mrc_testbed.hosts.engine.wire.packets import NackReason, Write
from mrc_testbed.topologies.plan import Plan
from tests.p4src.plan_switch import (
    CE,
    CONTROL,
    ECT0,
    MS,
    NO_TRIM,
    NOT_TRIMMABLE,
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

PLANS = {mode: Plan.scaled(mode=mode) for mode in ("srv6", "stev")}
CUT = {"srv6": 138, "stev": 98}
DOWNLINK = 1
DATA = (NO_TRIM, TRIMMABLE, TRIMMABLE_RETX)


@dataclass(frozen=True)
class Offer:
    """One packet of a load: its kind and how long after the one before it comes."""

    dscp: int
    payload: int
    ecn: int
    gap_ns: int


OFFERS = st.lists(
    st.builds(
        Offer,
        st.sampled_from((*DATA, TRIMMABLE, TRIMMABLE, CONTROL)),
        st.sampled_from((0, 4, 36, 40, 256, 1024)),
        st.sampled_from((0, 1, ECT0, CE)),
        st.sampled_from((0, 0, 0, 1000, MS // 3, MS, 3 * MS)),
    ),
    min_size=1,
    max_size=120,
)


def last_hop(mode: str, want: Discipline) -> PlannedSwitch:
    """Return the T0 of the destination, its downlink to h2 at the plan's rate."""
    plan = PLANS[mode]
    switch = PlannedSwitch(plan, "p0-t0-1", want)
    rate = plan.speed(plan.link_of_port("p0-t0-1", DOWNLINK)).rate_bps
    assert rate
    switch.device.traffic.set(DOWNLINK, replace(switch.device.traffic.get(DOWNLINK), rate_bps=round(rate)))
    return switch


def arriving(talk: Conversation, mode: str, psn: int, offer: Offer) -> bytes:
    frame = talk.data(psn, dscp=offer.dscp, ecn=offer.ecn, payload=offer.payload, rtx=offer.dscp == TRIMMABLE_RETX)
    # T0 and T1 of the source have spent their uSIDs.
    return frame[:42] + frame[46:54] + bytes(4) + frame[54:] if mode == "srv6" else frame


@settings(max_examples=50, deadline=None)
@given(OFFERS, st.sampled_from(("srv6", "stev")), st.booleans(), st.booleans())
def test_any_load__nothing_is_lost_silently_and_headers_stay_true(offers, mode, trimming, last_hop_ecn):
    want = Discipline(trimming=trimming, last_hop_ecn=last_hop_ecn)
    switch = last_hop(mode, want)
    talk = Conversation(PLANS[mode], "h0", "h2")
    now, sent = 0, []
    for psn, offer in enumerate(offers):
        now += offer.gap_ns
        frame = arriving(talk, mode, psn, offer)
        switch.device.inject(3, frame, now)
        sent.append(frame)
    out = [frame for _, port, frame in switch.device.advance(now + 10 * SECOND) if port == DOWNLINK]

    arrived_psns = set()
    for frame in out:
        record = talk.received(frame)  # every check of the receiver; trimmed ones are read through TSETH
        assert isinstance(record, Write) and record.psn not in arrived_psns
        arrived_psns.add(record.psn)
        offer, original = offers[record.psn], sent[record.psn]
        assert frame[16:20] == original[16:20]  # flow label and payload length
        assert record.timestamp == record.psn
        if record.trimmed is not None:
            assert trimming and offer.dscp in (TRIMMABLE, TRIMMABLE_RETX)
            assert (record.trimmed, dscp_of(frame)) == (NackReason.TRIMMED_LASTHOP, TRIMMED_LASTHOP)
            assert len(frame) == CUT[mode] < len(original)
            assert ecn_of(frame) == offer.ecn
        else:
            assert (len(frame), dscp_of(frame)) == (len(original), offer.dscp)
            assert ecn_of(frame) == offer.ecn or (
                last_hop_ecn and offer.dscp != CONTROL and offer.ecn != 0 and ecn_of(frame) == CE
            )
    lost = [offers[psn] for psn in range(len(sent)) if psn not in arrived_psns]
    drops = switch.drops()
    assert sum(drops.values()) == len(lost)
    assert all(lost_offer.dscp != CONTROL for lost_offer in lost)
    if trimming:
        trimmable_offers = [lost_offer for lost_offer in lost if lost_offer.dscp != NO_TRIM]
        assert all(
            lost_offer.payload <= 36 for lost_offer in trimmable_offers
        )  # a short packet that no cut would shorten
        assert set(drops) <= {(NOT_TRIMMABLE, DOWNLINK)}
    assert switch.depth(DOWNLINK) == 0
    state = switch.device.traffic.state(DOWNLINK)
    assert all(queue.dropped_pkts == 0 for queue in state.queues)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 63), st.integers(0, 3), st.integers(0, 2000), st.integers(0, 40), st.booleans())
def test_any_codepoint__is_trimmed_only_when_it_is_trimmable_and_once(dscp, ecn, payload, depth, stamp):
    """Two switches in a row, both with a long queue."""
    plan = PLANS["srv6"]
    talk = Conversation(plan, "h0", "h2")
    first, second = _pair()
    first.set_depth(3, depth)
    second.set_depth(2, 10_000)
    sent = talk.data(1, dscp=dscp, ecn=ecn, payload=payload, stamp=stamp)
    out = first.device.process(1, sent)
    if not out:
        assert depth >= 32 and dscp not in (CONTROL, TRIMMED, TRIMMED_LASTHOP)
        return
    ((_, frame),) = out
    was_cut = len(frame) < len(sent)
    assert was_cut == (dscp in (TRIMMABLE, TRIMMABLE_RETX) and depth >= 11 and len(sent) > 138)
    assert dscp_of(frame) == (TRIMMED if was_cut else dscp)
    second_out = second.device.process(1, frame)
    if dscp_of(frame) in (TRIMMED, TRIMMED_LASTHOP, CONTROL):
        ((_, second_frame),) = second_out
        assert (len(second_frame), dscp_of(second_frame)) == (len(frame), dscp_of(frame))
    else:
        assert second_out == [] or dscp_of(second_out[0][1]) == TRIMMED


_PAIR: list[PlannedSwitch] = []


def _pair() -> list[PlannedSwitch]:
    if not _PAIR:
        _PAIR.extend(PlannedSwitch(PLANS["srv6"], name) for name in ("p0-t0-0", "p0-t1-0"))
    return _PAIR


@pytest.mark.parametrize("senders", [2, 7])
def test_incast__last_hop_trims_and_loses_nothing(senders):
    """Each sender offers the port's whole rate; what does not fit arrives trimmed, control on time."""
    plan = Plan.scaled(planes=1, racks=2, spines=8, hosts_per_rack=8)
    switch = PlannedSwitch(plan, "p0-t0-1")
    switch.device.traffic.set(1, replace(switch.device.traffic.get(1), rate_bps=10_000_000))
    talks = [Conversation(plan, f"h{n}", "h8") for n in range(senders)]
    gap = plan.frame_bytes() * 8 * 100  # ns at 10 Mb/s
    count = 200
    for psn in range(count):
        for ingress, talk in enumerate(talks):
            frame = arriving(talk, "srv6", psn, Offer(TRIMMABLE, 1024, ECT0, 0))
            switch.device.inject(9 + ingress, frame, psn * gap + ingress)
    out = [frame for _, _, frame in switch.device.advance(count * gap + SECOND)]
    trimmed = [frame for frame in out if dscp_of(frame) == TRIMMED_LASTHOP]
    assert len(out) == senders * count
    assert switch.counts("trimmed") == {512 + 1: len(trimmed)}
    assert (switch.drops(), switch.counts("marked")) == ({}, {})
    # The wire is full with trimmed headers first; whole packets get the rest of the rate.
    share = 1 - (senders - 1) * 138 / plan.frame_bytes() if senders * 138 < plan.frame_bytes() else 0
    assert (len(out) - len(trimmed)) / count == pytest.approx(share, abs=0.25)
