"""Directions in which a path is dead.

An answer that is lost on the way back is no fault of the forward path.
"""

from __future__ import annotations

import pytest

from mrc_testbed.faults import BlackholeFault, CutFault, InjectedFault, OneWayFault, SilentFault
from mrc_testbed.hosts.engine.events import EvChanged, EvProbeResult
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Packet,
    ReliabilityProbe,
)
from mrc_testbed.simulator import Flow, VirtualFabric, scaled_profiles
from mrc_testbed.topologies.plan import Plan
from tests.hosts.engine.engine_pair import ACKS, MTU, Pair, finish_write

PLAN = Plan(planes=4, racks=2, spines=2, hosts_per_rack=2)
OK, BACK_LOST, OUT_LOST = "there and back", "out ok, back lost", "out lost"


def outcome_of(result: EvProbeResult) -> str:
    return OUT_LOST if result.rtt_s is None else BACK_LOST if result.back_lost else OK


def fabric_of(seed: int = 1) -> VirtualFabric:
    scale = scaled_profiles(PLAN.planes)
    return VirtualFabric(PLAN, seed=seed, links=scale.links, queues=scale.queues, config=scale.config)


def sweep(fabric: VirtualFabric, source: str, target: str, timeout_s: float = 0.2) -> dict[int, str]:
    """Send one probe on each path; return the reports on paths that do not work both ways, by EV."""
    host, request_ids = fabric.host(source), []
    for ev, plane in PLAN.ev_planes(PLAN.host(source), PLAN.host(target)):
        request_ids.append(host.endpoint.probe_ev(target, ev, plane, now=fabric.now, timeout_s=timeout_s))
        host.kick()
        fabric.run_for(0.002)
    fabric.run_for(timeout_s + 0.1)
    results = [e for e in host.events if isinstance(e, EvProbeResult) and e.request_id in request_ids]
    assert len(results) == len(request_ids) == 8
    return {e.ev: outcome_of(e) for e in results if outcome_of(e) != OK}


FAULTS: list[tuple[list[InjectedFault], dict[int, str], dict[int, str]]] = [
    ([], {}, {}),
    ([CutFault.on("p1-t0-0 p1-t1-1")], {0x101: OUT_LOST}, {0x101: OUT_LOST}),
    ([SilentFault.on("p1-t0-0 p1-t1-1")], {0x101: OUT_LOST}, {0x101: OUT_LOST}),
    ([OneWayFault.on("p1-t0-0 p1-t1-1")], {0x101: OUT_LOST}, {0x101: BACK_LOST}),
    ([OneWayFault.on("p1-t1-1 p1-t0-0")], {0x101: BACK_LOST}, {0x101: OUT_LOST}),
    ([BlackholeFault.on("p2-t1-0")], {0x200: OUT_LOST}, {0x200: OUT_LOST}),
    ([OneWayFault.on("p0-t0-0 h0")], {0x000: BACK_LOST, 0x001: BACK_LOST}, {0x000: OUT_LOST, 0x001: OUT_LOST}),
    (
        [
            OneWayFault.on("p1-t1-1 p1-t0-0", "p0-t0-1 p0-t1-0", "p3-t0-0 p3-t1-1"),
            BlackholeFault.on("p2-t1-0"),
        ],
        {0x101: BACK_LOST, 0x000: BACK_LOST, 0x200: OUT_LOST, 0x301: OUT_LOST},
        {0x101: OUT_LOST, 0x000: OUT_LOST, 0x200: OUT_LOST, 0x301: BACK_LOST},
    ),
]


@pytest.mark.parametrize("with_qps", [False, True])
@pytest.mark.parametrize("faults, forward_outcomes, reverse_outcomes", FAULTS)
def test_sweep__says_exactly_the_broken_thing(
    faults: list[InjectedFault], forward_outcomes: dict[int, str], reverse_outcomes: dict[int, str], with_qps: bool
) -> None:
    """No path is proven without a QP; none is known to work.

    With one, proofs from before the fault are there.
    """
    fabric = fabric_of()
    if with_qps:
        flow = Flow(fabric, "h0", "h2", messages=20)
        fabric.run_until(lambda: flow.finished_at is not None)
    for fault in faults:
        fabric.apply(fault)
    for _ in range(2):
        assert sweep(fabric, "h0", "h2") == forward_outcomes
        assert sweep(fabric, "h2", "h0") == reverse_outcomes


