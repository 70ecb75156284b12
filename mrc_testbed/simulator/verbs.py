"""Verbs on the hosts of a virtual fabric: devices of mrc_testbed.hosts.verbs, driven by virtual time.

    fabric = VirtualFabric(Plan(4, 2, 2, 2), seed=7)
    a, b = open_device(fabric, "h0"), open_device(fabric, "h2")

Any waiting call of any device runs the whole fabric until an application gets an event, so that one program can hold
both ends. Faults are the fabric's: `fabric.schedule(0.01, CutFault.on("p0-t0-0 p0-t1-1"))`.
"""

from __future__ import annotations

from mrc_testbed.hosts.verbs import Device
from mrc_testbed.hosts.verbs.plan_driver import PlanDriver
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.host import VirtualHost


def open_device(fabric: VirtualFabric, host: str) -> Device:
    """Return the verbs device of a host. Raises PlanError for an unknown host."""
    return Device(FabricDriver(fabric, fabric.host(host)))


class FabricDriver(PlanDriver):
    """Verbs driver of one host. All devices of a fabric share its time; not for threads."""

    def __init__(self, fabric: VirtualFabric, host: VirtualHost) -> None:
        super().__init__(fabric.plan, host.plan_host, host.endpoint)
        self.fabric = fabric
        self._host = host
        host.listen(lambda event: self.deliver((event,)))

    def now(self) -> float:
        return self.fabric.now

    def step(self, deadline: float | None) -> bool:
        answers = iter((False,))  # False at first, True once a host has delivered an event

        def has_event() -> bool:
            return next(answers, True)

        limit_s = float("inf") if deadline is None else deadline - self.fabric.now
        if self.fabric.run_until(has_event, limit_s=limit_s):
            return True
        if deadline is not None:
            self.fabric.run_until(deadline)
        return False

    def evs(self, peer: str) -> list[tuple[int, int]]:
        return self.fabric.evs(self._host, self.fabric.host(peer))

    def check_ev(self, peer: str, ev: int, plane: int) -> str | None:
        return super().check_ev(peer, ev, plane) if self.fabric.mode == "srv6" else None

    def collect(self) -> int:
        return self._host.collect()

    def kick(self) -> None:
        self._host.kick()

    def port_up(self, plane: int) -> bool:
        return self._host.ports[plane].is_up

    def set_port(self, plane: int, enabled: bool) -> None:
        """Pull the cable of a port, or put it back."""
        self.fabric.set_link(self._host.name, self.plan.t0_name(plane, self.host.rack), enabled=enabled)
