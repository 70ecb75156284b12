"""Options that several commands have, each written once, and the reading of their values.

A command takes a group of options as one parameter, a dataclass of them (`expand_options`).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.console import units
from mrc_testbed.errors import UsageError

if TYPE_CHECKING:
    from mrc_testbed.experiments.executors.options import ExecutorOptions
    from mrc_testbed.experiments.traces.command import Replay
    from mrc_testbed.topologies.lab.machine_speed import MachineCapacity
    from mrc_testbed.topologies.lab.options import LabOptions
    from mrc_testbed.topologies.servers import Servers

NUMBER_MAX = 2**50
PLACEMENTS = ("packed", "spread", "random")
SCALE_MAX = 1e6
TASK_TIME_MAX_S = 86400.0
TRACES = "Traces"
"""Heading of the options that belong to --trace."""
CLUSTER = "Clusters"
"""Heading of the options that belong to --executor."""

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
        help="Live switch: `embedded` (default) or `bmv2` (simple_switch_grpc on PATH).",
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
Wires = Annotated[
    str | None,
    typer.Option(
        "--wires",
        autocompletion=offer.one_of(*offer.WIRES),
        help="Links of live switches: `virtual` (memory, to hosts for MRC too) or `veth` (interfaces; bmv2 needs it).",
    ),
]
ServersFile = Annotated[
    Path | None,
    typer.Option("--servers", help="YAML file of machines that hold a live fabric together (docs/cluster.md)."),
]
Rootless = Annotated[
    bool, typer.Option("--rootless", help="Live without root, in a user namespace, where the kernel allows it.")
]
Groups = Annotated[
    Path | None,
    typer.Option(
        "--groups",
        rich_help_panel=TRACES,
        help='JSON with the ranks of each process group of a trace: {"0": [0, 1], ...}.',
    ),
]
TraceRanks = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        rich_help_panel=TRACES,
        min=2,
        help="Number of ranks of a workload of ASTRA-sim or SimAI that does not say it.",
    ),
]
ComputeScale = Annotated[
    float,
    typer.Option("--compute-scale", rich_help_panel=TRACES, min=0.0, help="Factor on the compute times of a trace."),
]
SizeScale = Annotated[
    float,
    typer.Option("--size-scale", rich_help_panel=TRACES, min=0.0, help="Factor on the sizes of a trace's messages."),
]
Executor = Annotated[
    str,
    typer.Option(
        "--executor",
        rich_help_panel=CLUSTER,
        autocompletion=offer.one_of(*offer.EXECUTORS),
        help="Executor of virtual runs: this machine (`local`), a `slurm` or `ray` cluster, `submitit-local`.",
    ),
]
SlurmParameters = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        rich_help_panel=CLUSTER,
        metavar="KEY=VALUE",
        help="Parameter of sbatch, as submitit calls it: partition, account, qos, time (minutes), mem, ...",
    ),
]
TaskTime = Annotated[
    str,
    typer.Option(
        "--task-time",
        rich_help_panel=CLUSTER,
        metavar="TIME",
        help="Least estimated duration of a task: shorter runs share one.",
    ),
]
FabricName = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="NAME",
        autocompletion=offer.fabrics,
        help="Running fabric that is asked (`mrc ls`); default: the only one.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout; progress on stderr.")]


@dataclass(frozen=True)
class SizeOptions:
    """Size of a fabric."""

    planes: Planes = 4
    racks: Racks = 2
    spines: Spines = 2
    hosts_per_rack: HostsPerRack = 2


@dataclass(frozen=True)
class LabChoice:
    """Options of every command that brings a live fabric up."""

    target: Target = "embedded"
    wires: Wires = None
    servers: ServersFile = None
    rootless: Rootless = False

    def lab_options(self, **command_fields: Any) -> LabOptions:
        """Check the options; `more`: fields that only this command has.

        Raises UsageError, ServersError and FabricError.
        """
        from mrc_testbed.topologies.lab.options import LabOptions

        if self.servers is not None and self.rootless:
            raise UsageError("--servers with --rootless: root sets each machine up, by sudo too: leave --rootless out")
        return LabOptions(target=self.target, wires=self.wires, servers=read_servers(self.servers), **command_fields)

    def machine_speed(self) -> MachineCapacity:
        """Return the speed of this machine, measured in 20 ms of CPU.

        With --servers it is the usual one.
        """
        from mrc_testbed.topologies.lab.machine_speed import REFERENCE, measure

        return measure() if self.servers is None else REFERENCE

    def take_root(self, command: str, *, page: bool = False, cure: str = "") -> None:
        """Go on in the user namespace of --rootless, or require root here; --servers has it elsewhere.

        `page`: with the live view; `other`: one more cure, for the error. Raises UsageError.
        """
        if self.rootless:
            from mrc_testbed.dash.server import PREFERRED_PORT
            from mrc_testbed.doctor.rootless import enter

            enter(command, port=PREFERRED_PORT if page else None)
        if self.servers is None:
            require_root(command, f", or `mrc {command} --rootless`{cure}")


@dataclass(frozen=True)
class ExecutorChoice:
    """Options of every command that makes runs in virtual time."""

    executor: Executor = "local"
    slurm: SlurmParameters = None
    task_time: TaskTime = "60s"

    def executor_options(self) -> ExecutorOptions:
        """Check them. Raises UsageError."""
        from mrc_testbed.experiments.executors.options import ExecutorOptions

        parameters: dict[str, str] = {}
        for word in self.slurm or []:
            key, _, value = word.partition("=")
            if not (key and value):
                raise UsageError(f"--slurm {word}: give KEY=VALUE, such as partition=short")
            parameters[key.removeprefix("slurm_")] = value
        try:
            task_s = units.seconds(self.task_time)
        except units.UnitError as error:
            raise UsageError(f"--task-time: {error}") from None
        if not 0 < task_s <= TASK_TIME_MAX_S:
            raise UsageError(f"--task-time {self.task_time}: above 0, at most a day")
        return ExecutorOptions(self.executor, task_s, parameters)


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass by its fields, which typer makes options of."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        group = parameter.annotation
        if not (isinstance(group, type) and is_dataclass(group)):
            parameters.append(parameter)
            continue
        hints = get_type_hints(group, localns={"typer": typer, "offer": offer}, include_extras=True)
        # The default of the group parameter, if it has one, gives the defaults of its options.
        names = [field.name for field in fields(group)]
        defaults = group() if parameter.default is parameter.empty else parameter.default
        groups[parameter.name] = group, names
        parameters += [
            inspect.Parameter(name, parameter.KEYWORD_ONLY, default=getattr(defaults, name), annotation=hints[name])
            for name in names
        ]

    @wraps(command)
    def command_with_options(**values: Any) -> None:
        for name, (group, names) in groups.items():
            values[name] = group(**{field: values.pop(field) for field in names})
        command(**values)

    vars(command_with_options)["__signature__"] = signature.replace(parameters=parameters)
    command_with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command_with_options


CLUSTER_PMTU = 1024
"""Path MTU of commands without such an option: its frames pass 1,500 bytes within a tunnel."""


def read_servers(file: Path | None) -> Servers | None:
    """The machines of --servers, or None. Raises ServersError."""
    from mrc_testbed.topologies.servers import read

    return None if file is None else read(file)


def asked_folder(fabric: str | None) -> Path:
    """Return the run folder of the running fabric that a command asks, and join it where it is rootless.

    Raises FabricError that lists the names, when there are several and none was chosen.
    """
    from mrc_testbed.ipc.fabrics import Fabrics

    folder = Fabrics().asked_folder(fabric)
    if os.geteuid() != 0:
        from mrc_testbed.doctor.rootless import join

        join(folder)
    return folder


def require_root(command: str, cure: str = "") -> None:
    """Require root: namespaces, veth pairs and raw sockets need it. Raises UsageError.

    `other`: a cure beside sudo.
    """
    if os.geteuid() != 0:
        raise UsageError(f"{command} needs root (network namespaces, raw sockets): run it with sudo{cure}")


def parse_rate(text: str | None) -> float | None:
    """`40M` -> 40e6 bits/s (decimal units); None stays None. Raises UsageError."""
    return None if text is None else _positive(units.rate, text, "rate")


def parse_size(text: str) -> int:
    """`64M` -> 67,108,864 bytes (binary units). Raises UsageError."""
    return int(_positive(units.size, text, "size"))


def replay_options(
    iterations: int | None, compute: float, size: float, groups: Path | None, placement: str, **more_fields: Any
) -> Replay:
    """Check how a trace is replayed. Raises UsageError."""
    from mrc_testbed.experiments.traces.command import Replay

    if placement not in PLACEMENTS:
        raise UsageError(f"--placement {placement}: give one of {', '.join(PLACEMENTS)}")
    for option, value in (("--compute-scale", compute), ("--size-scale", size)):
        if not 0 < value <= SCALE_MAX:
            raise UsageError(f"{option} {value:g}: above 0, at most {SCALE_MAX:g}")
    return Replay(iterations, compute, size, groups, placement=placement, **more_fields)


def _positive(read: Callable[[object], float], text: str, quantity: str) -> float:
    try:
        value = read(text)
    except units.UnitError as error:
        raise UsageError(str(error)) from None
    if not 0 < value < NUMBER_MAX:
        raise UsageError(f"{quantity} {text!r}: give a positive number below 2**50")
    return value
