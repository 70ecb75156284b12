"""A program reaches its own objects alone, and what it does wrong ends it, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from mrc_testbed.hosts.nicd import program as program_module
from mrc_testbed.hosts.nicd.layout import KIND_RECV, NUMBERS, VERSION
from tests.hosts.nicd.connected import Connected
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import EndedError, RawProgram, sealed_pages

LOC_LEN_ERR, LOC_PROT_ERR, FLUSH_ERR = 1, 4, 5


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    with NicProcesses(tmp_path_factory.mktemp("nic")) as processes:
        yield processes


@pytest.fixture
def program(processes):
    with RawProgram(processes.sockets["a"]) as program:
        yield program


@pytest.fixture
def victim(processes):
    with RawProgram(processes.sockets["a"]) as program:
        yield program


def assert_ended(program, caplog, reason):
    with pytest.raises(EndedError):
        program.receive()
    assert f"is ended: {reason}" in caplog.text


def test_objects_of_another_program__are_not_there(program, victim):
    pd, cq = victim.number("ALLOC_PD"), victim.number("CREATE_CQ", 16, 0)
    qpn, key = victim.queue_pair(pd, cq), victim.memory(pd)
    assert program.to_state(qpn, 6) == errno.ENOENT
    for name, number in (
        ("QUERY_QP", qpn),
        ("DESTROY_QP", qpn),
        ("DEREG_MR", key),
        ("DESTROY_CQ", cq),
        ("DEALLOC_PD", pd),
    ):
        assert program.call(name, number)[0] == errno.ENOENT, name
    program.post(qpn, [(1 << 32, 8, key)])
    assert program.call("STATUS")[0] == 0  # the post has been seen, and was nobody's
    assert victim.call("QUERY_QP", qpn)[1][0] == 0


def test_key_of_another_program__is_no_region(processes, program, victim):
    key = victim.memory(victim.number("ALLOC_PD"))
    end = Connected(processes, program)
    program.post(end.qpn, [(1 << 32, 8, key)])
    assert end.status() == LOC_PROT_ERR
    program.post(end.qpn, [(1 << 32, 8, end.key)])
    assert end.status() == FLUSH_ERR


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ((1 << 32, 0, 0), errno.EINVAL),
        (((1 << 64) - 1, (1 << 64) - 1, 0), errno.EINVAL),
        ((1 << 63, 4096, 0), errno.EINVAL),
        (((1 << 47) - 4096, 8192, 0), errno.EINVAL),
        ((1 << 32, 4096, (1 << 64) - 1), errno.EINVAL),
        ((0, 1 << 46, 0), errno.ENOMEM),
    ],
)
def test_reg_mr__refuses_ranges_that_are_no_memory(program, values, error):
    pd = program.number("ALLOC_PD")
    assert program.call("REG_MR", pd, *values, 3)[0] == error
    assert program.memory(pd)


def test_regions__have_a_share_of_the_descriptors(program, monkeypatch):
    monkeypatch.setattr(program_module, "MAX_OBJECTS", 10)
    pd = program.number("ALLOC_PD")
    answers = [program.call("REG_MR", pd, 1 << 32, 4096, 0, 3)[0] for _ in range(12)]
    assert answers == [0] * 10 + [errno.ENOMEM] * 2
    assert program.call("CREATE_CQ", 4, 0)[0] == errno.ENOMEM
    assert program.call("CREATE_CHANNEL")[0] == errno.ENOMEM


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("MAX_QPS", "a process may have 5 QPs"),
        ("MAX_REQUESTS", "a process may have 700 requests in its QPs"),
        ("MAX_ENTRIES", "a process may have 700 entries in its CQs"),
        ("MAX_OBJECTS", "a process may have 5 protection domains"),
    ],
)
def test_limits__are_of_all_programs_of_a_process_together(processes, program, victim, monkeypatch, limit, text):
    """The limits of query_device, and of the memory behind them; both programs are of the test's process."""
    monkeypatch.setattr(program_module, limit, 5 if limit in ("MAX_QPS", "MAX_OBJECTS") else 700)
    numbers = [(owner, owner.number("ALLOC_PD"), owner.number("CREATE_CQ", 4, 0)) for owner in (program, victim)]
    requests = {
        "MAX_QPS": lambda pd, cq: ("CREATE_QP", pd, cq, cq, 1, 1, 1, 1, 0, 0, 0),
        "MAX_REQUESTS": lambda pd, cq: ("CREATE_QP", pd, cq, cq, 100, 40, 1, 1, 0, 0, 0),
        "MAX_ENTRIES": lambda _pd, _cq: ("CREATE_CQ", 128, 0),
        "MAX_OBJECTS": lambda _pd, _cq: ("ALLOC_PD",),
    }
    errors, texts = [], []
    for _ in range(4):
        for owner, pd, cq in numbers:
            name, *values = requests[limit](pd, cq)
            owner.send(NUMBERS[f"OP_{name}"], tuple(values), [])
            error, _, _ = owner.receive()
            errors.append(error)
            texts += [owner.text] if error else []
    success_count = 3 if limit == "MAX_OBJECTS" else 5
    assert errors == [0] * success_count + [errno.ENOMEM] * (8 - success_count)
    assert set(texts) == {text}


