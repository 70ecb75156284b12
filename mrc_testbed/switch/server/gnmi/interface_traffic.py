"""Traffic settings by interface name, for gNMI: which chassis and which port an interface is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mrc_testbed.switch.device.traffic import DEFAULT_SETTINGS, PortSettings, PortTrafficState
from mrc_testbed.switch.server.chassis import Chassis


class ChassisTraffic:
    """Ports of all switches of a daemon; a switch that is off has settings too."""

    def __init__(self) -> None:
        self._ports: dict[str, tuple[Chassis, int]] = {}

    def add(self, chassis: Chassis) -> None:
        for port, interface in chassis.ports.items():
            self._ports[interface] = (chassis, port)

    def remove(self, chassis: Chassis) -> None:
        for interface in chassis.ports.values():
            self._ports.pop(interface, None)

    def names(self) -> Collection[str]:
        return self._ports.keys()

    def get(self, name: str) -> PortSettings:
        chassis, port = self._ports[name]
        return chassis.traffic.get(port, DEFAULT_SETTINGS)

    def state(self, name: str) -> PortTrafficState:
        chassis, port = self._ports[name]
        return chassis.traffic_state(port)

    def set(self, changes: Mapping[str, tuple[PortSettings, Collection[str]]]) -> None:
        for name, (settings, restart) in changes.items():
            chassis, port = self._ports[name]
            chassis.set_traffic(port, settings, restart)
