"""The live form of the Python API: Mininet, P4 switches, agents and controller, as `mrc up` has them.

One thread takes what agents and controller tell, as it comes; agents tell of a transfer each 20 ms at most.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from mrc_testbed.api.backend import EventListener, TransferOrder
from mrc_testbed.api.records import ApiError, NamedFault, PacketWay, PortCount
from mrc_testbed.capture.live_fabric import LiveFabric
from mrc_testbed.capture.trace import follow
from mrc_testbed.cli.prompt.commands.faults import injection_of
from mrc_testbed.cli.prompt.commands.queues import counter_row
from mrc_testbed.files.whole_files import write_random, write_whole
from mrc_testbed.ipc.agent_client import PEER_S, AgentClient, AgentError, AgentWatch
from mrc_testbed.ipc.controller_client import SWITCHES_S, EventStream, sources_of
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.fault_target import LiveFaultTarget

EVENTS = ("progress", "transfer", "ev", "plane", "qp_error")
"""Events of agents that are listened to."""
CHECK_S = 0.1
"""Between two looks at a condition and at the processes while waiting."""


class LiveBackend:
    """See FabricBackend; `fabric` is not up yet."""

    def __init__(self, fabric: Fabric) -> None:
        self.plan = fabric.plan
        self.lab = fabric
        self.faults = LiveFaultTarget(self.lab)
        self.lock = threading.Condition()
        """Condition that is notified of each event."""
        self._agents: dict[str, AgentClient] = {}
        self._watches: dict[str, AgentWatch | EventStream] = {}
        """Watches by host; the controller's under the empty name."""
        self._received: dict[tuple[str, int], tuple[str, Path]] = {}
        """Receiver, and its file."""
        self._sent: dict[tuple[str, int], Path] = {}
        """Files of ours that are still being sent, on the sender's machine."""
        self._thread: threading.Thread | None = None
        self._ending: tuple[socket.socket, socket.socket] | None = None
        """Something to read on the first one ends the thread."""
        self._files = 0

    # ---- life -------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def open(self) -> None:
        self.lab.start()

    def listen(self, listener: EventListener) -> None:
        for host in self.plan.hosts:
            agent = self._agents[host.name] = AgentClient(
                self.lab.run_dir.agent_socket(host.name), works=self.lab.works(host.name)
            )
            self._watches[host.name] = agent.watch(*EVENTS)
        self._watches[""] = self.lab.controller.watch(events="fault")
        self._ending = socket.socketpair()
        self._thread = threading.Thread(target=self._take, args=(listener, self._ending[0]), name="events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        try:
            self._hang_up()
        finally:
            self.lab.close()

    def _hang_up(self) -> None:
        self.faults.close()
        if self._ending is not None and self._thread is not None:
            self._ending[1].send(b".")
            self._thread.join()
            for end in self._ending:
                end.close()
            self._ending = None
        for watch in self._watches.values():
            watch.close()
        for agent in self._agents.values():
            agent.close()

    def _take(self, listener: EventListener, ending: socket.socket) -> None:
        """Pass events on until the end.

        A source that has closed is ignored: `wait` reports which process has died.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(ending, selectors.EVENT_READ)
            for host, watch in self._watches.items():
                selector.register(watch.fileno(), selectors.EVENT_READ, (host, watch))
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    host, watch = key.data
                    try:
                        self._drain(listener, host, watch)
                    except (AgentError, JsonlError):
                        selector.unregister(key.fileobj)

    def _drain(self, listener: EventListener, host: str, watch: AgentWatch | EventStream) -> None:
        while (event := watch.get(0.0)) is not None:
            with self.lock:
                if event["event"] == "transfer" and event["state"] in ("done", "failed"):
                    self._remove(host, self._sent.pop((host, event["transfer"]), None))
                listener(host, event)
                self.lock.notify_all()

    def wait(self, condition: Callable[[], bool], limit_s: float | None) -> bool:
        deadline = None if limit_s is None else time.monotonic() + limit_s
        with self.lock:
            while not condition():
                remaining_s = CHECK_S if deadline is None else deadline - time.monotonic()
                if remaining_s <= 0:
                    return False
                self.lock.wait(min(remaining_s, CHECK_S))
                self.lab.check()
        return True

    # ---- transfers --------------------------------------------------------------------------------------

    def send(self, order: TransferOrder) -> int:
        self._files += 1
        folder = self.lab.run_dir.data
        received = self.lab.path_for(order.destination, f"api-{self._files}-{order.destination}")
        path, local_copy = order.content, None
        if not isinstance(path, Path):
            path = local_copy = folder / f"api-{self._files}-{order.source}"
        sender_path: Path | None = None
        _require_room(folder, order.size_bytes * (1 if local_copy is None else 2))
        try:
            if local_copy is not None:
                _write(local_copy, order.content)
            sender_path = self.lab.bring(order.source, path)
            answer = self._agents[order.source].send_file(
                sender_path,
                order.destination,
                dest_path=str(received),
                rate_bps=order.rate_bps,
                fresh=True,
                chunk_bytes=order.chunk_bytes,
                transport=order.transport,
                timeout_s=PEER_S,
                patient=True,
            )
        except BaseException:
            if local_copy is not None or sender_path != path:
                self._remove(order.source, sender_path)
            raise
        finally:
            if local_copy is not None and sender_path != local_copy:  # never sent, or a copy of it is
                local_copy.unlink(missing_ok=True)
        key = order.source, int(answer["transfer"])
        self._received[key] = order.destination, received
        if local_copy is not None or sender_path != path:
            self._sent[key] = sender_path
        return key[1]

    def read(self, source: str, number: int) -> bytes:
        return self.lab.read(*self._received[source, number])

    def forget(self, source: str, number: int, qpn: int | None) -> None:
        self._remove(*self._received.pop((source, number), (source, None)))
        if qpn is not None:
            self._agents[source].call("close_qp", qpn=qpn)

    def _remove(self, host: str, path: Path | None) -> None:
        if path is not None:
            self.lab.discard(host, path)

    def change_denylist(self, op: Literal["deny", "allow", "clear"], entry: dict[str, str]) -> None:
        for agent in self._agents.values():
            if op == "clear":
                agent.call("denylist", entries=[])
            else:
                agent.call(op, entries=[entry])

    # ---- looking ----------------------------------------------------------------------------------------

    def health(self, source: str, destination: str) -> list[dict[str, Any]]:
        answer = self._agents[source].call("health", peer=destination)
        rows: list[dict[str, Any]] = answer["peers"][0]["evs"]
        return rows

    def trace(self, source: str, destination: str, ev: int, plane: int) -> PacketWay:
        with contextlib.closing(LiveFabric(self.lab.run_dir.path)) as fabric:
            way = follow(fabric, source, destination, str(ev))
        nodes = (source, *(hop.switch for hop in way.hops), *([destination] if way.arrived else []))
        return PacketWay(source, destination, ev, plane, nodes, way.arrived, way.end)

    def counters(self) -> list[PortCount]:
        out = []
        for switch in self.plan.switches:
            if switch.name in self.lab.nodes_off:
                continue  # it counts nothing, and answers nobody
            answer = self.lab.controller.request("counters", timeout_s=SWITCHES_S, patient=True, switch=switch.name)
            for port in answer["ports"]:
                name, neighbour, _, forwarded, marked, trims, dropped, reasons = counter_row(
                    self.plan, switch.name, port, answer["counters"]
                )
                at_last = sum(count for reason, count in trims.items() if "last" in reason)
                out.append(
                    PortCount(
                        switch.name,
                        name,
                        neighbour,
                        forwarded,
                        marked,
                        trims.total(),
                        at_last,
                        dropped,
                        {reason: count for reason, count in reasons.items() if count},
                    )
                )
        return out

    def findings(self, began: float) -> list[NamedFault]:
        injections = [injection for _, change, injection in list(self.lab.inject.log) if change == "begin"]
        out = []
        for fault in self.lab.controller.request("faults")["faults"]:
            injection, cleared_at = injection_of(fault, injections), fault["cleared"]
            sources = sources_of(fault)
            out.append(
                NamedFault(
                    fault["number"],
                    fault["state"],
                    fault["kind"],
                    fault["location"],
                    fault["text"],
                    fault["raised"] - began,
                    None if cleared_at is None else cleared_at - began,
                    tuple(sources),
                    None if injection is None else fault["raised"] - injection.began_at,
                )
            )
        return out


def _require_room(folder: Path, size: int) -> None:
    disk = os.statvfs(folder)
    free_bytes = disk.f_bavail * disk.f_frsize
    if size * 1.05 > free_bytes:
        raise ApiError(
            f"{folder} has {free_bytes >> 20} MiB free and {size >> 20} MiB are needed: "
            "give run_dir= a folder with room, or send less"
        )


def _write(path: Path, content: Path | bytes | int) -> None:
    """Make the file to send: those bytes, or so many random ones."""
    if isinstance(content, bytes):
        write_whole(path, content)
    else:
        assert isinstance(content, int)
        write_random(path, content)