@pytest.mark.parametrize("fault, outcomes", [(faults, forward_outcomes) for faults, forward_outcomes, _ in FAULTS[3:7]])
@pytest.mark.parametrize("message_bytes", [100, pytest.param(1 << 16, marks=pytest.mark.thorough)])
def test_traffic_one_way__convicts_what_is_dead_on_the_way_out_and_nothing_else(
    fault: list[InjectedFault], outcomes: dict[int, str], message_bytes: int
) -> None:
    for seed in range(3):
        fabric = fabric_of(seed)
        flow = Flow(fabric, "h0", "h2", message_bytes=message_bytes, depth=1)
        fabric.schedule(0.3, fault[0])
        fabric.run_until(1.5)
        states = {row["ev"]: row["state"] for row in flow.qp.ev_states()}
        bad_evs = {ev for ev, state in states.items() if state not in ("good", "skip")}
        assert bad_evs == {ev for ev, way in outcomes.items() if way == OUT_LOST}
        write_count = flow.completed
        fabric.run_for(0.3)
        assert flow.completed > write_count


# ---- what is asked and answered ---------------------------------------------------------------------------


def ev_probes(pair: Pair, side: str) -> list[Packet]:
    return [line.packet for line in pair.sent(EndpointRequest, side) if line.packet.op == EndpointOp.EV_PROBE]


def answers(pair: Pair, side: str) -> list[tuple[int, int]]:
    """Return (plane, EV) of answers to EV probes."""
    sent = pair.sent(EndpointResponse, side)
    return [(p.plane, p.ev) for line in sent if (p := line.packet).op == EndpointOp.EV_PROBE]


@pytest.mark.parametrize("planes, uplinks", [(4, 2), (1, 2), (2, 1)])
def test_ev_probe__is_asked_again_and_answered_another_way(planes: int, uplinks: int) -> None:
    pair = Pair(planes=planes, uplinks=uplinks, framed=True)
    for ev, plane in pair.evs:  # b has heard of every path
        pair.a.endpoint.probe_ev("b", ev, plane, now=pair.now)
    pair.run(0.2)
    assert answers(pair, "b") == [(plane, ev) for ev, plane in pair.evs] and len(ev_probes(pair, "a")) == len(pair.evs)
    pair.path("b", 0x000).cut = True
    request_id = pair.a.endpoint.probe_ev("b", 0x000, 0, now=pair.now, timeout_s=0.1)
    pair.run(0.2)
    first, second = ev_probes(pair, "a")[-2:]
    assert (first.ev, first.plane, first.rtx) == (second.ev, second.plane, not second.rtx) == (0x000, 0, False)
    first_way, *other_ways = answers(pair, "b")[len(pair.evs) :]
    assert (
        first_way == (0, 0x000) and len(other_ways) == max(1, planes - 1) and 0x000 not in {ev for _, ev in other_ways}
    )
    (result,) = [e for e in pair.events_of(EvProbeResult) if e.request_id == request_id]
    assert result.back_lost and result.rtt_s == pytest.approx(0.010)


def test_ev_probe__a_late_first_answer_still_says_there_and_back() -> None:
    pair = Pair(planes=2)
    pair.path("b", 0x000).delay_s = 0.070
    pair.a.endpoint.probe_ev("b", 0x000, 0, now=pair.now, timeout_s=0.1)
    pair.run(0.2)
    (result,) = pair.events_of(EvProbeResult)
    assert outcome_of(result) == OK and result.rtt_s == pytest.approx(0.075)


def test_ev_probe__nothing_is_kept_of_those_that_ended() -> None:
    pair = Pair(planes=2)
    pair.cut(0x000)
    pair.path("b", 0x001).cut = True
    for _ in range(5):
        for ev in (0x000, 0x001, 0x100):
            pair.a.endpoint.probe_ev("b", ev, ev >> 8, now=pair.now)
        pair.run(0.15)
    assert [outcome_of(e) for e in pair.events_of(EvProbeResult)] == [OK, OUT_LOST, BACK_LOST] * 5
    assert not pair.a.endpoint._peers._probes


