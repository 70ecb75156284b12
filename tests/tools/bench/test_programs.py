"""`mrc bench exec`: what it reads from perftest, and its TCP connection."""

from __future__ import annotations

from tools.bench import programs

LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 8       1000          214.85         2642.15      397.08             577.48
---------------------------------------------------------------------------------------
"""


BANDWIDTH = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      27109            0.00               3.55               0.006777
---------------------------------------------------------------------------------------
"""


def test_row__is_the_last_one_of_perftest():
    assert programs._row(LATENCY)[4] == 397.08
    assert programs._row(BANDWIDTH)[3:] == [3.55, 0.006777]


def test_tcp_latency__is_measured():
    assert 0 < programs._tcp_latency_us() < 1e6
