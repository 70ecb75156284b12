"""The control socket: operations, refusals, hostile lines, the socket file. No root."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mrc_testbed.switch.server.control import MAX_LINE_BYTES, ControlServer
from mrc_testbed.switch.system.unix_socket import SocketError
from tests.switch.server.running_server import running_daemon, with_timeout


class Lines:
    """A client of the control socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def raw(self, line: bytes) -> dict:
        self.writer.write(line + b"\n")
        return await self.next()

    async def request(self, op: str, **fields) -> dict:
        return await self.raw(json.dumps({"op": op, **fields}).encode())

    async def next(self) -> dict:
        return json.loads(await with_timeout(self.reader.readline()))


@asynccontextmanager
async def lines_to(path: Path) -> AsyncIterator[Lines]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield Lines(reader, writer)
    finally:
        writer.close()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "control.sock"


def test_devices__lists_what_was_added(path):
    async def check():
        async with running_daemon(path) as daemon, lines_to(path) as client:
            answer = await client.request("devices", id=5)
            assert (answer["id"], answer["ok"]) == (5, True)
            assert answer["devices"] == [
                {"name": "s1", "device_id": 1, "on": True, "program": None, "primary": None, "ports": {}}
            ]
            assert answer["p4runtime_port"] == daemon.p4runtime_port

    asyncio.run(check())


def test_add_power_stats_remove__and_the_events_a_watcher_sees(path):
    async def check():
        async with running_daemon(path, devices=0), lines_to(path) as client, lines_to(path) as watcher:
            assert (await watcher.request("watch"))["ok"]
            assert (await client.request("add_device", name="x", device_id=9, ports={}))["ok"]
            assert (await client.request("power", name="x", on=False))["ok"]
            assert (await client.request("stats", name="x"))["devices"]["x"]["on"] is False
            assert (await client.request("power", name="x", on=True))["ok"]
            stats = (await client.request("stats"))["devices"]["x"]
            assert stats["ports"] == {} and stats["frames"]["received"] == 0
            assert (await client.request("remove_device", name="x"))["ok"]
            states = [(await watcher.next())["state"] for _ in range(4)]
            assert states == ["on", "off", "on", "removed"]

    asyncio.run(check())


def test_counts__of_all_devices_at_once__null_is_not_known(path):
    async def check():
        async with running_daemon(path, devices=2), lines_to(path) as client:
            assert (await client.request("power", name="s2", on=False))["ok"]
            counts = await client.request("counts", cells={"marked": [0]})
            assert counts["devices"] == {
                "s1": {"on": True, "cells": {"marked": None}, "queue_drops": [0] * 8, "lost": 0},
                "s2": {"on": False},
            }

    asyncio.run(check())


BAD_REQUESTS = {
    b"": None,
    b"{": "not JSON",
    b"[1]": "object",
    b'{"id": 1}': "op",
    b'{"op": "dance"}': "has: add_device, add_wires, counts, devices",
    b'{"op": "power", "name": "s9", "on": true}': "no device 's9' (has: s1)",
    b'{"op": "power", "name": "s1"}': "on is missing",
    b'{"op": "power", "name": "s1", "on": 1}': "on = 1",
    b'{"op": "power", "name": "s1", "on": true, "keep_links": 3}': "keep_links = 3",
    b'{"op": "add_device", "name": "s1", "device_id": 2}': "taken by another device",
    b'{"op": "add_device", "name": "s2", "device_id": 1}': "device_id 1 is that of s1",
    b'{"op": "add_device", "name": "s2", "device_id": "2"}': "no number",
    b'{"op": "add_device", "name": "s2", "device_id": -1}': "want 0 to",
    b'{"op": "add_device", "name": "s2", "device_id": 2, "ports": {"510": "a"}}': "CPU port",
    b'{"op": "add_device", "name": "s2", "device_id": 2, "ports": {"-1": "a"}}': "want {",
    b'{"op": "add_device", "name": "s2", "device_id": 2, "ports": {"1": "abcdefghijklmnop"}}': "1 to 15",
    b'{"op": "add_device", "name": "s2", "device_id": 2, "ports": {"1": "a", "2": "a"}}': "already a port",
    b'{"op": "add_device", "name": "s2", "device_id": 2, "ports": {"1": "zznothere"}}': "zznothere",
    b'{"op": "remove_device", "name": "s2"}': "no device",
    b'{"op": "counts", "cells": {"marked": [-1]}}': "want at most 256 offsets",
    b'{"op": "counts", "cells": [1]}': "want at most 256 offsets",
    b'{"op": "counts", "depths": ["eth7"]}': "no interface 'eth7'",
    b'{"op": "counts", "depths": "eth7"}': "want names of interfaces",
    b"\xff\xfe": "not JSON",
    b"[" * 100_000: "not JSON",
}


def test_bad_requests__are_answered_and_change_nothing(path):
    async def check():
        async with running_daemon(path), lines_to(path) as client:
            for line, words in BAD_REQUESTS.items():
                if words is None:
                    client.writer.write(line + b"\n")  # an empty line is nothing
                    continue
                answer = await client.raw(line)
                assert answer["ok"] is False and words in answer["error"], (line[:80], answer)
            assert len((await client.request("devices"))["devices"]) == 1

    asyncio.run(check())


def test_endless_line__ends_only_its_own_connection(path):
    async def check():
        async with running_daemon(path), lines_to(path) as hostile, lines_to(path) as client:
            hostile.writer.write(b"x" * (MAX_LINE_BYTES + (1 << 16)))
            answer = await hostile.next()
            assert answer["ok"] is False and "longer than" in answer["error"]
            assert (await client.request("devices"))["ok"]

    asyncio.run(check())


def test_shutdown__is_answered_first(path):
    async def check():
        async with running_daemon(path) as daemon, lines_to(path) as client:
            assert (await client.request("shutdown"))["ok"]
            await with_timeout(daemon.stopping.wait())
        assert not path.exists()

    asyncio.run(check())


def test_socket_file__is_shown_when_somebody_listens(path, monkeypatch):
    """Between bind and listen a client would be refused, and say that the daemon has ended."""
    is_there_at_listen = []

    class WatchedSocket(socket.socket):
        def listen(self, backlog):
            is_there_at_listen.append(path.exists())
            super().listen(backlog)

    async def check():
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", WatchedSocket)
            server = ControlServer(path, {})
            await server.start()
        assert is_there_at_listen[0] is False and path.stat().st_mode & 0o777 == 0o600
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        async with lines_to(path):
            await server.close()

    asyncio.run(check())


def test_socket_file__of_a_dead_server_is_replaced_a_living_one_and_a_plain_file_are_not(path):
    async def check():
        stale_socket = socket.socket(socket.AF_UNIX)
        stale_socket.bind(str(path))
        stale_socket.close()
        server = ControlServer(path, {})
        await server.start()
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(SocketError, match="another process answers there"):
            await ControlServer(path, {}).start()
        await server.close()
        assert not path.exists()
        path.write_text("a file")
        with pytest.raises(SocketError, match="no socket"):
            await ControlServer(path, {}).start()

    asyncio.run(check())
