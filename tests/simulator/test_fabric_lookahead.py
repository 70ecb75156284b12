"""A fabric with lookahead of one delay and of two.

At each node the very events of the exact order, with faults, in each mode, with PFC.

Jitter keeps packets of different senders from arriving at one instant; for those the orders may differ.
"""

from collections import defaultdict
from dataclasses import replace

import pytest

from mrc_testbed.faults import CutFault, LossFault, StallFault, VanishFault
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator import Flow, LinkProfile, VirtualFabric, incast, run_all, scaled_profiles
from mrc_testbed.simulator.fabric import TWO_DELAYS_FROM, usual_lookahead
from mrc_testbed.simulator.pfc import pause_of
from mrc_testbed.simulator.profiles import PfcProfile
from mrc_testbed.simulator.switches import MODES
from mrc_testbed.simulator.trace import describe
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 2, 3)
ENDS_S = 0.2
LOOKAHEADS = (0, 1, 2)
"""Delays that a node may run ahead."""


class TracedFabric:
    """A fabric and what happened at each of its interfaces, switches and hosts."""

    def __init__(self, lookahead, plan=PLAN, queues=None, **options):
        self.events = defaultdict(list)
        scale = scaled_profiles(plan.planes)
        line = scale.links.nic
        self.fabric = VirtualFabric(
            plan,
            seed=4,
            links=LinkProfile.uniform(line.rate_bps, line.delay_s, line.delay_s / 3),
            queues=queues or scale.queues,
            config=scale.config,
            lookahead=lookahead,
            trace=self._note,
            **options,
        )

    def _note(self, event, now, location, frame):
        self.events[location].append((event, now, describe(frame)))

    def run(self):
        """Run everything up to a time; return the comparable results."""
        self.fabric.run_until(ENDS_S)
        assert self.fabric.now == ENDS_S
        return dict(self.events), self.fabric.state_digest()


def busy_fabric(lookahead, **options):
    """Set up incast and a stream, with faults of each kind in their midst."""
    traced_fabric = TracedFabric(lookahead, **options)
    fabric = traced_fabric.fabric
    incast(fabric, ["h3", "h4", "h5"], "h0", message_bytes=40_000, messages=9)
    Flow(fabric, "h1", "h4", message_bytes=5_000, messages=60, depth=4)
    fabric.schedule(0.0, LossFault.on("p0-t0-0 p0-t1-0", rate=0.05))
    fabric.schedule(0.021, CutFault.on("p1-t0-1 p1-t1-1"), until_s=0.123)
    fabric.schedule(0.033, StallFault.on("h3", seconds=0.01, order=(1, 0), gap_s=0.001))
    fabric.schedule(0.047, StallFault.on("p0-t1-1", seconds=0.02))
    fabric.schedule(0.061, VanishFault.on("h5"))
    depths = []
    fabric.sample(0.01, lambda now: depths.append((now, [port.data_bytes for port in fabric.ports.values()])))
    return traced_fabric, depths


@pytest.mark.parametrize("mode", MODES)
def test_nodes__have_the_events_of_the_exact_order(mode):
    results = []
    for lookahead in LOOKAHEADS:
        traced_fabric, depths = busy_fabric(lookahead, mode=mode)
        results.append((traced_fabric.run(), depths))
    assert sum(map(len, results[0][0][0].values())) > 2000
    assert any(any(row) for _, row in results[0][1]), "samples saw queues"
    assert results[0] == results[1] == results[2]


def test_bytes__have_the_events_of_the_exact_order():
    exact, one_delay, two_delays = (busy_fabric(lookahead, wire=True)[0].run() for lookahead in LOOKAHEADS)
    assert exact == one_delay == two_delays


def test_pauses__have_the_events_of_the_exact_order():
    results = []
    for lookahead in LOOKAHEADS:
        plan = Plan(1, 4, 2, 2)
        scale = scaled_profiles(1, rate_bps=40e6, ecn=False, trim=False)
        bdp = scale.bdp_bytes
        pfc = PfcProfile(xoff_bytes=bdp, xon_bytes=3 * bdp // 4, headroom_bytes=bdp, storm_after_s=0.2)
        traced_fabric = TracedFabric(lookahead, plan, replace(scale.queues, pfc=pfc), mode="flow-ecmp")
        settings = RcConfig(timeout=18, window_packets=400)
        for source in ("h2", "h4", "h6"):
            Flow(
                traced_fabric.fabric,
                source,
                "h0",
                message_bytes=1 << 17,
                messages=8,
                transport="rocev2",
                settings=settings,
            )
        results.append(traced_fabric.run())
        assert sum(pause_of(port).pauses for port in traced_fabric.fabric.ports.values()) > 10
    assert results[0] == results[1] == results[2]


def test_predicate__is_seen_within_the_lookahead():
    ends = []
    for lookahead in LOOKAHEADS:
        fabric = TracedFabric(lookahead).fabric
        flow = Flow(fabric, "h0", "h3", message_bytes=40_000, messages=3)
        assert run_all(fabric, [flow]) and flow.intact
        assert flow.finished_at <= fabric.now <= flow.finished_at + lookahead * fabric.links.nic.delay_s
        ends.append(flow.finished_at)
    assert ends[0] == ends[1] == ends[2]


def test_delay__that_a_fault_shortens_shortens_the_lookahead():
    results = []
    for lookahead in LOOKAHEADS:
        traced_fabric = TracedFabric(lookahead)
        Flow(traced_fabric.fabric, "h0", "h3", message_bytes=40_000, messages=9)
        traced_fabric.fabric.schedule(
            0.02, lambda fabric=traced_fabric.fabric: fabric.set_line("h3", "p0-t0-1", delay_s=1e-6)
        )
        results.append(traced_fabric.run())
    assert results[0] == results[1] == results[2]


def test_links_without_delay__come_in_order_all_the_same():
    scale = scaled_profiles(2)
    ends = []
    for lookahead in LOOKAHEADS:
        fabric = VirtualFabric(
            PLAN, seed=4, links=LinkProfile.uniform(10e6, 0.0), queues=scale.queues, lookahead=lookahead
        )
        flows = incast(fabric, ["h3", "h4"], "h0", message_bytes=20_000, messages=2)
        assert run_all(fabric, flows) and all(flow.intact for flow in flows)
        ends.append(max(flow.finished_at for flow in flows))
    assert ends[1:] == pytest.approx([ends[0]] * 2, rel=0.05)


def test_host__is_called_at_a_time_of_its_own():
    fabric = TracedFabric(1).fabric
    call_times = []
    fabric.host("h0").schedule(0.03, lambda: call_times.append(fabric.now))
    fabric.host("h1").schedule(
        0.01, lambda: fabric.host("h1").schedule(fabric.now, lambda: call_times.append(fabric.now))
    )
    fabric.run_until(0.1)
    assert call_times == [0.01, 0.03]


def test_usual_lookahead__goes_by_the_size_of_the_fabric():
    small_plan, large_plan = Plan(1, 127, 1, 1), Plan(1, 128, 1, 1)
    assert [usual_lookahead(plan) for plan in (small_plan, large_plan)] == [1, 2]
    assert len(large_plan.hosts) == TWO_DELAYS_FROM
