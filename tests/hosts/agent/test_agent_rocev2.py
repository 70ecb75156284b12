"""The baseline between two agents with real packets: `send_file` with transport = "rocev2"."""

from __future__ import annotations

import os

import pytest

from mrc_testbed.ipc.agent_client import AgentError
from tests.hosts.agent.test_agent_network import file, qp_of, sent, wire  # noqa: F401 - fixtures

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]


@pytest.mark.parametrize("nic", ["fast", pytest.param("scapy", marks=pytest.mark.thorough)])
def test_send_file__over_one_path_bit_for_bit(wire, file, nic):  # noqa: F811
    wire.switches()
    with wire.agent("h0", "--nic", nic) as h0, wire.agent("h1") as h1:
        mrc = sent(h0, file, dest_path="mrc.bin")
        result = sent(h0, file, transport="rocev2")
        assert (result["state"], result["transport"]) == ("done", "rocev2")
        assert (wire.run_dir / "data" / "h1" / "random.bin").read_bytes() == file.read_bytes()
        assert sorted(map(bool, result["counters"]["plane_packets"])) == [False, True]
        assert result["qpn"] != mrc["qpn"]
        assert len(qp_of(h0, result["qpn"])["evs"]) == 1
        repeated_result = sent(h0, file, transport="rocev2", dest_path="again.bin")
        assert repeated_result["qpn"] == result["qpn"]
        assert not any(port["rx_dropped"] for port in h1.status()["ports"].values())
        with pytest.raises(AgentError, match="has: mrc, rocev2"):
            h0.send_file(file, "h1", transport="tcp")
