"""`mrc plan`: what a fabric takes and what its failures cost, by formula (topologies/sizing.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from mrc_testbed.console import units
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.topologies.sizing import FabricSize

LINK_BPS = 10e6
"""Links of the packet simulator's scale (§11.4)."""
PACKET_US = ((8, 3.5), (64, 4.9), (512, 9.3))
"""CPU time of a data packet in virtual time by hosts, compiled (docs/design/virtual-fabric-costs.md)."""
FLUID_QP_BYTES = 4200
"""Memory of a QP of 256 EVs in the fluid model: 0.55 GB for 131,072 (docs/fluid.md)."""
LIVE_HOSTS_MAX = 64
LIVE_SWITCHES_MAX = 64
"""Beyond these a live fabric on two cores comes up too slowly to be of use."""


def plan(
    nics: Annotated[int | None, typer.Option("--nics", help="NICs to connect; or the parts of a fabric.")] = None,
    radix: Annotated[int, typer.Option("--radix", help="Ports of a switch at the rate of a plane.")] = 512,
    rate: Annotated[str, typer.Option("--rate", help="Rate of a NIC, all its ports together.")] = "800G",
    planes: Annotated[int, typer.Option("--planes", help="Planes: ports of a NIC.")] = 8,
    racks: Annotated[int | None, typer.Option("--racks", help="T0 switches in each plane, instead of --nics.")] = None,
    spines: Annotated[int | None, typer.Option("--spines", help="T1 switches in each plane, with --racks.")] = None,
    hosts_per_rack: Annotated[
        int | None, typer.Option("--hosts-per-rack", help="NICs of each T0, with --racks.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", help="InfraGraph file (YAML, JSON) in place of the numbers: planes of two tiers."),
    ] = None,
    infragraph: Annotated[
        Path | None, typer.Option("--infragraph", help="Write the fabric as InfraGraph: YAML, or JSON for *.json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Plan a fabric: switches, links, EVs, uSIDs, table entries, and a failure's cost, beside one plane."""
    from mrc_testbed.topologies import infragraph_file

    size = _fabric_size(nics, radix, rate, planes, (racks, spines, hosts_per_rack), from_file)
    if infragraph is not None:
        infragraph_file.write(size, infragraph)
        if not as_json:
            print(f"plan: {infragraph}: {size.nics:,} NICs, {size.links:,} links", file=sys.stderr)
    fit = on_this_machine(size)
    if as_json:
        print(json.dumps({**size.to_json(), "here": fit}, indent=2))
        return
    _show(size, fit)


def _fabric_size(
    nics: int | None,
    radix: int,
    rate: str,
    planes: int,
    parts: tuple[int | None, int | None, int | None],
    from_file: Path | None,
) -> FabricSize:
    """The fabric that the options name. Raises UsageError."""
    from mrc_testbed.console.progress import Progress
    from mrc_testbed.console.terminal import console
    from mrc_testbed.topologies import infragraph_file
    from mrc_testbed.topologies.sizing import FabricSize

    racks, spines, hosts_per_rack = parts
    if from_file is not None:
        if nics is not None or any(part is not None for part in parts):
            raise UsageError("give --from, or the fabric by other options")
        with Progress(console(stderr=True), "plan", text=f"reading {from_file.name}"):
            return infragraph_file.read(from_file)
    try:
        nic_bps = units.rate(rate)
    except units.UnitError as error:
        raise UsageError(f"--rate {error}") from None
    if nics is not None and any(part is not None for part in parts):
        raise UsageError("give --nics and --radix, or --racks, --spines and --hosts-per-rack")
    if nics is not None:
        return FabricSize.for_nics(nics, radix=radix, planes=planes, nic_bps=nic_bps)
    if racks is None or spines is None or hosts_per_rack is None:
        raise UsageError("give --nics, or all of --racks, --spines and --hosts-per-rack")
    return FabricSize.for_parts(planes=planes, t0s=racks, uplinks=spines, nics_per_t0=hosts_per_rack, nic_bps=nic_bps)


class MachineFit(TypedDict):
    """Limits of this machine for a fabric. Too large for packets is not too large for the fluid model."""

    live: bool
    virtual: bool
    too_large: list[str]
    packets_per_virtual_second: int | None
    cpu_s_per_virtual_second: float | None
    """None: it does not fit."""
    fluid: bool
    fluid_bytes: int
    """Memory of its EVs in the fluid model, one QP a NIC."""


def on_this_machine(size: FabricSize) -> MachineFit:
    """Return whether a fabric fits live, and the cost of a virtual second with all NICs sending.

    The testbed's own fabrics have a T1 for each uplink.
    """
    from mrc_testbed.simulator.profiles import frame_bytes
    from mrc_testbed.topologies.plan.plan import LIMITS

    packets = size.nics * size.planes * LINK_BPS / 8 / frame_bytes(1024)
    cost = next((us for hosts, us in PACKET_US if size.nics <= hosts), PACKET_US[-1][1])
    too_large = [
        f"{name} {value} (at most {LIMITS[name][1]})"
        for name, value in (
            ("planes", size.planes),
            ("racks", size.t0s),
            ("spines", max(1, size.uplinks)),
            ("hosts_per_rack", size.nics_per_t0),
        )
        if value > LIMITS[name][1]
    ]
    return {
        "live": size.nics <= LIVE_HOSTS_MAX and size.switches <= LIVE_SWITCHES_MAX and not too_large,
        "virtual": not too_large,
        "too_large": too_large,
        "packets_per_virtual_second": None if too_large else round(packets),
        "cpu_s_per_virtual_second": None if too_large else round(packets * cost * 1e-6, 1),
        "fluid": _outlined(size),
        "fluid_bytes": size.nics * FLUID_QP_BYTES,
    }


def _outlined(size: FabricSize) -> bool:
    """Whether the fluid model takes such a fabric."""
    from mrc_testbed.topologies.plan import Outline, PlanError

    try:
        Outline(size.planes, size.t0s, max(1, size.uplinks), size.nics_per_t0)
    except PlanError:
        return False
    return True


def _show(size: FabricSize, fit: MachineFit) -> None:
    from rich.table import Table

    from mrc_testbed.console.terminal import console
    from mrc_testbed.topologies.sizing import TABLE_ENTRIES, USID_BITS

    out = console()
    figures = size.to_json()
    out.print(
        f"{size.nics:,} NICs of {size.nic_bps / 1e9:g} Gb/s: {size.planes} planes of {size.port_bps / 1e9:g} Gb/s, "
        f"{figures['tiers']} tier{'s' if figures['tiers'] > 1 else ''}, switches of {size.radix} ports"
    )
    table = Table(box=None, pad_edge=False)
    for head in ("", "in a plane", "in all"):
        table.add_column(head, justify="left" if not head else "right")
    for name, count in (
        ("T0", size.t0s),
        ("T1", size.t1s),
        ("NIC-T0 links", size.nics),
        ("T0-T1 links", size.t0s * size.uplinks),
    ):
        table.add_row(name, f"{count:,}", f"{count * size.planes:,}")
    out.print(table)
    out.print(
        f"oversubscription of a T0 {size.oversubscription:g}; {size.paths:,} paths between NICs of two racks, "
        f"{figures['evs']} EVs a QP"
    )
    bits, entries = size.usid_bits(), size.entries()
    fits = "fits" if bits <= USID_BITS else "does NOT fit"
    out.print(f"uSIDs: role, plane and number take {bits} bits of {USID_BITS}: {fits}")
    table_use = [f"{kind} {count:,} of {TABLE_ENTRIES:,}" for kind, count in entries.items()]
    out.print(f"table entries of p4src/srv6.p4: {', '.join(table_use)}")
    blast = Table(box=None, pad_edge=False)
    for head in ("what fails", "NICs", "of each NIC", "of a T0's uplinks", "one plane, three tiers"):
        blast.add_column(head, justify="left" if head == "what fails" else "right")
    for failure in size.blast():
        uplinks = "" if failure.of_uplinks is None else _share(failure.of_uplinks)
        single_share = "" if failure.single_plane is None else _share(failure.single_plane)
        blast.add_row(failure.failed_part, f"{failure.nics:,}", _share(failure.of_nic), uplinks, single_share)
    out.print(blast)
    # The comparison is left out where the switches have too few ports for three tiers.
    single = size.single_plane()
    if single is not None:
        shares = f"{single['switch_share']:.2f} of its switches and {single['optics_share']:.2f} of its optics"
        out.print(
            f"one plane of the same switches ({single['radix']} ports of {size.nic_bps / 1e9:g} Gb/s) has three tiers "
            f"and {single['nics_max']:,} NICs at most; for each NIC this fabric takes {shares}"
        )
    if fit["live"]:
        out.print(
            "here: fits a live fabric (`mrc up`), and virtual time: a second at 10 Mb/s a link is "
            f"{fit['packets_per_virtual_second']:,} packets, about {fit['cpu_s_per_virtual_second']:g} s of CPU, "
            "compiled"
        )
    elif fit["virtual"]:
        out.print(
            f"here: virtual time alone; a second at 10 Mb/s a link is {fit['packets_per_virtual_second']:,} packets, "
            f"about {fit['cpu_s_per_virtual_second']:g} s of CPU, compiled"
        )
    else:
        out.print(f"here: too large for packets: {', '.join(fit['too_large'])}")
    if fit["fluid"]:
        out.print(
            f"here: as a fluid (`mrc run --fluid`) it takes some {fit['fluid_bytes'] / 1e9:.2g} GB with a QP a NIC"
        )


def _share(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.3g} %"


def add_commands(app: typer.Typer) -> None:
    """Hang the command into `mrc`."""
    app.command(
        epilog="Examples: `mrc plan --nics 131072 --radix 512 --rate 800G` · "
        "`mrc plan --nics 1024 --radix 64 --planes 4` · "
        "`mrc plan --planes 4 --racks 2 --spines 2 --hosts-per-rack 2 --json` · "
        "`mrc plan --nics 1024 --radix 64 --infragraph fabric.yaml` · `mrc plan --from fabric.yaml`"
    )(plan)
