"""The queue pairs of one agent: created here or requested by another agent, kept until closed.

A QP outlives its transfer, so that probes can bring its EVs back, and serves the next transfer to the same host
with what it has learned. Attributes travel over the management network (mrc-protocol §10.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.hosts.agent.denylist import Denylist
from mrc_testbed.hosts.agent.engine_defaults import baseline_config
from mrc_testbed.hosts.agent.path_health import PathHealth, ports_down, shown_state, uplink_of
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import TRANSPORTS
from mrc_testbed.hosts.engine.events import Completion, Event, EvProbeResult, WriteImmReceived
from mrc_testbed.hosts.engine.qp import EngineQpState, QpAttributes
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.ipc.rpc import JsonlError, JsonlTimeoutError, RpcClient
from mrc_testbed.topologies.plan import Host, Plan

if TYPE_CHECKING:
    from mrc_testbed.hosts.engine.endpoint import Endpoint
    from mrc_testbed.hosts.engine.qp import EngineQueuePair


MRC = TRANSPORTS[0]


class QpUseError(ValueError):
    """Use of a QP that does not exist or is in the wrong state; the message names the cure."""


@dataclass(slots=True)
class Connection:
    """One QP with the agent's state about it."""

    qp: EngineQueuePair
    peer: str
    pmtu_bytes: int = 0
    """Path MTU that both ends agreed on, bytes; 0 before connecting."""
    remote_qpn: int | None = None
    is_busy: bool = False
    """Whether a transfer or a test uses the QP."""
    is_reserved: bool = False
    """Whether the QP was created for one test, at this end or the peer's: no transfer takes it."""
    denied: frozenset[int] = frozenset()
    """EVs that the denylist has taken out."""
    on_completion: Callable[[Connection, Completion], None] | None = None
    on_imm: Callable[[int, int], None] | None = None
    """Callback with (local QPN, immediate) for each WriteIMM received."""

    def counters(self) -> dict[str, Any]:
        """Return the QP's counters by name.

        `sent`: data packets on the wire; `plane_packets` and `plane_bytes`: by plane.
        """
        counters = self.qp.counters.by_name()
        return {"sent": sum(counters["plane_packets"]), **counters}

    def to_json(self, uplink: Callable[[int], int | None], dead_planes: Collection[int]) -> dict[str, Any]:
        """Return the QP for `status`.

        `uplink(ev)`: T0 uplink of an EV, None where it names none. `dead_planes`: those with a port down.
        """
        evs = [
            {**ev, "uplink": uplink(ev["ev"]), "state": shown_state(ev["state"], ev["plane"] in dead_planes)}
            for ev in self.qp.ev_states()
        ]
        return {
            "qpn": self.qp.qpn,
            "remote_qpn": self.remote_qpn,
            "peer": self.peer,
            "transport": self.qp.transport,
            "state": self.qp.state.value,
            "pmtu_bytes": self.pmtu_bytes,
            "busy": self.is_busy or self.is_reserved,
            "outstanding": self.qp.outstanding(),
            "error": self.qp.error,
            "counters": self.counters(),
            "congestion": self.qp.cc_state(),
            "evs": evs,
        }


