"""Results as perftest writes them in JSON."""

from __future__ import annotations

import pytest

from mrc_testbed.hosts.tools import common, perftest_json
from mrc_testbed.hosts.traffic.statistics import latency_summary
from tests.hosts.tools.tool_results import RESULT, START_ANSWER

TEST_INFO = {
    "test": "RDMA_Write_BW_Test", "Device": "h0", "Number_of_qps": 1, "Transport_type": "MRC",
    "Connection_type": "MRC", "TX_depth": 128, "Mtu": 4096, "Link_type": "Ethernet",
}  # fmt: skip


def test_perftest_json__bandwidth_in_mebibytes():
    result = {**RESULT, "depth": 128, "bw_peak_bps": 16 * 2**20, "bw_average_bps": 8 * 2**20, "msg_rate_pps": 16.0}
    assert perftest_json.bandwidth(START_ANSWER, [result]) == {
        "test_info": TEST_INFO,
        "results": {"MsgSize": 65536, "n_iterations": 1000, "BW_peak": 2.0, "BW_average": 1.0, "MsgRate": 0.000016},
    }
    two_way_result = {**result, "reverse": {**result, "bw_average_bps": 4 * 2**20, "bw_peak_bps": None}}
    document = perftest_json.bandwidth({**START_ANSWER, "bidirectional": True, "transport": "rocev2"}, [two_way_result])
    assert document["test_info"] == {
        **TEST_INFO,
        "test": "RDMA_Write_Bidirectional_BW_Test",
        "Transport_type": "IB",
        "Connection_type": "RC",
    }
    assert (document["results"]["n_iterations"], document["results"]["BW_average"]) == (1000, 1.5)
    assert (document["results"]["BW_peak"], document["results"]["MsgRate"]) == (2.0, 0.000032)


def test_perftest_json__latency_in_microseconds():
    times = latency_summary([300e-6, 400e-6, 500e-6])
    document = perftest_json.latency(START_ANSWER, [{"bytes": 2, "writes": 3, "depth": 1, **times}])
    assert document["test_info"] == {**TEST_INFO, "test": "RDMA_Write_Latency_Test", "TX_depth": 1}
    assert document["results"] == {
        "MsgSize": 2,
        "n_iterations": 3,
        "t_min": 300.0,
        "t_max": 500.0,
        "t_typical": 400.0,
        "t_avg": 400.0,
        "t_stdev": 81.65,
        "percentile_99": 500.0,
        "percentile_99.9": 500.0,
    }


def test_perftest_json__nothing_measured_leaves_no_file(tmp_path):
    file = tmp_path / "perftest_out.json"
    file.write_text("of yesterday")
    empty_results = [{**RESULT, "bw_average_bps": None}]
    assert perftest_json.latency(START_ANSWER, []) is None
    perftest_json.write_file(file, perftest_json.bandwidth(START_ANSWER, empty_results))
    assert not file.exists()
    with pytest.raises(common.ToolError, match="No such file or directory: give --out_json_file a file"):
        perftest_json.write_file(tmp_path / "no" / "x", {})


def test_perftest_json__its_options_name_the_file(tmp_path):
    assert perftest_json.file_for(False, None, all_sizes=True) is None
    assert str(perftest_json.file_for(True, None, all_sizes=False)) == "perftest_out.json"
    assert perftest_json.file_for(False, tmp_path / "x", all_sizes=False) == tmp_path / "x"
