"""Programs of `mrc up --program`: one for all switches, others for chosen ones.

A program with the tables of `srv6` or `spray` belongs into a fabric: the controller fills its tables. A foreign one on
every switch makes a P4 lab, without controller and MRC hosts; on chosen switches it is loaded beside those of a fabric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    import typer

    from mrc_testbed.cli.options import LabChoice
    from mrc_testbed.topologies.plan import Plan

FABRIC_OPTIONS = {
    "mode": "the program forwards as it does",
    "pmtu": "hosts have interfaces of 1500 bytes",
    "denylist": "there are no EVs",
    "react_after": "there is no controller",
    "target": "the switches are embedded ones",
    "wires": "the links are interfaces",
    "servers": "this machine holds all",
    "nic": "hosts have Linux's own stacks",
    "dash": "the live view shows fabrics alone",
    "allow": "its hosts have no RDMA devices",
    "tls": "its P4Runtime speaks plain TCP",
    "name": "it is no fabric of `mrc ls`",
    "detach": "it ends with its prompt",
}
"""Parameters of `mrc up` that a lab of a foreign program does not have, each with the reason."""


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """Programs by switch."""

    base: Path | None = None
    """Program of all switches that are not chosen; None: that of the fabric's mode."""
    by_switch: Mapping[str, Path] = field(default_factory=dict)
    """Program of each chosen switch."""


def read_programs(words: Sequence[str], plan: Plan) -> ProgramChoice:
    """Return the programs of `FILE` and `NODE[,NODE]=FILE`. Raises UsageError."""
    base: Path | None = None
    choices: dict[str, Path] = {}
    switches = [switch.name for switch in plan.switches]
    for word in words:
        nodes, mark, path = word.partition("=")
        # A path may have such a mark, too.
        if not mark or "/" in nodes:
            if base is not None:
                raise UsageError(f"--program {base} and --program {word}: two for all. Cure: NODE=FILE for one of them")
            base = Path(word)
            continue
        for name in nodes.split(","):
            if name not in switches:
                has = ", ".join(switches if len(switches) <= 8 else [*switches[:3], "...", switches[-1]])
                raise UsageError(f"--program {word}: no switch {name!r} (has: {has})")
            if name in choices:
                raise UsageError(f"--program {word}: {name} has {choices[name]} already. Cure: give it one")
            choices[name] = Path(path)
    return ProgramChoice(base, choices)


def is_foreign(program: Path) -> bool:
    """Return whether a program lacks the tables that controller and MRC hosts need.

    Raises UsageError for one that does not compile.
    """
    from mrc_testbed.topologies.p4lab import switch_programs
    from mrc_testbed.topologies.p4lab.switch import compile_file

    return switch_programs.is_foreign(compile_file(program))


def refuse_fabric_options(context: typer.Context, program: Path) -> None:
    """Raise UsageError for options on the command line that a lab of a foreign program does not have."""
    options = [
        name
        for name in FABRIC_OPTIONS
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]
    if options:
        words = [f"--{name.replace('_', '-')}" for name in options]
        reasons = "; ".join(f"{word}: {FABRIC_OPTIONS[name]}" for word, name in zip(words, options, strict=True))
        raise UsageError(
            f"beside {program}, which lacks the tables of srv6 and spray: {reasons}. Cure: leave out "
            f"{', '.join(words)}, or give NODE={program} for chosen switches"
        )


def run_on_plan(programs: ProgramChoice, plan: Plan, lab: LabChoice, *, open_to_all: bool) -> NoReturn:
    """Run foreign programs on the switches of a plan, as a P4 lab. Raises UsageError."""
    from mrc_testbed.cli.p4 import run_lab
    from mrc_testbed.topologies.p4lab.lab import LabPrograms
    from mrc_testbed.topologies.p4lab.topology import plan_topology

    topology = plan_topology(plan, programs.by_switch)
    lab.take_root("up --program")
    run_lab(topology, LabPrograms(programs.base, open_to_all=open_to_all))
