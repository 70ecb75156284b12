"""Northbound HTTP server: JSON answers and an event stream (docs/northbound.md).

It listens on a Unix socket and on loopback. It knows HTTP and nothing of the fabric: the application gives it one
handler for each route. A process that can open the socket may ask; by TCP any user of the machine can connect, so the
run's token is required there. As any web page a user looks at may send requests to loopback, the Host header must name
loopback (no DNS rebinding), and a POST must be JSON and must not come from another origin.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from mrc_testbed.controller.api.http_log import http_logger
from mrc_testbed.controller.errors import ControllerError
from mrc_testbed.ipc.framing import JsonlError, event_of, listen
from mrc_testbed.ipc.rundir import RunFiles, write_private
from mrc_testbed.switch.system.unix_socket import remove_own

PREFERRED_PORT = 9340
"""Port that is used when it is free; otherwise any port. `controller.json` has the port in use."""
LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 1 << 16
MAX_BACKLOG = 20_000
"""Events kept for a watcher that does not read; beyond it the stream is closed."""
KEEPALIVE_S = 15.0

Message = dict[str, Any]
Handler = Callable[[Message], "Answer | Awaitable[Answer]"]
"""Gets the path's and the query's or body's fields, returns the answer. Raises Refusal."""

PATHS: web.AppKey[Iterable[str]] = web.AppKey("paths", list)
"""All routes, as 404 responses list them."""

TOKEN: web.AppKey[str | None] = web.AppKey("token")
"""Token that requests by TCP have to show."""

log = logging.getLogger(__name__)


