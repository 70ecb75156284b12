"""The JSON-lines protocol: both servers answer alike, and nothing a client sends takes one down."""

import asyncio
import contextlib
import json
import selectors
import socket
import threading

import pytest

from ipc import rpc
from ipc.rpc import (
    AsyncServer,
    JsonlClient,
    JsonlError,
    JsonlPeerError,
    JsonlTimeout,
    LineBuffer,
    SelectorServer,
)


def handle(request, connection):
    match request["op"]:
        case "add":
            return {"sum": request["a"] + request["b"]}
        case "refuse":
            raise JsonlError("no host 'h9' (has: h0, h1)")
        case "unsendable":
            return {"data": b"bytes"}
        case "never":
            return None
        case "later":
            connection.answer(request, late=True)
            return None
        case other:
            raise JsonlError(f"no op {other!r} (has: add, refuse)")


class SelectorThread:
    """A SelectorServer in a thread, as a host agent would run it."""

    def __init__(self, path):
        self.selector = selectors.DefaultSelector()
        self.server = SelectorServer(path, handle, self.selector, on_watch=lambda request: [{"event": "hello"}])
        self.wake, self.wait = socket.socketpair()
        self.todo = []
        self.selector.register(self.wait, selectors.EVENT_READ, self.on_wake)
        self.running = True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def on_wake(self, mask):
        self.wait.recv(100)
        while self.todo:
            self.todo.pop(0)()

    def run(self):
        while self.running:
            for key, mask in self.selector.select(5):
                key.data(mask)
        self.server.close()

    def publish(self, event, **fields):
        self.todo.append(lambda: self.server.publish(event, **fields))
        self.wake.send(b"x")

    def stop(self):
        self.running = False
        self.wake.send(b"x")
        self.thread.join()
        self.selector.close()
        self.wake.close()
        self.wait.close()


class AsyncThread:
    """An AsyncServer in a thread, as the controller would run it."""

    def __init__(self, path):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        start = AsyncServer.start(path, handle, on_watch=lambda request: [{"event": "hello"}])
        try:
            self.server = asyncio.run_coroutine_threadsafe(start, self.loop).result()
        except BaseException:
            self._end()
            raise

    def publish(self, event, **fields):
        self.loop.call_soon_threadsafe(lambda: self.server.publish(event, **fields))

    def stop(self):
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result()
        self._end()

    def _end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(params=[SelectorThread, AsyncThread])
def kind(request):
    return request.param


@pytest.fixture
def server(kind, tmp_path):
    running = kind(tmp_path / "h0.sock")
    yield running
    running.stop()


@pytest.fixture
def client(server, tmp_path):
    with JsonlClient(tmp_path / "h0.sock") as connected:
        yield connected


