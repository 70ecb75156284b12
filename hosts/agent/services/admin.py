"""RPC service for the agent itself: identity, status, port rates, shutdown.

hello      -> version, host, nic, pid, ports, config        nic_rate  plane, rate_bps -> rates
status     -> counters of ports, regions, QPs, transfers    shutdown
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from typing import Annotated

from msgspec import Meta

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.ports import HostPorts
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.traffic.file_transfer import Transfer
from mrc_testbed.ipc.requests import Number, Request, RequestError, check_range
from mrc_testbed.ipc.rpc import Message, RpcCall
from mrc_testbed.ipc.rpc_table import rpc


class HelloRequest(Request, tag="hello"):
    """Identity of the agent."""


class AgentStatusRequest(Request, tag="status"):
    """Status of the agent."""


class NicRateRequest(Request, tag="nic_rate"):
    """Pace the port of `plane` (None: all) at `rate_bps` (0: no limit; None: unchanged)."""

    plane: Number | None = None
    rate_bps: Annotated[float, Meta(ge=0, le=1e13)] | None = None


class AgentShutdownRequest(Request, tag="shutdown"):
    """End the agent."""


class AdminService:
    """RPC service for the agent itself. `transfers`: those the agent remembers; `stop` ends the agent.

    `ip_state` returns the state of IP over the fabric, None without it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: Config,
        ports: HostPorts,
        connections: Connections,
        regions: Regions,
        *,
        transfers: Iterable[Transfer],
        stop: Callable[[], None],
        ip_state: Callable[[], Message | None],
    ) -> None:
        self._endpoint, self._config, self._ports = endpoint, config, ports
        self._connections, self._regions, self._transfers = connections, regions, transfers
        self._stop, self._ip_state = stop, ip_state
        self._host = connections.host.name
        self._started_at = time.monotonic()

    @rpc(HelloRequest)
    def hello(self, _request: HelloRequest, _call: RpcCall) -> Message:
        """Answer version, host, NIC, ports and configuration."""
        from importlib.metadata import PackageNotFoundError, version  # slow to import, and nothing starts with it

        try:
            package_version = version("mrc-testbed")
        except PackageNotFoundError:
            package_version = "not installed"
        return {
            "version": package_version,
            "host": self._host,
            "nic": self._ports.nic.kind,
            "pid": os.getpid(),
            "ports": self._ports.to_json(),
            "config": self._config.to_json(),
        }

    @rpc(AgentStatusRequest)
    def status(self, _request: AgentStatusRequest, _call: RpcCall) -> Message:
        """Answer ports with counters, CPU seconds and memory of this process, regions, QPs and transfers.

        `unclaimed`: packets for QPs that do not exist here or belong to another host; `ip`: IP over the
        fabric, or null.
        """
        ports = self._ports.status_json()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now = time.monotonic()
        return {
            "host": self._host,
            "nic": self._ports.nic.kind,
            "t": now,
            "up_s": now - self._started_at,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "cpu_user_s": usage.ru_utime,
            "cpu_system_s": usage.ru_stime,
            "max_rss_kib": usage.ru_maxrss,
            "ports": ports,
            "unclaimed": self._endpoint.unclaimed_packets,
            "regions": [region.to_json() for region in self._regions],
            "qps": self._connections.to_json(),
            "transfers": [transfer.to_json() for transfer in self._transfers],
            "ip": self._ip_state(),
        }

    @rpc(NicRateRequest)
    def nic_rate(self, request: NicRateRequest, _call: RpcCall) -> Message:
        """Pace the port of `plane`, or all, at `rate_bps` (0: no limit); answer the rates.

        Without `rate_bps` nothing changes. The other direction of a link is the switch's. Congestion control keeps its
        configured rate.
        """
        ports = self._ports
        plane, rate = request.plane, request.rate_bps
        if plane is not None:
            check_range("plane", plane, 0, self._connections.plan.planes - 1)
        if rate is not None:
            if 0 < rate < 1e3:
                raise RequestError(f"rate_bps = {rate:g}: at least 1000, or 0 for no limit")
            for port in ports.nic.ports if plane is None else (plane,):
                ports.set_rate(port, rate or None)
        return {"rates": {str(port): ports.rates.get(port) for port in ports.nic.ports}}

    @rpc(AgentShutdownRequest)
    def shutdown(self, _request: AgentShutdownRequest, _call: RpcCall) -> Message:
        """End the agent."""
        self._stop()
        return {}
