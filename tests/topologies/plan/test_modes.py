"""Modes, EVs by mode, uA uSIDs and long segment lists.

What topologies/plan/plan.py says of mrc-protocol §8.
"""

import json
from ipaddress import IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.topologies.plan import LinkSpeed, Mode, Plan, PlanError, carrier, ev_plane, make_ev, segment_list
from mrc_testbed.topologies.plan.addressing import usids_of

MODES = list(Mode)
DIMENSIONS = st.tuples(st.integers(1, 8), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))


def walk_adjacencies(plan, usids, source, plane):
    """Follow a uA list from a host's T0 as switches would; return the nodes on the way."""
    node, route = plan.t0_name(plane, source.rack), []
    for usid in usids:
        route.append(node)
        switch = plan.switch(node)
        port = dict(plan.srv6_routes(switch).adjacencies)[usid]
        link = plan.link_of_port(node, port)
        (node,) = link.ends - {node}
    return [*route, node]


def test_modes__name_program_and_choice():
    assert [(m.value, m.program, m.choice, m.ev_is_path) for m in MODES] == [
        ("srv6", "srv6", None, True),
        ("stev", "spray", "structured", True),
        ("ecmp", "spray", "hash", False),
        ("switch-spray", "spray", "random", False),
        ("flow-ecmp", "spray", "hash", False),
    ]
    assert Plan(mode="ecmp").mode is Mode.ECMP and str(Mode.FLOW_ECMP) == "flow-ecmp"
    with pytest.raises(PlanError, match=r"no mode 'flow_ecmp' \(did you mean flow-ecmp\? has: srv6, stev"):
        Plan(mode="flow_ecmp")


@settings(max_examples=60, deadline=None)
@given(DIMENSIONS, st.sampled_from(MODES), st.integers(0, 1 << 24))
def test_ev_planes__distinct_seeded_and_balanced_in_every_mode(size, mode, seed):
    plan = Plan(*size, mode=mode)
    source, destination = plan.hosts[0], plan.hosts[-1]
    if source == destination:
        return
    pairs = plan.ev_planes(source, destination, seed=seed)
    assert pairs == Plan(*size, mode=mode).ev_planes(source, destination, seed=seed)
    assert len({ev for ev, _ in pairs}) == len(pairs)
    assert all(0 <= ev < 1 << 32 and 0 <= plane < plan.planes for ev, plane in pairs)
    uplinks = plan.spines if source.rack != destination.rack else 1
    evs_per_plane = {"srv6": uplinks, "stev": uplinks, "switch-spray": 1, "ecmp": 4 * uplinks if uplinks > 1 else 1}
    if mode is Mode.FLOW_ECMP:
        assert len(pairs) == 1
    else:
        planes = [plane for _, plane in pairs]
        assert [planes.count(p) for p in range(plan.planes)] == [evs_per_plane[mode.value]] * plan.planes
    for ev, plane in pairs:
        path = plan.path(source, destination, ev, plane)
        assert path.nodes[1] == plan.t0_name(plane, source.rack) and path.links[-1].lower.node == destination.name
        assert path.exact or (len(path.links) == 2 and len(path.choices) == plan.spines)
    first = plan.path(source, destination, *pairs[0])
    first_link_evs = plan.evs_through(source, destination, first.links[0], seed=seed)
    assert first_link_evs == tuple(ev for ev, plane in pairs if plane == pairs[0][1])


def test_ecmp__other_seeds_draw_other_evs():
    plan = Plan(mode="ecmp")
    h0, h2 = plan.host("h0"), plan.host("h2")
    assert not set(plan.evs(h0, h2, seed=1)) & set(plan.evs(h0, h2, seed=2))
    assert not set(plan.evs(h0, h2, seed=1)) & set(plan.evs(h2, h0, seed=1))


def test_path__says_what_only_the_switch_knows():
    plan = Plan(spines=3, mode="ecmp")
    h0, h1, h2 = (plan.host(n) for n in ("h0", "h1", "h2"))
    path = plan.path(h0, h2, 0xDEADBEEF, 1)
    assert path.nodes == ("h0", "p1-t0-0", "p1-t1-*", "p1-t0-1", "h2")
    assert path.choices == ("p1-t1-0", "p1-t1-1", "p1-t1-2") and not path.exact
    assert [link.name for link in path.links] == ["h0 p1-t0-0", "h2 p1-t0-1"]
    assert plan.path(h0, h1, 7, 2).exact
    with pytest.raises(PlanError, match=r"EV 0xdeadbeef does not say its plane: give one of 0 to 3"):
        plan.path(h0, h2, 0xDEADBEEF)
    with pytest.raises(PlanError, match="names no path from h0 to h2 on plane 2"):
        Plan().path(h0, h2, 0x0101, 2)
    spray = Plan(mode="switch-spray")
    assert [spray.path(h0, h2, ev).nodes[1] for ev in spray.evs(h0, h2)] == [f"p{p}-t0-0" for p in range(4)]


@settings(max_examples=60, deadline=None)
@given(DIMENSIONS)
def test_adjacencies__lead_where_the_plain_list_leads(size):
    plan = Plan(*size)
    for source in plan.hosts[:2]:
        for destination in plan.hosts:
            if source == destination:
                continue
            template = plan.adjacency_template(source, destination)
            for ev in plan.evs(source, destination):
                *usids, end = usids_of(template.address(ev))
                path = plan.path(source, destination, ev)
                assert walk_adjacencies(plan, usids, source, ev_plane(ev)) == list(path.nodes[1:])
                assert carrier(end) == plan.nic_address(destination, ev_plane(ev))
                assert plan.walk(path.nodes, adjacencies=True) == (*usids, end)
                assert plan.walk(path.nodes) == usids_of(plan.template(source, destination).address(ev))


