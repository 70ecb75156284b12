"""Programs in C on hosts of a live fabric, by `mrc exec`: bytes, a cut link, deaths."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mrc_testbed.hosts.dissector import tshark
from mrc_testbed.hosts.libmrc import compile_flags
from mrc_testbed.hosts.nicd.status import programs_of
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan
from tests.repository import ROOT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
LIMIT_S = 90
PORTS = Ports(p4runtime=29657, gnmi=29437)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    with Fabric(Plan(2, 2, 1, 1), LabOptions(ports=PORTS), tmp_path_factory.mktemp("run")) as running_fabric:
        yield running_fabric


@pytest.fixture(scope="module")
def write_program(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "write"
    source = ROOT / "examples" / "rdma" / "write.c"
    subprocess.run(["gcc", "-O2", "-o", str(path), str(source), *compile_flags()], check=True)
    return path


def mrc(fabric: Fabric, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", *words],
        cwd=ROOT,
        env={**os.environ, "MRC_RUN_DIR": str(fabric.run_dir.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def has_sent(fabric: Fabric, host: str) -> bool:
    return any(program.packets_sent for program in programs_of(fabric.run_dir.nic_socket(host)) or ())


def wait_for(condition) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def address(fabric: Fabric, host: str) -> str:
    return str(fabric.plan.ip_interfaces(fabric.plan.host(host))[0].ip)


def test_program__writes_every_byte_while_a_link_is_cut(fabric, write_program):
    responder = mrc(fabric, "exec", "h1", "--", str(write_program))
    requestor = mrc(fabric, "exec", "h0", "--", str(write_program), address(fabric, "h1"), "5")
    wait_for(lambda: has_sent(fabric, "h0") or requestor.poll() is not None)
    link = fabric.plan.link("p0-t0-0", "p0-t1-0")
    fabric.set_interfaces((link.upper.interface,), False)
    try:
        requestor_output, _ = requestor.communicate(timeout=LIMIT_S)
        responder_output, _ = responder.communicate(timeout=LIMIT_S)
    finally:
        fabric.set_interfaces((link.upper.interface,), True)
    assert (requestor.returncode, responder.returncode) == (0, 0), requestor_output + responder_output
    assert "writes in" in requestor_output and "every byte is right" in responder_output


def test_program_that_is_killed__loses_its_queue_pairs_and_no_other_notices(fabric, write_program):
    mrc(fabric, "exec", "h1", "--", str(write_program))
    requestor = mrc(fabric, "exec", "h0", "--", str(write_program), address(fabric, "h1"), "60")
    wait_for(lambda: has_sent(fabric, "h0"))
    output, _ = mrc(fabric, "devices", "h0", "--json").communicate(timeout=LIMIT_S)
    (program,) = json.loads(output)[0]["programs"]
    assert program["qps"] == 1 and program["registered_bytes"] == 1 << 20
    requestor.kill()
    requestor.communicate(timeout=LIMIT_S)
    wait_for(lambda: programs_of(fabric.run_dir.nic_socket("h0")) == [])
    # The other program reads the end of its TCP connection, and ends.
    wait_for(lambda: programs_of(fabric.run_dir.nic_socket("h1")) == [])


def test_host_without_programs__has_no_nic_process(fabric):
    output, _ = mrc(fabric, "exec", "h0", "--", "true").communicate(timeout=LIMIT_S)
    assert output == ""


def run_perftest_client(fabric: Fabric, words: tuple[str, ...]) -> str:
    """Run the client's end until the server listens, and return what it printed."""
    output = "Couldn't connect"
    while "Couldn't connect" in output:
        client = mrc(fabric, "exec", "h0", "--", *words, address(fabric, "h1"))
        output, _ = client.communicate(timeout=LIMIT_S)
    assert client.returncode == 0, output
    return output


@pytest.mark.skipif(not shutil.which("ib_write_bw"), reason="perftest is not installed")
@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_perftest__its_packets_are_dissected_with_qp_psn_and_ev(fabric, tmp_path):
    words = ("ib_write_bw", "-d", "mrc0", "-x", "0", "-F", "-s", "65536", "-n", "100")
    path = tmp_path / "h0.pcapng"
    server = mrc(fabric, "exec", "h1", "--", *words)
    capture = mrc(fabric, "pcap", "h0", "--out", str(path))
    assert "capturing" in capture.stdout.readline()
    output = run_perftest_client(fabric, words)
    capture.send_signal(signal.SIGINT)
    assert capture.wait(LIMIT_S) == 0 and server.wait(LIMIT_S) == 0
    psn = int(re.search(r"local address: .* PSN (0x\w+)", output)[1], 16)
    qpn = re.search(r"remote address: .* QPN (0x\w+)", output)[1]
    options = [word for field in ("mrc.psn", "mrc.ev", "mrc.icrc.good") for word in ("-e", field)]
    rows = tshark(path, "-Y", f"mrc.bth.dest_qp == {qpn} && mrc.reth", "-T", "fields", *options).stdout.splitlines()
    psns, evs, verdicts = zip(*(row.split("\t") for row in rows), strict=True)
    assert int(psns[0]) == psn and set(evs) == {"0x00000000", "0x00000100"}  # a path on each plane
    assert set(verdicts) <= {"1", "True"} and len(set(psns)) >= 100 * 16
    assert tshark(path, "-Y", "mrc && _ws.malformed").stdout == ""
