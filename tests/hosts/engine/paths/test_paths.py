"""Reliability probes of a connected QP, asked and answered by hand.

When they end, and what that says of their EV.
"""

from __future__ import annotations

from mrc_testbed.hosts.engine.paths.ev import Ev
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal
from mrc_testbed.hosts.engine.wire.packets import Packet, ReliabilityProbe, Sack, Verdict, Write
from tests.hosts.engine.engine_pair import Pair, lose_first

EV, PLANE = 0x001, 0


def repeated_probe() -> tuple[Pair, Ev, ReliabilityProbe]:
    """Return a pair, its EV, and a probe that left at time 0.

    The probe was asked again after half of its patience; the second probe is still queued.
    """
    pair = Pair()
    pair.run_until_quiet()
    paths = pair.a.qp.paths
    ev = paths.find(EV)
    assert ev is not None
    paths.queue_probe(ev)
    pair.a.qp.touch()
    (probe,) = probes(pair, 0.0)
    pair.a.endpoint.on_timer(0.06)
    return pair, ev, probe


def probes(pair: Pair, now: float) -> list[ReliabilityProbe]:
    """Return the reliability probes that leave now."""
    return [packet for _, _, packet in pair.a.endpoint.transmit(now) if isinstance(packet, ReliabilityProbe)]


def test_ask__an_answer_in_time_spares_the_second_asking() -> None:
    pair, ev, probe = repeated_probe()
    cack = pair.a.qp.first_psn - 1 & 0xFFFFFF
    answer = Sack(pair.a.qp.qpn, EV, PLANE, 46, 0, cack, 1, 0, 0, probe.probe_id, EV, 0, 0, 0)
    pair.a.endpoint.receive(answer, PLANE, "b", 0.06)
    assert probes(pair, 0.06) == [] and not ev.probing and ev.probes_answered == 1


def test_ask__a_port_that_was_down_meanwhile_is_no_failure() -> None:
    pair, ev, _ = repeated_probe()
    assert len(probes(pair, 0.06)) == 1
    for is_up, now in ((False, 0.07), (True, 0.08)):
        pair.a.endpoint.on_port(PLANE, is_up, now)
    pair.a.endpoint.on_timer(0.2)
    assert not ev.probing and ev.failures == 0


def test_answer__that_says_always_skip_is_a_failure() -> None:
    pair = Pair()
    (lost,) = lose(pair)
    assert pair.state(lost.ev) == "assumed_bad"

    def swear(source: str, packet: Packet) -> None:
        if isinstance(packet, Sack) and packet.probe_id is not None:
            packet.verdict = Verdict.ALWAYS_SKIP

    pair.filter = swear
    pair.run(3.0)
    assert pair.state(lost.ev) == "assumed_bad" and pair.a.qp.counters.probes_answered > 3
    pair.filter = None
    pair.run(3.0)
    assert pair.state(lost.ev) == "good"


def lose(pair: Pair) -> list[Packet]:
    """Run a transfer that loses its fourth packet; return that packet."""
    victims = lose_first(pair, lambda source, p: isinstance(p, Write) and p.psn == pair.a.qp.first_psn + 3 & 0xFFFFFF)
    pair.write(pair.bytes(20_000))
    pair.run_until_quiet()
    return victims


def test_ask__over_a_plane_that_went_down_sends_nothing() -> None:
    pair = Pair()
    ev = pair.a.qp.paths.find(EV)
    pair.a.qp.paths.queue_probe(ev)
    pair.a.endpoint.on_port(PLANE, False, 0.0)
    assert ev is not None and probes(pair, 0.0) == [] and not ev.probing


def test_allow__an_ev_given_back_is_not_probed_any_more() -> None:
    pair = Pair()
    (lost,) = lose(pair)
    sent = pair.a.qp.counters.probes_sent
    pair.a.qp.allow(lost.ev, now=pair.now)
    pair.run(2.0)
    assert pair.a.qp.counters.probes_sent == sent and pair.state(lost.ev) == "good"


def test_recall__the_least_bad_ev_serves_when_no_other_can() -> None:
    pair = Pair(planes=2, uplinks=1)
    paths = pair.a.qp.paths
    other_ev = paths.find(0x100)
    assert other_ev is not None
    paths.signal(other_ev, EvSignal.LOST, 0.0)
    assert pair.state(0x100) == "assumed_bad"
    pair.port("a", 0, is_up=False)
    assert pair.state(0x100) == "good" and other_ev.in_doubt
