"""`mrc bench exec`: what it reads from perftest, and its TCP connection."""

from __future__ import annotations

from tools.bench import programs

LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 8       1000          214.85         2642.15      397.08             577.48
---------------------------------------------------------------------------------------
"""


def test_row__is_the_last_one_of_perftest():
    assert programs._row(LATENCY)[4] == 397.08


def test_tcp_latency__is_measured():
    assert 0 < programs._tcp_latency_us() < 1e6
