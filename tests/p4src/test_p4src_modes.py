"""The ways of choosing a path: uA uSIDs, segment lists, structured EV, hash, lottery.

And what hosts can do wrong.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.topologies.plan import Plan, carrier, segment_list
from tests.p4src.plan_switch import BAD_SRH, Conversation, PlannedSwitch

MALFORMED_FRAME, WRONG_USID, UNKNOWN_USID, NO_UPLINK = 1, 4, 5, 7
PLAN = Plan(planes=2, racks=4, spines=4, hosts_per_rack=2)
LOCATOR = bytes.fromhex("fcbbbb00")


def with_destination(frame: bytes, address: int) -> bytes:
    return frame[:38] + address.to_bytes(16, "big") + frame[54:]


def with_srh(
    frame: bytes,
    segments: tuple[int, ...],
    *,
    segments_left: int | None = None,
    kind: int = 4,
    last: int | None = None,
    ext_len: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """Return an SRv6 frame with a routing header behind its outer header.

    `segments` as on the wire, last one first.
    """
    count = len(segments)
    head = bytes(
        (
            frame[20],
            2 * count if ext_len is None else ext_len,
            kind,
            count if segments_left is None else segments_left,
            (count - 1 if last is None else last) & 0xFF,
            0,
            0,
            0,
        )
    )
    srh = head + b"".join(segment.to_bytes(16, "big") for segment in segments) + tail
    length = int.from_bytes(frame[18:20], "big") + len(srh)
    return frame[:18] + length.to_bytes(2, "big") + b"\x2b" + frame[21:54] + srh + frame[54:]


def walk(frame: bytes, nodes: list[str], port: int, plan: Plan = PLAN) -> tuple[list[int], bytes]:
    """Return the egress ports along these switches, and the frame in the end.

    The ingress port plays no part.
    """
    ports = []
    for name in nodes:
        out = PlannedSwitch(plan, name).device.process(port, frame)
        assert len(out) == 1, f"{name} dropped it"
        ((port, frame),) = out
        ports.append(port)
    return ports, frame


# ---- uA -----------------------------------------------------------------------------------------------------------


def test_adjacencies__lead_by_their_ports_where_the_uns_lead():
    """h0 (rack 0) to h7 (rack 3) over T1 2, once by uN and once by uA: the same ports, the same end."""
    talk = Conversation(PLAN, "h0", "h7", ev=0x0102, plane=1)
    nodes = ["p1-t0-0", "p1-t1-2", "p1-t0-3"]
    by_node = walk(talk.data(), nodes, 1)
    address = PLAN.adjacency_template(talk.source, talk.destination).address(0x0102)
    by_port = walk(with_destination(talk.data(), address), nodes, 1)
    assert by_node[0] == by_port[0] == [5, 4, 2]
    assert by_node[1] == by_port[1]
    assert talk.received(by_port[1]).ev == 0x0102


def test_adjacency__needs_no_neighbour_table():
    """The uSID behind a uA may be anything: no second lookup."""
    switch = PlannedSwitch(PLAN, "p0-t0-0")
    talk = Conversation(PLAN, "h0", "h7")
    ((port, frame),) = switch.device.process(1, with_destination(talk.data(), carrier(0xF001, 0x7777)))
    assert (port, frame[38:54]) == (4, carrier(0x7777).to_bytes(16, "big"))


def test_adjacency__of_another_plane_or_beyond_the_ports_is_dropped():
    switch, talk = PlannedSwitch(PLAN, "p0-t0-0"), Conversation(PLAN, "h0", "h7")
    for usid in (0xF101, 0xF004, 0xE002):
        assert switch.device.process(1, with_destination(talk.data(), carrier(usid, 0x2000))) == []
    assert switch.drops() == {(WRONG_USID, 1): 3}


# ---- SRH ----------------------------------------------------------------------------------------------------------

LONG_WALK = ["h0", "p0-t0-0", "p0-t1-0", "p0-t0-1", "p0-t1-1", "p0-t0-2", "p0-t1-2", "p0-t0-3", "h7"]
"""A tour of seven switches: more uSIDs than a carrier holds."""


@pytest.mark.parametrize("adjacencies", [False, True])
@pytest.mark.parametrize("per_carrier", [2, 3, 4, 6])
def test_segments__a_long_walk_goes_on_in_the_next_carrier(per_carrier, adjacencies):
    talk = Conversation(PLAN, "h0", "h7")
    usids = PLAN.walk(LONG_WALK, adjacencies=adjacencies)
    carriers = segment_list(usids, per_carrier)
    sent = with_srh(with_destination(talk.data(9), carriers.destination), carriers.srh)
    ports, frame = walk(sent, LONG_WALK[1:-1], 1)
    assert ports == [3, 2, 4, 3, 5, 4, 2]
    assert frame[57] == 0  # segments left
    assert talk.received(frame).psn == 9  # the NIC takes the used-up SRH off
    assert frame[62 : 62 + 16 * len(carriers.srh)] == sent[62 : 62 + 16 * len(carriers.srh)]  # the list is as it was


def test_segments__switches_in_the_middle_of_a_carrier_do_not_look():
    """A routing header of any kind passes where the carrier is not spent."""
    switch, talk = PlannedSwitch(PLAN, "p0-t0-0"), Conversation(PLAN, "h0", "h7")
    for header_fields in ({"kind": 2}, {"ext_len": 99}, {"segments_left": 200}, {"last": 7}):
        sent = with_srh(talk.data(), (carrier(0x1000),), **header_fields)
        ((port, frame),) = switch.device.process(1, sent)
        assert (port, len(frame)) == (3, len(sent))
    assert switch.drops() == {}


@pytest.mark.parametrize(
    ("header_fields", "reason"),
    [
        ({"kind": 2}, BAD_SRH),
        ({"kind": 0}, BAD_SRH),
        ({"segments_left": 3}, BAD_SRH),
        ({"segments_left": 255}, BAD_SRH),
        ({"last": 0}, BAD_SRH),
        ({"last": 2}, BAD_SRH),
        ({"ext_len": 5, "tail": bytes(8)}, BAD_SRH),
        ({"ext_len": 0}, BAD_SRH),
        ({"ext_len": 255}, BAD_SRH),
        ({"segments_left": 0}, UNKNOWN_USID),
        ({"segments_left": 0, "kind": 2}, UNKNOWN_USID),
    ],
)
def test_segments__hostile_headers_end_where_they_would_be_read(header_fields, reason):
    switch, talk = PlannedSwitch(PLAN, "p0-t0-0"), Conversation(PLAN, "h0", "h7")
    spent = with_destination(talk.data(), carrier(0x2000))
    sent = with_srh(spent, (carrier(0x2003, 0x3001), carrier(0x1000, 0x2001)), **header_fields)
    assert switch.device.process(1, sent) == []
    assert switch.drops() == {(reason, 1): 1}


def test_segments__five_are_too_many():
    switch, talk = PlannedSwitch(PLAN, "p0-t0-0"), Conversation(PLAN, "h0", "h7")
    spent = with_destination(talk.data(), carrier(0x2000))
    assert len(switch.device.process(1, with_srh(spent, (carrier(0x1000),) * 4))) == 1
    for count in range(1, 5):
        assert switch.device.process(1, with_srh(spent, (carrier(0x1000),) * count, kind=2)) == []
    assert switch.device.process(1, with_srh(spent, (carrier(0x1000),) * 5)) == []
    assert switch.drops() == {(BAD_SRH, 1): 5}


def test_segments__a_carrier_with_a_hole_is_not_spent():
    """0x0000 ends a list; what stands behind it makes no path, with an SRH or without."""
    switch, talk = PlannedSwitch(PLAN, "p0-t0-0"), Conversation(PLAN, "h0", "h7")
    frame_with_hole = with_destination(talk.data(), carrier(0x2000) | 0x1001)
    assert switch.device.process(1, with_srh(frame_with_hole, (carrier(0x1000),))) == []
    assert switch.device.process(1, frame_with_hole) == []
    assert switch.drops() == {(UNKNOWN_USID, 1): 2}


def test_segments__the_next_carrier_must_begin_at_a_neighbour():
    switch, talk = PlannedSwitch(PLAN, "p0-t0-0"), Conversation(PLAN, "h0", "h7")
    spent = with_destination(talk.data(), carrier(0x2000))
    for segment in (carrier(0x2000, 0x1000), carrier(0x2001), 0, 1 << 127, carrier(0x1000) ^ 1 << 100):
        assert switch.device.process(1, with_srh(spent, (segment,))) == []
    assert switch.drops() == {(UNKNOWN_USID, 1): 5}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_segments__any_bytes_for_a_header_are_survived(data):
    """A packet comes out once, shifted by this switch or by its SRH, or is counted."""
    switch = _shared_switch()
    dropped_before = switch.device.stats().dropped_ingress
    talk = Conversation(PLAN, "h0", "h7")
    spent = with_destination(talk.data(payload=64), carrier(0x2000))
    junk = data.draw(st.binary(max_size=120))
    frame = spent[:20] + b"\x2b" + spent[21:54] + junk
    out = switch.device.process(1, frame)
    assert len(out) + switch.device.stats().dropped_ingress - dropped_before == 1
    assert all(len(sent_frame) == len(frame) for _, sent_frame in out)


_SWITCHES: list[PlannedSwitch] = []


def _shared_switch() -> PlannedSwitch:
    if not _SWITCHES:
        _SWITCHES.append(PlannedSwitch(PLAN, "p0-t0-0"))
    return _SWITCHES[0]


def test_cut__keeps_the_segment_list():
    plan = Plan.scaled(planes=1, racks=4, spines=4)
    switch, talk = PlannedSwitch(plan, "p0-t0-0"), Conversation(plan, "h0", "h7")
    for count in range(1, 5):
        switch.set_depth(3, 1000)
        frame = with_srh(talk.data(), (carrier(0x1000),) * count)
        ((_, out),) = switch.device.process(1, frame)
        assert len(out) == 138 + 8 + 16 * count
        assert out[62:] == frame[62 : len(out)]


# ---- without an outer header --------------------------------------------------------------------------------------


def uplinks(mode: str, evs: list[int], *, seed: int = 1, dead_ports: tuple[int, ...] = ()) -> list[int]:
    plan = Plan(planes=2, racks=4, spines=4, hosts_per_rack=2, mode=mode)
    switch = PlannedSwitch(plan, "p0-t0-0", seed=seed)
    for port in dead_ports:
        switch.device.set_port_up(port, False)
    frames = {ev: Conversation(plan, "h0", "h7", ev=ev).data(payload=64) for ev in set(evs)}
    return [port for ev in evs for port, _ in switch.device.process(1, frames[ev])]


def test_structured__the_ev_names_the_uplink():
    assert uplinks("stev", [0, 1, 2, 3, 0x10002, 0x0703]) == [3, 4, 5, 6, 5, 6]


def test_structured__an_uplink_that_is_not_there_is_counted():
    plan = Plan(planes=2, racks=4, spines=4, hosts_per_rack=2, mode="stev")
    switch = PlannedSwitch(plan, "p0-t0-0")
    assert switch.device.process(2, Conversation(plan, "h0", "h7", ev=4).data()) == []
    assert switch.drops() == {(NO_UPLINK, 2): 1}


def test_structured__a_dead_uplink_is_no_reason_for_another():
    """The host chose; it is to learn that its path is dead."""
    assert uplinks("stev", [1] * 3, dead_ports=(4,)) == [4] * 3


def test_hash__one_ev_one_uplink_and_evs_spread():
    assert len(set(uplinks("flow-ecmp", [0xABCDEF] * 20))) == 1
    assert sorted(Counter(uplinks("ecmp", [n * 7919 for n in range(200)]))) == [3, 4, 5, 6]


def test_lottery__packets_of_one_ev_spread_evenly_over_living_uplinks():
    counts = Counter(uplinks("switch-spray", [0] * 1200))
    assert sorted(counts) == [3, 4, 5, 6]
    assert all(count == pytest.approx(300, abs=75) for count in counts.values())
    assert sorted(Counter(uplinks("switch-spray", [0] * 200, dead_ports=(3, 6)))) == [4, 5]


def test_lottery__equal_seeds_draw_alike():
    first, second, third = (uplinks("switch-spray", [0] * 64, seed=seed) for seed in (5, 5, 6))
    assert first == second != third


@pytest.mark.parametrize("mode", ["ecmp", "switch-spray"])
def test_no_uplink_alive__is_counted(mode):
    plan = Plan(planes=2, racks=4, spines=4, hosts_per_rack=2, mode=mode)
    switch = PlannedSwitch(plan, "p0-t0-0")
    for port in (3, 4, 5, 6):
        switch.device.set_port_up(port, False)
    assert switch.device.process(2, Conversation(plan, "h0", "h7").data()) == []
    assert switch.drops() == {(NO_UPLINK, 2): 1}
