"""Summaries: seeds merged, live beside virtual."""

from __future__ import annotations

import re
import shutil

from mrc_testbed.experiments.report.summary import summary
from tests.experiments.report.small_results import changed_copy, make


def test_a_summary_merges_seeds_and_sets_live_beside_virtual(results_dir, tmp_path):
    changed_copy(results_dir, tmp_path / "v1" / "small")
    reseeded_dir = make(tmp_path / "work", seed=7)
    (tmp_path / "v2").mkdir()
    shutil.move(reseeded_dir, tmp_path / "v2" / "small")
    changed_copy(results_dir, tmp_path / "live" / "small", where="live", target="embedded")
    text = summary([tmp_path / "v1", tmp_path / "v2", tmp_path / "live"])
    assert "| scenario | virtual | live | what did not hold |" in text
    assert "**virtual**: 2 results, 3 runs; seeds 1, 2, 7" in text and "--virtual --repeat 2`" in text
    assert "0 of 2 passed (6/9)" in text and "virtual: lost at most 0 in 3 of 3" in text
    row = next(line for line in text.splitlines() if "rate.flow at least" in line)
    assert re.search(r"\| 1 \| [01]\.\d+ \([01]\.\d+ to [01]\.\d+, 3\) \| [01]\.\d+ \(.*, 2\) \| .* paper", row)
