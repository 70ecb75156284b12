"""One configuration record of an endpoint. Every open point of reference §12 that a user may decide is a key.

Units are in the names: `_s` seconds, `_bytes`, `_packets`. `Config.from_json` refuses, by name, what it does not know.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

TIMEOUT_UNIT_S = 1.024e-6
"""Retry timeout = this x 2**timeout (§5.11)."""
EXP_FOREVER = 25
"""exp_cnt with the meaning "never give up" (§5.11)."""
PATH_MTUS = (256, 512, 1024, 2048, 4096, 8192)


class ConfigError(ValueError):
    """A key does not exist or its value is out of range; the message says what would do."""


@dataclass(frozen=True, slots=True)
class Config:
    """Defaults are those of reference Annex C unless a line says otherwise."""

    # ---- wire -------------------------------------------------------------------------------------------
    udp_dport: int = 4791
    """UDP destination port sent; 4791 and 4971 are accepted always (§12 row 1)."""
    ev_layout: str = "L"
    """"L": EV[15:0] in the UDP source port, EV[31:16] in the flow label. "H": the halves swapped (§12 row 2)."""
    pkey: int = 0xFFFF
    """P_Key sent; never checked (§12 row 41)."""
    dscp_no_trim: int = 0
    dscp_trimmable: int = 4
    dscp_trimmable_retx: int = 8
    dscp_trimmed: int = 12
    dscp_trimmed_lasthop: int = 16
    dscp_control: int = 46
    """The six codepoints; they only have to differ (§4.1, §12 row 32)."""
    timestamps: bool = True
    """Data packets carry TSETH (4 bytes), which makes every RTT sample unambiguous (§5.8)."""
    ts_unit_s: float = 8.192e-6
    """Unit of our timestamps, sent with tsr = 1: private to us, the peer only mirrors it (§12 row 10)."""

    # ---- windows ----------------------------------------------------------------------------------------
    pmtu_bytes: int = 4096
    """Payload of a full packet. 4096 and not Annex C's 1024: here a packet costs CPU, not wire time."""
    mpr_packets: int = 1024
    """Our window as responder, a multiple of 128: PSNs up to cack + MPR are taken (§12 row 14)."""
    dynamic_mpr: bool = False
    """Our window may change at run time (QueuePair.set_mpr) and we follow the peer's; both ends must say so."""
    cwnd_bytes: int = 1 << 18
    """Congestion window of a QP whose window is fixed; where NSCC's starts while the link rate is unknown (nominal)."""
    max_wimm: int = 32
    """WriteIMM messages the peer may have in flight towards us (§5.3)."""
    no_receive: str = "nak"
    """A WriteIMM that finds no posted receive ends the QP (§6.3); the peer is told by "nak" (Transport NAK 0x63) or by
    "unexp_event" (NACK 0x19). "deliver": no receives are needed (not MRC: for tools that only count)."""

    # ---- congestion control (nscc.md; qpcc.py says how the choices were made) ----------------------------
    cc_algorithm: str = "fixed"
    """Of QPs without a CC profile of their own: "fixed" (cwnd_bytes for each QP), "uet-1.0-nscc", or "none"."""
    cc_scope: str = "destination"
    """NSCC's window is one for all QPs of a "destination" (QPCC, §5.15), or one for each "qp"."""
    cc_scaling: str = "shape"
    """NSCC's increases are a fixed share of the BDP ("shape"), or compare with 100 Gb/s and 12 us ("uet")."""
    cc_send_rule: str = "mrc"
    """"mrc": send while inflight < cwnd; "uet": while inflight + a full packet <= cwnd (§12 row 29)."""
    cc_start: float = 1.0
    """NSCC's window starts at this share of its ceiling. 1 is line rate, as the text has it; many hosts that start at
    once then lose a burst (nscc.md §6.6), which 0.25 avoids."""
    cc_probe: bool = True
    """The first answer of a destination starts a probe of the base RTT on the control class."""
    link_rate_bps: float = 0.0
    """Bits per second between this host and its peers, all planes together; 0 = measured."""
    base_rtt_s: float = 0.0
    """Unloaded round trip of a full packet over the longest path, host overhead included; 0 = measured."""
    path_hops: int = 4
    """Links from host to host, each of which serialises a full packet: host, T0, T1, T0, host."""
    fabric_trims: bool = True
    """Switches trim (where the peer answers trims too): target 0.75 base RTT, else 1.0 and quick adapt by delay."""

    incast_penalty: int = 0
    """rcv_cwnd_pen of our SACKs after a packet was trimmed at our last hop: 16 is right for fabrics that do not mark
    there (nscc.md §4.3), 0 = off."""
    incast_hold_s: float = 0.0025
    """So long after the last such trim; half a base RTT."""

    # ---- acknowledging ----------------------------------------------------------------------------------
    sack_threshold_bytes: int = 0
    """A SACK is due when more than this was accepted since the last one; 0 = 4 x PMTU (§12 row 16)."""
    sack_after_mark: int = 16
    """So many packets after a CE-marked one are acknowledged one by one. A marked packet is at once (§6.4), and would
    take all bytes that wait along under its mark: NSCC would see no unmarked ones, and windows would stay unequal."""
    sack_flush_s: float = 0.004
    """A SACK owed for fewer bytes leaves after this long without further packets (§6.4, idle flush)."""
    trim_nack: bool = True
    """We answer trimmed packets with a NACK, and say so when connecting (§6.6)."""
    oor_action: str = "nack"
    """A PSN beyond the window: "nack" (PSN_OOR_WINDOW) or "drop" (§12 row 13)."""
    always_skip_marks: int = 0
    """So many CE marks in a row on one EV make the verdict ALWAYS_SKIP; 0 = never (§6.5 proposes 32)."""

    # ---- limits of the responder ------------------------------------------------------------------------
    bitmap_packets: int = 0
    """PSNs above cack that can be marked as here, else NACK NO_BITMAP; 0 = the whole window (§2.10)."""
    work_slots: int = 0
    """Ends of messages, and packets with A, remembered above a hole, else NACK NO_RESOURCE; 0 = no limit."""
    rx_buffer_bytes: int = 0
    """Receive buffer in nominal bytes, else NACK NO_PKT_BUFFER; 0 = no limit. A model: see resources.py."""
    rx_drain_bytes_per_s: float = 1e6
    """How fast that buffer empties."""
    flow_control: bool = False
    """The fill of that buffer sets rcv_cwnd_pen in our SACKs (§6.9)."""
    flow_control_start: float = 0.5
    """Fill (0..1) at which the penalty begins; it reaches 127 when the buffer is full."""
    flow_control_restore: bool = True
    """Our SACKs ask the peer to take its old window again when the penalty ends (restore_cwnd)."""

    # ---- loss and retry ---------------------------------------------------------------------------------
    ev_fifo: bool = True
    """Packets of one EV arrive in order (SRv6, structured, per-flow hashing): rule (a) of §5.9 may be used."""
    reorder_threshold: int = 0
    """Rule (b): a hole is lost when a packet sent this many transmissions later arrived;
    0 = max(3, cwnd / PMTU) (§12 row 23)."""
    timeout: int = 16
    """Rule (c): retry timer T = 1.024 us x 2**timeout (67 ms), 1..24."""
    linear_cnt: int = 3
    """Expiries with constant T, 0..7; first this phase, then the exponential one (§12 row 24)."""
    exp_cnt: int = 5
    """Expiries with doubling T, 0..25; 25 = for ever."""
    timeout_rtts: float = 4.0
    """T is at least this many smoothed round trips (0: never mind): deep queues are no loss."""
    timeout_ceiling_s: float = 4.0
    """T doubles no further than this."""

    # ---- paths ------------------------------------------------------------------------------------------
    backup_per_plane: int = -1
    """EVs of each plane kept out of rotation; -1 = one in four (Annex C, "Small fabrics")."""
    max_active: int = 100
    """Most EVs in rotation (§5.5); the rest are backups."""
    ev_min_active: int = -1
    """Fewest EVs that losses may leave in rotation; -1 = a quarter of the profile, at least one (§5.12)."""
    skip_mode: str = "cursor"
    """How long SKIP lasts: until the "cursor" passes, or for the rest of the "rotation" (§5.6, §12 row 22)."""
    probe_interval_s: float = 0.2
    probe_timeout_s: float = 0.1
    probe_ok_count: int = 3
    """Answered probes in a row that bring an ASSUMED_BAD EV back (§12 row 25)."""
    probe_ok_max: int = 64
    """A repeat offender needs twice as many each time, up to this (§5.12, hold-down)."""
    probe_forgive_s: float = 60.0
    """The number needed halves after this long without a fault."""
    probe_fail_count: int = 3
    """Unanswered probes in a row that retire a GOOD EV: one may be the reverse path's fault (§5.12)."""
    reverse_probe_s: float = 0.01
    """While data comes in and none goes out, an EV probe renews the reverse EV set once a round trip (§6.8), but not
    more often than this."""
    port_status_repeats: int = 3
    """A port status update is repeated this often, one T apart, until acknowledged, then once a refresh."""
    port_status_refresh_s: float = 1.0

    def __post_init__(self) -> None:
        for key, (low, high) in _RANGES.items():
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ConfigError(f"{key} = {value!r}: must be {low} to {high}")
        for key, allowed in _CHOICES.items():
            if getattr(self, key) not in allowed:
                raise ConfigError(f"{key} = {getattr(self, key)!r}: must be one of {', '.join(map(str, allowed))}")
        if self.mpr_packets % 128:
            raise ConfigError(f"mpr_packets = {self.mpr_packets}: must be a multiple of 128 (§2.15)")
        points = [getattr(self, f.name) for f in fields(self) if f.name.startswith("dscp_")]
        if len(set(points)) != len(points) or not all(0 <= p < 64 for p in points):
            raise ConfigError(f"the six DSCPs must be 0 to 63 and differ; got {points}")

    # ---- derived ----------------------------------------------------------------------------------------

    @property
    def base_timeout_s(self) -> float:
        """T of §5.11 in seconds."""
        return TIMEOUT_UNIT_S * 2**self.timeout

    def retry_interval_s(self, expiries: int) -> float:
        """Timer of a packet that expired `expiries` times: T in the linear phase, then doubling to the ceiling."""
        doublings = max(0, expiries - self.linear_cnt + 1) if self.exp_cnt else 0
        base = self.base_timeout_s
        return base if not doublings else max(base, min(base * 2.0**doublings, self.timeout_ceiling_s))

    @property
    def retry_limit(self) -> int | None:
        """Charges of the retry counter that end the QP; None = never."""
        return None if self.exp_cnt == EXP_FOREVER else self.linear_cnt + self.exp_cnt

    @property
    def sack_threshold(self) -> int:
        return self.sack_threshold_bytes or 4 * self.pmtu_bytes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Config:
        """The defaults with the keys of `data` replaced. Raises ConfigError for an unknown key or a bad value."""
        known = {f.name for f in fields(cls)}
        if not isinstance(data, dict):
            raise ConfigError(f"the engine's configuration is a table of keys; got {data!r}")
        if unknown := sorted(map(str, set(data) - known)):
            raise ConfigError(f"no key {', '.join(unknown)} (has: {', '.join(sorted(known))})")
        return cls(**data)


