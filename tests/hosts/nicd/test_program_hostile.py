"""Hostile programs harm nobody: the NIC process ends them, and serves others every byte."""

from __future__ import annotations

import gc
import logging
import os
import time
from contextlib import suppress

import pytest

from tests.hosts.libmrc import c_programs
from tests.hosts.nicd.hostile_program import HostileProgram
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import RawProgram


def descriptors() -> int:
    """Return the number of descriptors of this process, with those of the NIC processes among them."""
    return len(os.listdir("/proc/self/fd"))


def open_files() -> list[str]:
    """Return what the descriptors of this process lead to."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was closed meanwhile
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return targets


def no_more_than(count: int) -> bool:
    """Whether so many descriptors are open; the thread of the NIC processes has time to close others."""
    gc.collect()
    time.sleep(0.05)
    return descriptors() <= count


def harm(tmp_path, caplog, seeds):
    """Let hostile programs of these seeds run beside one that writes, and check what is left of them."""
    program = str(c_programs.program("check_memory"))
    caplog.set_level(logging.INFO, "mrc_testbed.hosts.nicd")
    with NicProcesses(tmp_path) as processes, c_programs.start([program, "until_told"], processes) as survivor:
        assert survivor.stdout.readline() == "ready\n"
        with RawProgram(processes.sockets["b"]) as peer:
            peer_gid = peer.gid()
        victims = [qpn for daemon in processes.daemons for qpn in daemon._device.hardware.qps]
        counts = processes.qp_counts()
        gc.collect()  # our own ends of what programs had before
        old_count = descriptors()
        for seed in seeds:
            caplog.clear()
            hostile = HostileProgram(processes.sockets["a"], peer_gid, seed, victims)
            hostile.run()
            processes.wait_until(lambda: processes.qp_counts() == counts)
            reasons = [record.getMessage() for record in caplog.records if "is ended: " in record.getMessage()]
            assert len(reasons) >= hostile.ended_count, seed
            assert not [record for record in caplog.records if record.exc_info], seed
        del hostile
        try:
            processes.wait_until(lambda: no_more_than(old_count))
        finally:  # for who reads why it took too long
            print(f"{old_count} descriptors before, now:", *sorted(open_files()), sep="\n")
        output, errors = survivor.communicate("", timeout=c_programs.PATIENCE_S)
        assert (survivor.returncode, output) == (0, "passed\n"), errors


def test_hostile_programs__of_some_seeds(tmp_path, caplog):
    harm(tmp_path, caplog, range(12))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_hostile_programs__of_many_seeds(tmp_path, caplog):
    harm(tmp_path, caplog, range(1000, 1030))
