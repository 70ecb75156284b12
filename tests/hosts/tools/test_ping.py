"""mrc-ping without network: what it prints, to the letter."""

from __future__ import annotations

from mrc_testbed.console.terminal import Style
from mrc_testbed.hosts.tools import ping
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=2)


def test_ping__golden():
    h0, h2 = PLAN.host("h0"), PLAN.host("h2")
    reports = ping.reports_for(PLAN, h0, h2, [(0x0000, 0), (0x0001, 0), (0x0100, 1), (0x0101, 1)])
    assert reports[0x0101].address == "fcbb:bb00:2100:1101:2101:3100::"
    for rtt_s in (0.001, 0.003, None, None):
        reports[0].count({"rtt_s": rtt_s, "out": rtt_s is not None, "port_up": True})
    # Three kinds of loss: of the answer, of the probe, and with the own port down
    for _ in range(4):
        reports[1].count({"rtt_s": None, "out": True, "port_up": True})
        reports[0x0100].count({"rtt_s": None, "out": False, "port_up": True})
        reports[0x0101].count({"rtt_s": None, "out": False, "port_up": False})
    assert ping.report(list(reports.values()), Style()).splitlines() == [
        "EV      path  outer address                    sent  out  back  loss  RTT min/avg/max ms    through",
        "0x0000  0/0   fcbb:bb00:2000:1000:2001:3000::     4    2     2   50%  1.000/2.000/3.000     p0-t1-0",
        "0x0001  0/1   fcbb:bb00:2000:1001:2001:3000::     4    4     0  100%  out ok, back lost     p0-t1-1",
        "0x0100  1/0   fcbb:bb00:2100:1100:2101:3100::     4    0     0  100%  out lost              p1-t1-0",
        "0x0101  1/1   fcbb:bb00:2100:1101:2101:3100::     4    0     0  100%  out lost (port down)  p1-t1-1",
        "4 paths, 2 lost out, 1 lost back; 16 probes sent, 2 came back, 87.5% lost",
    ]
    path_report = reports[0].to_json()
    assert (path_report["out_lost"], path_report["rtt_avg_ms"], path_report["path"][1]) == (False, 2.0, "p0-t0-0")
    path_report = reports[1].to_json()
    assert (path_report["out_lost"], path_report["back_lost"], path_report["out"], path_report["back"]) == (
        False,
        True,
        4,
        0,
    )
