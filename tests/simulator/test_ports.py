"""One egress port by itself: times, classes, marks, trims, drops. Frames carry real records."""

from math import inf

import pytest

from mrc_testbed.hosts.engine.wire.packets import ECN_CE, ECN_ECT0, Nack, NackReason, Opcode, Write
from mrc_testbed.simulator.events import PythonEventQueue
from mrc_testbed.simulator.frames import Frame, FrameQueue
from mrc_testbed.simulator.ports import EgressPort, NicPort
from mrc_testbed.simulator.profiles import Line, ProfileError, QueueProfile

TRIMMED, LAST_HOP = 12, 16


class Bench:
    """A port whose other end is a list."""

    def __init__(self, queues=None, *, rate_bps=8000.0, delay_s=1.0, last_hop=False, **line):
        self.queue, self.out, self.room = PythonEventQueue(), [], []
        arguments = ("p-eth1", "p", "q", 0, Line(rate_bps, delay_s, **line), self.queue.note_delay, self.queue, "seed")
        if queues is None:
            self.port = NicPort(*arguments, (TRIMMED, LAST_HOP), ring_packets=4, on_room=self.room.append)
        else:
            self.port = EgressPort(*arguments, (TRIMMED, LAST_HOP), last_hop=last_hop)
            self.port.set_queues(queues, True)
        self.port.lead_to(lambda frame, now: self.out.append((now, frame)), self.queue)

    def send(self, *frames, now=0.0):
        for frame in frames:
            self.port.send(frame, now)

    def run(self):
        """Run everything to the end; return (time, PSN) of the arrivals."""
        self.queue.run(inf)
        return [(round(time, 6), frame.packet.psn) for time, frame in self.out]


def data(psn, size=1000, trimmable=True, ecn=ECN_ECT0):
    packet = Write(5, 0x101, 0, 4, ecn, Opcode.WRITE_ONLY, psn, 0, 77, 88, 500, bytes(500), size - 54)
    return Frame(packet, size, "h0", "h1", 0, 0, 0, False, trimmable)


def control(psn, size=100):
    return Frame(Nack(5, 0x101, 0, 46, 0, psn, 1, 0x101), size, "h0", "h1", 0, 0, 0, True, False)


WIDE_QUEUES = {"data_bytes": 1 << 20, "control_bytes": 1 << 20, "ecn_min_bytes": None, "trim_bytes": None}


def queues(**changes):
    return QueueProfile(**{**WIDE_QUEUES, **changes})


def test_port__serialises_at_its_rate_then_delays():
    bench = Bench(queues())
    bench.send(data(1), data(2), data(3))  # 1000 bytes at 1000 bytes/s
    assert bench.run() == [(2.0, 1), (3.0, 2), (4.0, 3)]


def test_port__idle_again_sends_at_once():
    bench = Bench(queues())
    bench.send(data(1))
    bench.send(data(2), now=1.0)
    bench.send(data(3), now=5.0)
    assert bench.run() == [(2.0, 1), (3.0, 2), (7.0, 3)]


def test_port__infinite_rate_never_queues():
    bench = Bench(queues(), rate_bps=float("inf"))
    bench.send(*(data(i) for i in range(50)))
    assert {time for time, _ in bench.run()} == {1.0}


def test_port__control_overtakes_data_but_not_the_one_being_sent():
    bench = Bench(queues())
    bench.send(data(1), data(2), control(3), control(4))
    assert bench.run() == [(2.0, 1), (2.1, 3), (2.2, 4), (3.2, 2)]


def test_port__step_marks_what_leaves_a_deep_queue_behind():
    bench = Bench(queues(ecn_min_bytes=1500))
    bench.send(*(data(i) for i in range(5)))
    bench.run()
    # Behind each as it leaves: 0 was never queued, 1 leaves 3000, 2 leaves 2000, 3 leaves 1000, 4 leaves 0.
    assert [f.packet.psn for _, f in bench.out if f.packet.ecn == ECN_CE] == [1, 2]
    assert bench.port.marked == 2


def test_port__ramp_marks_more_the_deeper_it_is():
    bench = Bench(queues(ecn_min_bytes=100_000, ecn_max_bytes=300_000))
    bench.send(*(data(i) for i in range(400)))
    bench.run()
    marked = [f.packet.psn for _, f in bench.out if f.packet.ecn == ECN_CE]
    bytes_behind = {i: (399 - i) * 1000 for i in range(400)}
    share = [
        sum(low <= bytes_behind[i] < low + 50_000 for i in marked) / 50 for low in (50_000, 100_000, 250_000, 300_000)
    ]
    assert share[0] == 0 and 0 < share[1] < 0.4 and 0.6 < share[2] <= 1 and share[3] == 1


def test_port__never_marks_packets_that_cannot_be_or_at_the_last_hop():
    bench = Bench(queues(ecn_min_bytes=0))
    bench.send(*(data(i, ecn=0) for i in range(5)))
    bench.run()
    last = Bench(queues(ecn_min_bytes=0), last_hop=True)
    last.send(*(data(i) for i in range(5)))
    last.run()
    marking_bench = Bench(queues(ecn_min_bytes=0, last_hop_ecn=True), last_hop=True)
    marking_bench.send(*(data(i) for i in range(5)))
    marking_bench.run()
    assert (bench.port.marked, last.port.marked, marking_bench.port.marked) == (0, 0, 3)


