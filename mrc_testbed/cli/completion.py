"""Completions of `mrc` in a shell: scenarios, programs, and the running fabric's nodes and ports.

A Tab must come at once and never print a traceback: nothing here talks to a process or imports what only commands need
(lists that stand elsewhere stand here again, and a test compares them). What cannot be read offers nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from mrc_testbed.files.package import P4_PROGRAMS, SCENARIOS

if TYPE_CHECKING:
    from mrc_testbed.topologies.plan import Plan

Offer = Callable[[str], list[str]]
FabricOffer = Callable[[typer.Context, str], list[str]]
"""Offer that depends on the fabric which is asked."""
TARGETS = ("embedded", "bmv2")
WIRES = ("virtual", "veth")
EXECUTORS = ("local", "slurm", "submitit-local", "ray")
BENCH_WIRES = (*WIRES, "both")
NICS = ("fast", "scapy")
MODES = ("srv6", "stev", "ecmp", "switch-spray", "flow-ecmp")
POLICIES = ("off", "lossy", "all")
REACTIONS = ("now", "never")
FUZZ_TARGETS = ("wire", "scapy", "frame", "jsonl", "endpoints", "p4")
SIZES = ("1", "2", "4", "8", "16")
"""Planes, racks and so on that fabrics have as a rule."""
RATES = ("10M", "100M", "none")
FAULT_KINDS = (
    "link cut",
    "NIC port down",
    "switch off",
    "blackhole",
    "one-way cut",
    "lossy link",
    "reboot",
    "flap",
)
INCAST_VARIANTS = ("as designed", "no ECN", "no trimming", "neither")


def one_of(*names: str) -> Offer:
    """Offers fixed names."""

    def offer(incomplete: str) -> list[str]:
        return _starting(incomplete, names)

    return offer


def several_of(*names: str) -> Offer:
    """Offers the next of fixed names with commas between. For bash, spaces are escaped."""

    def offer(incomplete: str) -> list[str]:
        prefix, comma, last = incomplete.rpartition(",")
        rest_names = [name for name in names if name not in prefix.split(",")]
        matches = [f"{prefix}{comma}{name}" for name in _starting(last, rest_names)]
        is_bash = os.environ.get("_MRC_COMPLETE", "").endswith("bash")
        return [name.replace(" ", "\\ ") for name in matches] if is_bash else matches

    return offer


def scenarios(incomplete: str) -> list[str]:
    """The scenarios that come with the testbed; the shell has files where none fits."""
    return _starting(incomplete, (path.stem for path in SCENARIOS.glob("*.yaml")))


def studies(incomplete: str) -> list[str]:
    """The studies that come with the testbed; the shell has files where none fits."""
    return _starting(incomplete, (path.stem for path in (SCENARIOS / "studies").glob("*.yaml")))


def programs(incomplete: str) -> list[str]:
    """P4 programs that come with the testbed."""
    sources = (path for path in P4_PROGRAMS.glob("*.p4") if "V1Switch(" in path.read_text(encoding="utf-8"))
    return _starting(incomplete, (path.stem for path in sources))


def fabrics(incomplete: str) -> list[str]:
    """Names of the fabrics of this machine."""
    from mrc_testbed.ipc.fabrics import Fabrics

    try:
        return _starting(incomplete, (record.name for record in Fabrics().records()))
    except Exception:  # whatever is there: a Tab has nobody to tell
        return []


def of_fabric(names: Callable[[Plan], Iterable[str]]) -> FabricOffer:
    """Offers names of the running fabric, or of that of --fabric; nothing when none runs."""

    def offer(context: typer.Context, incomplete: str) -> list[str]:
        plan = _plan(context)
        return [] if plan is None else _starting(incomplete, names(plan))

    return offer


def _plan(context: typer.Context) -> Plan | None:
    """The plan of the running fabric that a command line asks, or None."""
    from mrc_testbed.ipc.fabrics import Fabrics
    from mrc_testbed.ipc.rundir import RunFiles
    from mrc_testbed.topologies.plan import Plan

    try:
        folder = Fabrics().asked_folder(context.params.get("fabric"))
        return Plan.from_json(RunFiles(folder).read_plan())
    except Exception:  # none runs, or whatever is there: a Tab has nobody to tell
        return None


def _hosts(plan: Plan) -> list[str]:
    return [host.name for host in plan.hosts]


def _switches(plan: Plan) -> list[str]:
    return [switch.name for switch in plan.switches]


def _nodes(plan: Plan) -> list[str]:
    return [*_hosts(plan), *_switches(plan)]


def _ports(plan: Plan) -> list[str]:
    return [end.interface for link in plan.links for end in (link.lower, link.upper)]


hosts, switches, nodes = of_fabric(_hosts), of_fabric(_switches), of_fabric(_nodes)
nodes_and_ports = of_fabric(lambda plan: [*_nodes(plan), *_ports(plan)])
switches_and_ports = of_fabric(
    lambda plan: [*_switches(plan), *(end.interface for name in _switches(plan) for end in plan.ports(name))]
)


def evs(context: typer.Context, incomplete: str) -> list[str]:
    """EVs between the two hosts that stand before, as PLANE/UPLINK."""
    from mrc_testbed.topologies.plan import ev_uplink

    plan = _plan(context)
    if plan is None or not plan.mode.ev_is_path:
        return []
    try:
        pair = [plan.host(str(context.params[name])) for name in ("source", "destination")]
    except (KeyError, ValueError):
        return []
    return _starting(incomplete, (f"{plane}/{ev_uplink(ev)}" for ev, plane in plan.ev_planes(*pair)))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)}, key=_by_number)


def _by_number(name: str) -> tuple[str, int, str]:
    """`e2` before `e10`."""
    word = name.rstrip("0123456789")
    return word, int(name[len(word) :] or -1), name
