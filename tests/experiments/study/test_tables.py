"""Tables of a study in words."""

from __future__ import annotations

from mrc_testbed.experiments.study.tables import in_words


def test_in_words__tells_what_is_too_wide():
    interval = {"estimate": 2e6, "half_width": 1e5, "low": 1.9e6, "high": 2.1e6, "method": "t", "narrow": False}
    assert in_words(interval, 1e6) == "2 ± 0.1 !"
    assert in_words(interval | {"method": "bootstrap", "narrow": None}, 1e6) == "2 (1.9 to 2.1)"
    assert in_words(interval | {"estimate": None}, 1.0) == "-"
