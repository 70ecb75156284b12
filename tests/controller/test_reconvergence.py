"""A slow control plane: when groups follow what has died."""

import math

import pytest

from mrc_testbed.controller.p4runtime.pruning import live_entries
from mrc_testbed.controller.reconvergence import PlaneFailures, ReconvergenceDelay, seconds_of
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=1)
FIRST_LINK, SECOND_LINK = (PLAN.link("p0-t0-1", f"p0-t1-{k}") for k in range(2))
T1 = PLAN.switch("p1-t1-0")


def failures_of(*links, **fields):
    return PlaneFailures(down_links=frozenset(links), **fields)


def test_at_once__heeds_what_it_is_told():
    reaction = ReconvergenceDelay()
    reaction.update(0, failures_of(FIRST_LINK), 1.0)
    assert (reaction.acted_on(0), reaction.due) == (failures_of(FIRST_LINK), None)


def test_after__the_first_change_starts_the_time_and_all_until_then_are_included():
    reaction = ReconvergenceDelay(2.0)
    reaction.update(0, failures_of(), 1.0)
    assert reaction.due is None
    reaction.update(0, failures_of(FIRST_LINK), 5.0)
    reaction.update(0, failures_of(FIRST_LINK, SECOND_LINK), 6.9)
    reaction.update(1, failures_of(silent_causes=frozenset({T1})), 6.9)
    assert (reaction.acted_on(0), reaction.due) == (failures_of(), 7.0)
    assert reaction.act() == [0, 1]
    assert (reaction.acted_on(0), reaction.due) == (failures_of(FIRST_LINK, SECOND_LINK), None)
    reaction.update(0, failures_of(FIRST_LINK, SECOND_LINK), 8.0)  # nothing new
    assert reaction.due is None


def test_after__what_was_over_in_time_changes_nothing():
    reaction = ReconvergenceDelay(2.0)
    reaction.update(0, failures_of(FIRST_LINK), 5.0)
    reaction.update(0, failures_of(fresh_links=frozenset({FIRST_LINK})), 6.0)
    assert (reaction.due, reaction.act(), reaction.acted_on(0)) == (7.0, [], failures_of())


def test_after__a_return_takes_as_long():
    reaction = ReconvergenceDelay(2.0)
    reaction.update(0, failures_of(FIRST_LINK), 5.0)
    reaction.act()
    reaction.update(0, failures_of(), 9.0)
    assert (reaction.acted_on(0), reaction.due) == (failures_of(FIRST_LINK), 11.0)
    assert (reaction.act(), reaction.acted_on(0)) == ([0], failures_of())


def test_never__groups_stay_as_they_are():
    reaction = ReconvergenceDelay(math.inf)
    reaction.update(0, failures_of(FIRST_LINK), 5.0)
    assert (reaction.acted_on(0), reaction.due) == (failures_of(), None)


def test_restore__goes_on_with_what_switches_were_told():
    earlier_controller = ReconvergenceDelay(2.0)
    earlier_controller.update(0, failures_of(FIRST_LINK), 5.0)
    earlier_controller.update(1, failures_of(silent_causes=frozenset({T1})), 5.0)
    earlier_controller.act()
    later_controller = ReconvergenceDelay(2.0)
    later_controller.restore(PLAN, [*earlier_controller.names(), "p0-t0-9 p0-t1-0", "h7", None, 7])
    assert [later_controller.acted_on(plane) for plane in (0, 1)] == [
        earlier_controller.acted_on(plane) for plane in (0, 1)
    ]
    later_controller.update(0, failures_of(SECOND_LINK), 20.0)
    assert (later_controller.acted_on(0), later_controller.due) == (failures_of(FIRST_LINK), 22.0)


def test_entries__a_dead_port_is_known_at_once_and_groups_wait(spray):
    def entries(switch, acted_on):
        return [
            str(e) for e in live_entries(PLAN, "spray", PLAN.switch(switch), spray, failures_of(FIRST_LINK), acted_on)
        ]

    assert entries("p0-t1-0", failures_of()) == ["dead_ports egress_port=2 dead()"]
    assert entries("p0-t0-0", failures_of()) == []
    assert len(entries("p0-t0-0", failures_of(FIRST_LINK))) == 3


@pytest.mark.parametrize(("text", "seconds"), [("now", 0), ("0", 0), ("never", math.inf), ("2.5", 2.5)])
def test_seconds_of__words_and_numbers(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e9"])
def test_seconds_of__says_what_it_wants(text):
    with pytest.raises(ValueError, match="`now`, `never` or seconds"):
        seconds_of(text)
