"""The benches of the endpoint measure what they say: small runs, no assertion about speed."""

from __future__ import annotations

import os
import time

import pytest

from tools.bench import af_packet, endpoint
from tools.bench.mrc import _compare, equal, floor_us, middle, new_file_us, packets_per_s, sha256_us, wakeups

root = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]


def test_packets_per_s():
    assert packets_per_s(25.0) == 40_000
    assert packets_per_s(0.0) is None


@pytest.mark.parametrize(("virtual_us", "met"), [(12.0, True), (14.0, False)])
def test_compare__medians_of_the_switches_by_kind_of_link(virtual_us, met):
    def round_of(wires, us):
        return {"wires": wires, "cpu_us_per_packet": {"switches": us}, "goodput_bps": 1e8}

    rounds = [round_of("veth", us) for us in (26.0, 90.0, 20.0)] + [
        round_of("virtual", us) for us in (virtual_us, 1.0, 90.0)
    ]
    comparison = _compare(rounds)
    assert comparison["share"] == round(virtual_us / 26.0, 3) and comparison["met"] is met
    assert comparison["switches_us"] == {"veth": [26.0, 90.0, 20.0], "virtual": [virtual_us, 1.0, 90.0]}


def test_sha256_us__grows_with_the_size():
    assert sha256_us(4096) > 0


def test_wakeups__of_all_threads_counts_each_sleep():
    count_before = wakeups(os.getpid())
    for _ in range(10):
        time.sleep(0.001)
    assert wakeups(os.getpid()) >= count_before + 10


def test_data_frame_bytes__as_the_engine_sends_them():
    assert af_packet.data_frame_bytes(4096) == 4096 + 142


class TestOnACable:
    pytestmark = root

    @pytest.mark.parametrize("wires", endpoint.WIRES)
    def test_endpoint__both_sides_count_the_same_transfer(self, wires):
        sides = endpoint.measure(2000, 1024, wires)
        assert set(sides) == {"requestor", "responder"}
        for side in sides.values():
            # The timer of a packet may expire while a busy machine keeps its receiver waiting; a cable loses none.
            assert side["packets"] >= 2000 and side["retransmitted"] <= side["losses"].pop("timeout")
            assert set(side["losses"].values()) == {0}
            assert 0 < side["sacks_per_packet"] < 1
            assert side["user_us"] + side["system_us"] > 0

    def test_raw__one_by_one_both_ends_pay_for_a_wake_up(self):
        assert all(us > 0 for us in af_packet.measure(1024, 256, 0.0002).values())

    def test_raw__every_frame_arrives(self):
        assert all(us >= 0 for us in af_packet.measure(200, 2048).values())


def test_new_file__leaves_nothing_behind(tmp_path):
    assert new_file_us(tmp_path / "alone", 3 * 4096 + 5, 4096) >= 0
    assert list(tmp_path.iterdir()) == []


def test_floor__the_file_counts_at_the_responder_alone():
    result = {"raw": {"requestor_us": 7.0, "responder_us": 4.0}, "file_us_per_packet": 2.5}
    assert floor_us(result) == {"requestor": 7.0, "responder": 6.5}


def test_middle__of_the_transfers_without_hashes_and_one_that_differs_is_told():
    def transfer(us, equal=True, sha256_equal=None):
        return {
            "cpu_us_per_packet": {"requestor": us},
            "cpu_us_per_packet_total": us,
            "bytes_equal": equal,
            "goodput_bps": 1e9,
            "sha256_equal": sha256_equal,
        }

    summary = middle(transfer(20.0, sha256_equal=True), [transfer(9.0), transfer(7.0), transfer(30.0, equal=False)])
    assert summary["cpu_us_per_packet"] == {"requestor": 9.0} and not summary["bytes_equal"]
    assert summary["transfers"] == [{"requestor": us} for us in (9.0, 7.0, 30.0)]
    assert summary["with_sha256"] == {
        "cpu_us_per_packet": {"requestor": 20.0},
        "goodput_bps": 1e9,
        "sha256_equal": True,
    }
    assert "sha256_equal" not in summary and middle(transfer(1.0), [transfer(2.0)])["bytes_equal"]


def test_equal__every_byte_and_the_length(tmp_path):
    data = os.urandom((1 << 20) + 5)
    for name, content in {"a": data, "b": data, "short": data[:-1], "other": data[:-1] + bytes([data[-1] ^ 1])}.items():
        (tmp_path / name).write_bytes(content)
    assert equal(tmp_path / "a", tmp_path / "b")
    assert not equal(tmp_path / "a", tmp_path / "short") and not equal(tmp_path / "short", tmp_path / "a")
    assert not equal(tmp_path / "a", tmp_path / "other")
