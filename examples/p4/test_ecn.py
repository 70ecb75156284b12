"""Exercise "ECN threshold": each test says what is missing. SOLUTION=1 tries the solution."""

import os

import pytest
from scapy.all import IP, UDP, Ether, Raw

PROGRAM = "ecn_solution.p4" if os.environ.get("SOLUTION") else "ecn.p4"
NOT_ECT, ECT, CE = 0, 1, 3
MARK_FROM, MARK_ALL = 4, 12


@pytest.fixture
def marks(p4_switch):
    """Function that sends packets all at once; it tells of each, in order, whether it left with CE."""

    def send(ecn: int, count: int) -> list[bool]:
        switch = p4_switch(PROGRAM)
        switch.add("route", {"dst": "10.0.0.0/8"}, "to_port", port=2)
        switch.script("rate 2 1M")
        packet = Ether() / IP(src="10.0.1.1", dst="10.0.2.2", tos=ecn) / UDP(sport=1, dport=2) / Raw(bytes(200))
        for _ in range(count):
            switch.send(1, packet)
        switch.wait()
        return [Ether(frame)[IP].tos & 3 == CE for frame in switch.frames(2)]

    return send


def test_long_queue__marks_every_packet(marks):
    first_marks = marks(ECT, 60)[1 : 60 - MARK_ALL]
    assert all(first_marks), (
        f"step 1: {first_marks.count(False)} of {len(first_marks)} packets behind which {MARK_ALL} wait left unmarked"
    )


def test_sender_without_ecn__is_never_marked(marks):
    count = sum(marks(NOT_ECT, 60))
    assert count == 0, f"{count} packets of a sender that does not know ECN were marked: look at hdr.ipv4.ecn first"


def test_short_queue__marks_nothing(marks):
    count = sum(marks(ECT, MARK_FROM))
    assert count == 0, f"{count} of {MARK_FROM} packets were marked: want none while fewer than {MARK_FROM} wait"


def test_ramp__marks_some_between_the_thresholds(marks):
    marks_between = [mark for _ in range(20) for mark in marks(ECT, MARK_ALL)]
    share = sum(marks_between) / len(marks_between)
    assert 0.05 < share < 0.6, f"step 2: {share:.0%} of the packets between the thresholds were marked: want a ramp"
