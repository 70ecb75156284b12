"""Rates, delays and faults on embedded switches of a running fabric, measured by self-probes."""

import os
import socket
import statistics
import struct
import time

import pytest

from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.netdev import in_namespace
from mrc_testbed.topologies.lab.options import WIRES, LabOptions, Ports
from mrc_testbed.topologies.lab.traffic_control import TrafficError
from mrc_testbed.topologies.plan import LinkSpeed, Plan, make_ev

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and veth pairs"),
]

PLAN = Plan(1, 2, 2, 1, host_link=LinkSpeed(8e6, 0.005), fabric_link=LinkSpeed(8e6, 0.010), pmtu_bytes=1024)
PORTS = Ports(19559, 19339)
UPLINK_PORT, DOWNLINK_PORT = "p0-t0-0-eth2", "p0-t1-0-eth1"
"""Frames that T0 0 sends to T1 0, and those that sends back."""


@pytest.fixture(scope="module", params=WIRES)
def fabric(request, tmp_path_factory):
    lab = LabOptions(ports=PORTS, agents=False, wires=request.param)
    with Fabric(PLAN, lab, tmp_path_factory.mktemp("run")) as running:
        yield running


@pytest.fixture(autouse=True)
def heal_after_test(fabric):
    yield
    fabric.inject.heal()
    deadline = time.monotonic() + 20
    while not fabric.controller.request("status")["ready"] and time.monotonic() < deadline:
        time.sleep(0.05)


class Prober:
    """Sends self-probes of a T1 out of h0's NIC and takes them when they are back (§9): no agent, no MRC."""

    def __init__(self, fabric, uplink=0, size=200):
        self.address = PLAN.t1_probe_template(PLAN.host("h0")).address(make_ev(0, uplink)).to_bytes(16, "big")
        self.payload = size - 14 - 40 - 8
        self.socket = in_namespace(fabric.hosts["h0"].pid, self._open)

    @staticmethod
    def _open():
        raw_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD))
        raw_socket.bind(("h0-eth0", 0))
        return raw_socket

    def frame(self, number):
        body = struct.pack("!HHHHI", 9, 9, 8 + self.payload, 0, number) + bytes(self.payload - 4)
        header = struct.pack("!IHBB", 0x60000000, len(body), 17, 64) + bytes(15) + b"\x01" + self.address
        return b"\x02" * 12 + b"\x86\xdd" + header + body

    def round(self, count, gap_s=0.0, wait_s=1.0):
        """Send frames `gap_s` apart; return {number: seconds it was away} of those that came back."""
        sent, round_trips = {}, {}
        for number in range(count):
            sent[number] = time.monotonic()
            self.socket.send(self.frame(number))
            self._take(sent, round_trips, gap_s)
        deadline = time.monotonic() + wait_s
        while len(round_trips) < count and (remaining_s := deadline - time.monotonic()) > 0:
            self._take(sent, round_trips, remaining_s, stop_at=count)
        return round_trips

    def _take(self, sent, round_trips, for_s, stop_at=1 << 30):
        deadline = time.monotonic() + for_s
        while len(round_trips) < stop_at and (remaining_s := deadline - time.monotonic()) > 0:
            self.socket.settimeout(remaining_s)
            try:
                data, sender = self.socket.recvfrom(2048)
            except TimeoutError:
                return
            if sender[2] == socket.PACKET_OUTGOING or len(data) < 66:
                continue
            number = int.from_bytes(data[62:66], "big")
            if number in sent:
                round_trips[number] = time.monotonic() - sent[number]


def test_start__applies_what_the_plan_says(fabric):
    for switch in PLAN.switches:
        for port in PLAN.ports(switch.name):
            traffic, limits = fabric.traffic.read(port.interface), PLAN.thresholds(switch, port.number)
            nic = switch.tier == 0 and port.number == 1
            assert traffic.rate_bps == 8_000_000 and traffic.output.delay_s == (0.005 if nic else 0.010)
            assert traffic.input.delay_s == (0.005 if nic else 0.0)
            assert traffic.queues[0].max_packets == limits.data_limit
            assert traffic.queues[7].max_packets == limits.control_depth


def test_counts__of_all_switches__cables_that_lose_and_switches_without_power(fabric):
    old_counts = fabric.target.counts({"marked": [0]}, [UPLINK_PORT])
    assert set(old_counts.switches) == {s.name for s in PLAN.switches} and old_counts.depths == {UPLINK_PORT: 0}
    assert (
        old_counts.switches["p0-t0-0"].cells == {"marked": [0]} and len(old_counts.switches["p0-t0-0"].queue_drops) == 8
    )
    fabric.inject.loss("p0-t0-0", "p0-t1-0", 1.0, sender="p0-t0-0")
    assert Prober(fabric).round(5, gap_s=0.01, wait_s=0.1) == {}
    fabric.power("p0-t1-1", False)
    new_counts = fabric.target.counts({"marked": [0]}, [UPLINK_PORT])
    fabric.power("p0-t1-1", True)
    assert new_counts.switches["p0-t0-0"].lost - old_counts.switches["p0-t0-0"].lost >= 5
    assert new_counts.switches["p0-t1-1"].on is False and new_counts.switches["p0-t1-0"].on


