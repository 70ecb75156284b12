"""Engine configuration that follows from a plan: defaults by mode and link rates, unless overridden.

Without rates nothing is derived but the path MTU: packets queue in front of processes, not of links, and a window that
follows delay would follow the machine's load (docs/design/congestion-window.md, note 1). With rates (Plan.scaled,
mrc-protocol §11.4) congestion control is NSCC for the pipe that the plan describes, and timers count in its base RTT.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf, log2
from typing import Any

from mrc_testbed.hosts.engine.cc.ccprofile import NSCC
from mrc_testbed.hosts.engine.config import TIMEOUT_UNIT_S, Config
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.engine.wire.codec import write_size
from mrc_testbed.hosts.engine.wire.packets import Opcode
from mrc_testbed.topologies.plan import Link, Mode, Plan

HOST_OVERHEAD_S = 0.001
"""Delay that two hosts add to the plan's base RTT: wake-ups and Python (measured, docs/congestion.md)."""
TIMEOUT_RTTS = 5
"""Retry timer in base RTTs: base 1, a queue at its hard limit 3, SACKs that wait 1 (nscc.md §6.4)."""
INCAST_PENALTY = 24
"""rcv_cwnd_pen after trims at the never marked last hop (nscc.md §4.3; as simulator/profiles.py)."""
DCQCN_TIMES = ("alpha_period_s", "increase_period_s", "cnp_interval_s")
"""Times of RcConfig that belong to a round trip of DCQCN_RTT_S, and grow with it."""
DCQCN_RATE_BPS, DCQCN_RTT_S = 40e6, 0.010
"""Line to which DCQCN's rates and times of RcConfig belong (mrc-protocol §11.4)."""
DEFAULT = Config()


def host_config(plan: Plan, overrides: dict[str, Any] | None = None) -> Config:
    """Return the engine configuration for hosts of a plan; `overrides` win. Raises ConfigError."""
    return Config.from_json({**derived_keys(plan), **(overrides or {})})


def derived_keys(plan: Plan) -> dict[str, Any]:
    """Return the configuration keys that follow from a plan."""
    keys: dict[str, Any] = {"pmtu_bytes": plan.pmtu_bytes}
    if plan.mode is Mode.SWITCH_SPRAY:
        keys["ev_fifo"] = False  # switches spray: no EV keeps its order
    if not plan.limited:
        return keys
    rtt = plan.base_rtt_s() + HOST_OVERHEAD_S
    rate = pipe_rate_bps(plan)
    keys |= {
        "cc_algorithm": NSCC,
        "link_rate_bps": rate,
        "base_rtt_s": rtt,
        "path_hops": 4 if plan.racks > 1 else 2,
        "cwnd_bytes": max(4 * plan.pmtu_bytes, int(1.5 * rate * rtt / 8)),
        "sack_flush_s": min(DEFAULT.acks.sack_flush_s, rtt / 10),
        "incast_penalty": INCAST_PENALTY,
        "incast_hold_s": rtt / 2,
        "timeout": min(24, max(DEFAULT.loss.timeout, ceil(log2(TIMEOUT_RTTS * rtt / TIMEOUT_UNIT_S)))),
        "probe_timeout_s": max(DEFAULT.probes.timeout_s, TIMEOUT_RTTS * rtt),
        "reverse_probe_s": max(DEFAULT.paths.reverse_probe_s, rtt),
    }
    return keys


def pipe_rate_bps(plan: Plan) -> float:
    """Return the rate at which a host can send over all planes together, bits/s of nominal bytes.

    Nominal bytes exclude Ethernet and the outer header. Raises ValueError for a plan without rates.
    """
    if plan.layout is not None:
        rate = _uneven_rate_bps(plan)
        return rate * write_size(Opcode.WRITE_MIDDLE, plan.pmtu_bytes, True) / plan.frame_bytes()
    rates = []
    if plan.host_link.rate_bps is not None:
        rates.append(plan.host_link.rate_bps)
    if plan.fabric_link.rate_bps is not None and plan.racks > 1:
        rates.append(plan.fabric_link.rate_bps * plan.spines)
    if not rates:
        raise ValueError(f"{plan}: links have no rate")
    return min(rates) * plan.planes * write_size(Opcode.WRITE_MIDDLE, plan.pmtu_bytes, True) / plan.frame_bytes()


def _uneven_rate_bps(plan: Plan) -> float:
    """Return the rate of the fastest host of an uneven fabric.

    Each plane adds what the host's port and its T0's uplinks take.
    """

    def rate(links: Iterable[Link]) -> float:
        rates = [plan.speed(link).rate_bps for link in links]
        return inf if None in rates else sum(filter(None, rates))

    top_rate = 0.0
    for host in plan.hosts:
        port_rates = []
        for plane in plan.host_planes(host):
            t0 = plan.t0_name(plane, host.rack)
            uplinks = [plan.link(t0, plan.t1_name(plane, number)) for number in plan.uplinks(plane, host.rack)]
            port_rates.append(min(rate([plan.link(host.name, t0)]), rate(uplinks) if uplinks else inf))
        top_rate = max(top_rate, sum(port_rate for port_rate in port_rates if port_rate != inf))
    if not top_rate:
        raise ValueError(f"{plan}: no host has a rate on its way")
    return top_rate


def dcqcn_rates(line_rate_bps: float) -> dict[str, float]:
    """Return DCQCN's rates for a NIC.

    The lowest rate grows with the line: 56 QPs of E17 would fill a slow last hop with that of a fast one, whatever CNPs
    say.
    """
    share, defaults = line_rate_bps / DCQCN_RATE_BPS, RcConfig()
    return {
        "line_rate_bps": line_rate_bps,
        "min_rate_bps": share * defaults.min_rate_bps,
        "increase_bps": share * defaults.increase_bps,
    }


def baseline_config(plan: Plan) -> RcConfig:
    """Return the parameters of a RoCEv2 QP: DCQCN at a port's rate where links have one, else a window.

    DCQCN's timers follow the round trip: shorter ones raise the rate before a CNP can be back.
    """
    own_rates = [plan.speed(link).rate_bps for link in plan.links_of("nic")] if plan.layout else []
    rate = max(filter(None, own_rates), default=None) or plan.host_link.rate_bps or plan.fabric_link.rate_bps
    defaults = RcConfig()
    if rate is None:
        return defaults
    round_trips = plan.base_rtt_s() / DCQCN_RTT_S
    times = {name: round_trips * getattr(defaults, name) for name in DCQCN_TIMES}
    return RcConfig.from_json({"control": "dcqcn", **dcqcn_rates(rate), **times})
