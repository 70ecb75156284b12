"""Entries of the egress discipline (p4src/egress.p4), and of dead next hops.

The discipline has classes, thresholds and trimming. Thresholds are the plan's (`Plan.thresholds`, mrc-protocol §4.4,
Annex C), codepoints those of §4.1. An operator who numbers codepoints otherwise, wants a signal off or other depths
gives a `Discipline` (`LabOptions(discipline=...)`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry
from mrc_testbed.topologies.plan import Plan, Switch, Thresholds

CONTROL_PRIORITY = 7
"""v1model's first served; data has priority 0 (egress.p4)."""
SLOPE_UNIT = 1 << 16
"""Unit of `ecn_slope`: a mark is certain at this value."""
OUTER_BYTES = 40
"""Bytes of the outer IPv6 header, which the program counts by itself."""
HARD_LIMIT_SHARE = 6.0
"""Multiple of the plane's BDP at which the traffic manager drops (2 x 3, plan/link_speeds.py)."""
SHORTEST_TRIM = 78
"""Bytes through METH without an outer header: the least that a receiver needs (§4.3)."""


@dataclass(frozen=True, slots=True)
class Discipline:
    """Settings of the operator. Codepoints: 6 bits, all distinct (§4.1).

    Depths are shares of the plane's BDP; None: the plan's. Raises InputError for what makes no sense.
    """

    ecn: bool = True
    trimming: bool = True
    last_hop_ecn: bool = False
    """Mark at the ports to the NICs too (§4.4 says not to)."""
    retransmission_share: float = 1.0
    """Depth at which retransmissions are trimmed, in units of `trim_at` (§4.2 allows them more)."""
    ecn_min: float | None = None
    ecn_max: float | None = None
    trim_at: float | None = None
    trim_last_hop: float | None = None
    drop_at: float | None = None
    trimmed_priority: int = CONTROL_PRIORITY
    """1 to 6: trimmed packets have a class of their own between control and data (§4.2)."""
    no_trim: int = 0
    trimmable: int = 4
    trimmable_retx: int = 8
    trimmed: int = 12
    trimmed_lasthop: int = 16
    control: int = 46

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type).partition(" ")[0]
            fits = isinstance(value, bool) if kind == "bool" else _is_number(value, whole=kind == "int")
            if not (fits or value is field.default is None):
                raise InputError(f"{field.name} = {value!r}: wants a {kind}")
        points = self.codepoints
        if len(set(points.values())) < len(points) or not all(0 <= point < 64 for point in points.values()):
            raise InputError(f"DSCPs must be distinct numbers of 6 bits, got {points}")
        if not 1 <= self.trimmed_priority <= CONTROL_PRIORITY:
            raise InputError(f"trimmed_priority = {self.trimmed_priority}: give 1 to {CONTROL_PRIORITY}")
        if not self.retransmission_share >= 1:
            raise InputError(f"retransmission_share = {self.retransmission_share}: give 1 or more, never less room")
        for name, share in self.shares.items():
            if not 0 < share < HARD_LIMIT_SHARE:
                raise InputError(
                    f"{name} = {share:g}: give a share of the plane's BDP above 0 and below {HARD_LIMIT_SHARE:g}, "
                    "where the traffic manager drops by itself"
                )

    @classmethod
    def from_json(cls, data: Any) -> Discipline:
        """Return a discipline from any of its fields. Raises InputError listing the fields."""
        names = [field.name for field in fields(cls)]
        if not isinstance(data, dict) or not data.keys() <= set(names):
            raise InputError(f"wants an object with any of {', '.join(names)}; got {data!r}")
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def shares(self) -> dict[str, float]:
        """The depths that are not the plan's."""
        names = ("ecn_min", "ecn_max", "trim_at", "trim_last_hop", "drop_at")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def codepoints(self) -> dict[str, int]:
        names = ("no_trim", "trimmable", "trimmable_retx", "trimmed", "trimmed_lasthop", "control")
        return {name: getattr(self, name) for name in names}


def _is_number(value: Any, *, whole: bool) -> bool:
    return isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)


DEFAULT = Discipline()


def ecn_slope(ecn_min: int, ecn_max: int) -> int:
    """Return the rise of the marking probability per packet of depth, in 1/65536; 0 for a step."""
    return 0 if ecn_max <= ecn_min else round(SLOPE_UNIT / (ecn_max - ecn_min))


