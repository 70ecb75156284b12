"""The NIC process's loop: programs that come and go, and descriptors that run out."""

from __future__ import annotations

import resource
import socket
import stat

import pytest

from mrc_testbed.hosts.nicd import daemon
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import EndedError, RawProgram


@pytest.fixture
def processes(tmp_path):
    with NicProcesses(tmp_path) as processes:
        yield processes


def test_socket__is_the_owners_alone_and_goes_with_the_process(tmp_path):
    with NicProcesses(tmp_path) as processes:
        path = processes.sockets["a"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_too_many_programs__are_refused_and_the_others_served(processes, monkeypatch, caplog):
    monkeypatch.setattr(daemon, "MAX_PROGRAMS", 2)
    with RawProgram(processes.sockets["a"]) as first, RawProgram(processes.sockets["a"]) as second:
        with pytest.raises(EndedError):
            RawProgram(processes.sockets["a"])
        assert first.number("ALLOC_PD") and second.number("ALLOC_PD")
    assert "a program is refused: 2 are served, the limit" in caplog.text
    processes.wait_until(lambda: not processes.daemons[0]._programs)
    with RawProgram(processes.sockets["a"]) as third:
        assert third.number("ALLOC_PD")


def test_descriptors_that_run_out__end_no_program(processes, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        RawProgram(processes.sockets["a"]) as program,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as newcomer,
    ):
        pd = program.number("ALLOC_PD")
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (program.fds[-1] + 1, hard))
            errors = [program.call("REG_MR", pd, 1 << 32, 4096, 0, 3)[0] for _ in range(64)]
            newcomer.connect(str(processes.sockets["a"]))
            processes.wait_until(lambda: "cannot accept a program" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert 0 < sum(map(bool, errors)) <= 64
        assert newcomer.recv(1) == b""
        assert program.memory(pd)


def test_program_that_sends_without_end__lets_others_be_served(processes):
    with RawProgram(processes.sockets["a"]) as flood, RawProgram(processes.sockets["a"]) as program:
        for _ in range(50):
            flood.send(16, (), [])
        assert program.call("STATUS")[0] == 0
        assert [flood.receive()[0] for _ in range(50)] == [0] * 50
