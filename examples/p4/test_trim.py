"""Exercise "trim instead of drop": each test says what is missing. SOLUTION=1 tries the solution."""

import os

import pytest
from scapy.all import IP, UDP, Ether, Raw

PROGRAM = "trim_solution.p4" if os.environ.get("SOLUTION") else "trim.p4"
PACKETS = 20
HEADERS_BYTES, TRIMMED_DSCP = 42, 12


@pytest.fixture
def frames(p4_switch):
    """Return the frames that leave when twenty packets of 1 KiB come at once to a port of 1 Mb/s."""
    switch = p4_switch(PROGRAM)
    switch.add("route", {"dst": "10.0.0.0/8"}, "to_port", port=2)
    switch.script("rate 2 1M")
    packet = Ether() / IP(src="10.0.1.1", dst="10.0.2.2") / UDP(sport=1, dport=2) / Raw(bytes(1024))
    for _ in range(PACKETS):
        switch.send(1, packet)
    switch.wait()
    return switch.frames(2)


def test_no_packet_is_lost(frames):
    assert len(frames) == PACKETS, (
        f"{PACKETS - len(frames)} of {PACKETS} packets were dropped: cut them instead (truncate), and let them go on"
    )


def test_trimmed_packets__are_headers_alone(frames):
    sizes = sorted({len(frame) for frame in frames})
    assert sizes == [HEADERS_BYTES, 1066], f"packets of {sizes} bytes left: want whole ones, 1066, and cut ones, 42"


def test_trimmed_packets__have_a_codepoint_of_their_own(frames):
    codepoints = {Ether(frame)[IP].tos >> 2 for frame in frames if len(frame) == HEADERS_BYTES}
    assert codepoints == {TRIMMED_DSCP}, f"trimmed packets have DSCP {codepoints or 'none'}: want {TRIMMED_DSCP}"


def test_trimmed_packets__overtake_data(frames):
    first = next((number for number, frame in enumerate(frames) if len(frame) == HEADERS_BYTES), PACKETS)
    assert first <= 2, f"the first trimmed packet is number {first} to leave: give it HEADERS_PRIORITY (std.priority)"
