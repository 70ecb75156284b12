"""The traffic manager on real interfaces: order, counts, settings while frames flow.

No figure of time is checked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.entities import MulticastGroup, Replica
from mrc_testbed.switch.device.loop import PacketIn, PortEvent
from mrc_testbed.switch.device.port_numbers import CPU_PORT
from mrc_testbed.switch.device.traffic import DEFAULT_SETTINGS, Impairment, PortSettings
from tests.switch.compiled_programs import P4_FOLDER
from tests.switch.device.cabled_ports import Bench, ip, namespace  # noqa: F401
from tests.switch.device.traffic_devices import frame as traffic_frame
from tests.switch.device.traffic_devices import parse_frame
from tests.switch.mini_program import frame

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network interfaces: run as root"),
]

WAIT_S = 10.0


@pytest.fixture
def bench(namespace: None) -> Iterator[Bench]:  # noqa: F811
    with contextlib.closing(Bench()) as bench:
        bench.route(1, 2)
        yield bench


def numbers(bench: Bench, count: int, port: int = 2) -> list[int]:
    """Return field `b` of the next frames that arrive behind a port."""
    return [int.from_bytes(bench.peers[port].receive()[19:21], "big") for _ in range(count)]


def wait_for(condition, *arguments) -> None:
    """Wait for something that must happen."""
    end = time.monotonic() + WAIT_S
    while not condition(*arguments):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def queue(bench: Bench):
    return bench.device.traffic.state(2).queues[0]


def test_rate__every_frame_arrives_in_order_and_unchanged(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=20_000_000, output=Impairment(delay_us=300)))
    sent = [frame(0, b=n, payload=os.urandom(n * 13 % 4000)) for n in range(200)]
    for start in range(0, 200, 40):  # the ring holds 56
        for data in sent[start : start + 40]:
            bench.peers[1].send(data)
        assert [bench.peers[2].receive() for _ in range(40)] == sent[start : start + 40]
    assert (queue(bench).transmit_pkts, queue(bench).depth_packets) == (200, 0)
    assert bench.device.stats().sent == 200
    assert sum(count for _, count in bench.loop.lateness()) > 0


def test_frame_longer_than_a_slot__waits_like_any_other(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=50_000_000))
    sent = [frame(0, payload=os.urandom(size)) for size in (9000, 10, 8000, 9000)]
    for data in sent:
        bench.peers[1].send(data)
    assert [bench.peers[2].receive() for _ in sent] == sent


def test_settings__a_stopped_link_is_released_by_a_new_rate(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=1).with_queue(0, max_packets=10))
    for number in range(20):
        bench.peers[1].send(frame(0, b=number))
    wait_for(lambda: queue(bench).dropped_pkts == 9)
    assert queue(bench).depth_packets == 10
    bench.device.traffic.set(2, PortSettings(rate_bps=10_000_000))
    assert numbers(bench, 11) == list(range(11))
    bench.device.traffic.set(2, DEFAULT_SETTINGS)
    bench.peers[1].send(frame(0, b=99))
    assert numbers(bench, 1) == [99]


def test_impairments__of_input_and_output(bench: Bench) -> None:
    bench.device.traffic.set(1, PortSettings(input=Impairment(loss_pattern="100")))
    bench.device.traffic.set(2, PortSettings(output=Impairment(loss_pattern="01", delay_us=100)))
    for number in range(12):
        bench.peers[1].send(frame(0, b=number))
    assert numbers(bench, 4) == [1, 4, 7, 10]
    assert bench.device.traffic.state(1).input.lost_pkts == 4
    assert bench.device.traffic.state(2).output.lost_pkts == 4


def test_cpu_port__is_not_slowed(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=1))
    bench.route(2, CPU_PORT)
    for number in range(5):
        bench.peers[1].send(frame(0, dst=2, b=number))
        assert bench.wait_event(lambda e: isinstance(e, PacketIn)).frame[20] == number


def test_packet_out__goes_through_the_queue(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=10_000_000))
    for number in range(10):
        bench.loop.inject(bench.device, frame(0, b=number))
    assert numbers(bench, 10) == list(range(10))
    assert queue(bench).transmit_pkts == 10


def test_link_cut__the_queue_is_served_and_frames_vanish_at_the_wire(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=2_000_000))
    ip("link", "set", "s2", "down")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and not e.is_up)
    for number in range(20):
        bench.peers[1].send(frame(0, b=number, payload=bytes(500)))
    wait_for(lambda: bench.loop.ports(bench.device)[2].tx_down == 20)
    assert queue(bench).depth_packets == 0
    ip("link", "set", "s2", "up")
    bench.wait_event(lambda e: isinstance(e, PortEvent) and e.port == 2 and e.is_up)


def test_power_off_and_port_removal__with_frames_waiting(bench: Bench) -> None:
    bench.device.traffic.set(2, PortSettings(rate_bps=100_000, output=Impairment(delay_us=50_000)))
    bench.device.traffic.set(1, PortSettings(input=Impairment(delay_us=50_000)))
    for number in range(30):
        bench.peers[1].send(frame(0, b=number, payload=bytes(500)))
    wait_for(lambda: bench.device.traffic.state(2).queues[0].depth_packets > 0)
    bench.loop.remove_port(bench.device, 2)
    wait_for(lambda: bench.device.stats().dropped_no_port > 0)
    bench.loop.detach(bench.device)
    bench.device.unload()
    assert queue(bench).depth_packets == 0


def test_timestamps__of_a_frame_that_came_before_the_program(bench: Bench) -> None:
    program = compile_program(P4_FOLDER / "traffic.p4")
    bench.device.load(program)
    bench.device.traffic.set(2, PortSettings(rate_bps=1_000_000_000))
    spinner = threading.Thread(target=bench.device.spin, args=(1, bytes(60), 300_000))
    spinner.start()  # holds the device
    bench.peers[1].send(traffic_frame(7))
    bench.device.load(program)  # waits for it, as the forwarding thread does: either may be first
    spinner.join()
    sighting = parse_frame(0, 2, bench.peers[2].receive())
    assert (sighting.number, sighting.ingress_us >> 40, sighting.egress_us >> 40) == (7, 0, 0)


@pytest.mark.parametrize("settings", [DEFAULT_SETTINGS, PortSettings(output=Impairment(loss_pattern="0"))])
def test_copies__of_a_batch_keep_their_frames_until_they_are_sent(bench: Bench, settings: PortSettings) -> None:
    bench.device.load(compile_program(P4_FOLDER / "copies.p4"))
    bench.device.insert_replication(MulticastGroup(1, (Replica(2, 1), Replica(3, 2))))
    for port in (2, 3):
        bench.device.traffic.set(port, settings)
    spinner = threading.Thread(target=bench.device.spin, args=(1, bytes(60), 300_000))
    spinner.start()  # holds the device, so that the frames are dealt with in one batch
    sent = [bytes.fromhex("01 01 00 00 00 00") + os.urandom(200) for _ in range(30)]
    for data in sent:
        bench.peers[1].send(data)
    spinner.join()
    for port in (2, 3):
        assert [bench.peers[port].receive()[6:] for _ in sent] == [data[6:] for data in sent]


def scheduler_of_forwarding() -> int:
    """Return the scheduling policy of the thread that forwards; this process has one."""
    tasks = "/proc/self/task"
    (thread,) = (
        thread_id for thread_id in os.listdir(tasks) if Path(tasks, thread_id, "comm").read_text() == "p4-forward\n"
    )
    return os.sched_getscheduler(int(thread)) & ~os.SCHED_RESET_ON_FORK


def test_scheduler__real_time_while_a_port_has_a_rate_else_it_interrupts_nobody(bench: Bench) -> None:
    assert scheduler_of_forwarding() == os.SCHED_BATCH
    bench.device.traffic.set(2, PortSettings(rate_bps=20_000_000))
    assert scheduler_of_forwarding() == os.SCHED_RR
    bench.device.traffic.set(2, PortSettings())
    assert scheduler_of_forwarding() == os.SCHED_BATCH