def test_limits__of_open_devices_leave_those_that_are_open(processes, program, monkeypatch):
    monkeypatch.setattr(program_module, "MAX_CONTEXTS", 1)
    with RawProgram(processes.sockets["a"], hello=False) as second:
        second.fds.append(sealed_pages())
        assert second.call("HELLO", VERSION, fds=second.fds[:1])[0] == errno.ENOMEM
        assert second.text == "a process may have 1 open devices"
    assert program.call("STATUS")[0] == 0


def test_limits__are_those_that_the_device_tells(program, monkeypatch):
    monkeypatch.setattr(program_module, "MAX_OBJECTS", 77)
    _, values, _ = program.call("QUERY_DEVICE")
    limits = [values[NUMBERS[f"DEVICE_MAX_{name}"]] for name in ("QP", "CQ", "MR", "PD")]
    assert limits == [program_module.MAX_QPS, 77, 77, 77]


def test_reset__with_more_posts_than_a_turn_takes(processes, program):
    end = Connected(processes, program)
    qpn = program.queue_pair(end.pd, end.cq, 4096)
    with RawProgram(processes.sockets["b"]) as peer:
        program.connect(qpn, 0x4321, peer.gid())
    for life in range(3):
        for _ in range(1000):
            program.post(qpn, [(1 << 32, 1, end.key)], flags=0)
        assert program.to_state(qpn, 0) == 0
        program.serials.clear()
        assert program.to_state(qpn, 1, 1 << 3 | 1 << 4) == 0, life
        program.post(qpn, [], kind=KIND_RECV)
        assert program.to_state(qpn, 0) == 0
        program.serials.clear()
        with RawProgram(processes.sockets["b"]) as peer:
            program.connect(qpn, 0x4321, peer.gid())


def test_number_that_is_used_again__has_no_completions_of_the_queue_pair_before(processes, program):
    end = Connected(processes, program)
    hardware = processes.daemons[0]._device.hardware
    endpoint = hardware.driver.endpoint
    qpn = program.queue_pair(end.pd, end.cq)
    for _ in range(600):  # the ring has 256 slots
        program.post(qpn, [(1 << 32, 8, end.key)])  # in RESET: fails at once
        if program.serials[qpn, 1] == 64:
            program.call("DESTROY_QP", qpn)
            program.serials.clear()
            endpoint._next_qpn = None if endpoint._next_qpn is None else endpoint._next_qpn - 1
            assert program.queue_pair(end.pd, end.cq) == qpn
    assert program.call("STATUS")[0] == 0
    while (entry := program.completion(end.ring, end.index)) is not None:
        end.index += 1
        assert entry[2] == LOC_PROT_ERR
        assert program.call("STATUS")[0] == 0


def test_more_requests_than_the_queue_holds__end_the_program(processes, program, caplog):
    end = Connected(processes, program)
    for _ in range(65):
        program.post(end.qpn, [(1 << 32, 8, end.key)], flags=0)
    assert_ended(program, caplog, "more than 64 requests in a queue")


