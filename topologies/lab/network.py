"""Nodes and links of a fabric: namespaces, interfaces, wires and host agents.

`Fabric` (fabric.py) asks a `Network` and does not know where a node is. `LocalNetwork` has nodes on this machine: all
of a plan, or the part of it that a machine holds (`part`), whose links to other machines are `Tunnel`s.
topologies/lab/cluster/network.py has a network of several machines.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.processes import Probe, Processes
from mrc_testbed.ipc.procfs import ThreadSeconds
from mrc_testbed.ipc.rpc import JsonlClient
from mrc_testbed.ipc.rundir import FabricError, RunDir
from mrc_testbed.topologies.lab import netdev, preflight
from mrc_testbed.topologies.lab.netdev import IFF_NOARP, IFF_UP, NetDevices, VethEnd, VxlanEnd
from mrc_testbed.topologies.lab.nodes import FabricHost, FabricMininet
from mrc_testbed.topologies.lab.options import VIRTUAL
from mrc_testbed.topologies.lab.targets import FabricSwitch, Target, answers
from mrc_testbed.topologies.lab.wires import (
    PortLook,
    WireClient,
    WiredDevices,
    WireStates,
    link_states,
    links_between_switches,
)
from mrc_testbed.topologies.plan import Link, Plan, Port

SetLink = Callable[[str, str, bool], object]
"""Mininet's way to cut a link: two nodes, and whether it is to be up."""


@dataclass(frozen=True, slots=True)
class MachinePart:
    """The nodes of a plan that one machine holds."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]

    @classmethod
    def whole_plan(cls, plan: Plan) -> MachinePart:
        """Return the part of a single machine, which holds all nodes."""
        return cls(tuple(host.name for host in plan.hosts), tuple(switch.name for switch in plan.switches))

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset((*self.hosts, *self.switches))

    def links(self, plan: Plan) -> list[Link]:
        """Links with both ends here."""
        return [link for link in plan.links if link.ends <= self.nodes]


@dataclass(frozen=True, slots=True)
class Tunnel:
    """The end here of a link to another machine: a VXLAN interface with one peer."""

    interface: str
    vni: int
    local: str
    """Address of this machine that carries it."""
    remote: str


class Network(abc.ABC):
    """Nodes and links of a fabric. Raises FabricError for what cannot be done."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.mininet: FabricMininet | None = None
        self.hosts: dict[str, FabricHost] = {}
        self.switches: dict[str, FabricSwitch] = {}

    @abc.abstractmethod
    def check(self) -> None:
        """Raises FabricError when something stands in the way; nothing has been made yet."""

    @abc.abstractmethod
    def make(self) -> None:
        """Make nodes and links."""

    @abc.abstractmethod
    def attach(self, switches: Collection[str] | None = None) -> None:
        """Give switches their ports, all or those named, once what runs them answers."""

    @abc.abstractmethod
    def start_agents(self, arguments: Sequence[str], hosts: Collection[str] | None = None) -> dict[str, Probe]:
        """Start an agent in every host, or in those named; return the agents' probes.

        `arguments`: those beside the agent's name and run folder.
        """

    @abc.abstractmethod
    def set_up(self, interface: str, is_up: bool) -> None:
        """Set an end of a link up or down; the other end loses carrier, or gains it."""

    @abc.abstractmethod
    def is_up(self, interface: str) -> bool:
        """Up, and with carrier."""

    @abc.abstractmethod
    def link_states(self) -> dict[str, PortLook]:
        """Return the state of all known links by the interface of their upper end.

        Made to be asked often, from any thread, while others cut links.
        """

    @abc.abstractmethod
    def path_for(self, host: str, name: str) -> Path:
        """Return the path of a file for `host` on the machine that has the host."""

    @abc.abstractmethod
    def bring(self, host: str, path: Path) -> Path:
        """Bring a file of this machine where `host` can read it; return its path there."""

    @abc.abstractmethod
    def discard(self, host: str, path: Path) -> None:
        """Remove a file from the machine that has a host; none is no error."""

    @abc.abstractmethod
    def read(self, host: str, path: Path) -> bytes:
        """Return the bytes of a file on the machine that has a host.

        Raises OSError, or FabricError for another machine's.
        """

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Fields of the fabric's status about where its nodes are."""

    @abc.abstractmethod
    def threads_elsewhere(self) -> dict[str, ThreadSeconds]:
        """CPU time so far, and waiting for it, of the processes on other machines: their threads by process."""

    @abc.abstractmethod
    def processors(self) -> int:
        """CPUs that the fabric may use, of all its machines."""

    @abc.abstractmethod
    def node_locations(self) -> list[str]:
        """Describe which machine has what; empty when this machine has all."""

    @abc.abstractmethod
    def notes(self) -> list[str]:
        """Return notes about the network for a reader of measurements that were made on it."""

    @abc.abstractmethod
    def check_alive(self) -> None:
        """Raises FabricError when something has gone that should be there; processes of this machine aside."""

    @abc.abstractmethod
    def stop_mininet(self) -> None:
        """End shells and forget nodes."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what is held open. Idempotent."""

    def node_of(self, interface: str) -> FabricHost | FabricSwitch:
        """The node that has an interface. Raises PlanError, FabricError before the fabric is up."""
        return self.node(self.port(interface).node)

    def switch(self, name: str) -> FabricSwitch:
        """A switch by its name. Raises FabricError before the fabric is up."""
        if name not in self.switches:
            raise FabricError("the fabric is not up: start it first")
        return self.switches[name]

    def node(self, name: str) -> FabricHost | FabricSwitch:
        """A node by its name. Raises FabricError before the fabric is up."""
        node = self.hosts.get(name) or self.switches.get(name)
        if node is None:
            raise FabricError("the fabric is not up: start it first")
        return node

    def port(self, interface: str) -> Port:
        """A port by its interface. Raises PlanError."""
        link = self.plan.link_of_interface(interface)
        return link.lower if link.lower.interface == interface else link.upper


