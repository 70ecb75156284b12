"""Shrinking of schedules that fail."""

from __future__ import annotations

import json

import pytest

from mrc_testbed.simulator.simtest.run import simulate
from mrc_testbed.simulator.simtest.schedule import Schedule, draw
from mrc_testbed.simulator.simtest.shrink import shrink
from tests.simulator.simtest.test_campaign import break_responder

SEED = 7


def test_shrink__leaves_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    break_responder(monkeypatch)
    seed = next(seed for seed in range(100) if simulate(draw(seed)).violation and draw(seed).faults)
    smaller, result, runs = shrink(draw(seed), limit=300)
    assert result.violation is not None and result.violation.invariant == "claims" and runs <= 300
    assert len(smaller.posts) == 3 and not smaller.faults and not smaller.config and len(smaller.qps) == 1
    assert Schedule.from_json(json.loads(smaller.dumps())) == smaller


def test_shrink__needs_a_failure() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(draw(SEED))
