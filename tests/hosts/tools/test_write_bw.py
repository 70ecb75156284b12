"""mrc-write-bw without network: what it prints, to the letter."""

from __future__ import annotations

import json

from mrc_testbed.hosts.tools import write_bw
from tests.hosts.tools.tool_results import RESULT, START_ANSWER, rule


def test_write_bw__golden(capsys):
    output = write_bw.Output(as_json=False)
    output.begin(START_ANSWER)
    interval = {"from_s": 0.0, "to_s": 1.0, "writes": 760, "bw_bps": 398.4e6, "received_bps": 0.0, "retransmitted": 1}
    output.event({"event": "interval", **interval, "plane_bps": [199e6, 200e6]})
    output.event(dict(RESULT))
    output.end({"state": "done", "error": None})
    assert capsys.readouterr().out.splitlines() == [
        rule(write_bw),
        "MRC write bandwidth: h0 to h2",
        " Transport : mrc                  Path MTU  : 4096 bytes",
        " QPs       : 1                    Paths     : 4 EVs, 2 planes",
        " TX depth  : 2 to 128             Direction : one way",
        " QPN local : 0x000003             QPN remote: 0x001234",
        rule(write_bw),
        " [  0.00 -  1.00 s]     398.40 Mb/s   retrans 1   planes 199.0 200.0",
        " #bytes    #iterations BW peak[Mb/s] BW average[Mb/s] MsgRate[Kpps] retrans  trimmed  marked",
        " 65536     1000        412.50        398.11           0.759         2        5        7",
        "           planes[Mb/s] 199.1 199.0",
        rule(write_bw),
    ]


def test_write_bw__both_directions_are_added_up(capsys):
    output = write_bw.Output(as_json=False)
    output.begin({**START_ANSWER, "bidirectional": True})
    output.event({**RESULT, "reverse": {**RESULT, "bw_average_bps": 100e6, "plane_bps": [1e6, 2e6]}})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        " 65536     2000        825.00        498.11           1.519         4        10       14",
        "           planes[Mb/s] 200.1 201.0",
        "           h0 to h2: 398.11 Mb/s, h2 to h0: 100.00 Mb/s",
    ]


def test_write_bw__nothing_measured(capsys):
    empty_counts = {"writes": 0, "bw_peak_bps": None, "bw_average_bps": None, "msg_rate_pps": None, "plane_bps": []}
    assert write_bw.row({**RESULT, **empty_counts}).split() == [
        *("65536", "0", "-", "-", "-", "2", "5", "7"),
        "planes[Mb/s]",
        "-",
    ]


def test_write_bw__json(capsys):
    output = write_bw.Output(as_json=True)
    output.begin(START_ANSWER)
    output.event(dict(RESULT))
    output.end({"state": "done", "error": None})
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["state"], document["host"]) == ("mrc-write-bw/1", "done", "h0")
    assert document["results"] == [{key: value for key, value in RESULT.items() if key != "event"}]
