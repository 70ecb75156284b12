"""Programs in C on hosts of a live fabric, by `mrc exec`: bytes, a cut link, deaths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
