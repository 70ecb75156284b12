"""Any bytes on a program's socket are a request, or are refused with their descriptors closed."""

from __future__ import annotations

import array
import errno
import os
import socket
from random import Random

import pytest

from mrc_testbed.hosts.nicd import messages
from mrc_testbed.hosts.nicd.layout import HEAD, MAGIC, MAX_TEXT, MAX_VALUES
from mrc_testbed.hosts.nicd.messages import MessageError, Reply

EDGES = (0, 1, 2, MAX_VALUES, MAX_VALUES + 1, 1 << 16, (1 << 29) - 1, 1 << 31, (1 << 32) - 1)


@pytest.fixture
def ends():
    """Ends of a connection: the NIC process's, which does not wait, and the program's."""
    nic_end, program_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nic_end.setblocking(False)
    with nic_end, program_end:
        yield nic_end, program_end


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def request(operation=5, values=(), magic=MAGIC, count=None, text=0):
    head = HEAD.pack(magic, operation, len(values) if count is None else count, text)
    return head + b"".join(value.to_bytes(8, "little") for value in values)


def send_fds(program_end, data, count):
    """Send bytes with so many descriptors, and keep none of these."""
    fds = [os.memfd_create("test") for _ in range(count)]
    program_end.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    messages.close_all(fds)


def random_message(rng):
    """Return bytes that are a request but for a field, a length or a few bytes."""
    values = [rng.getrandbits(64) for _ in range(rng.choice((0, 1, 3, MAX_VALUES)))]
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.choice((1, 15, 16, 17, 24, 2064, 4200)))
    if kind == 1:
        return request(rng.choice(EDGES), values, rng.choice((MAGIC, MAGIC + 1)), rng.choice(EDGES), rng.choice((0, 8)))
    data = bytearray(request(rng.getrandbits(32), values))
    if kind == 2:
        del data[rng.randrange(1, len(data)) :]
    elif kind == 3:
        data += rng.randbytes(rng.choice((1, 8, 4000)))
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def send_without_end(nic_end):
    while True:
        messages.send(nic_end, Reply([0] * MAX_VALUES))


def test_receive__gives_operation_values_and_descriptors(ends):
    nic_end, program_end = ends
    program_end.send(request(7, (1, (1 << 64) - 1)))
    assert messages.receive(nic_end) == messages.ProgramRequest(7, (1, (1 << 64) - 1))
    program_end.send(request(7, [3] * MAX_VALUES))
    assert len(messages.receive(nic_end).values) == MAX_VALUES
    send_fds(program_end, request(), 4)
    fds = messages.receive(nic_end).fds
    assert len(fds) == 4 and not any(os.get_inheritable(fd) for fd in fds)
    messages.close_all(fds)


def test_receive__without_a_request_or_a_program(ends):
    nic_end, program_end = ends
    with pytest.raises(BlockingIOError):
        messages.receive(nic_end)
    program_end.close()
    assert messages.receive(nic_end) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x", "1 bytes, less than its header"),
        (request(magic=1), "with magic 0x1"),
        (request(count=1), "and 1 values"),
        (request(values=(1,), count=0), "of 24 bytes"),
        (request(count=MAX_VALUES + 1, values=[0] * (MAX_VALUES + 1)), f"and {MAX_VALUES + 1} values"),
        (request(text=8) + b"8 bytes.", "of 24 bytes"),
        (request(values=[0] * MAX_VALUES) + bytes(MAX_TEXT + 1), "request of"),
    ],
)
def test_receive__refuses_and_closes_descriptors(ends, data, reason):
    nic_end, program_end = ends
    old_count = descriptors()
    send_fds(program_end, data, 2)
    with pytest.raises(MessageError, match=reason):
        messages.receive(nic_end)
    assert descriptors() == old_count


def test_receive__refuses_more_descriptors_than_any_request_has(ends):
    nic_end, program_end = ends
    old_count = descriptors()
    send_fds(program_end, request(), 200)
    with pytest.raises(MessageError, match="too many bytes or descriptors"):
        messages.receive(nic_end)
    assert descriptors() == old_count


def test_random_bytes__are_a_request_or_refused(ends):
    nic_end, program_end = ends
    rng, old_count = Random(1), descriptors()
    request_count = refused_count = 0
    for _ in range(3000):
        data, fd_count = random_message(rng), rng.choice((0, 0, 0, 1, 4, 5, 30))
        send_fds(program_end, data, fd_count) if fd_count else program_end.send(data)
        try:
            received = messages.receive(nic_end)
        except MessageError:
            refused_count += 1
        else:
            request_count += 1
            assert request(received.operation, received.values) == data and len(received.fds) == fd_count
            messages.close_all(received.fds)
    assert request_count > 100 and refused_count > 1000
    assert descriptors() == old_count


def test_send__gives_errno_values_text_and_descriptors(ends):
    nic_end, program_end = ends
    with open(os.devnull, "rb") as file:
        messages.send(nic_end, Reply([1, 2], [file.fileno()], errno=errno.ENOMEM, text="ü" * MAX_TEXT))
    data, fds, _, _ = socket.recv_fds(program_end, 1 << 16, 8)
    messages.close_all(fds)
    assert len(fds) == 1
    assert HEAD.unpack_from(data) == (MAGIC, errno.ENOMEM, 2, MAX_TEXT)
    assert data[HEAD.size :] == request(values=(1, 2))[HEAD.size :] + ("ü" * MAX_TEXT).encode()[:MAX_TEXT]


def test_send__to_a_program_that_reads_nothing_does_not_wait(ends):
    nic_end, program_end = ends
    with pytest.raises(BlockingIOError):
        send_without_end(nic_end)
    program_end.close()
    for _ in range(2):  # the kernel tells once of replies that nobody read
        with pytest.raises(ConnectionError):
            messages.send(nic_end, Reply())


def test_close_all__does_not_mind_closed_ones():
    fd = os.open(os.devnull, os.O_RDONLY)
    messages.close_all([fd, fd, -1])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
