"""Scales of a scenario file: what is different there, which runs are made, which rules hold.

Places that choose.
"""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.command import SCENARIOS
from mrc_testbed.experiments.language.expand import expand
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.assertions import judge
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.topologies.plan.plan import LIMITS

TEXT = """\
title: two sizes of one thing
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
paper: {id: E0, saw: something, scaled: small}
links: {rate: 5M}
workload: [{stream: h0 h1, name: flow, message: $size}]
duration: 1s
sweep: {size: [16K, 32K]}
variants:
  mrc: {}
  other: {links: {rate: 6M}, scale: {big: {links: {rate: 60M}}}}
  third: {}
live: {variants: [mrc, third]}
scale:
  big:
    links: {rate: 50M, rtt: 1ms}
    transport: {clock: 0.1}
    sweep: {size: [1M]}
    variants: [mrc, other]
    paper: {scaled: less so}
expect:
  - {metric: qp_errors, at_most: 0}
  - {metric: failed, at_most: 0, scale: big}
  - {metric: damaged, at_most: 0, scale: own, where: {variant: third}}
figures: [{metric: rate.flow}]
"""


def document(tmp_path, text=TEXT):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return read(path)


def test_scale__changes_what_it_says_and_the_variant_has_the_last_word(tmp_path):
    runs = expand(document(tmp_path), "virtual", scale="big")
    assert [run.name for run in runs] == ["mrc size=1M", "other size=1M"]
    mrc, variant = (run.scenario for run in runs)
    assert (mrc.links.rate, variant.links.rate) == (50e6, 60e6)
    assert mrc.links.rtt == variant.links.rtt == 0.001
    assert mrc.transport.clock == 0.1
    assert (mrc.paper.scaled, mrc.paper.saw) == ("less so", "something")


def test_without_a_scale_the_file_is_as_it_is(tmp_path):
    runs = expand(document(tmp_path), "virtual")
    assert len(runs) == 6
    assert {run.scenario.links.rate for run in runs} == {5e6, 6e6}
    assert {run.scenario.paper.scaled for run in runs} == {"small"}


def test_a_place_chooses_variants(tmp_path):
    assert {run.label["variant"] for run in expand(document(tmp_path), "live")} == {"mrc", "third"}


@pytest.mark.parametrize(
    ("scale", "rules"), [(None, {"qp_errors", "damaged"}), ("big", {"qp_errors", "failed"})], ids=["own", "big"]
)
def test_rules_of_a_scale(tmp_path, scale, rules):
    (first, *_) = expand(document(tmp_path), "virtual", scale=scale)
    verdicts = judge(first.scenario, [], ("virtual",), scale)
    assert {verdict.rule.split()[0] for verdict in verdicts} == rules


def test_variants__the_last_part_that_chooses_decides(tmp_path):
    text = TEXT.replace("live: {", "virtual: {variants: [mrc, third]}\nlive: {")
    runs = expand(document(tmp_path, text), "virtual")
    assert {run.label["variant"] for run in runs} == {"mrc", "third"}
    big_runs = expand(document(tmp_path, text), "virtual", scale="big")
    assert [run.label["variant"] for run in big_runs] == ["mrc", "other"]


@pytest.mark.parametrize(
    ("old_text", "new_text", "scale", "says"),
    [
        ("", "", "huge", r"no scale 'huge' \(has: big\)"),
        ("variants: [mrc, other]", "variants: [mcr]", "big", r"18:5: scale.big.variants: no variant 'mcr'"),
        ("variants: [mrc, third]", "variants: mrc", None, r"live.variants: must be a list of variant names"),
        ("sweep: {size: [1M]}", "sweep: {sizes: [1M]}", "big", r"scale.big.sweep.sizes: no sweep 'sizes'"),
        ("clock: 0.1", "clock: 0", "big", r"scale.big: makes transport.clock wrong"),
        ("scale: big}", "scale: bgi}", None, r"expect.1.scale: no scale 'bgi'"),
        ("rate: 50M", "rates: 50M", "big", r"scale.big: makes links.rates wrong: no key 'rates'"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path, old_text, new_text, scale, says):
    backend = "live" if "live.variants" in says else "virtual"
    with pytest.raises(ScenarioError, match=says):
        plan_runs(document(tmp_path, TEXT.replace(old_text, new_text) if old_text else TEXT), backend, scale=scale)


def test_a_file_without_scales_says_so(tmp_path):
    text = TEXT[: TEXT.index("scale:\n")].replace(", scale: {big: {links: {rate: 60M}}}", "")
    text += "expect: [{metric: qp_errors, at_most: 0}]\n"
    with pytest.raises(ScenarioError, match=r"no scale 'paper' \(the file has no scales\)"):
        expand(document(tmp_path, text), "virtual", scale="paper")


def test_a_clock_is_for_virtual_time(tmp_path):
    text = TEXT.replace("duration: 1s\n", "duration: 1s\ntransport: {clock: 2}\n")
    assert expand(document(tmp_path, text), "virtual")[0].scenario.transport.clock == 2
    with pytest.raises(ScenarioError, match="clock: the times of a live fabric are those of its links"):
        expand(document(tmp_path, text), "live")


def test_pfc_and_trimming_exclude_each_other(tmp_path):
    text = TEXT.replace("duration: 1s\n", "duration: 1s\nqueues: {pfc: {}}\n")
    with pytest.raises(ScenarioError, match=r"queues: .*give trim: false with pfc"):
        expand(document(tmp_path, text), "virtual")
    text = text.replace("{pfc: {}}", "{trim: false, pfc: {xoff: 1, xon: 2}}")
    with pytest.raises(ScenarioError, match="xon = 2 must not be above xoff = 1"):
        expand(document(tmp_path, text), "virtual")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scale_of_our_scenarios_is_good(path):
    file = read(path)
    for scale in file.raw.get("scale") or {}:
        racks = file.raw["scale"][scale].get("fabric", {}).get("racks", 0)
        runs = plan_runs(file, "fluid" if racks > LIMITS["racks"][1] else "virtual", scale=scale).runs
        assert any(rule.scale == scale for rule in runs[0].scenario.expect), "a scale that nothing is expected of"
