"""One configuration record of an endpoint. Every open point of mrc-protocol §12, rows 1 to 44, is a key.

The text of a key names its row. Those about the bytes of packets are read by wire_variants.py where they differ from
the defaults; those about switches by the virtual fabric. What the values may be: config_limits.py.

Units are in the names: `_s` seconds, `_bytes`, `_packets`. `Config.from_json` refuses, by name, what it does not know.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, Final

from mrc_testbed.hosts.engine.config_limits import CHOICES, EXP_FOREVER, ONLY, PATH_MTUS, RANGES, TIMEOUT_UNIT_S, WIDTHS

__all__ = ("EXP_FOREVER", "PATH_MTUS", "TIMEOUT_UNIT_S", "Config", "ConfigError")


TRIM_LEN_MIN: Final = 122
"""Ethernet, outer and inner IPv6, UDP, BTH, METH and TSETH."""
NACK_REASONS: Final = frozenset((0x01, 0x02, 0x06, 0x07, 0x0A, 0x0B, 0x19))
"""Reasons of §2.10."""


class ConfigError(ValueError):
    """A key does not exist or its value is out of range; the message says what would do."""


@dataclass(frozen=True, slots=True)
class Config:
    """Defaults are those of mrc-protocol Annex C unless a line says otherwise."""

    # ---- wire -------------------------------------------------------------------------------------------
    udp_dport: int = 4791
    """UDP destination port sent; 4791 and 4971 are accepted always (§12 row 1)."""
    ev_layout: str = "L"
    """"L": EV[15:0] in the UDP source port, EV[31:16] in the flow label. "H": the halves swapped (§12 row 2)."""
    flow_label: str = "copied"
    """Where the half of the EV outside the UDP source port travels under SRv6: in the "inner" flow label, in the
    "outer", or in the inner and "copied" to the outer. Read from the inner one but with "outer" (§12 row 3)."""
    flow_label_bits: int = 16
    """20: bits 19:16 of the label sent are a digest of the EV, for switches that hash them all, and not 0; ignored
    when received (§12 row 4)."""
    srv6_widths: tuple[int, ...] = (8, 8)
    """Bits of plane and uplink at the low end of an EV in SRv6 mode (§12 row 35). NICs and P4 programs read 8 and 8;
    others work in the virtual fabric."""
    structured_widths: tuple[int, ...] = (10, 8, 4)
    """Bits of the tiers' fields of a structured EV, first hop in the most significant ones (§12 row 36)."""
    pkey: int = 0xFFFF
    """P_Key sent; never checked (§12 row 41)."""
    se_bit: int = 7
    """Bit of BTH byte 1 that says "solicited" in what we send, M is the other; either is understood (§12 row 5)."""
    eeth_op_shift: int = 2
    """Lowest bit of op in byte 1 of EETH; responses are matched by their request id all the same (§12 row 6)."""
    dcids: str = "packet"
    """spdcid and dpdcid sent: QPNs of "packet" sender and receiver; by "roles", of requestor and responder; or the
    smaller of both as a "connection" id, twice. Ignored when received (§12 row 7)."""
    nack_cc_type: int = 2
    """cc_type of NETH sent; ignored when received (§12 row 8)."""
    ftype_bare: int = 1
    """ftype of probes and endpoint requests that carry no timestamp (with `timestamps` off) (§12 row 9)."""
    probe_psn: str = "zero"
    """BTH.PSN of a reliability probe: "zero" or its "probe_id"; ignored when received (§12 row 37)."""
    udp_checksum: str = "zero"
    """UDP checksum sent: "zero" or "computed"; a right one is accepted always (§12 row 39)."""
    icrc_scope: str = "inner"
    """Coverage of the iCRC: the "inner" packet; nothing else can work (§12 row 40)."""
    service_time: str = "off"
    """Service time in SACK and EETH: "off", for its encoding is unknown (§12 row 34)."""
    decap_dscp: str = "outer"
    """Whose DSCP counts where there are two headers, hence whether trims are seen: "outer" or "inner" (§12 row 43)."""
    decap_ecn: str = "or"
    """Whose CE counts: either ("or"), the "outer" or the "inner" one (§12 row 43)."""
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
    """Our window as responder, a multiple of 128 (§12 row 14)."""
    window_end: str = "inclusive"
    """Highest PSN of a window, sent and taken: cack + MPR, or one less: "exclusive" (§12 row 14)."""
    rcvd_counts: str = "udp+40"
    """A packet's nominal size in rcvd_bytes and inflight: UDP length + 40, "payload+40" or "payload". Both ends must
    agree; what is outstanding corrects inflight when they do not (§12 row 15)."""
    dynamic_mpr: bool = False
    """Our window may change at run time (QueuePair.set_mpr) and we follow the peer's; both ends must say so."""
    cwnd_bytes: int = 1 << 18
    """Congestion window of a QP whose window is fixed; where NSCC's starts while the link rate is unknown (nominal)."""
    max_wimm: int = 32
    """WriteIMM messages the peer may have in flight towards us (§5.3)."""
    wimm_overflow: int = 0x61
    """What ends a QP whose peer has more in flight: 0x61, a Transport NAK of that syndrome; any other number, a NACK of
    that reason, understood by both ends if both have it (§12 row 30)."""
    first_msn: int = 0
    """MSN of the first message (§12 row 11)."""
    first_rqmsn: int = 0
    """RQMSN of the first WriteIMM (§2.3, §12 row 11). Either start is accepted; that 0 stands in plain writes too does
    no harm, for it is the opcode of a message's last packet that makes it a WriteIMM."""
    dma_length: str = "message"
    """DMALen: length of the "message", or what is left of it from the packet on, "remainder"; both ends must agree.
    The bytes of a packet always follow from its UDP length (§12 row 12)."""
    scheduler_names: str = "primer"
    """Words of QueuePair.scheduler_state: of the "primer", or with Active and Ready swapped, "tool" (§12 row 28)."""
    mpr_name: str = "MPR_DEST"
    """Name of the responder's window in messages of the verbs: the header's or the text's, "MAX_MPR_DEST"; either is
    accepted (§12 row 38)."""
    no_receive: str = "nak"
    """A WriteIMM that finds no posted receive ends the QP (§6.3); the peer learns by "nak" (Transport NAK 0x63) or by
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
    base_rtt_min_s: float = 0.0
    """No sample lowers the base RTT below this: for links that keep to a rate and yet let a lone packet pass at once
    (BMv2 counts packets), where the round trip of a probe says nothing of a full pipe."""
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
    bitmap_base: str = "turns"
    """Where bitmaps begin: at cack + 1 while that shows all, then in "turns" through the window; or at "cack" + 1
    always, which keeps what lies 64 above a hole unknown. Any base is accepted (§12 row 17)."""
    rtx_echo: bool = True
    """SACKs repeat the rtx flag of their trigger (§12 row 19)."""
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
    loss_rule: str = "all"
    """Which rules of §5.9 beside the timer find losses (§12 row 23): "all", that is (a) overtaken and (b) distance;
    "distance" alone; "time", overtaken alone; "ooo": recovery begins when ooo_count passes 1.5 windows, and resends
    all that is missing up to where it began."""
    clear_bits: str = "unknown"
    """A zero bit beyond the highest PSN the responder has seen says nothing ("unknown"), or "lost": the packet is given
    up when a round trip has passed (§12 row 18)."""
    unknown_nack: str = "no_resource"
    """A NACK of a reason we do not know: treat it as "no_resource", "ignore" it, or "fail" the QP (§12 row 31)."""
    reorder_threshold: int = 0
    """Rule (b): a hole is lost when a packet sent this many transmissions later arrived;
    0 = max(3, cwnd / PMTU) (§12 row 23)."""
    timeout: int = 16
    """Rule (c): retry timer T = 1.024 us x 2**timeout (67 ms), 1..24."""
    timeout_phases: str = "linear-exponential"
    """First the linear phase, then the exponential one; or "linear" alone, or "exponential" alone (§12 row 24)."""
    linear_cnt: int = 3
    """Expiries with constant T, 0..7."""
    exp_cnt: int = 5
    """Expiries with doubling T, 0..25; 25 = for ever."""
    timeout_rtts: float = 4.0
    """T is at least this many smoothed round trips (0: never mind): deep queues are no loss."""
    timeout_ceiling_s: float = 4.0
    """T doubles no further than this."""
    all_ports_down: str = "charge"
    """While no plane has its ports up at both ends, timers "charge" the retry budget like any other silence (§5.11
    knows no exception), or the QP may "wait" for as long as it takes."""

    # ---- paths ------------------------------------------------------------------------------------------
    backup_per_plane: int = -1
    """EVs of each plane kept out of rotation; -1 = one in four (Annex C, "Small fabrics")."""
    max_active: int = 100
    """Most EVs in rotation (§5.5); the rest are backups."""
    ev_min_active: int = -1
    """Fewest EVs that losses may leave in rotation; -1 = a quarter of the profile, at least one (§5.12)."""
    skip_mode: str = "cursor"
    """How long SKIP lasts: until the "cursor" passes, for the rest of the "rotation", or by a "timer" (§5.6,
    §12 row 22)."""
    skip_timer_s: float = 5e-6
    """That time: microseconds for real fabrics, a round trip where they take milliseconds."""
    skip_to_bad: bool = True
    """A loss, or ALWAYS_SKIP, takes an EV from SKIP to ASSUMED_BAD at once; else it stays (§12 row 21)."""
    probe_marked: str = "skip"
    """An EV whose probe was answered with SKIP_ONCE comes back to "skip" or to "good" (§12 row 20)."""
    revival_slot: str = "empty"
    """A revived EV takes an "empty" slot of its plane, else becomes a backup; or it takes its "own" slot back and its
    stand-in becomes the backup again (§12 row 44)."""
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
    port_status: str = "erth"
    """Carrier of port status updates: "erth"; nothing else has room (§12 row 26)."""
    port_bit_base: int = 0
    """Bit of the wire's port mask that stands for plane 0 (§12 row 27)."""
    port_status_repeats: int = 3
    """A port status update is repeated this often, one T apart, until acknowledged, then once a refresh."""
    port_status_refresh_s: float = 1.0

    # ---- switches ---------------------------------------------------------------------------------------
    trim_len: int = 0
    """Bytes kept of a trimmed frame; 0 = up to RETH, 138 with and 98 without outer header. Lengths in the headers stay
    (§4.3, §12 row 33). Of the virtual fabric; a live one has `trim_len` in the controller's tables."""
    trimmed_queue: str = "control"
    """Trimmed packets wait in the "control" queue, or in a "medium" one of their own with a quarter of what control
    leaves (§12 row 42). Of the virtual fabric; a live one has the control queue."""

    def __post_init__(self) -> None:
        values = zip(_DEFAULTS, _VALUES(self), _DEFAULTS.values(), strict=True)
        changed = {key: value for key, value, default in values if value is not default}
        for key, value in changed.items():
            check_value(key, value)
            if key in WIDTHS:
                object.__setattr__(self, key, _widths(key, value))
        if self.trim_len and self.trim_len < TRIM_LEN_MIN:
            raise ConfigError(f"trim_len = {self.trim_len}: 0, or {TRIM_LEN_MIN} to keep METH and TSETH (§4.3)")
        if self.wimm_overflow in NACK_REASONS:
            raise ConfigError(f"wimm_overflow = {self.wimm_overflow:#x}: a NACK of that reason means something else")
        if self.mpr_packets % 128:
            raise ConfigError(f"mpr_packets = {self.mpr_packets}: must be a multiple of 128 (§2.15)")
        if changed.keys() & _DSCPS:
            points = [getattr(self, key) for key in sorted(_DSCPS)]
            if len(set(points)) != len(points) or not all(0 <= p < 64 for p in points):
                raise ConfigError(f"the six DSCPs must be 0 to 63 and differ; got {points}")

    # ---- derived ----------------------------------------------------------------------------------------

    @property
    def base_timeout_s(self) -> float:
        """T of §5.11 in seconds."""
        return TIMEOUT_UNIT_S * 2.0**self.timeout

    def retry_interval_s(self, expiries: int) -> float:
        """Timer of a packet that expired `expiries` times: T in the linear phase, then doubling to the ceiling."""
        if self.timeout_phases == "linear-exponential":
            doublings = max(0, expiries - self.linear_cnt + 1) if self.exp_cnt else 0
        else:
            doublings = 0 if self.timeout_phases == "linear" else expiries
        base = self.base_timeout_s
        return base if not doublings else max(base, min(base * 2.0**doublings, self.timeout_ceiling_s))

    @property
    def retry_limit(self) -> int | None:
        """Charges of the retry counter that end the QP; None = never."""
        if self.timeout_phases == "linear":
            return max(1, self.linear_cnt)
        if self.exp_cnt == EXP_FOREVER:
            return None
        return max(1, self.exp_cnt) if self.timeout_phases == "exponential" else self.linear_cnt + self.exp_cnt

    @property
    def sack_threshold(self) -> int:
        return self.sack_threshold_bytes or 4 * self.pmtu_bytes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Config:
        """The defaults with the keys of `data` replaced. Raises ConfigError for an unknown key or a bad value."""
        if not isinstance(data, dict):
            raise ConfigError(f"the engine's configuration is a table of keys; got {data!r}")
        if unknown := sorted(map(str, data.keys() - _KEYS)):
            raise ConfigError(f"no key {', '.join(unknown)} (has: {', '.join(sorted(_KEYS))})")
        return cls(**data)


