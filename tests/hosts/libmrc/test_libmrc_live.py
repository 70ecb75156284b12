"""C programs on hosts of a live fabric under faults (check_memory.c): no call hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from mrc_testbed.hosts.nicd.launch import ensure_nic_process
from mrc_testbed.hosts.nicd.status import programs_of
from mrc_testbed.ipc.rundir import HostOffError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan
from tests.hosts.libmrc import c_programs
from tests.repository import ROOT

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
LIMIT_S = 100
PORTS = Ports(p4runtime=29667, gnmi=29447)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    with Fabric(Plan(2, 2, 1, 1), LabOptions(ports=PORTS), tmp_path_factory.mktemp("run")) as running_fabric:
        yield running_fabric


def start(fabric, test, *hosts):
    """Start a test of check_memory between two hosts, outside of both, and wait until it writes."""
    for host in hosts:
        ensure_nic_process(fabric.run_dir, host)
    sockets = [str(fabric.run_dir.nic_socket(host)) for host in hosts]
    return subprocess.Popen(
        [str(c_programs.program("check_memory")), test, *sockets],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_passes(process):
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert (process.returncode, output) == (0, "passed\n"), errors
    return errors


def wait_for_packets(fabric, process, count):
    """Wait until a program has sent so many more packets on h0, or has ended."""
    path = fabric.run_dir.nic_socket("h0")

    def packets_sent():
        return sum(program.packets_sent for program in programs_of(path))

    target = packets_sent() + count
    while packets_sent() < target and process.poll() is None:
        time.sleep(0.05)


def test_power_of_the_host__off_and_on(fabric):
    process = start(fabric, "nic_ends", "h0", "h1")
    assert process.stdout.readline() == "ready\n"
    fabric.power("h0", False)
    try:
        assert "the NIC process of this host has ended" in assert_passes(process)
        with pytest.raises(HostOffError, match="h0"):
            ensure_nic_process(fabric.run_dir, "h0")
    finally:
        fabric.power("h0", True)
    assert_passes(start(fabric, "kinds", "h0", "h1"))


def test_power_of_the_peer__off_and_on(fabric):
    process = start(fabric, "peer_ends", "h1", "h0")
    assert process.stdout.readline() == "ready\n"
    fabric.power("h0", False)
    try:
        assert_passes(process)
    finally:
        fabric.power("h0", True)
    assert_passes(start(fabric, "kinds", "h1", "h0"))


def test_all_t0s__off_and_on(fabric):
    process = start(fabric, "peer_ends", "h0", "h1")
    assert process.stdout.readline() == "ready\n"
    switches = ("p0-t0-0", "p1-t0-0")
    for switch in switches:
        fabric.power(switch, False)
    try:
        assert_passes(process)
    finally:
        for switch in switches:
            fabric.power(switch, True)


@pytest.mark.parametrize("node", ["p0-t0-0", "p0-t1-0", None])
def test_fault_of_a_plane__fails_no_write(fabric, node):
    """A T0, a T1, or a link of one plane: the other one carries on."""
    process = start(fabric, "until_told", "h0", "h1")
    assert process.stdout.readline() == "ready\n"
    link = fabric.plan.link("p0-t0-0", "p0-t1-0")
    for is_up in (False, True):
        if node is None:
            fabric.set_interfaces((link.upper.interface,), is_up)
        else:
            fabric.power(node, is_up)
        wait_for_packets(fabric, process, 2000)
    assert_passes(process)


def test_programs_of_small_limits__work_or_fail_by_name(fabric):
    """Several at once, none of which hangs."""
    for host in ("h0", "h1"):
        ensure_nic_process(fabric.run_dir, host)
    environment = {**os.environ, "MRC_RUN_DIR": str(fabric.run_dir.path)}
    program, sockets = c_programs.program("check_memory"), [fabric.run_dir.nic_socket(host) for host in ("h0", "h1")]
    limits = ["-n 64", "-l 64", "-v 400000", "-s 128", "-n 64 -v 400000 -s 128", "-n 9", "-v 9000"]
    processes = []
    for limit in limits:
        options = "; ".join(f"ulimit -{option}" for option in limit.removeprefix("-").split(" -"))
        shell = f"{options}; exec {program} kinds {' '.join(map(str, sockets))}"
        command = [sys.executable, "-m", "mrc_testbed", "exec", "h0", "--", "sh", "-c", shell]
        processes.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    for process, limit, output in list(zip(processes, limits, outputs, strict=True))[:5]:
        assert (process.returncode, output) == (0, "passed\n"), limit
    for process, output in list(zip(processes, outputs, strict=True))[5:]:
        assert process.returncode and ("Too many open files" in output or "Cannot allocate memory" in output), output
        assert "Traceback" not in output
