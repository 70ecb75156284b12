"""An exception that nobody foresaw ends the program for which it was raised, and no other."""

from __future__ import annotations

import contextlib

import pytest

from tests.hosts.nicd.connected import Connected
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import EndedError, RawProgram

LOC_PROT_ERR = 4


@pytest.fixture
def processes(tmp_path):
    with NicProcesses(tmp_path) as processes:
        yield processes


@pytest.fixture
def program(processes):
    with RawProgram(processes.sockets["a"]) as program:
        yield program


@pytest.fixture
def end(processes, program):
    return Connected(processes, program)


@pytest.fixture
def nic_program(processes, end):
    """Object of the NIC process for `program`."""
    (nic_program,) = processes.daemons[0]._programs.values()
    return nic_program


@pytest.fixture
def bystander(processes, nic_program):
    """Another program, with a QP of its own."""
    with RawProgram(processes.sockets["a"]) as bystander:
        yield Connected(processes, bystander)


def fail(*_arguments, **_options):
    raise RuntimeError("raised by a test")


def ask_until_the_end(program):
    """Ask for anything until the NIC process ends the connection."""
    with contextlib.suppress(EndedError):
        while True:
            program.call("STATUS")


def assert_ended_alone(processes, program, bystander, caplog):
    """Check that a program is ended with its QP and a traceback, and another one is served still."""
    ask_until_the_end(program)
    assert "is ended, as serving it failed" in caplog.text and "raised by a test" in caplog.text
    processes.wait_until(lambda: processes.qp_counts()[0] == 1)
    bystander.program.post(bystander.qpn, [(1 << 32, 8, 0)])
    assert bystander.status() == LOC_PROT_ERR
    assert bystander.program.call("STATUS")[0] == 0


@pytest.mark.parametrize("method", ["_status", "_answer", "_take_records", "deliver", "serve_ring"])
def test_method__that_raises(processes, program, nic_program, bystander, caplog, monkeypatch, method):
    monkeypatch.setattr(nic_program, method, fail)
    assert_ended_alone(processes, program, bystander, caplog)


def test_request__whose_answer_has_an_error_in_its_types_is_no_wrong_request(
    processes, program, nic_program, bystander, caplog, monkeypatch
):
    monkeypatch.setattr(nic_program, "_programs", None)
    with pytest.raises(EndedError):
        program.call("STATUS")
    assert "is ended, as serving it failed" in caplog.text and "AttributeError" in caplog.text
    assert bystander.program.call("STATUS")[0] == 0


def test_record__whose_post_raises(processes, program, end, nic_program, bystander, caplog, monkeypatch):
    monkeypatch.setattr(nic_program._qps[end.qpn].qp, "post_write", fail)
    program.post(end.qpn, [(1 << 32, 8, end.key)])
    assert_ended_alone(processes, program, bystander, caplog)


def test_doorbell__that_raises(processes, program, nic_program, bystander, caplog, monkeypatch):
    class Doorbell:
        recv = fail
        fileno, close = nic_program.doorbell.fileno, nic_program.doorbell.close

    monkeypatch.setattr(nic_program, "doorbell", Doorbell())
    program.set_tail(0)
    assert_ended_alone(processes, program, bystander, caplog)


@pytest.mark.parametrize("method", ["on_completion", "on_error"])
def test_event__that_raises_reaches_the_other_queue_pairs(
    processes, program, end, nic_program, bystander, caplog, monkeypatch, method
):
    monkeypatch.setattr(nic_program._qps[end.qpn].qp, method, fail)
    program.post(end.qpn, [(1 << 32, 8, end.key)])  # to a QP that is not there
    bystander.program.post(bystander.qpn, [(1 << 32, 8, bystander.key)])
    ask_until_the_end(program)
    assert "is ended, as a QP of it failed" in caplog.text and "raised by a test" in caplog.text
    processes.wait_until(lambda: processes.qp_counts()[0] == 1)
    assert bystander.status() != 0
    assert bystander.program.call("STATUS")[0] == 0


@pytest.mark.parametrize("close", ["_control", "_device"])
def test_end__that_raises_ends_all_the_rest(processes, program, nic_program, bystander, caplog, monkeypatch, close):
    part = getattr(nic_program, close)
    close_part = part.close

    def close_and_fail():
        close_part()
        fail()

    monkeypatch.setattr(part, "close", close_and_fail)
    ring = nic_program.ring
    program.close()
    processes.wait_until(lambda: processes.qp_counts()[0] == 1 and len(processes.daemons[0]._programs) == 1)
    assert bystander.program.call("STATUS")[0] == 0
    assert ring.memfd.memory.closed and not nic_program._qps
    assert "raised by a test" in caplog.text


def test_engine__that_raises_ends_the_process(tmp_path, monkeypatch):
    processes = NicProcesses(tmp_path)
    with RawProgram(processes.sockets["a"]) as program:
        monkeypatch.setattr(processes.drivers[0].endpoint, "transmit", fail)
        ask_until_the_end(program)
    with pytest.raises(RuntimeError, match="raised by a test"):
        processes.close()
