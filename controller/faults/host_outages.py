"""Hosts that are down: all NIC links of a host that went together, in whatever planes. Pure.

The planes of a fabric are explained one by one (correlator.py); a host stands in all of them, so its fault belongs to
none (`NO_PLANE`), and its links are no faults of their own while it is down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mrc_testbed.controller.faults.path_segments import HostLinks
from mrc_testbed.controller.faults.timers import ROUNDING_S, FaultTimers
from mrc_testbed.topologies.plan import Link, Plan

LINKS_MIN = 2
"""Least NIC links without another explanation that show a host down.

A single one may as well be its cable.
"""


class HostOutages:
    """The hosts of a fabric that are down. `wait(due)`: look again by then."""

    def __init__(self, plan: Plan, times: FaultTimers, wait: Callable[[float], None]) -> None:
        self._times, self._wait = times, wait
        self._hosts: dict[str, HostLinks] = {host.name: HostLinks.from_plan(plan, host.name) for host in plan.hosts}
        self._deadlines: dict[HostLinks, float] = {}
        """Deadline by which all links of a host that comes back must be up; its links are no faults before."""
        self.dead_hosts: frozenset[HostLinks] = frozenset()
        """Hosts that are down, those that come back included."""

    @property
    def links(self) -> frozenset[Link]:
        """NIC links that a host explains."""
        return frozenset(link for host in self.dead_hosts for link in host.links)

    def has(self, link: Link) -> bool:
        """Whether a link is that of a NIC."""
        return link.lower.node in self._hosts

    def update(
        self, down_since: Mapping[Link, float], is_explained: Callable[[Link], bool], now: float
    ) -> frozenset[HostLinks]:
        """Take the NIC links that are down, seconds; return the hosts that went down or are back.

        `is_explained`: the switch of a link explains it.
        """
        suspects = {*self.dead_hosts, *(self._hosts[link.lower.node] for link in down_since)}
        dead_hosts = frozenset(host for host in suspects if self._is_down(host, down_since, is_explained, now))
        changed_hosts, self.dead_hosts = dead_hosts ^ self.dead_hosts, dead_hosts
        return changed_hosts

    def _is_down(
        self, host: HostLinks, down_since: Mapping[Link, float], is_explained: Callable[[Link], bool], now: float
    ) -> bool:
        down_count = sum(link in down_since for link in host.links)
        if down_count == len(host.links):
            self._deadlines.pop(host, None)
            times = [down_since[link] for link in host.links if not is_explained(link)]
            went_together = len(times) >= LINKS_MIN and max(times) - min(times) <= self._times.together_s
            return went_together or host in self.dead_hosts
        # A host that comes back is one fault until its last link is up, not a fault for each link still down.
        if host in self.dead_hosts and down_count:
            deadline = self._deadlines.setdefault(host, now + self._times.settle_s)
            if now < deadline - ROUNDING_S:
                self._wait(deadline)
                return True
        self._deadlines.pop(host, None)
        return False
