"""mrc-write-lat without network: what it prints, to the letter."""

from __future__ import annotations

from mrc_testbed.hosts.tools import write_lat
from mrc_testbed.hosts.traffic.statistics import latency_summary
from tests.hosts.tools.tool_results import START_ANSWER, rule


def test_write_lat__golden():
    times = latency_summary([300e-6, 400e-6, 500e-6])
    assert write_lat.header(START_ANSWER).splitlines()[1:] == [
        "MRC write latency, posting to completion, in microseconds: h0 to h2",
        " Transport : mrc                  Path MTU  : 4096 bytes",
        " QPN local : 0x000003             QPN remote: 0x001234",
        rule(write_lat),
        " #bytes   #iterations t_min      t_max      t_typical  t_avg      t_stdev    99%        99.9%",
    ]
    assert write_lat.row({"bytes": 2, "writes": 3, "lost": 1, **times}) == (
        " 2        3           300.00     500.00     400.00     400.00     81.65      500.00     500.00"
        "\n          1 packets lost"
    )
