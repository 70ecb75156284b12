"""spray.p4 in memory: longest prefix down, a hash over the EV's fields up."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.switch.compiled_programs import Bench, compile_named

NO_ROUTE, NO_UPLINK, HOP_LIMIT = 6, 7, 3
ETHERNET = bytes.fromhex("020000000002 020000000001 86dd")
LOCAL_ADDRESS, REMOTE_ADDRESS = 0xFD000000000000000000000000000001, 0xFD000000000100000000000000000001
UPLINKS = [3, 4, 5, 6]


def frame(ev: int, destination: int = REMOTE_ADDRESS, hop_limit: int = 64) -> bytes:
    """Return a frame in EV layout L (§1.4): low half in the source port, high half in the flow label."""
    head = (6 << 28 | ev >> 16).to_bytes(4, "big") + bytes.fromhex("001811") + bytes([hop_limit])
    udp = (ev & 0xFFFF).to_bytes(2, "big") + bytes.fromhex("12b700180000")
    return ETHERNET + head + LOCAL_ADDRESS.to_bytes(16, "big") + destination.to_bytes(16, "big") + udp + bytes(16)


def switch(seed: int = 0) -> Bench:
    bench = Bench(compile_named("spray"))
    bench.add("route", ((LOCAL_ADDRESS, 128),), "forward", port=1)
    bench.add("route", ((0xFD000000 << 96, 32),), "spray", uplink_group=1)
    bench.add("uplinks", (1,), bench.group("uplink_selector", 1, UPLINKS, "use_uplink"))
    if seed:
        bench.set_default("hash_seed", "set_hash_seed", seed=seed)
    return bench


def choices(bench: Bench, evs: range) -> list[int]:
    return [bench.send(1, frame(ev))[0][0] for ev in evs]


def test_down__longest_prefix_wins():
    bench = switch()
    assert bench.send(3, frame(5, LOCAL_ADDRESS)) == [(1, frame(5, LOCAL_ADDRESS, 63))]


def test_up__evs_spread_over_all_uplinks_and_each_keeps_its_own():
    bench = switch()
    first = choices(bench, range(1000, 1400))
    assert first == choices(bench, range(1000, 1400))
    counts = Counter(first)
    assert sorted(counts) == UPLINKS and min(counts.values()) > 60


@pytest.mark.parametrize("shift", [0, 16])
def test_up__both_halves_of_the_ev_count(shift):
    """§8.4: with and without the flow label in the hash."""
    bench = switch()
    assert len({bench.send(1, frame(n << shift))[0][0] for n in range(64)}) == len(UPLINKS)


def test_seed__flows_of_one_uplink_spread_again_elsewhere():
    """Two switches with different seeds do not polarise: what one sends one way, the other spreads."""
    first_switch, second_switch = switch(seed=1), switch(seed=0x5EED)
    evs = range(0, 2000)
    same_way = [ev for ev, port in zip(evs, choices(first_switch, evs), strict=False) if port == UPLINKS[0]]
    counts = Counter(second_switch.send(1, frame(ev))[0][0] for ev in same_way)
    assert sorted(counts) == UPLINKS and min(counts.values()) > len(same_way) / 8


def test_watch_port__a_dead_uplink_leaves_the_hash():
    bench = switch()
    bench.device.set_port_up(4, False)
    assert set(choices(bench, range(200))) == {3, 5, 6}
    bench.device.set_port_up(4, True)
    assert set(choices(bench, range(200))) == set(UPLINKS)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(frame(1, 0xFE << 120), NO_ROUTE), (frame(1, hop_limit=1), HOP_LIMIT)],
)
def test_drop__counted_by_reason(sent, reason):
    bench = switch()
    assert bench.send(2, sent) == []
    assert bench.count("drops", reason << 9 | 2) == 1


def test_unknown_group__dropped_as_no_uplink():
    bench = switch()
    bench.add("route", ((0xFC << 120, 8),), "spray", uplink_group=9)
    assert bench.send(2, frame(1, 0xFC << 120)) == []
    assert bench.count("drops", NO_UPLINK << 9 | 2) == 1


def test_not_udp__hashed_on_addresses_alone():
    bench = switch()
    icmp = frame(7)[:20] + b"\x3a" + frame(7)[21:]
    assert len({bench.send(1, icmp)[0][0] for _ in range(8)}) == 1
