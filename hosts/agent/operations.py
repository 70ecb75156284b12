"""Operations that an agent serves: builds each service with its dependencies, apart from the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from mrc_testbed.hosts.agent.connections import Connections, QpUseError
from mrc_testbed.hosts.agent.ports import HostPorts
from mrc_testbed.hosts.agent.regions import RegionError, Regions
from mrc_testbed.hosts.agent.services.admin import AdminService
from mrc_testbed.hosts.agent.services.local_end import LocalEnd
from mrc_testbed.hosts.agent.services.measurement import MeasurementService, TestFailedError
from mrc_testbed.hosts.agent.services.memory import MemoryService
from mrc_testbed.hosts.agent.services.paths import PathService
from mrc_testbed.hosts.agent.services.qp import QpService
from mrc_testbed.hosts.agent.services.traffic import TrafficService
from mrc_testbed.hosts.agent.services.transfers import TransferService
from mrc_testbed.hosts.agent.session import ClientSessions
from mrc_testbed.hosts.engine.config import Config, ConfigError
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError, PeerError
from mrc_testbed.hosts.traffic.file_transfer import Publish
from mrc_testbed.ipc.framing import Message
from mrc_testbed.ipc.rpc_table import RpcTable
from mrc_testbed.topologies.plan import PlanError

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
    ip_state: Callable[[], Message | None] = lambda: None,
) -> RpcTable:
    """Return the table of all services of one agent.

    `publish` sends an event to every watcher, `stop` ends the agent, and `ip_state`
    returns the state of IP over the fabric.
    """
    table = RpcTable(refusals=REFUSALS, log_file=f"log/{connections.host.name}.log")
    sessions = ClientSessions(connections, regions)
    local = LocalEnd(connections, regions, config.qp.pmtu_bytes, lambda: ports.rates, ports.is_up)
    transfers = TransferService(connections, config.qp.pmtu_bytes, publish=publish, report_bug=table.report_bug)
    for service in (
        AdminService(endpoint, config, ports, connections, regions, transfers=transfers, stop=stop, ip_state=ip_state),
        PathService(connections, loop.time),
        MemoryService(regions, sessions, data_dir),
        QpService(connections, regions, sessions, loop.time),
        TrafficService(connections, regions, sessions, loop, config),
        MeasurementService(local, sessions, table.error_text),
        transfers,
    ):
        table.register(service)
    return table
