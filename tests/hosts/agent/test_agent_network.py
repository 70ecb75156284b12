"""Agents with real packets, each in its own namespace, with usid_wire.py instead of switches."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.ipc.agent_client import AgentClient, AgentError
from mrc_testbed.topologies.plan import Plan
from tests.repository import ROOT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=1)
FAST_PROBES = ("probe_interval_s=0.02", "probe_ok_count=2")
TIMEOUT_S = 60.0
_names = itertools.count()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Wire:
    """Namespaces `zzdNNN-h0` and `-h1` with a port per plane, cabled to `-w`, where usid_wire.py runs."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.prefix = f"zzd{os.getpid()}x{next(_names)}"
        self.processes: list[subprocess.Popen] = []
        self.namespaces: list[str] = []
        for folder in ("agents", "data"):
            (run_dir / folder).mkdir(parents=True)
        (run_dir / "plan.json").write_text(json.dumps(PLAN.to_json()))
        self._build()

    def _build(self) -> None:
        middle = self._namespace("w")
        index = itertools.count(100)  # cable ends differ in index: hosts/nic/netlink.py says why
        for host in PLAN.hosts:
            space = self._namespace(host.name)
            for plane in range(PLAN.planes):
                name = PLAN.host_port(host, plane).interface
                ip(
                    "link",
                    "add",
                    name,
                    "netns",
                    space,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    name,
                    "index",
                    str(next(index)),
                    "netns",
                    middle,
                )
                for namespace in (space, middle):
                    ip("-n", namespace, "link", "set", name, "mtu", "9216", "addrgenmode", "none", "up")

    def _namespace(self, name: str) -> str:
        space = f"{self.prefix}-{name}"
        ip("netns", "add", space)
        self.namespaces.append(space)
        return space

    def start(self, namespace: str, *command: str, ready_text: str) -> subprocess.Popen:
        """Run Python with `command` in a namespace and wait for the line that says it is ready."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"{self.prefix}-{namespace}", sys.executable, *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{self.run_dir}"},
        )
        self.processes.append(process)
        output = []
        for line in process.stdout:
            output.append(line)
            if ready_text in line:
                return process
        raise AssertionError(f"{namespace} ended: {''.join(output)}")

    def agent(self, host: str, *options: str, config: tuple[str, ...] = FAST_PROBES) -> AgentClient:
        settings = [word for setting in config for word in ("--config", setting)]
        self.start(
            host,
            "-m",
            "mrc_testbed.hosts.agent",
            "--host",
            host,
            "--run-dir",
            str(self.run_dir),
            *settings,
            *options,
            ready_text="ready on",
        )
        return AgentClient(self.run_dir / "agents" / f"{host}.sock")

    def switches(self) -> subprocess.Popen:
        script = str(Path(__file__).with_name("usid_wire.py"))
        return self.start("w", script, json.dumps(PLAN.to_json()), ready_text="ready")

    def command_switches(self, switches: subprocess.Popen, line: str) -> None:
        """Give a command to usid_wire.py, and wait until it is carried out."""
        switches.stdin.write(line + "\n")
        switches.stdin.flush()
        assert switches.stdout.readline() == "ok\n"

    def link(self, host: str, plane: int, state: str) -> None:
        ip("-n", f"{self.prefix}-{host}", "link", "set", f"{host}-eth{plane}", state)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()
        for space in self.namespaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


@pytest.fixture
def wire(tmp_path):
    with contextlib.closing(Wire(tmp_path / "run")) as network:
        yield network


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "random.bin"
    path.write_bytes(os.urandom(3_000_001))
    return path


def sent(client: AgentClient, path: Path, **options) -> dict:
    """Send a file to h1; return the result."""
    request = client.send_file(path, "h1", **options)
    return client.wait(request["transfer"])


def qp_of(client: AgentClient, qpn: int) -> dict:
    return next(qp for qp in client.status()["qps"] if qp["qpn"] == qpn)


def test_send_file__arrives_bit_for_bit_and_uses_every_plane(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        result = sent(h0, file)
        assert result["state"] == "done" and result["goodput_bps"] > 0
        received = wire.run_dir / "data" / "h1" / "random.bin"
        assert result["remote_path"] == str(received)
        assert result["sha256"] == hashlib.sha256(received.read_bytes()).hexdigest()
        assert received.read_bytes() == file.read_bytes()
        assert all(count > 0 for count in result["counters"]["plane_packets"])
        assert (result["counters"]["lost"], result["counters"]["retransmitted"]) == (0, 0)
        small_mtu_result = sent(h0, file, dest_path="again.bin", pmtu=1024)
        assert (
            small_mtu_result["state"] == "done" and small_mtu_result["qpn"] != result["qpn"]
        )  # another path MTU, another QP
        repeated_result = sent(h0, file)
        assert repeated_result["qpn"] == result["qpn"]
        status = h1.status()
        assert status["regions"] == [] and len(status["qps"]) == 2
        assert not any(port["rx_dropped"] for port in status["ports"].values())


def test_send_file__without_hashes(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        result = sent(h0, file, sha256=False)
        assert (result["state"], result["sha256"], result["remote_sha256"]) == ("done", None, None)
        assert Path(result["remote_path"]).read_bytes() == file.read_bytes()
        hashed_result = sent(h0, file)
        assert (
            hashed_result["sha256"] == hashed_result["remote_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        )
        assert h1.status()["regions"] == []


def test_send_file__both_ways_at_once(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        requests = [(h0, h0.send_file(file, "h1")), (h1, h1.send_file(file, "h0"))]
        assert [h.wait(s["transfer"], timeout_s=TIMEOUT_S)["state"] for h, s in requests] == ["done"] * 2
    for host in ("h0", "h1"):
        assert (wire.run_dir / "data" / host / "random.bin").read_bytes() == file.read_bytes()


def test_send_file__to_an_agent_that_was_restarted(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        first = sent(h0, file)
        h1.call("shutdown")
        wire.processes[-1].wait(TIMEOUT_S)
        with wire.agent("h1"):
            assert sent(h0, file)["qpn"] != first["qpn"]


def test_peer_lost__qps_to_it_are_in_error_and_the_next_transfer_has_another(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"):
        qpn = sent(h0, file)["qpn"]
        assert h0.call("peer_lost", peer="h1")["qpns"] == [qpn]
        assert (qp_of(h0, qpn)["state"], qp_of(h0, qpn)["error"]) == ("error", "the agent of h1 has died")
        assert h0.call("peer_lost", peer="h1")["qpns"] == []
        assert sent(h0, file)["qpn"] != qpn


def test_peer_lost__idle_leaves_what_is_under_way_to_its_retry_budget(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"):
        idle_qpn = sent(h0, file)["qpn"]
        transfer = h0.send_file(file, "h1", fresh=True)
        assert h0.call("peer_lost", peer="h1", idle=True)["qpns"] == [idle_qpn]
        assert qp_of(h0, idle_qpn)["error"] == "h1 was off, and knows no QP"
        assert h0.wait(transfer["transfer"], timeout_s=TIMEOUT_S)["state"] == "done"


def test_send_file__an_empty_one_and_one_with_an_odd_length(wire, tmp_path):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"):
        for length in (0, 1, 4095, 4097):
            path = tmp_path / f"{length}.bin"
            path.write_bytes(os.urandom(length))
            assert sent(h0, path)["state"] == "done"
            assert (wire.run_dir / "data" / "h1" / path.name).read_bytes() == path.read_bytes()


def test_send_file__a_path_is_lost_without_a_word_and_comes_back(wire, file):
    switches = wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"), h0.watch() as events:
        request = h0.send_file(file, "h1", rate_bps=20e6)
        events.wait_for("progress", timeout_s=TIMEOUT_S)
        wire.command_switches(switches, "cut 1 0")
        lost_event = events.wait_for("ev", timeout_s=TIMEOUT_S, to="assumed_bad", ev=0x0100)
        assert (lost_event["plane"], lost_event["uplink"], lost_event["from"]) == (1, 0, "good")
        wire.command_switches(switches, "heal")
        recovery_event = events.wait_for("ev", timeout_s=TIMEOUT_S, to="good", ev=0x0100)
        assert recovery_event["t"] > lost_event["t"]
        assert h0.wait(request["transfer"], timeout_s=TIMEOUT_S)["state"] == "done"
        assert len(qp_of(h0, lost_event["qpn"])["evs"]) == 4
    assert (wire.run_dir / "data" / "h1" / "random.bin").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("end", ["h0", "h1"])
def test_send_file__a_port_goes_down_and_up(wire, file, end):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1, h0.watch() as events:
        request = h0.send_file(file, "h1", rate_bps=20e6)
        events.wait_for("progress", timeout_s=TIMEOUT_S)
        with (h0 if end == "h0" else h1).watch() as host_events:
            wire.link(end, 0, "down")
            assert host_events.wait_for("port", timeout_s=TIMEOUT_S, up=False)["interface"] == f"{end}-eth0"
            events.wait_for("plane", timeout_s=TIMEOUT_S, plane=0, up=False)
            wire.link(end, 0, "up")
            host_events.wait_for("port", timeout_s=TIMEOUT_S, up=True)
            events.wait_for("plane", timeout_s=TIMEOUT_S, plane=0, up=True)
        assert h0.wait(request["transfer"], timeout_s=TIMEOUT_S)["state"] == "done"
    assert (wire.run_dir / "data" / "h1" / "random.bin").read_bytes() == file.read_bytes()


LOSE_THE_FIFTH_WRITE = """
from mrc_testbed.hosts.scapy.layers import BTH, RETH

