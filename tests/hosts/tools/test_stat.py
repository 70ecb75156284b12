"""mrc-stat without network: what it prints, to the letter."""

from __future__ import annotations

from mrc_testbed.console.terminal import Style
from mrc_testbed.hosts.tools import common, stat
from mrc_testbed.topologies.plan import Plan
from tests.hosts.tools.tool_results import status

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=2)


def test_stat__without_agents_says_so(run_dir, capsys):
    assert stat.main([]) == common.USAGE_ERROR
    assert "no agent answers: h0: status: nobody listens on" in capsys.readouterr().err
    assert stat.main(["-c", "3"]) == common.USAGE_ERROR


def test_stat__golden_with_rates_from_the_second_look_on():
    first = stat.add_rates(stat.sample(status(10.0, 1000)), None)
    assert first["qps"][0]["tx_bps"] is None and first["cpu_share"] is None
    second = stat.add_rates(stat.sample(status(12.0, 3000)), first)
    assert stat.text(second, evs=True, plan=PLAN, style=Style()).splitlines() == [
        "h0: fast NIC, up 12 s, CPU 25%, 40 MiB, 0 packets unclaimed",
        "  port     state  tx packets  rx packets  tx Mb/s  rx Mb/s  dropped tx/rx",
        "  h0-eth0  up           3000           7     8.80     0.00            0/2",
        "  h0-eth1  DOWN            0           0     0.00     0.00            0/0",
        "  QP        peer  state  posted  sent  retrans  lost  trimmed  marked  tx Mb/s  rx Mb/s  EVs",
        "  0x000003  h2    rts         5  3000        1     0        0       0     8.00     0.00  1 good",
        "  EV      plane  state  role    sent  lost  marked  trimmed       RTT  through",
        "  0x0000  0      good   active  3000     0       0        0  1.500 ms  p0-t1-0",
    ]


def test_stat__says_when_the_machine_is_too_busy():
    host_status = status(10.0, 1000)
    host_status["ports"]["0"]["pacing"] = {"rate_bps": 1e7, "frames": 1000, "late": 30, "late_max_s": 0.0123}
    sample = stat.add_rates(stat.sample(host_status), None)
    lines = stat.text(sample, evs=False, plan=PLAN, style=Style()).splitlines()
    assert lines[4] == ("  machine too busy for these rates: 30 of 1000 frames left 2 ms late or more, up to 12 ms")
    host_status["ports"]["0"]["pacing"]["late"] = 10
    assert not any(
        "busy" in line
        for line in stat.text(
            stat.add_rates(stat.sample(host_status), None), evs=False, plan=PLAN, style=Style()
        ).splitlines()
    )


def test_stat__a_qp_that_is_new_and_a_restarted_agent_have_no_negative_rates():
    first = stat.add_rates(stat.sample({**status(10.0, 1000), "qps": []}), None)
    second = stat.add_rates(stat.sample(status(11.0, 10)), first)
    assert second["qps"][0]["tx_bps"] == 80_000 and second["ports"]["0"]["tx_bps"] == 0.0