def test_copies__of_requests_of_several_elements_have_a_limit(processes, program, monkeypatch):
    monkeypatch.setattr(program_module, "MAX_COPIED_BYTES", 100_000)
    end = Connected(processes, program)
    program.post(end.qpn, [(1 << 32, 45_000, end.key)] * 2)
    program.post(end.qpn, [(1 << 32, 45_000, end.key)])
    program.post(end.qpn, [(1 << 32, 45_000, end.key)] * 2)
    assert [end.status() for _ in range(3)] == [FLUSH_ERR, FLUSH_ERR, LOC_LEN_ERR]


def arm_without_end(program, cq):
    """Arm a CQ again and again, as if five entries had been seen."""
    while True:
        for _ in range(100):
            program.post(cq, [], kind=3, serial=5)
        program.call("STATUS")


def test_events__that_are_never_read_end_the_program(processes, program, caplog):
    channel = program.number("CREATE_CHANNEL")
    cq = program.number("CREATE_CQ", 16, channel)

    def arm_for_ever() -> None:
        for _ in range(20_000):
            for _ in range(100):
                program.post(cq, [], kind=3, serial=5)  # ARM, as if five entries had been seen
            program.call("STATUS")

    with pytest.raises(EndedError):
        arm_for_ever()
    assert "it does not read its completion events" in caplog.text


def test_event_of_each_queue__fits_unread(program):
    channel = program.number("CREATE_CHANNEL")
    cqs = [program.number("CREATE_CQ", 4, channel) for _ in range(600)]
    for cq in cqs:
        program.post(cq, [], kind=3, serial=5)
    assert program.call("STATUS")[0] == 0


def test_doorbell__that_the_program_makes_wait_keeps_nobody_waiting(processes, program, victim):
    flags = fcntl.fcntl(program.doorbell, fcntl.F_GETFL)
    fcntl.fcntl(program.doorbell, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
    for _ in range(50):
        program.set_tail(0)
        assert victim.call("QUERY_PORT", 1)[0] == 0
    assert program.call("STATUS")[0] == 0


def test_doorbell__that_is_closed_ends_the_program(program, victim, caplog):
    os.close(program.doorbell)
    program.fds.remove(program.doorbell)
    assert_ended(program, caplog, "it closed its doorbell")
    assert victim.call("STATUS")[0] == 0


def test_hello__with_huge_pages_is_refused(processes, caplog):
    try:
        fd = os.memfd_create("huge", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        os.ftruncate(fd, 1 << 47)
    except OSError as error:
        pytest.skip(f"no huge pages here: {error.strerror}")
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with RawProgram(processes.sockets["a"], hello=False) as program:
        program.fds.append(fd)
        with pytest.raises(EndedError):
            program.call("HELLO", VERSION, fds=[fd])
    assert "bytes in pages of" in caplog.text


def test_hello__of_another_version_says_so(processes):
    with RawProgram(processes.sockets["a"], hello=False) as program:
        program.fds.append(sealed_pages())
        assert program.call("HELLO", VERSION + 1, fds=program.fds[:1])[0] == errno.EPROTO


def test_receive__behind_many_requests_is_there_for_a_write_of_the_peer(processes, program):
    """A turn takes 256 requests; the receive is the last of 4001, and the peer writes once it heard of it."""
    with RawProgram(processes.sockets["b"]) as peer:
        receiver, writer = Connected(processes, program), Connected(processes, peer, "a")
        qpn, peer_qpn = (end.program.queue_pair(end.pd, end.cq, 8192) for end in (receiver, writer))
        program.connect(qpn, peer_qpn, peer.gid())
        peer.connect(peer_qpn, qpn, program.gid())
        program.shows_posts = False
        for _ in range(4000):
            program.post(qpn, [(1 << 32, 1, receiver.key)], remote=1 << 32, rkey=writer.key, flags=0)
        program.shows_posts = True
        program.post(qpn, [], kind=KIND_RECV)
        peer.post(peer_qpn, [], opcode=1)  # WRITE_WITH_IMM of no bytes
        assert writer.status() == 0
        assert receiver.status() == 0
