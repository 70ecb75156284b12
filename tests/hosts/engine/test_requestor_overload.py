"""Hosts without CPU answer late.

No path is blamed, and what is sent twice stays bounded (mrc-protocol §5.11).
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from mrc_testbed.hosts.engine.events import EvChanged, LossCause, PacketLost, QpError
from mrc_testbed.hosts.engine.wire.packets import Packet
from tests.hosts.engine.engine_pair import MTU, Pair


def busy_pair(seed: int, **config: object) -> Pair:
    return Pair(
        planes=4, uplinks=4, seed=seed, config={"cwnd_bytes": 20_000, **config}, per_packet_s=0.0005, region=1 << 18
    )


def hold_back(pair: Pair, spans: list[tuple[float, float]], source: str) -> None:
    """Hold the packets of `source` within a span, and deliver them at its end, in order.

    This is a peer without CPU, or a source without it.
    """
    held_count = 0

    def decide(sender: str, packet: Packet) -> list[float] | None:
        nonlocal held_count
        for start, end in spans:
            if sender == source and start <= pair.now < end:
                held_count += 1
                return [end - pair.now + held_count * 1e-9]
        return None

    pair.filter = decide


def sent_twice(pair: Pair) -> Counter[int]:
    return Counter(line.packet.psn for line in pair.retransmissions())


@pytest.mark.parametrize("source", ["a", "b"])
@pytest.mark.parametrize("stall_s", [0.03, 0.06, 0.12, 0.25])
@pytest.mark.parametrize("seed", [1, 2])
def test_stall__blames_no_ev_and_each_packet_is_repeated_a_few_times(source: str, stall_s: float, seed: int) -> None:
    pair = busy_pair(seed)
    hold_back(pair, [(0.030, 0.030 + stall_s)], source)
    data = pair.bytes(200_000)
    pair.write(data)
    pair.run_until_quiet()
    pair.run(0.5)
    assert pair.memory[: len(data)] == data and pair.completions() == [(1, "SUCCESS")]
    assert pair.events_of(EvChanged) == [] and pair.events_of(QpError) == []
    repeats = sent_twice(pair)
    window = 20_000 // MTU
    rounds = 4  # doubling from 33 ms: 250 ms hold no more
    assert max(repeats.values(), default=0) <= rounds
    assert sum(repeats.values()) <= rounds * window


def test_stalls__again_and_again_are_learned() -> None:
    """The true round trips of late answers go into the timer: the tenth stall costs less than the first."""
    spans = [(0.05 + 0.15 * n, 0.05 + 0.15 * n + 0.06) for n in range(12)]
    pair = Pair(planes=4, uplinks=4, config={"cwnd_bytes": 20_000, "timeout": 14}, per_packet_s=0.004, region=1 << 19)
    hold_back(pair, spans, "b")
    pair.write(pair.bytes(1800 * MTU))
    pair.run_until_quiet()
    assert pair.events_of(EvChanged) == []
    by_stall = Counter(int((line.time - 0.05) / 0.15) for line in pair.retransmissions())
    assert by_stall[0] > 0 and pair.a.qp.counters.spurious > 0
    assert sum(by_stall[n] for n in range(6, 12)) < sum(by_stall[n] for n in range(6)) / 2


def test_one_slow_plane__is_accused_once_at_most() -> None:
    """One port is served 30 ms late: a whole window overtakes its packets (rule b).

    Probes find the path alive and learn its round trip, and from then on its packets get the time they need.
    """
    pair = busy_pair(3)
    for ev, plane in pair.evs:
        pair.path("a", ev).delay_s = 0.035 if plane == 2 else 0.005
    data = pair.bytes(200_000)
    pair.write(data)
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    pair.run(2.0)
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}
    first_counts = len(pair.events_of(EvChanged)), len(pair.retransmissions())
    for _ in range(3):
        pair.write(data)
        pair.run_until_quiet()
    assert (len(pair.events_of(EvChanged)), len(pair.retransmissions())) == first_counts


@pytest.mark.parametrize("gap_s", [0.00002, 0.0003])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_stall_of_all_paths__shorter_than_the_usual_delay_blames_none(seed: int, gap_s: float) -> None:
    """Switches wake up and read port after port.

    One SACK answers a batch whose newest packet alone was in time.
    """
    pair = Pair(
        planes=4,
        uplinks=2,
        seed=seed,
        delay_s=0.0005,
        config={"cwnd_bytes": 20_000, "sack_threshold_bytes": 4096},
        per_packet_s=0.0005,
        region=1 << 18,
    )
    data = pair.bytes(200_000)
    pair.write(data)
    pair.run(0.030)
    evs = [ev for ev, _ in pair.evs]
    Random(seed).shuffle(evs)
    for rank, ev in enumerate(evs):
        pair.path("a", ev).free_at = 0.034 + rank * gap_s
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    assert pair.events_of(EvChanged) == [] and pair.events_of(PacketLost) == []


@pytest.mark.parametrize("seed", [108, 485, 552, 1201, 1281])
def test_stall_of_all_paths__longer_than_the_timer_blames_none(seed: int) -> None:
    """A paced sender waits for switches that wake up one path after the other.

    Each packet leaves a few times in the stall, so that answers have round trips from a millisecond to the whole stall.
    """
    rng = Random(seed)
    config = {"cwnd_bytes": 14_000, "timeout": 14, "sack_threshold_bytes": rng.choice([512, 1024])}
    pair = Pair(planes=4, uplinks=2, seed=seed, delay_s=0.0006, config=config, region=1 << 18)
    pair.per_packet_s = rng.choice([0, 0.0003])
    data, pace_s = pair.bytes(12 * MTU), 0.0098
    stall_s, gap_s = rng.uniform(0.05, 0.13), rng.choice([0.00002, 0.0001, 0.0003, 0.001])
    for _ in range(20):
        pair.write(data)
        pair.run(pace_s)
    pair.run(rng.uniform(0, pace_s))
    evs = [ev for ev, _ in pair.evs]
    rng.shuffle(evs)
    for rank, ev in enumerate(evs):
        pair.path("a", ev).free_at = pair.now + stall_s + rank * gap_s
    for _ in range(25):
        pair.write(data)
        pair.run(pace_s)
    pair.run_until_quiet()
    assert pair.events_of(EvChanged) == []
    causes = {event.cause for event in pair.events_of(PacketLost)}
    assert causes == {LossCause.TIMEOUT}, "its timer alone takes for lost what waits in a stall"


@pytest.mark.parametrize("seed", range(12))
def test_dead_path__is_withdrawn_when_one_sack_answers_many_copies(seed: int) -> None:
    """Timers expire in a stall, and later copies arrive in batches.

    The SACK of a batch names its newest packet, which may be none of those that the dead path lost.
    """
    rng = Random(seed)
    threshold = rng.choice([0, 4096, 16384])
    pair = Pair(seed=seed, config={"cwnd_bytes": 20_000, "sack_threshold_bytes": threshold, "timeout": 12})
    pair.per_packet_s = rng.choice([0.0001, 0.0005, 0.002])
    spans = [(start, start + rng.choice([0.01, 0.03, 0.06])) for start in (rng.uniform(0, 0.3) for _ in range(3))]
    hold_back(pair, spans, rng.choice("ab"))
    pair.path("a", 0).cut = True
    pair.write(pair.bytes(rng.choice([2_000, 10_000])))
    pair.run_until_quiet()
    pair.run(3.0)
    assert {row["ev"]: row["state"] for row in pair.a.qp.ev_states()} == {
        ev: "good" if ev else "assumed_bad" for ev, _ in pair.evs
    }


@pytest.mark.parametrize("seed", [144, 152, 365, 460, 498, 562, 566, 969, 1003, 1204])
def test_dead_path__is_withdrawn_soon_after_long_stalls(seed: int) -> None:
    """Stalls of up to eight timers stretch all round trips, expire all packets and bring late SACKs.

    What they leave behind must not hide a dead path: not the estimates, not an old SACK, not the floor.
    """
    rng = Random(seed)
    timeout = rng.choice([12, 13, 14, 15])
    timer_s = 4.096e-6 * 2**timeout
    config = {
        "cwnd_bytes": rng.choice([4000, 20_000, 200_000]),
        "sack_threshold_bytes": rng.choice([0, 4096, 16384]),
        "timeout": timeout,
    }
    pair = Pair(seed=seed, delay_s=rng.choice([0.0005, 0.002, 0.005]), config=config, region=1 << 18)
    pair.per_packet_s = rng.choice([0.0001, 0.0005, 0.002])
    spans = [(start, start + rng.choice([1, 2, 4, 8]) * timer_s) for start in (rng.uniform(0, 0.5) for _ in range(3))]
    hold_back(pair, spans, rng.choice("ab"))
    if rng.random() < 0.5:  # the QP was in use when the path died
        pair.write(pair.bytes(20_000))
        pair.run(rng.uniform(0, 0.1))
    pair.path("a", 0).cut = True
    pair.write(pair.bytes(rng.choice([10_000, 40_000])))
    pair.run_until_quiet()
    pair.filter = None
    pair.run(5.0)  # the stalls count for nothing, and the estimate of what is ordinary has to come down from them
    assert {row["ev"]: row["state"] for row in pair.a.qp.ev_states()} == {
        ev: "good" if ev else "assumed_bad" for ev, _ in pair.evs
    }
