"""What can be asked of an agent over its socket, one method per op. Requests are hostile: every field is checked.

A method gets the request and the connection it came on; it returns the fields of the answer, or None when the
answer comes later, or raises one of REFUSALS, whose text becomes the answer's error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hosts.agent.connections import MRC, QpUseError
from hosts.agent.denylist import DenylistEntry
from hosts.agent.peer_agent import ManagementError
from hosts.agent.regions import MAX_REGION_BYTES, RegionError
from hosts.agent.requests import Fields, RequestError, take
from hosts.agent.services.measurement import MeasurementOps, TestFailed, pmtu_of
from hosts.agent.services.traffic import TrafficOps
from hosts.agent.session import ClientSessions
from hosts.engine.config import ConfigError
from hosts.engine.errors import LocalError, PeerError
from hosts.engine.qp import QpAttributes
from hosts.traffic.file_transfer import Request, Sender, Transfer, chunk_for
from ipc.rpc import JsonlError
from ipc.rpc import ServerConnection as Client
from topologies.plan import PlanError

if TYPE_CHECKING:
    from hosts.agent.agent import Agent

REFUSALS = (
    RequestError, RegionError, QpUseError, LocalError, PeerError, PlanError, ManagementError, TestFailed,
    ConfigError, OSError,
)  # fmt: skip
KEPT_TRANSFERS = 1000
"""Ended transfers an agent remembers for `wait` and `status`."""


class Operations(MeasurementOps, TrafficOps):
    """The ops of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._clients = ClientSessions(agent.connections, agent.regions)
        self._work: dict[int, Any] = {}
        self._transfers: dict[int, Transfer] = {}
        self._last_transfer = 0
        self._ops: dict[str, Callable[[Fields, Client], Fields | None]] = {
            name.removeprefix("op_"): getattr(self, name) for name in dir(self) if name.startswith("op_")
        }

    def handle(self, request: Fields, client: Client) -> Fields | None:
        """SelectorServer's handler. Raises JsonlError to refuse."""
        operation = self._ops.get(request["op"])
        if operation is None:
            raise JsonlError(f"no op {request['op']!r} (has: {', '.join((*sorted(self._ops), 'watch'))})")
        try:
            return operation(request, client)
        except REFUSALS as error:
            raise JsonlError(str(error)) from error

    def _later(self, coroutine: Coroutine[Any, None, Fields], request: Fields, client: Client) -> None:
        """Answer `request` when `coroutine` has returned its fields."""

        def on_done(task: Any) -> None:
            if task.error is None:
                client.answer(request, **task.value)
            else:
                client.refuse(request, self._refusal(request, task.error))

        self._agent.tasks.spawn(coroutine, on_done)

    def _refusal(self, request: Fields, error: Exception) -> str:
        """The words for an error that ended an op."""
        return str(error) if isinstance(error, REFUSALS) else self._agent.report_bug(f"op {request['op']}", error)

    # ---- the agent ----------------------------------------------------------------------------------------

    def op_hello(self, request: Fields, client: Client) -> Fields:
        agent = self._agent
        try:
            ours = version("mrc-testbed")
        except PackageNotFoundError:
            ours = "not installed"
        return {
            "version": ours,
            "host": agent.host.name,
            "nic": agent.nic.kind,
            "pid": os.getpid(),
            "ports": agent.ports_json(),
            "config": agent.config.to_json(),
        }

    def op_status(self, request: Fields, client: Client) -> Fields:
        agent = self._agent
        return {
            **agent.status_json(),
            "regions": [region.to_json() for region in agent.regions],
            "qps": [one.to_json(agent.connections.uplink(one)) for one in agent.connections],
            "transfers": [transfer.to_json() for transfer in self._transfers.values()],
        }

    def op_health(self, request: Fields, client: Client) -> Fields:
        """What is known of each path to `peer`, or to all peers: hosts/agent/path_health.py."""
        agent = self._agent
        return {
            "t": agent.tasks.clock(),
            "host": agent.host.name,
            "mode": agent.plan.mode.value,
            "peers": agent.connections.health(take(request, "peer", str, None)),
        }

    def op_nic_rate(self, request: Fields, client: Client) -> Fields:
        """Pace our ports at `rate_bps` (0: no limit), the one of `plane` or all; without a rate, tell what they have.

        The other direction of a link is the switch's. Congestion control keeps the rate it was configured with.
        """
        agent = self._agent
        plane = take(request, "plane", int, None, high=agent.plan.planes - 1)
        rate = take(request, "rate_bps", float, None, high=1e13)
        if rate is not None:
            if 0 < rate < 1e3:
                raise RequestError(f"rate_bps = {rate:g}: at least 1000, or 0 for no limit")
            for one in agent.nic.ports if plane is None else (plane,):
                agent.set_nic_rate(one, rate or None)
        return {"rates": {str(one): agent.nic_rates().get(one) for one in agent.nic.ports}}

    def op_denylist(self, request: Fields, client: Client) -> Fields:
        """Set the whole list to `entries` (hosts/agent/denylist.py), or read it when none are given.

        Holds for all QPs of this agent, those made later too. Answers the list, the EVs it has taken out by peer, and
        how many EVs of QPs it changed. An EV whose last entry goes is GOOD again.
        """
        return self._denylist(request, self._agent.connections.denylist.set)

    def op_deny(self, request: Fields, client: Client) -> Fields:
        """Add `entries` to the denylist."""
        return self._denylist(request, self._agent.connections.denylist.add, needed=True)

    def op_allow(self, request: Fields, client: Client) -> Fields:
        """Take `entries` off the denylist; those that are not on it are no error."""
        return self._denylist(request, self._agent.connections.denylist.remove, needed=True)

    def _denylist(self, request: Fields, change: Callable[[list[DenylistEntry]], None], needed: bool = False) -> Fields:
        connections = self._agent.connections
        given = take(request, "entries", list) if needed else take(request, "entries", list, None)
        changed = 0
        if given is not None:
            change(connections.denylist.parse(given))
            changed = connections.apply_denylist()
        entries = [entry.to_json() for entry in connections.denylist]
        return {"entries": entries, "denied": connections.denied_evs(), "changed": changed}

    def op_shutdown(self, request: Fields, client: Client) -> Fields:
        self._agent.stop()
        return {}

    # ---- memory -------------------------------------------------------------------------------------------

    def op_register(self, request: Fields, client: Client) -> Fields:
        """Zeroed memory; with `owned` it goes when this client does."""
        length = take(request, "length", int, low=1, high=MAX_REGION_BYTES)
        owned = take(request, "owned", bool, False)
        region = self._agent.regions.add_memory(length)
        if owned:
            self._clients.of(client).regions.append(region)
        return region.to_json()

    def op_register_file(self, request: Fields, client: Client) -> Fields:
        path = Path(take(request, "path", str))
        length = take(request, "length", int, None, low=1, high=MAX_REGION_BYTES)
        create = take(request, "create", bool, False)
        return self._agent.regions.add_file(path, length, create).to_json()

    def op_deregister(self, request: Fields, client: Client) -> Fields:
        self._agent.regions.remove(self._agent.regions.get(take(request, "region", int)))
        return {}

    def op_sha256(self, request: Fields, client: Client) -> None:
        region = self._agent.regions.get(take(request, "region", int))

        async def hash_it() -> Fields:
            return {"region": region.number, "sha256": await self._agent.regions.sha256(region)}

        self._later(hash_it(), request, client)

    def op_receive_file(self, request: Fields, client: Client) -> Fields:
        """Room for a file at an absolute `path`, or at one inside this host's data folder of the run folder."""
        asked = Path(take(request, "path", str))
        path = self._agent.data_dir / asked
        if not asked.is_absolute() and not path.resolve().is_relative_to(self._agent.data_dir.resolve()):
            raise RequestError(f"path = {str(asked)!r} leaves {self._agent.data_dir}: give an absolute path for that")
        length = take(request, "length", int, high=MAX_REGION_BYTES)
        return self._agent.regions.receive_file(path, length).to_json()

    def op_finish_file(self, request: Fields, client: Client) -> None:
        """Hash a received file; it gets its name when `sha256` is right, else it is removed. Answers our hash."""
        regions = self._agent.regions
        region = regions.get(take(request, "region", int))
        expected = take(request, "sha256", str)

        async def finish() -> Fields:
            found = await regions.sha256(region)
            if found != expected:
                regions.remove(region)
                return {"sha256": found, "path": None}
            return {"sha256": found, "path": str(regions.commit(region))}

        self._later(finish(), request, client)

    # ---- queue pairs --------------------------------------------------------------------------------------

    def op_create_qp(self, request: Fields, client: Client) -> Fields:
        """A QP in INIT; with `owned` it goes when this client does, and no transfer takes it."""
        peer, transport = take(request, "peer", str), take(request, "transport", str, MRC)
        owned = take(request, "owned", bool, False)
        connection = self._agent.connections.create(peer, transport)
        if owned:
            connection.reserved = True
            self._clients.of(client).connections[connection.qp.qpn] = connection
        return {"qpn": connection.qp.qpn, "attributes": connection.qp.attributes().to_json()}

    def op_connect_qp(self, request: Fields, client: Client) -> Fields:
        connection = self._agent.connections.get(take(request, "qpn", int))
        remote = QpAttributes.from_json(take(request, "remote", dict))
        self._agent.connections.connect(connection, remote)
        return {"state": connection.qp.state.value}

    def op_qp_state(self, request: Fields, client: Client) -> Fields:
        connection = self._agent.connections.get(take(request, "qpn", int))
        return {
            "state": connection.qp.state.value,
            "peer": connection.peer,
            "remote_qpn": connection.remote_qpn,
            "outstanding": connection.qp.outstanding(),
        }

    def op_close_qp(self, request: Fields, client: Client) -> Fields | None:
        """Close both ends; `remote_error` says why the other end could not be. With `here_only` this end alone,
        and only if it is connected to `remote_qpn` of `peer` when those are given."""
        connections = self._agent.connections
        connection = connections.get(take(request, "qpn", int))
        peer = take(request, "peer", str, connection.peer)
        remote_qpn = take(request, "remote_qpn", int, connection.remote_qpn)
        if (peer, remote_qpn) != (connection.peer, connection.remote_qpn):
            raise QpUseError(f"QP {connection.qp.qpn} is not connected to QP {remote_qpn} of {peer}")
        connections.close(connection)
        if take(request, "here_only", bool, False):
            return {"remote_error": None}

        async def close_other() -> Fields:
            return {"remote_error": await connections.close_remote(connection)}

        self._later(close_other(), request, client)
        return None

    def op_post_write(self, request: Fields, client: Client) -> Fields:
        """One write; what became of it is told by a `completion` event with this wr_id."""
        agent = self._agent
        connection = agent.connections.get(take(request, "qpn", int))
        region = agent.regions.get(take(request, "region", int))
        offset = take(request, "offset", int, 0, high=region.length)
        length = take(request, "length", int, region.length - offset)
        if offset + length > region.length:
            where = f"region {region.number} ({region.length} bytes)"
            raise RequestError(f"{length} bytes at offset {offset} leave {where}")
        wr_id = connection.qp.post_write(
            region.memory.view[offset : offset + length],
            take(request, "remote_va", int, high=(1 << 64) - 1),
            take(request, "rkey", int, high=(1 << 32) - 1),
            now=agent.tasks.clock(),
        )
        return {"wr_id": wr_id}

    # ---- transfers ----------------------------------------------------------------------------------------

    def op_send_file(self, request: Fields, client: Client) -> Fields:
        """Begin to send a file; answers at once, `wait` and the events `transfer` and `progress` tell the rest."""
        agent = self._agent
        path = Path(take(request, "path", str))
        peer = agent.connections.peer_host(take(request, "peer", str)).name
        pmtu = pmtu_of(request, agent)
        rate_bps = take(request, "rate_bps", float, None, low=1, high=1e12)
        chunk = take(request, "chunk_bytes", int, chunk_for(rate_bps, pmtu), low=1, high=1 << 30)
        length = _length_of(path)
        dest_path, fresh = take(request, "dest_path", str, None), take(request, "fresh", bool, False)
        transport = agent.connections.transport(take(request, "transport", str, MRC))
        asked = Request(path, length, peer, dest_path, rate_bps, chunk, pmtu, fresh, transport)
        return self._start(asked).to_json()

    def _start(self, asked: Request) -> Transfer:
        agent = self._agent
        self._last_transfer += 1
        transfer = Transfer(self._last_transfer, asked)
        ended = [number for number, one in self._transfers.items() if one.over]
        for number in ended[: max(0, len(self._transfers) - KEPT_TRANSFERS)]:
            del self._transfers[number]
        self._transfers[transfer.number] = transfer
        sender = Sender(transfer, agent.connections, agent.tasks, agent.publish)

        def on_done(task: Any) -> None:
            if task.error is not None:
                transfer.finish("failed", agent.report_bug(f"transfer {transfer.number}", task.error))

        agent.tasks.spawn(sender.run(), on_done)
        return transfer

    def op_wait(self, request: Fields, client: Client) -> None:
        """Answers when the transfer has ended: its fields, or a refusal with its error."""
        number = take(request, "transfer", int)
        transfer = self._transfers.get(number)
        if transfer is None:
            known = ", ".join(map(str, list(self._transfers)[-8:])) or "none"
            raise RequestError(f"no transfer {number} (has: {known})")

        async def ended() -> Fields:
            await transfer.wait()
            if transfer.error is not None:
                raise RequestError(f"transfer {number} to {transfer.request.peer} failed: {transfer.error}")
            return transfer.to_json()

        self._later(ended(), request, client)


def _length_of(path: Path) -> int:
    """Bytes of a regular file. Raises OSError or RequestError with its name."""
    try:
        with path.open("rb") as file:
            if not path.is_file():
                raise RequestError(f"{path}: is no regular file")
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from error
