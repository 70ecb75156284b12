"""Incast of more senders than the pipe holds packets, on a virtual fabric.

10 Mb/s and 10 ms, ten packets (§11.4).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.cc.crowd import Crowd
from mrc_testbed.hosts.engine.cc.qpcc import Share
from mrc_testbed.hosts.engine.wire.packets import EndpointRequest, Write
from mrc_testbed.simulator import VirtualFabric, incast, jain, rates_bps, run_all, scaled_profiles
from mrc_testbed.topologies.plan import Plan

MTU = 1190.0


def make(senders: int, planes: int = 1, seed: int = 1, **options: Any) -> tuple[VirtualFabric, list[str], float]:
    """Return a fabric, the names of senders to h0 in other racks, and the payload rate h0 can receive."""
    scale = scaled_profiles(planes, **options)
    plan = Plan(planes, 1 + -(-senders // 8), 8, 8)
    fabric = VirtualFabric(plan, seed=seed, links=scale.links, queues=scale.queues, config=scale.config)
    return fabric, [f"h{8 + n}" for n in range(senders)], planes * scale.rate_bps * scale.payload_share


@pytest.mark.parametrize(
    ("senders", "options"),
    [
        (8, {}),
        (32, {}),
        (32, {"trim": False}),
        pytest.param(32, {"ecn": False}, marks=pytest.mark.thorough),
        pytest.param(32, {"queues": {"last_hop_ecn": True}}, marks=pytest.mark.thorough),
        pytest.param(16, {"planes": 4}, marks=pytest.mark.thorough),
        (4, {"cc": "fixed"}),
        (32, {"cc": "fixed"}),
    ],
    ids=str,
)
def test_incast__keeps_the_link_busy_shares_evenly_and_kills_no_qp(senders: int, options: dict[str, Any]) -> None:
    fabric, names, capacity = make(senders, **options)
    flows = incast(fabric, names, "h0", message_bytes=1 << 16)
    rates = rates_bps(fabric, flows, 1.5, 1.5)
    assert sum(rates) >= 0.95 * capacity
    assert jain(rates) >= 0.95
    assert not any(flow.failures for flow in flows)


@pytest.mark.parametrize("qps", [16, pytest.param(64, marks=pytest.mark.thorough)])
def test_incast__many_qps_of_a_host_share_its_turns(qps: int) -> None:
    fabric, names, capacity = make(8)
    flows = [flow for _ in range(qps) for flow in incast(fabric, names, "h0", message_bytes=1 << 16)]
    rates = rates_bps(fabric, flows, 1.5, 3.0)
    assert sum(rates) >= 0.95 * capacity
    hosts = [sum(rates[n :: len(names)]) for n in range(len(names))]
    assert jain(hosts) >= 0.95
    assert jain(rates) >= 0.9, "those of a host take turns"
    assert not any(flow.failures for flow in flows)


def test_incast__of_fixed_windows_beyond_all_measure_ends() -> None:
    """Sixteen windows of 256 KiB over a pipe of ten packets were trimmed for ever.

    59 of 64 QPs died of it once.
    """
    fabric, names, capacity = make(16, cc="fixed", config={"cwnd_bytes": 1 << 18})
    flows = incast(fabric, names, "h0", message_bytes=1 << 16, messages=8)
    assert run_all(fabric, flows, limit_s=60.0)
    assert not any(flow.failures for flow in flows)
    assert 16 * 8 * (8 << 16) / max(flow.duration_s for flow in flows) >= 0.9 * capacity


def test_below_a_packet_a_round_trip__packets_leave_one_by_one_also_those_sent_again() -> None:
    fabric, names, _ = make(32)
    flows = incast(fabric, names, "h0", message_bytes=1 << 16)
    fabric.run_for(1.5)
    departures: list[float] = []

    def watch(kind: str, now: float, port: str, frame: Any) -> None:
        if kind == "send" and type(frame.packet) is Write:
            departures.append(now)

    fabric.host(names[0]).ports[0].observer = watch
    fabric.run_for(1.5)
    window = flows[0].qp.connected.window
    assert isinstance(window, Share) and window.cwnd < 0.6 * window.qpcc.cc.p.mtu
    gaps = [later - earlier for earlier, later in pairwise(departures)]
    assert min(gaps) > 0.010, "a base round trip"
    assert len(departures) == pytest.approx(1.5 * 10e6 / 8 / 1190 / 32, rel=0.3)


def test_idle_crowd__grows_almost_as_fast_as_nscc() -> None:
    """The last flows of an exchange are alone, and stayed slow when they grew by a fifth a round trip."""
    crowd = Crowd(MTU, Random(1), 0.0)
    crowd.join()
    window, now = MTU, 0.0
    windows = []
    for _ in range(8):
        now += 0.01
        for _ in range(max(1, int(window / MTU))):
            window = crowd.after_ack(window, now, int(MTU), now - 0.01, True, 0.0, 100.0)
        windows.append(window / MTU)
    growth = [later / former for former, later in pairwise(windows)]
    assert growth[0] < 1.3, "one window without a queue says little"
    assert min(growth[3:]) > 1.5
    assert crowd.is_joined


def test_reverse_probes__of_a_receiver_take_turns_among_many_senders() -> None:
    """Their answers come in beside the data.

    With 32 senders one each round trip would be a third of the link.
    """
    counts = []
    for senders in (2, 16):
        fabric, names, _ = make(senders)
        incast(fabric, names, "h0", message_bytes=1 << 16)
        fabric.run_for(0.5)
        probes: list[EndpointRequest] = []

        def watch(kind: str, now: float, port: str, frame: Any, probes: list[EndpointRequest] = probes) -> None:
            if kind == "send" and type(frame.packet) is EndpointRequest:
                probes.append(frame.packet)

        fabric.host("h0").ports[0].observer = watch
        fabric.run_for(0.5)
        counts.append(len(probes))
    assert 0.5 * counts[0] <= counts[1] <= 1.2 * counts[0]
