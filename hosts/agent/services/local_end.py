"""This host's end of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hosts.agent.connections import Connections
from hosts.agent.regions import Regions
from hosts.agent.tasks import Tasks


@dataclass(frozen=True, slots=True)
class LocalEnd:
    """What a measurement uses of its host."""

    connections: Connections
    regions: Regions
    tasks: Tasks
    pmtu_bytes: int
    """Largest path MTU configured."""
    rates: Callable[[], dict[int, float]]
    """Bits/s of the ports that have a rate, by plane."""
    is_port_up: Callable[[int], bool]
    """By plane."""

    @property
    def host(self) -> str:
        return self.connections.host.name

    @property
    def planes(self) -> int:
        return self.connections.plan.planes
