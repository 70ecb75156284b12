"""Python API in virtual time: the engines of all hosts on the simulator's fabric, with faults.

Hosts tell of transfers and EVs in the words of live agents (hosts/agent/event_json.py, hosts/traffic/file_transfer.py).
There is no controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal

from mrc_testbed.api.backend import EventListener, TransferOrder
from mrc_testbed.api.records import NamedFault, PacketWay, PortCount, VirtualTimeError
from mrc_testbed.faults import FaultTarget
from mrc_testbed.hosts.agent.denylist import Denylist
from mrc_testbed.hosts.agent.engine_defaults import baseline_config
from mrc_testbed.hosts.agent.event_json import event_json, event_name
from mrc_testbed.hosts.agent.path_health import PathHealth, ports_down
from mrc_testbed.hosts.engine.events import Completion, EvChanged, Event, PlaneChanged, QpError, Status
from mrc_testbed.hosts.engine.qp import EngineQpState, EngineQueuePair
from mrc_testbed.hosts.traffic.file_transfer import MAX_OUTSTANDING, PROGRESS_S, Pacer
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.planned_fabric import fabric_of
from mrc_testbed.topologies.plan import Plan

SETTLE_S, SETTLE_RTTS = 0.05, 5
"""Virtual time until the fabric counts as up: seconds, and base RTTs; the shorter applies.

