"""Every mode carries both transports over the real fabric; links with rates; a denylist under traffic."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from mrc_testbed.ipc.agent_client import AgentClient
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Mode, Plan
from tests.repository import ROOT

LIMIT_S = 60.0
SCALE = {"embedded": {}, "bmv2": {"rate_bps": 5e6, "rtt_s": 0.02}}
"""Arguments of Plan.scaled by target.

Rates that two cores carry (BMv2 takes ten times the CPU a packet).
"""
EXAMPLE = ROOT / "examples" / "live_write.py"


class Rig:
    """A fabric of one test with a client for each host."""

    def __init__(self, stack: ExitStack, plan: Plan, folder, **options) -> None:
        self.plan, self.folder = plan, folder
        fabric = Fabric(plan, LabOptions(mapper=False, **options), folder / "run")
        self.fabric = stack.enter_context(fabric)
        self.hosts = {
            h.name: stack.enter_context(AgentClient(self.fabric.run_dir.agent_socket(h.name))) for h in plan.hosts
        }

    def start(self, host: str, *command: str) -> subprocess.Popen:
        """Start a program in a host."""
        return subprocess.Popen(
            ["mnexec", "-a", str(self.fabric.hosts[host].pid), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=EXAMPLE.parent.parent,
        )

    def begin(self, source: str, peer: str, size: int, transport: str = "mrc", **options) -> tuple[str, int]:
        path = self.folder / f"{source}-{size}"
        path.write_bytes(os.urandom(size))
        dest_path = str(self.folder / f"{source}-{peer}-{transport}")
        answer = self.hosts[source].send_file(path, peer, dest_path=dest_path, transport=transport, **options)
        return source, answer["transfer"]

    def end(self, transfer: tuple[str, int]) -> dict:
        """Return the result of a transfer, whose SHA-256 both ends have compared."""
        return self.hosts[transfer[0]].wait(transfer[1], timeout_s=LIMIT_S)


@pytest.fixture(autouse=True)
def tables_unchanged():
    """Replace the folder's fixture: each test here has a fabric of its own."""


@pytest.fixture
def rig(tmp_path, target):
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and raw sockets (run `make resilience`)")
    with ExitStack() as stack:
        yield lambda plan, **options: Rig(stack, plan, tmp_path, target=target, **options)


@pytest.mark.parametrize("mode", list(Mode), ids=str)
def test_mode__both_transports_arrive_whole(rig, mode):
    lab = rig(Plan(2, 2, 2, 2, mode=mode))
    for peer in ("h1", "h2"):
        for transport in ("mrc", "rocev2"):
            result = lab.end(lab.begin("h0", peer, 1 << 20, transport))
            assert result["state"] == "done" and result["counters"]["sent"] >= 256
            planes_used = [plane for plane, n in enumerate(result["counters"]["plane_packets"]) if n]
            sprayed = transport == "mrc" and mode is not Mode.FLOW_ECMP
            assert planes_used == [0, 1] if sprayed else len(planes_used) == 1
    (peer_health,) = lab.hosts["h0"].call("health", peer="h2")["peers"]
    assert sum(row["acked"] for row in peer_health["evs"]) >= 256
    assert {row["state"] for row in peer_health["evs"]} <= {"good", "skip"}


def test_mode__the_readable_nic_too(rig):
    lab = rig(Plan(2, 2, 2, 1, mode="stev"), nic="scapy")
    assert lab.end(lab.begin("h0", "h1", 1 << 16))["state"] == "done"


def test_mode__verbs_beside_the_agents(rig):
    """A program's device on paced ports, in a mode whose packets have no outer header."""
    lab = rig(Plan.scaled(2, 2, 2, 1, mode="ecmp"))
    command = [sys.executable, str(EXAMPLE)]
    run_dir_option = ["--run-dir", str(lab.fabric.run_dir.path)]
    server = lab.start("h1", *command, "serve", *run_dir_option)
    assert "serving" in server.stdout.readline()
    writer = lab.start("h0", *command, "write", "h1", "--megabytes", "1", *run_dir_option)
    output, _ = writer.communicate(timeout=LIMIT_S)
    assert writer.returncode == 0 and "SHA-256 equal" in output and "over 2 planes" in output, output
    assert server.wait(LIMIT_S) == 0
    assert all(host.status()["unclaimed"] == 0 for host in lab.hosts.values())


def test_rates__a_nic_sends_no_faster_than_its_ports(rig):
    plan = Plan.scaled(2, 2, 2, 1)
    lab = rig(plan)
    h0 = lab.hosts["h0"]
    status_before = h0.status()
    result = lab.end(lab.begin("h0", "h1", 1 << 20))
    status_after = h0.status()
    seconds = status_after["t"] - status_before["t"]
    for plane in ("0", "1"):
        sent = status_after["ports"][plane]["tx_bytes"] - status_before["ports"][plane]["tx_bytes"]
        assert sent * 8 <= 10e6 * seconds + 8 * 8 * plan.frame_bytes()
    assert result["counters"]["lost"] < result["counters"]["sent"] / 10
    (qp,) = h0.status()["qps"]
    assert qp["congestion"]["algorithm"] == "uet-1.0-nscc"
    assert qp["pmtu_bytes"] == 1024


def test_rates__incast_is_trimmed_at_the_last_hop_and_nowhere_else(rig, target):
    lab = rig(Plan.scaled(2, 2, 2, 2, **SCALE[target]))
    results = [lab.end(transfer) for transfer in [lab.begin(source, "h3", 1 << 19) for source in ("h0", "h1", "h2")]]
    counters = [result["counters"] for result in results]
    assert all(result["state"] == "done" for result in results)
    assert sum(counter["trimmed_lasthop"] for counter in counters) > 0
    assert all(counter["trimmed"] == counter["trimmed_lasthop"] for counter in counters)
    states = [row["state"] for row in lab.hosts["h0"].call("health", peer="h3")["peers"][0]["evs"]]
    assert set(states) <= {"good", "skip"}  # incast is no path's fault


def test_denylist__moves_a_flow_and_gives_the_path_back(rig):
    lab = rig(Plan(2, 2, 2, 1))
    h0 = lab.hosts["h0"]

    def sent() -> dict[int, int]:
        return {row["ev"]: row["sent"] for row in h0.call("health", peer="h1")["peers"][0]["evs"]}

    transfer = lab.begin("h0", "h1", 8 << 20, rate_bps=20e6)
    while sum(sent().values()) < 100:
        time.sleep(0.01)
    answer = h0.call("denylist", entries=[{"scope": "t1", "name": "p0-t1-1"}])
    assert answer["denied"] == {"h1": [0x001]}
    sent_before = sent()
    while sum(sent().values()) < sum(sent_before.values()) + 200:
        time.sleep(0.01)
    assert sent()[0x001] == sent_before[0x001] and sent()[0x000] > sent_before[0x000]
    assert h0.call("denylist", entries=[])["denied"] == {}
    assert lab.end(transfer)["counters"]["lost"] == 0
