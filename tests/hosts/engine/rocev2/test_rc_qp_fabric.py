"""The baseline in the virtual fabric: congestion, and beside MRC on the same hosts."""

from __future__ import annotations

from mrc_testbed.faults import OneWayFault, RestoreFault
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.workloads import Flow
from mrc_testbed.topologies.plan import Plan


def two_into_one(settings: RcConfig) -> tuple[list[float], dict]:
    """Return the shares of a 100 Mb/s uplink that two flows get in seconds 1 to 3, and the totals."""
    fabric = VirtualFabric(Plan(1, 2, 1, 2), seed=1)
    flows = [
        Flow(fabric, f"h{n}", f"h{n + 2}", message_bytes=1 << 20, transport="rocev2", settings=settings) for n in (0, 1)
    ]
    fabric.run_until(1.0)
    first_counts = [flow.peer_qp.counters.bytes_received for flow in flows]
    fabric.run_until(3.0)
    last_counts = [flow.peer_qp.counters.bytes_received for flow in flows]
    assert all(flow.intact for flow in flows)
    return [(b - a) * 8 / 2.0 / 100e6 for a, b in zip(first_counts, last_counts, strict=True)], fabric.totals()


def test_dcqcn__two_flows_share_a_link_without_loss():
    shares, totals = two_into_one(RcConfig(control="dcqcn", line_rate_bps=100e6, window_packets=512))
    assert sum(shares) > 0.8 and min(shares) > 0.35
    assert totals["marked"] > 0 and "not_trimmable" not in totals and "queue_full" not in totals


def test_window__the_same_two_overflow_the_queue():
    _, totals = two_into_one(RcConfig(window_packets=512))
    assert totals.get("not_trimmable", 0) + totals.get("queue_full", 0) > 100


def test_both_transports__on_the_same_hosts_when_a_link_dies():
    """Eight baseline QPs on eight paths, and MRC over all of them.

    Those on the dead path stall, nothing else does.
    """
    fabric = VirtualFabric(Plan(2, 2, 4, 1), seed=3)
    options = {"message_bytes": 20_000, "messages": 200}
    mrc = Flow(fabric, "h0", "h1", **options)
    single = [
        Flow(fabric, "h0", "h1", **options, transport="rocev2", settings=RcConfig(retry_cnt=7, timeout=14))
        for _ in range(8)
    ]
    paths = [flow.qp.path for flow in single]
    assert len(set(paths)) == 8, "n QPs use n paths"
    fabric.schedule(0.1, OneWayFault.on("p1-t0-0 p1-t1-2"))  # one way: ACKs of other QPs may come back over it
    fabric.run_until(0.1)
    first_counts = {flow: flow.completed for flow in (mrc, *single)}
    fabric.run_until(0.4)
    stalled_flows = [flow for flow in single if flow.qp.path == (0x0102, 1)]
    assert len(stalled_flows) == 1 and stalled_flows[0].qp.counters.timeouts > 0
    progress = {flow: flow.completed - count for flow, count in first_counts.items()}
    fabric.schedule(0.41, RestoreFault.on("p1-t0-0 p1-t1-2"))
    fabric.run_until(20.0)
    assert all(flow.completed == 200 and flow.intact and not flow.failures for flow in (mrc, *single))
    assert progress[stalled_flows[0]] < min(count for flow, count in progress.items() if flow is not stalled_flows[0])
