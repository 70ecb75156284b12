"""Figures of a report: every kind is drawn, of all runs or of some."""

from __future__ import annotations

from typing import get_args

from mrc_testbed.experiments.language.model import Figure
from mrc_testbed.experiments.report import canvas, figures, pictures
from mrc_testbed.experiments.report.page import measured_runs
from tests.experiments.report.small_results import SMALL_SCENARIO, make


def test_a_figure_may_show_some_of_the_runs(tmp_path):
    figures_text = "figures:\n  - {kind: bars, metric: time, x: depth, where: {variant: b, depth: last}}\n"
    text = (
        SMALL_SCENARIO[: SMALL_SCENARIO.index("figures:")]
        + "variants: {a: {}, b: {}}\nsweep: {depth: [1, 2]}\n"
        + figures_text
    )
    folder = make(tmp_path / "some", text.replace("depth: 2}", "depth: $depth}"), repeat=2)
    _, runs = measured_runs(folder)
    (only,) = (figure for figure in figures.asked_for(runs[0][2].plan.scenario, runs) if figure.name == "figure1")
    picture = pictures.save(only, tmp_path).svg
    assert "b depth=2</text>" in picture and "a depth" not in picture and "depth=1" not in picture


def test_figures__every_kind_is_drawn():
    assert set(figures.FIGURES) == set(get_args(Figure.model_fields["kind"].annotation))


def test_lines_that_coincide_are_told():
    lines = {"a": [(0, 1.0), (1, 0.5)], "b": [(0, 1.0), (1, 0.505)], "c": [(0, 1.0), (1, 0.6)]}
    assert figures._same_lines(lines) == [("b", "the same line as a")]
    looks = canvas.styles(["x", "MRC", "y"])
    assert looks["MRC"]["color"] == canvas.COLOURS[0] and len({style["color"] for style in looks.values()}) == 3
    assert looks["x"]["ls"] != looks["y"]["ls"]
