"""Switches of a fabric on several machines: one embedded daemon on each, by forwarded sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mrc_testbed.ipc.processes import Probe, Processes
from mrc_testbed.ipc.rundir import SWITCHD, FabricError, RunDir
from mrc_testbed.topologies.lab.netdev import VXLAN_PORT
from mrc_testbed.topologies.lab.options import Ports
from mrc_testbed.topologies.lab.targets import LOOPBACK, EmbeddedTarget, FabricSwitch, Target, answers
from mrc_testbed.topologies.lab.traffic_control import PortTraffic, Setting, TrafficControl, TrafficError
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import Machine, Placement

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.switch_counters import Counts


def daemon_of(machine: str) -> str:
    """Name of a machine's switch daemon among the parts of the fabric."""
    return f"{SWITCHD} of {machine}"


class ClusterTarget(Target):
    """One EmbeddedTarget for each machine; machine number n has ports n above the first one's."""

    name = EmbeddedTarget.name
    switch_class = FabricSwitch

    def __init__(self, run_dir: RunDir, processes: Processes, ports: Ports, fabric: Plan, placement: Placement) -> None:
        super().__init__(run_dir, processes, ports, fabric)
        self.placement = placement
        self._number = {machine.name: number for number, machine in enumerate(placement.machines)}
        self._targets = {
            name: EmbeddedTarget(RunDir(run_dir.machine_folder(name)), processes, self.ports_of(name), fabric)
            for name in self._number
        }
        self._name_of_device = {switch.device_id: placement.machine_of(switch.name).name for switch in fabric.switches}
        self._addresses: dict[str, str] = {}
        self._daemons = {daemon_of(name): name for name in self._number}
        """Machine of each daemon."""
        for daemon, name in self._daemons.items():
            self._targets[name].daemon = daemon
        self._started_switches: dict[str, FabricSwitch] = {}
        self.lost: Callable[[str], str | None] = lambda _name: None
        """Reason why a machine is lost, or None; ClusterNetwork sets the function."""
        self.launch_again: Callable[[str], object] = lambda _name: None
        """Function that has a machine restart its daemon; ClusterNetwork sets it."""

    def ports_of(self, machine: str) -> Ports:
        """TCP ports of a machine, the same there and here."""
        offset = self._number[machine]
        return replace(self.ports, p4runtime=self.ports.p4runtime + offset, gnmi=self.ports.gnmi + offset)

    def machine_of_port(self, port: int) -> Machine:
        """The machine whose server a TCP port leads to. Raises KeyError."""
        for machine in self.placement.machines:
            ports = self.ports_of(machine.name)
            if port in (ports.p4runtime, ports.gnmi):
                return machine
        raise KeyError(port)

    def underlay_address(self, machine: Machine) -> str:
        """Address that carries a machine's tunnels. Raises FabricError."""
        if machine.name not in self._addresses:
            self._addresses[machine.name] = underlay_address(machine, self.placement.machines)
        return self._addresses[machine.name]

    def check(self) -> None:
        """Each machine checks itself. Raises FabricError for what several machines cannot have."""
        if self.ports.tls:
            raise FabricError("--tls with --servers: ssh encrypts what goes between machines; leave out --tls")

    def tcp_ports(self) -> dict[int, str]:
        out: dict[int, str] = {}
        for machine in self.placement.machines:
            ports = self.ports_of(machine.name)
            out |= {ports.p4runtime: f"P4Runtime of {machine.name}", ports.gnmi: f"gNMI of {machine.name}"}
        return out

    def address(self, device_id: int) -> str:
        return self._targets[self._name_of_device[device_id]].address(device_id)

    def gnmi_of(self, device_id: int) -> str:
        return self._targets[self._name_of_device[device_id]].gnmi

    def launch(self) -> dict[str, Probe]:
        """Each machine launches its daemon, once there is a connection."""
        return {daemon: self._answers(daemon) for daemon in self._daemons}

    def _answers(self, daemon: str) -> Probe:
        return answers(self._targets[self._daemons[daemon]].client, "devices")

    def start(self, switch: FabricSwitch) -> None:
        """Register a switch whose device its machine has made."""
        self._started_switches[switch.name] = switch

    def probes(self) -> dict[str, Probe]:
        return {}

    def power(self, switch: FabricSwitch, on: bool) -> None:
        name = self.placement.machine_of(switch.name).name
        self._require(name)
        self._targets[name].power(switch, on)

    def loses(self, part: str) -> str | None:
        if part not in self._daemons:
            return None
        planes = self.placement.planes[self._daemons[part]]
        if not planes:
            return "its machine holds no switches: nothing"
        numbers = f"plane{'s' * (len(planes) > 1)} {', '.join(map(str, planes))}"
        return f"no switch of {numbers} forwards; their P4Runtime, gNMI and the links between them are gone"

    def restart(self, part: str) -> list[FabricSwitch]:
        machine = self._daemons[part]
        self.launch_again(machine)
        self.processes.wait_ready({part: self._answers(part)}, only_these=True)
        return [
            switch for name, switch in self._started_switches.items() if self.placement.machine_of(name).name == machine
        ]

    def _require(self, name: str) -> None:
        if (reason := self.lost(name)) is not None:
            raise TrafficError(f"machine {name} is lost: {reason}")

    def traffic(self) -> TrafficControl:
        parts = {name: target.traffic() for name, target in self._targets.items()}
        return ClusterTraffic(self.plan, self.placement, parts, self._require, self._daemons)

    def counts(self, cells: Mapping[str, Sequence[int]], depths: Sequence[str] = ()) -> Counts:
        """Return the counts of the machines that answer; switches of the others count as without power."""
        from mrc_testbed.topologies.lab.switch_counters import Counts, SwitchCounts

        by_machine: dict[str, list[str]] = {name: [] for name in self._targets}
        for interface in depths:
            by_machine[_machine_of(self.plan, self.placement, interface)].append(interface)
        counts = Counts({switch.name: SwitchCounts(False) for switch in self.plan.switches}, dict.fromkeys(depths))
        for name, target in self._targets.items():
            if not self.placement.switches[name] or self.lost(name) is not None:
                continue
            try:
                machine_counts = target.counts(cells, by_machine[name])
            except FabricError:
                continue  # lost: check_alive() says so
            counts.switches.update(machine_counts.switches)
            counts.depths.update(machine_counts.depths)
        return counts

    def close(self) -> None:
        for target in self._targets.values():
            target.close()