class LocalNetwork(Network):
    """Nodes on this machine.

    wires     links between switches: VIRTUAL or VETH (options.py)
    part      nodes that are here; None: all of the plan
    set_link  what Mininet's `link a b up|down` does
    pulled    is called for a port whose cable somebody pulled by hand (BMv2), `tell` with a line about it
    """

    def __init__(
        self,
        plan: Plan,
        run_dir: RunDir,
        processes: Processes,
        target: Target,
        wires: str,
        set_link: SetLink,
        part: MachinePart | None = None,
        on_pulled: Callable[[str], object] = str,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        super().__init__(plan)
        self.run_dir, self.processes, self.target = run_dir, processes, target
        self.part = part or MachinePart.whole_plan(plan)
        self._links = self.part.links(plan)
        target.shares_wires = wires == VIRTUAL
        switch_links = set(links_between_switches(plan)) if wires == VIRTUAL else set()
        self._wire_links = dict.fromkeys(link for link in self._links if link in switch_links)
        """Links that are wires, in the plan's order."""
        self._set_link, self._on_pulled, self._report = set_link, on_pulled, report
        self._devices: NetDevices | None = None
        self._wires: WireClient | None = None
        self._state_wires: WireClient | None = None
        """Client for link states, so that no call that cuts a wire waits for them."""

    # ---- making -----------------------------------------------------------------------------------------

    def check(self) -> None:
        preflight.check_tcp_ports(self.target.tcp_ports())
        preflight.check_interfaces(self.interfaces())

    def interfaces(self) -> list[str]:
        """Every interface that is made in the root namespace."""
        wire_ends = {end.interface for link in self._wire_links for end in (link.lower, link.upper)}
        ports = [port.interface for switch in self.part.switches for port in self.plan.ports(switch)]
        ports = [name for name in ports if name not in wire_ends]
        return ports if self.target.cables is None else [*ports, *self.target.cables.plugs]

    def make(self) -> None:
        state = self.run_dir.state
        if self._wire_links:
            self._wires = WireClient(self.run_dir.switchd_socket, self.target.works)
            self._state_wires = WireClient(self.run_dir.switchd_socket, self.target.works)
            self._devices = WiredDevices(self._wires, self._wire_links)
        else:
            self._devices = NetDevices()
        net = self.mininet = FabricMininet(self._set_link)
        names_file = self._write_names_file()
        for name in self.part.hosts:
            self.hosts[name] = net.addHost(
                name,
                cls=FabricHost,
                token=state.token,
                run_dir=str(self.run_dir.path),
                ip=str(self.plan.ip_interfaces(self.plan.host(name))[0].ip),
                names_file=str(names_file),
            )
        if refusals := sorted({host.names_error for host in self.hosts.values() if host.names_error}):
            self._report(f"hosts do not know each other's names: {refusals[0]}. Cure: allow mounts, or use addresses")
        for name in self.part.switches:
            self.switches[name] = net.addSwitch(
                name,
                cls=self.target.switch_class,
                token=state.token,
                devices=self._devices,
                device=self.plan.switch(name),
                target=self.target,
                interfaces={port.number: port.interface for port in self.plan.ports(name)},
            )
        # Saved before the interfaces exist, so that a killed start leaves a list of what to remove.
        state.interfaces = self.interfaces()
        self.run_dir.save()
        self._make_links(state.group, self.pids)
        for link in self._links:
            self._add_link(net, link)
        if self.target.cables is not None:
            self.target.cables.watch(self._on_pulled, self._report)
        net.build()

    def _write_names_file(self) -> Path:
        """Write the /etc/hosts of the fabric's hosts, which has the machine's own lines too; return its path.

        A name means the IPv4 address, as Mininet's users expect and servers that listen on 0.0.0.0 need; `h0-ip6` is
        the other address of h0.
        """
        lines = []
        for host in self.plan.hosts:
            ip4, ip6 = self.plan.ip_interfaces(host)
            lines += [f"{ip4.ip} {host.name}", f"{ip6.ip} {host.name}-ip6"]
        machine_file = Path("/etc/hosts")
        machine_text = machine_file.read_text() if machine_file.exists() else "127.0.0.1 localhost\n"
        path = self.run_dir.names_file
        write_whole(path, "\n".join((*lines, machine_text)).encode())
        return path

    @property
    def pids(self) -> dict[str, int]:
        """A process in the namespace of each host."""
        return {name: host.namespace_pid for name, host in self.hosts.items()}

    def _veth_end(self, port: Port, pids: Mapping[str, int]) -> VethEnd:
        return VethEnd(port.interface, self.plan.mac(port), pids.get(port.node))

    def _make_links(self, group: int, pids: Mapping[str, int]) -> None:
        """All veth pairs: one for each link that is no wire, or two where cables are wanted."""
        if self.target.cables is not None:
            self.target.cables.create(group, self.plan.mac, pids)
            return
        netdev.create_pairs(
            [
                (self._veth_end(link.upper, pids), self._veth_end(link.lower, pids))
                for link in self._links
                if link not in self._wire_links
            ],
            group,
        )

    def _add_link(self, net: FabricMininet, link: Link) -> None:
        """Tell Mininet of a link, and prepare both ends. Wires are made so, later."""
        lower, upper = link.lower, link.upper
        net.addLink(
            net[lower.node],
            net[upper.node],
            port1=lower.number,
            port2=upper.number,
            intfName1=lower.interface,
            intfName2=upper.interface,
            addr1=self.plan.mac(lower),
            addr2=self.plan.mac(upper),
        )
        if link not in self._wire_links:
            self._prepare(lower, upper)

    def _prepare(self, *ports: Port) -> None:
        """Interfaces that are quiet, send frames as they are, and up."""
        for port in ports:
            devices = self.node(port.node).devices
            assert isinstance(devices, NetDevices)
            devices.quiet(port.interface)
            if devices is self._devices:  # a host's namespace forbids it for all that come
                netdev.forbid_ipv6(port.interface)
            devices.offloads_off(
                port.interface, in_pieces=self.target.cables is None
            )  # programs in cables look into them
            devices.set_flags(port.interface, on=IFF_UP | IFF_NOARP)

    def add_tunnels(self, tunnels: Collection[Tunnel]) -> None:
        """Make the ends here of links to other machines. Raises FabricError."""
        ports = {tunnel.interface: self.port(tunnel.interface) for tunnel in tunnels}
        ends = [
            VxlanEnd(
                tunnel.interface,
                self.plan.mac(ports[tunnel.interface]),
                tunnel.vni,
                tunnel.local,
                tunnel.remote,
                self.pids.get(ports[tunnel.interface].node),
            )
            for tunnel in tunnels
        ]
        netdev.create_tunnels(ends, self.run_dir.state.group)
        self._prepare(*ports.values())

    def set_carrier(self, interface: str, on: bool) -> None:
        """Give the end of a tunnel carrier or take it away, as its far end went up or down."""
        netdev.set_carrier(interface, on, self.pids.get(self.port(interface).node))

    def attach(self, switches: Collection[str] | None = None) -> None:
        if self._wires is not None:
            self._wires.add(self._wire_links)
        for name, switch in self.switches.items():
            if switches is None or name in switches:
                switch.start()

    def start_agents(self, arguments: Sequence[str], hosts: Collection[str] | None = None) -> dict[str, Probe]:
        pids = {name: self.hosts[name].namespace_pid for name in (self.hosts if hosts is None else hosts)}
        for name, pid in pids.items():
            options = ("--host", name, "--run-dir", str(self.run_dir.path), *arguments)
            self.processes.spawn_module(name, "mrc_testbed.hosts.agent", *options, in_namespace_of=pid)
        return {name: answers(JsonlClient(self.run_dir.agent_socket(name), name=name), "status") for name in pids}

    # ---- links ------------------------------------------------------------------------------------------

    def set_up(self, interface: str, is_up: bool) -> None:
        if self.target.cables is not None:
            self.target.cables.set_port(interface, is_up)
            return
        self.node_of(interface).devices.set_flags(interface, on=IFF_UP if is_up else 0, clear=0 if is_up else IFF_UP)

    def is_up(self, interface: str) -> bool:
        return bool(self.node_of(interface).devices.is_up(interface))

    def link_states(self) -> dict[str, PortLook]:
        return link_states(
            [link for link in self.plan.links if link.upper.node in self.switches],
            self._state_wires.states() if self._state_wires is not None else WireStates({}, {}),
        )

    # ---- files, end -------------------------------------------------------------------------------------

    def path_for(self, host: str, name: str) -> Path:  # noqa: ARG002 - all hosts are here
        return self.run_dir.data / name

    def bring(self, host: str, path: Path) -> Path:  # noqa: ARG002 - all hosts are here
        return path

    def discard(self, host: str, path: Path) -> None:  # noqa: ARG002 - all hosts are here
        path.unlink(missing_ok=True)

    def read(self, host: str, path: Path) -> bytes:  # noqa: ARG002 - all hosts are here
        return path.read_bytes()

    def describe(self) -> dict[str, Any]:
        return {}

    def threads_elsewhere(self) -> dict[str, ThreadSeconds]:
        return {}

    def processors(self) -> int:
        return len(os.sched_getaffinity(0))

    def node_locations(self) -> list[str]:
        return []

    def notes(self) -> list[str]:
        return []

    def check_alive(self) -> None:
        """Processes are all there is to miss."""

    def stop_mininet(self) -> None:
        net, self.mininet = self.mininet, None
        if net is not None:
            net.stop()

    def close(self) -> None:
        for resource in (self._wires, self._state_wires, self._devices):
            if resource is not None:
                resource.close()
