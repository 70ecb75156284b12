"""Results that several tests of reports read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.report.small_results import make


@pytest.fixture(scope="module")
def results_dir(tmp_path_factory) -> Path:
    """Results of SMALL_SCENARIO, twice with different seeds."""
    return make(tmp_path_factory.mktemp("made") / "a", repeat=2)
