"""Sizes of a fabric by formula: what a number of NICs takes, what a failure costs, and one plane.

    size = FabricSize.for_nics(131072, radix=512, planes=8, nic_bps=800e9)
    size.t0s, size.t1s, size.switches, size.evs, size.blast() ...

A plane is a folded Clos of two tiers: half of a T0's ports go down to NICs, half up, one to each T1 (mrc-protocol
§11, capacity facts). `radix` is the ports of a switch at a plane's rate, a NIC's rate divided by the planes; the same
switch has `radix / planes` ports at the NIC's rate, which a fabric of one plane needs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from mrc_testbed.errors import UsageError

TABLE_ENTRIES = 1024
"""Entries that each of `my_usid` and `usid_next` of p4src/srv6.p4 holds."""
USID_BITS = 16
ROLE_BITS = 2
"""T1, T0, NIC."""
RADIX_MIN = 4
"""Ports of a switch that a Clos can be made of."""
EVS_MAX = 256
"""EVs of a QP (§7)."""


@dataclass(frozen=True, slots=True)
class Blast:
    """Cost of one failure, as shares of 1."""

    failed_part: str
    nics: int
    """Number of NICs affected."""
    of_nic: float
    """Share of the bandwidth of each affected NIC."""
    of_uplinks: float | None
    """Share of the uplinks of a T0; None for a failure that is no uplink."""
    single_plane: float | None
    """Share lost when the same failure hits one plane of the same switches.

    Share of the uplinks of a T0 for an uplink, else of the NIC.
    """


@dataclass(frozen=True, slots=True)
class FabricSize:
    """Counts of a fabric of two tiers and several planes. Rates are bits/s."""

    planes: int
    radix: int
    t0s: int
    """Number of T0s in each plane."""
    uplinks: int
    """Number of uplinks of a T0."""
    t1s: int
    """Number of T1s in each plane; each has as many links to every T0."""
    nics_per_t0: int
    nics: int
    nic_bps: float

    @classmethod
    def for_nics(cls, nics: int, *, radix: int, planes: int, nic_bps: float) -> FabricSize:
        """Return the smallest fabric without oversubscription.

        Raises UsageError when switches have too few ports.
        """
        _positive(nics=nics, radix=radix, planes=planes)
        if radix % 2:
            raise UsageError(f"--radix {radix}: half of a T0's ports go down, half up: give an even number")
        nics_max = radix // 2 * radix
        if nics > nics_max:
            raise UsageError(
                f"--nics {nics}: two tiers of {radix}-port switches hold {nics_max} at most; more planes do not help "
                "(each has all NICs), switches with more ports do"
            )
        nics_per_t0 = min(nics, radix // 2)
        t0s = ceil(nics / nics_per_t0)
        uplinks = nics_per_t0 if t0s > 1 else 0
        t1s = next((n for n in range(1, uplinks + 1) if uplinks % n == 0 and t0s * uplinks <= n * radix), 0)
        return cls(planes, radix, t0s, uplinks, t1s, nics_per_t0, nics, nic_bps)

    @classmethod
    def for_parts(cls, *, planes: int, t0s: int, uplinks: int, nics_per_t0: int, nic_bps: float) -> FabricSize:
        """A fabric by its parts, a T1 for each uplink of a T0; the radix is what its largest switch needs.

        Raises UsageError.
        """
        _positive(planes=planes, racks=t0s, spines=uplinks, hosts_per_rack=nics_per_t0)
        radix = max(nics_per_t0 + uplinks, t0s)
        return cls(planes, radix, t0s, uplinks, uplinks, nics_per_t0, t0s * nics_per_t0, nic_bps)

    # ---- counts -------------------------------------------------------------------------------------------

    @property
    def switches(self) -> int:
        return self.planes * (self.t0s + self.t1s)

    @property
    def links(self) -> int:
        """NIC-T0 and T0-T1, of all planes."""
        return self.planes * (self.nics + self.t0s * self.uplinks)

    @property
    def paths(self) -> int:
        """EVs that name different paths between two NICs of different racks: one an uplink and plane."""
        return self.planes * max(1, self.uplinks)

    @property
    def port_bps(self) -> float:
        return self.nic_bps / self.planes

    @property
    def oversubscription(self) -> float:
        """Rate of a T0's downlinks over that of its uplinks; 0: nothing leaves a T0."""
        return self.nics_per_t0 / self.uplinks if self.uplinks else 0.0

    def usid_bits(self) -> int:
        """Bits of a uSID that role, plane and number take."""
        number = max(self.t0s, self.t1s, self.nics_per_t0, 1)
        return ROLE_BITS + max(1, (self.planes - 1).bit_length()) + max(1, (number - 1).bit_length())

    def entries(self) -> dict[str, int]:
        """Entries of the fullest table of a T0 and of a T1: `my_usid`, with itself and an adjacency a port."""
        downlinks = self.t0s * self.uplinks // self.t1s if self.t1s else 0
        return {"T0": self.nics_per_t0 + self.uplinks + 1, "T1": downlinks + 1}

    # ---- what breaks --------------------------------------------------------------------------------------

    def blast(self) -> list[Blast]:
        """Return what one NIC port, T0-T1 link, T1, T0 or plane costs, beside one plane of the same switches."""
        plane = 1 / self.planes
        uplinks = self.radix // self.planes // 2  # of a T0 at the NIC's rate
        single = 1 / uplinks if uplinks else None
        out = [Blast("NIC port or its link", 1, plane, None, 1.0)]
        if self.uplinks:
            link, t1 = 1 / self.uplinks, 1 / self.t1s
            out += [
                Blast("T0-T1 link", self.nics_per_t0, plane * link, link, single),
                Blast("T1", self.nics, plane * t1, t1, single),
            ]
        return [
            *out,
            Blast("T0", self.nics_per_t0, plane, None, 1.0),
            Blast("plane", self.nics, plane, None, 1.0),
        ]

    def single_plane(self) -> dict[str, Any] | None:
        """Return size, and cost for each NIC, of one plane of three tiers of the same switches.

        None: they have too few ports for it.

        A folded Clos of three tiers of R-port switches has R**3 / 4 hosts and 5 R**2 / 4 switches; light passes three
        layers of links where two tiers have two.
        """
        radix = self.radix // self.planes
        if radix < RADIX_MIN:
            return None
        per_nic = 5 / radix
        return {
            "radix": radix,
            "nics_max": radix**3 // 4,
            "switches": ceil(per_nic * self.nics),
            "switch_share": self.switches / (per_nic * self.nics),
            "optics_share": (1 + (self.uplinks / self.nics_per_t0)) / 3 if self.uplinks else 1 / 3,
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, by name."""
        return {
            **asdict(self),
            "tiers": 2 if self.uplinks else 1,
            "switches": self.switches,
            "links": self.links,
            "port_bps": self.port_bps,
            "paths": self.paths,
            "evs": min(self.paths, EVS_MAX),
            "oversubscription": self.oversubscription,
            "usid_bits": self.usid_bits(),
            "entries": self.entries(),
            "blast": [asdict(blast) for blast in self.blast()],
            "single_plane": self.single_plane(),
        }


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise UsageError(f"--{name.replace('_', '-')} {value}: 1 or more")
