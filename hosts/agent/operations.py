"""The operations that an agent serves: each service with what it uses, and nothing of the agent around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hosts.agent.connections import Connections, QpUseError
from hosts.agent.peer_agent import ManagementError
from hosts.agent.ports import HostPorts
from hosts.agent.regions import RegionError, Regions
from hosts.agent.requests import RequestError
from hosts.agent.rpc_server import RpcServer
from hosts.agent.services.admin import AdminService
from hosts.agent.services.local_end import LocalEnd
from hosts.agent.services.measurement import MeasurementService, TestFailed
from hosts.agent.services.memory import MemoryService
from hosts.agent.services.paths import PathService
from hosts.agent.services.qp import QpService
from hosts.agent.services.traffic import TrafficService
from hosts.agent.services.transfers import TransferService
from hosts.agent.session import ClientSessions
from hosts.agent.tasks import Tasks
from hosts.engine.config import Config, ConfigError
from hosts.engine.endpoint import Endpoint
from hosts.engine.errors import LocalError, PeerError
from topologies.plan import PlanError

REFUSALS = (
    RequestError, RegionError, QpUseError, LocalError, PeerError, PlanError, ManagementError, TestFailed,
    ConfigError, OSError,
)  # fmt: skip
"""Errors of an operation whose text is for the client."""


def rpc_server(
    endpoint: Endpoint,
    config: Config,
    ports: HostPorts,
    connections: Connections,
    regions: Regions,
    tasks: Tasks,
    *,
    data_dir: Path,
    publish: Callable[..., None],
    stop: Callable[[], None],
) -> RpcServer:
    """All services of one agent. `publish` sends an event to every watcher, `stop` ends the agent."""
    server = RpcServer(tasks, refusals=REFUSALS, host=connections.host.name)
    sessions = ClientSessions(connections, regions)
    local = LocalEnd(connections, regions, tasks, config.pmtu_bytes, lambda: ports.rates, ports.is_up)
    transfers = TransferService(connections, tasks, config.pmtu_bytes, publish=publish, report_bug=server.report_bug)
    for service in (
        AdminService(endpoint, config, ports, connections, regions, transfers=transfers, stop=stop),
        PathService(connections, tasks.clock),
        MemoryService(regions, sessions, data_dir),
        QpService(connections, regions, sessions, tasks.clock),
        TrafficService(connections, regions, sessions, tasks, config),
        MeasurementService(local, sessions, server.error_text),
        transfers,
    ):
        server.register(service)
    return server
