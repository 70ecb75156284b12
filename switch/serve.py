"""gRPC servers of this folder: binding an address with an error that helps, and a clean, quick stop."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import grpc

MAX_MESSAGE_BYTES = 64 << 20
"""Longest gRPC message either way: 10,000 table entries in one Write are about 1 MiB, a config some 100 KiB."""
STOP_GRACE_S = 0.2

_TCP_LISTEN = "0A"


class AddressError(Exception):
    """An address which cannot be parsed or bound; the message names the port and its holder, where /proc tells."""


def parse_address(text: str, what: str) -> tuple[str, int]:
    """`127.0.0.1:9559`, `[::1]:9559` or `:9559` (loopback) -> (host, port). Raises AddressError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]*)):(\d{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise AddressError(f"{what}: {text!r} is no address (want HOST:PORT as in 127.0.0.1:9559 or [::1]:9559)")
    return match[1] or match[2] or "127.0.0.1", int(match[3])


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_free(host: str, port: int, what: str) -> None:
    """Raises AddressError when `port` cannot be bound, naming its holder. Port 0 is always free."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise AddressError(f"{what}: cannot resolve host {host!r}: {error.strerror}") from None
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise AddressError(
                f"{what}: cannot listen on {_join(host, port)}: {error.strerror}{_held_by(port)}"
            ) from None


def _held_by(port: int) -> str:
    holder = port_holder(port)
    return f" (held by {holder}; stop it or choose another port)" if holder else "; choose another port"


def port_holder(port: int) -> str | None:
    """`pid 42 (python -m switch.daemon)` of who listens on a TCP port; None when /proc does not tell us."""
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


async def start_server(
    host: str, port: int, what: str, services: Iterable[Callable[[grpc.aio.Server], None]]
) -> tuple[grpc.aio.Server, int]:
    """Starts a server with each of `services` added; returns it and its port (of use when 0 was asked for).

    Raises AddressError. SO_REUSEPORT, gRPC's default, is off: with it a second daemon would take half of the
    connections of the first and nobody would know.
    """
    check_free(host, port, what)
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
    )
    for add in services:
        add(server)
    try:
        bound = server.add_insecure_port(_join(host, port))
    except RuntimeError as error:
        raise AddressError(f"{what}: cannot listen on {_join(host, port)}: {error}{_held_by(port)}") from None
    await server.start()
    return server, bound
