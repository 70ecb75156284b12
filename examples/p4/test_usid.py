"""Exercise "uN and uA": each test says what is missing. SOLUTION=1 tries the solution."""

import os

import pytest
from scapy.all import UDP, Ether, IPv6

PROGRAM = "usid_solution.p4" if os.environ.get("SOLUTION") else "usid.p4"


@pytest.fixture
def send(p4_switch):
    """Return send(destination, hop_limit): the ports and packets that leave switch 0x0a01."""
    switch = p4_switch(PROGRAM)
    switch.add("my_usid", {"locator_usid": 0x5F000000_0A01}, "un")
    switch.add("my_usid", {"locator_usid": 0x5F000000_0AA3}, "ua", port=3)
    switch.add("usid_next", {"locator_usid": 0x5F000000_0B02}, "forward", port=2)

    def packet(destination: str, hop_limit: int = 64) -> list[tuple[int, IPv6]]:
        frame = Ether() / IPv6(src="fd00::1", dst=destination, hlim=hop_limit) / UDP()
        return [(port, Ether(data)[IPv6]) for port, data in switch.send(1, frame)]

    return packet


def test_un__takes_its_own_usid_off_and_asks_for_the_next(send):
    out = send("5f00:0:a01:b02:c03::")
    assert out, "step 1: nothing left: after un() the next uSID (0b02) stands behind the locator, for usid_next"
    ((port, packet),) = out
    assert packet.dst == "5f00:0:b02:c03::", f"step 1: the destination is {packet.dst}: want 5f00:0:b02:c03::"
    assert port == 2, f"step 1: it left by port {port}: want 2, that of neighbour 0b02"


def test_ua__leaves_by_the_port_of_its_own_usid(send):
    out = send("5f00:0:aa3:f00d::")
    assert out, "step 2: nothing left: ua() sets std.egress_spec, and meta.is_routed so that usid_next is not asked"
    ((port, packet),) = out
    assert (port, packet.dst) == (3, "5f00:0:f00d::"), f"step 2: port {port}, {packet.dst}: want 3, 5f00:0:f00d::"


def test_stray_packet__is_dropped(send):
    assert send("5f00:0:dead:b02::") == [], "a packet for another switch left: my_usid has no entry for 0xdead"


def test_hop_limit__counts_down_and_ends(send):
    assert send("5f00:0:a01:b02::", hop_limit=1) == [], "step 3: a packet with hop limit 1 left: drop it"
    out = send("5f00:0:a01:b02::", hop_limit=9)
    assert out, "step 3: a packet with hop limit 9 did not leave: steps 1 and 2 come first"
    ((_, packet),) = out
    assert packet.hlim == 8, f"step 3: the hop limit is {packet.hlim} behind the switch: want 8"
