"""The vocabulary of faults: what can break, in one place for all who break it or speak of it.

    kinds    one frozen class a kind: what a scenario file says of it, its check, its random draws, its words, and what
             it does to a FaultTarget
    target   FaultTarget: the operations that a fabric offers to faults; the live one and the virtual one have them
    places   links, switches and hosts as a file names or draws them
    terms    quantities and the base of all parts of a scenario file

A new fault is a class of `kinds` and its name in `KINDS` there.
"""

from mrc_testbed.faults.kinds import (
    ALL_SWITCHES,
    KINDS,
    VIRTUAL_KINDS,
    BlackholeFault,
    ControllerFault,
    CorruptFault,
    CorruptingSwitchFault,
    CutFault,
    DrainFault,
    DuplicateFault,
    FlapFault,
    HealFault,
    InjectedFault,
    LateFault,
    LineFault,
    LossFault,
    OneWayFault,
    PowerOffFault,
    PowerOnFault,
    RebootFault,
    RestoreFault,
    SilentFault,
    StallFault,
    VanishFault,
    fault_from_json,
)
from mrc_testbed.faults.target import (
    Delayed,
    Direction,
    Drains,
    FaultError,
    FaultHolds,
    FaultTarget,
    Holds,
    PacketChoice,
)

__all__ = [
    "ALL_SWITCHES",
    "KINDS",
    "VIRTUAL_KINDS",
    "BlackholeFault",
    "ControllerFault",
    "CorruptFault",
    "CorruptingSwitchFault",
    "CutFault",
    "Delayed",
    "Direction",
    "DrainFault",
    "Drains",
    "DuplicateFault",
    "FaultError",
    "FaultHolds",
    "FaultTarget",
    "FlapFault",
    "HealFault",
    "Holds",
    "InjectedFault",
    "LateFault",
    "LineFault",
    "LossFault",
    "OneWayFault",
    "PacketChoice",
    "PowerOffFault",
    "PowerOnFault",
    "RebootFault",
    "RestoreFault",
    "SilentFault",
    "StallFault",
    "VanishFault",
    "fault_from_json",
]
