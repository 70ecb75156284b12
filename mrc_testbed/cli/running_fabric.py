"""A fabric of another process, as words that read see it, from its run folder."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from mrc_testbed.capture.live_fabric import LiveFabric
from mrc_testbed.ipc.controller_client import Northbound
from mrc_testbed.ipc.rpc import JsonlClient
from mrc_testbed.ipc.rundir import RunDir
from mrc_testbed.topologies.lab.traffic_control import TrafficControl, switch_ports
from mrc_testbed.topologies.lab.wires import PortLook, link_states, states_of
from mrc_testbed.topologies.plan import Link


class RunningFabric:
    """Part of mrc_testbed.topologies.lab.fabric.Fabric for words that only read."""

    def __init__(self, path: Path) -> None:
        self._fabric = LiveFabric(path)
        self.plan = self._fabric.plan
        self.run_dir = RunDir(path)
        self.controller = Northbound(path)
        self.mapper = JsonlClient(self.run_dir.mapper_socket, name="mapper")

    @cached_property
    def traffic(self) -> TrafficControl:
        """Traffic control in which any port may have been touched: whoever did is another process."""
        traffic = self._fabric.traffic
        traffic.touched_interfaces = set(switch_ports(self.plan))
        return traffic

    @property
    def nodes_off(self) -> list[str]:
        """Hosts without power; switches without it are known to the fabric's own process alone."""
        return self.run_dir.hosts_off

    def agent(self, host: str) -> JsonlClient:
        self.plan.host(host)
        self.run_dir.check_host_on(host)
        return JsonlClient(self.run_dir.agent_socket(host), name=host)

    def link_states(self) -> dict[str, PortLook]:
        """All links at a glance, each by the interface of its upper end."""
        return link_states(self.plan.links, states_of(self.run_dir.switchd_socket))

    def link_is_up(self, link: Link) -> bool:
        """Carrier at a switch's end, which needs both ends up."""
        return self._fabric.is_up(link.upper)