def test_reliability_probe__whose_answers_are_lost_does_not_convict() -> None:
    """b answers on plane 0 over the EV proven to it, which is dead now.

    Its own probes have not shown it yet.
    """
    pair = Pair(planes=2, uplinks=2)
    finish_write(pair, 100 * MTU)
    for ev in (0x000, 0x001):
        pair.path("b", ev).cut = True
    pair.filter = lambda source, packet: [] if source == "b" and type(packet) is EndpointRequest else None
    for _ in range(20):
        pair.a.qp.paths.refresh(pair.a.qp.paths.find(0x100))
        pair.a.qp.touch()
        pair.run(0.25)
    assert pair.events_of(EvChanged) == []
    assert any(line.packet.rtx for line in pair.sent(ReliabilityProbe))


def test_reliability_probes__bring_an_ev_back_whose_usual_way_back_is_dead() -> None:
    pair = Pair(planes=2, uplinks=2)
    finish_write(pair, 100 * MTU)
    for ev in (0x000, 0x001):
        pair.path("b", ev).cut = True
    pair.filter = lambda source, packet: [] if source == "b" and type(packet) is EndpointRequest else None
    pair.a.qp.paths.signal(pair.a.qp.paths.find(0x000), EvSignal.LOST, pair.now)
    pair.a.qp.touch()  # the QP was not asked
    assert pair.state(0x000) == "assumed_bad"
    pair.run(3 * 0.2 + 0.2)
    assert pair.state(0x000) == "good"


def test_reliability_probe__of_a_silent_peer_convicts_nobody_and_goes_on() -> None:
    pair = Pair(planes=2, uplinks=2)
    finish_write(pair, 20 * MTU)
    pair.filter = lambda source, packet: [1.0 - pair.now % 1.0] if source == "b" else None
    pair.run(1.0 - pair.now % 1.0)
    pair.write(pair.bytes(MTU))
    pair.run(0.9)
    pair.filter = None
    pair.run(3.0)
    assert pair.events_of(EvChanged) == []
    assert not pair.a.qp.paths._pending and not any(ev.probing for ev in pair.a.qp.paths.profile)


@pytest.mark.parametrize("seed", range(4))
def test_tail_of_a_burst__whose_acknowledgments_are_lost_is_no_loss(seed: int) -> None:
    """Packets by plane 1 arrive last, so no SACK by plane 0 shows it.

    Those by plane 1 take a way that died.
    """
    pair = Pair(planes=2, uplinks=2, seed=seed)
    for ev in (0x100, 0x101):
        pair.path("a", ev).delay_s = 0.006
    finish_write(pair, 100 * MTU)
    pair.run(1.0)
    for ev in (0x100, 0x101):
        pair.path("b", ev).cut = True
    for _ in range(3):
        finish_write(pair, 40 * MTU)
        pair.run(1.0)
    assert pair.events_of(EvChanged) == []


# ---- the responder's way back -----------------------------------------------------------------------------


def test_dead_way_back__is_left_by_the_answers_within_a_few_round_trips() -> None:
    """Traffic one way only: b knows by its own EV probes and by what a sends again."""
    worst_s = 0.0
    for seed in range(8):
        pair = Pair(planes=2, uplinks=8, seed=seed, config={"cwnd_bytes": 8000}, per_packet_s=0.001, region=1 << 18)
        pair.write(pair.bytes(800 * MTU))
        pair.run(0.2)
        dead_evs = {slot.ev.value for slot in pair.b.endpoint._peers.get("a").ack_paths._slots}
        for ev in dead_evs:
            pair.path("b", ev).cut = True
        cut_at = pair.now
        pair.run_until_quiet()
        answers = [line for line in pair.log if line.source == "b" and isinstance(line.packet, ACKS)]
        lost = [line.time for line in answers if line.time > cut_at and line.packet.ev in dead_evs]
        worst_s = max(worst_s, max(lost, default=cut_at) - cut_at)
        assert pair.events_of(EvChanged) == []
    assert worst_s <= 0.1, "ten round trips"
