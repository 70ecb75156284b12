"""Options of a live fabric beside plan and run folder, and the only checks of these options.

Loads neither Mininet nor gRPC, so that a command can refuse what it was given before it does anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import p4_program

if TYPE_CHECKING:
    from mrc_testbed.topologies.servers import Servers

CompileProgram = Callable[[Path, str, str], None]
EMBEDDED, BMV2 = "embedded", "bmv2"
VIRTUAL, VETH = "virtual", "veth"
WIRES = (VIRTUAL, VETH)
"""Kinds of links between switches: wires inside the daemon, pairs of interfaces."""
WIRES_OF: dict[str, tuple[str, ...]] = {EMBEDDED: WIRES, BMV2: (VETH,)}
"""Targets, each with the kinds of wires that can join its switches, the default first."""
NICS = ("fast", "scapy")
DENYLISTS = ("off", "lossy", "all")


@dataclass(frozen=True)
class Ports:
    """TCP ports of the servers, on loopback.

    BMv2: a P4Runtime and a Thrift port for each switch, counting up.
    """

    p4runtime: int = 9559
    gnmi: int = 9339
    thrift: int = 9090
    open_to_all: bool = False
    """Any user of the machine may use the ports; else they want the token of the run (docs/security.md)."""
    tls: bool = False
    """P4Runtime, gNMI and the controller's API speak TLS by TCP, with a certificate that the run makes."""

    def with_offset(self, offset: int) -> Ports:
        """Return the same ports with other numbers, each `offset` above."""
        return replace(self, p4runtime=self.p4runtime + offset, gnmi=self.gnmi + offset, thrift=self.thrift + offset)


@dataclass(frozen=True, slots=True)
class LabOptions:
    """Options of a live fabric.

    Raises FabricError for a value that does not exist, or that another one excludes.
    """

    target: str = EMBEDDED
    """Switches: "embedded" (ours) or "bmv2" (simple_switch_grpc)."""
    wires: str | None = None
    """Links between switches: "virtual", inside the daemon, or "veth", interfaces.
    
    None: the usual kind of the target.
    """
    nic: str = "fast"
    """NIC of every host: "fast" (AF_PACKET) or "scapy"."""
    servers: Servers | None = None
    """Machines that hold the fabric together (docs/cluster.md). None: this one holds all."""
    program: str | None = None
    """P4 program of every switch, "srv6" or "spray". None: that of the plan's mode."""
    own_programs: Mapping[str, str] = field(default_factory=dict)
    """Paths of P4 programs of chosen switches; the others have `program`."""
    compile_program: CompileProgram | None = p4_program.compile_program
    """Compiler of the program: takes (folder, target, program), writes p4info.txtpb and device config.
    
    None: no program.
    """
    config: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the hosts' engine configuration, beside what follows from the plan.
    
    See hosts/agent/engine_defaults.py.
    """
    agents: bool = True
    """Start an agent in every host."""
    controller: bool = True
    """Start the controller, which needs a program to push."""
    mapper: bool | None = None
    """Start Clustermapper, which probes every link.
    
    None: when the fabric has agents, a controller, and one machine.
    """
    slowdown: int = 1
    """Slowdown of this machine (machine_speed.py): Clustermapper probes so many times more rarely."""
    denylist: str = "off"
    """Faults that the controller takes out of the hosts' EVs: "off", "lossy" or "all"."""
    react_after_s: float = 0.0
    """Seconds from a failure until the switches of spray modes avoid what it cut off. Infinite: never."""
    discipline: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the egress discipline that differ from the plan's (controller/p4runtime/qos.py)."""
    ports: Ports = Ports()
    """TCP ports of the servers, and who may use them (docs/security.md)."""
    guests: tuple[int, ...] = ()
    """Users by number who may run programs on the hosts' RDMA devices (docs/rdma-programs.md)."""

    def __post_init__(self) -> None:
        _require("target", self.target, WIRES_OF)
        _require("NIC", self.nic, NICS)
        _require("denylist", self.denylist, DENYLISTS)
        if self.wires is not None:
            _require("wires", self.wires, WIRES)
        kinds = WIRES_OF[self.target]
        if self.wires not in (None, *kinds):
            raise FabricError(
                f"--wires {self.wires} joins switches of one process, and --target {self.target} has a process for "
                f"each: use --wires {kinds[0]}, or --target {EMBEDDED}"
            )
        if self.servers is not None and self.target != EMBEDDED:
            raise FabricError(f"--servers with --target {self.target}: only --target {EMBEDDED} runs on several")
        if self.servers is not None and self.guests:
            raise FabricError(
                "--servers with --allow: guests reach hosts of one machine alone. Cure: leave --allow out"
            )
        if self.own_programs and (self.servers is not None or self.target != EMBEDDED):
            option = "--servers" if self.servers is not None else f"--target {self.target}"
            raise FabricError(f"--program NODE=FILE with {option}: chosen switches are embedded ones of this machine")
        if not self.react_after_s >= 0.0:
            raise FabricError(f"react_after_s {self.react_after_s:g}: give 0 or more seconds, or infinity for never")
        if self.controller and self.compile_program is None:
            raise FabricError("a controller needs a program to push: give compile_program, or controller=False")

    @property
    def wire_kind(self) -> str:
        """Kind of the links between switches, where None is resolved."""
        return self.wires or WIRES_OF[self.target][0]

    @property
    def has_mapper(self) -> bool:
        """Whether Clustermapper is started, where None is resolved.

        Clustermapper needs a socket in every host's namespace.
        """
        return (self.agents and self.controller and self.servers is None) if self.mapper is None else self.mapper


def _require(name: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise FabricError(f"no {name} {value!r} (has: {', '.join(choices)})")


DEFAULT_LAB = LabOptions()
