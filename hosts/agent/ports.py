"""The NIC of a host with the links of its ports and their rates."""

from __future__ import annotations

import logging
import os
from typing import Any

from mrc_testbed.hosts.nic.base import Nic
from mrc_testbed.hosts.nic.netlink import LinkWatcher
from mrc_testbed.hosts.nic.paced import PacedNic

REST_MAX_S = 0.001
"""Longest rest between turns, seconds; while all ports have a rate, turns rest a full frame's time."""

log = logging.getLogger("mrc_testbed.hosts.agent")


class HostPorts:
    """Ports of one host, one per plane. Raises OSError when the kernel gives no netlink socket.

    `dscp_control`: packets of that DSCP go first at a paced port.
    """

    def __init__(self, nic: Nic, dscp_control: int) -> None:
        self.nic = nic
        """The NIC; replaced when the first port gets a rate."""
        self._dscp_control = dscp_control
        self.planes = {port.interface: plane for plane, port in nic.ports.items()}
        self.links = LinkWatcher(self.planes)
        self.rest_s = 0.0
        """Least time between two turns (hosts/agent/turn_selector.py)."""
        self._is_realtime = False
        """Whether the process runs with real-time scheduling, for frames that leave by the clock."""

    def is_up(self, plane: int) -> bool:
        return self.links.states[self.nic.ports[plane].interface].up

    @property
    def rates(self) -> dict[int, float]:
        """Bits/s of the ports that have a rate, by plane."""
        return self.nic.rates if isinstance(self.nic, PacedNic) else {}

    def set_rate(self, plane: int, rate_bps: float | None) -> None:
        """Pace a port from now on; None removes the limit."""
        if not isinstance(self.nic, PacedNic):
            if rate_bps is None:
                return
            self.nic = PacedNic(self.nic, {}, self._dscp_control)
        self.nic.set_rate(plane, rate_bps)
        self.choose_scheduler()

    def choose_scheduler(self) -> None:
        """Set real-time scheduling while a port is paced, else the normal one.

        As the switches do (switch/runtime/event_loop.c): on a machine with other work frames would leave 10 ms late,
        which congestion control takes for a queue. Without permission the scheduling stays as it is.

        A paced host is idle most of the time, and the kernel keeps 5 % for others whatever happens. It need not wake up
        for each single frame: in one turn for each frame's time it does what all ports have to do. A port's queue holds
        more than that (hosts/nic/paced.py), so that none runs dry; what has come waits half a frame's time on average.
        """
        rates = self.rates
        timed = bool(rates)
        self.rest_s = 0.0
        if len(rates) == len(self.nic.ports):
            self.rest_s = min(self.nic.plan.frame_bytes() * 8 / max(rates.values()), REST_MAX_S)
        if timed != self._is_realtime:
            self._is_realtime = timed
            policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK if timed else os.SCHED_OTHER
            lowest = os.sched_get_priority_min(os.SCHED_RR) if timed else 0
            try:
                os.sched_setscheduler(0, policy, os.sched_param(lowest))
            except OSError as error:
                log.warning("no real-time scheduling (%s): frames may leave late on a busy machine", error.strerror)

    def to_json(self) -> dict[str, Any]:
        """Return interface and link state by plane."""
        return {
            str(plane): {"interface": interface, "up": self.links.states[interface].up}
            for interface, plane in self.planes.items()
        }

    def status_json(self) -> dict[str, Any]:
        """Return `to_json` with counters and, where a port has a rate, how well the port keeps it."""
        self.nic.refresh_counters()
        ports = self.to_json()
        for plane, counters in self.nic.counters.items():
            ports[str(plane)].update(counters.to_json())
        if isinstance(self.nic, PacedNic):
            for name, pacing in self.nic.pacing().items():
                ports[name]["pacing"] = pacing
        return ports

    def close(self) -> None:
        """Close the ports. Idempotent."""
        self.links.close()
        self.nic.close()
