"""The testbed from Python: one fabric, live or in virtual time, with the words of the prompt (docs/python-api.md).

    fabric     Fabric: brings a fabric up, sends, breaks and heals, looks
    transfer   FabricTransfer: progress, result, series and EV states of one transfer
    records    what is answered, as frozen records, and the errors
    result_set ResultSet: what `mrc run` wrote, as pandas frames and as Parquet
    backend    what the two forms do for it: virtual (simulator), live (Mininet, P4 switches, agents, controller)

`from mrc import Fabric` is the same.
"""

from experiments.results import ResultsError
from faults import FaultError
from ipc.errors import UsageError
from ipc.rundir import FabricError
from ipc.units import UnitError
from mrc.api.fabric import AnyFabric as Fabric
from mrc.api.fabric import HeldFault
from mrc.api.records import (
    ApiError,
    EvMove,
    FabricEvent,
    NamedFault,
    NotInTimeError,
    PacketWay,
    PathState,
    PortCount,
    RootNeededError,
    TransferFailedError,
    TransferResult,
    VirtualTimeError,
)
from mrc.api.result_set import ResultSet
from mrc.api.transfer import FabricTransfer
from topologies.plan import PlanError

__all__ = [
    "ApiError",
    "EvMove",
    "Fabric",
    "FabricError",
    "FabricEvent",
    "FabricTransfer",
    "FaultError",
    "HeldFault",
    "NamedFault",
    "NotInTimeError",
    "PacketWay",
    "PathState",
    "PlanError",
    "PortCount",
    "ResultSet",
    "ResultsError",
    "RootNeededError",
    "TransferFailedError",
    "TransferResult",
    "UnitError",
    "UsageError",
    "VirtualTimeError",
]
