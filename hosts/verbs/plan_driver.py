"""Base of the drivers of a planned fabric: addresses and EVs come from the plan."""

from __future__ import annotations

from itertools import count

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.verbs.driver import Driver
from mrc_testbed.topologies.plan import Host, Plan, PlanError, ev_plane


class PlanDriver(Driver):
    """Driver of one host of a plan.

    A GID is the address of any of a host's ports; a host's name does as well.
    """

    def __init__(self, plan: Plan, host: Host, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.plan, self.host = plan, host
        self._draws = count()

    def evs(self, peer: str) -> list[tuple[int, int]]:
        """Return EVs of the plan; where EVs are random (ecmp, flow-ecmp), others at each call.

        So each QP has EVs of its own.
        """
        return list(self.plan.ev_planes(self.host, self.plan.host(peer), seed=f"verbs {next(self._draws)}"))

    def check_ev(self, peer: str, ev: int, plane: int) -> str | None:
        if self.plan.mode.ev_is_path and ev_plane(ev) != plane:
            return f"EV {ev:#06x} names plane {ev_plane(ev)}, its port is plane {plane}"
        try:
            self.plan.path(self.host, self.plan.host(peer), ev, plane)
        except PlanError as error:
            return str(error)
        return None

    def gids(self) -> tuple[str, ...]:
        return tuple(str(self.plan.address(self.host, plane)) for plane in range(self.planes))

    def resolve(self, gid: str) -> str:
        names_by_gid = {str(self.plan.address(h, p)): h.name for h in self.plan.hosts for p in range(self.planes)}
        try:
            peer = self.plan.host(names_by_gid.get(gid, gid))
        except PlanError as error:
            raise LocalError(f"no host with the address {gid!r}: {error}") from None
        if peer == self.host:
            raise LocalError(f"{gid} is this host: the fabric carries nothing from a host to itself")
        return peer.name
