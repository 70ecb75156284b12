"""Python API of the testbed: one fabric, live or in virtual time (docs/python-api.md).

The names are those of the prompt.

    fabric     Fabric: brings a fabric up, sends, breaks and heals, looks
    transfer   FabricTransfer: progress, result, series and EV states of one transfer
    records    what is answered, as frozen records, and the errors
    result_set ResultSet: what `mrc run` wrote, as pandas frames and as Parquet
    backend    what the two forms do for it: virtual (simulator), live (Mininet, P4 switches, agents, controller)

`from mrc_testbed import Fabric` is the same.
"""

from mrc_testbed.api.fabric import AnyFabric as Fabric
from mrc_testbed.api.fabric import HeldFault
from mrc_testbed.api.records import (
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
from mrc_testbed.api.result_set import ResultSet
from mrc_testbed.api.transfer import FabricTransfer
from mrc_testbed.console.units import UnitError
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.results import ResultsError
from mrc_testbed.faults import FaultError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.plan import PlanError

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