@settings(max_examples=60, deadline=None)
@given(DIMENSIONS)
def test_adjacencies__every_port_once_and_no_neighbours_usid(size):
    plan = Plan(*size)
    for switch in plan.switches:
        routes = plan.srv6_routes(switch)
        assert sorted(port for _, port in routes.adjacencies) == [p.number for p in plan.ports(switch.name)]
        own_usids = [usid for usid, _ in routes.adjacencies]
        assert len(set(own_usids)) == len(own_usids) and not set(own_usids) & {usid for usid, _ in routes.next_hops}
        assert all(usid >= 0xE000 for usid in own_usids)  # what RFC 9800 leaves to each switch


def test_worked_example__of_adjacencies():
    """The pair of §8.3's example by cables: up 5, down to rack 2, down to NIC 0x0b, the NIC itself."""
    plan = Plan(planes=4, racks=3, spines=6, hosts_per_rack=12)
    template = plan.adjacency_template(plan.host("h12"), plan.host("h35"))
    assert str(IPv6Address(template.address(make_ev(3, 5)))) == "fcbb:bb00:f305:e302:e30b:330b::"


def test_long_walk__goes_on_in_an_srh():
    plan = Plan()
    tour = ["h0", "p0-t0-0", "p0-t1-0", "p0-t0-1", "p0-t1-1", "p0-t0-0", "p0-t1-0", "p0-t0-1", "h2"]
    usids = plan.walk(tour)
    assert [f"{usid:04x}" for usid in usids] == ["2000", "1000", "2001", "1001", "2000", "1000", "2001", "3000"]
    segments = segment_list(usids)
    assert str(IPv6Address(segments.destination)) == "fcbb:bb00:2000:1000:2001:1001:2000:1000"
    assert [str(IPv6Address(address)) for address in segments.srh] == ["fcbb:bb00:2001:3000::"]
    assert segments.usids == usids
    short_segments = segment_list(usids, per_carrier=3)
    assert [str(IPv6Address(address)) for address in short_segments.srh] == [
        "fcbb:bb00:2001:3000::",
        "fcbb:bb00:1001:2000:1000::",
    ]
    assert segment_list(usids[:6]).srh == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 0xFFFF), min_size=1, max_size=60), st.integers(1, 6))
def test_segment_list__keeps_every_usid_in_order(usids, per_carrier):
    segments = segment_list(usids, per_carrier)
    assert segments.usids == tuple(usids)
    assert (segments.destination, *reversed(segments.srh)) == segments.carriers
    assert len(segments.carriers) == -(-len(usids) // per_carrier)


@pytest.mark.parametrize(
    "attempt, error",
    [
        (lambda p: segment_list([]), "one uSID at least"),
        (lambda p: segment_list([1, 0]), "none of them is 0"),
        (lambda p: segment_list([1], 7), "give 1 to 6"),
        (lambda p: segment_list([1] * 129, 1), "an SRH holds 127"),
        (lambda p: p.walk(["h0", "h2"]), "over switches to a host"),
        (lambda p: p.walk(["h0", "p0-t0-0", "p0-t0-1", "h2"]), "no link between p0-t0-0 and p0-t0-1"),
        (lambda p: p.walk(["h0", "p0-t0-0", "p0-t1-0"]), "no host 'p0-t1-0'"),
        (lambda p: p.link_of_port("p0-t0-0", 9), "no port 9 on p0-t0-0 (has: 1, 2, 3, 4)"),
    ],
)
def test_lists_that_cannot_be__are_refused(attempt, error):
    with pytest.raises(PlanError) as caught:
        attempt(Plan())
    assert error in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(
    DIMENSIONS,
    st.sampled_from(MODES),
    st.sampled_from([256, 1024, 4096]),
    st.none() | st.floats(1e3, 1e12),
    st.floats(0, 60),
)
def test_json__there_and_back_whatever_the_plan(size, mode, pmtu, rate, delay):
    plan = Plan(*size, mode=mode, pmtu_bytes=pmtu, host_link=LinkSpeed(rate, delay), fabric_link=LinkSpeed(None, 0.25))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "data, error",
    [
        ({"mode": "srv7"}, "no mode 'srv7'"),
        ({"mode": ["srv6"]}, "no mode ['srv6']"),
        ({"host_link": 10}, "host_link: a link's speed has the keys"),
        ({"host_link": {"rate_bps": "10M"}}, "rate_bps = '10M'"),
        ({"fabric_link": {"delay_s": -1}}, "delay_s = -1"),
        ({"fabric_link": {"rate_bps": float("nan")}}, "rate_bps = nan"),
        ({"fabric_link": {"rate_bps": True}}, "rate_bps = True"),
        ({"pmtu_bytes": 1500}, "must be one of 256, 512"),
        ({"pmtu_bytes": [1]}, "pmtu_bytes = [1]"),
    ],
)
def test_json__what_is_no_plan_is_refused_by_name(data, error):
    with pytest.raises(PlanError) as caught:
        Plan.from_json(data)
    assert error in str(caught.value)


def test_json__a_plan_of_before_modes_is_still_read():
    plan = Plan.from_json({"planes": 2, "racks": 2, "spines": 2, "hosts_per_rack": 1})
    assert plan == Plan(2, 2, 2, 1) and plan.mode is Mode.SRV6 and not plan.limited
