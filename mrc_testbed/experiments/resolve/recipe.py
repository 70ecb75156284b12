"""Settings of the scaling recipe for a scenario: keys of the engines, depths of the queues."""

from __future__ import annotations

from typing import Any

from mrc_testbed.experiments.language.model import QueuesPart, Scenario, Transport
from mrc_testbed.experiments.resolve.engine_clock import config_times
from mrc_testbed.simulator.profiles import PfcProfile, QueueProfile


def engine_settings(transport: Transport) -> dict[str, Any]:
    """Return Config keys of a transport beside those of the scaling recipe."""
    keys = dict(transport.config) if transport.kind == "mrc" else {}
    return {"pmtu_bytes": transport.pmtu, "no_receive": "deliver", **config_times(transport.clock), **keys}


def queue_settings(queues: QueuesPart, bdp: float, rtt_s: float) -> dict[str, Any]:
    """Return queue settings of the scenario in bytes, for QueueProfile."""
    out: dict[str, Any] = {"last_hop_ecn": queues.last_hop_ecn}
    if queues.ecn:
        out |= {"ecn_min_bytes": int(bdp * queues.ecn_min), "ecn_max_bytes": int(bdp * queues.ecn_max)}
    if queues.trim:
        out |= {"trim_bytes": int(bdp * queues.trim_at), "trim_lasthop_bytes": int(bdp * queues.trim_last_hop)}
    if queues.limit is not None:
        out["data_bytes"] = int(bdp * queues.limit)
    if (pfc := queues.pfc) is not None:
        xoff, xon, headroom = (int(bdp * share) for share in (pfc.xoff, pfc.xon, pfc.headroom))
        out["pfc"] = PfcProfile(xoff, xon, headroom, pfc.storm_after * rtt_s)
    return out


def tier_queues(scenario: Scenario, rate_bps: float) -> QueueProfile:
    """Return the queues of ports of this rate, whose thresholds follow from it. Raises ProfileError."""
    queues, rtt_s = scenario.queues, scenario.links.rtt
    bdp = rate_bps * rtt_s / 8
    return QueueProfile.from_bdp(bdp, ecn=queues.ecn, trim=queues.trim, **queue_settings(queues, bdp, rtt_s))
