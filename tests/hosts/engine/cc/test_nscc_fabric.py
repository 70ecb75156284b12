"""NSCC on a virtual fabric: one bottleneck, rate and fairness (nscc.md §4.3, §5.2).

100 Mb/s, 5 ms, PMTU 1024: 56 packets of BDP. Shares are counted over the second half of each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mrc_testbed.simulator import Flow, VirtualFabric, jain, rates_bps, scaled_profiles
from mrc_testbed.simulator.profiles import frame_bytes
from mrc_testbed.topologies.plan import Plan

RATE, RTT = 100e6, 0.005


def make(
    plan: Plan, *, seed: int = 1, trim: bool = True, last_hop_ecn: bool = True, **config: Any
) -> tuple[VirtualFabric, float]:
    """Return a fabric whose hosts have RATE over all planes, and the payload bits/s one host can receive."""
    keys = {"incast_penalty": 0, **config}
    scale = scaled_profiles(
        plan.planes,
        rate_bps=RATE / plan.planes,
        rtt_s=RTT,
        trim=trim,
        config=keys,
        queues={"last_hop_ecn": last_hop_ecn},
    )
    fabric = VirtualFabric(
        plan, seed=seed, links=scale.links, queues=scale.queues, config=scale.config, keep_events=False
    )
    return fabric, RATE * scale.payload_share


def start(fabric: VirtualFabric, pairs: Sequence[tuple[str, str]]) -> list[Flow]:
    return [Flow(fabric, a, b, message_bytes=1 << 19) for a, b in pairs]


def depths(fabric: VirtualFabric, a: str, b: str, seconds: float) -> list[float]:
    """Return the queue of the port from a to b in BDP of that port, sampled each twentieth of a base RTT."""
    port, samples = fabric.port_towards(a, b), []
    bdp = port.line.rate_bps / 8 * RTT
    end = fabric.now + seconds
    while fabric.now < end:
        fabric.run_for(RTT / 20)
        samples.append(port.waiting * frame_bytes(1024) / bdp)
    return sorted(samples)


INCAST = Plan(1, 2, 4, 8)
SEVEN = [(f"h{number}", "h0") for number in range(8, 15)]


@pytest.mark.parametrize("planes", [1, 4])
def test_one_flow__96_percent_of_the_bottleneck_without_a_mark(planes):
    fabric, capacity = make(Plan(planes, 2, 2, 1))
    [flow] = start(fabric, [("h0", "h1")])
    [rate] = rates_bps(fabric, [flow], 0.1, 0.2)
    assert rate > 0.96 * capacity
    assert flow.qp.counters.retransmitted == 0
    assert flow.qp.cc_state()["cwnd_bytes"] == pytest.approx(1.5 * RATE / 8 * RTT, rel=0.05)


def test_tiny_writes__teach_no_base_rtt_that_full_packets_would_queue_for():
    """Four links at 10 Mb/s take 3.6 ms longer to serialise a full packet than two bytes."""
    scale = scaled_profiles(4, rate_bps=10e6, rtt_s=0.010)
    fabric = VirtualFabric(Plan(4, 2, 2, 1), seed=1, links=scale.links, queues=scale.queues, config=scale.config)
    tiny = Flow(fabric, "h0", "h1", message_bytes=2, messages=100, depth=1)
    assert fabric.run_until(lambda: tiny.done, limit_s=10)
    bulk = Flow(fabric, "h0", "h1", message_bytes=1 << 19)
    assert bulk.qp.cc_state()["base_rtt_s"] == pytest.approx(0.010, rel=0.03)
    [rate] = rates_bps(fabric, [bulk], 0.5, 1.0)
    assert rate > 0.96 * 40e6 * scale.payload_share


def test_incast__seven_to_one_shares_evenly_beside_a_victim():
    """The victim's sender and receiver sit in the racks of the incast.

    It shares no port with it but uplinks.
    """
    fabric, capacity = make(INCAST)
    flows = start(fabric, SEVEN)
    [victim] = start(fabric, [("h15", "h1")])
    *rates, rate = rates_bps(fabric, [*flows, victim], 0.7, 0.7)
    assert jain(rates) >= 0.98
    assert sum(rates) > 0.96 * capacity
    assert rate > 0.95 * capacity
    trims = sum(flow.qp.counters.trimmed for flow in flows)
    fabric.run_for(0.1)
    assert sum(flow.qp.counters.trimmed for flow in flows) - trims < 10  # they belong to the start


@pytest.mark.parametrize("penalty", [0, 16])
def test_incast__no_marks_at_the_last_hop_and_no_trims_but_at_the_start(penalty):
    """nscc.md §4.3: NSCC answers delay without marks with more, and trims go on for ever.

    In a crowd, delay counts.
    """
    fabric, capacity = make(INCAST, last_hop_ecn=False, incast_penalty=penalty)
    flows = start(fabric, SEVEN)
    rates = rates_bps(fabric, flows, 0.3, 0.4)
    assert jain(rates) > 0.98
    assert sum(rates) > 0.97 * capacity
    trims = sum(flow.qp.counters.trimmed for flow in flows)
    fabric.run_for(0.1)
    assert sum(flow.qp.counters.trimmed for flow in flows) - trims < 10


def test_two_flows__meet_from_unequal_starts_and_keep_the_queue_at_target():
    fabric, capacity = make(Plan(1, 2, 2, 2))
    [first] = start(fabric, [("h2", "h0")])
    fabric.run_for(0.1)
    [second] = start(fabric, [("h3", "h0")])
    rates = rates_bps(fabric, [first, second], 0.5, 0.3)
    assert jain(rates) > 0.98
    assert sum(rates) > 0.96 * capacity
    queue = depths(fabric, "p0-t0-0", "h0", 0.1)
    median = queue[len(queue) // 2]
    assert 0.4 < median < 1.0  # a standing queue near 0.75 BDP is what the controller holds
    assert queue[int(len(queue) * 0.99)] < 1.2


def test_absolute_scaling__is_wild_at_milliseconds():
    """nscc.md §1.4: why "shape" is the default."""
    trims = []
    for scaling in ("shape", "uet"):
        fabric, _ = make(Plan(1, 2, 1, 8), cc_scaling=scaling)
        flows = start(fabric, [(a, f"h{number}") for number, (a, _) in enumerate(SEVEN)])  # they share an uplink
        fabric.run_for(0.25)
        trims.append(sum(flow.qp.counters.trimmed for flow in flows))
    assert trims[1] > 3 * trims[0]