class Connections:
    """All QPs of one agent. `agent_socket` says where the agent of a host listens, `now` is the clock."""

    def __init__(
        self,
        plan: Plan,
        host: Host,
        endpoint: Endpoint,
        agent_socket: Callable[[str], Path],
        now: Callable[[], float],
    ) -> None:
        self.plan = plan
        self.host = host
        self._endpoint = endpoint
        self._agent_socket = agent_socket
        self._now = now
        self._by_qpn: dict[int, Connection] = {}
        self.denylist = Denylist(plan, host)
        """Call `apply_denylist` after a change."""
        self._health = PathHealth(plan, host)
        self._on_probe: dict[int, Callable[[EvProbeResult], None]] = {}
        """Receiver of the result of an EV probe, by request id."""

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._by_qpn.values())

    def get(self, qpn: int) -> Connection:
        """Return the connection of that QPN; raises QpUseError that lists those that exist."""
        try:
            return self._by_qpn[qpn]
        except KeyError:
            known = ", ".join(map(str, self._by_qpn)) or "none"
            raise QpUseError(f"no QP {qpn} (has: {known})") from None

    def peer_host(self, name: str) -> Host:
        """Return the host of that name; raises PlanError for an unknown one, QpUseError for ourselves."""
        host = self.plan.host(name)
        if host == self.host:
            raise QpUseError(f"{name} is this host: the fabric carries nothing from a host to itself")
        return host

    @staticmethod
    def transport(name: str) -> str:
        """Return `name`; raises QpUseError when no QP has that transport."""
        if name not in TRANSPORTS:
            raise QpUseError(f"no transport {name!r} (has: {', '.join(TRANSPORTS)})")
        return name

    def create(self, peer: str, transport: str = MRC, keys: dict[str, Any] | None = None) -> Connection:
        """Return a new QP in INIT for `peer`; `keys`: parameters of the RoCEv2 baseline to change.

        Raises PlanError, QpUseError, ConfigError.
        """
        self.peer_host(peer)
        self.transport(transport)
        settings = None if transport == MRC else baseline_config(self.plan)
        if settings is not None and keys:
            settings = RcConfig.from_json({**settings.to_json(), **keys})
        connection = Connection(self._endpoint.create_qp(transport=transport, settings=settings), peer)
        self._by_qpn[connection.qp.qpn] = connection
        return connection

    def connect(
        self,
        connection: Connection,
        remote: QpAttributes,
        *,
        config: Config | None = None,
        only_evs: list[int] | None = None,
    ) -> None:
        """Move a QP from INIT to RTS towards `remote`, over every EV of the plan or over `only_evs`.

        `config`: configuration of this QP alone. Raises QpUseError when the QP is not in INIT, or when `only_evs` names
        no EV of the plan.
        """
        if connection.qp.state is not EngineQpState.INIT:
            raise QpUseError(f"QP {connection.qp.qpn} is {connection.qp.state.value}: only one in init connects")
        peer = self.plan.host(connection.peer)
        evs = self.plan.ev_planes(self.host, peer, seed=connection.qp.qpn)
        if only_evs is not None:
            evs = tuple(pair for pair in evs if pair[0] in only_evs)
            if not evs:
                raise QpUseError(f"evs = {only_evs!r}: none of them leads to {peer.name}")
        # The baseline's path is fixed: a QP whose only path the denylist denies could send nothing.
        denied = self.denylist.denied(peer, evs) if connection.qp.transport == MRC else ()
        connection.qp.connect(connection.peer, remote, evs, self._now(), denied=denied, config=config)
        connection.denied = frozenset(denied)
        connection.remote_qpn = remote.qpn
        connection.pmtu_bytes = min(remote.pmtu_bytes, connection.qp.attributes().pmtu_bytes)

    def close(self, connection: Connection) -> None:
        """Destroy the local end of a QP. Raises QpUseError while a transfer or test uses it."""
        if connection.is_busy:
            raise QpUseError(f"QP {connection.qp.qpn} carries a transfer or test: wait for its end")
        del self._by_qpn[connection.qp.qpn]
        if connection.qp.transport == MRC:
            self._health.keep_counts(connection.peer, connection.qp.ev_states())
        self._endpoint.destroy_qp(connection.qp.qpn)

    def discard(self, connection: Connection) -> None:
        """End what uses a QP and destroy the local end, unless that has been done."""
        if self._by_qpn.get(connection.qp.qpn) is connection:
            connection.on_completion, connection.on_imm, connection.is_busy = None, None, False
            self.close(connection)

    async def close_remote(self, connection: Connection) -> str | None:
        """Destroy the other end of a QP closed here; return None, or why that failed."""
        if connection.remote_qpn is None:
            return None
        try:
            agent = await self.dial(connection.peer)
        except JsonlError as error:
            return str(error)
        try:
            await agent.request(
                "close_qp",
                qpn=connection.remote_qpn,
                here_only=True,
                peer=self.host.name,
                remote_qpn=connection.qp.qpn,
            )
            return None
        except JsonlError as error:
            return str(error)
        finally:
            agent.close()

    def on_event(self, event: Event) -> None:
        """Completions go to the transfer or test that uses the QP, results of EV probes to their requester."""
        if type(event) is Completion:
            connection = self._by_qpn.get(event.qpn)
            if connection is not None and connection.on_completion is not None:
                connection.on_completion(connection, event)
        elif type(event) is WriteImmReceived:
            connection = self._by_qpn.get(event.qpn)
            if connection is not None and connection.on_imm is not None:
                connection.on_imm(event.qpn, event.imm)
        elif type(event) is EvProbeResult:
            self._health.on_probe_result(event)
            waiting = self._on_probe.pop(event.request_id, None)
            if waiting is not None:
                waiting(event)

    # ---- EVs ----------------------------------------------------------------------------------------------

    def probe(
        self, peer: Host, ev: int, plane: int, timeout_s: float, on_result: Callable[[EvProbeResult], None]
    ) -> int:
        """Send an EV probe, which needs no QP (§6.10); return its number for `forget_probe`."""
        number = self._endpoint.probe_ev(peer.name, ev, plane, now=self._now(), timeout_s=timeout_s)
        self._on_probe[number] = on_result
        return number

    def forget_probe(self, number: int) -> None:
        """Drop the receiver of a probe's result."""
        self._on_probe.pop(number, None)

    def uplink(self, connection: Connection) -> Callable[[int], int | None]:
        """Return the function from an EV of that QP to its T0 uplink (path_health.uplink_of)."""
        peer = self.plan.host(connection.peer)
        return lambda ev: uplink_of(self.plan, self.host, peer, ev)

    def apply_denylist(self) -> int:
        """Deny and allow EVs of all QPs so that they match the list; return how many changed."""
        change_count, now = 0, self._now()
        for connection in self:
            if connection.qp.transport != MRC or connection.qp.state is not EngineQpState.RTS:
                continue
            pairs = [(ev["ev"], ev["plane"]) for ev in connection.qp.ev_states()]
            denied = frozenset(self.denylist.denied(self.plan.host(connection.peer), pairs))
            for ev in denied ^ connection.denied:
                connection.qp.deny_ev(ev, ev in denied, now)
                change_count += 1
            connection.denied = denied
        return change_count

    def denied_evs(self) -> dict[str, list[int]]:
        """Return the EVs that the denylist has taken out of existing QPs, by peer."""
        out: dict[str, set[int]] = {}
        for connection in self:
            if connection.denied:
                out.setdefault(connection.peer, set()).update(connection.denied)
        return {peer: sorted(evs) for peer, evs in out.items()}

    def _path_judging(self) -> list[Connection]:
        """Return the connected QPs that judge their paths, which baseline QPs do not."""
        return [
            connection
            for connection in self
            if connection.qp.transport == MRC and connection.qp.state is not EngineQpState.INIT
        ]

    def health(self, peer: str | None) -> list[dict[str, Any]]:
        """Return EV health by peer (hosts/agent/path_health.py).

        Raises PlanError or QpUseError for an unknown `peer` or this host itself.
        """
        if peer is not None:
            names = [self.peer_host(peer).name]
        else:
            peers = self._health.peers | {connection.peer for connection in self._path_judging()}
            names = [host.name for host in self.plan.hosts if host.name in peers]
        out = []
        for name in names:
            qps = [connection.qp.ev_states() for connection in self._path_judging() if connection.peer == name]
            out.append(self._health.report(self.plan.host(name), qps, self.denylist.denied, self._ports_down(name)))
        return out

    def _ports_down(self, peer: str) -> dict[int, list[str]]:
        """NIC ports that are down here or, as far as known, at the peer, by plane."""
        endpoint = self._endpoint
        return ports_down(self.plan, self.host, self.plan.host(peer), endpoint.local_ports, endpoint.peer_ports(peer))

    def to_json(self) -> list[dict[str, Any]]:
        """Return all QPs for `status`."""
        return [
            connection.to_json(self.uplink(connection), self._ports_down(connection.peer).keys()) for connection in self
        ]

    # ---- with the other agent -----------------------------------------------------------------------------

    async def dial(self, peer: str) -> RpcClient:
        """Return a connection to the agent of `peer`. Raises JsonlError without an answer."""
        path = self._agent_socket(peer)
        try:
            return await RpcClient.connect(path, name=peer, peer="its agent", hint=f" (did it die? see log/{peer}.log)")
        except OSError as error:
            raise JsonlError(f"{peer}: no agent answers on {path}: {error.strerror or error}") from error

    async def open(self, agent: RpcClient, pmtu_bytes: int, fresh: bool, transport: str = MRC) -> Connection:
        """Return a connected, idle QP to the host of `agent`, a new one if need be.

        An idle QP is reused unless `fresh` or its other end is gone. Raises JsonlError when the other agent refuses.
        """
        candidates = () if fresh else [c for c in self if self._is_free(c, agent.name, pmtu_bytes, transport)]
        for connection in candidates:
            connection.is_busy = True  # reserved while the request runs
            try:
                state = await agent.request("qp_state", qpn=connection.remote_qpn)
            except JsonlTimeoutError:
                raise  # who is asked for a new one does not answer either
            except JsonlError:
                state = {}  # the other agent was restarted: its QP went with it
            finally:
                connection.is_busy = False
            if state.get("state") == EngineQpState.RTS.value and state.get("remote_qpn") == connection.qp.qpn:
                return connection
        return await self._open_new(agent, pmtu_bytes, transport)

    async def open_reserved(self, agent: RpcClient, pmtu_bytes: int, transport: str) -> Connection:
        """Return a connected QP for one test; its other end goes when `agent` is closed. Raises JsonlError."""
        return await self._open_new(agent, pmtu_bytes, transport, reserved=True)

    async def _open_new(
        self, agent: RpcClient, pmtu_bytes: int, transport: str = MRC, reserved: bool = False
    ) -> Connection:
        answer = await agent.request(
            "create_qp", peer=self.host.name, transport=transport, owned=reserved, until_connected=True
        )
        remote = QpAttributes.from_json(answer.get("attributes"))
        connection = self.create(agent.name, transport)
        connection.is_reserved = reserved
        try:
            local_attributes = replace(connection.qp.attributes(), pmtu_bytes=pmtu_bytes)
            await agent.request("connect_qp", qpn=remote.qpn, remote=local_attributes.to_json())
            self.connect(connection, replace(remote, pmtu_bytes=min(pmtu_bytes, remote.pmtu_bytes)))
        except BaseException:
            self.close(connection)
            agent.notify("close_qp", qpn=remote.qpn, here_only=True)
            raise
        return connection

    @staticmethod
    def _is_free(connection: Connection, peer: str, pmtu_bytes: int, transport: str) -> bool:
        return (
            connection.peer == peer
            and connection.qp.transport == transport
            and not connection.is_busy
            and not connection.is_reserved
            and connection.qp.state is EngineQpState.RTS
            and connection.pmtu_bytes == pmtu_bytes
            and connection.qp.outstanding() == 0
        )