def class_entries(catalog: Catalog, want: Discipline = DEFAULT) -> list[NamedEntry]:
    """Return entries that map codepoints to classes and mark trimmed packets: the same on every switch."""

    def data(dscp: int, trimmable: int, retransmission: int) -> NamedEntry:
        params = {"trimmable": trimmable, "retransmission": retransmission}
        return catalog.table_entry("traffic_class", {"dscp": dscp}, "data_class", params)

    def high(dscp: int, priority: int) -> NamedEntry:
        return catalog.table_entry("traffic_class", {"dscp": dscp}, "control_class", {"priority": priority})

    return [
        data(want.no_trim, 0, 0),
        data(want.trimmable, 1, 0),
        data(want.trimmable_retx, 1, 1),
        high(want.trimmed, want.trimmed_priority),
        high(want.trimmed_lasthop, want.trimmed_priority),
        high(want.control, CONTROL_PRIORITY),
    ]


def trimming_entry(plan: Plan, catalog: Catalog, want: Discipline = DEFAULT) -> NamedEntry:
    """Return the entry with length, priority and codepoints of trimmed packets.

    The program adds the outer header to the length itself.
    """
    trim_len = plan.trim_bytes - (OUTER_BYTES if plan.mode.outer_header else 0)
    if trim_len < SHORTEST_TRIM:
        raise InputError(f"trim_len = {trim_len}: a receiver needs {SHORTEST_TRIM} bytes without an outer header")
    params = {
        "trim_len": trim_len,
        "priority": want.trimmed_priority,
        "trimmed_dscp": want.trimmed,
        "trimmed_lasthop_dscp": want.trimmed_lasthop,
    }
    return catalog.table_entry("trimming", None, "set_trimming", params)


def threshold_entry(catalog: Catalog, port: int, depths: Thresholds, want: Discipline = DEFAULT) -> NamedEntry:
    """Return the entry with thresholds and role of one egress port; 0 switches a rule off."""
    trim_at = depths.trim_at if want.trimming else 0
    params = {
        "ecn_min": depths.ecn_min if want.ecn else 0,
        "ecn_max": depths.ecn_max if want.ecn else 0,
        "ecn_slope": ecn_slope(depths.ecn_min, depths.ecn_max) if want.ecn else 0,
        "trim_at": trim_at,
        "retx_trim_at": min(round(trim_at * want.retransmission_share), depths.drop_at),
        "drop_at": depths.drop_at,
        "last_hop": int(depths.last_hop),
        "last_hop_ecn": int(want.last_hop_ecn),
    }
    return catalog.table_entry("queue_thresholds", {"egress_port": port}, "set_thresholds", params)


def depths_of(plan: Plan, switch: Switch, port: int, want: Discipline = DEFAULT) -> Thresholds | None:
    """Return the thresholds of an egress port in packets; None when it has no rate, hence no queue."""
    depths = plan.thresholds(switch, port)
    rate_bps = plan.speed(plan.link_of_port(switch.name, port)).rate_bps
    shares = want.shares
    if depths is None or rate_bps is None or not shares:
        return depths
    bdp_packets = rate_bps * plan.base_rtt_s() / 8 / plan.frame_bytes()
    at_nic = shares.pop("trim_last_hop", None)
    if depths.last_hop and at_nic is not None:
        shares["trim_at"] = at_nic
    elif depths.last_hop:
        shares.pop("trim_at", None)
    packets: dict[str, Any] = {name: max(1, round(share * bdp_packets)) for name, share in shares.items()}
    return replace(depths, **packets)


def discipline_entries(plan: Plan, switch: Switch, catalog: Catalog, want: Discipline = DEFAULT) -> list[NamedEntry]:
    """Return all entries of the discipline for one switch. Ports without a rate get no thresholds."""
    entries = [*class_entries(catalog, want), trimming_entry(plan, catalog, want)]
    for port in plan.ports(switch.name):
        depths = depths_of(plan, switch, port.number, want)
        if depths is not None:
            entries.append(threshold_entry(catalog, port.number, depths, want))
    return entries


def dead_port_entry(catalog: Catalog, port: int) -> NamedEntry:
    """Return the entry of a dead next hop behind a port: its packets are dropped, counted and reported."""
    return catalog.table_entry("dead_ports", {"egress_port": port}, "dead", {})
