"""The traffic manager's queues and rates under a virtual clock: every figure is exact."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from mrc_testbed.switch.device.port_numbers import CPU_PORT
from mrc_testbed.switch.device.traffic import Impairment, PortSettings, QueueSettings, TrafficSettingError
from tests.switch.device.traffic_devices import (
    HEAD,
    INPUT_PORT,
    MS,
    OUTPUT_PORT,
    US,
    S,
    advance,
    device,
    frame,
    program,
    send,
)

LINK = PortSettings(rate_bps=10_000_000)
"""A frame of 1250 bytes takes a millisecond."""


def numbers(sightings) -> list[int]:
    return [sighting.number for sighting in sightings]


# ---- rates --------------------------------------------------------------------------------------------------------


def test_nothing_set__frames_leave_as_they_come():
    d = device()
    send(d, 1, 2, now_ns=5 * US)
    assert d.next_ns is None
    out = advance(d, 5 * US)
    assert [(o.at_ns, o.number) for o in out] == [(5 * US, 1), (5 * US, 2)]
    assert (out[0].ingress_us, out[0].enq_us, out[0].waited_us, out[0].deq_depth, out[0].egress_us) == (5, 5, 0, 0, 5)
    assert d.traffic.state(OUTPUT_PORT).queues[0].transmit_pkts == 0  # nobody asked for this port to be counted


def test_rate__a_frame_arrives_when_its_last_bit_does_and_the_next_follows():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, 2, 3)
    assert d.next_ns == MS
    assert advance(d, MS - 1) == []
    assert [(o.at_ns, o.number) for o in advance(d, 10 * MS)] == [(MS, 1), (2 * MS, 2), (3 * MS, 3)]
    assert d.next_ns is None


def test_rate__no_burst_after_a_pause():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, now_ns=7)
    send(d, 2, 3, now_ns=S)
    assert [o.at_ns for o in advance(d, 2 * S)] == [MS + 7, S + MS, S + 2 * MS]


@pytest.mark.parametrize("rate", [1_000_003, 333_333_333, 7])
def test_rate__is_exact_in_the_long_run(rate):
    d = device()
    d.traffic.set(OUTPUT_PORT, PortSettings(rate_bps=rate))
    sizes = [HEAD + n % 700 for n in range(500)]
    for number, size in enumerate(sizes):
        send(d, number, size=size)
    out = advance(d, 10**15)
    bits, want = 0, []
    for size in sizes:
        bits += size * 8
        want.append(bits * S // rate)
    assert [o.at_ns for o in out] == want


def test_rate_pps__spaces_frames_and_takes_no_time_on_the_wire():
    d = device()
    d.traffic.set(OUTPUT_PORT, PortSettings(rate_pps=3))
    send(d, 1, 2, 3, 4)
    assert [o.at_ns for o in advance(d, 2 * S)] == [0, S // 3, 2 * S // 3, S]


def test_rate__both_limits_hold():
    d = device()
    d.traffic.set(OUTPUT_PORT, PortSettings(rate_bps=10_000_000, rate_pps=2000))  # a small frame waits for the second
    send(d, 1, size=125)
    send(d, 2, 3)
    assert [o.at_ns for o in advance(d, S)] == [MS // 10, MS // 2 + MS, MS // 2 + 2 * MS]


def test_rate__the_frame_that_egress_made_counts():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, cut=125)
    send(d, 2, drops=1)  # takes no time: it never leaves
    send(d, 3)
    out = advance(d, S)
    assert [(o.at_ns, o.size, o.number) for o in out] == [(MS // 10, 125, 1), (MS // 10 + MS, 1250, 3)]
    assert d.stats().dropped_egress == 1


# ---- priorities -----------------------------------------------------------------------------------------------------


def test_priority__seven_first_and_in_order_within():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 100)  # on the wire
    for priority in (0, 3, 7, 5, 7, 0):
        send(d, priority, priority=priority)
    assert numbers(advance(d, S)) == [100, 7, 7, 5, 3, 0, 0]


def test_priority__a_late_one_goes_next_and_nothing_is_cut_short():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, 2, 3)
    send(d, 9, now_ns=MS + 1, priority=7)
    assert [(o.at_ns // MS, o.number) for o in advance(d, S)] == [(1, 1), (2, 2), (3, 9), (4, 3)]


def test_priority_rate__others_pass_while_it_waits_and_it_keeps_its_rate():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK.with_queue(7, rate_bps=2_000_000))  # 1 of 5 milliseconds
    for number in range(40):
        send(d, number, priority=7)
        send(d, number, priority=0)
    out = advance(d, 51 * MS)
    assert [o.at_ns // MS for o in out] == list(range(1, len(out) + 1))  # the link never rests
    assert [o.at_ns // MS - 1 for o in out if o.priority == 7] == list(range(0, 51, 5))


def test_priority_rate__is_kept_though_the_link_is_busy_when_it_is_due():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK.with_queue(7, rate_bps=3_000_000))  # due every 3 1/3 ms, the link gives whole ones
    for number in range(100):
        send(d, number, priority=7)
        send(d, number, priority=0)
        send(d, number, priority=0)
    out = advance(d, 300 * MS)
    assert len([o for o in out if o.priority == 7]) == 90


def test_priority_rate__alone_it_limits_only_its_own():
    d = device()
    d.traffic.set(OUTPUT_PORT, PortSettings().with_queue(0, rate_pps=1000))
    send(d, 1, 2, 3)
    send(d, 4, 5, priority=1)
    assert [(o.at_ns, o.number) for o in advance(d, S)] == [(0, 1), (0, 4), (0, 5), (MS, 2), (2 * MS, 3)]


# ---- depths and metadata --------------------------------------------------------------------------------------------


def test_depth__packets_that_wait_are_counted_and_more_are_dropped():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK.with_queue(0, max_packets=2))
    send(d, 1, 2, 3, 4, 5)
    queue = d.traffic.state(OUTPUT_PORT).queues[0]
    assert (queue.depth_packets, queue.depth_bytes) == (2, 2500)
    assert (queue.dropped_pkts, queue.dropped_octets, queue.peak_packets) == (2, 2500, 2)
    assert numbers(advance(d, S)) == [1, 2, 3]
    queue = d.traffic.state(OUTPUT_PORT).queues[0]
    assert (queue.depth_packets, queue.depth_bytes, queue.transmit_pkts, queue.transmit_octets) == (0, 0, 3, 3750)
    assert d.stats().dropped_queue == 2


def test_depth__bytes_and_each_queue_by_itself():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK.with_queue(0, max_bytes=2600).with_queue(7, max_packets=1))
    send(d, 1, 2, 3)
    send(d, 4, size=101)  # 2601 bytes would wait
    send(d, 5, size=100)
    send(d, 6, 7, priority=7)
    assert numbers(advance(d, S)) == [1, 6, 2, 3, 5]


def test_depth__a_truncated_packet_is_as_long_as_it_will_be():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK.with_queue(7, max_bytes=200))
    send(d, 1)
    send(d, 2, 3, 4, priority=7, cut=100)
    assert numbers(advance(d, S)) == [1, 2, 3]


def test_metadata__depths_and_times_of_simple_switch():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 0, 1, 2, 3, now_ns=10 * US)
    send(d, 9, now_ns=MS, priority=7)
    out = {o.number: o for o in advance(d, S)}
    assert [out[n].enq_depth for n in (0, 1, 2, 3, 9)] == [0, 0, 1, 2, 0]
    assert [out[n].deq_depth for n in (0, 1, 2, 3, 9)] == [0, 2, 1, 0, 0]
    assert [out[n].waited_us for n in (0, 9, 1, 2, 3)] == [0, 10, 2000, 3000, 4000]
    assert (out[3].ingress_us, out[3].enq_us, out[3].egress_us) == (10, 10, 4010)


def test_egress__runs_when_the_packet_leaves_its_queue():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, 2)
    egress_counter = next(counter.id for counter in d.schema.counters.values())
    assert d.read_counter(egress_counter, OUTPUT_PORT)[0][1].packets == 1
    d.advance(MS)
    assert d.read_counter(egress_counter, OUTPUT_PORT)[0][1].packets == 2


# ---- around it ------------------------------------------------------------------------------------------------------


def test_port_down__queues_are_served_all_the_same():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    d.set_port_up(OUTPUT_PORT, False)
    send(d, 1, 2)
    assert len(advance(d, S)) == 2
    assert d.traffic.state(OUTPUT_PORT).queues[0].depth_packets == 0


def test_cpu_port__has_no_queue():
    d = device()
    with pytest.raises(TrafficSettingError, match="CPU port"):
        d.traffic.set(CPU_PORT, LINK)
    send(d, 1, 2, port=CPU_PORT)
    assert [o.at_ns for o in advance(d, 0)] == [0, 0]


def test_process__goes_past_the_traffic_manager():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    assert [len(d.process(INPUT_PORT, frame(n))) for n in range(3)] == [1, 1, 1]
    assert d.next_ns is None


def test_buffers__exhausted_means_counted_drops_and_free_again():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    d.traffic.buffers(20_000)
    send(d, *range(20))
    used_bytes, bound_bytes = d.traffic.buffers()
    queue = d.traffic.state(OUTPUT_PORT).queues[0]
    assert used_bytes <= bound_bytes == 20_000
    assert queue.depth_packets + 1 + queue.dropped_pkts == 20
    assert d.stats().dropped_no_buffer == d.stats().dropped_queue == queue.dropped_pkts > 0
    assert len(d.advance(S)) == 20 - queue.dropped_pkts
    assert d.traffic.buffers()[0] == 0
    send(d, *range(5), now_ns=S)
    assert len(d.advance(2 * S)) == 5


def test_load__queues_are_emptied_and_settings_stay():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, 2, 3)
    d.load(program())
    assert numbers(advance(d, S)) == [1]  # it is on the cable
    assert d.traffic.get(OUTPUT_PORT) == LINK
    assert d.traffic.state(OUTPUT_PORT).queues[0].transmit_pkts == 0
    send(d, 4, now_ns=S)
    assert [o.at_ns for o in advance(d, 2 * S)] == [S + MS]
    d.unload()
    with pytest.raises(ValueError, match="before"):
        d.inject(INPUT_PORT, frame(), 0)
    d.inject(INPUT_PORT, frame(), 3 * S)
    assert d.advance(4 * S) == []


def test_settings__change_while_frames_wait():
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    send(d, 1, 2, 3)
    d.advance(MS // 2)
    d.traffic.set(OUTPUT_PORT, PortSettings(rate_bps=5_000_000))  # half of the first frame is left: another millisecond
    assert [o.at_ns for o in advance(d, 2 * MS)] == [MS // 2 + MS]
    d.traffic.set(OUTPUT_PORT, PortSettings())  # the second is half out; what is left of it goes at once
    assert [(o.at_ns, o.number) for o in advance(d, 2 * MS)] == [(2 * MS, 2), (2 * MS, 3)]
    send(d, 4, now_ns=2 * MS)
    assert [o.at_ns for o in advance(d, 2 * MS)] == [2 * MS]


def test_settings__a_slow_link_made_fast_does_not_wait_for_its_old_time():
    d = device()
    d.traffic.set(OUTPUT_PORT, PortSettings(rate_bps=1))
    send(d, 1, 2)
    d.advance(S)
    d.traffic.set(OUTPUT_PORT, LINK)
    assert [o.at_ns < S + 2 * MS for o in advance(d, 2 * S)] == [True, True]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (PortSettings(rate_bps=-1), "rate-bps = -1"),
        (PortSettings(rate_pps=1.5), "rate-pps = 1.5"),
        (PortSettings(queues=()), "0 queues"),
        (PortSettings().with_queue(3, max_packets=1 << 40), "queue 3: max-packets"),
        (PortSettings(output=Impairment(loss_ppm=1_000_001)), "output: loss-ppm = 1000001"),
        (PortSettings(input=Impairment(loss_pattern="2")), "input: loss-pattern = '2'"),
    ],
)
def test_settings__out_of_range_are_refused_and_change_nothing(settings, words):
    d = device()
    d.traffic.set(OUTPUT_PORT, LINK)
    with pytest.raises(TrafficSettingError, match=words):
        d.traffic.set(OUTPUT_PORT, settings)
    assert d.traffic.get(OUTPUT_PORT) == LINK
    with pytest.raises(TrafficSettingError, match="priority 8"):
        LINK.with_queue(8, max_packets=1)


def test_clock__what_cannot_be_is_refused():
    d = device()
    d.advance(10)
    for call in (lambda: d.advance(9), lambda: d.inject(INPUT_PORT, frame(), 9), lambda: d.advance(-1)):
        with pytest.raises(ValueError, match="ns is"):
            call()


def reference(arrivals, rate, depth):
    """Return (departure of the last bit, number) by the definition of strict priorities, in fractions."""
    queues = {priority: [] for priority in range(8)}
    free_at, departures, pending = Fraction(0), [], list(arrivals)
    while pending or any(queues.values()):
        waiting = any(queues.values())
        if pending and (not waiting or pending[0][0] < free_at):
            arrival_ns, number, size, priority = pending.pop(0)
            if not waiting and arrival_ns >= free_at:
                free_at = arrival_ns + Fraction(size * 8 * S, rate)
                departures.append((int(free_at), number))
            elif len(queues[priority]) < depth:
                queues[priority].append((number, size))
            continue
        priority = max(p for p in queues if queues[p])
        number, size = queues[priority].pop(0)
        free_at += Fraction(size * 8 * S, rate)
        departures.append((int(free_at), number))
    return departures


@pytest.mark.parametrize("seed", range(20))
def test_port__does_what_the_definition_says(seed):
    rng = random.Random(seed)
    rate, depth = rng.choice([9_600, 1_000_000, 12_345_678]), rng.randint(1, 8)
    d = device()
    d.traffic.set(OUTPUT_PORT, PortSettings(rate_bps=rate, queues=(QueueSettings(max_packets=depth),) * 8))
    arrival_ns, arrivals = 0, []
    for number in range(300):
        # Between two nanoseconds nothing departs at: then "before" and "after" are the same for both.
        arrival_ns += rng.choice([0, 1, rng.randint(0, 2 * 800 * 8 * S // rate)])
        arrivals.append((arrival_ns, number, rng.randint(HEAD, 800), rng.choice([0, 0, 0, 1, 7])))
    departures = []
    for arrival_ns, number, size, priority in arrivals:
        departures += [(o.at_ns, o.number) for o in advance(d, arrival_ns)]
        d.inject(INPUT_PORT, frame(number, size=size, priority=priority), arrival_ns)
    departures += [(o.at_ns, o.number) for o in advance(d, 10**15)]
    assert departures == reference(arrivals, rate, depth)
