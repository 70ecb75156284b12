"""Ports with a rate: order, times, room; and the alarm that wakes the loop for them."""

from __future__ import annotations

import select
import time
from dataclasses import replace

import pytest

from mrc_testbed.hosts.agent.timerfd import TimerFd
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_codec import rc_write_size
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcWrite
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, write_size
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Nack,
    Opcode,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.nic.base import NO_LIMIT, Nic
from mrc_testbed.hosts.nic.netlink import LinkState
from mrc_testbed.hosts.nic.paced import CONTROL_RING, DATA_MOST, DATA_RING, PacedNic, PacedPort, inner_bytes
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 2, 2)
MS = 1e-3
FRAME = 1000
"""Bytes; 8 ms at RATE."""
RATE = 1e6


def port() -> PacedPort:
    return PacedPort(RATE, FRAME)


def sent(paced_port: PacedPort, now: float) -> list[str]:
    return [peer for peer, _ in paced_port.take(now)]


def put(paced_port: PacedPort, name: str, now: float, control: bool = False, size: int = FRAME) -> bool:
    return paced_port.put((name, None), size, control, now)


def test_port__a_frame_leaves_when_its_last_bit_has():
    paced_port = port()
    assert put(paced_port, "a", 1.0)
    assert paced_port.next_at == pytest.approx(1.008)
    assert sent(paced_port, 1.005) == []
    assert sent(paced_port, 1.006) == ["a"]  # a quarter of its time early
    assert paced_port.next_at is None


def test_port__serialises_and_keeps_the_rate_however_late_the_loop_is():
    paced_port = port()
    for name in "abc":
        put(paced_port, name, 0.0)
    assert sent(paced_port, 0.0161) == ["a", "b"]
    assert paced_port.next_at == pytest.approx(0.024)
    put(paced_port, "d", 0.0231)
    assert sent(paced_port, 0.1) == ["c", "d"]
    put(paced_port, "e", 0.1)
    assert paced_port.next_at == pytest.approx(0.108)


def test_port__what_left_early_still_takes_its_time():
    paced_port = port()
    put(paced_port, "a", 0.0)
    assert sent(paced_port, 0.006) == ["a"]
    put(paced_port, "b", 0.006)
    assert paced_port.next_at == pytest.approx(0.016)


