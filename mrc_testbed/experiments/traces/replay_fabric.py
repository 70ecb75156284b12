"""Fabric of a replayed trace: a host a rank, in the size and at the rates that the user asks for.

Without words of the user links have 10 Mb/s and 10 ms, times at which a live fabric can follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.errors import UsageError
from mrc_testbed.faults.terms import suggestion
from mrc_testbed.topologies.plan import Plan, PlanError

PACKED_RACK = 4
"""Hosts of a rack when a trace has more ranks than two racks of them hold."""
LIVE_BPS = 32e6
"""Most bits per second of all NICs of a live fabric together, so that two cores can follow."""
VIRTUAL_LINK_BPS = 10e6
RTT_S = 0.010
LEAST_RTT_S = 1e-5
"""Round trip of links so fast that VIRTUAL_LINK_BPS x RTT_S bits would take less."""
PLANES = 4
FAST_BPS, FAST_PMTU = 1e9, 4096
"""Rate from which packets are as long as on real NICs."""


def _whole_number(text: object) -> int:
    """Return a whole number. Raises ValueError."""
    if not str(text).isdecimal():
        raise ValueError("must be a whole number")
    return int(str(text))


_KEYS: dict[str, Callable[[object], float]] = {
    **dict.fromkeys(("planes", "racks", "spines", "hosts_per_rack"), _whole_number),
    "rate": units.rate,
    "rtt": units.seconds,
}


@dataclass(frozen=True, slots=True)
class ReplayFabric:
    """Sizes, rate of a link and round trip of the fabric of a replay."""

    planes: int
    racks: int
    spines: int
    hosts_per_rack: int
    rate_bps: float
    rtt_s: float
    is_asked: bool
    """Whether the user chose its rate or round trip."""

    @property
    def plan(self) -> Plan:
        """Plan of these sizes. Raises UsageError."""
        try:
            return Plan(self.planes, self.racks, self.spines, self.hosts_per_rack)
        except PlanError as error:
            raise UsageError(f"--trace: a fabric for its ranks: {error}") from None

    def parts(self, *, live: bool) -> dict[str, Any]:
        """Return the parts of the scenario that make this fabric.

        Timers of the transport follow the round trip; live they cannot, as processes are not that fast.
        """
        parts: dict[str, Any] = {
            "fabric": {
                "planes": self.planes,
                "racks": self.racks,
                "spines": self.spines,
                "hosts_per_rack": self.hosts_per_rack,
            },
            "links": {"rate": round(self.rate_bps), "rtt": self.rtt_s},
        }
        transport: dict[str, Any] = {"pmtu": FAST_PMTU} if self.rate_bps >= FAST_BPS else {}
        if self.is_asked and not live:
            transport["clock"] = min(max(self.rtt_s / RTT_S, 1e-3), 1e3)
        return parts | {"transport": transport} if transport else parts


def replay_fabric(text: str | None, ranks: int, *, live: bool) -> ReplayFabric:
    """Return the fabric for a number of ranks. `text`: `planes=8,spines=4,rate=100G`, or None.

    Raises UsageError for words that are none, and for too few hosts.
    """
    numbers = _numbers_in(text)
    per_rack = int(numbers.get("hosts_per_rack") or max(1, min(PACKED_RACK, -(-ranks // 2))))
    planes = int(numbers.get("planes", PLANES))
    rate_bps = numbers.get("rate") or (min(VIRTUAL_LINK_BPS, LIVE_BPS / planes / ranks) if live else VIRTUAL_LINK_BPS)
    rtt_s = numbers.get("rtt") or max(LEAST_RTT_S, RTT_S * VIRTUAL_LINK_BPS / rate_bps)
    racks = int(numbers.get("racks", -(-ranks // per_rack)))
    if racks * per_rack < ranks:
        raise UsageError(f"--fabric: {racks} racks of {per_rack} hosts are too few for the {ranks} ranks of the trace")
    is_asked = bool(numbers.keys() & {"rate", "rtt"})
    return ReplayFabric(planes, racks, int(numbers.get("spines", 2)), per_rack, rate_bps, rtt_s, is_asked)


def _numbers_in(text: str | None) -> dict[str, float]:
    """Return the numbers behind the keys of --fabric. Raises UsageError."""
    values: dict[str, float] = {}
    for word in filter(None, (word.strip() for word in (text or "").split(","))):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or key not in _KEYS:
            raise UsageError(
                f"--fabric: {word!r} is no KEY=VALUE ({suggestion(key, _KEYS)}), as in planes=8,spines=4,rate=100G"
            )
        try:
            values[key] = _KEYS[key](value)
        except ValueError as error:
            raise UsageError(f"--fabric {key}={value}: {error}") from None
        if values[key] <= 0:
            raise UsageError(f"--fabric {key}={value}: must be above 0")
    return values
