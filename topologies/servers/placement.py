"""Placement of a plan's nodes on machines: planes whole, hosts spread with neighbours together.

Planes share no switch.

placement = place_nodes(plan, servers)
placement.of("p2-t0-1").name            # machine of a node
placement.crossings                     # NIC links between machines: all links that cross
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mrc_testbed.topologies.plan import Link, Plan
from mrc_testbed.topologies.servers.file import Machine, Servers, ServersError


@dataclass(frozen=True, slots=True)
class Crossing:
    """A NIC link whose host and T0 are on different machines."""

    link: Link
    host_machine: Machine
    switch_machine: Machine


@dataclass(frozen=True)
class Placement:
    """Nodes by machine; every node of the plan is on one."""

    plan: Plan
    machines: tuple[Machine, ...]
    hosts: dict[str, tuple[str, ...]]
    """Machine -> hosts, in the plan's order; so are switches."""
    switches: dict[str, tuple[str, ...]]
    planes: dict[str, tuple[int, ...]]

    @cached_property
    def _machine_of(self) -> dict[str, Machine]:
        return {
            node: machine
            for machine in self.machines
            for node in (*self.hosts[machine.name], *self.switches[machine.name])
        }

    def machine_of(self, node: str) -> Machine:
        """Return the machine that holds a node. Raises KeyError for a node outside the plan."""
        return self._machine_of[node]

    @cached_property
    def crossings(self) -> list[Crossing]:
        """All links between machines, in the plan's order."""
        pairs = [(link, self.machine_of(link.lower.node), self.machine_of(link.upper.node)) for link in self.plan.links]
        return [
            Crossing(link, host_machine, switch_machine)
            for link, host_machine, switch_machine in pairs
            if host_machine is not switch_machine
        ]

    def describe(self, name: str) -> str:
        """Describe what a machine holds, as in `planes 2, 3 (8 switches), hosts h4 to h7`."""
        planes, hosts = self.planes[name], self.hosts[name]
        parts = []
        if planes:
            numbers = ", ".join(map(str, planes))
            parts.append(f"plane{'s' * (len(planes) > 1)} {numbers} ({len(self.switches[name])} switches)")
        if hosts:
            parts.append(f"host {hosts[0]}" if len(hosts) == 1 else f"hosts {hosts[0]} to {hosts[-1]}")
        return ", ".join(parts) or "nothing"


def place_nodes(plan: Plan, servers: Servers) -> Placement:
    """Planes as the file says, the others spread evenly, fewest first; hosts in even runs of neighbours.

    Raises ServersError for a plane that the plan does not have, or that no machine may hold.
    """
    machines = tuple(servers.machines)
    planes: dict[str, list[int]] = {machine.name: list(machine.planes or ()) for machine in machines}
    named_planes = {plane for machine_planes in planes.values() for plane in machine_planes}
    if unknown := sorted(plane for plane in named_planes if plane >= plan.planes):
        raise ServersError(f"plane {unknown[0]} of the machines' file: this fabric has planes 0 to {plan.planes - 1}")
    free_machines = [machine.name for machine in machines if machine.planes is None]
    free_planes = [plane for plane in range(plan.planes) if plane not in named_planes]
    if free_planes and not free_machines:
        raise ServersError(
            f"plane {free_planes[0]} is on no machine: add it to the `planes` of one, or leave those out"
        )
    # Neighbouring planes, and below neighbouring hosts, go to one machine in even runs.
    for index, plane in enumerate(free_planes):
        planes[free_machines[index * len(free_machines) // len(free_planes)]].append(plane)
    hosts: dict[str, list[str]] = {machine.name: [] for machine in machines}
    for index, host in enumerate(plan.hosts):
        hosts[machines[index * len(machines) // len(plan.hosts)].name].append(host.name)
    return Placement(
        plan,
        machines,
        {name: tuple(machine_hosts) for name, machine_hosts in hosts.items()},
        {
            name: tuple(switch.name for switch in plan.switches if switch.plane in machine_planes)
            for name, machine_planes in planes.items()
        },
        {name: tuple(sorted(machine_planes)) for name, machine_planes in planes.items()},
    )
