"""Local end of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.engine.config import PATH_MTUS
from mrc_testbed.ipc.requests import RequestError


@dataclass(frozen=True, slots=True)
class LocalEnd:
    """The parts of a host that a measurement uses."""

    connections: Connections
    regions: Regions
    pmtu_bytes: int
    """Largest path MTU configured."""
    rates: Callable[[], dict[int, float]]
    """Bits/s of the ports that have a rate, by plane."""
    is_port_up: Callable[[int], bool]
    """Whether the port of a plane is up."""

    @property
    def host(self) -> str:
        return self.connections.host.name

    @property
    def planes(self) -> int:
        return self.connections.plan.planes


def checked_pmtu(requested_mtu: int | None, largest: int) -> int:
    """Return the path MTU in bytes: `requested_mtu`, or by default the configured `largest`.

    Raises RequestError when it is no path MTU, or above `largest`.
    """
    pmtu = largest if requested_mtu is None else requested_mtu
    if pmtu not in PATH_MTUS or pmtu > largest:
        valid_mtus = [mtu for mtu in PATH_MTUS if mtu <= largest]
        raise RequestError(f"pmtu = {pmtu}: must be one of {', '.join(map(str, valid_mtus))}")
    return pmtu