_RANGES: dict[str, tuple[float, float]] = {
    "udp_dport": (1, 65535),
    "pkey": (0, 0xFFFF),
    "ts_unit_s": (1e-9, 1.0),
    "mpr_packets": (128, 255 * 128),
    "cwnd_bytes": (256, 1 << 31),
    "link_rate_bps": (0, 1e13),
    "base_rtt_s": (0, 60),
    "path_hops": (1, 64),
    "cc_start": (0.001, 1),
    "incast_penalty": (0, 127),
    "incast_hold_s": (0, 60),
    "max_wimm": (1, 32767),
    "always_skip_marks": (0, 1 << 16),
    "bitmap_packets": (0, 255 * 128),
    "work_slots": (0, 1 << 16),
    "rx_buffer_bytes": (0, 1 << 31),
    "rx_drain_bytes_per_s": (1, 1e12),
    "flow_control_start": (0, 0.99),
    "sack_threshold_bytes": (0, 1 << 24),
    "sack_after_mark": (0, 1 << 16),
    "sack_flush_s": (1e-6, 60),
    "reorder_threshold": (0, 1 << 20),
    "timeout": (1, 24),
    "linear_cnt": (0, 7),
    "exp_cnt": (0, EXP_FOREVER),
    "timeout_rtts": (0, 1000),
    "timeout_ceiling_s": (1e-6, 3600),
    "backup_per_plane": (-1, 1 << 16),
    "max_active": (1, 1 << 16),
    "ev_min_active": (-1, 1 << 16),
    "probe_interval_s": (1e-6, 3600),
    "probe_timeout_s": (1e-6, 3600),
    "probe_ok_count": (1, 1 << 16),
    "probe_ok_max": (1, 1 << 16),
    "probe_forgive_s": (1e-3, 86400),
    "probe_fail_count": (1, 1 << 16),
    "reverse_probe_s": (1e-4, 3600),
    "port_status_repeats": (1, 100),
    "port_status_refresh_s": (1e-3, 3600),
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "ev_layout": ("L", "H"),
    "pmtu_bytes": PATH_MTUS,
    "oor_action": ("nack", "drop"),
    "skip_mode": ("cursor", "rotation"),
    "no_receive": ("nak", "unexp_event", "deliver"),
    "dynamic_mpr": (True, False),
    "flow_control": (True, False),
    "flow_control_restore": (True, False),
    "cc_algorithm": ("fixed", "uet-1.0-nscc", "none"),
    "cc_scope": ("destination", "qp"),
    "cc_scaling": ("shape", "uet"),
    "cc_send_rule": ("mrc", "uet"),
    "cc_probe": (True, False),
    "fabric_trims": (True, False),
    "timestamps": (True, False),
    "trim_nack": (True, False),
    "ev_fifo": (True, False),
}
