"""gRPC servers of the switch: addresses with helpful errors, admission, and a clean, quick stop.

A server listens on TCP, on a Unix socket, or on both. Whoever can open the socket may ask. On TCP any user of the
machine can, so a server with a token wants it in the metadata: `authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError

MAX_MESSAGE_BYTES = 64 << 20
"""Longest gRPC message in either direction.

10,000 table entries in one Write are about 1 MiB, a config some 100 KiB.
"""
STOP_GRACE_S = 0.2

TOKEN_HEADER = "authorization"
TOKEN_MIN = 32
"""Characters of the shortest token that is taken: less could be guessed."""
UNIX = "unix:"

_TCP_LISTEN = "0A"


class AddressError(Exception):
    """Address which cannot be parsed or bound.

    The message names the port and its holder, where /proc shows it.
    """


class BadRequestError(Exception):
    """A message that is not one of its type; raised by the request iterator of a streaming RPC."""


class ListenAddress(NamedTuple):
    """Addresses of one server; either part may be missing."""

    host: str
    """Empty: no TCP."""
    port: int
    socket: Path | None = None
    last_port: int = 0
    """Last of several ports on which the same server listens; 0: `port` alone."""


class _Admission:
    """Decides who may ask."""

    def __init__(self, token: str | None) -> None:
        self._secrets = {} if token is None else {TOKEN_HEADER: f"Bearer {token}".encode(), "password": token.encode()}
        """Accepted secrets by metadata key; gNMI clients limited to passwords give the token as password."""

    async def admit(self, context: Any) -> None:
        """End a call from TCP that shows no token with UNAUTHENTICATED."""
        if not self._secrets or context.peer().startswith(UNIX):
            return
        for key, value in context.invocation_metadata() or ():
            credential = value.encode() if isinstance(value, str) else value
            if key in self._secrets and hmac.compare_digest(credential, self._secrets[key]):
                return
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            "this TCP port wants the owner's token: send metadata `authorization: Bearer TOKEN`, or use "
            "the server's Unix socket",
        )


class _Guarding(grpc.aio.ServerInterceptor):
    """Interceptor that refuses calls without admission.

    Bytes that do not decode are answered with INVALID_ARGUMENT, where gRPC would log a traceback and answer UNKNOWN.
    """

    def __init__(self, token: str | None) -> None:
        self._admission = _Admission(token)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        # No handler: gRPC itself answers UNIMPLEMENTED.
        if handler is None:
            return None

        # gRPC decodes before it calls a handler: the error becomes a request, which the functions below refuse.
        def decode(data: bytes) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError as error:
                return BadRequestError(f"{details.method}: the request cannot be decoded: {error}")

        admit = self._admission.admit

        async def unary_unary(request: Any, context: Any) -> Any:
            await admit(context)
            await _refuse_bad(request, context)
            return await handler.unary_unary(request, context)

        async def unary_stream(request: Any, context: Any) -> AsyncIterator[Any]:
            await admit(context)
            await _refuse_bad(request, context)
            async with aclosing(handler.unary_stream(request, context)) as responses:
                async for response in responses:
                    yield response

        async def stream_stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            await admit(context)
            async with aclosing(handler.stream_stream(_raise_bad(requests), context)) as responses:
                async for response in responses:
                    yield response

        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(stream_stream, decode, handler.response_serializer)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(unary_stream, decode, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(unary_unary, decode, handler.response_serializer)


async def _refuse_bad(request: Any, context: Any) -> None:
    if isinstance(request, BadRequestError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))


async def _raise_bad(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if isinstance(request, BadRequestError):
            raise request
        yield request


def parse_address(text: str, subject: str) -> ListenAddress:
    """Parse the address of a server. Raises AddressError.

    `127.0.0.1:9559`, `[::1]:9559`, `:9559` (loopback) or `unix:/run/switchd/p4runtime.sock`.

    `HOST:PORT,unix:PATH` has both, `HOST:50051-50053` three ports: clients that expect a server for each switch. Raises
    AddressError.
    """
    tcp, mark, path = text.partition(UNIX)
    unix = Path(path) if mark else None
    if unix is not None and not unix.is_absolute():
        raise AddressError(f"{subject}: {text!r} has no absolute path (want unix:PATH as in unix:/run/p4runtime.sock)")
    if unix is not None and not tcp:
        return ListenAddress("", 0, unix)
    match = re.fullmatch(
        r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]*)):(\d{1,5})(?:-(\d{1,5}))?", tcp.removesuffix(",") if unix else tcp
    )
    ports = [int(port) for port in match.groups()[2:] if port] if match else []
    if match is None or ports[-1] > 65535 or ports != sorted(ports) or (unix is not None and not tcp.endswith(",")):
        raise AddressError(
            f"{subject}: {text!r} is no address (want HOST:PORT as in 127.0.0.1:9559 or [::1]:9559, unix:PATH, or both "
            "with a comma between)"
        )
    return ListenAddress(match[1] or match[2] or "127.0.0.1", ports[0], unix, ports[1] if len(ports) > 1 else 0)


def read_token(path: Path | None) -> str | None:
    """Return the token in a file; None for no file.

    Raises AddressError, also where other users may read the file.
    """
    if path is None:
        return None
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read().strip()
    except (OSError, ValueError) as error:
        raise AddressError(f"--token-file {path}: {getattr(error, 'strerror', None) or 'is no ASCII text'}") from None
    if mode & 0o077:
        raise AddressError(f"--token-file {path}: other users may read it (mode {mode & 0o777:04o}): `chmod 600` it")
    if len(token) < TOKEN_MIN or not token.isalnum():
        raise AddressError(
            f"--token-file {path}: want {TOKEN_MIN} letters and digits or more, as of `openssl rand -hex 32`"
        )
    return token


def _listen_unix(server: grpc.aio.Server, path: Path, subject: str) -> None:
    """Add a Unix socket, for this user alone; the file of a dead server is replaced. Raises AddressError."""
    if path.exists():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise AddressError(f"{subject}: cannot listen on {path}: {error.strerror}: remove it") from None
            else:
                raise AddressError(f"{subject}: cannot listen on {path}: another process answers there; stop it first")
    mask = os.umask(0o177)
    try:
        server.add_insecure_port(UNIX + quote(str(path)))
    except RuntimeError as error:
        raise AddressError(f"{subject}: cannot listen on {path}: {error}") from None
    finally:
        os.umask(mask)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_free(host: str, port: int, subject: str) -> None:
    """Raises AddressError when `port` cannot be bound, naming its holder. Port 0 is always free."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise AddressError(f"{subject}: cannot resolve host {host!r}: {error.strerror}") from None
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise AddressError(
                f"{subject}: cannot listen on {_join(host, port)}: {error.strerror}{_held_by(port)}"
            ) from None


