"""Figures of a report: every kind is drawn, of all runs or of some."""

from __future__ import annotations

from typing import get_args

from matplotlib.colors import to_hex

from mrc_testbed.experiments.language.model import Figure
from mrc_testbed.experiments.report import canvas, figures, pictures, sections
from mrc_testbed.experiments.report.line_colours import BLUE, VERMILION
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
    looks = canvas.styles({"x": "x", "MRC": "MRC", "y": "y"})
    assert looks["MRC"]["color"] == BLUE and len({style["color"] for style in looks.values()}) == 3
    assert looks["x"]["ls"] != looks["y"]["ls"] and "ls" not in looks["MRC"]


def test_styles__lines_of_a_variant_have_its_colour_and_those_of_a_single_one_differ():
    looks = canvas.styles({"MRC loss=0": "MRC", "MRC loss=1 %": "MRC", "RoCEv2 loss=0": "RoCEv2"})
    assert [style["color"] for style in looks.values()] == [BLUE, BLUE, VERMILION]
    assert len({style["ls"] for style in looks.values()}) == 3
    assert len({style["color"] for style in canvas.styles({"depth=1": "mrc", "depth=2": "mrc"}).values()}) == 2
    assert canvas.styles({"rate": "mrc"})["rate"]["color"] == BLUE


COMPARED_SCENARIO = SMALL_SCENARIO.replace(
    "figures:", "variants: {MRC: {}, RoCEv2: {mode: flow-ecmp, transport: {kind: rocev2}}}\nfigures:"
)


def test_a_variant_has_one_colour_in_all_figures_and_titles_say_what_is_compared(tmp_path):
    folder = make(tmp_path / "both", COMPARED_SCENARIO.replace("kind: bars", "title: Lost packets, kind: bars"))
    _, runs = measured_runs(folder)
    drawings = figures.asked_for(runs[0][2].plan.scenario, runs)
    assert [drawing.title for drawing in drawings] == [
        "MRC and RoCEv2: payload of a workload, all its flows (rate.flow), under a cut of p0-t0-0 p0-t1-0",
        "Lost packets: MRC and RoCEv2",
        "MRC and RoCEv2: time of a message, under a cut of p0-t0-0 p0-t1-0",
    ]
    for drawing in (drawings[0], drawings[2]):
        lines = {line.get_label(): line.get_color() for line in drawing.canvas.axes[0].lines}
        assert (lines["MRC"], lines["RoCEv2"]) == (BLUE, VERMILION), drawing.title
    assert [to_hex(bar.get_facecolor()).upper() for bar in drawings[1].canvas.axes[0].patches] == [BLUE, VERMILION]
    names = [text.get_text() for text in drawings[0].canvas.axes[0].texts]
    assert names == ["cut p0-t0-0 p0-t1-0"], "above the curves, where it covers none"
    timelines = sections.timelines(runs, tmp_path)
    for timeline, colour in zip(timelines, (BLUE, VERMILION), strict=True):
        assert colour.lower() in timeline.picture.svg.lower(), timeline.name


def test_titles__of_many_variants_count_them():
    assert canvas._list_text(["a"]) == ""
    assert canvas._list_text(["a, 1 s", "b"]) == "a, 1 s; b"
    assert canvas._list_text(list("abcde")) == "5 variants"


def test_names_of_faults_that_would_overlap_stand_in_rows():
    _, (axes,) = canvas.canvas_of("title")
    canvas._name_marks(axes, [(1.0, "cut a b", True), (1.1, "cut c d", True), (9.9, "end of cut a b", False)], 10.0)
    first, second, last = axes.texts
    assert first.xyann[1] < second.xyann[1] and last.xyann[1] == first.xyann[1]
    assert (first.get_ha(), last.get_ha()) == ("left", "right")
