"""The drawing of a plan: everything has its place, and no two hosts the same one."""

from itertools import pairwise

import pytest

from mrc_testbed.dash.drawing import NODE_SIZE, drawing
from mrc_testbed.topologies.plan import Plan
from tests.topologies.renamed_plan import renamed_plan

PLANS = [Plan(), Plan(1, 1, 1, 1), Plan(4, 8, 8, 8), Plan(2, 2, 16, 1), Plan(16, 2, 1, 4)]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_drawing__has_every_node_and_link_in_its_panel(plan):
    picture = drawing(plan)
    assert [panel["plane"] for panel in picture["planes"]] == list(range(plan.planes))
    hosts = {host.name for host in plan.hosts}
    for panel in picture["planes"]:
        switches = {switch.name for switch in plan.switches if switch.plane == panel["plane"]}
        assert {node["name"] for node in panel["nodes"]} == hosts | switches
        assert {link["name"] for link in panel["links"]} == {
            link.name for link in plan.links if link.plane == panel["plane"]
        }


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_drawing__keeps_nodes_apart_and_inside(plan):
    for panel in drawing(plan)["planes"]:
        for kind, (width, height) in NODE_SIZE.items():
            positions = sorted(node["x"] for node in panel["nodes"] if node["kind"] == kind)
            assert all(b - a >= width for a, b in pairwise(positions)), kind
            assert positions[0] >= width / 2 and positions[-1] <= panel["width"] - width / 2
            assert all(height / 2 <= node["y"] <= panel["height"] - height / 2 for node in panel["nodes"])


def test_drawing__links_join_their_nodes():
    (panel, *_) = drawing(Plan())["planes"]
    positions = {node["name"]: [node["x"], node["y"]] for node in panel["nodes"]}
    for link in panel["links"]:
        a, b = link["nodes"]
        assert [round(x, 1) for x in link["points"]] == [*positions[a], *positions[b]]
        assert link["kind"] == ("NIC-T0" if a.startswith("h") else "T0-T1")


def test_drawing__kinds_do_not_depend_on_names():
    plan = Plan(2, 2, 2, 2)
    kinds = [
        [part["kind"] for panel in drawing(named_plan)["planes"] for part in panel[key]]
        for named_plan in (plan, renamed_plan(plan))
        for key in ("nodes", "links")
    ]
    assert kinds[:2] == kinds[2:]
