"""Rates and delays of links, and the queue thresholds that follow (mrc-protocol §4.4, §11.4, Annex C).

Rates in bits/s count whole frames without FCS; times in seconds; depths in packets. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mrc_testbed.topologies.plan.addressing import PlanError
from mrc_testbed.topologies.plan.modes import Mode

ETHERNET_BYTES = 14
OUTER_BYTES = 40
INNER_OVERHEAD = 88
"""Header bytes of a data packet around its payload (§2).

IPv6 40 + UDP 8 + BTH 12 + METH 4 + TSETH 4 + RETH 16 + iCRC 4.
"""
SACK_BYTES = 100
"""Inner bytes of a SACK: IPv6 40 + UDP 8 + BTH 12 + SETH 28 + CC_STATE 8 + iCRC 4 (§2.8)."""
TRIM_BYTES = 98
"""Bytes of a trimmed packet without an outer header: up to RETH (§4.3)."""
PATH_MTUS = (256, 512, 1024, 2048, 4096)

ECN_MIN, ECN_MAX = 0.2, 0.8
TRIM_FABRIC, TRIM_LAST_HOP = 1.0, 1.5
DROP = 3.0
CONTROL = 1.0
"""Thresholds in units of plane BDP (§4.4, Annex C)."""
HARD_LIMIT = 2
"""Depth at which the traffic manager itself drops data, in units of `drop_at`.

Above 1, so that the program decides first.
"""

SCALED_RATE_BPS = 10e6
SCALED_RTT_S = 0.010
SCALED_PMTU = 1024
"""§11.4: rates / 10**4, times x 10**3, so that a BDP holds as many packets as in the paper."""
RATE_RANGE = (1e3, 1e12)
DELAY_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """Rate and one-way delay of each direction of a link. Raises PlanError for what is no such thing."""

    rate_bps: float | None = None
    """Bits/s; None: as fast as the machine."""
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        low, high = RATE_RANGE
        if self.rate_bps is not None and not (_is_number(self.rate_bps) and low <= self.rate_bps <= high):
            raise PlanError(f"rate_bps = {self.rate_bps!r}: give {low:g} to {high:g} bits/s, or None for no limit")
        if not (_is_number(self.delay_s) and 0 <= self.delay_s <= DELAY_MAX_S):
            raise PlanError(f"delay_s = {self.delay_s!r}: give 0 to {DELAY_MAX_S:g} seconds")

    def seconds(self, size: int) -> float:
        """Time on the wire of that many bytes, without the delay."""
        return 0.0 if self.rate_bps is None else size * 8 / self.rate_bps

    def to_json(self) -> dict[str, float | None]:
        return {"rate_bps": self.rate_bps, "delay_s": self.delay_s}

    @classmethod
    def from_json(cls, subject: str, data: Any) -> LinkSpeed:
        """Inverse of to_json. Raises PlanError, naming `subject`."""
        if not isinstance(data, dict) or not set(data) <= {"rate_bps", "delay_s"}:
            raise PlanError(f"{subject}: a link's speed has the keys rate_bps and delay_s; got {data!r}")
        return cls(**data)

    def __str__(self) -> str:
        rate = "no limit" if self.rate_bps is None else f"{in_units(self.rate_bps)}b/s"
        return f"{rate}, {self.delay_s * 1e3:.4g} ms"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def in_units(value: float) -> str:
    """1e7 -> `10 M`: with a decimal unit, for messages."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} "


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Depths of one egress port's queues, in packets, as the egress discipline has them (§4.4).

    Data queue, full frames: `ecn_min` < `ecn_max` < `trim_at` < `drop_at`. The ramp of marks lies between the first
    two (not used on a last hop unless the user wants it), a trimmable packet that meets `trim_at` is trimmed, any data
    packet that meets `drop_at` is dropped. `control_depth`: packets of the control queue, of trimmed size.
    """

    ecn_min: int
    ecn_max: int
    trim_at: int
    drop_at: int
    last_hop: bool
    control_depth: int

    @property
    def data_limit(self) -> int:
        """Packets at which the traffic manager drops data by itself; above `drop_at`, so that it never should."""
        return HARD_LIMIT * self.drop_at


def thresholds(bdp_bytes: float, frame: int, trimmed: int, last_hop: bool) -> Thresholds:
    """Thresholds of a port from its plane BDP; `frame`, `trimmed`: bytes of a full and of a trimmed frame.

    Each is one packet above the one before at least, so that even a tiny BDP keeps their order.
    """
    packets = bdp_bytes / frame
    ecn_min = max(1, round(ECN_MIN * packets))
    ecn_max = max(ecn_min + 1, round(ECN_MAX * packets))
    trim_at = max(ecn_max + 1, round((TRIM_LAST_HOP if last_hop else TRIM_FABRIC) * packets))
    drop_at = max(trim_at + 1, round(DROP * packets))
    return Thresholds(ecn_min, ecn_max, trim_at, drop_at, last_hop, max(8, round(CONTROL * bdp_bytes / trimmed)))


def frame_bytes(payload: int, mode: Mode = Mode.SRV6) -> int:
    """Bytes of a data frame with a timestamp and that much payload, without FCS."""
    return payload + INNER_OVERHEAD + _outer_bytes(mode)


def sack_bytes(mode: Mode = Mode.SRV6) -> int:
    """Bytes of a SACK's frame."""
    return SACK_BYTES + _outer_bytes(mode)


def trimmed_bytes(mode: Mode = Mode.SRV6) -> int:
    """Bytes of a trimmed frame (`trim_len` of §4.3): 138 with SRv6, 98 without."""
    return TRIM_BYTES + (OUTER_BYTES if mode.outer_header else 0)


def _outer_bytes(mode: Mode) -> int:
    return ETHERNET_BYTES + (OUTER_BYTES if mode.outer_header else 0)


def round_trip_s(speeds: Iterable[LinkSpeed], pmtu_bytes: int, mode: Mode) -> float:
    """Return the unloaded time of a full data packet over these links and of its SACK back.

    Each link stores and forwards.
    """
    frame, sack = frame_bytes(pmtu_bytes, mode), sack_bytes(mode)
    return sum(2 * speed.delay_s + speed.seconds(frame) + speed.seconds(sack) for speed in speeds)


def spare_delay_s(links: list[LinkSpeed], rtt_s: float, pmtu_bytes: int, mode: Mode, unset_count: int) -> float:
    """Return the one-way delay, seconds, that a round trip leaves to each of `unset_count` of its links.

    Raises PlanError when nothing is.
    """
    used_s = round_trip_s(links, pmtu_bytes, mode)
    if used_s > rtt_s:
        slowest = min((link.rate_bps for link in links if link.rate_bps is not None), default=0.0)
        raise PlanError(
            f"a round trip of {rtt_s * 1e3:.4g} ms over {len(links)} links of {in_units(slowest)}b/s is not possible: "
            f"serialising a packet of {pmtu_bytes} bytes and its SACK takes {used_s * 1e3:.4g} ms, with the delays "
            "given: give a higher rate, a smaller path MTU, or all delays yourself"
        )
    return (rtt_s - used_s) / (2 * unset_count)


def scaled_speed(rate_bps: float, rtt_s: float, pmtu_bytes: int, mode: Mode, hops: int = 4) -> LinkSpeed:
    """Return the speed of each of `hops` links that together make `rtt_s`.

    Delay is what serialising leaves.

    That is §11.4.

    Raises PlanError when it leaves nothing.
    """
    links = [LinkSpeed(rate_bps)] * hops
    return LinkSpeed(rate_bps, spare_delay_s(links, rtt_s, pmtu_bytes, mode, hops))
