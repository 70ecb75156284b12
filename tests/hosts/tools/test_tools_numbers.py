"""The tools in the hosts without network: options, statistics, and what is printed, to the letter."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.console.terminal import Style
from mrc_testbed.hosts.tools import common, perftest_json, ping, stat, write_bw, write_lat
from mrc_testbed.hosts.traffic.statistics import LATENCY_KEYS, PeakMeter, latency_summary, percentile
from mrc_testbed.ipc import rundir
from mrc_testbed.topologies.plan import Plan
from tests.refusals import may_raise

TOOLS = {"mrc-write-bw": write_bw, "mrc-write-lat": write_lat, "mrc-ping": ping, "mrc-stat": stat}
PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=2)

# ---- statistics ---------------------------------------------------------------------------------------------


def test_latency_summary__microseconds_by_perftests_names():
    samples = [n * 1e-6 for n in range(1000, 0, -1)]
    assert latency_summary(samples) == {
        "t_min_us": 1.0, "t_max_us": 1000.0, "t_typical_us": 500.0, "t_avg_us": 500.5, "t_stdev_us": 288.675,
        "p99_us": 990.0, "p99_9_us": 999.0,
    }  # fmt: skip
    assert latency_summary([]) == dict.fromkeys(LATENCY_KEYS)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentile__is_a_sample_that_enough_are_not_above(samples, share):
    ordered = sorted(samples)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(one <= found for one in ordered) >= share * len(ordered)


def test_peak__is_over_a_tenth_of_a_second_at_least():
    meter = PeakMeter(10.0)
    meter.add(10.001, 1_000_000)  # a burst of its own says nothing yet
    assert meter.peak_bps == 0.0
    for n in range(1, 11):
        meter.add(10.0 + n * 0.0501, 1000)
    assert meter.peak_bps == pytest.approx((1_000_000 + 2000) * 8 / 0.1002)


def test_peak__of_an_even_flow_is_its_rate():
    meter = PeakMeter(0.0)
    for n in range(1, 1000):
        meter.add(n * 0.01, 1250)
    assert meter.peak_bps == pytest.approx(1e6)


# ---- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "size"), [("2", 2), ("64K", 65536), ("8m", 8 << 20), ("1G", 1 << 30)])
def test_size__with_units(text, size):
    assert common.size_type(text) == size


@pytest.mark.parametrize("text", ["", "K", "0", "-1", "1.5M", "x", "64KB", "٣", "9999999G", "9" * 5000])
def test_size__anything_else_says_what_would_do(text):
    with pytest.raises(typer.BadParameter, match="give bytes, such as 2, 4096, 64K or 1M"):
        common.size_type(text)


@given(st.text(max_size=8))
def test_options__no_text_gives_a_traceback(text):
    for kind in (common.size_type, common.count_type, common.seconds_type):
        with may_raise(typer.BadParameter) as refused:
            assert kind(text) > 0
        assert all("give " in str(error) for error in refused)


def test_all_sizes__large_ones_are_written_fewer_times():
    options = common.TestOptions("h2", 65536, True, None, None, 8, None, "mrc")
    fields = options.fields()
    assert fields["sizes"][0] == 2 and fields["sizes"][-1] == 8 << 20
    assert fields["iterations"][0] == 1000 and fields["iterations"][-1] == 8
    assert replace(options, iterations=7).fields()["iterations"] == [7] * len(fields["sizes"])
    assert "iterations" not in replace(options, duration_s=2.0).fields()


FULL = "--from h0 h2 -s 4K -D 1.5 --warm-up 0 -m 2048 --rocev2 -q 2 -t 9 -b -i 0.5 --json"
FIELDS = {
    "peer": "h2", "sizes": [4096], "warm_up": 0, "transport": "rocev2", "duration_s": 1.5, "pmtu": 2048, "qps": 2,
    "bidirectional": True, "depth": 9, "interval_s": 0.5,
}  # fmt: skip
PLAIN = {"peer": "h2", "sizes": [65536], "warm_up": 8, "transport": "mrc", "iterations": [1000], "qps": 1}


@pytest.mark.parametrize(("argv", "fields"), [(FULL, FIELDS), ("h2 --host h0", {**PLAIN, "bidirectional": False})])
def test_options__reach_the_agent(run_dir, monkeypatch, argv, fields):
    asked = []

    def conduct(place, op, fields, *_):
        asked.append((place.host.name, op, fields))
        return {"state": "done", "error": None}

    monkeypatch.setattr(common, "conduct", conduct)
    assert write_bw.main(argv.split()) == common.OK
    assert asked == [("h0", "write_bw", fields)]


@pytest.mark.parametrize("argv", [[], ["h2", "h1"], ["h2", "--nonsense"], ["h2", "-n", "0"], ["h2", "-s", "64KB"]])
def test_options__a_wrong_command_line_is_one_line(argv, capsys):
    assert write_lat.main(argv) == common.WRONG
    said = capsys.readouterr().err
    assert said.startswith("mrc-write-lat: error: ") and "`mrc-write-lat --help`" in said and said.count("\n") == 1


@pytest.mark.parametrize("tool", TOOLS)
def test_help__has_examples(tool, capsys):
    for option in ("--help", "-h"):
        assert TOOLS[tool].main([option]) == common.OK
        said = capsys.readouterr().out
        assert f"Usage: {tool} [OPTIONS]" in said and f"{tool} " in said.partition("Examples:")[2]


# ---- where --------------------------------------------------------------------------------------------------


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """A run folder with a plan and no process behind it."""
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_json()))
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    monkeypatch.delenv("MRC_HOST", raising=False)
    return tmp_path


def test_run_dir__is_that_of_the_fabric(monkeypatch):
    monkeypatch.delenv("MRC_RUN_DIR", raising=False)
    assert str(common.run_dir_of(None)) == rundir.DEFAULT_PATH
    monkeypatch.setenv("MRC_RUN_DIR", "/somewhere")
    assert str(common.run_dir_of(None)) == "/somewhere"
    assert str(common.run_dir_of("/else")) == "/else"


@pytest.mark.parametrize("tool", TOOLS)
def test_errors__no_fabric_is_one_line_with_the_cure(tool, tmp_path, capsys):
    peer = [] if tool == "mrc-stat" else ["h2"]
    assert TOOLS[tool].main([*peer, "--run-dir", str(tmp_path)]) == common.WRONG
    said = capsys.readouterr().err
    assert said == (
        f"{tool}: error: no fabric is running in {tmp_path} (no plan.json there): start one with `mrc up`, "
        "or name its run folder with MRC_RUN_DIR or --run-dir\n"
    )


@pytest.mark.parametrize(
    ("argv", "host", "said"),
    [
        (["h2"], None, "from which host? Inside one it is known"),
        (["h2"], "h9", "no host 'h9' (has: h0, h1, h2, h3)"),
        (["h9"], "h0", "no host 'h9' (has: h0, h1, h2, h3)"),
        (["h0"], "h0", "h0 is this host: give another one as peer (has: h1, h2, h3)"),
        (["h2", "--from", "h2"], "h0", "h2 is this host"),
        (["h2"], "h0", "nobody listens on"),
        (["h2", "-a", "--out_json"], "h0", "-a and --out_json exclude each other: its shape has one size; give -s"),
        (["h2", "-n", "5", "-D", "5"], "h0", "-n and -D exclude each other"),
        (["h2", "-i", "0.001"], "h0", "-i 0.001: at least 0.05 s"),
    ],
)
def test_errors__name_cause_and_cure(run_dir, monkeypatch, capsys, argv, host, said):
    if host is not None:
        monkeypatch.setenv("MRC_HOST", host)
    assert write_bw.main(argv) == common.WRONG
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_errors__a_plan_that_is_none(run_dir, capsys):
    (run_dir / "plan.json").write_text("[")
    assert stat.main([]) == common.WRONG
    assert "plan.json: " in capsys.readouterr().err


def test_stat__without_agents_says_so(run_dir, capsys):
    assert stat.main([]) == common.WRONG
    assert "no agent answers: h0: status: nobody listens on" in capsys.readouterr().err
    assert stat.main(["-c", "3"]) == common.WRONG


# ---- what is printed ----------------------------------------------------------------------------------------

BEGUN = {
    "work": 1, "host": "h0", "peer": "h2", "transport": "mrc", "pmtu_bytes": 4096, "planes": 2, "evs": 4,
    "bidirectional": False, "depth": [128, 2], "qps": [{"qpn": 3, "remote_qpn": 0x1234}],
}  # fmt: skip
RESULT = {
    "event": "result", "bytes": 65536, "writes": 1000, "bw_peak_bps": 412.5e6, "bw_average_bps": 398.114e6,
    "msg_rate_pps": 759.34, "retransmitted": 2, "lost": 1, "trimmed": 5, "marked": 7, "plane_bps": [199.1e6, 199.04e6],
}  # fmt: skip


def rule(module) -> str:
    return "-" * len(module.RULE)


def test_write_bw__golden(capsys):
    output = write_bw.Output(as_json=False)
    output.begin(BEGUN)
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
    output.begin({**BEGUN, "bidirectional": True})
    output.event({**RESULT, "reverse": {**RESULT, "bw_average_bps": 100e6, "plane_bps": [1e6, 2e6]}})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        " 65536     2000        825.00        498.11           1.519         4        10       14",
        "           planes[Mb/s] 200.1 201.0",
        "           h0 to h2: 398.11 Mb/s, h2 to h0: 100.00 Mb/s",
    ]


def test_write_bw__nothing_measured(capsys):
    nothing = {"writes": 0, "bw_peak_bps": None, "bw_average_bps": None, "msg_rate_pps": None, "plane_bps": []}
    assert write_bw.row({**RESULT, **nothing}).split() == [
        *("65536", "0", "-", "-", "-", "2", "5", "7"), "planes[Mb/s]", "-",
    ]  # fmt: skip


def test_write_bw__json(capsys):
    output = write_bw.Output(as_json=True)
    output.begin(BEGUN)
    output.event(dict(RESULT))
    output.end({"state": "done", "error": None})
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["state"], said["host"]) == ("mrc-write-bw/1", "done", "h0")
    assert said["results"] == [{key: value for key, value in RESULT.items() if key != "event"}]


def test_write_lat__golden():
    times = latency_summary([300e-6, 400e-6, 500e-6])
    assert write_lat.header(BEGUN).splitlines()[1:] == [
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


def test_ping__golden():
    h0, h2 = PLAN.host("h0"), PLAN.host("h2")
    reports = ping.reports_for(PLAN, h0, h2, [(0x0000, 0), (0x0001, 0), (0x0100, 1), (0x0101, 1)])
    assert reports[0x0101].address == "fcbb:bb00:2100:1101:2101:3100::"
    for rtt_s in (0.001, 0.003, None, None):
        reports[0].count({"rtt_s": rtt_s, "out": rtt_s is not None, "port_up": True})
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
    told = reports[0].to_json()
    assert (told["out_lost"], told["rtt_avg_ms"], told["path"][1]) == (False, 2.0, "p0-t0-0")
    told = reports[1].to_json()
    assert (told["out_lost"], told["back_lost"], told["out"], told["back"]) == (False, True, 4, 0)


def status(t: float, sent: int) -> dict:
    """What an agent answers to `status`, in the parts that are shown."""
    counters = {"sent": sent, "retransmitted": 1, "lost": 0, "timeouts": 0, "trimmed": 0, "bytes_sent": sent * 1000}
    evs = [{"ev": 0, "plane": 0, "state": "good", "active": True, "sent": sent, "lost": 0, "srtt_s": 0.0015}]
    qp = {
        "qpn": 3, "remote_qpn": 4, "peer": "h2", "state": "rts", "busy": False, "outstanding": 5, "error": None,
        "counters": {**counters, "bytes_received": 0}, "evs": evs,
    }  # fmt: skip
    port = {"interface": "h0-eth0", "up": True, "tx_packets": sent, "tx_bytes": sent * 1100, "rx_dropped": {"icrc": 2}}
    return {
        "host": "h0", "t": t, "nic": "fast", "up_s": t, "cpu_s": t / 4, "max_rss_kib": 40960, "unclaimed": 0,
        "ports": {"0": {**port, "rx_packets": 7, "rx_bytes": 700}, "1": {"interface": "h0-eth1", "up": False}},
        "qps": [qp],
    }  # fmt: skip


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
    said = status(10.0, 1000)
    said["ports"]["0"]["pacing"] = {"rate_bps": 1e7, "frames": 1000, "late": 30, "late_max_s": 0.0123}
    seen = stat.add_rates(stat.sample(said), None)
    lines = stat.text(seen, evs=False, plan=PLAN, style=Style()).splitlines()
    assert lines[4] == ("  machine too busy for these rates: 30 of 1000 frames left 2 ms late or more, up to 12 ms")
    said["ports"]["0"]["pacing"]["late"] = 10
    assert not any(
        "busy" in line
        for line in stat.text(stat.add_rates(stat.sample(said), None), evs=False, plan=PLAN, style=Style()).splitlines()
    )


def test_stat__a_qp_that_is_new_and_a_restarted_agent_have_no_negative_rates():
    first = stat.add_rates(stat.sample({**status(10.0, 1000), "qps": []}), None)
    second = stat.add_rates(stat.sample(status(11.0, 10)), first)
    assert second["qps"][0]["tx_bps"] == 80_000 and second["ports"]["0"]["tx_bps"] == 0.0


# ---- perftest's JSON ----------------------------------------------------------------------------------------

TEST_INFO = {
    "test": "RDMA_Write_BW_Test", "Device": "h0", "Number_of_qps": 1, "Transport_type": "MRC",
    "Connection_type": "MRC", "TX_depth": 128, "Mtu": 4096, "Link_type": "Ethernet",
}  # fmt: skip


def test_perftest_json__bandwidth_in_mebibytes():
    result = {**RESULT, "depth": 128, "bw_peak_bps": 16 * 2**20, "bw_average_bps": 8 * 2**20, "msg_rate_pps": 16.0}
    assert perftest_json.bandwidth(BEGUN, [result]) == {
        "test_info": TEST_INFO,
        "results": {"MsgSize": 65536, "n_iterations": 1000, "BW_peak": 2.0, "BW_average": 1.0, "MsgRate": 0.000016},
    }
    both = {**result, "reverse": {**result, "bw_average_bps": 4 * 2**20, "bw_peak_bps": None}}
    told = perftest_json.bandwidth({**BEGUN, "bidirectional": True, "transport": "rocev2"}, [both])
    assert told["test_info"] == {
        **TEST_INFO, "test": "RDMA_Write_Bidirectional_BW_Test", "Transport_type": "IB", "Connection_type": "RC",
    }  # fmt: skip
    assert (told["results"]["n_iterations"], told["results"]["BW_average"]) == (1000, 1.5)
    assert (told["results"]["BW_peak"], told["results"]["MsgRate"]) == (2.0, 0.000032)


def test_perftest_json__latency_in_microseconds():
    times = latency_summary([300e-6, 400e-6, 500e-6])
    told = perftest_json.latency(BEGUN, [{"bytes": 2, "writes": 3, "depth": 1, **times}])
    assert told["test_info"] == {**TEST_INFO, "test": "RDMA_Write_Latency_Test", "TX_depth": 1}
    assert told["results"] == {
        "MsgSize": 2, "n_iterations": 3, "t_min": 300.0, "t_max": 500.0, "t_typical": 400.0, "t_avg": 400.0,
        "t_stdev": 81.65, "percentile_99": 500.0, "percentile_99.9": 500.0,
    }  # fmt: skip


def test_perftest_json__nothing_measured_leaves_no_file(tmp_path):
    file = tmp_path / "perftest_out.json"
    file.write_text("of yesterday")
    nothing = [{**RESULT, "bw_average_bps": None}]
    assert perftest_json.latency(BEGUN, []) is None
    perftest_json.write_file(file, perftest_json.bandwidth(BEGUN, nothing))
    assert not file.exists()
    with pytest.raises(common.ToolError, match="No such file or directory: give --out_json_file a file"):
        perftest_json.write_file(tmp_path / "no" / "x", {})


def test_perftest_json__its_options_name_the_file(tmp_path):
    assert perftest_json.file_for(False, None, all_sizes=True) is None
    assert str(perftest_json.file_for(True, None, all_sizes=False)) == "perftest_out.json"
    assert perftest_json.file_for(False, tmp_path / "x", all_sizes=False) == tmp_path / "x"
