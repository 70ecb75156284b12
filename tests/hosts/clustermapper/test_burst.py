"""Bursts of probes to all targets at once, as `probe_all` sends them."""

import pytest

from mrc_testbed.hosts.clustermapper.burst import Burst
from mrc_testbed.hosts.clustermapper.packets import (
    ReturnedProbe,
    ServiceClass,
)
from mrc_testbed.hosts.clustermapper.targets import targets_of
from mrc_testbed.topologies.plan import Plan
from tests.topologies.renamed_plan import renamed_plan


def burst_over(plan, lost, count=20):
    """Return the rows of a burst in which `lost(target, class, sequence)` says what does not come back."""
    targets = targets_of(plan)
    burst = Burst(targets, tuple(ServiceClass), count, 1, 0.0)
    now = 0.0
    while not burst.is_over(now):
        if (sequence := burst.due(now)) is not None:
            for target in targets:
                for service_class in ServiceClass:
                    burst.sent(target.number, service_class)
                    if not lost(target, service_class, sequence):
                        probe = ReturnedProbe(target.number, service_class, 1, sequence, 0, False, False)
                        burst.on_return(probe, 0.001)
                        burst.on_return(probe, 0.001)  # a copy
        now = max(now, burst.next_timer())
    return {row["link"]: row for row in burst.links_json(plan)}


def test_burst__a_well_fabric():
    rows = burst_over(Plan(), lambda *_: False)
    assert len(rows) == len(Plan().links) and {row["state"] for row in rows.values()} == {"ok"}
    assert rows["p0-t0-0 p0-t1-0"]["control"]["sent"] == 40 and rows["p0-t0-0 p0-t1-0"]["by"] == ["h0", "h1"]


def test_burst__kinds_of_links_with_names_of_ones_own():
    plan = renamed_plan(Plan(1, 2, 1, 1))
    rows = burst_over(plan, lambda *_: False)
    assert {name: row["kind"] for name, row in rows.items()} == {link.name: link.kind for link in plan.links}


def test_burst__what_lies_behind_a_dead_link_is_judged_by_others_or_unknown():
    plan = Plan(1, 2, 2, 2)
    dead_link = plan.link("h0", "p0-t0-0")
    rows = burst_over(plan, lambda target, *_: target.host == "h0")
    assert rows[dead_link.name]["state"] == "down"
    assert rows["p0-t0-0 p0-t1-1"] == {**rows["p0-t0-0 p0-t1-1"], "state": "ok", "by": ["h1"]}
    one_host_rows = burst_over(Plan(1, 2, 2, 1), lambda target, *_: target.host == "h0")
    assert one_host_rows["p0-t0-0 p0-t1-1"]["state"] == "unknown"
    assert one_host_rows["p0-t0-0 p0-t1-1"]["why"] == "behind h0 p0-t0-0"


def test_burst__a_link_that_loses_only_data():
    plan = Plan(1, 1, 2, 2)

    def lost(target, service_class, sequence):
        return target.switch == "p0-t1-1" and service_class is ServiceClass.DATA and sequence % 5 == 0

    rows = burst_over(plan, lost)
    assert rows["p0-t0-0 p0-t1-1"]["state"] == "lossy"
    assert rows["p0-t0-0 p0-t1-1"]["control"]["state"] == "ok"
    assert rows["p0-t0-0 p0-t1-1"]["data"]["loss"] == 0.2
    assert rows["p0-t0-0 p0-t1-0"]["state"] == "ok"


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_burst__no_sense(count):
    with pytest.raises(ValueError, match="give 1 to 10000"):
        Burst(targets_of(Plan()), tuple(ServiceClass), count, 1, 0.0)
