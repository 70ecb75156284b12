"""uSIDs, carriers and segment lists: the vectors of §8 by hand, and both ways for any list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.topologies.plan.addressing import (
    ROLE_T0,
    ROLE_T1,
    SEGMENTS_MAX,
    PlanError,
    carrier,
    ev_plane,
    ev_uplink,
    make_ev,
    segment_list,
    template,
    usid,
    usids_of,
)

USIDS = st.integers(1, 0xFFFF)


def test_carrier__locator_then_usids_then_zeros():
    path = (usid(ROLE_T1, 2, 7), usid(ROLE_T0, 2, 1))
    assert path == (0x1207, 0x2201)
    assert f"{carrier(*path):032x}" == "fcbbbb00" + "1207" + "2201" + "0" * 16


def test_carrier__seven_usids_do_not_fit():
    with pytest.raises(PlanError, match="7 uSIDs do not fit in one address \\(at most 6\\)"):
        carrier(*range(1, 8))


@given(st.integers(0, 15), st.integers(0, 255))
def test_ev__has_plane_and_uplink(plane, uplink):
    ev = make_ev(plane, uplink)
    assert (ev_plane(ev), ev_uplink(ev)) == (plane, uplink)


@given(st.lists(USIDS, min_size=1, max_size=40), st.integers(1, 6))
def test_segment_list__has_all_usids_in_order(usids, per_carrier):
    segments = segment_list(usids, per_carrier)
    assert segments.usids == tuple(usids)
    assert segments.destination == segments.carriers[0]
    assert segments.srh == tuple(reversed(segments.carriers[1:]))
    assert all(len(usids_of(address)) <= per_carrier for address in segments.carriers)


@pytest.mark.parametrize(
    ("usids", "per_carrier", "message"),
    [
        ([1], 0, "0 uSIDs in an address: give 1 to 6"),
        ([1], 7, "7 uSIDs in an address: give 1 to 6"),
        ([], 6, "a uSID list has one uSID at least"),
        ([1, 0], 6, "none of them is 0"),
        ([1] * (SEGMENTS_MAX + 2), 1, f"an SRH holds {SEGMENTS_MAX}"),
    ],
)
def test_segment_list__refuses_with_what_would_work(usids, per_carrier, message):
    with pytest.raises(PlanError, match=message):
        segment_list(usids, per_carrier)


@given(st.integers(0, 15), st.integers(0, 255))
def test_template__fills_in_plane_and_uplink(plane, uplink):
    usids = (usid(ROLE_T1, 0, 0), usid(ROLE_T0, 0, 9))
    address = carrier(usid(ROLE_T1, plane, uplink), usid(ROLE_T0, plane, 9))
    assert template(usids, 0).address(make_ev(plane, uplink)) == address
