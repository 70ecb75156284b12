"""The host of a virtual fabric lets its engine rest where nothing has changed."""

from __future__ import annotations

from typing import Any

import pytest

from mrc_testbed.faults import CutFault, LossFault
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.simulator import VirtualFabric, incast, permutation, run_all
from mrc_testbed.simulator.host import VirtualHost
from mrc_testbed.topologies.plan import Plan

NSCC = {"cc_algorithm": "uet-1.0-nscc"}


def waits_for_room(_host: VirtualHost, endpoint: Endpoint) -> bool:
    """Return whether a host that rests for no other reason than full rings would rest."""
    return bool(endpoint._ready_turns) and endpoint.is_settled(False)


def outcome(pattern: str, config: dict[str, Any], lookahead: int, faulty: bool) -> tuple[str, int, float]:
    """Run a pattern; return the digest of its trace, the number of events, and when it ended."""
    fabric = VirtualFabric(
        Plan(2, 2, 2, 2), seed=3, trace=True, lookahead=lookahead, config=Config.of(sack_flush_s=0.0005, **config)
    )
    if faulty:
        fabric.schedule(0.01, CutFault.on("p0-t0-0 p0-t1-1"), until_s=0.3)
        fabric.schedule(0.0, LossFault.on("h2 p0-t0-1", rate=0.02))
    sizes = {"message_bytes": 1 << 16, "messages": 3}
    if pattern == "incast":
        flows = incast(fabric, ["h1", "h2", "h3"], "h0", **sizes)
    else:
        flows = permutation(fabric, **sizes)
    run_all(fabric, flows, 30.0)
    assert all(flow.intact for flow in flows)
    return fabric.trace_digest(), fabric.queue.event_count, fabric.now


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("config", [{}, NSCC], ids=["fixed window", "nscc"])
@pytest.mark.parametrize("pattern", ["permutation", "incast"])
def test_settled__a_host_that_pumps_all_the_same_sends_the_same(monkeypatch, pattern, config, lookahead, faulty):
    resting_trace, resting_event_count = outcome(pattern, config, lookahead, faulty)[:2]
    monkeypatch.setattr(VirtualHost, "_is_settled", waits_for_room)
    restless_trace, restless_event_count = outcome(pattern, config, lookahead, faulty)[:2]
    assert resting_trace == restless_trace
    assert resting_event_count < restless_event_count, "it saves events"


def test_settled__a_full_ring_waits_for_on_room_and_the_link_stays_busy(monkeypatch):
    *_, resting_event_count, resting_end_s = outcome("permutation", {}, 1, False)
    monkeypatch.setattr(VirtualHost, "_is_settled", lambda _host, _endpoint: False)
    *_, restless_event_count, restless_end_s = outcome("permutation", {}, 1, False)
    assert resting_event_count < restless_event_count and resting_end_s == pytest.approx(restless_end_s, rel=0.01)