Probes of the base RTT are answered by then.
"""
CHECK_S = 0.1
"""Between two looks at a condition, beside those after events."""
LIMIT_S = 3600.0
"""Longest wait without a limit."""


class VirtualBackend:
    """See FabricBackend."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.fabric: VirtualFabric = fabric_of(plan, seed=seed, keep_events=False)
        self._transfers: dict[tuple[str, int], _VirtualTransfer] = {}
        self._numbers = count(1)
        self._health = {host.name: PathHealth(plan, host) for host in plan.hosts}
        self._denylists = {host.name: Denylist(plan, host) for host in plan.hosts}
        self._report: EventListener = lambda _host, _event: None

    @property
    def faults(self) -> FaultTarget:
        return self.fabric.faults

    @property
    def lock(self) -> AbstractContextManager[Any]:
        return nullcontext()

    # ---- life and time ----------------------------------------------------------------------------------

    def now(self) -> float:
        return self.fabric.now

    def open(self) -> None:
        self.fabric.run_until(min(SETTLE_S, SETTLE_RTTS * self.plan.base_rtt_s()))

    def listen(self, listener: EventListener) -> None:
        self._report = listener
        for name, host in self.fabric.hosts.items():
            host.listen(partial(self._on_event, name))
        self.fabric.sample(PROGRESS_S, self._on_tick)

    def close(self) -> None:
        self._transfers.clear()

    def wait(self, condition: Callable[[], bool], limit_s: float | None) -> bool:
        end = self.fabric.now + (LIMIT_S if limit_s is None else limit_s)
        while self.fabric.now < end:
            tick = min(self.fabric.now + CHECK_S, end)
            if self.fabric.run_until(condition, limit_s=tick - self.fabric.now):
                return True
            self.fabric.run_until(tick)
        return condition()

    def _on_event(self, host: str, event: Event) -> None:
        if isinstance(event, EvChanged | PlaneChanged | QpError):
            fields = event_json(event, self.plan.mode.ev_is_path)
            self._report(host, {"event": event_name(event), "t": event.at, **fields})

    def _on_tick(self, _now: float) -> None:
        for transfer in self._transfers.values():
            if not transfer.ended:
                transfer.report_progress()

    # ---- transfers --------------------------------------------------------------------------------------

    def send(self, order: TransferOrder) -> int:
        number = next(self._numbers)
        match order.content:
            case Path() as path:
                data = path.read_bytes()
            case bytes() as data:
                pass
            case size:
                data = Random(f"{self.seed}/transfer/{number}").randbytes(size)
        source_host, target = self.plan.host(order.source), self.plan.host(order.destination)
        denied = self._denylists[source_host.name].denied(target, self.plan.ev_planes(source_host, target))
        transfer = _VirtualTransfer(self.fabric, order, number, data, list(denied), partial(self._report, order.source))
        self._transfers[order.source, number] = transfer
        self._apply_denylist(transfer)
        return number

    def read(self, source: str, number: int) -> bytes:
        return bytes(self._transfers[source, number].memory)

    def forget(self, source: str, number: int, qpn: int | None) -> None:  # noqa: ARG002 - it knows its QP
        self._transfers.pop((source, number)).close(self._health[source])

    def change_denylist(self, op: Literal["deny", "allow", "clear"], entry: dict[str, str]) -> None:
        for denylist in self._denylists.values():
            match op:
                case "deny":
                    denylist.add(denylist.parse([entry]))
                case "allow":
                    denylist.remove(denylist.parse([entry]))
                case "clear":
                    denylist.set([])
        for transfer in self._transfers.values():
            self._apply_denylist(transfer)

    def _apply_denylist(self, transfer: _VirtualTransfer) -> None:
        """Deny and allow EVs of a transfer's QPs so that they match the lists of its hosts, as agents do."""
        source, destination = transfer.order.source, transfer.order.destination
        for local_name, peer_name, qp in ((source, destination, transfer.qp), (destination, source, transfer.peer_qp)):
            if qp.transport != "mrc" or qp.state is not EngineQpState.RTS:
                continue
            evs = {ev["ev"]: ev for ev in qp.ev_states()}
            pairs = [(ev, row["plane"]) for ev, row in evs.items()]
            denied = self._denylists[local_name].denied(self.plan.host(peer_name), pairs)
            for ev, row in evs.items():
                if (ev in denied) != (row["state"] == "denied"):
                    qp.deny_ev(ev, ev in denied, self.fabric.now)

    # ---- looking ----------------------------------------------------------------------------------------

    def health(self, source: str, destination: str) -> list[dict[str, Any]]:
        qp_evs = [
            transfer.qp.ev_states()
            for transfer in self._transfers.values()
            if (transfer.order.source, transfer.order.destination, transfer.order.transport)
            == (source, destination, "mrc")
        ]
        hosts, endpoint = (self.plan.host(source), self.plan.host(destination)), self.fabric.hosts[source].endpoint
        dead_ports = ports_down(self.plan, *hosts, endpoint.local_ports, endpoint.peer_ports(destination))
        report = self._health[source].report(hosts[1], qp_evs, self._denylists[source].denied, dead_ports)
        rows: list[dict[str, Any]] = report["evs"]
        return rows

    def trace(self, source: str, destination: str, ev: int, plane: int) -> PacketWay:
        path = self.plan.path(self.plan.host(source), self.plan.host(destination), ev, plane)
        nodes = [source]
        for a, b in pairwise(path.nodes):
            link = self.plan.link(a, b).name
            port = self.fabric.port_towards(a, b)
            switch = self.fabric.switches.get(a)
            end = ""
            if switch is not None and switch.blackhole:
                end = f"ends at {a}: it forwards nothing"
            elif not port.is_up:
                end = f"ends at {a}: {link} is down"
            elif port.swallows:
                end = f"ends on the cable {link}: loses everything (injected)"
            if end:
                return PacketWay(source, destination, ev, plane, tuple(nodes), False, end)
            nodes.append(b)
        end = f"arrives at {destination} over {link}"
        return PacketWay(source, destination, ev, plane, tuple(nodes), True, end)

    def counters(self) -> list[PortCount]:
        out = []
        for switch in self.plan.switches:
            for port in self.plan.ports(switch.name):
                counts = self.fabric.ports[port.interface]
                drops = {reason: packets for reason, packets in (counts.dropped + counts.lost).items() if packets}
                out.append(
                    PortCount(
                        switch.name,
                        counts.name,
                        counts.neighbour,
                        counts.forwarded,
                        counts.marked,
                        counts.trimmed,
                        counts.trimmed if counts.last_hop else 0,
                        sum(drops.values()),
                        drops,
                    )
                )
            if switch_drops := dict(self.fabric.switches[switch.name].dropped):
                total = sum(switch_drops.values())
                out.append(PortCount(switch.name, switch.name, "", 0, 0, 0, 0, total, switch_drops))
        return out

    def findings(self, began: float) -> list[NamedFault]:  # noqa: ARG002 - there are none
        raise VirtualTimeError(
            "no controller runs in virtual time, so that none names faults: events() has what hosts found, and a live "
            "fabric (virtual=False) has findings()"
        )