@pytest.mark.parametrize(
    ("last_hop", "dscp", "reason"),
    [
        (False, TRIMMED, NackReason.TRIMMED),
        (True, LAST_HOP, NackReason.TRIMMED_LASTHOP),
    ],
)
def test_port__trims_instead_of_dropping(last_hop, dscp, reason):
    bench = Bench(queues(trim_bytes=2000), last_hop=last_hop)
    bench.send(*(data(i) for i in range(5)))
    assert bench.run() == [(2.0, 0), (2.138, 3), (2.276, 4), (3.276, 1), (4.276, 2)]
    trimmed = bench.out[1][1].packet
    assert (trimmed.dscp, trimmed.trimmed, trimmed.payload, trimmed.va, trimmed.size) == (dscp, reason, b"", 0, 946)
    assert (bench.port.trimmed, bench.port.dropped) == (2, {})


def test_port__last_hop_has_a_trim_threshold_of_its_own():
    bench = Bench(queues(trim_bytes=2000, trim_lasthop_bytes=4000), last_hop=True)
    bench.send(*(data(i) for i in range(5)))
    bench.run()
    assert bench.port.trimmed == 0


def test_port__drops_what_cannot_be_trimmed():
    bench = Bench(queues(trim_bytes=2000, data_bytes=3000))
    bench.send(data(0), *(data(i, trimmable=False) for i in (1, 2, 3, 4)), data(5, size=138))
    assert bench.run() == [(2.0, 0), (3.0, 1), (4.0, 2), (5.0, 3)]
    assert bench.port.dropped == {"not_trimmable": 2}


def test_port__a_full_control_queue_drops_trimmed_packets_too():
    bench = Bench(queues(trim_bytes=1000, control_bytes=300))
    bench.send(*(data(i) for i in range(5)))
    bench.run()
    assert (bench.port.trimmed, bench.port.dropped) == (3, {"control_queue_full": 1})


def test_port__limits_in_packets_as_bmv2_counts():
    bench = Bench(queues(data_packets=2, control_packets=1))
    bench.send(*(data(i) for i in range(4)), control(8), control(9))
    assert [psn for _, psn in bench.run()] == [0, 8, 1, 2]
    assert bench.port.dropped == {"queue_full": 1, "control_queue_full": 1}
    assert bench.port.peak_bytes == 2000


def test_port__jitter_delays_without_reordering():
    bench = Bench(queues(), rate_bps=1e9, jitter_s=5.0)
    bench.send(*(data(i) for i in range(30)))
    arrivals = bench.run()
    assert [psn for _, psn in arrivals] == list(range(30))
    assert arrivals[-1][0] - arrivals[0][0] > 1.0
    unordered_bench = Bench(queues(), rate_bps=1e9, jitter_s=5.0, fifo=False)
    unordered_bench.send(*(data(i) for i in range(30)))
    assert [psn for _, psn in unordered_bench.run()] != list(range(30))


def test_port__going_down_loses_the_queue_and_refuses_more():
    bench = Bench(queues())
    bench.send(data(1), data(2), control(3))
    bench.port.go_down(0.5)
    bench.send(data(4), now=0.6)
    assert [psn for _, psn in bench.run()] == [1]  # the fabric takes away what is on the wire
    assert bench.port.dropped == {"port_down": 3} and bench.port.waiting == 0
    bench.port.go_up()
    bench.send(data(5), now=9.0)
    assert bench.run()[-1] == (11.0, 5)


def test_nic_port__says_when_there_is_room_again():
    bench = Bench()
    bench.send(*(data(i) for i in range(5)))
    bench.port.starved = True
    bench.run()
    assert bench.room == [2.0]  # two of the four that waited are left


@pytest.mark.parametrize(
    "bad_values",
    [
        {"data_bytes": 0},
        {"ecn_min_bytes": 10, "ecn_max_bytes": 5},
        {"ecn_min_bytes": None, "ecn_max_bytes": 5},
        {"trim_len": 60},
    ],
)
def test_queue_profile__refuses_nonsense_by_name(bad_values):
    with pytest.raises(ProfileError, match=next(reversed(bad_values))):
        QueueProfile(**bad_values)


@pytest.mark.parametrize("bad_values", [{"rate_bps": 0}, {"rate_bps": -1}, {"delay_s": -1}, {"jitter_s": float("nan")}])
def test_line__refuses_nonsense_by_name(bad_values):
    with pytest.raises(ProfileError, match=next(iter(bad_values))):
        Line(**bad_values)


def test_frame_queue__gives_back_what_was_put_in_order():
    queue, frames = FrameQueue(), [data(psn) for psn in range(4)]
    for frame in frames:
        queue.put(frame)
    assert queue.count == 4 and queue.frames() == frames
    assert queue.take() is frames[0] and frames[0].next_frame is None
    queue.put(frames[0])
    assert queue.take_all() == [*frames[1:], frames[0]] and queue.count == 0 and queue.frames() == []
    assert all(frame.next_frame is None for frame in frames), "none keeps another"
    queue.put(frames[2])
    assert queue.take() is frames[2]


def test_port__the_queue_that_ports_without_one_share_stays_empty():
    bench = Bench(queues())
    bench.send(data(1), data(2))
    second_bench = Bench(queues())
    assert second_bench.port._data.count == 0 and second_bench.port._data is not bench.port._data
    second_bench.port.go_down(0.0)
    assert bench.run() == [(2.0, 1), (3.0, 2)]
