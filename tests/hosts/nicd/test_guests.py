"""Guests of a NIC process: who they are, what they may have, and what the controller says to them."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import stat
import subprocess
import threading

import pytest

from mrc_testbed.hosts.nicd import daemon, guests, messages
from mrc_testbed.hosts.nicd import program as program_module
from mrc_testbed.hosts.nicd.guests import Caller
from mrc_testbed.hosts.nicd.layout import VERSION
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import EndedError, RawProgram

GUEST, STRANGER = 4_000_001, 4_000_002


@pytest.fixture
def processes(tmp_path):
    """NIC processes with a second socket, for a guest."""
    with NicProcesses(tmp_path, guests=(GUEST,)) as processes:
        yield processes


@pytest.fixture
def as_user(monkeypatch):
    """Let the callers from now on be processes of a user, with a limit of locked memory."""

    def become(user: int, locked_limit: int | None = None, pid: int = 7) -> None:
        monkeypatch.setattr(daemon, "caller_of", lambda _connection: Caller(pid, user, locked_limit))

    return become


def test_refusal__is_for_all_but_root_the_owner_and_guests():
    assert [guests.refusal(user, (GUEST,)) for user in (0, os.geteuid(), GUEST)] == [None] * 3
    assert f"user {STRANGER} may not" in guests.refusal(STRANGER, (GUEST,))


def test_caller__is_what_the_kernel_says_with_the_limit_of_its_process():
    sleeper = subprocess.Popen(
        ["sleep", "60"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (123 << 10, 123 << 10))
    )
    try:
        assert guests._locked_limit(sleeper.pid) == 123 << 10
    finally:
        sleeper.kill()
        sleeper.wait()
    assert guests._locked_limit(sleeper.pid) == guests._locked_limit(0) == 0
    own_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own_end, far_end:
        assert guests.caller_of(own_end) == Caller(os.getpid(), os.geteuid())


def test_socket_for_guests__is_open_to_all_and_goes_with_the_process(tmp_path):
    with NicProcesses(tmp_path, guests=(GUEST,)) as processes:
        path = processes.guest_sockets["a"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert stat.S_IMODE(processes.sockets["a"].stat().st_mode) == 0o600
    assert not path.exists()


def test_stranger__hears_why_he_is_turned_away(processes, as_user):
    as_user(STRANGER)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(20)
        connection.connect(str(processes.guest_sockets["a"]))
        reply = connection.recv(4096)
        assert reply[4:8] == errno.EPERM.to_bytes(4, "little") and b"mrc up --allow USER" in reply
        assert connection.recv(1) == b""
    assert not processes.daemons[0]._programs


def test_guest__has_no_controller(processes, as_user):
    as_user(GUEST)
    with RawProgram(processes.guest_sockets["a"]) as program:
        assert program.call("CTL_QUERY_DEVICE")[0] == errno.EPERM


def test_guest__registers_what_his_process_may_lock(processes, as_user):
    as_user(GUEST, 1 << 20)
    with RawProgram(processes.guest_sockets["a"]) as first, RawProgram(processes.guest_sockets["a"]) as second:
        pds = [program.number("ALLOC_PD") for program in (first, second)]
        key = first.memory(pds[0], length=(1 << 20) - 4096)
        # The second context is the same process's, and a byte takes a page, two where it spans them.
        assert second.call("REG_MR", pds[1], (1 << 32) + 4095, 2, 0, 3)[0] == errno.ENOMEM
        assert second.call("REG_MR", pds[1], (1 << 32) + 4095, 1, 0, 3)[0] == 0
        assert second.call("REG_MR", pds[1], 1 << 32, 1, 0, 3)[0] == errno.ENOMEM
        assert first.call("DEREG_MR", key)[0] == 0
        assert second.call("REG_MR", pds[1], 1 << 32, 1, 0, 3)[0] == 0
        as_user(GUEST, 1 << 20, pid=8)
        with RawProgram(processes.guest_sockets["a"]) as child:
            assert child.memory(child.number("ALLOC_PD"), length=1 << 20)


def test_guest__shares_objects_among_his_programs_and_others_have_theirs(processes, as_user, monkeypatch):
    monkeypatch.setattr(program_module, "MAX_OBJECTS", 8)
    as_user(GUEST)
    with RawProgram(processes.guest_sockets["a"]) as first, RawProgram(processes.guest_sockets["a"]) as second:
        errors = [program.call("CREATE_CQ", 16, 0)[0] for program in (first, second) for _ in range(5)]
        assert errors == [0] * 8 + [errno.ENOMEM] * 2
        as_user(0)
        with RawProgram(processes.sockets["a"]) as program:
            assert [program.call("CREATE_CQ", 16, 0)[0] for _ in range(9)] == [0] * 8 + [errno.ENOMEM]


def test_guest__leaves_others_their_programs(processes, as_user, monkeypatch):
    monkeypatch.setattr(daemon, "MAX_PROGRAMS", 2 * program_module.SHARES)
    as_user(GUEST)
    with RawProgram(processes.guest_sockets["a"]), RawProgram(processes.guest_sockets["a"]):
        with RawProgram(processes.guest_sockets["a"], hello=False) as third:
            third.socket.settimeout(20)
            assert b"has 2 programs on this device, the limit" in third.socket.recv(4096)
        as_user(0)
        with RawProgram(processes.sockets["a"]) as program:
            assert program.number("ALLOC_PD")


def test_guest__leaves_others_their_queue_pairs(processes, as_user, monkeypatch):
    monkeypatch.setattr(type(processes.drivers[0]), "max_qps", 2 * program_module.SHARES)
    as_user(GUEST)
    with RawProgram(processes.guest_sockets["a"]) as first, RawProgram(processes.guest_sockets["a"]) as second:
        for program in (first, second):
            pd, (_, (cq, _), _) = program.number("ALLOC_PD"), program.call("CREATE_CQ", 16, 0)
            assert program.queue_pair(pd, cq)
        error, *_ = second.call("CREATE_QP", pd, cq, cq, 1, 1, 1, 1, 0, 0, 0)
        assert error == errno.ENOMEM


def test_guest__who_sends_files_holds_nobody_up_and_is_heard_no_more(processes, as_user, monkeypatch, caplog):
    monkeypatch.setattr(daemon, "MAX_STRIKES", 2)
    release, closed_fds = threading.Event(), []

    def close_slowly(fds):
        """Stand for a file whose file system keeps whoever closes it waiting."""
        if threading.current_thread().name == "foreign files":
            closed_fds.extend(fds)
            release.wait()
        for fd in fds:
            os.close(fd)

    monkeypatch.setattr(messages, "close_all", close_slowly)
    as_user(GUEST)
    with RawProgram(processes.guest_sockets["a"]) as program:
        for _ in range(2):
            with RawProgram(processes.guest_sockets["a"], hello=False) as hostile, pytest.raises(EndedError):
                hostile.call("HELLO", VERSION, fds=[0])
        assert program.number("ALLOC_PD")
        with RawProgram(processes.guest_sockets["a"], hello=False) as hostile:
            assert b"no more is heard of him" in hostile.socket.recv(4096)
    processes.wait_until(lambda: len(closed_fds) == 2)
    release.set()


def test_log__ends():
    is_kept = guests.first_records(3)
    records = [logging.LogRecord("nicd", logging.INFO, "", 0, "%s", ("mistake",), None) for _ in range(5)]
    assert [is_kept(record) for record in records] == [True, True, True, False, False]
    assert records[1].getMessage() == "mistake" and "last line" in records[2].getMessage()
