"""JSON lines without sockets.

The real client, the real server, and lines between them that get lost, doubled or late.

network = LinesInMemory()
server = network.listen("h0", handler, on_watch)      # an RpcServer: `publish`, `watched`
client = await network.connect(Path("h0.sock"))       # an RpcClient
network.fate = lambda line: Fate(copies=2)            # asked for each line in either direction
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mrc_testbed.ipc.rpc import RpcClient, RpcServer, ServerConnection, decode

DELAY_S = 0.001


@dataclass(frozen=True)
class Line:
    """One line on its way.

    `number` counts all lines of a network, `server` is the end that is no client.
    """

    number: int
    server: str
    to_server: bool
    data: bytes

    @cached_property
    def message(self) -> dict[str, Any]:
        return decode(self.data.rstrip(b"\n"))


@dataclass(frozen=True)
class Fate:
    """Fate of a line: how often it arrives, and its extra delay, seconds.

    `in_order`: those behind it wait.
    """

    copies: int = 1
    late_s: float = 0.0
    in_order: bool = True


class _Peer:
    """Receiver of an RpcServer's events."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    def abort(self) -> None:
        self.connection.handle_close()


class _Wire(asyncio.Transport):
    """Both directions between one client and one server; the client's transport."""

    def __init__(self, network: LinesInMemory, name: str, server: RpcServer, client: RpcClient) -> None:
        super().__init__()
        self._network, self.name, self._server, self._client = network, name, server, client
        self._open = True
        self._free_at = {True: 0.0, False: 0.0}
        self.peer = _Peer(ServerConnection(lambda line: self._send(line, to_server=False)))
        server._peers.add(self.peer)
        client.connection_made(self)

    def write(self, data: Any) -> None:
        self._send(bytes(data), to_server=True)

    def is_closing(self) -> bool:
        return not self._open

    def close(self) -> None:
        if self._open:
            self._open = False
            self._server._peers.discard(self.peer)
            self.peer.connection.handle_close()
            self._network.wires.discard(self)

    def abort(self) -> None:
        self.close()

    def cut(self) -> None:
        """Cut the connection, as a server that dies."""
        if self._open:
            self.close()
            asyncio.get_running_loop().call_soon(self._client.connection_lost, None)

    def _send(self, line: bytes, *, to_server: bool) -> None:
        if not self._open:
            return
        loop = asyncio.get_running_loop()
        fate = self._network.fate_of(self.name, to_server, line)
        for _ in range(fate.copies):
            arrival_s = loop.time() + DELAY_S + fate.late_s
            if fate.in_order:
                arrival_s = self._free_at[to_server] = max(arrival_s, self._free_at[to_server])
            loop.call_at(arrival_s, self._arrive, line, to_server)

    def _arrive(self, line: bytes, to_server: bool) -> None:
        if not self._open:
            return
        if self.name in self._network.held_lines:
            self._network.held_lines[self.name].append((self, line, to_server))
        elif to_server:
            self._server.serve_line(self.peer.connection, line.rstrip(b"\n"))
        else:
            self._client.data_received(line)


@dataclass
class LinesInMemory:
    """All servers and connections of a test."""

    fate: Callable[[Line], Fate] = lambda _line: Fate()
    servers: dict[str, RpcServer] = field(default_factory=dict)
    wires: set[_Wire] = field(default_factory=set)
    held_lines: dict[str, list[tuple[_Wire, bytes, bool]]] = field(default_factory=dict)
    """Lines that wait for servers which are stopped, by name."""
    lines: list[Line] = field(default_factory=list)
    keeps_lines: bool = True
    _count: int = 0

    def listen(self, name: str, handler: Any, on_watch: Any = None) -> RpcServer:
        self.servers[name] = RpcServer(Path(f"{name}.sock"), handler, on_watch)
        return self.servers[name]

    def kill(self, name: str) -> None:
        """End a server and its connections."""
        self.servers.pop(name, None)
        self.held_lines.pop(name, None)
        for wire in [wire for wire in self.wires if wire.name == name]:
            wire.cut()

    def stop(self, name: str) -> None:
        """Stop the server as SIGSTOP does: connections stay and nothing is answered."""
        self.held_lines.setdefault(name, [])

    def go_on(self, name: str) -> None:
        for wire, line, to_server in self.held_lines.pop(name, []):
            wire._arrive(line, to_server)

    async def connect(
        self, path: Path | str, *, name: str | None = None, peer: str = "it", hint: str = ""
    ) -> RpcClient:
        """Connect as RpcClient.connect does."""
        await asyncio.sleep(0)
        key = Path(path).stem
        if key not in self.servers:
            raise ConnectionRefusedError(111, "Connection refused")
        client = RpcClient(name or key, peer, hint)
        self.wires.add(_Wire(self, key, self.servers[key], client))
        return client

    def fate_of(self, server: str, to_server: bool, data: bytes) -> Fate:
        line = Line(self._count, server, to_server, data)
        self._count += 1
        if self.keeps_lines:
            self.lines.append(line)
        return self.fate(line)
