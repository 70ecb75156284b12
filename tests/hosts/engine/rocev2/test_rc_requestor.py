"""The requestor of the RoCEv2 RC baseline in virtual time: in order, Go-Back-N, one path, DCQCN."""

from __future__ import annotations

from random import Random

import pytest

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import QpError, Status
from mrc_testbed.hosts.engine.qp import EngineQpState
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcWrite
from tests.hosts.engine.engine_pair import MTU, lose_first
from tests.hosts.engine.rocev2.rocev2_pair import RcPair


def psn_is(pair: RcPair, n: int):
    """Return a match for lose_first: data packet number `n` of a."""
    return lambda source, p: isinstance(p, RcWrite) and source == "a" and p.psn == (pair.a.qp.first_psn + n) & 0xFFFFFF


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("size", [0, 1, MTU - 1, MTU, MTU + 1, 10 * MTU, 10 * MTU + 3])
def test_write__bytes_in_place_one_completion(size: int, framed: bool):
    pair = RcPair(framed=framed)
    data = pair.bytes(size)
    wr_id = pair.write(data, 100)
    pair.run_until_quiet()
    assert bytes(pair.memory[100 : 100 + size]) == data
    assert not any(pair.memory[:100]) and not any(pair.memory[100 + size :])
    assert pair.completions() == [(wr_id, "SUCCESS")]
    assert pair.psns() == list(range(max(1, -(-size // MTU))))


def test_write__reth_only_in_first_and_one_path():
    pair = RcPair()
    pair.write(pair.bytes(3 * MTU))
    pair.run_until_quiet()
    sent = [line.packet for line in pair.sent(RcWrite)]
    assert [p.opcode for p in sent] == [RcOpcode.WRITE_FIRST, RcOpcode.WRITE_MIDDLE, RcOpcode.WRITE_LAST]
    assert [(p.va, p.dma_length) for p in sent] == [(pair.region.va, 3 * MTU), (0, 0), (0, 0)]
    assert {(line.packet.ev, line.packet.plane) for line in pair.log if line.source == "a"} == {pair.a.qp.path}
    assert {(line.packet.ev, line.packet.plane) for line in pair.log if line.source == "b"} == {pair.b.qp.path}


def test_one_loss__goes_back_and_sends_everything_since_again():
    pair = RcPair()
    lose_first(pair, psn_is(pair, 2))
    data = pair.bytes(8 * MTU)
    pair.write(data)
    pair.run_until_quiet()
    assert pair.psns() == [0, 1, 2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7]
    assert len(pair.naks()) == 1
    assert bytes(pair.memory[: len(data)]) == data
    counters = pair.a.qp.counters
    assert (counters.packets_sent, counters.retransmitted, counters.lost, counters.timeouts) == (8, 6, 1, 0)
    assert pair.b.qp.counters.out_of_order == 5


def test_tail_lost__only_the_timer_helps():
    pair = RcPair()
    lose_first(pair, psn_is(pair, 7))
    pair.write(pair.bytes(8 * MTU))
    pair.run_until_quiet()
    # Only the last packet asked for an ACK, so nothing is known to have arrived.
    assert pair.psns() == [*range(8), *range(8)]
    assert pair.sent(RcWrite)[8].time == pytest.approx(pair.settings.timeout_s)
    assert pair.b.qp.counters.duplicates == 7
    assert pair.completions() == [(1, "SUCCESS")]


def test_retransmission_lost_too__no_second_nak():
    pair = RcPair()
    lose_first(pair, psn_is(pair, 2), times=2)
    pair.write(pair.bytes(8 * MTU))
    pair.run_until_quiet()
    assert len(pair.naks()) == 1
    assert pair.a.qp.counters.timeouts == 1
    assert pair.completions() == [(1, "SUCCESS")]


@pytest.mark.parametrize("seed", range(8))
def test_lossy_wire__everything_arrives_exactly_once(seed: int):
    pair = RcPair(seed=seed, framed=True, psn=0xFFFFF0)  # the PSN wraps on the way
    rng = Random(seed)

    def lossy(source, packet):
        roll = rng.random()
        return [] if roll < 0.1 else [0.0, 0.002] if roll < 0.15 else [0.004] if roll < 0.2 else None

    pair.filter = lossy
    data = [pair.bytes(rng.randrange(6 * MTU)) for _ in range(12)]
    offsets = [sum(map(len, data[:i])) for i in range(len(data))]
    for part, offset in zip(data, offsets, strict=True):
        pair.write(part, offset)
    pair.run_until_quiet(600)
    assert pair.completions() == [(i + 1, "SUCCESS") for i in range(len(data))]
    assert bytes(pair.memory[: sum(map(len, data))]) == b"".join(data)
    assert pair.b.qp.counters.bytes_received == sum(map(len, data))


def test_dead_path__stalls_until_it_is_mended():
    pair = RcPair()
    pair.write(pair.bytes(4 * MTU))
    pair.cut(pair.ev)
    pair.run(0.3)
    assert pair.completions() == []
    pair.cut(pair.ev, cut=False)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]
    assert {line.packet.ev for line in pair.sent(RcWrite)} == {pair.ev}


def test_dead_path__retry_exceeded_after_all_retries():
    pair = RcPair(rc={"retry_cnt": 3})
    pair.cut(pair.ev)
    for _ in range(3):
        pair.write(pair.bytes(MTU))
    pair.run(10)
    assert pair.completions() == [(1, "RETRY_EXCEEDED"), (2, "FLUSHED"), (3, "FLUSHED")]
    (error,) = pair.events_of(QpError)
    assert error.status is Status.RETRY_EXCEEDED
    assert error.at == pytest.approx(4 * pair.settings.timeout_s)
    assert pair.a.qp.state is EngineQpState.ERROR
    with pytest.raises(LocalError, match="did not get through in 3 retries"):
        pair.write(b"x")


@pytest.mark.parametrize("control", ["window", "dcqcn"])
@pytest.mark.parametrize("planes", [1, 2])
def test_port_down__ends_in_retry_exceeded_and_not_in_silence(planes: int, control: str):
    pair = RcPair(planes=planes, rc={"control": control, "line_rate_bps": 1e6})
    pair.write(pair.bytes(40 * MTU))
    pair.run(0.003)
    for plane in {pair.a.qp.path[1], pair.b.qp.path[1]}:  # data leaves by the one, ACKs come by the other
        pair.port("a", plane, False)
    sent_count = len(pair.sent(RcWrite))
    steps = 0
    while pair.a.qp.outstanding() and pair.step():
        steps += 1
    assert pair.completions() == [(1, "RETRY_EXCEEDED")] and len(pair.sent(RcWrite)) == sent_count
    assert steps < 1000, "no timer that names the same instant again"


def test_port_down_before_anything_was_sent():
    pair = RcPair(planes=1)
    pair.port("a", 0, False)
    pair.write(pair.bytes(MTU))
    pair.run(10)
    assert pair.completions() == [(1, "RETRY_EXCEEDED")]


def goodput(pair: RcPair, packets: int) -> float:
    """Return the bytes a second of one long transfer."""
    data = bytes(packets * MTU)
    start = pair.now
    pair.write(data)
    pair.run_until_quiet(3600)
    return len(data) / (pair.now - start)


def test_one_percent_loss__falls_under_a_third():
    """A loss with 256 packets in flight costs 256, and one packet in a hundred is lost."""
    kwargs = {"per_packet_s": 0.01 / 256, "rc": {"window_packets": 256}, "region": 4000 * MTU}
    clean = goodput(RcPair(**kwargs), 4000)
    pair, rng = RcPair(**kwargs), Random(5)
    pair.filter = lambda source, packet: [] if rng.random() < 0.01 else None
    assert goodput(pair, 4000) < 0.3 * clean
    assert pair.completions() == [(1, "SUCCESS")]


def test_dcqcn__marks_lower_the_rate_and_it_recovers():
    pair = RcPair(rc={"control": "dcqcn", "line_rate_bps": 2e6, "increase_bps": 1e5}, region=1 << 20)
    marked = [True]

    def mark(source, packet):
        if isinstance(packet, RcWrite) and marked[0]:
            packet.ecn = 3
        return None

    pair.filter = mark
    pair.write(pair.bytes(1 << 18))
    rate = pair.a.qp.baseline.requestor.rate
    assert rate.rate_bps == 2e6
    pair.run(0.5)
    low = rate.rate_bps
    assert low < 0.5e6
    cnps = pair.sent(Cnp, "b")
    assert 0 < len(cnps) <= 0.5 / pair.settings.cnp_interval_s + 1
    marked[0] = False
    pair.run_until_quiet(600)
    assert pair.completions() == [(1, "SUCCESS")]
    assert rate.rate_bps > 2 * low


def test_dcqcn__sends_at_its_rate():
    pair = RcPair(rc={"control": "dcqcn", "line_rate_bps": 1e6}, region=1 << 20)
    nominal = 1e6 / 8 * MTU / (MTU + 24 + 40)
    assert goodput(pair, 1000) == pytest.approx(nominal, rel=0.1)


def test_dcqcn__a_full_port_needs_no_timer():
    """The rate allows a packet, the port does not: next_timer() must not name this very instant for ever."""
    pair = RcPair(rc={"control": "dcqcn", "line_rate_bps": 1e9}, per_packet_s=0.001)
    pair.write(pair.bytes(10 * MTU))
    steps = 0
    while pair.a.qp.outstanding() and pair.step():
        steps += 1
    assert pair.completions() == [(1, "SUCCESS")] and steps < 100


def test_port_down__swallows_what_is_sent_while_the_other_is_up():
    pair = RcPair(planes=2)
    pair.port("a", pair.a.qp.path[1], is_up=False)
    pair.write(pair.bytes(3 * MTU))
    pair.flush()
    assert pair.a.qp.counters.packets_sent == 3 and pair.psns() == []


def test_ack__of_an_unknown_syndrome_is_counted_and_ignored():
    pair = RcPair(psn=100)
    pair.write(pair.bytes(3 * MTU))
    pair.flush()
    pair.a.endpoint.receive(RcAck(pair.a.qp.qpn, 0, 0, 46, 0, 100, 0x7F, 0), 0, "b", pair.now)
    assert pair.a.qp.counters.bad_feedback == 1
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]