def test_probe__is_away_as_long_as_rates_and_delays_say(fabric):
    """Test the way to the T0, to the T1 and back.

    It takes 2 x (5 + 10) ms, and 200 bytes at 8 Mb/s by three switches take 0.6 ms.
    """
    times = sorted(Prober(fabric).round(20, gap_s=0.01).values())
    assert len(times) == 20 and times[0] >= 0.0306
    fabric.inject.delay("p0-t0-0", "p0-t1-0", 0.040)
    slower = sorted(Prober(fabric).round(10, gap_s=0.01).values())
    assert slower[0] >= 0.0906
    assert sorted(Prober(fabric, uplink=1).round(10, gap_s=0.01).values())[0] < slower[0]


def test_rate__spaces_packets_out(fabric):
    """40 frames of 1000 bytes at once.

    At 1 Mb/s each takes 8 ms on the wire, so the last is 39 x 8 ms behind.
    """
    fabric.inject.rate("p0-t0-0", "p0-t1-0", 1e6, sender="p0-t0-0")
    fabric.traffic.set_depth(UPLINK_PORT)
    old_queues = fabric.traffic.queues(UPLINK_PORT)
    round_trips = Prober(fabric, size=1000).round(40, wait_s=3.0)
    assert len(round_trips) == 40 and round_trips[39] - round_trips[0] >= 0.3
    new_queues = fabric.traffic.queues(UPLINK_PORT)
    sent = sum(queue.transmit_pkts for queue in new_queues) - sum(queue.transmit_pkts for queue in old_queues)
    assert sent == 40


def test_depth__drops_what_does_not_fit_and_counts_it(fabric):
    fabric.inject.rate("p0-t0-0", "p0-t1-0", 1e5, sender="p0-t0-0")
    for priority in range(8):
        fabric.traffic.set_depth(UPLINK_PORT, 5, priority=priority)
    round_trips = Prober(fabric, size=1000).round(30, wait_s=1.5)
    assert len(round_trips) <= 8  # five that waited, and those that left meanwhile
    dropped = sum(queue.dropped_pkts for queue in fabric.traffic.queues(UPLINK_PORT))
    assert dropped == 30 - len(round_trips)


def test_loss__by_pattern_takes_exactly_those(fabric):
    fabric.inject.loss("p0-t0-0", "p0-t1-0", pattern="0001", sender="p0-t0-0")
    round_trips = Prober(fabric).round(40, gap_s=0.002)
    assert sorted(round_trips) == [n for n in range(40) if n % 4 != 3]
    assert fabric.traffic.read(UPLINK_PORT).output.lost_pkts >= 10
    fabric.inject.heal()
    assert len(Prober(fabric).round(20, gap_s=0.002)) == 20


def test_corruption__flips_a_bit_of_every_packet(fabric):
    """A probe with a flipped bit may be routed elsewhere or come back changed.

    The switch says what it did.
    """
    fabric.inject.corrupt("p0-t0-0", "p0-t1-0", pattern="1", sender="p0-t0-0")
    Prober(fabric).round(10, gap_s=0.002, wait_s=0.2)
    assert fabric.traffic.read(UPLINK_PORT).output.corrupted_pkts == 10


def test_one_way_cut__takes_one_direction_and_leaves_ports_up(fabric):
    fault = fabric.inject.one_way_cut("p0-t1-0", "p0-t0-0")
    assert Prober(fabric).round(5, wait_s=0.2) == {}
    assert fabric.link_is_up(PLAN.link("p0-t1-0", "p0-t0-0"))
    lost = fabric.traffic.read(DOWNLINK_PORT).output.lost_pkts
    assert lost >= 5
    assert len(Prober(fabric, uplink=1).round(5)) == 5
    fabric.inject.undo(fault)
    assert len(Prober(fabric).round(5)) == 5


def test_blackhole__ports_stay_up_and_p4runtime_answers(fabric):
    fabric.inject.blackhole("p0-t1-0")
    assert Prober(fabric).round(5, wait_s=0.2) == {}
    assert all(fabric.link_is_up(link) for link in PLAN.links)
    answer = fabric.controller.request("verify", timeout_s=30.0)
    assert answer["switches"]["p0-t1-0"]["unchanged"] and answer["unchanged_since_start"]
    fabric.inject.heal()
    assert len(Prober(fabric).round(5)) == 5


def test_power__settings_survive_it_and_the_controller_provisions_again(fabric):
    fabric.inject.loss("p0-t0-0", "p0-t1-0", 0.5)
    old_traffic = fabric.traffic.read(DOWNLINK_PORT)
    fabric.inject.reboot("p0-t1-0", off_s=0.2)
    new_traffic = fabric.traffic.read(DOWNLINK_PORT)
    assert (new_traffic.rate_bps, new_traffic.output.delay_s, new_traffic.output.loss) == (
        old_traffic.rate_bps,
        old_traffic.output.delay_s,
        old_traffic.output.loss,
    )
    assert [queue.max_packets for queue in new_traffic.queues] == [queue.max_packets for queue in old_traffic.queues]
    fabric.inject.heal()
    deadline = time.monotonic() + 20
    while not Prober(fabric).round(3, wait_s=0.2) and time.monotonic() < deadline:
        pass
    assert statistics.median(Prober(fabric).round(5).values()) >= 0.0306


def test_what_the_switch_refuses__is_told_with_its_words(fabric):
    with pytest.raises(TrafficError, match=r"gNMI Set at unix:.*/gnmi.sock: .*rate-bps"):
        fabric.traffic.set_rate(UPLINK_PORT, 9e12)
    assert fabric.traffic.read(UPLINK_PORT).rate_bps == 8_000_000