class _VirtualTransfer:
    """A file's way of the agents (hosts/traffic/file_transfer.py), in virtual time."""

    def __init__(
        self,
        fabric: VirtualFabric,
        order: TransferOrder,
        number: int,
        data: bytes,
        denied: list[int],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.fabric, self.order, self.number = fabric, order, number
        self.ended = False
        self.memory = bytearray(len(data))
        self._data, self._report = memoryview(data), report
        self._host, self._peer = fabric.host(order.source), fabric.host(order.destination)
        self._region = self._peer.endpoint.register(memoryview(self.memory))
        options: dict[str, Any] = {"denied": denied}
        if order.transport != "mrc":  # its path is fixed: a QP whose only path is denied could send nothing
            options = {"settings": baseline_config(fabric.plan)}
        self.qp: EngineQueuePair
        self.qp, self.peer_qp = fabric.connect(order.source, order.destination, transport=order.transport, **options)
        self._pacer = Pacer(order.rate_bps, fabric.now)
        self._began = fabric.now
        self._posted = self._acked = 0
        self._waiting: dict[int, int] = {}
        """Bytes of each write that was posted and has not completed."""
        self._is_due = False
        self._host.on_completion(self.qp.qpn, self._on_completion)
        self._host.schedule(fabric.now, self._start)

    def _start(self) -> None:
        now, number, qpn = self.fabric.now, self.number, self.qp.qpn
        self._report({"event": "transfer", "t": now, "transfer": number, "qpn": qpn, "state": "sending"})
        self._post()

    def _post(self) -> None:
        self._is_due = False
        now = self.fabric.now
        while not self.ended and self._posted < len(self._data) and len(self._waiting) < MAX_OUTSTANDING:
            if now < self._pacer.next_at():
                if not self._is_due:
                    self._is_due = True
                    self._host.schedule(self._pacer.next_at(), self._post)
                return
            chunk = self._data[self._posted : self._posted + self.order.chunk_bytes]
            wr_id = self.qp.post_write(chunk, self._region.va + self._posted, self._region.rkey, now=now)
            self._waiting[wr_id] = len(chunk)
            self._posted += len(chunk)
            self._pacer.spend(len(chunk), now)

    def _on_completion(self, event: Completion) -> None:
        length = self._waiting.pop(event.wr_id, None)
        if self.ended or length is None:
            return
        if event.status is not Status.SUCCESS:
            self._end("failed", f"QP {event.qpn} to {self.order.destination}: {event.status.value}")
            return
        self._acked += length
        self.report_progress()
        if self._acked == len(self._data):
            self._end("done", None)
        else:
            self._post()

    def report_progress(self) -> None:
        self._report(
            {
                "event": "progress",
                "t": self.fabric.now,
                "transfer": self.number,
                "qpn": self.qp.qpn,
                "bytes_done": self._acked,
                "counters": self._counters(),
            }
        )

    def _counters(self) -> dict[str, Any]:
        counters = self.qp.counters.by_name()
        return {"sent": sum(counters["plane_packets"]), **counters}

    def _end(self, state: str, error: str | None) -> None:
        self.ended = True
        sent, received = hashlib.sha256(self._data).hexdigest(), hashlib.sha256(self.memory).hexdigest()
        if error is None and sent != received:
            state, error = "failed", f"{self.order.destination} received other bytes: SHA-256 {received}, sent {sent}"
        took = self.fabric.now - self._began
        self._report(
            {
                "event": "transfer",
                "t": self.fabric.now,
                "transfer": self.number,
                "qpn": self.qp.qpn,
                "state": state,
                "error": error,
                "bytes_done": self._acked,
                "duration_s": took,
                "sha256": sent,
                "goodput_bps": len(self._data) * 8 / took,
                "counters": self._counters(),
            }
        )

    def close(self, health: PathHealth) -> None:
        """Close both QPs; what its paths counted stays with the host."""
        if self.qp.transport == "mrc":
            health.keep_counts(self.order.destination, self.qp.ev_states())
        self._host.endpoint.destroy_qp(self.qp.qpn)
        self._peer.endpoint.destroy_qp(self.peer_qp.qpn)
