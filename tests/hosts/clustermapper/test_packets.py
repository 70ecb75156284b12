"""Probes on the wire: what is recognised when it is back, and what the kernel lets through."""

import random
import socket

import pytest

from mrc_testbed.hosts.clustermapper.packets import (
    ETHERNET,
    SO_ATTACH_FILTER,
    NotOursError,
    PortIdentity,
    ProbeTemplate,
    ServiceClass,
    filter_option,
    kernel_filter,
    read,
)
from mrc_testbed.hosts.clustermapper.targets import targets_of
from mrc_testbed.hosts.nic import qpns
from mrc_testbed.topologies.plan import Plan

KEY = b"k" * 16
PAYLOAD_AT = ETHERNET + 40 + 40 + 8


def a_probe(service_class=ServiceClass.CONTROL, mode="srv6", number=1):
    """Return the frame as it comes back, and the identity of its port."""
    plan = Plan(mode=mode)
    target = targets_of(plan)[number]
    identity = PortIdentity.from_plan(plan, target.host, target.plane, mode == "srv6")
    frame = bytearray(ProbeTemplate(target, service_class, 7, identity, KEY).frame(99, 12345))
    if identity.own_usid:
        frame[38:54] = identity.own_usid
    return bytes(frame), identity


@pytest.mark.parametrize("mode", ["srv6", "stev"])
@pytest.mark.parametrize("service_class", ServiceClass)
def test_probe__is_recognised_when_it_is_back(mode, service_class):
    frame, identity = a_probe(service_class, mode)
    assert tuple(read(frame, identity, KEY)) == (1, service_class, 7, 99, 12345, False, False)


def test_probe__trimmed_and_marked():
    frame, identity = a_probe(ServiceClass.DATA)
    assert len(frame) > 138
    for dscp in (12, 16):
        cut = bytearray(frame[:138])
        cut[14:16] = (0x6000 | dscp << 6 | 3 << 4).to_bytes(2, "big")
        probe = read(bytes(cut), identity, KEY)
        assert probe.trimmed and probe.marked and probe.sequence == 99


def test_probe__a_cut_one_that_does_not_say_so_is_lost():
    frame, identity = a_probe(ServiceClass.DATA)
    for length in range(len(frame)):
        with pytest.raises(NotOursError):
            read(frame[:length], identity, KEY)


def test_probe__one_wrong_bit_in_what_it_says_is_lost():
    frame, identity = a_probe(ServiceClass.DATA)
    for bit in range(8 * PAYLOAD_AT, 8 * len(frame)):
        damaged_frame = bytearray(frame)
        damaged_frame[bit // 8] ^= 1 << bit % 8
        with pytest.raises(NotOursError):
            read(bytes(damaged_frame), identity, KEY)


def test_probe__of_another_process_or_port_and_noise():
    frame, identity = a_probe()
    _, foreign_identity = a_probe(number=4)
    rng = random.Random(1)
    for probe_frame, key, port in [(frame, b"x" * 16, identity), (frame, KEY, foreign_identity)]:
        with pytest.raises(NotOursError):
            read(probe_frame, port, key)
    for _ in range(2000):
        noise = bytearray(frame)
        for _ in range(rng.randrange(1, 40)):
            noise[rng.randrange(len(noise))] = rng.randrange(256)
        noise = bytes(noise[: rng.randrange(len(noise) + 1)])
        try:
            probe = read(noise, identity, KEY)
        except NotOursError:
            continue
        assert (probe.target, probe.sequence, probe.sent_ns) == (1, 99, 12345)  # only headers were hit


def passes(code, frame):
    """Return whether a kernel filter lets a frame through, tried on a datagram socket."""
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, receiver:
        value, _program = filter_option(code)
        receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, value)
        receiver.setblocking(False)
        sender.send(frame)
        try:
            return receiver.recv(1 << 16) == frame
        except BlockingIOError:
            return False


@pytest.mark.parametrize("mode", ["srv6", "stev"])
def test_kernel_filter__takes_probes_and_nothing_else(mode):
    frame, _ = a_probe(mode=mode)
    code = kernel_filter(mode == "srv6")
    assert passes(code, frame)
    to_mrc = frame.replace((3785).to_bytes(2, "big"), (4791).to_bytes(2, "big"))
    assert not passes(code, to_mrc)
    assert not passes(code, frame[:50])
    other_mode_frame, _ = a_probe(mode="stev" if mode == "srv6" else "srv6")
    assert not passes(code, other_mode_frame)


def test_kernel_filter__of_the_agents_holds_probes_back():
    frame, _ = a_probe()
    assert not passes(qpns.program(qpns.AGENT_QPNS[0], qpns.AGENT_QPNS[-1], True), frame)
