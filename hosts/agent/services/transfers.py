"""File transfers from this host (hosts/traffic/file_transfer.py).

send_file    path, peer, dest_path, rate_bps, chunk_bytes, pmtu, fresh, transport, sha256  -> the transfer, begun
wait         transfer                                                                      -> the transfer, ended
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from mrc_testbed.hosts.agent.connections import MRC, Connections
from mrc_testbed.hosts.agent.services.local_end import checked_pmtu
from mrc_testbed.hosts.traffic.file_transfer import Publish, Sender, Transfer, TransferRequest, chunk_for
from mrc_testbed.ipc.requests import Number, Request, RequestError
from mrc_testbed.ipc.rpc import Message, RpcCall
from mrc_testbed.ipc.rpc_table import Later, rpc

KEPT_TRANSFERS = 1000
"""Ended transfers an agent remembers for `wait` and `status`."""


class SendFileRequest(Request, tag="send_file"):
    """Begin to send the file at `path`; `fresh`: on a QP of its own; `sha256`: compare hashes at the end."""

    path: str
    peer: str
    dest_path: str | None = None
    rate_bps: Annotated[float, Meta(ge=1, le=1e12)] | None = None
    chunk_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] | None = None
    pmtu: Number | None = None
    fresh: bool = False
    transport: str = MRC
    sha256: bool = True


class WaitRequest(Request, tag="wait"):
    """Wait for the end of a transfer."""

    transfer: Number


class TransferService:
    """RPC service for file transfers, an iterable of the remembered ones.

    `publish` sends an event to every watcher, `report_bug` logs a failure.
    """

    def __init__(
        self,
        connections: Connections,
        pmtu_bytes: int,
        *,
        publish: Publish,
        report_bug: Callable[[str, BaseException], str],
    ) -> None:
        self._connections, self._pmtu_bytes = connections, pmtu_bytes
        self._publish, self._report_bug = publish, report_bug
        self._transfers: dict[int, Transfer] = {}
        self._last_transfer = 0
        self._running: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._transfers.values())

    @rpc(SendFileRequest)
    def send_file(self, request: SendFileRequest, _call: RpcCall) -> Message:
        """Start to send a file and answer at once; `wait` and the `transfer` and `progress` events report."""
        path, rate_bps = Path(request.path), request.rate_bps
        peer = self._connections.peer_host(request.peer).name
        pmtu = checked_pmtu(request.pmtu, self._pmtu_bytes)
        chunk = chunk_for(rate_bps, pmtu) if request.chunk_bytes is None else request.chunk_bytes
        length = _length_of(path)
        transport = self._connections.transport(request.transport)
        transfer_request = TransferRequest(
            path, length, peer, request.dest_path, rate_bps, chunk, pmtu, request.fresh, transport, request.sha256
        )
        return self._start(transfer_request).to_json()

    def _start(self, transfer_request: TransferRequest) -> Transfer:
        self._last_transfer += 1
        transfer = Transfer(self._last_transfer, transfer_request)
        ended_numbers = [number for number, earlier_transfer in self._transfers.items() if earlier_transfer.is_over]
        for number in ended_numbers[: max(0, len(self._transfers) - KEPT_TRANSFERS)]:
            del self._transfers[number]
        self._transfers[transfer.number] = transfer
        sender = Sender(transfer, self._connections, self._publish)

        def on_done(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                transfer.finish("failed", self._report_bug(f"transfer {transfer.number}", error))

        task = asyncio.get_running_loop().create_task(sender.run())
        self._running.add(task)
        task.add_done_callback(on_done)
        return transfer

    @rpc(WaitRequest)
    def wait(self, request: WaitRequest, _call: RpcCall) -> Later:
        """Answer when the transfer has ended: its fields, or a refusal with its error."""
        number = request.transfer
        transfer = self._transfers.get(number)
        if transfer is None:
            known = ", ".join(map(str, list(self._transfers)[-8:])) or "none"
            raise RequestError(f"no transfer {number} (has: {known})")

        async def wait_for_end() -> Message:
            await transfer.wait()
            if transfer.error is not None:
                raise RequestError(f"transfer {number} to {transfer.request.peer} failed: {transfer.error}")
            return transfer.to_json()

        return wait_for_end()


def _length_of(path: Path) -> int:
    """Return the size of a regular file, bytes. Raises OSError or RequestError with its name."""
    try:
        with path.open("rb") as file:
            if not path.is_file():
                raise RequestError(f"{path}: not a regular file")
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from error
