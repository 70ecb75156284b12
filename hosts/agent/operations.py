"""The operations that an agent serves: each service with what it uses, and nothing of the agent around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hosts.agent.connections import Connections, QpUseError
from hosts.agent.ports import HostPorts
from hosts.agent.regions import RegionError, Regions
from hosts.agent.services.admin import AdminService
from hosts.agent.services.local_end import LocalEnd
from hosts.agent.services.measurement import MeasurementService, TestFailedError
from hosts.agent.services.memory import MemoryService
from hosts.agent.services.paths import PathService
from hosts.agent.services.qp import QpService
from hosts.agent.services.traffic import TrafficService
from hosts.agent.services.transfers import TransferService
from hosts.agent.session import ClientSessions
from hosts.engine.config import Config, ConfigError
from hosts.engine.endpoint import Endpoint
from hosts.engine.errors import LocalError, PeerError
from hosts.traffic.file_transfer import Publish
from ipc.rpc_table import RpcTable
from topologies.plan import PlanError

REFUSALS = (RegionError, QpUseError, LocalError, PeerError, PlanError, TestFailedError, ConfigError, OSError)
"""Errors of an operation whose text is for the client."""


def rpc_table(
    endpoint: Endpoint,
    config: Config,
    ports: HostPorts,
    connections: Connections,
    regions: Regions,
    loop: asyncio.AbstractEventLoop,
    *,
    data_dir: Path,
    publish: Publish,
    stop: Callable[[], None],
) -> RpcTable:
    """All services of one agent. `publish` sends an event to every watcher, `stop` ends the agent."""
    table = RpcTable(refusals=REFUSALS, log_file=f"log/{connections.host.name}.log")
    sessions = ClientSessions(connections, regions)
    local = LocalEnd(connections, regions, config.pmtu_bytes, lambda: ports.rates, ports.is_up)
    transfers = TransferService(connections, config.pmtu_bytes, publish=publish, report_bug=table.report_bug)
    for service in (
        AdminService(endpoint, config, ports, connections, regions, transfers=transfers, stop=stop),
        PathService(connections, loop.time),
        MemoryService(regions, sessions, data_dir),
        QpService(connections, regions, sessions, loop.time),
        TrafficService(connections, regions, sessions, loop, config),
        MeasurementService(local, sessions, table.error_text),
        transfers,
    ):
        table.register(service)
    return table
