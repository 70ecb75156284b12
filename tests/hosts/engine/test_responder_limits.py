"""Responders short of everything, windows that change, marks, trims and losses at once.

The bytes, in order, once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.events import WriteImmReceived
from mrc_testbed.hosts.engine.wire.packets import ECN_CE, NackReason, Packet, Write
from tests.hosts.engine.engine_pair import Pair


def limits(rng: Random) -> dict[str, Any]:
    """Return the keys of a responder that is short of some things."""
    keys: dict[str, Any] = {"always_skip_marks": rng.choice((0, 1, 4))}
    if rng.random() < 0.5:
        keys["bitmap_packets"] = rng.choice((1, 2, 8, 64))
    if rng.random() < 0.5:
        keys["work_slots"] = rng.choice((1, 2, 5))
    if rng.random() < 0.5:
        keys["rx_buffer_bytes"] = rng.choice((300, 2000, 20_000))
        keys["rx_drain_bytes_per_s"] = rng.choice((5e4, 1e6))
        keys["flow_control"] = rng.random() < 0.5
    return keys


def requestor(rng: Random) -> dict[str, Any]:
    return {
        "cwnd_bytes": rng.choice((400, 3000, 20_000)),
        "skip_mode": rng.choice(("cursor", "rotation")),
        "dynamic_mpr": True,
        "exp_cnt": 25,
        "timeout_ceiling_s": 0.3,
        "timestamps": rng.random() < 0.8,
        "cc_algorithm": rng.choice(("fixed", "uet-1.0-nscc")),
        "ev_fifo": rng.random() < 0.5,
    }


def rough(rng: Random) -> Callable[[str, Packet], list[float]]:
    """Return a wire that loses, delays, marks and trims."""
    loss, delays = rng.choice((0, 0, 0.02, 0.2)), rng.choice((0, 0.3))
    marks, trims = rng.choice((0, 0.3)), rng.choice((0, 0.1))

    def wire(source: str, packet: Packet) -> list[float]:
        if rng.random() < loss:
            return []
        if isinstance(packet, Write):
            if rng.random() < marks:
                packet.ecn = ECN_CE
            if rng.random() < trims:
                packet.trimmed, packet.payload = rng.choice((NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)), b""
        return [rng.random() * 0.02 if rng.random() < delays else 0.0]

    return wire


@pytest.mark.parametrize("seed", range(24))
def test_any_limits__everything_arrives_in_order_and_once(seed: int) -> None:
    rng = Random(seed)
    pair = Pair(
        planes=rng.choice((1, 2, 3)),
        uplinks=rng.choice((1, 2, 4)),
        seed=seed,
        config=requestor(rng),
        config_b=limits(rng),
    )
    pair.filter = rough(rng)
    expected_memory = bytearray(len(pair.memory))
    offset, count, immediates = 3, rng.randrange(1, 12), []
    for n in range(count):
        data = pair.bytes(rng.choice((0, 1, 300, 2000, 5000)))
        expected_memory[offset : offset + len(data)] = data
        imm = n if rng.random() < 0.3 else None
        if imm is not None:
            pair.b.qp.post_recv()
            immediates.append(imm)
        pair.write(data, offset, imm=imm)
        offset += len(data)
        if rng.random() < 0.3:
            pair.run(rng.random() * 0.05)
        if rng.random() < 0.3:
            pair.b.qp.set_mpr(128 * rng.choice((1, 2, 8)))
        if rng.random() < 0.2:
            pair.b.qp.set_penalty(rng.choice((0, 64, 127)))
    pair.run_until_quiet(limit_s=200.0)
    pair.filter = None
    pair.run(0.1)  # late packets are still on the wire
    assert pair.memory == expected_memory
    assert pair.completions() == [(n + 1, "SUCCESS") for n in range(count)]
    assert [e.imm for e in pair.events_of(WriteImmReceived, "b")] == immediates
