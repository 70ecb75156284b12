"""Controller's requests of a program, besides those that C programs show (test_libmrc_control.py)."""

from __future__ import annotations

import errno
import socket

import pytest

from mrc_testbed.hosts.nicd.control import MAX_BATCH_REQUESTS, MAX_BATCHES, ProgramControl
from mrc_testbed.hosts.nicd.layout import EP_COUNT, EP_RESPONSE, EV_EVENT, gid_halves
from mrc_testbed.hosts.nicd.messages import MessageError
from mrc_testbed.hosts.nicd.rings import CompletionRing
from mrc_testbed.hosts.verbs import VerbsError, VirtualWire
from mrc_testbed.hosts.verbs.control_types import AUTO_PROFILE, EvEntry, EvStateMask

TIMEOUT_NS = 1_000_000_000
STEV = 1
INIT, OFFLINE, ONLINE = 0, 1, 2
STATE = 1 << 0
EXPLICIT = 2
REPLACE = 0


@pytest.fixture
def wire():
    return VirtualWire(planes=2, uplinks=2)


@pytest.fixture
def control(wire):
    device = wire.open("a")
    wire.open("b")
    control = ProgramControl(device)
    yield control
    control.close()
    device.close()


def probe(wire, number=1, uplink=0):
    """Values of a probe from a to b over port 2."""
    gid = gid_halves(wire.drivers["b"].gids()[1])
    return [number | 2 << 16 | STEV << 32, 0, 0, *gid, (1 << 8 | uplink) << 32, 0]


def send(control, *requests):
    """Send probes; return the program's end of the socket for their outcome."""
    (batch,) = control.ep_add(0, *(value for request in requests for value in request)).values
    programs = socket.socket(fileno=control.ep_send(batch, 0, 10, TIMEOUT_NS).fds[0])
    programs.setblocking(False)
    return programs


def responses(data):
    (count,) = EP_COUNT.unpack_from(data)
    assert len(data) == EP_COUNT.size + count * EP_RESPONSE.size
    return list(EP_RESPONSE.iter_unpack(data[EP_COUNT.size :]))


def make_profile(control):
    control.modify_ev_fmt(13, STATE | 1 << 2 | 1 << 3, OFFLINE, 0, STEV, 8, 8)
    control.modify_ev_fmt(13, STATE, ONLINE, 0, 0)
    control.modify_ev_profile(7, STATE | 1 << 2 | 1 << 3 | 1 << 4, OFFLINE, 0, EXPLICIT, 13, 1, 0, 0)


def test_ep_send__others_are_served_until_the_outcome(wire, control):
    with send(control, probe(wire, 5), probe(wire, 6, uplink=1)) as programs:
        control.deliver()
        with pytest.raises(BlockingIOError):
            programs.recv(1024)
        assert control.query_port(1).values == [1]
        with send(control, probe(wire, 5)) as second:  # a batch of its own: its ids may be those of the first
            while wire.step(None):
                control.deliver()
            control.deliver()
            assert [row[0] for row in responses(second.recv(1024))] == [5]
        rows = responses(programs.recv(1024))
        assert [(number, port) for number, port, _, _ in rows] == [(5, 2), (6, 2)]
        assert all(rtt == pytest.approx(2e9 * wire.delay_s) for _, _, rtt, _ in rows)
        assert programs.recv(1024) == b""


def test_ep_send__an_answer_missing(wire, control):
    wire.cut(0x101)
    with send(control, probe(wire, 5), probe(wire, 6, uplink=1)) as programs:
        while wire.step(None):
            pass
        control.deliver()
        assert [row[0] for row in responses(programs.recv(1024))] == [5]


def test_ep_send__the_program_has_gone(wire, control):
    send(control, probe(wire)).close()
    while wire.step(None):
        pass
    control.deliver()
    with send(control, probe(wire)) as programs:
        control.close()
        assert programs.recv(1024) == b""


