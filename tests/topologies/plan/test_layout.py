"""Plans with a layout: holes, names, speeds, and what follows for EVs, routes and ports."""

from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from mrc_testbed.topologies.plan import GridLayout, LinkSpeed, Mode, Plan, PlanError, ev_plane, ev_uplink
from tests.topologies.renamed_plan import renamed_plan

HOLES = GridLayout(
    holes=("p1-t1-1", "p1-t0-2", "h3", "h0 p2-t0-0", "p0-t0-0 p0-t1-1"),
    names=(("p0-t0-0", "leaf-a"), ("h5", "gpu")),
    speeds=(("p0-t0-1 p0-t1-0", LinkSpeed(5e6, 0.002)),),
)
PLAN = replace(Plan.scaled(3, 3, 2, 2), layout=HOLES)

OWN_NAMES = renamed_plan(Plan(2, 2, 2, 2))


def test_layout__is_kept_by_json() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN


def test_layout__full_grid_has_no_key_of_it() -> None:
    assert "layout" not in Plan().to_json()


def test_evs__exist_exactly_where_every_link_of_the_path_does() -> None:
    links = {link.ends for link in PLAN.links}
    for source, destination in permutations(PLAN.hosts, 2):
        paths = set()
        for plane in range(PLAN.planes):
            first, last = PLAN.t0_name(plane, source.rack), PLAN.t0_name(plane, destination.rack)
            for uplink in range(PLAN.spines if source.rack != destination.rack else 1):
                t1 = PLAN.t1_name(plane, uplink)
                way = (
                    [source.name, first, destination.name]
                    if first == last
                    else [source.name, first, t1, last, destination.name]
                )
                if all(frozenset(ends) in links for ends in pairwise(way)):
                    paths.add(plane << 8 | uplink)
        assert set(PLAN.evs(source, destination)) == paths


def test_path__names_only_nodes_that_exist_and_refuses_other_evs() -> None:
    h0, gpu = PLAN.host("h0"), PLAN.host("gpu")
    assert PLAN.path(h0, gpu, 0).nodes == ("h0", "leaf-a", "p0-t1-0", "p0-t0-2", "gpu")
    with pytest.raises(PlanError, match="names no path"):
        PLAN.path(h0, gpu, 1)


def test_srv6_routes__lead_along_cables_alone() -> None:
    for switch in PLAN.switches:
        ports = {port.number for port in PLAN.ports(switch.name)}
        routes = PLAN.srv6_routes(switch)
        assert {port for _, port in routes.next_hops} == ports
        assert {port for _, port in routes.adjacencies} == ports


@pytest.mark.parametrize("mode", [Mode.ECMP, Mode.FLOW_ECMP, Mode.SWITCH_SPRAY])
def test_ev_planes__of_hashing_modes_are_planes_with_a_path(mode: Mode) -> None:
    layout = replace(HOLES, holes=tuple(name for name in HOLES.holes if name != "p0-t0-0 p0-t1-1"))
    plan = replace(Plan.scaled(3, 3, 2, 2, mode=mode), layout=layout)
    h0, h2 = plan.host("h0"), plan.host("h2")
    planes = {plane for _, plane in plan.ev_planes(h0, h2)}
    assert planes <= {0, 1} if mode is Mode.FLOW_ECMP else planes == {0, 1}


def test_layout__numbers_of_the_grid_stay() -> None:
    grid = replace(PLAN, layout=None)
    for name in ("h4", "p2-t0-1", "p1-t1-0"):
        assert PLAN.ports(name) == tuple(port for port in grid.ports(name) if port in PLAN.ports(name))
    assert PLAN.switch("leaf-a").usid == grid.switch("p0-t0-0").usid
    assert PLAN.address(PLAN.host("gpu"), 0) == grid.address(grid.host("h5"), 0)


def test_speed__of_a_link_makes_round_trip_and_thresholds_follow() -> None:
    link = PLAN.link("p0-t0-1", "p0-t1-0")
    assert PLAN.speed(link) == LinkSpeed(5e6, 0.002)
    assert PLAN.base_rtt_s() > replace(PLAN, layout=replace(HOLES, speeds=())).base_rtt_s()
    slow, fast = (PLAN.thresholds("p0-t1-0", port) for port in (2, 3))
    assert slow is not None and fast is not None and slow.trim_at < fast.trim_at


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (GridLayout(holes=("h9",)), "no node or link 'h9'"),
        (GridLayout(holes=("h0 p0-t1-0",)), "no link between"),
        (GridLayout(names=(("h9", "x"),)), "no node 'h9'"),
        (GridLayout(names=(("h0", "h1"),)), "'h1' stands for two parts"),
        (GridLayout(holes=tuple(f"h{n}" for n in range(4))), "no host is left"),
        (GridLayout(holes=("p0-t0-0", "p1-t0-0")), "host h0 has no link"),
        (GridLayout(holes=("p0-t0-0", "p1-t0-1")), "no path between h1 and h3|no path between h0 and h2"),
        (GridLayout(names=(("p0-t0-0", "a-very-long-name"),)), "shorter names"),
    ],
)
def test_layout__that_cannot_be_is_refused(layout: GridLayout, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        Plan(2, 2, 2, 2, layout=layout)


def test_layout__name_of_two_parts_or_of_interfaces_is_refused() -> None:
    for names in ((("h0", "x"), ("h1", "x")), (("h0", "a-eth0"),), (("h0", "a b"),)):
        with pytest.raises(PlanError):
            GridLayout(names=names)


def test_layout__missing_cable_is_refused_where_switches_choose_the_uplink() -> None:
    with pytest.raises(PlanError, match="p0-t0-0 p0-t1-1 is missing while both ends exist"):
        Plan(2, 2, 2, 2, mode=Mode.ECMP, layout=GridLayout(holes=("p0-t0-0 p0-t1-1",)))


def test_evs__fields_are_those_of_the_grid() -> None:
    evs = PLAN.evs(PLAN.host("h2"), PLAN.host("h1"))
    assert {(ev_plane(ev), ev_uplink(ev)) for ev in evs} == {(0, 0), (1, 0), (2, 0), (2, 1)}


def test_tier__follows_from_the_grid_and_not_from_names() -> None:
    tiers = [link.tier for link in Plan(2, 2, 2, 2).links]
    assert [link.tier for link in OWN_NAMES.links] == tiers
    assert tiers.count("nic") == 8 and tiers.count("fabric") == 8
    nic, fabric = OWN_NAMES.link("p-gpu0", "hub1"), OWN_NAMES.link("hub1", "hub3")
    assert (nic.is_nic, nic.kind) == (True, "NIC-T0") and (fabric.is_nic, fabric.kind) == (False, "T0-T1")