def _held_by(port: int) -> str:
    holder = port_holder(port)
    return f" (held by {holder}; stop it or choose another port)" if holder else "; choose another port"


def port_holder(port: int) -> str | None:
    """Describe the process that listens on a TCP port; None when /proc does not show it.

    As in `pid 42 (python -m mrc_testbed.switch.server)`.
    """
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if len(fields) > 9 and fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(entry) in inodes for entry in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"pid {process.name} ({command[:120] or 'no command line'})"
        except OSError:
            continue  # ended meanwhile, or belongs to another user
    return None


def read_credentials(
    certificate: Path | None, key: Path | None, authority: Path | None
) -> grpc.ServerCredentials | None:
    """Return credentials for TLS from PEM files; None without any.

    With `authority` clients must show a certificate that it has signed. Raises AddressError, also for files that no
    connection could use.
    """
    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None:
        missing_option = "--tls-cert" if certificate is None else "--tls-key"
        raise AddressError(f"TLS needs a certificate and its key: {missing_option} is missing")
    try:
        # gRPC takes any bytes and fails at each handshake instead: the standard library says now what is wrong.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=_no_password)
        if authority is not None:
            context.load_verify_locations(authority)
        pairs = [(key.read_bytes(), certificate.read_bytes())]
        root = authority.read_bytes() if authority is not None else None
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        names = ", ".join(str(path) for path in (certificate, key, authority) if path is not None)
        raise AddressError(f"TLS: {names}: not PEM files that belong together ({reason})") from None
    except OSError as error:
        raise AddressError(f"TLS: {error.filename or certificate}: {error.strerror or error}") from None
    return grpc.ssl_server_credentials(pairs, root, require_client_auth=authority is not None)


def _no_password() -> str:
    raise AddressError("TLS: the key is encrypted: give one without a password")


async def start_server(
    host: str,
    port: int,
    subject: str,
    services: Iterable[Callable[[grpc.aio.Server], None]],
    credentials: grpc.ServerCredentials | None = None,
    *,
    unix: Path | None = None,
    token: str | None = None,
    last_port: int = 0,
) -> tuple[grpc.aio.Server, int]:
    """Start a server with each of `services` added; return it and its port.

    The port is useful when 0 was requested.

    `credentials`: TLS, for TCP; None: plain text. An empty `host`: no TCP. `unix`: a socket beside it. `token`: of
    clients by TCP. `last_port`: of several, of which the first is returned. Raises AddressError. SO_REUSEPORT, gRPC's
    default, is off: with it a second daemon would take half of the connections of the first and nobody would know.
    """
    tcp_ports = range(port, max(port, last_port) + 1)
    for tcp_port in tcp_ports if host else ():
        check_free(host, tcp_port, subject)
    server = grpc.aio.server(
        interceptors=[_Guarding(token)],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ],
    )
    for add in services:
        add(server)
    if unix is not None:
        _listen_unix(server, unix, subject)
    if not host:
        await server.start()
        return server, 0
    bound_ports = []  # where port 0 was wanted, the port that the machine chose
    for tcp_port in tcp_ports:
        address = _join(host, tcp_port)
        try:
            bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        except RuntimeError as error:
            raise AddressError(f"{subject}: cannot listen on {address}: {error}{_held_by(tcp_port)}") from None
        bound_ports.append(bound)
    await server.start()
    return server, bound_ports[0]
