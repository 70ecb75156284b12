"""Transfer of one file to another host: exchange attributes, post writes in order, compare SHA-256.

The management network (the other agent's Unix socket) carries what goes before and after; the bytes themselves
go as RDMA writes. Chunks are read with pread as they are posted, so that a file which shrinks meanwhile is an
error and not a SIGBUS, and hashed on the way. No NIC hashes files: who measures what MRC costs leaves it out
(`sha256` of the request), and compares the files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.ipc.rpc import ANSWER_TIMEOUT_S, JsonlError, RpcClient
from mrc_testbed.ipc.service import wait_until

if TYPE_CHECKING:
    from mrc_testbed.hosts.agent.connections import Connection, Connections

CHUNK_BYTES = 1 << 18
"""Default length of one write: 64 packets of 4096 bytes."""
PACED_CHUNK_S = 0.01
"""Seconds of the rate that one write holds, about, so that the rate is even."""
MAX_OUTSTANDING = 8
"""Writes posted and not completed at one time."""
MAX_BURST_S = 0.05
"""Longest delay behind the rate that a stalled transfer makes good in one burst, seconds."""
HASHED_BPS = 1e6
"""Bytes a second that the slowest agent hashes of a file which it has received."""
PROGRESS_S = 0.02
"""Time between two `progress` events."""


Publish = Callable[[str, Callable[[], dict[str, Any]]], None]
"""Function that sends an event, its fields returned by a function, to the watchers that want it."""


class TransferError(Exception):
    """A transfer that ended without both files being equal."""


class Pacer:
    """Pacer of postings at `rate_bps` bits of payload per second; None = no limit."""

    def __init__(self, rate_bps: float | None, now: float) -> None:
        self._rate_bps = rate_bps
        self._next = now

    def next_at(self) -> float:
        """Return the earliest time for the next chunk, seconds."""
        return self._next

    def spend(self, length: int, now: float) -> None:
        """Note that `length` bytes were posted at `now`."""
        if self._rate_bps is not None:
            self._next = max(self._next, now - MAX_BURST_S) + length * 8 / self._rate_bps


def chunk_for(rate_bps: float | None, pmtu_bytes: int) -> int:
    """Return the default of bytes per write: CHUNK_BYTES, or 10 ms of the rate in whole packets."""
    if rate_bps is None:
        return CHUNK_BYTES
    packets = int(rate_bps * PACED_CHUNK_S / 8) // pmtu_bytes
    return min(CHUNK_BYTES, max(1, packets) * pmtu_bytes)


@dataclass(slots=True)
class TransferRequest:
    """Parameters of a transfer; `length` is the file's, in bytes."""

    path: Path
    length: int
    peer: str
    dest_path: str | None
    rate_bps: float | None
    chunk_bytes: int
    pmtu_bytes: int
    fresh: bool
    transport: str = "mrc"
    sha256: bool = True
    """Hash the file at both ends, and compare."""


@dataclass(slots=True)
class Transfer:
    """One transfer: request, progress and outcome."""

    number: int
    request: TransferRequest
    state: str = "connecting"
    """connecting, sending, checking, done or failed."""
    qpn: int | None = None
    bytes_posted: int = 0
    bytes_done: int = 0
    started_at: float = 0.0
    """First write posted; CLOCK_MONOTONIC seconds, as all times here."""
    ended_at: float | None = None
    """Last write completed, or the failure."""
    sha256: str | None = None
    remote_sha256: str | None = None
    remote_path: str | None = None
    error: str | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    """Growth of the QP's counters during the transfer."""
    _end_event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")

    async def wait(self) -> None:
        """Return when the transfer is over and everything about it is known."""
        await self._end_event.wait()

    def finish(self, state: str, error: str | None = None) -> None:
        """End the transfer in state done or failed, and wake its waiters."""
        self.state, self.error = state, error
        self._end_event.set()

    def to_json(self) -> dict[str, Any]:
        duration = (self.ended_at or 0.0) - self.started_at if self.ended_at and self.started_at else None
        done = duration is not None and duration > 0 and self.state == "done"
        return {
            "transfer": self.number,
            "state": self.state,
            "path": str(self.request.path),
            "peer": self.request.peer,
            "transport": self.request.transport,
            "qpn": self.qpn,
            "bytes_total": self.request.length,
            "bytes_posted": self.bytes_posted,
            "bytes_done": self.bytes_done,
            "started_at": self.started_at or None,
            "ended_at": self.ended_at,
            "duration_s": duration,
            "goodput_bps": self.request.length * 8 / duration if done and duration else None,
            "sha256": self.sha256,
            "remote_sha256": self.remote_sha256,
            "remote_path": self.remote_path,
            "error": self.error,
            "counters": self.counters,
        }