writes = []


def lose(packet, direction, plane):
    if direction == "send" and RETH in packet:
        writes.append(packet[BTH].psn)
        if len(writes) == 5:
            return None
    return packet
"""


def test_scapy_nic__both_ends(wire, tmp_path):
    wire.switches()
    path = tmp_path / "small.bin"
    path.write_bytes(os.urandom(50_000))
    with wire.agent("h0", "--nic", "scapy") as h0, wire.agent("h1", "--nic", "scapy"):
        assert sent(h0, path)["state"] == "done"
    assert (wire.run_dir / "data" / "h1" / "small.bin").read_bytes() == path.read_bytes()


def test_scapy_nic__the_same_transfer_with_a_hook_at_one_end(wire, tmp_path):
    wire.switches()
    path = tmp_path / "small.bin"
    path.write_bytes(os.urandom(100_000))
    (wire.run_dir / "zz_hook.py").write_text(LOSE_THE_FIFTH_WRITE)
    with wire.agent("h0", "--nic", "scapy", "--hook", "zz_hook:lose") as h0, wire.agent("h1") as h1:
        assert (h0.hello()["nic"], h1.hello()["nic"]) == ("scapy", "fast")
        result = sent(h0, path)
        assert result["state"] == "done" and result["counters"]["retransmitted"] >= 1
        assert sum(port["tx_dropped"].get("hook", 0) for port in h0.status()["ports"].values()) == 1
    assert (wire.run_dir / "data" / "h1" / "small.bin").read_bytes() == path.read_bytes()


def test_post_write__a_wrong_rkey_or_range_is_answered_and_writes_nothing(wire):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1, h0.watch() as events:
        source, target = h0.call("register", length=5000), h1.call("register", length=5000)
        zeros = h1.call("sha256", region=target["region"])["sha256"]
        bad_targets = {
            "wrong R_Key": {"remote_va": target["va"], "rkey": target["rkey"] ^ 1},
            "past the end": {"remote_va": target["va"] + 1, "rkey": target["rkey"]},
        }
        for bad_target in bad_targets.values():
            local_qp, remote_qp = h0.call("create_qp", peer="h1"), h1.call("create_qp", peer="h0")
            h1.call("connect_qp", qpn=remote_qp["qpn"], remote=local_qp["attributes"])
            h0.call("connect_qp", qpn=local_qp["qpn"], remote=remote_qp["attributes"])
            wr_id = h0.post_write(qpn=local_qp["qpn"], region=source["region"], offset=0, length=5000, **bad_target)
            completion = events.wait_for("completion", timeout_s=TIMEOUT_S, qpn=local_qp["qpn"], wr_id=wr_id)
            assert (completion["ok"], completion["status"]) == (False, "remote access error")
            assert h0.call("qp_state", qpn=local_qp["qpn"])["state"] == "error"
            with pytest.raises(AgentError, match="is in error"):
                h0.post_write(qpn=local_qp["qpn"], region=source["region"], offset=0, length=1, **bad_target)
            h0.call("close_qp", qpn=local_qp["qpn"])
        assert h1.call("sha256", region=target["region"])["sha256"] == zeros


def test_requests__bad_ones_are_refused_with_the_hosts_name(wire, tmp_path):
    with wire.agent("h0") as h0:
        (tmp_path / "f").write_bytes(b"x")
        cases = {
            "h0: nonsense: no op 'nonsense' (has: ": lambda: h0.call("nonsense"),
            "nothing: No such file": lambda: h0.send_file(tmp_path / "nothing", "h1"),
            "Is a directory": lambda: h0.send_file(tmp_path, "h1"),
            "no host 'h9' (has: h0, h1)": lambda: h0.send_file(tmp_path / "f", "h9"),
            "h0 is this host": lambda: h0.send_file(tmp_path / "f", "h0"),
            "pmtu = 1500: must be one of 256, ": lambda: h0.send_file(tmp_path / "f", "h1", pmtu=1500),
            "h1: no agent answers on": lambda: h0.wait(
                h0.send_file(tmp_path / "f", "h1")["transfer"], timeout_s=TIMEOUT_S
            ),
            "no QP 77 (has: none)": lambda: h0.call("close_qp", qpn=77),
            "no region 3": lambda: h0.call("sha256", region=3),
            "no transfer 99": lambda: h0.call("wait", transfer=99),
        }
        for message, case in cases.items():
            with pytest.raises(AgentError) as caught:
                case()
            assert message in str(caught.value) and caught.value.host == "h0" and caught.value.is_refusal
        assert h0.hello()["host"] == "h0"


def test_ops__nic_rate_denylist_and_health(wire, file):
    """A port is paced while it runs; an EV is denied to QPs there are; health tells what they know."""
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1"), h0.watch("ev") as events:
        assert h0.call("nic_rate")["rates"] == {"0": None, "1": None}
        assert h0.call("nic_rate", plane=1, rate_bps=40e6)["rates"] == {"0": None, "1": 40e6}
        assert h0.wait(h0.send_file(file, "h1")["transfer"], timeout_s=TIMEOUT_S)["state"] == "done"
        answer = h0.call("denylist", entries=[{"scope": "link", "plane": 0, "t0": 1, "uplink": 1, "cause": "test"}])
        assert (answer["denied"], answer["changed"]) == ({"h1": [1]}, 1)
        while events.wait_for("ev", timeout_s=TIMEOUT_S)["to"] != "denied":
            pass  # on a busy machine the transfer may have cost the EV a loss before
        (peer,) = h0.call("health")["peers"]
        states = {row["ev"]: row["state"] for row in peer["evs"]}
        assert states[1] == "denied" and sum(row["acked"] for row in peer["evs"]) > 700
        trips = [row["rtt_s"] for row in peer["evs"] if row["rtt_s"] is not None]  # only who triggered a SACK has one
        assert trips and min(trips) > 0
        assert h0.call("allow", entries=[{"scope": "link", "name": "p0-t0-1 p0-t1-1"}])["denied"] == {}
        assert events.wait_for("ev", timeout_s=TIMEOUT_S)["to"] == "good"
        assert h0.call("nic_rate", rate_bps=0)["rates"] == {"0": None, "1": None}
        for fields in ({"plane": 2}, {"rate_bps": 10.0}, {"rate_bps": -1}):
            with pytest.raises(AgentError):
                h0.call("nic_rate", **fields)


def test_requests__nonsense_in_every_field_of_every_op(wire):
    nonsense = [None, True, -1, 0, 1 << 70, 1e300, "", "x", "../../x", "\ud800", [], {}, {"a": [1]}]
    with wire.agent("h0") as h0:
        with pytest.raises(AgentError) as op_error:
            h0.call("no such op")
        ops = str(op_error.value).split("(has: ")[1].split(")")[0].split(", ")
        for op in sorted(set(ops) - {"watch", "shutdown"}):
            with pytest.raises(AgentError, match=f"{op} has no field 'bogus'") as field_error:
                h0.call(op, bogus=1)
            names = str(field_error.value).split("(has: ")[1].rstrip(")").split(", ")
            for value in nonsense if names != ["none"] else ():
                for fields in (names, *([name] for name in names)):
                    with contextlib.suppress(AgentError):
                        h0.call(op, **dict.fromkeys(fields, value))
        assert h0.hello()["host"] == "h0"
    assert not any("Traceback" in line for line in ended_output(wire))


def ended_output(wire: Wire) -> list[str]:
    """End the last agent; return the lines that it wrote after it was ready."""
    wire.processes[-1].terminate()
    return wire.processes[-1].communicate(timeout=TIMEOUT_S)[0].splitlines()


def test_agent__survives_its_clients_and_ends_cleanly(wire, file):
    wire.switches()
    with wire.agent("h0") as h0, wire.agent("h1") as h1:
        watching = h0.watch()
        request = h0.send_file(file, "h1", rate_bps=50e6)
        watching.close()  # a client that dies in the middle
        assert h0.wait(request["transfer"], timeout_s=TIMEOUT_S)["state"] == "done"
        h0.send_file(file, "h1", rate_bps=1e6, dest_path="unfinished.bin")
        agents = [p for p in wire.processes if "mrc_testbed.hosts.agent" in p.args]
        h1.call("shutdown")
        agents[0].send_signal(signal.SIGTERM)
        assert [p.wait(TIMEOUT_S) for p in agents] == [0, 0]
    assert list((wire.run_dir / "agents").iterdir()) == []
    assert [p.name for p in (wire.run_dir / "data" / "h1").iterdir()] == ["random.bin"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "h7"), "no host 'h7' (has: h0, h1)"),
        (("--host", "h1"), "h1-eth0: no such interface"),
        (("--host", "h0", "--hook", "a:b"), "needs --nic scapy"),
        (("--host", "h0", "--nic", "scapy", "--hook", "a:b"), "cannot import a"),
        (("--host", "h0", "--config", "no_such_key=1"), "no key no_such_key (has: "),
        (("--host", "h0", "--config", "pmtu_bytes=5"), "pmtu_bytes = 5: must be one of"),
    ],
)
def test_start__what_cannot_work_is_told_in_one_line(wire, options, message):
    command = ["-m", "mrc_testbed.hosts.agent", "--run-dir", str(wire.run_dir), *options]
    process = subprocess.run(
        ["ip", "netns", "exec", f"{wire.prefix}-h0", sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert process.returncode == 1
    assert message in process.stderr and "Traceback" not in process.stderr
