"""State of a fabric of another process, from its run folder, its switches' daemon and their gNMI."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from mrc_testbed.capture.several_machines import refuse_several_machines
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.patience import LocalWork, gets_on
from mrc_testbed.ipc.rundir import SWITCHD, FabricError, RunFiles
from mrc_testbed.topologies.lab.traffic_control import Cable, TrafficControl, UnreachableTraffic
from mrc_testbed.topologies.lab.wires import states_of
from mrc_testbed.topologies.plan import Plan, PlanError, Port

_CARRIER = "/sys/class/net/{}/carrier"


class LiveFabric:
    """State of a running fabric, read through its run folder. Raises UsageError when none runs there."""

    def __init__(self, run_dir: Path) -> None:
        files = RunFiles(run_dir)
        try:
            self.plan = Plan.from_json(files.read_plan())
            self.switches: dict[str, Any] = files.read_switches()
        except FileNotFoundError as error:
            raise UsageError(f"no fabric is running ({error.filename} is not there): start one with `mrc up`") from None
        except (OSError, ValueError, PlanError) as error:
            raise UsageError(f"{run_dir}: {error}") from error
        refuse_several_machines(files)
        self._control = files.switchd_socket
        self._files = files

    @cached_property
    def traffic(self) -> TrafficControl:
        """Impairments and queues of the switches' ports; gNMI is imported by who asks for them alone."""
        gnmi = next((switch.get("gnmi") for switch in self.switches.values()), None)
        if gnmi is None:
            return UnreachableTraffic(self.plan)
        from mrc_testbed.topologies.lab.traffic_control_gnmi import GnmiTraffic

        return GnmiTraffic(self.plan, gnmi)

    def switches_work(self) -> bool:
        """Whether the switches' daemon works; False where each is a process of its own."""
        return gets_on(LocalWork(self._files.pid_of(SWITCHD)))

    def is_up(self, port: Port) -> bool:
        """Return the carrier of a switch's port.

        The daemon knows that of a wire, the kernel others; switches are in this namespace.
        """
        if (wire := states_of(self._control).ends.get(port.interface)) is not None:
            return bool(wire["up"])
        try:
            return Path(_CARRIER.format(port.interface)).read_text().strip() == "1"
        except OSError:  # administratively down, or gone
            return False

    def cable(self, interface: str, direction: str) -> Cable:
        """Impairment injected into one direction of a switch's port; none where it cannot be read."""
        try:
            port = self.traffic.read(interface)
        except FabricError:
            return Cable()
        return port.input if direction == "input" else port.output

    def close(self) -> None:
        if "traffic" in self.__dict__:
            self.traffic.close()
