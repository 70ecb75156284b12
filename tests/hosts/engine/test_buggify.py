"""Rare and legal behaviour by order: each point is reached, and nothing is lost of what was written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from hosts.engine.buggify import BUGGIFY, POINTS, deciding
from simulator.simtest.run import simulate
from simulator.simtest.schedule import BUGGIFIED, draw


def test_points__are_all_reached_and_the_invariants_hold() -> None:
    """Each point acts at some times and not at others."""
    reached: Counter[tuple[str, bool]] = Counter()
    rng = Random(1)

    def decide(point: str) -> bool:
        reached[point, answer := rng.random() < 0.3] += 1
        return answer

    for seed in range(60):
        schedule = draw(seed)
        if schedule.kind in BUGGIFIED:
            with deciding(decide):
                assert simulate(replace(schedule, buggify=0.0)).violation is None, seed
    assert set(reached) == {(point, answer) for point in POINTS for answer in (True, False)}


def test_deciding__ends_with_its_context_whatever_happens() -> None:
    def fails() -> None:
        with deciding(lambda _: True):
            assert BUGGIFY.on and BUGGIFY.happens("NACK lost")
            raise ValueError("a finding")

    with pytest.raises(ValueError, match="a finding"):
        fails()
    assert not BUGGIFY.on and not BUGGIFY.happens("NACK lost")