class ClusterTraffic(TrafficControl):
    """Traffic control of all switches, each by its own machine's."""

    def __init__(
        self,
        plan: Plan,
        placement: Placement,
        by_machine: Mapping[str, TrafficControl],
        require: Callable[[str], None],
        daemons: Mapping[str, str],
    ) -> None:
        super().__init__(plan)
        self._placement, self._by_machine, self._require = placement, by_machine, require
        self._daemons = daemons
        for traffic in by_machine.values():
            traffic.gets_on = lambda: self.gets_on()

    def lost(self, part: str, reason: str) -> None:
        """Mark the daemon of one machine as lost; the other machines still answer."""
        self._by_machine[self._daemons[part]].lost(part, reason)

    def on_restarted_part(self, part: str) -> None:
        self._by_machine[self._daemons[part]].on_restarted_part(part)

    def _traffic_of(self, interface: str) -> TrafficControl:
        """Raises TrafficError when its machine is lost."""
        name = _machine_of(self.plan, self._placement, interface)
        self._require(name)
        return self._by_machine[name]

    def _apply(self, settings: list[Setting]) -> None:
        groups: dict[str, list[Setting]] = {}
        for setting in settings:
            groups.setdefault(_machine_of(self.plan, self._placement, setting.interface), []).append(setting)
        errors = []
        for name, group in groups.items():
            try:
                self._require(name)
                self._by_machine[name].apply(group)
            except TrafficError as error:  # the other machines' ports still have to be set
                errors.append(str(error))
        if errors:
            raise TrafficError("; ".join(errors))

    def read(self, interface: str) -> PortTraffic:
        self.port(interface)
        return self._traffic_of(interface).read(interface)

    def on_switch_restart(self, switch: str) -> None:
        self._by_machine[self._placement.machine_of(switch).name].on_switch_restart(switch)

    def close(self) -> None:
        for traffic in self._by_machine.values():
            traffic.close()


def _machine_of(plan: Plan, placement: Placement, interface: str) -> str:
    link = plan.link_of_interface(interface)
    port = link.lower if link.lower.interface == interface else link.upper
    return placement.machine_of(port.node).name


def underlay_address(machine: Machine, machines: Sequence[Machine]) -> str:
    """Return the address that carries a machine's tunnels. Raises FabricError.

    The address is `underlay` of the file, or what the machine's name resolves to; for the local machine, its source
    address on the path to another machine.
    """
    if machine.underlay is not None:
        return machine.underlay
    if machine.is_local:
        remote_machines = [m for m in machines if not m.is_local]
        return _source_towards(underlay_address(remote_machines[0], machines)) if remote_machines else LOOPBACK
    try:
        addresses = socket.getaddrinfo(machine.address, VXLAN_PORT, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise FabricError(
            f"machine {machine.name}: {machine.address} is not known here ({error}): give its `underlay` address"
        ) from None
    return str(addresses[0][4][0])


def _source_towards(address: str) -> str:
    """Our own address on the way to another one. Raises FabricError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, VXLAN_PORT))
        except OSError as error:
            raise FabricError(f"no way from here to {address}: {error.strerror}") from None
        return str(asking.getsockname()[0])
