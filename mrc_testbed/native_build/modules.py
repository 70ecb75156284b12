"""Modules that are compiled, and the files that a build depends on."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mrc_testbed.files.package import PACKAGE

ROOT = PACKAGE
"""Folder that the patterns start at."""

COMPILED_PATTERNS = (
    "hosts/agent/turn_selector.py",
    "hosts/agent/turns.py",
    "hosts/engine/**/*.py",
    "hosts/nic/base.py",
    "hosts/nic/encapsulation.py",
    "hosts/nic/fast.py",
    "hosts/nic/paced.py",
    "hosts/nic/port.py",
    "hosts/nic/scapy_nic.py",
    "simulator/border.py",
    "simulator/fabric.py",
    "simulator/frames.py",
    "simulator/host.py",
    "simulator/impairment.py",
    "simulator/message_slots.py",
    "simulator/pfc.py",
    "simulator/planned_fabric.py",
    "simulator/ports.py",
    "simulator/simtest/bounds.py",
    "simulator/simtest/census.py",
    "simulator/simtest/invariants.py",
    "simulator/simtest/run.py",
    "simulator/switches.py",
    "simulator/trace.py",
    "simulator/wire.py",
    "simulator/workloads.py",
)
"""Patterns of files; the `__init__` of a package, which only imports, stays Python."""

NOT_COMPILED = (
    "hosts/engine/cc/ccprofile.py",
    "hosts/engine/config.py",
    "hosts/engine/config_limits.py",
    "hosts/engine/rocev2/rc_config.py",
)
"""Modules whose values users write: these records explain a bad value, machine code only its type."""

ACYCLIC = {
    "hosts/engine/reassembly.py": ("MessagePart",),
    "hosts/engine/requestor.py": ("Feedback",),
    "hosts/engine/rocev2/rc_packets.py": ("Cnp", "RcAck", "RcWrite"),
    "hosts/engine/wire/packets.py": (
        "EndpointRequest",
        "EndpointResponse",
        "Nack",
        "PacketRecord",
        "ReliabilityProbe",
        "Sack",
        "TransportAck",
        "Write",
    ),
    "hosts/engine/wire/payload.py": ("TextPart",),
    "simulator/frames.py": ("Frame", "FrameQueue"),
}
"""Classes by file that are made for each packet and cannot refer to themselves, even indirectly.

Machine code keeps them from Python's garbage collector, whose lists cost more than the object (mypyc's `acyclic`).
"""

NARROW = {
    "hosts/engine/paths/ev.py": {"Ev": {"plane": "i32", "kept_count": "i32", "kept_limit": "i32", "failures": "i32"}},
    "simulator/frames.py": {"Frame": {"port": "i32", "rack": "i16", "downlink": "i16", "plane": "i16"}},
    "simulator/ports.py": {"EgressPort": {"number": "i32", "plane": "i32", "waiting": "i32"}},
}
"""Attributes by file and class that are numbers of 32 or 16 bits in machine code.

They belong to objects that exist by the thousand. Only small numbers without arithmetic qualify, for these types wrap
silently.
"""

C_MODULES = ("hosts/nic/mrc_native.c", "simulator/event_queue.c")
"""Modules written in C, which stand beside Python that does the same."""
C_INCLUDES = ("switch/system",)
"""Folders with headers of theirs."""

READ_TOO = (
    "faults/*.py",
    "hosts/nic/*.py",
    "hosts/scapy/*.py",
    "native_build/build.py",
    "native_build/modules.py",
    "native_build/mypyc_setup.py",
    "simulator/*.py",
    "simulator/channel.c",
    "simulator/crossing.c",
    "simulator/hops.c",
    "simulator/host.c",
    "switch/system/shared_wire.h",
    "topologies/plan/*.py",
)
"""Files whose types the machine code relies on, or that say how it is made."""


@cache
def compiled_files() -> tuple[Path, ...]:
    """Files that are compiled, sorted, relative to ROOT."""
    return tuple(path for path in _matching(COMPILED_PATTERNS) if path.as_posix() not in NOT_COMPILED)


def source_files() -> list[Path]:
    """Files that a build depends on, sorted, relative to ROOT."""
    return _matching((*COMPILED_PATTERNS, *C_MODULES, *READ_TOO))


def module_of(path: Path) -> str:
    """Name of the module in a file relative to ROOT."""
    return ".".join((ROOT.name, *path.with_suffix("").parts))


def _matching(patterns: tuple[str, ...]) -> list[Path]:
    paths = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in paths if path.name != "__init__.py")
