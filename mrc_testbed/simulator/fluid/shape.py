"""Fabrics and queue pairs of the fluid model: dimensions, rates, and arrays of senders and targets.

There is no object for a host.

Hosts count rack by rack. A link between T0 and T1 has the number (plane * racks + rack) * spines + spine, once for the
way up and once for the way down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mrc_testbed.simulator.fluid.rings import Rings
from mrc_testbed.topologies.plan.link_speeds import ETHERNET_BYTES, OUTER_BYTES, SACK_BYTES

EVS_MAX: Final = 256
"""EVs of a QP."""
SACK_FRAME_BYTES: Final = SACK_BYTES + ETHERNET_BYTES + OUTER_BYTES
"""Bytes of a SACK on the wire."""

Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FabricShape:
    """A fabric and its links; every link has the same rate."""

    planes: int
    racks: int
    spines: int
    hosts_per_rack: int
    rate_bps: float
    rtt_s: float
    """Base round trip, seconds."""
    frame_bytes: int
    """Bytes of a full data packet on the wire."""
    payload_bytes: int
    max_active: int = 100
    """Limit of EVs in rotation, as Config.paths.max_active."""
    backups: int = -1
    """Backups in each plane, as Config.paths.backup_per_plane; -1: a quarter of the EVs."""

    @property
    def hosts(self) -> int:
        return self.racks * self.hosts_per_rack

    @property
    def links(self) -> int:
        """Links between T0s and T1s."""
        return self.planes * self.racks * self.spines

    @property
    def evs_per_plane(self) -> int:
        """EVs of a QP between racks, in each plane."""
        return max(1, min(self.spines, EVS_MAX // self.planes))

    @property
    def rotation(self) -> int:
        """EVs of a plane in rotation; the rest are backups: as EvProfile shares them out."""
        spare = self.evs_per_plane // 4 if self.backups < 0 else self.backups
        return max(1, min(self.max_active // self.planes, self.evs_per_plane - spare))

    @property
    def one_way_s(self) -> float:
        """Time of a full packet from NIC to NIC through empty queues, seconds.

        Half the round trip, and more by what four links take longer for a packet than for its SACK, which is half.
        """
        return self.rtt_s / 2 + 2 * (self.frame_bytes - SACK_FRAME_BYTES) * 8 / self.rate_bps

    @property
    def packets_per_s(self) -> float:
        """Full packets of one NIC port a second."""
        return self.rate_bps / 8 / self.frame_bytes

    @property
    def packets_per_rtt(self) -> float:
        """Full packets of one NIC port in a base round trip: the depth of a plane's pipe."""
        return self.packets_per_s * self.rtt_s

    @property
    def payload_bps(self) -> float:
        """Payload of one NIC port at line rate."""
        return self.rate_bps * self.payload_bytes / self.frame_bytes


@dataclass(frozen=True, slots=True)
class QueuePairs:
    """All QPs, as arrays of one length."""

    sources: Ints
    targets: Ints
    starts_s: Floats
    stops_s: Floats
    """End of each QP, seconds; inf: the QP sends until the run ends."""
    weights: Floats
    """Share of its flow that a QP carries: one over the flow's QPs."""
    window_bytes: Floats
    """Most that its application has outstanding, of the whole flow."""
    rings: tuple[Rings, ...] = ()
    """Jobs whose flows wait for each other; other QPs send all the time."""

    def __len__(self) -> int:
        return len(self.sources)
