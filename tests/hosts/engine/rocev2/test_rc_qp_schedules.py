"""Random conversations of the baseline.

Settings, loss, copies, late packets, marks, receives posted late; by seed.
"""

from __future__ import annotations

from random import Random

import pytest

from mrc_testbed.hosts.engine.events import Completion, Status, WriteImmReceived
from tests.hosts.engine.engine_pair import MTU
from tests.hosts.engine.rocev2.rocev2_pair import RcPair


def wire(rng: Random):
    """Return a filter that loses, repeats, delays and marks packets, how often is drawn once."""
    loss, copies, delays, marks = (
        rng.choice((0, 0.05)),
        rng.choice((0, 0.1)),
        rng.choice((0, 0.1)),
        rng.choice((0, 0.3)),
    )

    def decide(source, packet):
        if hasattr(packet, "payload") and rng.random() < marks:
            packet.ecn = 3
        roll = rng.random()
        if roll < loss:
            return []
        if roll < loss + copies:
            return [0.0, rng.random() * 0.03]
        return [rng.random() * 0.05] if roll < loss + copies + delays else None

    return decide


@pytest.mark.parametrize("seed", range(60))
def test_conversation__every_byte_once_in_order(seed: int):
    rng = Random(seed)
    settings = {
        "window_packets": rng.choice((1, 2, 7, 64, 300)),
        "ack_every_packets": rng.choice((1, 3, 16)),
        "control": rng.choice(("window", "dcqcn")),
        "line_rate_bps": 5e6,
    }
    pair = RcPair(
        seed=seed,
        framed=rng.random() < 0.3,
        psn=rng.choice((None, 0xFFFFF0, 0)),
        rc=settings,
        per_packet_s=rng.choice((0, 0.0005)),
    )
    pair.filter = wire(rng)
    data, imms = [], 0
    for _ in range(rng.randrange(1, 15)):
        part = pair.bytes(rng.choice((0, 1, MTU, MTU + 1, rng.randrange(5 * MTU))))
        with_imm = rng.random() < 0.3
        pair.write(part, sum(map(len, data)), **({"imm": imms} if with_imm else {}))
        imms += with_imm
        data.append(part)
    memory, reverse_data = bytearray(1 << 14), pair.bytes(3000)
    region = pair.a.endpoint.register(memory)
    pair.b.qp.post_write(reverse_data, region.va, region.rkey, now=pair.now)
    at_once = rng.randrange(imms + 1)
    for number in range(imms):
        if number == at_once:
            pair.run(rng.random())  # WriteIMM that find no receive are tried again
        pair.b.qp.post_recv()
    pair.run_until_quiet(900)
    all_data = b"".join(data)
    assert pair.completions() == [(n, "SUCCESS") for n in range(1, len(data) + 1)]
    assert [e.status for e in pair.events_of(Completion, "b")] == [Status.SUCCESS]
    assert bytes(pair.memory[: len(all_data)]) == all_data and not any(pair.memory[len(all_data) :])
    assert bytes(memory[:3000]) == reverse_data and not any(memory[3000:])
    assert [e.imm for e in pair.events_of(WriteImmReceived, "b")] == list(range(imms))
    assert pair.b.qp.counters.bytes_received == len(all_data)
