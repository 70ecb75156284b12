"""Modules that are compiled, and the files that a build depends on."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""Folder that holds our packages."""

COMPILED = (
    "hosts/agent/turn_selector.py",
    "hosts/agent/turns.py",
    "hosts/engine/**/*.py",
    "hosts/nic/base.py",
    "hosts/nic/encapsulation.py",
    "hosts/nic/fast.py",
    "hosts/nic/paced.py",
    "hosts/nic/port.py",
    "hosts/nic/scapy_nic.py",
    "mrc_testbed/simulator/fabric.py",
    "mrc_testbed/simulator/frames.py",
    "mrc_testbed/simulator/host.py",
    "mrc_testbed/simulator/impairment.py",
    "mrc_testbed/simulator/message_slots.py",
    "mrc_testbed/simulator/pfc.py",
    "mrc_testbed/simulator/planned_fabric.py",
    "mrc_testbed/simulator/ports.py",
    "mrc_testbed/simulator/simtest/bounds.py",
    "mrc_testbed/simulator/simtest/census.py",
    "mrc_testbed/simulator/simtest/invariants.py",
    "mrc_testbed/simulator/simtest/run.py",
    "mrc_testbed/simulator/switches.py",
    "mrc_testbed/simulator/trace.py",
    "mrc_testbed/simulator/wire.py",
)
"""Patterns of files; the `__init__` of a package, which only imports, stays Python."""

NOT_COMPILED = (
    "hosts/engine/cc/ccprofile.py",
    "hosts/engine/config.py",
    "hosts/engine/config_limits.py",
    "hosts/engine/rocev2/rc_config.py",
)
"""What users write into: these records say what is wrong with a value, where machine code knows a wrong type only."""

ACYCLIC = {
    "hosts/engine/reassembly.py": ("MessagePart",),
    "hosts/engine/rocev2/rc_packets.py": ("Cnp", "RcAck", "RcWrite"),
    "hosts/engine/wire/packets.py": (
        "EndpointRequest", "EndpointResponse", "Nack", "PacketRecord", "ReliabilityProbe", "Sack", "TransportAck",
        "Write",
    ),
    "hosts/engine/wire/payload.py": ("TextPart",),
    "mrc_testbed/simulator/frames.py": ("Frame", "FrameQueue"),
}  # fmt: skip
"""Classes by file that are made for each packet and cannot refer to themselves, however far around: machine code keeps
them from Python's garbage collector, whose lists cost more than the object (mypyc's `acyclic`)."""

NARROW = {
    "hosts/engine/paths/ev.py": {"Ev": {"plane": "i32", "kept": "i32", "kept_limit": "i32", "failures": "i32"}},
    "mrc_testbed/simulator/frames.py": {"Frame": {"port": "i32", "rack": "i16", "downlink": "i16", "plane": "i16"}},
    "mrc_testbed/simulator/ports.py": {"EgressPort": {"number": "i32", "plane": "i32", "waiting": "i32"}},
}
"""Attributes by file and class that are numbers of 32 or 16 bits in machine code: of objects by the thousand, and only
such as are small and not calculated with, for these wrap without a word."""

C_MODULES = ("mrc_testbed/simulator/event_queue.c",)
"""Modules written in C, which stand beside a Python class that does the same."""

READ_TOO = (
    "mrc_testbed/native_build/build.py", "mrc_testbed/native_build/modules.py", "mrc_testbed/native_build/mypyc_setup.py", "mrc_testbed/faults/*.py", "hosts/nic/*.py",
    "hosts/scapy/*.py", "mrc_testbed/simulator/*.py", "topologies/plan/*.py",
)  # fmt: skip
"""Files whose types the machine code relies on, or that say how it is made."""


@cache
def compiled_files() -> tuple[Path, ...]:
    """Files that are compiled, sorted, relative to ROOT."""
    return tuple(path for path in _matching(COMPILED) if path.as_posix() not in NOT_COMPILED)


def source_files() -> list[Path]:
    """Files that a build depends on, sorted, relative to ROOT."""
    return _matching((*COMPILED, *C_MODULES, *READ_TOO))


def module_of(path: Path) -> str:
    """Name of the module in a file relative to ROOT."""
    return ".".join(path.with_suffix("").parts)


def _matching(patterns: tuple[str, ...]) -> list[Path]:
    found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in found if path.name != "__init__.py")
