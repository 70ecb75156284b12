"""Each packet of a short exchange lost, doubled or late, once.

Writes end whole, nothing hangs, EVs come back.

One story has every kind of packet: writes, their SACKs, a NACK for one that was trimmed, probes of a path that was cut,
port status between endpoints, and an EV probe without a QP. The retry budget is enough for any single fate.
"""

import copy
from functools import cache

import pytest

from mrc_testbed.hosts.engine.events import EvProbeResult
from mrc_testbed.hosts.engine.qp import EngineQpState
from mrc_testbed.hosts.engine.wire.packets import NackReason, Write
from tests.hosts.engine.engine_pair import Pair

FATES = {"lost": [], "doubled": [0.0, 0.0], "doubled and late": [0.0, 0.3], "late": [0.3]}
"""Extra delays of the copies, seconds; a path takes 5 ms."""
LIMIT_S = 60.0
KINDS = {"Write", "Sack", "Nack", "TransportAck", "ReliabilityProbe", "EndpointRequest", "EndpointResponse"}
TRIMMED = 5
"""Number of the packet of data that a switch trims on its first way."""


def play(number=None, fate=None):
    """Play the story with one packet's fate and check its end; return the kinds of packets sent."""
    pair = Pair()
    count = 0

    def decide(_source, packet):
        nonlocal count
        count += 1
        if count - 1 == number:
            return fate
        if isinstance(packet, Write) and packet.psn == pair.a.qp.first_psn + TRIMMED and not packet.rtx:
            trimmed = copy.copy(packet)
            trimmed.payload, trimmed.va, trimmed.trimmed = b"", 0, NackReason.TRIMMED
            pair.hand_over("b", trimmed, packet.plane, pair.delay_s)
            return []
        return None

    pair.filter = decide
    # The story: a write with a trim, an EV probe, a port down and up, a path cut and mended, with a write after each
    data = pair.bytes(6_000)
    pair.write(data)
    pair.run(0.1)
    pair.a.endpoint.probe_ev("b", pair.evs[0][0], pair.evs[0][1], now=pair.now, timeout_s=1.0)
    pair.port("b", 0, False)
    pair.run(0.2)
    pair.write(data, 8_000)
    pair.run(0.2)
    pair.port("b", 0, True)
    pair.cut(pair.evs[-1][0])
    pair.write(data, 16_000)
    pair.run(1.5)
    pair.cut(pair.evs[-1][0], cut=False)
    pair.write(data, 24_000)
    pair.run_until_quiet(LIMIT_S)
    pair.run(5.0)
    assert [status for _, status in pair.completions()] == ["SUCCESS"] * 4
    for offset in (0, 8_000, 16_000, 24_000):
        assert pair.memory[offset : offset + len(data)] == data
    assert pair.a.qp.state is pair.b.qp.state is EngineQpState.RTS
    assert {row["state"] for row in pair.a.qp.ev_states()} == {"good"}
    assert len(pair.events_of(EvProbeResult)) == 1
    return [type(line.packet).__name__ for line in pair.log]


@cache
def packets():
    return play()


def test_the_story_has_every_kind():
    assert set(packets()) == KINDS


@pytest.mark.parametrize(
    "fate",
    [pytest.param(fate, marks=() if fate in ("lost", "doubled and late") else pytest.mark.thorough) for fate in FATES],
)
def test_each_packet_once(fate):
    for number in range(len(packets())):
        try:
            play(number, FATES[fate])
        except AssertionError as error:
            raise AssertionError(f"packet {number} ({packets()[number]}) {fate}") from error
