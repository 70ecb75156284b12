"""One schedule, run twice and with the bytes on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mrc_testbed.simulator.simtest.run import simulate
from mrc_testbed.simulator.simtest.schedule import draw

SEED = 7


@pytest.mark.parametrize("seed", [3, SEED, 31])
def test_run__repeats_bit_for_bit(seed: int) -> None:
    first, second = (simulate(draw(seed), keep=True).simulation for _ in range(2))
    assert first is not None and second is not None
    assert first.fabric.state_digest() == second.fabric.state_digest() and first.stats() == second.stats()


def test_wire__the_bytes_on_the_wire_change_nothing() -> None:
    schedule = next(s for s in map(draw, range(1000)) if not s.network["wire"] and not s.faults and s.posts)
    wire_schedule = replace(schedule, network={**schedule.network, "wire": True})
    assert simulate(schedule).stats == simulate(wire_schedule).stats
