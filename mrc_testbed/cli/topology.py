"""`mrc topology ...`: check, show, import and describe topology files (docs/topology-files.md)."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_testbed.cli.link_options import LinkOptions
from mrc_testbed.cli.options import Json, SizeOptions
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.topologies.plan import Plan

topology_app = typer.Typer(
    help="Check, show and import topology files: fabrics whose planes differ.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PMTU = 1024
TopologyFile = Annotated[Path, typer.Argument(metavar="FILE", help="Topology file (docs/topology-files.md).")]
CELL_GAP = 3
"""Columns between two racks of a picture."""


@topology_app.command(
    "check", epilog="Examples: `mrc topology check fabric.yaml` · `mrc topology check fabric.yaml --json`"
)
def check_file(file: TopologyFile, as_json: Json = False) -> None:
    """Check a topology file; print each mistake with its line, its column and the cure."""
    from mrc_testbed.experiments.language.topology import read_topology
    from mrc_testbed.experiments.language.yaml_loader import Problem, ScenarioError

    problems: list[Problem] = []
    text = ""
    try:
        text = str(read_topology(file).plan("srv6", pmtu_bytes=PMTU))
    except ScenarioError as error:
        problems = error.problems
    if not as_json:
        print("\n".join(f"{file}:{problem}" for problem in problems) or f"{file}: {text}")
        raise typer.Exit(1 if problems else 0)
    rows = [problem.to_json() for problem in problems]
    print(json.dumps({"schema": "mrc-topology-check/1", "file": str(file), "problems": rows}, indent=2))
    raise typer.Exit(1 if problems else 0)


@topology_app.command(
    "show", epilog="Examples: `mrc topology show fabric.yaml` · `mrc topology show fabric.yaml --json`"
)
def show_file(file: TopologyFile, as_json: Json = False) -> None:
    """Draw each plane of a topology file, with its links that differ and the paths between hosts."""
    from mrc_testbed.experiments.language.topology import read_topology

    topology = read_topology(file)
    plan = topology.plan("srv6", pmtu_bytes=PMTU)
    print(json.dumps(description(plan), indent=2) if as_json else "\n".join(picture(plan, topology.part.title)))


@topology_app.command(
    "import",
    epilog="Examples: `mrc topology import clos.clab.yml --out fabric.yaml` · "
    "`mrc topology import nodes.yaml --hosts 'gpu.*'`",
)
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Nodes and links, as containerlab has them.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Topology file to write (default: standard output).")
    ] = None,
    hosts: Annotated[
        str | None, typer.Option("--hosts", metavar="PATTERN", help="Regular expression of the hosts' names.")
    ] = None,
) -> None:
    """Make a topology file of a list of nodes and links, where they are a Clos of planes."""
    import re

    from mrc_testbed.experiments.language.node_links import import_topology
    from mrc_testbed.files.whole_files import write_output

    try:
        re.compile(hosts or "")
    except re.error as error:
        raise UsageError(f"--hosts {hosts!r}: {error}. Cure: a regular expression, such as 'h[0-9]+'") from None
    text = import_topology(file, hosts)
    if out is None:
        print(text, end="")
    else:
        write_output(out, text.encode())
        print(f"{out}: written. Next: `mrc topology show {out}`, `mrc up {out}`", file=sys.stderr)


@topology_app.command("schema", epilog="Example: `mrc topology schema > topology.schema.json`")
def print_schema() -> None:
    """Print the JSON Schema of topology files, for editors."""
    from mrc_testbed.experiments.language.topology import schema

    print(json.dumps(schema(), indent=2))


def topology_plan(context: typer.Context, file: Path, links: LinkOptions) -> Plan:
    """Return the plan of a topology file for `mrc up FILE`. Raises UsageError, ScenarioError, PlanError."""
    from mrc_testbed.experiments.language.topology import read_topology
    from mrc_testbed.topologies.plan.link_speeds import SCALED_PMTU

    options = [
        f"--{name.replace('_', '-')}"
        for name in (*(field.name for field in fields(SizeOptions)), *(field.name for field in fields(LinkOptions)))
        if name not in ("mode", "pmtu")
        and (source := context.get_parameter_source(name))
        and source.name == "COMMANDLINE"
    ]
    if options:
        raise UsageError(f"{', '.join(options)} beside {file}. Cure: write it into the file, or leave the file out")
    return read_topology(file).plan(links.mode, pmtu_bytes=links.pmtu or SCALED_PMTU)


# ---- what is shown --------------------------------------------------------------------------------------------


def description(plan: Plan) -> dict[str, Any]:
    """Return a fabric for programs: planes with their racks, switches and links."""
    planes = []
    for plane in range(plan.planes):
        switches = [switch for switch in plan.switches if switch.plane == plane]
        links = [link for link in plan.links if link.plane == plane]
        planes.append(
            {
                "plane": plane,
                "t0": {str(switch.number): switch.name for switch in switches if not switch.tier},
                "t1": {str(switch.number): switch.name for switch in switches if switch.tier},
                "links": [
                    {
                        "nodes": [link.lower.node, link.upper.node],
                        "interfaces": [link.lower.interface, link.upper.interface],
                        "tier": link.tier,
                        **plan.speed(link).to_json(),
                    }
                    for link in links
                ],
            }
        )
    rows = [{"name": host.name, "rack": host.rack, "planes": list(plan.host_planes(host))} for host in plan.hosts]
    return {"schema": "mrc-topology-show/1", "hosts": rows, "planes": planes, "base_rtt_s": plan.base_rtt_s()}


def picture(plan: Plan, title: str) -> list[str]:
    """Return a fabric as lines of text: each plane with its T1s above its T0s above their hosts."""
    lines = [title] if title else []
    lines.append(f"{plan}; {plan.describe_links()}")
    for plane in range(plan.planes):
        lines += ["", *_plane_picture(plan, plane)]
    return lines


def _plane_picture(plan: Plan, plane: int) -> list[str]:
    t1s = [switch.name for switch in plan.switches if switch.plane == plane and switch.tier]
    racks = []
    for rack in range(plan.racks):
        names = [host.name for host in plan.hosts_of(plane, rack)]
        racks.append((plan.t0_name(plane, rack) if plan.has_t0(plane, rack) else "", " ".join(names)))
    widths = [max(len(t0), len(names)) + CELL_GAP for t0, names in racks]
    total = max(sum(widths), sum(len(t1) + CELL_GAP for t1 in t1s)) - CELL_GAP
    centres, offset = [], 0
    for width, (t0, _) in zip(widths, racks, strict=True):
        if t0:
            centres.append(offset + (width - CELL_GAP) // 2)
        offset += width
    rows = [(" " * CELL_GAP).join(t1s).center(total).rstrip()]
    if t1s and centres:
        bar = ["─" if centres[0] <= column <= centres[-1] else " " for column in range(total)]
        for column in centres:
            bar[column] = "┬"
        bar[centres[0]], bar[centres[-1]] = ("┌", "┐") if len(centres) > 1 else ("│", "│")
        middle = min(max((total - 1) // 2, centres[0]), centres[-1])
        bar[middle] = {"─": "┴", "┬": "┼", "┌": "├", "┐": "┤"}.get(bar[middle], bar[middle])
        rows.append("".join(bar).rstrip())
    rows.append("".join(t0.center(w - CELL_GAP).ljust(w) for w, (t0, _) in zip(widths, racks, strict=True)).rstrip())
    rows.append("".join(n.center(w - CELL_GAP).ljust(w) for w, (_, n) in zip(widths, racks, strict=True)).rstrip())
    return [f"plane {plane}", *(f"  {row}" for row in rows), *(f"  {note}" for note in _notes(plan, plane))]


def _notes(plan: Plan, plane: int) -> list[str]:
    """Return what a picture of a plane does not show: links that are missing or differ."""
    out = []
    for rack in range(plan.racks):
        t0, uplinks = plan.t0_name(plane, rack), plan.uplinks(plane, rack)
        if plan.has_t0(plane, rack):
            holes = [k for k in range(plan.spines) if plan.has_t1(plane, k) and k not in uplinks]
            out += [f"no link {t0} {plan.t1_name(plane, number)}" for number in holes]
    for host in plan.hosts:
        if plan.has_t0(plane, host.rack) and plane not in plan.host_planes(host):
            out.append(f"no link {host.name} {plan.t0_name(plane, host.rack)}")
    by_speed: dict[str, list[str]] = {}
    for link in plan.links:
        if link.plane == plane and link.name in plan.own_speeds:
            by_speed.setdefault(str(plan.speed(link)), []).append(link.name)
    for speed, names in by_speed.items():
        count = len([link for link in plan.links if link.plane == plane])
        out.append(f"{speed}: {'all links' if len(names) == count else ', '.join(names)}")
    return out
