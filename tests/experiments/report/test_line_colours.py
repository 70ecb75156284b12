"""Colours of transports and variants: by name, distinct, whatever else is in the report."""

from __future__ import annotations

import random

import pytest

from mrc_testbed.experiments.report.line_colours import (
    BLUE,
    COLOURS,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    line_colours,
)

TRANSPORTS = {
    "MRC": BLUE,
    "mrc": BLUE,
    "MRC, cut": BLUE,
    "mrc-timers": BLUE,
    "RoCEv2": VERMILION,
    "roce-16": VERMILION,
    "dcqcn-8": VERMILION,
    "flow-ECMP, 1 s": GREEN,
    "flow-ecmp": GREEN,
    "ecmp": PINK,
    "switch spraying": ORANGE,
    "stev": SKY,
}


@pytest.mark.parametrize("name", TRANSPORTS)
def test_line_colours__of_a_transport_are_those_of_the_table(name):
    assert line_colours([name]) == {name: TRANSPORTS[name]}


def test_line_colours__of_a_transport_stay_beside_any_others():
    names = ["nscc", "fixed window", "MRC", "RoCEv2", "flow-ECMP"]
    assert {name: line_colours(names)[name] for name in names[2:]} == {
        "MRC": BLUE,
        "RoCEv2": VERMILION,
        "flow-ECMP": GREEN,
    }


def test_line_colours__do_not_depend_on_the_order_and_differ_up_to_eight():
    names = ["MRC", "MRC, cut", "MRC, loss", "roce-1", "roce-16", "a", "b", "with denylist"]
    colours = line_colours(names)
    assert sorted(colours.values()) == sorted(COLOURS)
    # The transport itself has its colour, not a variant that begins with its name.
    assert colours["MRC"] == BLUE
    for seed in range(20):
        assert line_colours(random.Random(seed).sample(names, len(names))) == colours


def test_line_colours__of_a_part_of_a_report_are_those_of_the_report():
    names = ["MRC", "a", "b", "c", "d"]
    assert line_colours(["d"], names)["d"] == line_colours(names)["d"]


def test_line_colours__of_a_figure_differ_though_the_report_has_too_many():
    names = [f"variant {number}" for number in range(16)]
    assert len(set(line_colours(names[:8], names).values())) == len(COLOURS)


def test_line_colours__of_more_than_eight_begin_again():
    colours = line_colours([f"variant {number}" for number in range(16)])
    assert sorted(colours.values()) == sorted([*COLOURS, *COLOURS])


def test_colours__differ_in_brightness_or_hue_for_all_kinds_of_sight():
    """Test Okabe and Ito's published set: with a changed digit it would not be for the colour blind."""
    assert COLOURS[:6] == ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
