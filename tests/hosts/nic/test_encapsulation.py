"""Encapsulation and decapsulation in both NICs, without a socket.

Frames are hostile.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.codec import Codec, WireError, write_size
from mrc_testbed.hosts.engine.wire.packets import NackReason, Opcode, Write
from mrc_testbed.hosts.nic import scapy_nic
from mrc_testbed.hosts.nic.base import Nic, NicError, drop_reason
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.hosts.nic.scapy_nic import ScapyNic, load_hook
from mrc_testbed.topologies.plan import Plan

PLAN = Plan()
H0, H1, H2, H3 = PLAN.hosts
PLANE, EV = 3, 0x0301
CODEC = Codec()


def a_write(**changes) -> Write:
    size = write_size(Opcode.WRITE_ONLY, 5, True)
    record = Write(7, EV, PLANE, 4, 2, Opcode.WRITE_ONLY, 9, 1, 1 << 44, 2, 5, b"hello", size, timestamp=1, tsr=1)
    return replace(record, **changes)


def fast_frame(record: Write, source=H0, target=H2) -> bytes:
    capsule = Encapsulation(PLAN, source, target, record.plane)
    inner = CODEC.encode(record, capsule.addressing)
    return capsule.outer(record.ev, inner.header[:4], inner.size) + inner.join()


def scapy_nic_of(host, plan: Plan = PLAN) -> ScapyNic:
    """Return a scapy NIC without its sockets."""
    nic = ScapyNic.__new__(ScapyNic)
    Nic.__init__(nic, plan, host)
    nic._codec = nic._scapy_codec = scapy_nic.ScapyCodec(Config())
    nic._decapsulations = {p: Decapsulation(plan, host, p, nic._codec) for p in nic.ports}
    nic._hooks, nic._reported_hooks = [], set()
    return nic


def frame_at_host(frame: bytes, host=H2, plane=PLANE, outer_tc: int | None = None) -> bytes:
    """Return the frame as the last switch hands it over: only the uSID of the NIC is left, hop limit 61."""
    out = bytearray(frame)
    out[38:54] = PLAN.nic_address(host, plane).to_bytes(16, "big")
    out[21] -= 3
    if outer_tc is not None:
        word = int.from_bytes(out[14:18], "big") & ~(0xFF << 20) | outer_tc << 20
        out[14:18] = word.to_bytes(4, "big")
    return bytes(out)


def verdicts_of(frame: bytes, host=H2, plane=PLANE, plan: Plan = PLAN):
    """Return [fast NIC's verdict, scapy NIC's verdict]: (peer, record) or the reason for dropping."""
    verdicts = []
    for take in (
        lambda: Decapsulation(plan, host, plane, CODEC).open(memoryview(frame)),
        lambda: scapy_nic_of(host, plan).unwrap(frame, plane),
    ):
        try:
            peer, record = take()
            verdicts.append((peer, replace(record, payload=bytes(record.payload))))
        except WireError as error:
            verdicts.append(drop_reason(error))
    return verdicts


def test_wrap__both_nics_make_the_same_bytes():
    record = a_write()
    frame = fast_frame(record)
    assert bytes(scapy_nic_of(H0).wrap(PLANE, H2, record)).hex() == frame.hex()
    assert frame[38:54].hex() == "fcbbbb00" + "2300" + "1301" + "2301" + "3300" + "0000" * 2  # §8.2
    assert frame[14:18] == frame[54:58]  # DSCP, ECN and flow label repeated outside
    assert int.from_bytes(frame[18:20], "big") == len(frame) - 54


def test_wrap__inside_a_rack_there_is_no_t1():
    assert fast_frame(a_write(), H0, H1)[38:54].hex() == "fcbbbb00" + "2300" + "3301" + "0000" * 4


def test_unwrap__what_was_sent_arrives():
    assert verdicts_of(frame_at_host(fast_frame(a_write()))) == [("h0", a_write())] * 2


@pytest.mark.parametrize(
    ("outer", "dscp", "ecn"),
    [(4 << 2 | 3, 4, 3), (8 << 2 | 2, 8, 2), (46 << 2, 46, 0)],
    ids=["ce outside", "dscp re-marked", "ecn cleared outside"],
)
def test_unwrap__the_outer_dscp_wins_and_ce_is_ored(outer, dscp, ecn):
    for _, record in verdicts_of(frame_at_host(fast_frame(a_write()), outer_tc=outer)):
        assert (record.dscp, record.ecn) == (dscp, ecn)


def test_unwrap__ce_inside_counts_too():
    for _, record in verdicts_of(frame_at_host(fast_frame(a_write(ecn=3)), outer_tc=4 << 2 | 2)):
        assert record.ecn == 3


@pytest.mark.parametrize("size", [118, 122, 138, 142])
def test_unwrap__trimmed_by_the_fabric(size):
    frame = frame_at_host(fast_frame(a_write()), outer_tc=12 << 2 | 2)[:size]
    for peer, record in verdicts_of(frame):
        assert (peer, record.trimmed, record.psn, record.payload) == ("h0", NackReason.TRIMMED, 9, b"")


def with_bytes(offset: int, value: bytes) -> bytes:
    frame = bytearray(frame_at_host(fast_frame(a_write())))
    frame[offset : offset + len(value)] = value
    return bytes(frame)


NOT_OURS = {
    "a path left over": fast_frame(a_write()),
    "the uSID of another host": frame_at_host(fast_frame(a_write()), H3),
    "the uSID of another plane": frame_at_host(fast_frame(a_write()), H2, 2),
    "an inner address of another host": with_bytes(54 + 24, PLAN.address(H3, PLANE).packed),
    "an inner address of another plane": with_bytes(54 + 24, PLAN.address(H2, 1).packed),
    "a sender nobody knows": with_bytes(54 + 8, bytes(16)),
    "a sender of another plane": with_bytes(54 + 8, PLAN.address(H0, 1).packed),
    "no IPv6 inside": with_bytes(20, b"\x11"),
    "no IPv6 at all": with_bytes(12, b"\x08\x00"),
}


@pytest.mark.parametrize("case", NOT_OURS)
def test_unwrap__not_ours(case):
    for verdict in verdicts_of(NOT_OURS[case]):
        assert verdict.startswith("not ours"), verdict


def test_unwrap__a_changed_payload_fails_the_icrc():
    for verdict in verdicts_of(with_bytes(54 + 40 + 8 + 12 + 4 + 4 + 16, b"J")):
        assert verdict == "iCRC"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_unwrap__nothing_crashes_on_hostile_frames(data):
    frame = bytearray(frame_at_host(fast_frame(a_write())))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    fast, scapy = verdicts_of(bytes(frame[: data.draw(st.integers(0, len(frame)))]) + data.draw(st.binary(max_size=4)))
    assert isinstance(fast, tuple) == isinstance(scapy, tuple)
    if isinstance(fast, tuple):
        assert fast == scapy


# ---- segment routing header ---------------------------------------------------------------------------------


def with_srh(segments: int, segments_left: int = 0, kind: int = 4, next_header: int = 41, tlv: int = 0) -> bytes:
    """Return a frame as it arrives with a segment routing header (RFC 8754 §2)."""
    frame = frame_at_host(fast_frame(a_write()))
    srh = bytes((next_header, 2 * segments + tlv, kind, segments_left, max(0, segments - 1), 0, 0, 0))
    srh += bytes(range(16)) * segments + bytes(8 * tlv)
    length = int.from_bytes(frame[18:20], "big") + len(srh)
    return frame[:18] + length.to_bytes(2, "big") + b"\x2b" + frame[21:54] + srh + frame[54:]


@pytest.mark.parametrize(("segments", "tlv"), [(1, 0), (2, 0), (4, 0), (1, 1)])
def test_unwrap__an_srh_that_is_used_up_comes_off(segments, tlv):
    assert verdicts_of(with_srh(segments, tlv=tlv)) == [("h0", a_write())] * 2


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (with_srh(2, segments_left=1), "not ours: segments left"),
        (with_srh(2, kind=2), "not ours: no IPvN behind a segment routing header"),
        (with_srh(2, next_header=17), "not ours: no IPvN behind a segment routing header"),
        (with_srh(40), "shorter than its headers"),
        (with_srh(1)[:60], "shorter than its headers"),
    ],
)
def test_unwrap__any_other_srh_is_dropped(frame, reason):
    if len(frame) > 500:  # an SRH that says it is longer than the packet
        frame = frame[:300]
    assert verdicts_of(frame) == [reason] * 2


# ---- modes without an outer header --------------------------------------------------------------------------

PLAIN = Plan(mode="ecmp")


def plain_frame(record: Write) -> bytes:
    capsule = Encapsulation(PLAIN, H0, H2, record.plane)
    inner = CODEC.encode(record, capsule.addressing)
    return capsule.outer(record.ev, inner.header[:4], inner.size) + inner.join()


def test_plain__the_ev_travels_in_port_and_flow_label():
    record = a_write(ev=0x8001_0305)
    frame = plain_frame(record)
    assert bytes(scapy_nic_of(H0, PLAIN).wrap(PLANE, H2, record)).hex() == frame.hex()
    assert len(frame) == len(fast_frame(a_write())) - 40
    assert frame[:14] == fast_frame(a_write())[:14]
    assert (frame[16:18].hex(), frame[54:56].hex()) == ("8001", "0305")
    assert verdicts_of(frame, plan=PLAIN) == [("h0", record)] * 2
    assert verdicts_of(frame + bytes(7), plan=PLAIN) == [("h0", record)] * 2  # padding behind it


@pytest.mark.parametrize(("traffic_class", "dscp", "ecn"), [(4 << 2 | 3, 4, 3), (8 << 2 | 2, 8, 2)])
def test_plain__marks_are_in_the_only_header(traffic_class, dscp, ecn):
    frame = bytearray(plain_frame(a_write()))
    word = int.from_bytes(frame[14:18], "big") & ~(0xFF << 20) | traffic_class << 20
    frame[14:18] = word.to_bytes(4, "big")
    for _, record in verdicts_of(bytes(frame), plan=PLAIN):
        assert (record.dscp, record.ecn) == (dscp, ecn)


@pytest.mark.parametrize("size", [78, 82, 98, 102])
def test_plain__trimmed(size):
    frame = bytearray(plain_frame(a_write()))[:size]
    word = int.from_bytes(frame[14:18], "big") & ~(0xFF << 20) | (16 << 2 | 2) << 20
    frame[14:18] = word.to_bytes(4, "big")
    for peer, record in verdicts_of(bytes(frame), plan=PLAIN):
        assert (peer, record.trimmed, record.psn) == ("h0", NackReason.TRIMMED_LASTHOP, 9)


def test_plain__not_ours():
    frame = bytearray(plain_frame(a_write()))
    for offset, value in ((14 + 24, PLAN.address(H3, PLANE).packed), (14 + 8, bytes(16)), (12, b"\x08\x00")):
        foreign_frame = bytes(frame[:offset] + value + frame[offset + len(value) :])
        for verdict in verdicts_of(foreign_frame, plan=PLAIN):
            assert verdict.startswith("not ours"), verdict
    for verdict in verdicts_of(frame_at_host(fast_frame(a_write())), plan=PLAIN):
        assert isinstance(verdict, str)
    for verdict in verdicts_of(bytes(frame)):
        assert isinstance(verdict, str)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_plain__nothing_crashes_on_hostile_frames(data):
    frame = bytearray(plain_frame(a_write()))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    fast, scapy = verdicts_of(bytes(frame[: data.draw(st.integers(0, len(frame)))]), plan=PLAIN)
    assert isinstance(fast, tuple) == isinstance(scapy, tuple)


def test_drop_reason__has_no_numbers_in_it():
    assert drop_reason(WireError("UDP length 17 in 0x20 bytes")) == "UDP length N in N bytes"


# ---- hooks --------------------------------------------------------------------------------------------------

HOOK_CALLS: list[tuple[str, int]] = []


def record_hook(packet, direction, plane):
    HOOK_CALLS.append((direction, plane))
    return packet


def corrupt(packet, direction, plane):
    packet[scapy_nic.USidCarrier].payload.payload.payload.psn = 77
    return packet


def drop(packet, direction, plane):
    return None


def raise_hook(packet, direction, plane):
    raise RuntimeError("a bug of the user's")


def nonsense(packet, direction, plane):
    packet.getlayer(1).hlim = "many"
    return packet


def text(packet, direction, plane):
    return "not a packet"


def nic_with_hooks(*hooks) -> ScapyNic:
    nic = scapy_nic_of(H2)
    nic._hooks = list(hooks)
    return nic


def test_hook__sees_what_arrives():
    HOOK_CALLS.clear()
    assert nic_with_hooks(record_hook).unwrap(frame_at_host(fast_frame(a_write())), PLANE)[0] == "h0"
    assert HOOK_CALLS == [("receive", PLANE)]


def test_hook__may_drop():
    with pytest.raises(WireError, match="hook"):
        nic_with_hooks(drop).unwrap(frame_at_host(fast_frame(a_write())), PLANE)


def test_hook__a_change_on_the_way_out_gets_a_right_icrc():
    sent = bytes(nic_with_hooks(corrupt)._run_hooks(scapy_nic_of(H0).wrap(PLANE, H2, a_write()), "send", PLANE))
    assert verdicts_of(frame_at_host(sent)) == [("h0", a_write(psn=77))] * 2


def test_hook__a_change_on_the_way_in_needs_a_new_icrc():
    with pytest.raises(WireError, match="iCRC"):
        nic_with_hooks(corrupt).unwrap(frame_at_host(fast_frame(a_write())), PLANE)


def test_hook__one_that_raises_changes_nothing(caplog):
    nic = nic_with_hooks(raise_hook)
    for _ in range(2):
        assert nic.unwrap(frame_at_host(fast_frame(a_write())), PLANE)[1].psn == 9
    assert len(caplog.records) == 1


@pytest.mark.parametrize("hook", [nonsense, text])
def test_hook__one_that_leaves_nonsense_costs_the_packet(hook):
    with pytest.raises(WireError):
        nic_with_hooks(hook).unwrap(frame_at_host(fast_frame(a_write())), PLANE)
    nic = nic_with_hooks(hook)
    nic.send(PLANE, "h0", a_write())
    assert nic.counters[PLANE].tx_dropped == {"cannot be built": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "MODULE:FUNCTION"),
        ("no_such_module_zz:f", "cannot import"),
        ("mrc_testbed.hosts.nic.scapy_nic:missing", "no function missing"),
    ],
)
def test_hook__a_wrong_name_is_explained(text, message):
    with pytest.raises(NicError, match=message):
        load_hook(text)