class Sender:
    """Coroutine `run` of one transfer. `publish(event, fields)` sends an event to every watcher."""

    def __init__(self, transfer: Transfer, connections: Connections, publish: Publish) -> None:
        self.transfer = transfer
        self._connections = connections
        self._clock = asyncio.get_running_loop().time
        self._publish = publish
        self._digest = hashlib.sha256() if transfer.request.sha256 else None
        self._outstanding: dict[int, int] = {}
        self._failure: str | None = None
        self._news = asyncio.Event()
        self._reported_at = 0.0

    async def run(self) -> None:
        """Run the transfer from first contact to comparison; store the outcome and send it as an event."""
        transfer, request = self.transfer, self.transfer.request
        agent: RpcClient | None = None
        connection: Connection | None = None
        start_counters: dict[str, Any] = {}
        failure: str | None = None
        try:
            agent = await self._connections.dial(request.peer)
            connection = await self._connections.open(agent, request.pmtu_bytes, request.fresh, request.transport)
            connection.is_busy = True
            transfer.qpn = connection.qp.qpn
            start_counters = connection.counters()
            await self._send(agent, connection)
        except (JsonlError, TransferError, OSError, ValueError) as error:
            failure = str(error)
        finally:
            if transfer.ended_at is None:
                transfer.ended_at = self._clock()
            if connection is not None:
                connection.is_busy = False
                transfer.counters = growth(start_counters, connection.counters())
            if agent is not None:
                agent.close()
        transfer.finish("failed" if failure else "done", failure)
        self._publish("transfer", transfer.to_json)

    async def _send(self, agent: RpcClient, connection: Connection) -> None:
        transfer, request = self.transfer, self.transfer.request
        name = request.dest_path or request.path.name
        target = await agent.request("receive_file", path=name, length=request.length)
        try:
            transfer.state, transfer.started_at = "sending", self._clock()
            self._publish("transfer", transfer.to_json)
            await self._post_file(connection, target["va"], target["rkey"])
            transfer.state, transfer.ended_at = "checking", self._clock()
            if self._digest is not None:
                transfer.sha256 = self._digest.hexdigest()
            limit_s = ANSWER_TIMEOUT_S + request.length / HASHED_BPS
            answer = await agent.request(
                "finish_file", timeout_s=limit_s, region=target["region"], sha256=transfer.sha256
            )
        except BaseException:
            agent.notify("deregister", region=target["region"])
            raise
        transfer.remote_sha256, transfer.remote_path = answer["sha256"], answer["path"]
        if transfer.remote_sha256 != transfer.sha256:
            raise TransferError(
                f"{request.peer} received other bytes: SHA-256 {transfer.remote_sha256}, sent {transfer.sha256}"
            )

    # ---- posting ----------------------------------------------------------------------------------------

    async def _post_file(self, connection: Connection, va: int, rkey: int) -> None:
        """Post the file chunk by chunk, few at a time, and wait for the last completion. Raises TransferError."""
        transfer, request = self.transfer, self.transfer.request
        pacer = Pacer(request.rate_bps, self._clock())
        descriptor = os.open(request.path, os.O_RDONLY | os.O_CLOEXEC)
        connection.on_completion = self._on_completion
        try:
            while transfer.bytes_done < request.length:
                # Set by a completion: a failed write ends the transfer.
                if self._failure is not None:
                    raise TransferError(self._failure)
                now = self._clock()
                remaining_bytes = request.length - transfer.bytes_posted
                may_post = remaining_bytes > 0 and len(self._outstanding) < MAX_OUTSTANDING
                if may_post and now >= pacer.next_at():
                    length = min(request.chunk_bytes, remaining_bytes)
                    chunk = _read(descriptor, transfer.bytes_posted, length, request.path)
                    # Chunks are read once and in order, hence the digest here.
                    if self._digest is not None:
                        self._digest.update(chunk)
                    wr_id = connection.qp.post_write(chunk, va + transfer.bytes_posted, rkey, now=now)
                    self._outstanding[wr_id] = length
                    transfer.bytes_posted += length
                    pacer.spend(length, now)
                    continue
                # A completion frees a slot, or the pacer allows the next chunk.
                await wait_until(self._news, pacer.next_at() if may_post else None)
        finally:
            connection.on_completion = None
            os.close(descriptor)
        self._publish_progress(connection)

    def _on_completion(self, connection: Connection, event: Completion) -> None:
        length = self._outstanding.pop(event.wr_id, None)
        if length is None:
            return
        if event.status is Status.SUCCESS:
            self.transfer.bytes_done += length
        elif self._failure is None:
            reason = f": {connection.qp.error}" if event.status is Status.FLUSHED and connection.qp.error else ""
            self._failure = f"QP {event.qpn} to {self.transfer.request.peer}: {event.status.value}{reason}"
        if event.at - self._reported_at >= PROGRESS_S:
            self._reported_at = event.at
            self._publish_progress(connection)
        self._news.set()

    def _publish_progress(self, connection: Connection) -> None:
        self._publish("progress", lambda: self._progress_json(connection))

    def _progress_json(self, connection: Connection) -> dict[str, Any]:
        transfer = self.transfer
        return {
            "transfer": transfer.number,
            "qpn": transfer.qpn,
            "bytes_done": transfer.bytes_done,
            "bytes_posted": transfer.bytes_posted,
            "bytes_total": transfer.request.length,
            "counters": connection.counters(),
        }


def growth(start_counters: dict[str, Any], end_counters: dict[str, Any]) -> dict[str, Any]:
    """Return `end_counters` - `start_counters` for every counter, element by element in lists."""
    out: dict[str, Any] = {}
    for key, value in end_counters.items():
        start_value = start_counters.get(key)
        if isinstance(value, list):
            out[key] = [b - a for a, b in zip(start_value or [0] * len(value), value, strict=True)]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            out[key] = value - (start_value or 0)
    return out


def _read(descriptor: int, offset: int, length: int, path: Path) -> bytes:
    data = os.pread(descriptor, length, offset)
    if len(data) != length:
        raise TransferError(f"{path} shrank while it was sent: {len(data)} of {length} bytes at offset {offset}")
    return data
