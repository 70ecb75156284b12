"""Virtual fabric with the values of a plan, as `mrc up` gives them to live switches.

The values are mode, rates, delays and thresholds.

    fabric = fabric_of(Plan.scaled(mode="ecmp"), seed=7)

The live fabric counts depths in packets, this one in bytes of whole frames: a threshold of n packets is one of n full
frames here, so both speak of the same bytes.
"""

from __future__ import annotations

from math import inf
from typing import Any

from mrc_testbed.hosts.agent.engine_defaults import host_config
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.host import VirtualHost
from mrc_testbed.simulator.profiles import UNLIMITED_QUEUES, Line, LinkProfile, QueueProfile
from mrc_testbed.topologies.plan import LinkSpeed, Mode, Plan, Thresholds


def fabric_of(plan: Plan, *, seed: int = 0, config: Any = None, **options: Any) -> VirtualFabric:
    """Make the VirtualFabric of a plan.

    `config`: of the engines (default: that of live hosts, without their overhead); `options`: further arguments of
    VirtualFabric, which take precedence.
    """
    if config is None:
        config = host_config(plan)
        if plan.limited:
            config = config.with_values(base_rtt_s=plan.base_rtt_s())
    arguments = {"links": link_profile(plan), "mode": plan.mode.value, "queues": UNLIMITED_QUEUES, **options}
    fabric = PlannedFabric(plan, seed=seed, config=config, **arguments)
    if "queues" not in options:
        for switch in plan.switches:
            for port in plan.ports(switch.name):
                (far,) = plan.link_of_interface(port.interface).ends - {switch.name}
                fabric.set_queues(switch.name, far, queue_profile(plan, plan.thresholds(switch, port.number)))
    return fabric


class PlannedFabric(VirtualFabric):
    """Virtual fabric whose QPs get the plan's EVs in its mode, different for each QP where random."""

    _qps = 0

    def evs(self, source: VirtualHost, target: VirtualHost) -> list[tuple[int, int]]:
        if self.plan.mode is Mode.STEV:
            return super().evs(source, target)  # in this fabric's own field layout (§8.5)
        self._qps += 1
        seed = f"{self.seed}/{self._qps}"
        return list(self.plan.ev_planes(source.plan_host, target.plan_host, seed=seed))


def link_profile(plan: Plan) -> LinkProfile:
    """Return the lines of both tiers, and of links with a speed of their own."""
    single = {name: _line(speed) for name, speed in plan.own_speeds.items()}
    return LinkProfile(nic=_line(plan.host_link), fabric=_line(plan.fabric_link), single=single)


def _line(speed: LinkSpeed) -> Line:
    return Line(inf if speed.rate_bps is None else speed.rate_bps, speed.delay_s)


def queue_profile(plan: Plan, limits: Thresholds | None) -> QueueProfile:
    """Return the thresholds of one port in bytes; without limits, those of a queue that never drops."""
    if limits is None:
        return UNLIMITED_QUEUES
    frame = plan.frame_bytes()
    return QueueProfile(
        data_bytes=limits.drop_at * frame,
        control_bytes=limits.control_depth * plan.trim_bytes,
        ecn_min_bytes=limits.ecn_min * frame,
        ecn_max_bytes=limits.ecn_max * frame,
        trim_bytes=limits.trim_at * frame,
        trim_lasthop_bytes=limits.trim_at * frame,
        trim_len=plan.trim_bytes if plan.mode.outer_header else None,
    )
