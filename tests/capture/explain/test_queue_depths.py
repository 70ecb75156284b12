"""Depths of queues, asked over a socket as the daemon serves it.

The daemon itself is in tests/capture/test_pcap.py.
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mrc_testbed.capture.explain import queue_depths
from mrc_testbed.capture.explain.queue_depths import QueueDepths
from mrc_testbed.ipc.rpc import JsonlError, RpcServer

PORT = "p1-t0-0-eth3"


class DepthServer:
    """Answers `counts` with depths that grow by 1000 bytes a question, from a thread."""

    def __init__(self, path):
        self.request_count = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = self._wait(RpcServer.start(path, self._handle))

    def _handle(self, request, _call):
        if request["op"] != "counts":
            raise JsonlError(f"no op {request['op']!r}")
        self.request_count += 1
        return {"depths": {name: 1000 * self.request_count for name in request["depths"]}}

    def _wait(self, task):
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(10)

    def close(self):
        self._wait(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def server(tmp_path):
    server = DepthServer(tmp_path / "switchd.sock")
    yield server
    server.close()


def test_text__is_the_last_answer_before_a_packet_while_it_is_fresh(server, tmp_path, monkeypatch):
    monkeypatch.setattr(queue_depths, "EVERY_S", 3600.0)  # a busy machine may stop us between two lines
    monkeypatch.setattr(queue_depths, "FRESH_S", 60.0)
    depths = QueueDepths(tmp_path / "switchd.sock", [PORT])
    before_ns = time.time_ns()
    depths.request()
    asked_ns = time.time_ns()
    assert depths.text(PORT, before_ns) == "", "nothing was known then"
    assert depths.text(PORT, asked_ns).startswith(f"queue of {PORT}: 1000 bytes, ")
    assert depths.text("p1-t0-0-eth4", asked_ns) == "", "not asked for"
    assert depths.text(PORT, asked_ns + round(60e9)) == "", "too old"
    depths.request()
    assert server.request_count == 1, "not twice within a moment"
    depths.close()


def test_ask__a_daemon_that_goes_and_one_that_never_was(server, tmp_path, monkeypatch):
    depths = QueueDepths(tmp_path / "switchd.sock", [PORT])
    monkeypatch.setattr(queue_depths, "EVERY_S", 0.0)
    depths.request()
    assert depths.open
    server._wait(server._server.close())
    depths.request()
    assert not depths.open
    depths.request()
    no_server = QueueDepths(tmp_path / "none.sock", [PORT])
    no_server.request()
    assert not no_server.open and no_server.text(PORT, time.time_ns()) == ""
