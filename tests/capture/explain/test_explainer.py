"""Comments on packets: of a real conversation of two engines, and of single cases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.capture.explain import explainer as explaining
from mrc_testbed.capture.explain.explainer import PREFIX, Explainer
from mrc_testbed.capture.explain.packet_facts import facts_of
from mrc_testbed.capture.packet_files import INBOUND, OUTBOUND
from mrc_testbed.hosts.clustermapper.packets import UDP_PORT
from mrc_testbed.hosts.engine.rocev2.rc_packets import RcOpcode, RcWrite
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointOp,
    EndpointRequest,
    Nack,
    NackReason,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Verdict,
    Write,
)
from mrc_testbed.hosts.nic.ip_packet import IpPacket
from mrc_testbed.topologies.plan import Mode, Plan
from tests.capture.explain.made_frames import PLAN, a_write, made_frame
from tests.hosts.engine.engine_pair import Pair, lose_first
from tests.hosts.ip.test_flows import ip4
from tests.hosts.nic.test_ip_packet import wire_frame

EV = 0x0101
RETRANSMISSION = re.compile(r"retransmission of frame (\d+), ([\d.]+) ms before by EV (0x[0-9a-f]{4})")
TRIGGER = re.compile(r"triggered by frame (\d+) \(PSN (\d+)\)")


def comments_of(*frames: bytes, plan: Plan | None = PLAN) -> list[str]:
    """Return the comments of frames a millisecond apart, all on one port."""
    explainer = Explainer(plan)
    return [explainer.comment(frame, at_ns=number * 1_000_000) for number, frame in enumerate(frames)]


def test_write__path_by_name():
    assert comments_of(made_frame(a_write(7))) == [
        "MRC: h0 > h2 by EV 0x0101: p1-t0-0, p1-t1-1, p1-t0-1; WRITE_ONLY, QP 0x123, PSN 7"
    ]


def test_write__inside_a_rack_and_without_a_plan():
    (comment,) = comments_of(made_frame(a_write(7, 0x0100), "h2", "h3"), plan=None)
    assert comment.startswith("MRC: host 0 of rack 1 > host 1 of rack 1 by EV 0x0100: p1-t0-1; ")


@pytest.mark.parametrize("mode", list(Mode))
def test_path__as_the_plan_has_it_in_every_mode(mode):
    plan = Plan(2, 2, 2, 2, mode=mode)
    source, destination = plan.host("h1"), plan.host("h3")
    for ev, plane in plan.ev_planes(source, destination):
        path = plan.path(source, destination, ev, plane)
        comment = comments_of(made_frame(a_write(7, ev), "h1", "h3", plan, plane), plan=plan)[0]
        switches = comment.partition("; ")[0].rpartition(": ")[2].split(", ")
        assert (switches[0], switches[2]) == (path.nodes[1], path.nodes[3])
        assert switches[1] == (path.nodes[2] if path.exact else "a T1 that the T0 chooses")


def test_ev__of_no_path_is_said():
    frame = bytearray(made_frame(a_write(7)))
    frame[14 + 40 + 40 : 14 + 40 + 40 + 2] = b"\x00\x01"  # EV 0x0001 from an address of plane 1
    assert "EV 0x0001: no path of plane 1" in comments_of(bytes(frame))[0]


def test_conversation__every_retransmission_names_what_it_repeats():
    """Two engines with a lossy wire, captured at one of them."""
    pair = Pair(framed=True)
    lost = lose_first(pair, lambda source, packet: source == "a" and isinstance(packet, Write), times=3)
    pair.write(pair.bytes(20_000))
    pair.run_until_quiet()
    ends = {"a": ("h0", "h2", OUTBOUND), "b": ("h2", "h0", INBOUND)}
    explainer, sent, repeated_psns, answers = Explainer(PLAN), {}, [], 0
    # Frames are numbered from 1, in the order of the capture, as the comments number them.
    for number, line in enumerate(pair.log, 1):
        source, target, direction = ends[line.source]
        plane = line.packet.ev >> 8
        frame = made_frame(line.packet, source, target)
        comment = explainer.comment(
            frame, at_ns=round(line.time * 1e9), interface=f"h0-eth{plane}", direction=direction
        )
        match = RETRANSMISSION.search(comment)
        if isinstance(line.packet, Write) and line.packet.rtx:
            sent_frame, sent_at, ev = sent[line.packet.psn]
            assert match and (int(match[1]), int(match[3], 0)) == (sent_frame, ev), comment
            assert float(match[2]) == pytest.approx((line.time - sent_at) * 1e3, abs=1e-3)
            repeated_psns.append(line.packet.psn)
        else:
            assert "retransmission" not in comment, comment
        if isinstance(line.packet, Write):
            sent[line.packet.psn] = (number, line.time, line.packet.ev)
        elif isinstance(line.packet, Sack) and (
            trigger := re.search(r"triggered by frame (\d+) \(PSN (\d+)\)", comment)
        ):
            answers += 1
            cause = pair.log[int(trigger[1]) - 1].packet
            assert (cause.psn, cause.ev) == (int(trigger[2]), line.packet.entropy)
    assert {packet.psn for packet in lost} <= set(repeated_psns) and answers > 10
    assert explainer.explained_count == len(pair.log)


def test_retransmission__names_the_nack_and_another_plane():
    first, retransmission = made_frame(a_write(7)), made_frame(a_write(7, 0x0000, dscp=8, rtx=True))
    nack = made_frame(Nack(0x456, EV, 1, 46, 0, 7, NackReason.TRIMMED, EV), "h2", "h0")
    comments = comments_of(first, nack, retransmission)
    assert comments[1].endswith("NACK, QP 0x456, refuses frame 1 (PSN 7) of EV 0x0101: TRIMMED")
    assert (
        comments[2].endswith("; retransmission of frame 1, 2.000 ms before by EV 0x0101 (NACK TRIMMED in frame 2)")
        and "by EV 0x0000: p0-t0-0, p0-t1-0, p0-t0-1" in comments[2]
    )


def test_retransmission__of_what_was_not_captured(monkeypatch):
    assert comments_of(made_frame(a_write(7, rtx=True)))[0].endswith(
        "; retransmission of a packet that is not in this capture"
    )
    monkeypatch.setattr(explaining, "PACKETS_KEPT", 2)
    frames = [made_frame(a_write(psn)) for psn in range(3)]
    comments = comments_of(*frames, made_frame(a_write(0, rtx=True)), made_frame(a_write(2, rtx=True)))
    assert comments[3].endswith("; retransmission of a packet that is not among the last 2 packets")
    assert "retransmission of frame 3, " in comments[4]


def test_another_qp_and_a_new_one_with_the_same_numbers__are_no_retransmissions():
    frames = [made_frame(a_write(7)), made_frame(a_write(7, qp=0x124)), made_frame(a_write(7))]
    assert not any("retransmission" in comment or "same packet" in comment for comment in comments_of(*frames))


def test_two_ports_of_a_switch__the_same_packet_marked_and_trimmed_in_between():
    explainer = Explainer(PLAN)
    plain_frame, marked_frame = made_frame(a_write(7)), made_frame(a_write(7, ecn=3))
    trimmed_frame = made_frame(a_write(8, dscp=12))[: PLAN.trim_bytes]
    explainer.comment(plain_frame, at_ns=0, interface="p1-t0-0-eth1", direction=INBOUND)
    comment = explainer.comment(marked_frame, at_ns=4_100_000, interface="p1-t0-0-eth4", direction=OUTBOUND)
    assert comment.endswith("; the same packet as frame 1 on p1-t0-0-eth1, 4.100 ms before; marked (CE) in p1-t0-0")
    explainer.comment(made_frame(a_write(8)), at_ns=5_000_000, interface="p1-t0-0-eth1", direction=INBOUND)
    comment = explainer.comment(trimmed_frame, at_ns=6_000_000, interface="p1-t0-0-eth4", direction=OUTBOUND)
    assert comment.endswith("; the same packet as frame 3 on p1-t0-0-eth1, 1.000 ms before; trimmed in p1-t0-0")


def test_two_ports_of_a_switch__how_long_it_waited():
    """The wait is measured against the quickest frame of its size and ports, at the port's rate.

    10 Mb/s are 1250 bytes a millisecond.
    """
    explainer = Explainer(Plan.scaled(2, 2, 2, 2, rate_bps=10e6))
    comments = []
    for psn, took_ns in enumerate((2_400_000, 4_900_000, 2_400_000)):
        for interface, direction, at_ns in (("p1-t0-0-eth1", INBOUND, 0), ("p1-t0-0-eth4", OUTBOUND, took_ns)):
            frame = made_frame(a_write(psn))
            comment = explainer.comment(frame, at_ns=psn * 10**7 + at_ns, interface=interface, direction=direction)
        comments.append(comment)
    assert comments[1].endswith(
        ", 4.900 ms before, 2.500 ms longer than the quickest: about 3125 bytes before it in the queue"
    )
    assert "longer" not in comments[0] + comments[2]


def test_trimmed_and_marked__where_it_is_not_seen():
    far, last = (made_frame(a_write(7, dscp=dscp, ecn=3))[: PLAN.trim_bytes] for dscp in (12, 16))
    assert comments_of(far)[0].endswith("; marked (CE) by a queue on its way; trimmed by a full queue on its way")
    assert comments_of(last)[0].endswith("trimmed at the last hop: the queue of p1-t0-1 to the host was full")


def test_queue__is_of_packets_that_wait_in_it():
    explainer = Explainer(PLAN)
    depth = "queue of p1-t0-0-eth3: 5120 bytes, 3.1 ms before"
    assert explainer.comment(made_frame(a_write(7)), at_ns=0, queue=depth).endswith("; " + depth)
    control = made_frame(TransportAck(0x456, EV, 1, 46, 0, 7, 0x1F, 1), "h2", "h0")
    assert explainer.comment(control, at_ns=0, queue=depth).endswith("ACKNOWLEDGE, QP 0x456, ACK, PSN 7")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            Sack(5, EV, 1, 46, 0, 10, 1, 0b1011, 4, None, EV, Verdict.SKIP_ONCE, 3, 4),
            "SACK, QP 0x5, all up to PSN 10 arrived, 3 beyond, triggered by PSN 14, verdict SKIP_ONCE on EV 0x0101",
        ),
        (
            Sack(5, EV, 1, 46, 0, 10, -1, 0b1111, -3, None, EV, 0, 3, 4),
            "SACK, QP 0x5, all up to PSN 10 arrived, 2 beyond, triggered by PSN 7",
        ),
        (
            Sack(5, EV, 1, 46, 0, 10, 1, 0, 0, 0x77, EV, 0, 3, 4),
            "SACK, QP 0x5, all up to PSN 10 arrived, answers probe 0x0077",
        ),
        (ReliabilityProbe(5, EV, 1, 46, 0, 0x77), "RELIABILITY_PROBE, QP 0x5, probe 0x0077 of the path"),
        (Nack(5, EV, 1, 46, 0, 9, 0x55, EV), "NACK, QP 0x5, refuses PSN 9 of EV 0x0101: 0x55"),
        (
            EndpointRequest(2, EV, 1, 46, 0, 1, EndpointOp.PORT_STATUS_UPDATE, 0b101),
            "ENDPOINT_REQUEST, QP 0x2, PORT_STATUS_UPDATE: ports up: 0, 2",
        ),
        (EndpointRequest(2, EV, 1, 46, 0, 1, EndpointOp.EV_PROBE), "ENDPOINT_REQUEST, QP 0x2, EV_PROBE"),
    ],
)
def test_control__in_words(record, words):
    assert comments_of(made_frame(record))[0].partition("; ")[2] == words


def test_probe__and_its_answer():
    probe = made_frame(ReliabilityProbe(5, EV, 1, 46, 0, 0x77))
    answer = made_frame(Sack(6, EV, 1, 46, 0, 10, 1, 0, 0, 0x77, EV, 0, 3, 4), "h2", "h0")
    assert comments_of(probe, answer)[1].endswith("answers probe 0x0077 of frame 1")


def test_rocev2__sent_again_is_told_by_its_psn():
    plan = Plan(2, 2, 2, 2, mode=Mode.FLOW_ECMP)
    record = RcWrite(5, 0x12345, 1, 4, 2, RcOpcode.WRITE_MIDDLE, 7, bytes(64), 0)
    frame = made_frame(record, plan=plan, plane=1)
    comments = comments_of(frame, frame, plan=plan)
    assert comments[0].endswith("; RoCEv2 WRITE_MIDDLE, QP 0x5, PSN 7")
    assert comments[1].endswith("; retransmission of frame 1, 1.000 ms before by EV 0x12345")


def test_self_probe_and_foreign_packets():
    frame = bytearray(made_frame(a_write(7)))
    offset = 14 + 40 + 40 + 2
    frame[offset : offset + 2] = UDP_PORT.to_bytes(2, "big")
    assert comments_of(bytes(frame)) == [
        "MRC: Clustermapper's self-probe of h0; still to go: p1-t0-0, p1-t1-1, p1-t0-1, NIC 0"
    ]
    frame = bytearray(made_frame(a_write(7)))
    frame[14 + 40 + 40 + 8] = 0x04  # SEND_ONLY of RC
    assert comments_of(bytes(frame)) == ["MRC: RoCEv2 of another kind, no packet of MRC: opcode 0x04"]
    assert comments_of(b"", bytes(60), bytes(12) + b"\x08\x06" + bytes(46)) == ["MRC: no packet of MRC"] * 3


def test_carried_ip_packet__path_protocol_and_its_own_addresses():
    plan = Plan(2, 2, 2, 2)
    frame = wire_frame(plan, IpPacket(EV, ip4(), dscp=0))
    assert comments_of(frame, plan=plan) == [
        "MRC: h0 > h2 by EV 0x0101: p1-t0-0, p1-t1-1, p1-t0-1; IP over the fabric, no MRC: TCP 10.64.0.1 > 10.64.0.3"
    ]
    damaged = wire_frame(plan, IpPacket(EV, b"\x45", dscp=0))
    assert comments_of(damaged, plan=plan)[0].endswith("; IP over the fabric: shorter than its IPv4 header")


def test_cut_short__says_what_is_left():
    """Any cut of a frame is explained: nothing is raised, and nothing is made up."""
    frame = made_frame(Sack(5, EV, 1, 46, 0, 10, 1, 0b1011, 4, None, EV, 1, 3, 4))
    comments = [comments_of(frame[:size])[0] for size in range(len(frame))]
    assert comments[0] == "MRC: no packet of MRC" and comments[-1] == comments_of(frame)[0]
    assert len(set(comments)) == 3 and comments[14 + 40 + 40 + 8 + 12].endswith("; SACK, QP 0x5")


@given(st.binary(max_size=200), st.integers(0, 199), st.binary(min_size=1, max_size=8))
def test_any_bytes__have_a_comment(junk, offset, change):
    frame = made_frame(a_write(7))
    for data in (junk, frame[:14] + junk, frame[:offset] + change + frame[offset + len(change) :]):
        facts_of(data)
        assert Explainer(PLAN).comment(data, at_ns=0).startswith(PREFIX)
