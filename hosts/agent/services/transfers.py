"""File transfers from this host (hosts/traffic/file_transfer.py).

send_file    path, peer, dest_path, rate_bps, chunk_bytes, pmtu, fresh, transport  -> the transfer, begun
wait         transfer                                                              -> the transfer, ended
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hosts.agent.connections import MRC, Connections
from hosts.agent.requests import Fields, RequestError, pmtu_of, take
from hosts.agent.rpc_server import Later, rpc
from hosts.agent.tasks import Task, Tasks
from hosts.traffic.file_transfer import Request, Sender, Transfer, chunk_for
from ipc.rpc import ServerConnection as Client

KEPT_TRANSFERS = 1000
"""Ended transfers an agent remembers for `wait` and `status`."""


class TransferService:
    """Iterates over the transfers it remembers. `publish` sends an event to every watcher, `report_bug` logs one."""

    def __init__(
        self,
        connections: Connections,
        tasks: Tasks,
        pmtu_bytes: int,
        *,
        publish: Callable[..., None],
        report_bug: Callable[[str, Exception], str],
    ) -> None:
        self._connections, self._tasks, self._pmtu_bytes = connections, tasks, pmtu_bytes
        self._publish, self._report_bug = publish, report_bug
        self._transfers: dict[int, Transfer] = {}
        self._last_transfer = 0

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self._transfers.values())

    @rpc("send_file")
    def send_file(self, request: Fields, client: Client) -> Fields:
        """Begin to send a file; answers at once, `wait` and the events `transfer` and `progress` tell the rest."""
        path = Path(take(request, "path", str))
        peer = self._connections.peer_host(take(request, "peer", str)).name
        pmtu = pmtu_of(request, self._pmtu_bytes)
        rate_bps = take(request, "rate_bps", float, None, low=1, high=1e12)
        chunk = take(request, "chunk_bytes", int, chunk_for(rate_bps, pmtu), low=1, high=1 << 30)
        length = _length_of(path)
        dest_path, fresh = take(request, "dest_path", str, None), take(request, "fresh", bool, False)
        transport = self._connections.transport(take(request, "transport", str, MRC))
        asked = Request(path, length, peer, dest_path, rate_bps, chunk, pmtu, fresh, transport)
        return self._start(asked).to_json()

    def _start(self, asked: Request) -> Transfer:
        self._last_transfer += 1
        transfer = Transfer(self._last_transfer, asked)
        ended = [number for number, one in self._transfers.items() if one.over]
        for number in ended[: max(0, len(self._transfers) - KEPT_TRANSFERS)]:
            del self._transfers[number]
        self._transfers[transfer.number] = transfer
        sender = Sender(transfer, self._connections, self._tasks, self._publish)

        def on_done(task: Task) -> None:
            if task.error is not None:
                transfer.finish("failed", self._report_bug(f"transfer {transfer.number}", task.error))

        self._tasks.spawn(sender.run(), on_done)
        return transfer

    @rpc("wait")
    def wait(self, request: Fields, client: Client) -> Later:
        """Answers when the transfer has ended: its fields, or a refusal with its error."""
        number = take(request, "transfer", int)
        transfer = self._transfers.get(number)
        if transfer is None:
            known = ", ".join(map(str, list(self._transfers)[-8:])) or "none"
            raise RequestError(f"no transfer {number} (has: {known})")

        async def ended() -> dict[str, Any]:
            await transfer.wait()
            if transfer.error is not None:
                raise RequestError(f"transfer {number} to {transfer.request.peer} failed: {transfer.error}")
            return transfer.to_json()

        return ended()


def _length_of(path: Path) -> int:
    """Bytes of a regular file. Raises OSError or RequestError with its name."""
    try:
        with path.open("rb") as file:
            if not path.is_file():
                raise RequestError(f"{path}: is no regular file")
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from error
