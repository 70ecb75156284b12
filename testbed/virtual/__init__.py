"""The virtual-time fabric: unchanged engines, seeded and repeatable networks. See docs/virtual.md."""

from testbed.virtual.fabric import VirtualFabric
from testbed.virtual.faults import (
    Blackhole,
    Corrupt,
    Cut,
    Fault,
    FaultError,
    Flap,
    Heal,
    LinkDown,
    LinkUp,
    Loss,
    Mend,
    PowerOff,
    PowerOn,
    Repeat,
    SetLine,
    Stall,
    fault_from_json,
)
from testbed.virtual.profiles import (
    UNLIMITED,
    HostProfile,
    Line,
    LinkProfile,
    ProfileError,
    QueueProfile,
    Scale,
    scaled,
)

__all__ = [
    "UNLIMITED", "Blackhole", "Corrupt", "Cut", "Fault", "FaultError", "Flap", "Heal", "HostProfile", "Line",
    "LinkDown", "LinkProfile", "LinkUp", "Loss", "Mend", "PowerOff", "PowerOn", "ProfileError", "QueueProfile",
    "Repeat", "Scale", "SetLine", "Stall", "VirtualFabric", "fault_from_json", "scaled",
]  # fmt: skip