class Refusal(ControllerError):  # noqa: N818 - an answer with its status, not an error of ours
    """A request that cannot be served: HTTP status, what and why, and what would have worked."""

    def __init__(self, status: int, error: str, cure: str | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.cure = cure

    def response(self) -> web.Response:
        return web.json_response({"error": str(self), "cure": self.cure}, status=self.status)


@dataclass(frozen=True, slots=True)
class Text:
    """Answer that is no JSON."""

    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class AnswerByAccept:
    """Answer in the form that the client's Accept header prefers."""

    choose: Callable[[str], Text]


Answer = Message | Text | AnswerByAccept


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint of the API."""

    method: str
    path: str
    """aiohttp's pattern, such as `/v1/faults/{number}`."""
    handler: Handler


class ApiServer:
    """Server of the API. Use `start`, `publish`, `close`.

    `snapshot()` returns the first events of a new watcher.
    """

    def __init__(
        self, routes: Iterable[Route], snapshot: Callable[[], list[Message]], token: str | None = None
    ) -> None:
        """Make a server; `token`: requests by TCP show it as `Authorization: Bearer TOKEN`; None: not needed."""
        self._snapshot = snapshot
        self._watchers: dict[asyncio.Queue[Message | None], tuple[frozenset[str], asyncio.Transport | None]] = {}
        """Watchers: queue of unsent events > (kinds of events wanted (empty: all), connection)."""
        self._app = web.Application(middlewares=[_guard], client_max_size=MAX_BODY_BYTES)
        self._paths = []
        for route in routes:
            handler = _aiohttp_handler(route.handler)
            # HEAD is answered wherever GET is (RFC 9110 9.1); aiohttp leaves out the body.
            for method in (route.method, *(("HEAD",) if route.method == "GET" else ())):
                self._app.router.add_route(method, route.path, handler)
            self._paths.append(f"{route.method} {route.path}")
        self._app.router.add_get("/v1/events", self._events)
        self._paths.append("GET /v1/events")
        self._app[PATHS] = self._paths
        self._app[TOKEN] = token
        self._runner: web.AppRunner | None = None
        self._files: RunFiles | None = None
        self._inode = 0
        """Inode of the Unix socket."""
        self.url = ""

    async def start(self, run_dir: Path, port: int | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Listen on the run folder's socket and on loopback, and write `controller.json`.

        `port`: None is PREFERRED_PORT or any, 0 any. `tls`: for TCP; None: plain text. Raises JsonlError when the
        socket or the port is taken.
        """
        files = RunFiles(run_dir)
        unix = listen(files.controller_socket)
        self._files, self._inode = files, files.controller_socket.stat().st_ino
        self._runner = web.AppRunner(
            self._app, access_log=None, shutdown_timeout=0.5, logger=http_logger("mrc_testbed.controller.api.http")
        )
        await self._runner.setup()
        await web.SockSite(self._runner, unix).start()
        ports = (PREFERRED_PORT, 0) if port is None else (port,)
        for number in ports:
            try:
                site = web.TCPSite(self._runner, LOOPBACK, number, ssl_context=tls)
                await site.start()
                break
            except OSError as error:
                if number == ports[-1]:
                    await self.close()
                    raise JsonlError(
                        f"cannot listen on {LOOPBACK}:{number}: {error.strerror or error}: give --http another port"
                    ) from error
        host, number = self._runner.addresses[1][:2]
        self.url = f"{'http' if tls is None else 'https'}://{host}:{number}"
        write_private(files.controller_file, json.dumps({"url": self.url, "pid": os.getpid()}) + "\n")

    async def close(self) -> None:
        """End all streams and stop listening. Idempotent."""
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        for queue in self._watchers:
            queue.put_nowait(None)
        await runner.cleanup()
        if self._files is not None:
            remove_own(self._files.controller_socket, self._inode)
            try:
                if json.loads(self._files.controller_file.read_text()).get("pid") == os.getpid():
                    self._files.controller_file.unlink()
            except (OSError, ValueError):
                pass  # gone, or a successor's half-written one: not ours to remove

    def publish(self, event: str, t: float, **fields: Any) -> None:
        """Send an event to every watcher; `t` is CLOCK_MONOTONIC seconds."""
        message = event_of(event, t, fields)
        for queue, (names, transport) in list(self._watchers.items()):
            if names and event not in names:
                continue
            if queue.qsize() >= MAX_BACKLOG:
                log.warning("a watcher does not read; its stream is closed")
                self._watchers.pop(queue, None)
                if transport is not None:
                    transport.abort()
            else:
                queue.put_nowait(message)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        names = frozenset(filter(None, request.query.get("events", "").split(",")))
        queue: asyncio.Queue[Message | None] = asyncio.Queue()
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        # Between the snapshot and joining the watchers nothing may be awaited, or an event could fall in between.
        if request.method == "HEAD":
            return response
        first = [m for m in self._snapshot() if not names or m["event"] in names]
        self._watchers[queue] = (names, request.transport)
        try:
            await response.prepare(request)
            await response.write(b"".join(_sse(message) for message in first) or b": here\n\n")
            while True:
                try:
                    message = await asyncio.wait_for(queue.get(), KEEPALIVE_S)
                except asyncio.TimeoutError:
                    await response.write(b": still here\n\n")
                    continue
                if message is None:
                    break
                batch = [_sse(message)]
                while not queue.empty() and message is not None:
                    message = queue.get_nowait()
                    batch += [_sse(message)] if message is not None else []
                await response.write(b"".join(batch))
                if message is None:
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # the watcher left, or we close
        finally:
            self._watchers.pop(queue, None)
        return response


def _sse(message: Message) -> bytes:
    text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    return f"event: {message['event']}\ndata: {text}\n\n".encode()


def _aiohttp_handler(handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve(request: web.Request) -> web.StreamResponse:
        fields: Message = await _body(request) if request.method == "POST" else dict(request.query)
        fields |= request.match_info
        answer = handler(fields)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, AnswerByAccept):
            answer = answer.choose(", ".join(request.headers.getall("Accept", ())))
        if isinstance(answer, Text):
            return web.Response(body=answer.body, headers={"Content-Type": answer.content_type})
        return web.json_response(answer)

    return serve


async def _body(request: web.Request) -> Message:
    if request.content_type != "application/json":
        raise Refusal(415, "a POST needs Content-Type: application/json", "curl -H 'Content-Type: application/json'")
    try:
        data = await request.read()
        body = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Refusal(
            400, f"the body is not JSON: {error or type(error).__name__}", "send an object, such as {}"
        ) from None
    if not isinstance(body, dict):
        raise Refusal(400, "the body is not a JSON object", 'send an object, such as {"policy": "lossy"}')
    return body


@web.middleware
async def _guard(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Check the origin of a request, and answer every error as JSON."""
    try:
        _check_origin(request)
        _check_token(request)
        return await handler(request)
    except Refusal as refusal:
        return refusal.response()
    except web.HTTPRequestEntityTooLarge:
        return Refusal(413, f"the body has more than {MAX_BODY_BYTES} bytes", "send less").response()
    except web.HTTPException as error:
        paths = ", ".join(request.app[PATHS])
        return Refusal(
            error.status, f"{request.method} {request.path}: {error.reason}", f"available paths: {paths}"
        ).response()
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        text = f"internal error: {type(error).__name__}: {error}"
        return Refusal(500, text, "see log/controller.log in the run folder").response()


def _check_token(request: web.Request) -> None:
    """Raise Refusal for a request by TCP without the token: any user of the machine reaches loopback."""
    door = request.get_extra_info("socket")
    if door is not None and door.family == socket.AF_UNIX:
        return
    token = request.app[TOKEN]
    authorization = request.headers.get("Authorization", "")
    if token is not None and not hmac.compare_digest(
        authorization.encode("utf-8", "replace"), f"Bearer {token}".encode()
    ):
        raise Refusal(
            401,
            "this API takes requests by TCP only with the owner's token",
            'curl --unix-socket RUN-FOLDER/controller.sock http://localhost/..., or -H "Authorization: Bearer '
            '$(cat RUN-FOLDER/token)", or start with `mrc up --open`',
        )


def _check_origin(request: web.Request) -> None:
    host = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdecimal() else request.host
    if host.strip("[]").lower() not in ("127.0.0.1", "localhost", "::1"):
        raise Refusal(
            403, f"Host {request.host!r} is not loopback", "ask http://127.0.0.1:PORT as controller.json says"
        )
    origin = request.headers.get("Origin")
    if request.method not in ("GET", "HEAD") and origin is not None and origin != f"{request.scheme}://{request.host}":
        raise Refusal(403, f"a request from another origin ({origin})", "ask from a page of this server, or with curl")
