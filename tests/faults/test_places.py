"""Links, switches and hosts that faults name or draw: what they are in a plan, and what is refused."""

import random

import pytest

from mrc_testbed.faults.places import Random, link_mistakes, node_mistakes, nodes_of, switch_mistakes
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 2, 1)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("hosts", {"h0", "h1"}),
        ("t0", {"p0-t0-0", "p0-t0-1", "p1-t0-0", "p1-t0-1"}),
        ("switches", {switch.name for switch in PLAN.switches}),
    ],
)
def test_nodes__are_drawn_of_their_kind(kind, names):
    draw = Random(random=kind, share="100%")
    assert set(nodes_of(draw, PLAN, random.Random(1))) == names


def test_nodes__given_by_name_stay_as_they_are():
    assert nodes_of("h0", PLAN, random.Random(1)) == ("h0",)
    assert nodes_of(["h1", "p0-t1-0"], PLAN, random.Random(1)) == ("h1", "p0-t1-0")


def test_mistakes__of_nodes_switches_and_links():
    assert list(node_mistakes(["h0", "p0-t1-0"], PLAN)) == []
    assert list(switch_mistakes("p0-t1-0", PLAN)) == []
    (text,) = switch_mistakes(["h0"], PLAN)
    assert text.startswith("no switch 'h0' (has: p0-t0-0")
    (text,) = node_mistakes("p0-t1-9", PLAN)
    assert text.startswith("no switch or host 'p0-t1-9' (did you mean p0-t1-")
    hosts = Random(random="hosts", count=1)
    assert "hosts are no switches" in next(switch_mistakes(hosts, PLAN))
    assert "hosts are no links" in next(link_mistakes(hosts, PLAN))
    assert list(node_mistakes(hosts, PLAN)) == []
