"""No packet is taken for lost in fabrics that trim and lose nothing."""

from __future__ import annotations

import pytest

from mrc_testbed.simulator.planned_fabric import fabric_of, queue_profile
from mrc_testbed.simulator.workloads import Flow
from mrc_testbed.topologies.plan import Plan


@pytest.mark.parametrize(("planes", "racks", "spines", "seed"), [(8, 2, 2, 0), (2, 2, 2, 1), (1, 3, 4, 0)])
def test_distance__packets_that_wait_in_full_queues_are_not_lost(
    planes: int, racks: int, spines: int, seed: int
) -> None:
    """Links of one T1 at a quarter of the rate: data waits in queues that headers and other paths pass."""
    slow, rate_bps = "p0-t1-0", 2.5e6
    plan = Plan.scaled(planes, racks, spines, 2)
    fabric = fabric_of(plan, seed=seed)
    queues = queue_profile(plan, plan.thresholds_at(rate_bps, last_hop=False))
    for rack in range(racks):
        t0 = plan.t0_name(0, rack)
        fabric.set_line(t0, slow, rate_bps=rate_bps)
        fabric.set_queues(t0, slow, queues)
        fabric.set_queues(slow, t0, queues)
    hosts = [host.name for host in plan.hosts]
    flows = [
        Flow(fabric, source, hosts[(number + 2) % len(hosts)], depth=4, messages=16)
        for number, source in enumerate(hosts)
    ]
    assert fabric.run_until(lambda: all(flow.done for flow in flows), limit_s=5)
    counters = [flow.qp.counters for flow in flows]
    assert sum(counter.trimmed for counter in counters) > 50
    assert not any(sum(port.dropped.values()) for port in fabric.port_list)
    assert sum(counter.lost for counter in counters) == 0
