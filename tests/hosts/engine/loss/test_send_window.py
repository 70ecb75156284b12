"""The queues of packets in flight by themselves.

Chains by plane and EV, timers, and that what is over is freed.
"""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.loss.proof_of_loss import ProofOfLoss
from mrc_testbed.hosts.engine.loss.roundtrips import RoundTrips
from mrc_testbed.hosts.engine.loss.send_window import COMPACT_FROM, GIVEN_UP, RING_FROM, ByAge, SendWindow, Sent, keep
from mrc_testbed.hosts.engine.loss.tail_loss_probe import TailLossProbe
from mrc_testbed.hosts.engine.messages import Message
from mrc_testbed.hosts.engine.paths.ev import Ev, Transmission

MESSAGE = Message(1, memoryview(bytes(100_000)), 0, 0, 0, 1000, 0, 0, None, False)


def sent(serial: int, ev: Ev, *, departure_time: float | None = None, timer_s: float = 1.0) -> Sent:
    """Return transmission number `serial`, of the PSN of that number.

    `departure_time`: seconds; None: as many as `serial`.
    """
    departure = float(serial) if departure_time is None else departure_time
    return Sent(serial, MESSAGE, ev, 1000, serial, 1, 0, departure, departure + timer_s, None)


def window() -> SendWindow:
    return SendWindow(0, True, ProofOfLoss(RoundTrips(Config())))


def on_plane(mates: ByAge) -> list[int]:
    """Return the serials in the chain of a plane, oldest first."""
    serials, packet = [], mates.oldest_sent
    while packet is not None:
        serials.append(packet.serial)
        packet = packet.next_on_plane
    return serials


def on_ev(ev: Ev) -> list[int]:
    """Return the serials in the chain of an EV, oldest first."""
    serials: list[int] = []
    packet: Transmission | None = ev.oldest_kept
    while packet is not None:
        serials.append(packet.serial)
        packet = packet.next_on_ev
    return serials


def test_by_age__tells_when_its_oldest_left() -> None:
    mates, ev = ByAge(), Ev(1, 0, 3)
    assert (on_plane(mates), mates.oldest_sent_at) == ([], inf)
    first, second = sent(1, ev), sent(2, ev)
    mates.add(first)
    mates.add(second)
    assert (on_plane(mates), mates.oldest_sent_at) == ([1, 2], 1.0)
    assert mates.drop_oldest(first) is second and first.next_on_plane is None
    assert (on_plane(mates), mates.oldest_sent_at) == ([2], 2.0)
    assert mates.drop_oldest(second) is None
    assert (on_plane(mates), mates.oldest_sent_at) == ([], inf)
    mates.add(sent(3, ev))
    assert on_plane(mates) == [3]


def test_by_age__is_freed_of_what_is_over_behind_one_that_stays() -> None:
    mates, ev = ByAge(), Ev(1, 0, 3)
    packets = [sent(serial, ev) for serial in range(COMPACT_FROM)]
    for packet in packets:
        mates.add(packet)
    for packet in packets[1:-1]:
        packet.state = GIVEN_UP
    mates.add(sent(1000, ev))
    assert on_plane(mates) == [0, COMPACT_FROM - 1, 1000] and mates.oldest_sent_at == 0.0
    assert packets[1].next_on_plane is None, "what was freed keeps nothing"


def test_ev__is_freed_of_what_is_over_behind_one_that_stays() -> None:
    ev = Ev(1, 0, 3)
    packets = [sent(serial, ev) for serial in range(COMPACT_FROM)]
    for packet in packets:
        keep(ev, packet)
    assert ev.kept_count == COMPACT_FROM
    for packet in packets[1:-1]:
        packet.state = GIVEN_UP
    keep(ev, sent(1000, ev))
    assert on_ev(ev) == [0, COMPACT_FROM - 1, 1000] and (ev.kept_count, ev.kept_limit) == (3, 6)
    assert packets[1].next_on_ev is None, "what was freed keeps nothing"


def test_ev__that_is_freed_of_all_but_the_newest_goes_on() -> None:
    ev = Ev(1, 0, 3)
    packets = [sent(serial, ev) for serial in range(COMPACT_FROM)]
    for packet in packets:
        keep(ev, packet)
        packet.state = GIVEN_UP
    keep(ev, sent(1000, ev))
    keep(ev, sent(1001, ev))
    assert on_ev(ev) == [1000, 1001]


def test_timers__come_in_order_whatever_path_needs_longer() -> None:
    flight, slow, fast = window(), Ev(1, 0, 3), Ev(2, 1, 3)
    for serial, ev, timer_s in ((0, slow, 9.0), (1, fast, 2.0), (2, fast, 2.0), (3, slow, 9.0)):
        flight.add(sent(serial, ev, timer_s=timer_s))
    deadlines = []
    while (first := flight.first_timer()) is not None:
        deadlines.append((first.deadline, first.serial))
        flight.give_up(first)
    assert deadlines == [(3.0, 1), (4.0, 2), (9.0, 0), (12.0, 3)]


def test_timers__of_one_instant_come_in_the_order_of_sending() -> None:
    flight, ev = window(), Ev(1, 0, 3)
    flight.add(sent(0, ev, departure_time=0.0, timer_s=6.0))
    flight.add(sent(1, ev, departure_time=1.0, timer_s=4.0))
    flight.add(sent(2, ev, departure_time=2.0, timer_s=3.0))
    flight.add(sent(3, ev, departure_time=3.0, timer_s=3.0))
    due = flight.take_expired(6.0)
    assert [packet.serial for packet in due] == [0, 1, 2, 3] and flight.first_timer() is None