def raw(path, data):
    """The lines a server sends back for raw bytes, until it closes or we do."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(str(path))
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := sock.recv(1 << 16):
            got += chunk
    return [json.loads(line) for line in got.splitlines()]


def test_request__answered_with_fields(client):
    assert client.request("add", a=1, b=2) == {"sum": 3}
    assert client.request("later") == {"late": True}


def test_request__refusal_has_context_and_reason(client):
    with pytest.raises(JsonlPeerError) as caught:
        client.request("refuse")
    assert str(caught.value) == "h0: refuse: no host 'h9' (has: h0, h1)"
    assert caught.value.reason == "no host 'h9' (has: h0, h1)"


def test_request__bug_in_handler_is_an_answer(client):
    with pytest.raises(JsonlPeerError, match="internal error in op 'add': KeyError: 'a'"):
        client.request("add")
    with pytest.raises(JsonlPeerError, match="cannot be sent as JSON"):
        client.request("unsendable")
    assert client.request("add", a=1, b=1) == {"sum": 2}


def test_request__timeout_then_next_request_gets_its_own_answer(client):
    with pytest.raises(JsonlTimeout, match="h0: never: no answer in time"):
        client.request("never", timeout_s=0.05)
    assert client.request("add", a=2, b=2) == {"sum": 4}


@pytest.mark.parametrize(
    "line, error",
    [
        (b"{nonsense\n", "not JSON"),
        (b"[1, 2]\n", "a message is one JSON object"),
        (b'{"id": 4}\n', 'a request needs "op"'),
        (b'{"op": 7, "id": 4}\n', 'a request needs "op"'),
        (b"\xff\xfe\x00\n", "not JSON"),
        (b"[" * 200_000 + b"\n", "not JSON"),
        (b'{"op": "add", "a": ' + b"9" * 5000 + b"}\n", "not JSON"),
    ],
)
def test_server__bad_line_is_refused_and_the_connection_lives(server, tmp_path, line, error):
    refusal, answer = raw(tmp_path / "h0.sock", line + b'{"op":"add","id":"x","a":1,"b":2}\n')
    assert refusal["ok"] is False and error in refusal["error"]
    assert answer == {"id": "x", "ok": True, "sum": 3}


def test_server__many_requests_in_one_write_and_empty_lines(server, tmp_path):
    data = b"\n\n" + b"".join(b'{"op":"add","id":%d,"a":1,"b":%d}\n\n' % (n, n) for n in range(100))
    assert [m["sum"] for m in raw(tmp_path / "h0.sock", data)] == list(range(1, 101))


def test_server__endless_line_ends_that_connection_only(server, client, tmp_path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(tmp_path / "h0.sock"))
        sock.settimeout(10)
        got = b""
        try:
            for _ in range(rpc.MAX_LINE_BYTES // 65536 + 64):
                sock.sendall(b"x" * 65536)
        except OSError:
            pass  # the server has closed already
        with contextlib.suppress(ConnectionResetError):
            got = sock.recv(1000)
    assert got == b"" or b"line longer than" in got
    assert client.request("add", a=1, b=1) == {"sum": 2}


def test_watch__snapshot_then_events_then_end(kind, tmp_path):
    running = kind(tmp_path / "h0.sock")
    watch = JsonlClient(tmp_path / "h0.sock").watch()
    assert watch.get(5) == {"event": "hello"}
    assert watch.get(0.01) is None
    running.publish("fault", link="p1-t0-0 p1-t1-1", t=12.5)
    running.publish("port")
    assert watch.get(5) == {"event": "fault", "t": 12.5, "link": "p1-t0-0 p1-t1-1"}
    second = watch.get(5)
    assert second["event"] == "port" and isinstance(second["t"], float)
    running.stop()
    assert list(watch) == []
    watch.close()


def test_watch__client_that_left_does_not_disturb(server, client):
    client.watch().close()
    for _ in range(20):
        server.publish("tick")
    assert client.request("add", a=1, b=1) == {"sum": 2}


def test_client__reconnects_to_a_restarted_server(kind, tmp_path):
    first = kind(tmp_path / "h0.sock")
    client = JsonlClient(tmp_path / "h0.sock")
    assert client.request("add", a=1, b=1) == {"sum": 2}
    first.stop()
    assert not (tmp_path / "h0.sock").exists()
    with pytest.raises(JsonlError, match="nobody listens"):
        client.request("add", a=1, b=1)
    second = kind(tmp_path / "h0.sock")
    assert client.request("add", a=1, b=1) == {"sum": 2}
    client.close()
    second.stop()


def test_listen__stale_file_replaced_live_one_refused(kind, tmp_path):
    path = tmp_path / "h0.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    running = kind(path)
    with pytest.raises(JsonlError, match="another process answers there"):
        kind(path)
    running.stop()


def test_listen__errors_name_the_cause(tmp_path):
    with pytest.raises(JsonlError, match="use a shorter run folder"):
        rpc.listen(tmp_path / ("x" * 120))
    with pytest.raises(JsonlError, match="No such file or directory"):
        rpc.listen(tmp_path / "missing" / "h0.sock")
    (tmp_path / "file").write_text("x")
    with pytest.raises(JsonlError, match="is no socket"):
        rpc.listen(tmp_path / "file")


def test_client__dead_socket_file_says_so(tmp_path):
    path = tmp_path / "h0.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(JsonlError, match="left from a process that ended"):
        JsonlClient(path).request("status")


def test_line_buffer__any_cut_gives_the_same_lines():
    data = b'{"a":1}\n\n{"b":2}\nrest'
    for cut in range(len(data)):
        buffer = LineBuffer()
        assert buffer.feed(data[:cut]) + buffer.feed(data[cut:]) == [b'{"a":1}', b'{"b":2}']
        assert buffer.feed(b"\n") == [b"rest"]
