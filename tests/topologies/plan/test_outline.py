"""An outline says of a small fabric what its plan says, and takes one of any size."""

import random

import pytest

from mrc_testbed.faults.places import Random
from mrc_testbed.topologies.plan import Outline, Plan, PlanError

SIZES = (3, 4, 5, 2)


@pytest.fixture
def fabrics() -> tuple[Plan, Outline]:
    return Plan(*SIZES), Outline(*SIZES)


def test_things__as_of_the_plan_in_the_same_order(fabrics):
    plan, outline = fabrics
    assert tuple(outline.hosts) == plan.hosts
    assert tuple(outline.switches) == plan.switches
    assert tuple(outline.links) == plan.links
    assert outline.links[-1] == plan.links[-1] and outline.links[2:5] == list(plan.links[2:5])


@pytest.mark.parametrize("tier", [None, "nic", "fabric"])
@pytest.mark.parametrize("plane", [None, 1])
def test_links_of__as_of_the_plan(fabrics, tier, plane):
    plan, outline = fabrics
    assert list(outline.links_of(tier, plane)) == list(plan.links_of(tier, plane))
    assert list(outline.links_of("nic", plane, "h3")) == list(plan.links_of("nic", plane, "h3"))


def test_names__as_of_the_plan(fabrics):
    plan, outline = fabrics
    for link in plan.links:
        assert outline.link(*link.name.split()) == outline.link(*link.name.split()[::-1]) == link
    assert outline.host("h7") == plan.host("h7")
    assert outline.switch("p2-t1-4") == plan.switch("p2-t1-4")


def test_draws__the_same_dice_give_the_same_links(fabrics):
    draw = Random(random="fabric-links", share=0.1)
    first, second = (draw.draw(draw.links(fabric), random.Random(5)) for fabric in fabrics)
    assert first == second and len(first) == 6


@pytest.mark.parametrize("names", [("h0", "p0-t0-1"), ("p0-t0-0", "p1-t1-0"), ("p0-t0-0", "p0-t0-1")])
def test_no_such_link(fabrics, names):
    for fabric in fabrics:
        with pytest.raises(PlanError, match="no link between"):
            fabric.link(*names)


@pytest.mark.parametrize("name", ["h8", "p0-t0-4", "p3-t1-0", "nonsense"])
def test_no_such_node(fabrics, name):
    with pytest.raises(PlanError, match=r"no (host|switch)"):
        fabrics[1].switch(name) if not name.startswith("h") else fabrics[1].host(name)


def test_two_million_links__without_making_them():
    outline = Outline(8, 512, 256, 256)
    assert len(outline.hosts) == 131_072 and len(outline.links) == 8 * (131_072 + 512 * 256)
    assert outline.links_of("fabric")[-1].name == "p7-t0-511 p7-t1-255"


def test_larger_than_arrays__is_refused():
    with pytest.raises(PlanError, match="spines = 5000"):
        Outline(2, 2, 5000, 2)
