"""A controller in C on the ports of a live host: probes, profiles and ports over two NIC processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from mrc_testbed.ipc.rundir import RunFiles
from tests.hosts.agent.test_agent_network import ROOT, Wire
from tests.hosts.libmrc import c_programs

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]


@pytest.fixture
def sockets(tmp_path):
    """Sockets of the NIC processes of two hosts, with switches between them."""
    wire = Wire(tmp_path)
    try:
        wire.switches()
        yield [str(start_nic(wire, host)) for host in ("h0", "h1")]
    finally:
        wire.close()


def start_nic(wire, host):
    path = RunFiles(wire.run_dir).nic_socket(host)
    path.parent.mkdir(exist_ok=True)
    module = ["-m", "mrc_testbed.hosts.nicd", "--host", host, "--run-dir", str(wire.run_dir)]
    process = subprocess.Popen(["ip", "netns", "exec", f"{wire.prefix}-{host}", sys.executable, *module], cwd=ROOT)
    wire.processes.append(process)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
        while program.connect_ex(str(path)):
            assert process.poll() is None
            time.sleep(0.05)
    return path


@pytest.mark.parametrize("test", ["live", "used_profile"])
def test_controller(sockets, test):
    command = [str(c_programs.program("check_control")), test, *sockets]
    process = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert (process.returncode, process.stdout) == (0, "passed\n"), process.stderr
