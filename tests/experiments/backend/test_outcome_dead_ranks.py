"""Verdicts of random scenarios against the engines' own events.

`dead_ranks` runs as many as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.experiments.backend.outcome import Outcome
from tests.experiments.dead_ranks import judge_seed, wrong_verdicts

SEEDS = 6


def test_dead_ranks__every_verdict_agrees_with_the_engines() -> None:
    mistakes, deadly_runs = wrong_verdicts(0, SEEDS)
    assert not mistakes, mistakes[0]
    assert 0 < deadly_runs < SEEDS, "some die and some do not"


def test_dead_ranks__a_verdict_that_sees_no_failure_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Outcome, "fail", lambda *arguments: None)
    assert any(not judge_seed(seed, tmp_path).right for seed in range(SEEDS))
