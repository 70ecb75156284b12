"""Server of the live view: one page, a stream of changes, and commands; on loopback, behind a key.

    server = DashServer(session)
    url = server.start()          # http://127.0.0.1:9341/?key=...; also in dash.json of the run folder
    server.close()

    GET  /?key=K         gives the browser a cookie and leads to /
    GET  /               the page; its scripts and styles are those of page_files.py
    GET  /plan           the drawing (drawing.py)
    GET  /stream         server-sent events: `state` whole, then `change`; each has an id, and a browser that comes back
                         with Last-Event-ID gets what it missed while that is still kept
    GET  /evs?from=&to=  health of the paths between two hosts, as the word `evs` has it, without probes
    POST /command        {"command": "link p0-t0-0 p0-t1-1 down"}: a word of the prompt, one of COMMANDS; answers
                         {"said": text}, or 4xx with {"error": text}

Any page a user looks at may send requests to loopback, and so may any user of this machine. Hence: Host must name
loopback (no DNS rebinding), everything needs the cookie that only the key gives (SameSite=Strict), a POST must come
from this page's Origin and carry a header that other origins cannot send. The page may load nothing but itself.

The fabric is looked at twice a second, in a thread, and only while somebody watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from mrc_testbed.cli.prompt.commands import WORDS, Answer, CliSession, CommandError
from mrc_testbed.console.units import UnitError
from mrc_testbed.controller.api.http_log import http_logger
from mrc_testbed.dash import page_files
from mrc_testbed.dash.drawing import drawing
from mrc_testbed.dash.view import FabricView, State, difference
from mrc_testbed.doctor import rootless
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.ipc.rundir import FabricError, RunFiles, write_private
from mrc_testbed.topologies.plan import PlanError

LOOPBACK = "127.0.0.1"
PREFERRED_PORT = 9341
"""Port that the server takes when it is free; otherwise any port."""
PERIOD_S = 0.5
"""Between two looks at the fabric."""
EVENTS_MAX = 240
"""Changes kept for browsers that come back: two minutes."""
BACKLOG_MAX = 400
"""Changes for a browser that does not read; beyond it, its stream is closed and it begins anew."""
KEEPALIVE_S = 15.0
BODY_MAX = 4096
COMMAND_HEADER = "X-MRC-Dash"
"""Header of every command; its value does not matter, but no other origin may send it."""
COMMANDS = (
    "link",
    "power",
    "rate",
    "delay",
    "loss",
    "corrupt",
    "oneway",
    "blackhole",
    "flap",
    "reboot",
    "heal",
    "send",
    "trace",
)
"""Words that the page may use."""
SAFETY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
USER_ERRORS = (FabricError, PlanError, JsonlError, CommandError, UnitError)
"""Errors that are the user's or the fabric's."""

log = logging.getLogger(__name__)


class DashServer:
    """Live view of one session of a CLI. Runs in a thread of its own."""

    def __init__(
        self, session: CliSession, *, port: int | None = None, key: str | None = None, acts: bool = True
    ) -> None:
        """`port`: None = PREFERRED_PORT or any; `key`: None = a new one; `acts`: the page may break and heal."""
        self._session, self._requested_port, self._acts = session, port, acts
        self._key = key or secrets.token_urlsafe(24)
        self._plan = json.dumps({**drawing(session.plan), "acts": acts}).encode()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        http_logger(__name__, RunFiles(session.fabric.run_dir.path).log("dash"))  # the prompt here is the user's
        self._acting = threading.Lock()
        """One command at a time."""
        self._stream: _Stream | None = None
        self._end: asyncio.Event | None = None

    # ---- life -------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address with the key; empty before start()."""
        return f"http://{LOOPBACK}:{self._port}/?key={self._key}" if self._port else ""

    def start(self) -> str:
        """Listen, and return the address. Idempotent. Raises FabricError when no port is free."""
        if self._thread is None:
            outcomes: deque[Exception | None] = deque()
            start_event = threading.Event()

            def report(error: Exception | None) -> None:
                outcomes.append(error)
                start_event.set()

            def serve() -> None:
                try:
                    asyncio.run(self._serve(report))
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    if not start_event.is_set():
                        report(error)
                    else:
                        self._thread = None
                        self._session.fabric.notice(f"the live view has ended ({reason}). Cure: type `dash`")
                    log.exception("dash")

            # start() returns once the port is known, or raises in the caller's thread.
            thread = threading.Thread(target=serve, name="dash", daemon=True)
            self._thread = thread
            thread.start()
            start_event.wait()
            if (error := outcomes[0]) is not None:
                self._thread = None
                thread.join()
                raise FabricError(f"the live view cannot listen on {LOOPBACK}: {error}")
            self._publish_address()
        return self.url

    def close(self) -> None:
        """Stop listening, end all streams. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._end is None:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        thread.join(timeout=5.0)
        with contextlib.suppress(OSError):
            RunFiles(self._session.fabric.run_dir.path).dash_file.unlink()

    def _publish_address(self) -> None:
        path = RunFiles(self._session.fabric.run_dir.path).dash_file
        write_private(path, json.dumps({"url": self.url, "pid": os.getpid()}))

    async def _serve(self, report: Callable[[Exception | None], None]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._stream = _Stream(FabricView(self._session.fabric, _transfers_of(self._session)))
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_MAX)
        app.router.add_get("/plan", self._get_plan)
        app.router.add_get("/stream", self._get_stream)
        app.router.add_get("/evs", self._get_evs)
        app.router.add_post("/command", self._post_command)
        for path in page_files.CONTENT_TYPES:
            app.router.add_get(path, self._get_page)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, logger=log)
        await runner.setup()
        ports: tuple[int, ...] = (PREFERRED_PORT, 0) if self._requested_port is None else (self._requested_port,)
        try:
            # In a rootless fabric browsers are outside: the socket was opened there.
            listener = rootless.listener()
            if listener is not None:
                ports = ()
                await web.SockSite(runner, listener).start()
            for number in ports:
                try:
                    await web.TCPSite(runner, LOOPBACK, number).start()
                    break
                except OSError as error:
                    # The preferred port may be taken; only the last choice is an error.
                    if number == ports[-1]:
                        report(error)
                        return
            self._port = runner.addresses[0][1]
            report(None)
            look_task = asyncio.create_task(self._stream.look_on())
            end_task = asyncio.create_task(self._end.wait())
            await asyncio.wait((look_task, end_task), return_when=asyncio.FIRST_COMPLETED)
            if look_task.done():
                look_task.result()
            look_task.cancel()
            self._stream.close()
        finally:
            await runner.cleanup()

    # ---- who may ----------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = self._refusal(request)
        if response is None:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = _error(error.status, f"{request.method} {request.path}: {error.reason}")
            except Exception as error:
                log.exception("dash: %s %s", request.method, request.path)
                response = _error(500, f"internal error: {type(error).__name__}: {error}")
        if not response.prepared:
            response.headers.update(SAFETY)
        return response

    def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        origins = {f"{name}:{self._port}" for name in (LOOPBACK, "localhost")}
        if request.headers.get("Host") not in origins:
            return _error(403, f"Host {request.headers.get('Host')!r} is not this machine: use {LOOPBACK}:{self._port}")
        if request.path == "/" and "key" in request.query:
            if not secrets.compare_digest(request.query["key"].encode(), self._key.encode()):
                return _error(403, "wrong key. Cure: use the address that `mrc dash` prints")
            answer = web.Response(status=303, headers={"Location": "/"})
            answer.set_cookie(self._cookie, self._key, httponly=True, samesite="Strict", path="/")
            return answer
        if not secrets.compare_digest(request.cookies.get(self._cookie, "").encode(), self._key.encode()):
            return _error(403, "no key. Cure: use the address that `mrc dash` prints")
        if request.method not in ("GET", "HEAD"):
            if request.headers.get("Origin") not in {f"http://{name}" for name in origins}:
                return _error(403, f"Origin {request.headers.get('Origin')!r} may not give commands")
            if COMMAND_HEADER not in request.headers:
                return _error(403, f"a command needs the header {COMMAND_HEADER}")
        return None

    @property
    def _cookie(self) -> str:
        """Cookies belong to a host, not to a port: two fabrics need two names."""
        return f"mrc-dash-{self._port}"

    # ---- what there is ----------------------------------------------------------------------------------

    async def _get_page(self, request: web.Request) -> web.Response:
        text, kind = page_files.text(request.path), page_files.CONTENT_TYPES[request.path]
        return web.Response(text=text, content_type=kind, charset="utf-8")

    async def _get_plan(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._plan, content_type="application/json")

    async def _get_evs(self, request: web.Request) -> web.Response:
        names = {host.name for host in self._session.plan.hosts}
        source, target = request.query.get("from", ""), request.query.get("to", "")
        if source not in names or target not in names or source == target:
            return _error(400, f"from={source!r} to={target!r}: give two different hosts, from=h0&to=h1")
        try:
            return web.json_response(await asyncio.to_thread(self._health, source, target))
        except (JsonlError, FabricError, PlanError) as error:
            return _error(503, str(error))

    def _health(self, source: str, target: str) -> dict[str, Any]:
        client = JsonlClient(self._session.fabric.run_dir.agent_socket(source), name=source)
        try:
            (peer,) = client.request("health", peer=target)["peers"]
        finally:
            client.close()
        return {"from": source, "to": target, "qps": peer["qps"], "evs": peer["evs"]}

    async def _post_command(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
            line = body["command"]
            if not isinstance(line, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, UnicodeDecodeError):
            return _error(400, 'a command is {"command": "link p0-t0-0 p0-t1-1 down"}')
        try:
            output = await asyncio.to_thread(self._act, line)
        except USER_ERRORS as error:
            return _error(409, str(error))
        assert self._stream is not None
        self._stream.hurry()
        return web.json_response({"said": output})

    def _act(self, line: str) -> str:
        """Run a command of the prompt and return its output. Raises USER_ERRORS."""
        name, *args = line.split() or [""]
        if not self._acts and name in COMMANDS and name != "trace":
            raise CommandError(f"{name}: refused while a scenario runs. Cure: put faults and flows into its file")
        if name not in COMMANDS:
            raise CommandError(f"no command {name!r} of the page. Known: {', '.join(COMMANDS)}")
        out = io.StringIO()
        page_session = CliSession(self._session.fabric, out, transfers=self._session.transfers)
        with self._acting:
            if name not in ("trace", "send"):
                self._session.fabric.notice(f"dash: {line}")
            answer = WORDS[name].run(page_session, args)
        text = answer.text if isinstance(answer, Answer) else answer or ""
        return f"{out.getvalue()}{text}".strip()

    async def _get_stream(self, request: web.Request) -> web.StreamResponse:
        assert self._stream is not None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **SAFETY})
        if request.method == "HEAD":
            return response
        last = request.headers.get("Last-Event-ID", "")
        queue = self._stream.join(int(last) if last.isdigit() and len(last) < 18 else None)
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            while True:
                try:
                    message = await asyncio.wait_for(queue.get(), KEEPALIVE_S)
                except asyncio.TimeoutError:
                    message = b": here\n\n"
                if message is None:
                    break
                await response.write(message)
        except ConnectionError:
            pass
        finally:
            self._stream.leave(queue)
        return response


class _Stream:
    """Reader of the fabric while a watcher is connected; sends all watchers the changes."""

    def __init__(self, view: FabricView) -> None:
        self._view = view
        self._state: State = {}
        self._number = int(time.time() * 1000)
        """Number of the newest event; starts at the time, so that numbers of two servers never mix."""
        self._recent_events: deque[tuple[int, bytes]] = deque(maxlen=EVENTS_MAX)
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._watch_event = asyncio.Event()
        """Set while a watcher is connected."""
        self._hurry_event = asyncio.Event()

    def join(self, last: int | None) -> asyncio.Queue[bytes | None]:
        """Return a queue of events for a new watcher. `last`: number of its newest event, if any."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        messages = [message for number, message in self._recent_events if last is not None and number > last]
        known = last == self._number or (bool(messages) and self._recent_events[0][0] <= (last or 0) + 1)
        if self._state and known:
            for message in messages:
                queue.put_nowait(message)
        elif self._state:
            queue.put_nowait(_event("state", self._number, self._state))
        self._watchers.add(queue)
        self._watch_event.set()
        return queue

    def leave(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._watchers.discard(queue)
        if not self._watchers:
            self._watch_event.clear()

    def close(self) -> None:
        for queue in self._watchers:
            queue.put_nowait(None)

    def hurry(self) -> None:
        """Read the fabric at once, after a command."""
        self._hurry_event.set()

    async def look_on(self) -> None:
        """Read the fabric every PERIOD_S while a watcher is connected."""
        while True:
            await self._watch_event.wait()
            began = time.monotonic()
            try:
                state = await asyncio.to_thread(self._view.read_state)
            except Exception:  # a part that nobody expected to fail: the view lives on
                log.exception("dash: a look failed")
                state = self._state
            first, changes = not self._state, difference(self._state, state)
            self._state = state
            if changes:
                self._number += 1
                message = _event("change", self._number, changes)
                self._recent_events.append((self._number, message))
                self._send(_event("state", self._number, state) if first else message)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._hurry_event.wait(), max(0.05, PERIOD_S - (time.monotonic() - began)))
            self._hurry_event.clear()

    def _send(self, message: bytes) -> None:
        for queue in list(self._watchers):
            if queue.qsize() >= BACKLOG_MAX:
                self._watchers.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)


def _event(name: str, number: int, data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {name}\nid: {number}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


def _transfers_of(session: CliSession) -> Any:
    if session.transfers is None:
        raise CommandError("a live view needs a session with transfers")
    return session.transfers