def test_port__a_short_frame_waits_for_no_wake_up_of_its_own():
    paced_port = port()
    put(paced_port, "sack", 1.0, control=True, size=FRAME // 4)
    put(paced_port, "b", 1.0)
    assert sent(paced_port, 1.0) == ["sack"]
    assert paced_port.next_at == pytest.approx(1.010)  # it takes its time on the wire all the same


def test_port__control_goes_before_data_but_interrupts_no_frame():
    paced_port = port()
    for name in "ab":
        put(paced_port, name, 0.0)
    put(paced_port, "sack", 0.001, control=True, size=100)
    assert sent(paced_port, 1.0) == ["a", "sack", "b"]


def test_port__counts_what_left_late():
    paced_port = port()
    for name in "ab":
        put(paced_port, name, 0.0)
    assert sent(paced_port, 0.0089) == ["a"]
    assert (paced_port.frames, paced_port.late_frames) == (1, 0)
    assert sent(paced_port, 0.026) == ["b"]
    assert (paced_port.frames, paced_port.late_frames, paced_port.late_max_s) == (2, 1, pytest.approx(0.010))


def test_port__room_is_the_ring_and_the_wire():
    paced_port = port()
    assert paced_port.room == DATA_RING + 1
    for n in range(DATA_RING + 1):
        put(paced_port, str(n), 0.0)
    assert paced_port.room == 0 and paced_port.control_room == CONTROL_RING
    assert put(paced_port, "probe", 0.0)  # something that has to take this port
    assert paced_port.room == 0
    sent(paced_port, 0.008)
    assert paced_port.room == 0
    sent(paced_port, 0.016)
    assert paced_port.room == 1


def test_port__queues_are_bounded():
    paced_port = port()
    assert sum(put(paced_port, "d", 0.0) for _ in range(200)) == 1 + DATA_MOST
    assert sum(put(paced_port, "c", 0.0, control=True) for _ in range(500)) == CONTROL_RING
    assert paced_port.control_room == 0
    assert paced_port.clear() == 1 + DATA_MOST + CONTROL_RING
    assert (paced_port.next_at, paced_port.room) == (None, DATA_RING + 1)


# ---- around a NIC -------------------------------------------------------------------------------------------


class Wire(Nic):
    """A NIC that notes what it is given."""

    kind = "fast"

    def __init__(self, plan: Plan = PLAN) -> None:
        super().__init__(plan, plan.hosts[0])
        self.out: list[tuple[int, str]] = []

    def send(self, plane, peer, packet):
        self.out.append((plane, type(packet).__name__))

    def filenos(self):
        return {}

    def flush(self):
        pass

    def receive(self, limit):
        return []

    def link_changed(self, plane, state):
        return False

    def close(self):
        pass


def a_write(payload: int = 1024, plane: int = 0) -> Write:
    size = write_size(Opcode.WRITE_ONLY, payload, True)
    return Write(7, 0, plane, 4, 2, Opcode.WRITE_ONLY, 9, 1, 0, 2, 5, bytes(payload), size, timestamp=1, tsr=1)


SACK = Sack(7, 0, 0, 46, 0, 9, 1, 0, 0, None, 0, 0, 1, 0, 0, 0, 0, False, False, 0, 0)


class Rig:
    def __init__(self, rates: dict[int, float], plan: Plan = PLAN) -> None:
        self.now = 0.0
        self.wire = Wire(plan)
        self.nic = PacedNic(self.wire, rates, Config().dscp.control, lambda: self.now)


def test_nic__frames_wait_for_their_port():
    rig = Rig({0: 10e6, 1: 10e6})
    assert rig.nic.room() == [DATA_RING + 1] * 2 and rig.nic.next_at() is None
    rig.nic.send(0, "h2", a_write())
    rig.nic.send(0, "h2", a_write())
    rig.nic.send(0, "h2", SACK)
    rig.nic.send(1, "h2", a_write())
    rig.nic.flush()
    assert rig.wire.out == []
    assert rig.nic.next_at() == pytest.approx(PLAN.frame_bytes(1024) * 8 / 10e6)
    assert rig.nic.room() == [DATA_RING - 1, DATA_RING]
    rig.now = rig.nic.next_at()
    rig.nic.flush()
    assert rig.wire.out == [(0, "Write"), (0, "Sack"), (1, "Write")]  # its time is less than a quarter of a frame's
    rig.now = 1.0
    rig.nic.flush()
    assert rig.wire.out[3:] == [(0, "Write")]
    assert rig.nic.pacing()["0"]["frames"] == 3
    rig.nic.send(1, "h2", a_write())  # an idle NIC takes up again
    assert rig.nic.next_at() > 1.0
    rig.now = 2.0
    rig.nic.flush()
    assert rig.wire.out[-1] == (1, "Write") and rig.nic.pacing()["1"]["late"] == 1


def test_nic__room_is_the_ports_at_every_time():
    rig = Rig({0: 10e6, 1: 10e6})

    def expected_room() -> tuple[list[int], list[int]]:
        ports = [rig.nic._paced_ports[plane] for plane in (0, 1)]
        data = [max(0, DATA_RING - len(p._data)) + (p._now_sending is None) for p in ports]
        return data, [CONTROL_RING - len(p._control) for p in ports]

    for step in range(40):
        for number in range(step % 5):
            rig.nic.send((step + number) % 2, "h2", SACK if number % 3 == 2 else a_write())
            assert (rig.nic.room(), rig.nic.control_room()) == expected_room()
        rig.now += 0.0004
        rig.nic.flush()
        assert (rig.nic.room(), rig.nic.control_room()) == expected_room()
    rig.nic.link_changed(1, LinkState(5, admin_up=True, carrier=False))
    assert (rig.nic.room(), rig.nic.control_room()) == expected_room()
    rig.nic.set_rate(0, None)
    assert rig.nic.room() == [NO_LIMIT, DATA_RING + 1]


def test_nic__ports_without_a_rate_send_at_once():
    rig = Rig({1: 10e6})
    rig.nic.send(0, "h2", a_write())
    assert rig.wire.out == [(0, "Write")]
    assert rig.nic.room()[0] == rig.nic.control_room()[0] == NO_LIMIT
    assert Rig({}).nic.room() is None


def test_nic__a_port_whose_frames_the_kernel_does_not_take_has_no_room():
    for rates, other_room in (({0: 10e6, 1: 10e6}, DATA_RING + 1), ({}, NO_LIMIT)):
        rig = Rig(rates)
        rig.wire.room = lambda: [0, NO_LIMIT]
        assert rig.nic.room() == [0, other_room]
        assert rig.nic.control_room() == [0, CONTROL_RING if rates else NO_LIMIT]


def test_nic__what_waits_at_a_port_that_goes_down_is_lost():
    rig = Rig({0: 10e6, 1: 10e6})
    for _ in range(3):
        rig.nic.send(0, "h2", a_write())
    rig.nic.link_changed(0, LinkState(5, admin_up=True, carrier=False))
    assert rig.nic.counters[0].tx_dropped == {"port down": 3}
    assert rig.nic.next_at() is None


def test_nic__rates_change_while_it_runs():
    rig = Rig({0: 10e6})
    rig.nic.send(0, "h2", a_write())
    rig.nic.set_rate(0, None)
    assert rig.nic.counters[0].tx_dropped == {"rate changed": 1}
    rig.nic.set_rate(1, 1e6)
    assert rig.nic.rates == {1: 1e6}
    for _ in range(100):
        rig.nic.send(1, "h2", a_write(plane=1))
    assert rig.nic.counters[1].tx_dropped == {"no buffer": 100 - DATA_MOST - 1}


@pytest.mark.parametrize(
    "record",
    [
        a_write(),
        a_write(5),
        replace(a_write(), timestamp=None, tsr=0),
        SACK,
        Nack(7, 0, 0, 46, 0, 9, 1, 0),
        TransportAck(7, 0, 0, 46, 0, 9, 31, 1),
        ReliabilityProbe(7, 0, 0, 4, 2, 1, 1, 1),
        EndpointRequest(2, 0, 0, 46, 0, 1, EndpointOp.EV_PROBE, 0, 1, 1),
        EndpointResponse(2, 0, 0, 46, 0, 1, EndpointOp.EV_PROBE, 1),
        RcWrite(7, 0, 0, 0, 2, RcOpcode.WRITE_ONLY, 9, bytes(6), rc_write_size(RcOpcode.WRITE_ONLY, 6), 1, 2, 6),
        RcAck(7, 0, 0, 46, 0, 9, 0x1F, 1),
        Cnp(7, 0, 0, 46, 0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_inner_bytes__what_the_codec_makes(record):
    addressing = Addressing(bytes(16), bytes(15) + b"\1")
    assert inner_bytes(record) == len(Codec().encode(record, addressing).join())


# ---- the alarm ----------------------------------------------------------------------------------------------


@pytest.fixture
def alarm():
    timer = TimerFd()
    yield timer
    timer.close()
    timer.close()


def rings(alarm: TimerFd, timeout_s: float) -> bool:
    return bool(select.select([alarm.fileno()], [], [], timeout_s)[0])


def test_alarm__rings_at_its_time_and_is_quiet_when_armed_again(alarm):
    now = time.monotonic()
    assert alarm.wait(now + 0.002, now) is None
    assert rings(alarm, 10)
    assert time.monotonic() >= now + 0.002
    now = time.monotonic()
    assert alarm.wait(now + 60, now) is None
    assert not rings(alarm, 0)


def test_alarm__a_time_that_has_come_needs_none(alarm):
    assert alarm.wait(1.0, 1.0) == 0.0
    assert alarm.wait(None) is None
    assert not rings(alarm, 0)


def test_alarm__a_later_deadline_keeps_the_earlier_time(alarm, monkeypatch):
    armed_times = []
    monkeypatch.setattr(
        alarm, "_set", lambda deadline: (armed_times.append(deadline), setattr(alarm, "_armed_for", deadline))
    )
    alarm.wait(20.0, 10.0)
    alarm.wait(30.0, 11.0)  # rings at 20, nothing to do then
    alarm.wait(15.0, 12.0)
    alarm.wait(30.0, 16.0)
    alarm.wait(None, 17.0)  # as above
    alarm.wait(None, 31.0)
    alarm.wait(None, 32.0)
    assert armed_times == [20.0, 15.0, 30.0, 0.0]
