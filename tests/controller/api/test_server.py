"""The northbound HTTP server and its client, without a fabric.

Shapes, refusals, hostile requests, event streams.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import stat
import threading
from collections import deque

import pytest

from mrc_testbed.controller.api import server as server_module
from mrc_testbed.controller.api.server import MAX_BODY_BYTES, ApiServer, Refusal, Route
from mrc_testbed.ipc.controller_client import OPERATIONS, Northbound
from mrc_testbed.ipc.rpc import JsonlError, JsonlPeerError, JsonlTimeoutError, event_of
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.lab.targets import make_certificate


class ServerThread:
    """A server in a thread of its own. `publish` may be called from any thread."""

    def __init__(self, run_dir, token=None, tls=None):
        self.run_dir = run_dir
        self.requests = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        routes = [
            Route("GET", "/v1/status", self._take),
            Route("GET", "/v1/faults/{number}", self._take),
            Route("POST", "/v1/verify", self._take),
            Route("GET", "/v1/links", self._refuse),
            Route("GET", "/v1/switches", self._break),
            Route("GET", "/v1/queues", self._wait),
        ]
        self.server = ApiServer(routes, lambda: [event_of("fault", 1.0, {"first": True})], token)
        self.run(self.server.start(run_dir, 0, tls))

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def publish(self, event, **fields):
        self._loop.call_soon_threadsafe(lambda: self.server.publish(event, 2.0, **fields))

    def close(self):
        self.run(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _take(self, fields):
        self.requests.append(fields)
        return {"got": fields}

    async def _refuse(self, fields):
        raise Refusal(409, "links are out of reach", "ask for another")

    def _break(self, fields):
        raise KeyError("bug")

    async def _wait(self, fields):
        await asyncio.sleep(5)
        return {}


@pytest.fixture
def server_thread(tmp_path):
    thread = ServerThread(tmp_path)
    yield thread
    thread.close()


@pytest.fixture
def client(server_thread):
    return Northbound(server_thread.run_dir, timeout_s=10.0)


def raw(server_thread, request):
    """Return the answer to a request as it stands: (status, JSON or text)."""
    host, port = server_thread.server.url[len("http://") :].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(1 << 16):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1]) if head else 0
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body


def test_request__query_path_and_body_become_fields(server_thread, client):
    assert client.request("status") == {"got": {}}
    assert client.request("fault", number=7) == {"got": {"number": "7"}}
    assert client.request("verify", entries=True) == {"got": {"entries": True}}
    assert client.request("status", **{"from": "h0 & co"}) == {"got": {"from": "h0 & co"}}
    assert server_thread.requests[2] == {"entries": True}


def test_request__refusals_are_json_with_cause_and_cure(server_thread, client):
    with pytest.raises(JsonlPeerError, match="controller: links: links are out of reach: ask for another") as caught:
        client.request("links")
    assert caught.value.reason == "links are out of reach"
    with pytest.raises(JsonlPeerError, match="internal error: KeyError: 'bug'"):
        client.request("switches")
    assert raw(server_thread, b"GET /v1/links HTTP/1.0\r\nHost: localhost\r\n\r\n") == (
        409,
        {"error": "links are out of reach", "cure": "ask for another"},
    )


@pytest.mark.parametrize("path", ["/v1/status", "/v1/events"])
def test_head__is_answered_as_get_without_a_body(server_thread, path):
    """The stream of events does not begin."""
    request = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    assert raw(server_thread, request) == (200, b"")


def test_request__takes_no_longer_than_asked(client):
    with pytest.raises(JsonlTimeoutError, match="controller: queues: no answer in time"):
        client.request("queues", timeout_s=0.05)


def test_request__unknown_op_lists_all(client):
    with pytest.raises(JsonlPeerError, match=r"no op 'x' \(has: status, faults, fault, .*shutdown\)"):
        client.request("x")
    assert set(OPERATIONS) >= {"status", "faults", "links", "switches", "evs", "counters", "queues", "denylist"}


def test_client__without_a_controller_says_so(tmp_path):
    with pytest.raises(JsonlError, match=r"controller: status: nobody listens: .*controller.sock is missing"):
        Northbound(tmp_path).request("status")
    with socket.socket(socket.AF_UNIX) as dead_socket:
        dead_socket.bind(str(RunFiles(tmp_path).controller_socket))
    with pytest.raises(JsonlError, match="nobody listens at its address any more"):
        Northbound(tmp_path).request("status")
    with pytest.raises(JsonlError, match=r"socket path .* use a shorter run folder"):
        Northbound(tmp_path / ("x" * 100)).request("status")


def test_address_file_and_socket__go_with_the_server(tmp_path):
    files, server_thread = RunFiles(tmp_path), ServerThread(tmp_path)
    assert json.loads(files.controller_file.read_text())["url"] == server_thread.server.url
    assert stat.S_IMODE(files.controller_socket.stat().st_mode) == 0o600
    server_thread.close()
    assert not files.controller_file.exists() and not files.controller_socket.exists()


def test_socket_of_a_successor__stays_when_the_server_goes(tmp_path):
    files, server_thread = RunFiles(tmp_path), ServerThread(tmp_path)
    files.controller_socket.unlink()
    files.controller_socket.write_text("")
    server_thread.close()
    assert files.controller_socket.exists()


def test_port_that_is_taken__leaves_neither_socket_nor_address(tmp_path):
    server = ApiServer([], list)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(JsonlError, match="give --http another port"),
    ):
        asyncio.run(server.start(tmp_path, listener.getsockname()[1]))
    assert not list(tmp_path.iterdir())


def test_token__is_wanted_by_tcp_and_not_by_the_socket(tmp_path):
    server_thread = ServerThread(tmp_path, token="secret")
    try:
        head = "GET /v1/status HTTP/1.0\r\nHost: localhost\r\n"
        for header in ("", "Authorization: Bearer other\r\n", "Authorization: secret\r\n"):
            status, answer = raw(server_thread, f"{head}{header}\r\n".encode())
            assert status == 401 and "--unix-socket" in answer["cure"]
        assert server_thread.requests == []
        assert raw(server_thread, f"{head}Authorization: Bearer secret\r\n\r\n".encode())[0] == 200
        assert Northbound(tmp_path).request("status") == {"got": {}}
        with Northbound(tmp_path).watch() as watch:
            assert watch.get(5)["first"] is True
    finally:
        server_thread.close()


def test_tls__refuses_plain_text_and_wants_the_token_still(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server_thread = ServerThread(tmp_path, token="secret", tls=tls)
    try:
        assert server_thread.server.url.startswith("https://127.0.0.1:")
        request = b"GET /v1/status HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"
        host, port = server_thread.server.url[len("https://") :].split(":")
        with socket.create_connection((host, int(port)), timeout=10) as plain, contextlib.suppress(ConnectionError):
            plain.sendall(request)
            assert not plain.recv(1 << 16).startswith(b"HTTP")
        assert server_thread.requests == []
        for headers, status in (({}, 401), ({"Authorization": "Bearer secret"}, 200)):
            trusting = ssl.create_default_context(cafile=str(certificate))
            with contextlib.closing(http.client.HTTPSConnection(host, int(port), context=trusting)) as connection:
                connection.request("GET", "/v1/status", headers=headers)
                assert connection.getresponse().status == status
        assert Northbound(tmp_path).request("status") == {"got": {}}
    finally:
        server_thread.close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "169.254.0.1"])
def test_guard__a_host_that_is_not_loopback_is_refused(server_thread, host):
    status, answer = raw(
        server_thread, f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    )
    assert status in (400, 403) and server_thread.requests == []
    if status == 403:
        assert "is not loopback" in answer["error"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9340", "[::1]:80", "LOCALHOST"])
def test_guard__loopback_by_any_name_is_served(server_thread, host):
    request = f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert raw(server_thread, request.encode())[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Type: application/json\r\nOrigin: http://evil.example\r\n", 403),
        ("Content-Type: application/json\r\nOrigin: null\r\n", 403),
        ("Content-Type: text/plain\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("", 415),
        ("Content-Type: application/json\r\n", 200),
        ("Content-Type: application/json\r\nOrigin: http://localhost\r\n", 200),
    ],
)
def test_guard__posts_of_other_pages_do_nothing(server_thread, headers, status):
    request = (
        f"POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: 2\r\n\r\n{{}}"
    )
    assert raw(server_thread, request.encode())[0] == status
    assert bool(server_thread.requests) is (status == 200)


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"null", b"[" * 60_000, b"\xff\xfe", b'{"a":' * 10_000])
def test_post__a_body_that_is_no_object_is_refused(server_thread, body):
    head = "POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    status, answer = raw(server_thread, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert status == 400 and answer["error"] and answer["cure"]


def test_post__too_long_a_body_is_refused(server_thread):
    body = b'"' + b"x" * MAX_BODY_BYTES + b'"'
    head = "POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    assert raw(server_thread, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)[0] == 413


@pytest.mark.parametrize(
    ("line", "status"), [("GET /", 404), ("GET /v1/nothing", 404), ("DELETE /v1/status", 405), ("POST /v1/status", 405)]
)
def test_paths__unknown_ones_list_what_there_is(server_thread, line, status):
    got, answer = raw(server_thread, f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert got == status and "GET /v1/events" in answer["cure"]


@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b"GET\r\n\r\n", b"x" * 100_000, b"GET / HTTP/9.9\r\n\r\n"])
def test_garbage__hurts_nobody_else(server_thread, client, garbage):
    host, port = server_thread.server.url[len("http://") :].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):  # whatever it says to that, it may also just close
            while connection.recv(1 << 16):
                pass
    assert client.request("status") == {"got": {}}


# ---- events -------------------------------------------------------------------------------------------------


def test_events__snapshot_first_then_all(server_thread, client):
    with client.watch() as watch:
        assert watch.get(5) == {"event": "fault", "t": 1.0, "first": True}
        server_thread.publish("port", interface="x", status="UP")
        server_thread.publish("fault", n=1)
        assert watch.get(5) == {"event": "port", "t": 2.0, "interface": "x", "status": "UP"}
        assert watch.get(5)["n"] == 1
        assert watch.get(0.01) is None
        assert watch.fileno() >= 0


def test_events__narrowed_to_some(server_thread, client):
    with client.watch(events="port,switch") as watch:
        server_thread.publish("fault", n=1)
        server_thread.publish("port", n=2)
        assert watch.get(5)["n"] == 2


def test_events__a_watcher_that_leaves_or_sleeps_disturbs_nobody(server_thread, client, monkeypatch):
    monkeypatch.setattr(server_module, "MAX_BACKLOG", 50)
    sleeper, leaver = client.watch(), client.watch()
    leaver.close()
    with client.watch() as watch:
        for number in range(3000):
            server_thread.publish("port", n=number, pad="x" * 4000)
            while number % 20 == 0 and watch.get(5).get("n") != number:
                pass  # this one reads all there is, however long the server takes
        server_thread.publish("switch", last=True)
        while (event := watch.get(5)) is not None and event["event"] != "switch":
            pass
        assert event["last"] is True
    with pytest.raises(JsonlError, match="watch: "):
        deque(iter(lambda: sleeper.get(5), None), maxlen=0)
    sleeper.close()


def test_events__end_with_the_server(tmp_path):
    server_thread = ServerThread(tmp_path)
    watch = Northbound(tmp_path).watch()
    server_thread.close()
    assert [event["event"] for event in watch] == ["fault"]
    with pytest.raises(JsonlError):
        watch.get(1)
    watch.close()
    watch.close()


def test_events__half_of_one_is_none(tmp_path):
    """The stream breaks within an event: it is lost, and what comes is an error."""
    stream_data = b'HTTP/1.0 200 OK\r\n\r\nevent: port\ndata: {"event":"port","n":1}\n\nevent: port\ndata: {"event":"po'
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(RunFiles(tmp_path).controller_socket))
        listener.listen()
        threading.Thread(target=_answer, args=(listener, stream_data), daemon=True).start()
        with Northbound(tmp_path).watch() as watch:
            assert watch.get(5) == {"event": "port", "n": 1}
            with pytest.raises(JsonlError, match="the controller closed the connection"):
                watch.get(5)


def _answer(listener, data):
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    connection.sendall(data)
    connection.close()


def test_events__other_clients_read_them_too(server_thread):
    """Events are read as a browser or curl does: HTTP/1.1, chunked."""
    host, port = server_thread.server.url[len("http://") :].split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/v1/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.readline() == b"event: fault\n"
    assert json.loads(answer.readline()[len(b"data:") :])["first"] is True
    connection.close()
