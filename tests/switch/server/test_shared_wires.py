"""Requests for shared wires at the daemon's socket: bad ones are answered, and nobody holds it up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrc_testbed.switch.server.shared_wires import MAX_LINE_BYTES, SharedWireServer
from tests.shared_wire import WiredProcess, send_request
from tests.switch.device.cabled_ports import Bench, namespace  # noqa: F401
from tests.switch.mini_program import frame

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network interfaces: run as root"),
]


@pytest.fixture(scope="module")
def bench(namespace: None) -> Iterator[Bench]:  # noqa: F811
    with contextlib.closing(Bench()) as bench:
        yield bench


@pytest.fixture
def path(bench: Bench, tmp_path: Path) -> Iterator[Path]:
    """Return the socket of a server that serves in a thread."""
    path = tmp_path / "wires.sock"
    server, loop, is_serving = SharedWireServer(path, bench.loop), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        server.start()
        is_serving.set()

    async def close() -> None:
        server.close()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        loop.run_forever()
        loop.run_until_complete(close())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert is_serving.wait(10.0)
    yield path
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert not path.exists()


def test_a_wire__is_made_for_its_owner_alone_and_outlives_the_request(bench, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    bench.route(2, 2)
    with contextlib.closing(WiredProcess.connect(path, "s1", [])) as process:
        process.send(frame(0, dst=2, payload=b"through"))
        assert bench.peers[2].receive() == frame(0, dst=2, payload=b"through")


REQUEST = {"interface": "s1", "frame_bytes": 4352, "match": []}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not a line of JSON"),
        (b"[" * 3000, "not a line of JSON"),
        (b"\xff", "not a line of JSON"),
        (b"7", "a request is an object, not 7"),
        ({}, "interface = None (want a port's"),
        ({**REQUEST, "interface": "s9"}, "no port is on interface 's9'"),
        ({**REQUEST, "interface": "s1\0"}, "interface = 's1\\x00'"),
        ({**REQUEST, "interface": "\ud800"}, "interface = '\\ud800'"),
        ({**REQUEST, "frame_bytes": True}, "frame_bytes = True"),
        ({**REQUEST, "frame_bytes": -1}, "frame_bytes = -1"),
        ({**REQUEST, "frame_bytes": 1 << 31}, "bytes a frame (want 64 to 16384)"),
        ({**REQUEST, "match": {}}, "match = {} (want a list"),
        ({**REQUEST, "match": [[1, 2, 3]]}, "match: [1, 2, 3] (want [offset"),
        ({**REQUEST, "match": [[1, 2, 3, "4"]]}, "match: [1, 2, 3, '4']"),
        ({**REQUEST, "match": [[1, 2, 3, 1 << 32]]}, "match: [1, 2, 3, 4294967296]"),
        ({**REQUEST, "match": [[1, 5, 3, 4]]}, "a range that is not 1 to 4 bytes"),
        ({**REQUEST, "match": [[1, 1, 3, 4]] * 5}, "5 ranges (at most 4)"),
    ],
)
def test_a_bad_request__gets_an_answer(path, line, words):
    text = line if isinstance(line, bytes) else json.dumps(line).encode()
    sock, answer, files = send_request(path, text + b"\n")
    with sock:
        assert not files and words in json.loads(answer)["error"]
        assert sock.recv(1) == b"", "and its connection ends"


def test_clients__that_say_nothing_or_too_much_hold_nobody_up(bench, path):
    quiet_clients = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for sock in quiet_clients:
        sock.connect(str(path))
        sock.send(b'{"interface": ')
    sock, answer, _ = send_request(path, b"x" * MAX_LINE_BYTES)
    assert "not a line of JSON" in json.loads(answer)["error"]
    sock.close()
    for quiet in quiet_clients[:10]:
        quiet.close()
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    client.send(json.dumps(REQUEST).encode() + b"\n")
    client.close()
    with contextlib.closing(WiredProcess.connect(path, "s1", [])) as process:
        assert process.memory.slots == [256, 512]
    for quiet in quiet_clients[10:]:
        quiet.close()
