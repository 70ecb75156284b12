"""Port state over gNMI alone, for switches without it (BMv2).

Run as `python -m mrc_testbed.switch.server.portstate`.

Serves the paths of switch.server.gnmi.server for all interfaces of its network namespace, or those named by prefix or
by a file: a JSON list of devices (the daemon's: `[{"name": "s1", "device_id": 1, "ports": {"1": "s1-eth1"}}]`;
prefix.target works then), a JSON list of names, or one name a line. Needs no root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

import grpc
from finsy.proto import gnmi_grpc

from mrc_testbed.switch.server.gnmi.server import GnmiService
from mrc_testbed.switch.server.grpc_server import STOP_GRACE_S, AddressError, parse_address, read_token, start_server
from mrc_testbed.switch.server.interfaces import Interfaces
from mrc_testbed.switch.server.netlink import InterfaceWatcher


class InterfaceFileError(Exception):
    """The file of interfaces cannot be used; the text says which and why."""


def read_interfaces(path: Path) -> dict[str, list[str]]:
    """Interfaces by device (`""`: of no device). Raises InterfaceFileError."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InterfaceFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    # No JSON list: one name a line.
    if not text.lstrip().startswith("["):
        return {"": [line.strip() for line in text.splitlines() if line.strip()]}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InterfaceFileError(f"{path}: not JSON: {error or type(error).__name__}") from None
    out: dict[str, list[str]] = {}
    for entry in data:
        # A plain name belongs to no device.
        if isinstance(entry, str):
            out.setdefault("", []).append(entry)
            continue
        ports = entry.get("ports") if isinstance(entry, dict) else None
        if (
            not isinstance(ports, dict)
            or not isinstance(entry.get("name"), str)
            or not all(isinstance(name, str) for name in ports.values())
        ):
            raise InterfaceFileError(
                f'{path}: {entry!r} is neither a name nor {{"name": "s1", "ports": {{"1": "s1-eth1"}}}}'
            )
        out.setdefault(entry["name"], []).extend(ports.values())
    return out


async def serve(
    address: str, devices: dict[str, list[str]], prefixes: tuple[str, ...], token_file: Path | None = None
) -> None:
    """Serves until SIGTERM or SIGINT. Raises AddressError, ValueError (an interface twice) or OSError."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    watcher = InterfaceWatcher()
    watcher.start()
    interfaces = Interfaces(watcher, prefixes)
    for device, names in devices.items():
        interfaces.add_device(device, names)

    def add_gnmi(server: grpc.aio.Server) -> None:
        gnmi_grpc.add_gNMIServicer_to_server(GnmiService(interfaces), server)

    listen_address, token = parse_address(address, "--gnmi"), read_token(token_file)
    server, port = await start_server(
        listen_address.host, listen_address.port, "gNMI", [add_gnmi], unix=listen_address.socket, token=token
    )
    try:
        print(f"ready gnmi={port} interfaces={len(interfaces.names())} pid={os.getpid()}", flush=True)
        await stopping.wait()
    finally:
        await server.stop(STOP_GRACE_S)
        watcher.close()


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m mrc_testbed.switch.server.portstate",
        description="State of network interfaces over gNMI, driven by netlink.",
    )
    add = parser.add_argument
    add("--gnmi", default="127.0.0.1:9339", metavar="ADDRESS", help="HOST:PORT, unix:PATH or both [%(default)s]")
    add("--token-file", type=Path, metavar="FILE", help="clients by TCP must show this file's token")
    add("--interfaces-from", type=Path, metavar="FILE", help="devices with ports (JSON), or one name a line")
    add("--prefix", action="append", default=[], metavar="TEXT", help="every interface whose name begins so")
    options = parser.parse_args(arguments)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    serves_all = options.interfaces_from is None and not options.prefix
    try:
        devices = read_interfaces(options.interfaces_from) if options.interfaces_from is not None else {}
        prefixes = ("",) if serves_all else tuple(options.prefix)
        asyncio.run(serve(options.gnmi, devices, prefixes, options.token_file))
    except (AddressError, InterfaceFileError, ValueError, OSError) as error:
        print(f"mrc_testbed.switch.server.portstate: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
