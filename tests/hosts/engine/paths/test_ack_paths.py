"""The way back: control packets over EVs that are proven to reach the peer (mrc-protocol §6.8)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.events import EvChanged, EvProbeResult
from mrc_testbed.hosts.engine.wire.packets import EndpointOp, EndpointRequest, EndpointResponse, Sack
from tests.hosts.engine.engine_pair import ACKS, MTU, Pair


def check_write(pair: Pair, data: bytes) -> None:
    assert pair.memory[: len(data)] == data
    assert pair.completions()[-1][1] == "SUCCESS"


def probes(pair: Pair, side: str = "b") -> list[float]:
    """Return when EV probes left."""
    requests = pair.sent(EndpointRequest, side)
    return [line.time for line in requests if line.packet.op == EndpointOp.EV_PROBE]


def paced_pair(**keys: object) -> Pair:
    """Return a transfer that lasts long enough: 300 packets at 1 ms a packet and plane."""
    return Pair(per_packet_s=0.001, config={"cwnd_bytes": 8000}, region=1 << 17, **keys)


def test_pure_responder__probes_once_a_round_trip_while_data_comes_in() -> None:
    pair = paced_pair(planes=2, uplinks=4)
    pair.write(pair.bytes(300 * MTU))
    pair.run_until_quiet()
    duration_s = pair.now
    assert 0.5 * duration_s / 0.010 <= len(probes(pair)) <= duration_s / 0.010
    assert len(probes(pair, "a")) == 0, "a's own data proves its EVs"
    pair.run(5.0)
    assert len(probes(pair)) <= duration_s / 0.010 + 1, "none when it is quiet"
    assert pair.events_of(EvProbeResult, "b") == [], "they are the engine's own affair"


def test_reverse_probe_s__limits_them() -> None:
    pair = Pair(per_packet_s=0.001, config={"cwnd_bytes": 8000, "reverse_probe_s": 0.1}, region=1 << 17)
    pair.write(pair.bytes(300 * MTU))
    pair.run_until_quiet()
    assert len(probes(pair)) <= pair.now / 0.1


def test_answers__go_out_on_the_triggers_plane_over_proven_evs() -> None:
    pair = paced_pair(planes=4, uplinks=4)
    pair.write(pair.bytes(300 * MTU))
    pair.run_until_quiet()
    plane_counts = Counter(line.packet.plane for line in pair.sent(Sack, "b"))
    assert set(plane_counts) == {0, 1, 2, 3} and max(plane_counts.values()) < 3 * min(plane_counts.values())
    proven = [slot.ev for slot in pair.b.endpoint._peers.get("a").ack_paths._slots]
    assert [ev.plane for ev in proven if ev is not None] == [0, 1, 2, 3]


def test_both_ways__data_sacks_prove_the_reverse_evs_without_probes() -> None:
    pair = paced_pair(planes=2, uplinks=2)
    reverse_memory = bytearray(300 * MTU)
    region = pair.a.endpoint.register(reverse_memory)
    pair.write(pair.bytes(300 * MTU))
    pair.b.qp.post_write(pair.bytes(300 * MTU), region.va, region.rkey, now=0.0)
    pair.run_until_quiet()
    assert len(probes(pair)) + len(probes(pair, "a")) <= 2


@pytest.mark.parametrize(
    "planes, dead_evs", [(1, (0x000, 0x001)), (2, (0x000, 0x001, 0x101)), (1, (0x001, 0x002, 0x003))]
)
@pytest.mark.parametrize("seed", range(4))
def test_one_way_failure__of_reverse_paths_only(planes: int, dead_evs: tuple[int, ...], seed: int) -> None:
    """Forward everything works; backwards most EVs are dead from the start.

    The transfer finds the ones that work.
    """
    pair = Pair(planes=planes, uplinks=4, seed=seed, config={"cwnd_bytes": 8000}, per_packet_s=0.001, framed=True)
    for ev in dead_evs:
        pair.path("b", ev).cut = True
    data = pair.bytes(200 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.now < 1.5
    assert pair.events_of(EvChanged) == [], "forwards every EV is good, and a knows"
    answers = [line for line in pair.log if line.source == "b" and isinstance(line.packet, ACKS)]
    late_answers = [line for line in answers if line.time > pair.now / 2]
    lost = [line for line in late_answers if line.packet.ev in dead_evs]
    assert len(lost) <= len(late_answers) / 4


@pytest.mark.parametrize("seed", range(3))
def test_one_way_failure__in_the_middle_of_a_transfer(seed: int) -> None:
    pair = Pair(planes=2, uplinks=2, seed=seed, config={"cwnd_bytes": 8000}, per_packet_s=0.001, region=1 << 17)
    data = pair.bytes(400 * MTU)
    pair.write(data)
    pair.run(0.05)
    for ev in (0x000, 0x001, 0x100):
        pair.path("b", ev).cut = True
    cut_at = pair.now
    pair.run_until_quiet()
    check_write(pair, data)
    assert pair.now < cut_at + 1.0
    late_evs = [line.packet.ev for line in pair.sent(Sack, "b") if line.time > cut_at + 0.15]
    assert late_evs.count(0x101) > 0.6 * len(late_evs), "the rest tries the other ways, now and then"


def test_one_way_failure__of_a_whole_plane_leaves_it_to_the_others() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 8000}, per_packet_s=0.001, region=1 << 17)
    for ev in (0x000, 0x001):
        pair.path("b", ev).cut = True
    data = pair.bytes(400 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    check_write(pair, data)
    late_sacks = [line for line in pair.sent(Sack, "b") if line.time > 0.15]
    assert {line.packet.plane for line in late_sacks} == {1}
    sent = pair.a.qp.counters.plane_packets
    assert abs(sent[0] - sent[1]) < 0.05 * sum(sent), "forwards, plane 0 is as good as plane 1"
    assert pair.retransmissions() == []


def test_retransmission_of_what_is_here__is_answered_by_another_way() -> None:
    pair = Pair(psn=0, planes=2, uplinks=4)
    pair.write(b"x")
    pair.filter = lambda s, p: [] if isinstance(p, ACKS) and pair.now < 0.010 else None
    pair.run_until_quiet()
    first, *later = [line for line in pair.sent(Sack, "b")]
    assert later and any((line.packet.plane, line.packet.ev) != (first.packet.plane, first.packet.ev) for line in later)


def test_own_ports__come_before_the_triggers_plane() -> None:
    pair = Pair(planes=2, uplinks=2, config={"cwnd_bytes": 8000}, per_packet_s=0.001)
    pair.write(pair.bytes(100 * MTU))
    pair.run(0.02)
    pair.port("b", 0, is_up=False)
    down_time = pair.now
    pair.run_until_quiet()
    assert {line.packet.plane for line in pair.log if line.source == "b" and line.time > down_time} == {1}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 1 << 20), st.booleans())
def test_any_one_way_failures__as_long_as_one_path_works_each_way(
    planes: int, uplinks: int, seed: int, at_once: bool
) -> None:
    """Each direction of each path is dead or alive by chance.

    Which one works forwards may be dead backwards.
    """
    pair = Pair(
        planes=planes, uplinks=uplinks, seed=seed, config={"cwnd_bytes": 8000, "exp_cnt": 25, "timeout_ceiling_s": 0.3}
    )
    rng = Random(seed)
    data = pair.bytes(150 * MTU)
    pair.write(data)
    if not at_once:
        pair.run(0.02)
    for side in ("a", "b"):
        working_ev = rng.choice(pair.evs)[0]
        for ev, _ in pair.evs:
            pair.path(side, ev).cut = ev != working_ev and rng.random() < 0.5
    pair.run_until_quiet(limit_s=60.0)
    assert pair.memory[: len(data)] == data and pair.completions() == [(1, "SUCCESS")]


def test_no_qps_left__an_ev_probe_is_answered_over_the_ev_it_came_on() -> None:
    """A proof does not outlive the QPs that would renew it (found with mrc-ping).

    It did once, and answers left over a path that had been cut since.
    """
    pair = paced_pair(planes=1, uplinks=2)
    pair.write(pair.bytes(100 * MTU))
    pair.run_until_quiet()
    for side in (pair.a, pair.b):
        side.endpoint.destroy_qp(side.qp.qpn)
    for ev in (0x000, 0x001, 0x000):
        pair.a.endpoint.probe_ev("b", ev, 0, now=pair.now, timeout_s=1.0)
        pair.run(0.1)
    answers = [line.packet.ev for line in pair.sent(EndpointResponse, "b")][-3:]
    assert answers == [0x000, 0x001, 0x000]
