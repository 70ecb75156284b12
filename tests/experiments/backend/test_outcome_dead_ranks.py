"""Verdicts of random scenarios against the engines' own events.

`dead_ranks` runs as many as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.experiments.backend.outcome import Outcome
from tests.experiments.dead_ranks import judged, wrong_verdicts

SEEDS = 12


def test_dead_ranks__every_verdict_agrees_with_the_engines() -> None:
    wrong, died = wrong_verdicts(0, SEEDS)
    assert not wrong, wrong[0]
    assert 0 < died < SEEDS, "some die and some do not"


def test_dead_ranks__a_verdict_that_sees_no_failure_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Outcome, "fail", lambda *arguments: None)
    assert any(not judged(seed, tmp_path).right for seed in range(SEEDS))