_DEFAULTS = {field.name: field.default for field in fields(Config)}
_VALUES = attrgetter(*_DEFAULTS)
_KEYS = frozenset(_DEFAULTS)
_DSCPS = frozenset(key for key in _KEYS if key.startswith("dscp_"))


def check_value(key: str, value: Any) -> None:
    """Check one value. Raises ConfigError naming what would do."""
    if key in RANGES:
        low, high = RANGES[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ConfigError(f"{key} = {value!r}: must be {low} to {high}")
    if key in CHOICES:
        allowed = CHOICES[key]
        if value not in allowed or isinstance(value, bool) is not isinstance(allowed[0], bool):
            raise ConfigError(f"{key} = {value!r}: must be one of {', '.join(map(str, allowed))}")
    if key in ONLY and value != ONLY[key][0]:
        works, why = ONLY[key]
        raise ConfigError(f"{key} = {value!r}: only {works!r} can work: {why}")


def _widths(key: str, value: Any) -> tuple[int, ...]:
    """Bit widths as a tuple; JSON has lists. Raises ConfigError."""
    fewest, most, bits = WIDTHS[key]
    good = isinstance(value, (tuple, list)) and fewest <= len(value) <= most
    if not good or not all(type(width) is int and width >= 1 for width in value) or sum(value) > bits:
        raise ConfigError(f"{key} = {value!r}: must be {fewest} to {most} widths of 1 bit or more, {bits} bits in all")
    return tuple(value)
