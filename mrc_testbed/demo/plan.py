"""Plan of `mrc demo`, made without a fabric: file, rate, and the links to cut.

    plan = plan_demo(Plan(), file=Path("model.bin"))      # raises DemoError

By share of the file acknowledged, a T0-T1 link on the way goes down and comes back, then a NIC-T0 link of the receiver
does. The load is paced so that there is traffic before, during and after each cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.lab.options import DEFAULT_LAB, LabOptions
from mrc_testbed.topologies.plan import Link, Plan

SOURCE = "h0"
DEFAULT_BYTES = {"fast": 64 << 20, "scapy": 6 << 20}
"""Random bytes sent when no file is given, by NIC: a scapy packet costs a hundred times as much."""
MIN_BYTES = 4 << 20
"""A smaller file would not put packets on every path while a link is cut."""
SHOW_S = 10.0
"""Duration of the transfer at the default offered load, seconds, if MAX_RATE_BPS allows it."""
MAX_RATE_BPS = {"fast": 100e6, "scapy": 5e6}
"""Upper limit of the default offered load, bits/s: the demo is to watch, `mrc bench mrc` is for speed."""
CUTS = ((0.15, 0.38), (0.50, 0.74))
"""Share of the file at which each link goes down and comes back."""


class DemoError(UsageError):
    """The demonstration cannot run with these options; the message names the cure."""


class PlannedCut(NamedTuple):
    """A link that goes down and comes back, by share of the file."""

    link: Link
    down_at: float
    up_at: float


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One demonstration with every default filled in; made by plan_demo()."""

    fabric: Plan
    source: str
    destination: str
    file: Path | None
    """File to send; None: random bytes."""
    size: int
    """Bytes sent."""
    rate_bps: float
    """Offered load."""
    cuts: tuple[PlannedCut, ...]
    lab: LabOptions

    def __str__(self) -> str:
        return f"{self.source} -> {self.destination} over {self.fabric}"


def plan_demo(
    fabric: Plan, *, file: Path | None = None, rate_bps: float | None = None, lab: LabOptions = DEFAULT_LAB
) -> DemoPlan:
    """Plan a demonstration. Raises DemoError for what cannot work."""
    if fabric.racks < 2:
        raise DemoError("the demo sends to a host in another rack: give --racks 2 or more")
    if fabric.planes < 2:
        raise DemoError("the demo cuts a NIC-T0 link; with one plane no path would be left: give --planes 2 or more")
    usual_rate_bps = min(MAX_RATE_BPS[lab.nic], DEFAULT_BYTES[lab.nic] * 8 / SHOW_S)
    slow_rate_bps = usual_rate_bps / lab.slowdown if lab.slowdown > 1 else inf
    if file is not None:
        size = _size_of(file)
    elif rate_bps is None:
        size = max(MIN_BYTES, DEFAULT_BYTES[lab.nic] // lab.slowdown)  # takes as long as at the usual rate
    else:
        size = DEFAULT_BYTES[lab.nic]
    destination = fabric.first_remote_host(SOURCE).name
    links = links_to_cut(fabric, SOURCE, destination)
    return DemoPlan(
        fabric=fabric,
        source=SOURCE,
        destination=destination,
        file=None if file is None else file.resolve(),
        size=size,
        rate_bps=rate_bps or min(MAX_RATE_BPS[lab.nic], size * 8 / SHOW_S, slow_rate_bps),
        cuts=tuple(PlannedCut(link, *shares) for link, shares in zip(links, CUTS, strict=True)),
        lab=lab,
    )


def _size_of(file: Path) -> int:
    """Return the bytes of a file that can be sent. Raises DemoError."""
    try:
        size = file.stat().st_size
        with file.open("rb"):
            pass
    except OSError as error:
        raise DemoError(f"cannot read {file}: {error.strerror}") from error
    if not file.is_file():
        raise DemoError(f"{file} is not a regular file")
    if size < MIN_BYTES:
        raise DemoError(
            f"{file} has {size:,} bytes; the demo needs {MIN_BYTES >> 20} MiB or more to have packets on every "
            "path while links are cut (without --file it sends 64 MiB of random bytes)"
        )
    return size


def links_to_cut(plan: Plan, source: str, destination: str) -> tuple[Link, Link]:
    """Return the links to cut: T0-T1 (last T1, plane 1), and the receiver's NIC-T0 link (another plane)."""
    sender, receiver = plan.host(source), plan.host(destination)
    plane_of_fabric_cut, plane_of_nic_cut = 1 % plan.planes, 2 % plan.planes
    t0, t1 = plan.t0_name(plane_of_fabric_cut, sender.rack), plan.t1_name(plane_of_fabric_cut, plan.spines - 1)
    return plan.link(t0, t1), plan.link(destination, plan.t0_name(plane_of_nic_cut, receiver.rack))
