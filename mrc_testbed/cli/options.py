"""Options that several commands have, each written once, and the reading of their values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.console import units
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.topologies.servers import Servers

NUMBER_MAX = 2**50

Planes = Annotated[
    int,
    typer.Option("--planes", autocompletion=offer.one_of(*offer.SIZES), help="Planes (NIC ports of a host), 1 to 16."),
]
Racks = Annotated[int, typer.Option("--racks", help="Racks: T0 switches in each plane.")]
Spines = Annotated[int, typer.Option("--spines", help="T1 switches in each plane (uplinks of a T0).")]
HostsPerRack = Annotated[int, typer.Option("--hosts-per-rack", help="Hosts in each rack.")]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        autocompletion=offer.one_of(*offer.TARGETS),
        help="Switch: `embedded` (ours) or `bmv2` (simple_switch_grpc on PATH).",
    ),
]
Nic = Annotated[
    str,
    typer.Option(
        "--nic",
        autocompletion=offer.one_of(*offer.NICS),
        help="Host NIC: `fast` (AF_PACKET) or `scapy` (readable, slow).",
    ),
]
WiresOption = Annotated[
    str | None,
    typer.Option(
        "--wires",
        autocompletion=offer.one_of(*offer.WIRES),
        help="Links between switches: `virtual` (inside the daemon, no interfaces; default) or `veth` (interfaces, for "
        "tcpdump and ip; all that bmv2 has).",
    ),
]
ServersFile = Annotated[
    Path | None,
    typer.Option("--servers", help="YAML file of machines that hold the fabric together (docs/cluster.md)."),
]
Rootless = Annotated[
    bool, typer.Option("--rootless", help="Without root, in a user namespace, where the kernel allows it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout; progress on stderr.")]


CLUSTER_PMTU = 1024
"""Path MTU of what has no option for it: its frames pass the 1,500 bytes of ordinary networks within a tunnel."""


def read_servers(file: Path | None, rootless: bool) -> Servers | None:
    """The machines of --servers, or None. Raises UsageError."""
    from mrc_testbed.topologies.servers import read

    if file is None:
        return None
    if rootless:
        raise UsageError(
            "--servers with --rootless: machines are set up by root (or sudo) on each: leave --rootless out"
        )
    return read(file)


def require_root(what: str, *, or_rootless: bool = False) -> None:
    """Raises UsageError without root: namespaces, veth pairs and raw sockets need it."""
    if os.geteuid() != 0:
        other = f", or `mrc {what} --rootless`" if or_rootless else ""
        raise UsageError(f"{what} needs root (network namespaces, raw sockets): run it with sudo{other}")


def parse_rate(text: str | None) -> float | None:
    """`40M` -> 40e6 bits/s (decimal units); None stays None. Raises UsageError."""
    return None if text is None else _positive(units.rate, text, "rate")


def parse_size(text: str) -> int:
    """`64M` -> 67,108,864 bytes (binary units). Raises UsageError."""
    return int(_positive(units.size, text, "size"))


def _positive(read: Callable[[object], float], text: str, what: str) -> float:
    try:
        value = read(text)
    except units.UnitError as error:
        raise UsageError(str(error)) from None
    if not 0 < value < NUMBER_MAX:
        raise UsageError(f"{what} {text!r}: give a positive number below 2**50")
    return value
