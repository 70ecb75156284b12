"""The tools with real packets.

Agents in namespaces, usid_wire.py instead of switches (test_agent_network.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from mrc_testbed.hosts.tools import ping, stat, write_bw, write_lat
from mrc_testbed.ipc.agent_client import AgentClient, AgentError
from mrc_testbed.ipc.rpc import JsonlClient, JsonlPeerError, Watch
from tests.hosts.agent.test_agent_network import PLAN, ROOT, TIMEOUT_S, Wire

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]


@pytest.fixture
def wire(tmp_path):
    with contextlib.closing(Wire(tmp_path / "run")) as network:
        yield network


class Test:
    """A test asked of an agent: `answer`, then its events one by one."""

    __test__ = False

    def __init__(self, agent: AgentClient, op: str, **fields) -> None:
        self._client = JsonlClient(agent.path)
        self.answer = self._client.request(op, peer="h1", timeout_s=TIMEOUT_S, **fields)
        self._watch = Watch(self._client)

    def next(self) -> dict:
        event = self._watch.get(TIMEOUT_S)
        assert event is not None
        return event

    def remaining_events(self) -> list[dict]:
        """Return all events to the end of the test."""
        events = [self.next()]
        while events[-1]["event"] != "end":
            events.append(self.next())
        return events

    def close(self) -> None:
        self._client.close()


def assert_nothing_left(*agents: AgentClient) -> None:
    for agent in agents:
        status = agent.status()
        assert (status["qps"], status["regions"]) == ([], [])


def wait_until_nothing_left(agent: AgentClient) -> None:
    """Wait for what ends a moment after its connection; each question gives the agent a turn."""
    for _ in range(2000):
        status = agent.status()
        if (status["qps"], status["regions"]) == ([], []):
            return
    raise AssertionError(f"{agent.host} keeps {status['qps']} and {status['regions']}")


def test_write_bw__table_json_and_nothing_left(wire, capsys, tmp_path):
    wire.switches()
    host_options = ["--run-dir", str(wire.run_dir), "--from", "h0", "h1"]
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        file = tmp_path / "out.json"
        options = ["-s", "64K", "-n", "40", "-q", "2", "-b", "--json", "--out_json", "--out_json_file", str(file)]
        assert write_bw.main([*host_options, *options]) == 0
        document = json.loads(capsys.readouterr().out)
        (result,) = document["results"]
        perftest = json.loads(file.read_text())
        assert (perftest["test_info"]["Number_of_qps"], perftest["results"]["n_iterations"]) == (2, 80)
        total_bps = result["bw_average_bps"] + result["reverse"]["bw_average_bps"]
        assert perftest["results"]["BW_average"] == pytest.approx(total_bps / 8 / 2**20, rel=0.01)
        assert (result["writes"], result["reverse"]["writes"], len(document["qps"])) == (80, 80, 2)
        assert result["bw_peak_bps"] >= result["bw_average_bps"] > 0
        assert sum(result["plane_packets"]) == 80 * 16 + result["retransmitted"]
        assert all(rate > 0 for rate in result["plane_bps"])
        assert_nothing_left(h0, h1)
        assert write_bw.main([*host_options, "-D", "0.4", "-i", "0.1"]) == 0
        output = capsys.readouterr().out
        assert output.count(" Mb/s   retrans ") >= 2 and "BW average[Mb/s]" in output
        assert_nothing_left(h0, h1)


def test_write_bw__every_size_on_the_same_qps(wire):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        sizes = [1, 2, 4095, 4096, 4097, 1 << 20]
        test = Test(h0, "write_bw", sizes=sizes, iterations=[3] * 6, depth=2)
        results = [event for event in test.remaining_events() if event["event"] == "result"]
        assert [(result["bytes"], result["writes"]) for result in results] == [(size, 3) for size in sizes]
        assert_nothing_left(h0, h1)
        test.close()


@pytest.mark.parametrize("transport", ["mrc", "rocev2"])
def test_transport__both_carry_every_tool(wire, capsys, transport):
    wire.switches()
    host_options = ["--run-dir", str(wire.run_dir), "--from", "h0", "h1", "--transport", transport, "--json"]
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        assert write_bw.main([*host_options, "-n", "10"]) == 0
        assert json.loads(capsys.readouterr().out)["transport"] == transport
        assert write_lat.main([*host_options, "-n", "10"]) == 0
        (result,) = json.loads(capsys.readouterr().out)["results"]
        assert 0 < result["t_min_us"] <= result["t_typical_us"] <= result["p99_us"] <= result["t_max_us"]
        assert_nothing_left(h0, h1)


def test_ping__a_dead_path_and_a_port_down(wire, capsys):
    switches = wire.switches()
    command = ["--run-dir", str(wire.run_dir), "--from", "h0", "h1", "-c", "2", "-i", "0.05", "-W", "0.2"]
    with wire.agent("h0") as h0, wire.agent("h1"):
        assert ping.main(command) == 0
        assert "4 paths, 0 lost out, 0 lost back; 8 probes sent, 8 came back, 0.0% lost" in capsys.readouterr().out
        wire.command_switches(switches, "cut 1 0")
        assert ping.main([*command, "--json"]) == 1
        paths = json.loads(capsys.readouterr().out)["paths"]
        assert [path["ev"] for path in paths if path["out_lost"]] == [0x0100]
        assert not any(path["back_lost"] for path in paths)
        with h0.watch() as events:
            wire.link("h0", 0, "down")
            events.wait_for("port", timeout_s=TIMEOUT_S, up=False)
        assert ping.main(command) == 1
        output = capsys.readouterr().out
        assert output.count("out lost (port down)") == 2 and "4 paths, 3 lost out, 0 lost back" in output


def test_ctrl_c__tells_what_was_measured_and_leaves_nothing(wire):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        command = ["-m", "mrc_testbed.hosts.tools.write_bw", "h1", "-D", "600", "-i", "0.05", "-b"]
        environment = {**os.environ, "MRC_HOST": "h0", "MRC_RUN_DIR": str(wire.run_dir), "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as tool:
            for line in tool.stdout:
                if "retrans" in line:
                    break
            tool.send_signal(signal.SIGINT)
            out, err = tool.communicate(timeout=TIMEOUT_S)
        assert tool.returncode == 130 and err == ""
        assert " 65536 " in out and "h0 to h1: " in out
        assert_nothing_left(h0, h1)


def test_client_that_dies__its_test_ends_at_both_ends(wire):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        for fields in ({"bidirectional": True, "qps": 3}, {}):
            test = Test(h0, "write_bw", sizes=[65536], duration_s=600.0, interval_s=0.05, **fields)
            assert test.next()["event"] == "interval"
            assert len(h1.status()["qps"]) == fields.get("qps", 1)
            test.close()
            wait_until_nothing_left(h0)
            wait_until_nothing_left(h1)
        sweep = Test(h0, "ev_sweep", count=0, interval_s=0.01)
        sweep.next()
        sweep.close()
        assert h0.hello()["host"] == "h0"


def test_peer_that_dies__is_told_and_our_end_is_released(wire):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"):
        test = Test(h0, "write_bw", sizes=[65536], duration_s=600.0, interval_s=0.05)
        test.next()
        wire.processes[-1].kill()
        end = test.remaining_events()[-1]
        assert end["state"] == "failed" and end["error"].startswith("h1: its agent ")
        assert_nothing_left(h0)
        test.close()
        with pytest.raises(JsonlPeerError, match=r"h1: (no agent answers on|register: its agent is gone)"):
            Test(h0, "write_bw", sizes=[2], iterations=[1])


def test_stop_work__and_a_connection_has_one_test_at_a_time(wire):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        test = Test(h0, "write_lat", sizes=[2, 4], duration_s=600.0)
        with pytest.raises(JsonlPeerError, match="has a test running"):
            test._client.request("write_lat", peer="h1", sizes=[2], iterations=[1])
        h0.call("stop_work", work=test.answer["work"])
        *_, end = test.remaining_events()
        assert end["state"] == "stopped"
        assert_nothing_left(h0, h1)
        h0.call("stop_work", work=test.answer["work"])  # it has ended: no harm
        next_answer = test._client.request("write_lat", peer="h1", sizes=[2], iterations=[1])
        assert next_answer["work"] != test.answer["work"] and test.remaining_events()[-1]["state"] == "done"


def test_close_qp__closes_the_other_end_too(wire):
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        local_qp, remote_qp = h0.call("create_qp", peer="h1"), h1.call("create_qp", peer="h0")
        h1.call("connect_qp", qpn=remote_qp["qpn"], remote=local_qp["attributes"])
        h0.call("connect_qp", qpn=local_qp["qpn"], remote=remote_qp["attributes"])
        with pytest.raises(AgentError, match=f"QP {remote_qp['qpn']} is not connected to QP 77 of h0"):
            h1.call("close_qp", qpn=remote_qp["qpn"], peer="h0", remote_qpn=77)
        assert h0.call("close_qp", qpn=local_qp["qpn"])["remote_error"] is None
        assert_nothing_left(h0, h1)
        local_qp, remote_qp = h0.call("create_qp", peer="h1"), h1.call("create_qp", peer="h0")
        h0.call("connect_qp", qpn=local_qp["qpn"], remote=remote_qp["attributes"])
        h1.call("close_qp", qpn=remote_qp["qpn"])
        assert "no QP" in h0.call("close_qp", qpn=local_qp["qpn"])["remote_error"]
        assert_nothing_left(h0)


def test_requests__bad_ones_are_refused_and_leave_nothing(wire):
    wire.switches()
    valid_fields = {"peer": "h1", "sizes": [64], "iterations": [1]}
    cases = {
        "no host 'h9' (has: h0, h1)": {"peer": "h9"},
        "h0 is this host": {"peer": "h0"},
        "no transport 'tcp' (has: mrc, rocev2)": {"transport": "tcp"},
        "pmtu = 1500: must be one of 256, ": {"pmtu": 1500},
        "qps = 0: must be 1 to 256": {"qps": 0},
        "256 QPs of 268435456 bytes: at most": {"qps": 256, "sizes": [1 << 28]},
    }
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        for message, fields in cases.items():
            with pytest.raises(AgentError) as caught:
                h0.call("write_bw", **{**valid_fields, **fields})
            assert message in str(caught.value)
        with pytest.raises(AgentError, match="QP 3 was not made for this client"):
            h0.call("run_writes", qpns=[3], stride=64, remote_va=0, rkey=0, sizes=[64], iterations=[1])
        nonsense = [None, True, -1, 1 << 70, 1e300, "", "x", [], [[]], {}, [None]]
        names = ("peer", "sizes", "iterations", "qpns", "stride", "count", "interval_s", "wait_s", "work", "depth")
        for op in ("write_bw", "write_lat", "ev_sweep", "run_writes", "stop_work", "release"):
            for value in nonsense:
                with contextlib.suppress(AgentError):
                    h0.call(op, **dict.fromkeys(names, value))
        assert_nothing_left(h0, h1)


def test_stat__shows_a_test_that_runs(wire, capsys):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"):
        test = Test(h0, "write_bw", sizes=[65536], duration_s=600.0, interval_s=0.05)
        test.next()
        folder_options = ["--run-dir", str(wire.run_dir)]
        assert stat.main([*folder_options, "h0", "-i", "0.2", "-c", "2", "--json"]) == 0
        samples = [json.loads(line)["hosts"][0] for line in capsys.readouterr().out.splitlines()]
        (qp,) = samples[1]["qps"]
        assert samples[0]["qps"][0]["tx_bps"] is None and qp["tx_bps"] > 0 and qp["peer"] == "h1"
        assert sum(qp["ev_states"].values()) == 4
        assert len(PLAN.hosts) == 2 and stat.main([*folder_options, "-e"]) == 0
        output = capsys.readouterr().out
        assert (
            "h0: fast NIC" in output
            and "h1: fast NIC" in output
            and re.search("0x0101  1 +(good|skip) +active", output)
        )
        test.close()