def test_ep_add__limits(wire, control):
    with pytest.raises(VerbsError, match="no batch 5") as refusal:
        control.ep_add(5, *probe(wire))
    assert refusal.value.errno == errno.ENOENT
    with pytest.raises(VerbsError, match="no batch 5"):
        control.ep_send(5, 0, 0, TIMEOUT_NS)
    batches = [control.ep_add(0, *probe(wire)).values[0] for _ in range(MAX_BATCHES)]
    with pytest.raises(VerbsError, match="64 batches are in flight") as refusal:
        control.ep_add(0, *probe(wire))
    assert refusal.value.errno == errno.EAGAIN
    for number in range(1, MAX_BATCH_REQUESTS):
        control.ep_add(batches[0], *probe(wire, number))
    with pytest.raises(VerbsError, match="at most 1024 requests") as refusal:
        control.ep_add(batches[0], *probe(wire, 2000))
    assert refusal.value.errno == errno.ENOMEM
    control.ep_add(0, *probe(wire))  # the batch that was too long is forgotten


def test_ev_op__its_format_has_gone(control):
    make_profile(control)
    control.modify_ev_fmt(13, STATE, OFFLINE, 0, 0)
    control.modify_ev_fmt(13, STATE, INIT, 0, 0)
    entry = [0x0001 << 48, 0, 0, 0, 1, 1]
    for call in (lambda: control.ev_op(7, REPLACE, 1, *entry), lambda: control.query_evs(7, 0)):
        with pytest.raises(VerbsError, match="EV profile 7: its EV format profile 13 is INIT, needs ONLINE"):
            call()


def test_ev_op__entries_before_one_that_cannot_be(control):
    make_profile(control)
    entry, long_entry = [0, 0, 0x0001 << 48, 0, 1 << 8, 1], [0, 0, 0x0001_01 << 40, 0, 1 << 8, 1]
    with pytest.raises(VerbsError, match=r"new EV .* has bits behind its first 16"):
        control.ev_op(7, REPLACE, 2, *entry, *long_entry)
    assert control.query_evs(7, 0).values == [1, 0x0001 << 48, 0, 1 | EvStateMask.GOOD << 32]
    with pytest.raises(VerbsError, match="at most 4096 a call") as refusal:
        control.ev_op(7, REPLACE, 4097, *entry)
    assert refusal.value.errno == errno.E2BIG
    with pytest.raises(VerbsError, match="no operation 3"):
        control.ev_op(7, 3, 1, *entry)


def test_requests_of_no_library_of_ours(control):
    for call in (
        lambda: control.ev_op(AUTO_PROFILE, REPLACE, 1, 1, 2, 3),
        lambda: control.ep_add(0, 1, 2),
        lambda: control.modify_ev_profile(7, 0, 1),
        lambda: control.modify_ev_profile(7, 1 << 8, 0, 0, 0, 0, 0, 0, 0, 1, 2),
        lambda: control.modify_cc_profile(5, 0, 0, 0, 1),
    ):
        with pytest.raises(MessageError):
            call()


def test_write_events__what_does_not_fit_waits(control):
    cq, ring = control.create_ev_event_cq(16, None), CompletionRing(1, EV_EVENT)
    for uplink in range(3):
        cq.push(AUTO_PROFILE, EvEntry(uplink, 1), EvStateMask.ASSUMED_BAD, 0.0)
    control.write_events(cq, ring)
    assert (ring.room(), len(cq)) == (0, 1)
    cq.push(AUTO_PROFILE, EvEntry(2, 1), EvStateMask.GOOD, 0.0)  # takes the place of the event that waits
    assert len(cq) == 1
    ring.close()
    ring = CompletionRing(1, EV_EVENT)
    control.write_events(cq, ring)
    row = EV_EVENT.unpack_from(ring.memfd.memory, 4096)
    assert row == (AUTO_PROFILE, 2 << 96 >> 64, 0, 1, EvStateMask.GOOD, 1)
    ring.close()


def test_write_events__profile_has_gone(control):
    cq, ring = control.create_ev_event_cq(16, None), CompletionRing(2, EV_EVENT)
    cq.push(7, EvEntry(1, 1), EvStateMask.GOOD, 0.0)
    control.write_events(cq, ring)
    assert (ring.tail, len(cq)) == (0, 0)
    ring.close()
