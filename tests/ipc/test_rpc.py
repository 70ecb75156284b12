"""JSON-lines protocol: answers of the server, its stand against hostile clients, and both clients."""

import asyncio
import contextlib
import gc
import json
import socket
import threading

import pytest

from mrc_testbed.ipc import rpc
from mrc_testbed.ipc.rpc import (
    JsonlClient,
    JsonlError,
    JsonlPeerError,
    JsonlTimeoutError,
    LineBuffer,
    RpcClient,
    RpcServer,
)


async def answer_later(request):
    await asyncio.sleep(0.05)
    if request["n"] < 0:
        raise JsonlError("n is negative")
    return {"n": request["n"]}


def handle(request, call):
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
            call.answer({"late": True})
            return None
        case "awaited":
            return answer_later(request)
        case other:
            raise JsonlError(f"no op {other!r} (has: add, refuse)")


class ServerThread:
    """An RpcServer in a thread."""

    def __init__(self, path):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        start = RpcServer.start(path, handle, on_watch=lambda request: [{"event": "hello"}])
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


@pytest.fixture
def server(tmp_path):
    running = ServerThread(tmp_path / "h0.sock")
    yield running
    running.stop()


@pytest.fixture
def client(server, tmp_path):
    with JsonlClient(tmp_path / "h0.sock") as connected:
        yield connected


def raw(path, data):
    """Return the lines a server sends back for raw bytes, until it closes or we do."""
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
    with pytest.raises(JsonlTimeoutError, match="h0: never: no answer in time"):
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


def test_watch__snapshot_then_events_then_end(tmp_path):
    running = ServerThread(tmp_path / "h0.sock")
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


def test_client__reconnects_to_a_restarted_server(tmp_path):
    first = ServerThread(tmp_path / "h0.sock")
    client = JsonlClient(tmp_path / "h0.sock")
    assert client.request("add", a=1, b=1) == {"sum": 2}
    first.stop()
    assert not (tmp_path / "h0.sock").exists()
    with pytest.raises(JsonlError, match="nobody listens"):
        client.request("add", a=1, b=1)
    second = ServerThread(tmp_path / "h0.sock")
    assert client.request("add", a=1, b=1) == {"sum": 2}
    client.close()
    second.stop()


def test_listen__stale_file_replaced_live_one_refused(tmp_path):
    path = tmp_path / "h0.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    running = ServerThread(path)
    with pytest.raises(JsonlError, match="another process answers there"):
        ServerThread(path)
    running.stop()


def test_listen__shows_the_file_when_somebody_listens(tmp_path, monkeypatch):
    """Between bind and listen a client would be refused, and say that the server has ended."""
    path, path_states = tmp_path / "h0.sock", []

    class WatchedSocket(socket.socket):
        def listen(self, backlog):
            path_states.append(path.exists())
            super().listen(backlog)

    (tmp_path / "h0.sock~").write_text("of one that was killed")
    monkeypatch.setattr(socket, "socket", WatchedSocket)
    with rpc.listen(path):
        assert path_states == [False] and [entry.name for entry in tmp_path.iterdir()] == ["h0.sock"]
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


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
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with pytest.raises(JsonlError, match="left from a process that ended"):
        JsonlClient(path).request("status")


def test_line_buffer__any_cut_gives_the_same_lines():
    data = b'{"a":1}\n\n{"b":2}\nrest'
    for cut in range(len(data)):
        buffer = LineBuffer()
        assert buffer.feed(data[:cut]) + buffer.feed(data[cut:]) == [b'{"a":1}', b'{"b":2}']
        assert buffer.feed(b"\n") == [b"rest"]


# ---- the asyncio client -------------------------------------------------------------------------------------


def run_story(tmp_path, story, on_watch=None):
    """Run `story(server, client)` in one loop."""

    async def run():
        server = await RpcServer.start(tmp_path / "h2.sock", handle, on_watch=on_watch)
        client = await RpcClient.connect(tmp_path / "h2.sock", peer="its agent", hint=" (see log/h2.log)")
        try:
            await story(server, client)
        finally:
            client.close()
            await server.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_call__answers_refusals_and_the_end_of_the_server(tmp_path):
    lost = []

    async def story(server, client):
        client.on_lost = lost.append
        assert await client.call("add", a=1, b=2) == {"sum": 3}
        with pytest.raises(JsonlPeerError, match=r"^h2: refuse: no host 'h9' \(has: h0, h1\)$"):
            await client.call("refuse")
        waiting = client.call("never")
        await client.call("add", a=1, b=2)  # by then the server has read what is before it
        await server.close()
        with pytest.raises(JsonlError, match=r"^h2: never: its agent closed the connection \(see log/h2.log\)$"):
            await waiting
        with pytest.raises(JsonlError, match="h2: add: its agent has closed the connection"):
            await client.call("add", a=1, b=2)

    run_story(tmp_path, story)
    assert lost == ["h2: its agent closed the connection (see log/h2.log)"]


def test_call__one_that_waits_holds_up_no_other(tmp_path):
    async def story(server, client):
        slow_call, stuck_call, failing_call = (
            client.call("awaited", n=1),
            client.call("never"),
            client.call("awaited", n=-1),
        )
        assert await client.call("add", a=1, b=2) == {"sum": 3} and not slow_call.done()
        assert await slow_call == {"n": 1}
        with pytest.raises(JsonlPeerError, match="h2: awaited: n is negative"):
            await failing_call
        client.notify("refuse")
        await client.call("add", a=1, b=2)
        client.close()
        with pytest.raises(JsonlError, match="h2: never: the connection was closed here"):
            await stuck_call

    run_story(tmp_path, story)


def test_call__that_nobody_awaits_is_not_logged(tmp_path, caplog):
    async def story(server, client):
        client.call("never")
        client.notify("refuse")
        await client.call("add", a=1, b=2)
        client.close()
        gc.collect()

    run_story(tmp_path, story)
    assert "never retrieved" not in caplog.text


def test_connect__nobody_listens(tmp_path):
    with pytest.raises(FileNotFoundError):
        asyncio.run(RpcClient.connect(tmp_path / "h2.sock"))


def test_watch__begins_with_the_agreement_and_ends_with_the_server(tmp_path):
    events = []

    async def story(server, client):
        async for event in client.watch(events=["port"]):
            events.append(event)
            if len(events) == 1:
                server.publish("ev", t=1.0)
                server.publish("port", t=2.0)
            elif event["event"] == "port":
                await server.close()

    run_story(tmp_path, story, on_watch=lambda request: [{"event": "hello"}])
    assert events == [{}, {"event": "hello"}, {"event": "port", "t": 2.0}]


def test_on_close__tells_once_that_a_client_has_gone(tmp_path):
    closed_ops = []

    def handler(request, call):
        call.client.on_close(lambda: closed_ops.append(request["op"]))
        return {}

    async def run():
        server = await RpcServer.start(tmp_path / "s", handler)
        client = await RpcClient.connect(tmp_path / "s")
        await client.call("a")
        client.close()
        while not closed_ops:
            await asyncio.sleep(0)
        await server.close()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert closed_ops == ["a"]