def test_timer__that_was_set_before_answers_took_longer_runs_on() -> None:
    flight, ev = window(), Ev(1, 0, 3)
    first = sent(0, ev, departure_time=0.0, timer_s=1.0)
    flight.add(first)
    ev.on_sample(2.0)
    assert flight.take_expired(1.0) == [] and first.deadline == 3.0
    flight.add(sent(1, ev, departure_time=1.0, timer_s=2.0))
    assert flight.first_timer() is first, "both are due then, and it left earlier"
    assert [packet.serial for packet in flight.take_expired(3.0)] == [0], (
        "1.5 x 2 s after it left; the other may run on"
    )


def test_timers__are_freed_of_what_is_over() -> None:
    flight, ev = window(), Ev(1, 0, 3)
    for serial in range(COMPACT_FROM + 2):
        packet = sent(serial, ev, timer_s=1000.0 - 2 * (serial % 2) * serial)
        flight.add(packet)
        if serial not in (0, 5):
            flight.give_up(packet)
    assert flight._timers.count + len(flight._timers_apart) < 10
    assert flight.first_timer() is flight.latest(5)
    sixth = flight.latest(5)
    assert sixth is not None
    flight.give_up(sixth)
    assert flight.first_timer() is flight.latest(0)


@pytest.mark.parametrize("seed", range(20))
def test_earliest_timers__are_never_after_the_first_one_and_lead_to_it(seed: int) -> None:
    rng, ev = Random(seed), Ev(1, 0, 3)
    proof = ProofOfLoss(RoundTrips(Config()))
    flight, probe = SendWindow(1, True, proof), TailLossProbe(None, proof)
    in_flight: dict[int, Sent] = {}
    for serial in range(1, 300):
        packet = in_flight[serial] = sent(serial, ev, timer_s=rng.choice((3.0, 5.0, 40.0, 41.0)))
        packet.size = rng.choice((0, 1000))  # a packet without payload may count as nothing (`rcvd_counts`)
        flight.add(packet)
        while in_flight and rng.random() < 0.5:
            flight.give_up(in_flight.pop(rng.choice(list(in_flight))))
        first = min(in_flight.values(), key=lambda packet: (packet.deadline, packet.serial), default=None)
        assert first is None or probe.next_due(flight) <= first.deadline
        if rng.random() < 0.3:
            assert flight.first_timer() is first
            half = NEVER if first is None else (first.sent_at + first.deadline) / 2
            assert probe.next_due(flight) == half, "half of its timer"


def test_window__knows_what_is_outstanding_however_wide_it_is() -> None:
    flight, ev, rng = window(), Ev(1, 0, 3), Random(7)
    outstanding: dict[int, Sent] = {}
    serial, widest = 0, 0
    for _ in range(3000):
        roll = rng.random()
        if roll < 0.62 and flight.next_psn - flight.cack < 300:
            outstanding[flight.next_psn] = packet = sent(flight.next_psn, ev)
            flight.add(packet)
        elif roll < 0.68 and outstanding:
            psn = rng.choice(list(outstanding))  # once more
            serial += 1
            outstanding[psn] = packet = Sent(psn, MESSAGE, ev, 1000, 10_000 + serial, 2, 0, 0.0, 1.0, None)
            flight.give_up(flight.outstanding_sent()[0])
            flight.add(packet)
        elif roll < 0.74:
            cack = rng.randrange(flight.cack, min(flight.next_psn, flight.cack + 20))
            acked_psns = [psn for psn in sorted(outstanding) if psn <= cack]
            assert flight.acknowledge(cack) == [outstanding.pop(psn) for psn in acked_psns]
        else:
            base, bits = rng.randrange(flight.cack, flight.next_psn + 1), rng.getrandbits(64)
            acked_psns = [psn for psn in sorted(outstanding) if 0 <= psn - base < 64 and bits >> psn - base & 1]
            news = []
            flight.acknowledge_bitmap(base, bits, news)
            assert news == [outstanding.pop(psn) for psn in acked_psns]
        widest = max(widest, flight.next_psn - flight.cack)
        assert flight.outstanding_sent() == [outstanding[psn] for psn in sorted(outstanding)]
        assert flight.outstanding == len(outstanding)
        for psn in (flight.cack, flight.next_psn, flight.next_psn + 7, flight.cack - 40):
            assert flight.latest(psn) is None
    assert widest > 4 * RING_FROM
    flight.give_up_all()
    assert not flight.outstanding and not flight.outstanding_sent()


def test_lost__a_packet_that_round_trips_acquit_meanwhile_is_not() -> None:
    """A SACK shows 64 packets, and a lapped one of a longer window when round trips have grown."""
    rtt, ev = RoundTrips(Config()), Ev(1, 0, 3)
    for n in range(200):
        rtt.on_sample(0.010, n * 0.010)
    ev.on_sample(0.010)
    proof = ProofOfLoss(rtt)
    flight = SendWindow(0, True, proof)
    packets = [sent(psn, ev, departure_time=2.0 + 0.001 * psn, timer_s=9.0) for psn in range(100)]
    for packet in packets:
        flight.add(packet)
    for packet in packets[1:31]:
        proof.on_answer(0, packet.sent_at, True, packet.sent_at + 0.010)
    assert not flight.lost(3, base=64, last_shown=90, now=2.040), "lapped by 30 ms, and not shown"
    for _ in range(3):
        rtt.on_sample(0.040, 2.041)
    assert not flight.lost(3, base=0, last_shown=63, now=2.042), "others take as long as that now"
    for packet in packets[31:]:
        proof.on_answer(0, packet.sent_at, True, packet.sent_at + 0.040)
    for _ in range(100):
        rtt.on_sample(0.010, 2.15)
    assert [packet.psn for packet, _ in flight.lost(3, base=0, last_shown=0, now=2.150)] == [0]
