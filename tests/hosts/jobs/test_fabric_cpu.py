"""CPU of a fabric's parts by steps of a job."""

from __future__ import annotations

import json
import os
import socket

from mrc_testbed.hosts.jobs.fabric_cpu import CpuShares, fabric_pids
from mrc_testbed.ipc.rundir import RunFiles


def test_pids__are_those_of_the_hosts_asked_for(tmp_path):
    files = RunFiles(tmp_path)
    entries = {"switchd": {"pid": 11}, "controller": {"pid": 12}, "h0": {"pid": 13}, "h1": {"pid": 14}}
    files.state_file.write_text(json.dumps({"processes": entries}))
    assert fabric_pids(files, ["h0"]) == {"agents": [13], "switches": [11]}
    path = files.nic_socket("h0")
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(1)
        assert fabric_pids(files, ["h0"])["NIC processes"] == [os.getpid()]


def test_shares__are_means_from_the_first_step_on():
    shares = CpuShares()
    assert shares.seconds_a_step() == {}
    for _ in range(4):
        shares.end_step({"ranks": [os.getpid()]})
        end = os.times()
        while os.times().user - end.user < 0.02:
            pass
    assert 0.01 < shares.seconds_a_step()["ranks"] < 1


def test_shares__a_process_that_has_ended_ends_the_counting():
    shares = CpuShares()
    for pid in (os.getpid(), os.getpid(), 2**22 + 1):
        shares.end_step({"ranks": [pid]})
    assert list(shares.seconds_a_step()) == ["ranks"]
