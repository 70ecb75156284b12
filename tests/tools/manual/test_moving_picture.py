"""README's moving picture is what its script makes of the recorded run."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from tests.experiments.report.small_results import Quiet
from tests.repository import ROOT
from tools.manual import moving_picture

SVG = moving_picture.FIGURE.with_suffix(".svg").read_text()
RECORD = json.loads(moving_picture.FIGURE.with_suffix(".json").read_text())


def test_picture__is_made_of_the_record_and_stands_in_the_readme():
    assert moving_picture.picture(RECORD) == SVG, "run python -m tools.manual.moving_picture"
    assert "docs/figures/cut-under-load.svg" in (ROOT / "README.md").read_text()


def test_picture__is_small_sound_and_loads_nothing():
    assert len(SVG) < 300_000
    ElementTree.fromstring(SVG)
    assert not re.search(r"<script|href=|url\(|@import", SVG)
    assert "prefers-reduced-motion" in SVG


def test_record__is_of_a_live_run_whose_path_was_out_within_a_tenth_of_a_second():
    assert RECORD["where"] == "live" and RECORD["retransmitted"] == RECORD["lost"] > 0
    assert 0 < RECORD["withdrawn_s"] - RECORD["cut_s"] < 0.1
    assert RECORD["cut_s"] < RECORD["restored_s"] < RECORD["good_s"]


@pytest.mark.parametrize(("time_s", "percent"), [(0.9, 0.0), (1.5, 20.0), (1.62, 50.0), (9.0, 85.0)])
def test_clock__is_slower_around_the_cut(time_s, percent):
    clock = moving_picture.PictureClock({"cut_s": 1.5, "restored_s": 3.0, "good_s": 3.5})
    assert clock.loop_s == sum(moving_picture.PACE) == 20.5
    percent_by_round = {0.0: 0.0, 20.0: 400 / 20.5, 50.0: 1000 / 20.5, 85.0: 1750 / 20.5}[percent]
    assert clock.percent(time_s) == pytest.approx(percent_by_round)


def test_record__of_a_run_in_virtual_time_makes_a_picture_too(tmp_path):
    run_scenario(plan_runs(read(ROOT / "tools/manual/cut_under_load.yaml"), "virtual"), Quiet(), out=tmp_path / "out")
    svg = moving_picture.picture(moving_picture.record(tmp_path / "out"))
    assert "A run in virtual time" in svg and "EV 0x0101" in svg
    ElementTree.fromstring(svg)
