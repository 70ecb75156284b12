"""Pacing of files in chunks."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.traffic.file_transfer import CHUNK_BYTES, Pacer, chunk_for, growth


def test_pacer__spreads_chunks_over_time():
    pacer = Pacer(8000.0, 0.0)  # 1000 bytes a second
    times = []
    for _ in range(4):
        times.append(pacer.next_at())
        pacer.spend(500, times[-1])
    assert times == [0.0, 0.5, 1.0, 1.5]


def test_pacer__a_stall_is_made_good_in_part_only():
    pacer = Pacer(8000.0, 0.0)
    pacer.spend(10, 5.0)  # 5 s late: as if it had been due 50 ms ago
    assert pacer.next_at() == pytest.approx(5.0 - 0.05 + 0.01)


def test_pacer__without_a_rate_always_at_once():
    pacer = Pacer(None, 3.0)
    pacer.spend(1 << 30, 4.0)
    assert pacer.next_at() == 3.0


@pytest.mark.parametrize(
    ("rate", "pmtu", "chunk"),
    [(None, 4096, CHUNK_BYTES), (50e6, 4096, 15 * 4096), (1000, 1024, 1024), (1e12, 4096, CHUNK_BYTES)],
)
def test_chunk__ten_milliseconds_of_the_rate(rate, pmtu, chunk):
    assert chunk_for(rate, pmtu) == chunk


def test_growth__numbers_and_lists():
    counters = {"lost": 5, "plane_bytes": [3, 4], "state": "rts", "new": 2}
    assert growth({"lost": 2, "plane_bytes": [1, 4]}, counters) == {"lost": 3, "plane_bytes": [2, 0], "new": 2}
