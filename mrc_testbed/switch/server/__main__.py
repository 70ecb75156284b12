"""`python -m mrc_testbed.switch.server`: the embedded switches of a fabric."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from mrc_testbed.switch.device.loop import PortError
from mrc_testbed.switch.server.app import ServerConfigError, ServerSettings, run
from mrc_testbed.switch.server.chassis import ChassisError
from mrc_testbed.switch.server.grpc_server import AddressError
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.unix_socket import SocketError


def parser() -> argparse.ArgumentParser:
    """The options of `python -m mrc_testbed.switch.server`."""
    out = argparse.ArgumentParser(
        prog="python -m mrc_testbed.switch.server",
        description="Embedded P4 switches: P4Runtime, gNMI and a control socket for all devices of a fabric.",
    )
    add = out.add_argument
    metavar = "ADDRESS"
    add("--p4runtime", "--grpc", default="127.0.0.1:9559", metavar=metavar, help="P4Runtime, gNMI [%(default)s]")
    add("--gnmi", default="127.0.0.1:9339", metavar=metavar, help="gNMI; HOST:PORT, unix:PATH or both [%(default)s]")
    add("--token-file", type=Path, metavar="FILE", help="clients by TCP must show this file's token")
    add("--control", type=Path, metavar="PATH", help="Unix socket for add_device, power, stats, shutdown")
    add("--shared-wires", type=Path, metavar="PATH", help="Unix socket at which NICs ask for shared memory")
    add("--config", type=Path, metavar="FILE", help="devices to begin with: [{name, device_id, ports}]")
    add("--cpu-port", type=int, default=510, metavar="N", help="packet-in and packet-out [%(default)s]")
    add("--tls-cert", type=Path, metavar="FILE", help="certificate (PEM): both servers speak TLS by TCP")
    add("--tls-key", type=Path, metavar="FILE", help="its key (PEM)")
    add("--tls-ca", type=Path, metavar="FILE", help="clients must show a certificate which this CA (PEM) has signed")
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return out


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal; the exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not 1 <= options.cpu_port <= 510:
        print(f"mrc_testbed.switch.server: --cpu-port {options.cpu_port}: want 1 to 510 (511 drops)", file=sys.stderr)
        return 2
    settings = ServerSettings(
        options.p4runtime,
        options.gnmi,
        options.control,
        options.config,
        options.cpu_port,
        options.tls_cert,
        options.tls_key,
        options.tls_ca,
        options.token_file,
        options.shared_wires,
    )
    try:
        asyncio.run(run(settings))
    except (AddressError, SocketError, ServerConfigError, ChassisError, PortError, BuildError, OSError) as error:
        print(f"mrc_testbed.switch.server: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
