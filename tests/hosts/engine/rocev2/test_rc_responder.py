"""The responder of the RoCEv2 RC baseline: immediates, posted receives, acknowledgments."""

from __future__ import annotations

from mrc_testbed.hosts.engine.events import ReceiveFlushed, WriteImmReceived
from mrc_testbed.hosts.engine.rocev2.rc_packets import RcAck, RcWrite
from tests.hosts.engine.engine_pair import MTU
from tests.hosts.engine.rocev2.rocev2_pair import RcPair


def test_write_imm__delivered_once_in_order():
    pair = RcPair(framed=True)
    ids = [pair.b.qp.post_recv() for _ in range(3)]
    pair.write(pair.bytes(MTU), imm=7)
    pair.write(pair.bytes(3 * MTU), imm=8, solicited=True)
    pair.write(b"", imm=9)
    pair.run_until_quiet()
    got = [(e.recv_id, e.imm, e.length, e.solicited) for e in pair.events_of(WriteImmReceived, "b")]
    assert got == [(ids[0], 7, MTU, False), (ids[1], 8, 3 * MTU, True), (ids[2], 9, 0, False)]


def test_write_imm__waits_for_a_posted_receive():
    pair = RcPair(framed=True)
    pair.write(pair.bytes(3 * MTU), imm=7)
    pair.run(0.1)
    assert pair.completions() == [] and pair.a.qp.counters.rnr_naks > 1
    pair.b.qp.post_recv()
    pair.run_until_quiet()
    assert [(e.imm, e.length) for e in pair.events_of(WriteImmReceived, "b")] == [(7, 3 * MTU)]
    assert pair.completions() == [(1, "SUCCESS")]


def test_write_imm__rnr_retries_run_out():
    pair = RcPair(rc={"rnr_retry": 2})
    pair.write(pair.bytes(MTU), imm=7)
    pair.run(1)
    assert pair.completions() == [(1, "RETRY_EXCEEDED")]
    assert len(pair.sent(RcWrite)) == 3


def test_receives__come_back_when_the_qp_fails():
    pair = RcPair()
    ids = [pair.b.qp.post_recv() for _ in range(2)]
    pair.write(b"x", offset=1 << 20)
    pair.run_until_quiet()
    assert [e.recv_id for e in pair.events_of(ReceiveFlushed, "b")] == ids and not pair.b.qp.receives()


def test_acks__coalesced():
    pair = RcPair(rc={"ack_every_packets": 4})
    pair.write(pair.bytes(32 * MTU))
    pair.run_until_quiet()
    assert 1 <= len(pair.sent(RcAck, "b")) <= 8
