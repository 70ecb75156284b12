"""Points of the paper beside runs, and distances in words."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.report import paper_reference
from mrc_testbed.experiments.report.page import measured_runs


@pytest.mark.parametrize(
    ("value", "paper_value", "words"),
    [
        (0.874, 0.873, "as in the paper, within 2 %"),
        (0.75, 1.0, "25 % less than in the paper"),
        (0.6, 0.4, "50 % more than in the paper"),
        (0.39, 0.05, "7.8 times what the paper has"),
        (None, 1.0, "not measured here"),
        (1.0, None, ""),
        (0.0, 0.0, "as in the paper"),
        (2.0, 0.0, "the paper has 0, here it is 2"),
    ],
)
def test_distances_in_words(value, paper_value, words):
    assert paper_reference.ratio_distance(value, paper_value) == words


def test_lines_of_the_paper_find_their_runs(results_dir):
    _, runs = measured_runs(results_dir)
    scenario = runs[0][2].plan.scenario.model_copy(deep=True)
    scenario.paper.series = {
        "paper, MRC": [(0, 1)],
        "paper, DCQCN 1 QP": [(0, 1)],
        "paper": [(0, 1)],
        "paper (b)": [(0, 1)],
    }
    names_by_label = {
        label: run_names
        for label, _, run_names in paper_reference.lines_of(scenario, ["mrc", "dcqcn-1", "dcqcn-8", "a"])
    }
    assert names_by_label == {
        "paper, MRC": ["mrc"],
        "paper, DCQCN 1 QP": ["dcqcn-1"],
        "paper": ["mrc", "dcqcn-1", "dcqcn-8", "a"],
        "paper (b)": [],
    }


def test_the_papers_curves_are_shares_of_its_best():
    for curves in paper_reference.CURVES.values():
        assert max(y for points in curves.values() for _, y in points) == 1.0
        assert all(
            points == sorted(points) and points[-1][0] == 16 * 2**30 for points in curves.values() if len(points) > 4
        )
    large = {key: points[-1][1] for key, points in paper_reference.CURVES["E15"].items()}
    assert large["mrc", "0.1%"] == pytest.approx(0.89, abs=0.01) and large["mrc", "1%"] == pytest.approx(0.4, abs=0.01)
    assert paper_reference.value_at([(0, 0.0), (2, 1.0)], 1.5) == 0.75
    assert paper_reference.order_text({"a": 2, "b": 1}, {"a": 3, "b": 4}) == "here a > b, in the paper b > a"
