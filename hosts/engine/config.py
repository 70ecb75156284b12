"""Configuration record of an endpoint, in groups.

Every open point of mrc-protocol §12, rows 1 to 44, is a field.

The text of a field names its row; its annotation has its limits (config_limits.py). Units are in the names: `_s`
seconds, `_bytes`, `_packets`. Defaults are those of mrc-protocol Annex C unless a line says otherwise.

Users name fields by flat keys (scenarios, `--config`, JSON, `Config.of`): KEYS has them. The key of a field is its
name; in groups whose keys all begin alike, that beginning and its name: "dscp_trimmed" is dscp.trimmed.
"""

# No `from __future__ import annotations`: limits are read from the annotations, where they are to be objects.

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from mrc_testbed.hosts.engine.config_limits import (
    Condition,
    ConfigError,
    Limit,
    NumberRange,
    Only,
    Widths,
    check_fields,
    check_value,
    limits_of,
)

__all__ = ("EXP_FOREVER", "KEYS", "PATH_MTUS", "TIMEOUT_UNIT_S", "Config", "ConfigError", "Key")

TIMEOUT_UNIT_S: Final = 1.024e-6
"""Retry timeout = this x 2**timeout (§5.11)."""
EXP_FOREVER: Final = 25
"""exp_cnt with the meaning "never give up" (§5.11)."""
PathMtu: TypeAlias = Literal[256, 512, 1024, 2048, 4096, 8192]
PATH_MTUS: Final[tuple[int, ...]] = get_args(PathMtu)
TRIM_LEN_MIN: Final = 122
"""Ethernet, outer and inner IPv6, UDP, BTH, METH and TSETH."""
NACK_REASONS: Final = frozenset((0x01, 0x02, 0x06, 0x07, 0x0A, 0x0B, 0x19))
"""Reasons of §2.10."""
Codepoint: TypeAlias = Annotated[int, NumberRange(0, 63)]


class ConfigGroup:
    """Base of the groups: a frozen dataclass that checks its fields when made. Raises ConfigError."""

    __slots__ = ()

    PREFIX: ClassVar[str] = ""
    """Beginning of the group's keys that its fields leave out."""

    def __post_init__(self) -> None:
        check_fields(self, self.PREFIX)


@dataclass(frozen=True, slots=True)
class WireConfig(ConfigGroup):
    """Formats and header fields of packets; read by the codecs, by wire_variants.py and by NICs."""

    udp_dport: Annotated[int, NumberRange(1, 65535)] = 4791
    """UDP destination port sent; 4791 and 4971 are accepted always (§12 row 1)."""
    ev_layout: Literal["L", "H"] = "L"
    """Layout of an EV's halves; "L": EV[15:0] in the UDP source port, EV[31:16] in the flow label.

    "H": the halves swapped (§12 row 2)."""
    flow_label: Literal["copied", "inner", "outer"] = "copied"
    """Flow label of the EV's half outside the UDP source port, under SRv6 (§12 row 3).

    The "inner" flow label, the "outer", or the inner and "copied" to the outer. Read from the inner one but with
    "outer"."""
    flow_label_bits: Literal[16, 20] = 16
    """Bits of the flow label that are sent (§12 row 4).

    20: bits 19:16 are a digest of the EV, for switches that hash the whole label, and not 0; ignored when received."""
    srv6_widths: Annotated[tuple[int, ...], Widths(2, 2, 32)] = (8, 8)
    """Bits of plane and uplink at the low end of an EV in SRv6 mode (§12 row 35).

    NICs and P4 programs read 8 and 8; others work in the virtual fabric."""
    structured_widths: Annotated[tuple[int, ...], Widths(1, 24, 24)] = (10, 8, 4)
    """Bits of the tiers' fields of a structured EV, first hop in the most significant ones (§12 row 36)."""
    pkey: Annotated[int, NumberRange(0, 0xFFFF)] = 0xFFFF
    """P_Key sent; never checked (§12 row 41)."""
    se_bit: Literal[7, 6] = 7
    """Bit of BTH byte 1 that is sent as "solicited"; the other is M (§12 row 5).

    Either is understood when received."""
    eeth_op_shift: Literal[2, 4] = 2
    """Lowest bit of op in byte 1 of EETH (§12 row 6).

    Responses are matched by their request id all the same."""
    dcids: Literal["packet", "roles", "connection"] = "packet"
    """Contents of spdcid and dpdcid when sent; ignored when received (§12 row 7).

    QPNs of "packet" sender and receiver; by "roles", of requestor and responder; or the smaller of both as a
    "connection" id, twice."""
    nack_cc_type: Annotated[int, NumberRange(0, 15)] = 2
    """cc_type of NETH sent; ignored when received (§12 row 8)."""
    ftype_bare: Literal[1, 0] = 1
    """ftype of probes and endpoint requests that carry no timestamp (with `timestamps` off) (§12 row 9)."""
    probe_psn: Literal["zero", "probe_id"] = "zero"
    """BTH.PSN of a reliability probe: "zero" or its "probe_id"; ignored when received (§12 row 37)."""
    udp_checksum: Literal["zero", "computed"] = "zero"
    """UDP checksum sent: "zero" or "computed"; a right one is accepted always (§12 row 39)."""
    icrc_scope: Annotated[
        str,
        Only(
            "inner",
            "switches shift uSIDs out of the outer address at every hop, so no sum over it arrives right "
            "(§3.7, row 40)",
        ),
    ] = "inner"
    """Coverage of the iCRC: the "inner" packet; nothing else can work (§12 row 40)."""
    service_time: Annotated[
        str, Only("off", "no source tells how it is encoded (§12 row 34), so none could read what we sent")
    ] = "off"
    """Service time in SACK and EETH: "off", for its encoding is unknown (§12 row 34)."""
    decap_dscp: Literal["outer", "inner"] = "outer"
    """Header whose DSCP counts where there are two, hence whether trims are seen (§12 row 43)."""
    decap_ecn: Literal["or", "outer", "inner"] = "or"
    """Header whose CE counts: either ("or"), the "outer" or the "inner" one (§12 row 43)."""
    timestamps: bool = True
    """Data packets carry TSETH (4 bytes), which makes every RTT sample unambiguous (§5.8)."""
    ts_unit_s: Annotated[float, NumberRange(1e-9, 1.0)] = 8.192e-6
    """Unit of our timestamps, sent with tsr = 1: private to us, the peer only mirrors it (§12 row 10)."""
    dma_length: Literal["message", "remainder"] = "message"
    """Meaning of DMALen; both ends must agree (§12 row 12).

    Length of the "message", or of its "remainder" from the packet on. The bytes of a packet always follow from its
    UDP length."""
    first_msn: Literal[0, 1] = 0
    """MSN of the first message (§12 row 11)."""
    first_rqmsn: Literal[0, 1] = 0
    """RQMSN of the first WriteIMM (§2.3, §12 row 11).

    Either start is accepted. Plain writes carry 0 too, without harm: the opcode of a message's last packet makes it
    a WriteIMM."""

    def __post_init__(self) -> None:
        check_fields(self, self.PREFIX)
        for name in ("srv6_widths", "structured_widths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists


@dataclass(frozen=True, slots=True)
class DscpConfig(ConfigGroup):
    """Codepoints of the kinds of packets."""

    PREFIX: ClassVar[str] = "dscp_"

    no_trim: Codepoint = 0
    trimmable: Codepoint = 4
    trimmable_retx: Codepoint = 8
    trimmed: Codepoint = 12
    trimmed_lasthop: Codepoint = 16
    control: Codepoint = 46
    """Codepoint of control packets; the six codepoints only have to differ (§4.1, §12 row 32)."""

    def __post_init__(self) -> None:
        check_fields(self, self.PREFIX)
        points = [self.control, self.no_trim, self.trimmable, self.trimmable_retx, self.trimmed, self.trimmed_lasthop]
        if len(set(points)) != len(points):
            raise ConfigError(f"the six DSCPs must be 0 to 63 and differ; got {points}")


@dataclass(frozen=True, slots=True)
class QpConfig(ConfigGroup):
    """Sizes, windows and messages of a queue pair, and the words of the verbs for them."""

    pmtu_bytes: PathMtu = 4096
    """Payload of a full packet. 4096 and not Annex C's 1024: here a packet costs CPU, not wire time."""
    mpr_packets: Annotated[
        int,
        NumberRange(128, 255 * 128),
        Condition(lambda packets: packets % 128 == 0, "must be a multiple of 128 (§2.15)"),
    ] = 1024
    """Our window as responder, a multiple of 128 (§12 row 14)."""
    window_end: Literal["inclusive", "exclusive"] = "inclusive"
    """Highest PSN of a window, sent and taken: cack + MPR, or one less: "exclusive" (§12 row 14)."""
    rcvd_counts: Literal["udp+40", "payload+40", "payload"] = "udp+40"
    """Nominal size of a packet in rcvd_bytes and inflight; "udp+40": UDP length + 40 (§12 row 15).

    Else "payload+40" or "payload". Both ends must agree; the bytes outstanding correct inflight when they do not."""
    dynamic_mpr: bool = False
    """Whether our window may change at run time (QueuePair.set_mpr) and the peer's is followed.

    Both ends must support it."""
    max_wimm: Annotated[int, NumberRange(1, 32767)] = 32
    """WriteIMM messages the peer may have in flight towards us (§5.3)."""
    wimm_overflow: Annotated[
        int,
        NumberRange(1, 255),
        Condition(lambda reason: reason not in NACK_REASONS, "a NACK of that reason means something else"),
    ] = 0x61
    """Error that ends a QP whose peer has more WriteIMM in flight (§12 row 30).

    0x61: a Transport NAK of that syndrome; any other number: a NACK of that reason, understood by both ends if both
    have it."""
    no_receive: Literal["nak", "unexp_event", "deliver"] = "nak"
    """Reaction to a WriteIMM without a posted receive, which ends the QP (§6.3).

    The peer learns by "nak" (Transport NAK 0x63) or by "unexp_event" (NACK 0x19). "deliver": no receives are needed
    (not MRC: for tools that only count)."""
    scheduler_names: Literal["primer", "tool"] = "primer"
    """Words of QueuePair.scheduler_state (§12 row 28).

    Those of the "primer", or with Active and Ready swapped, "tool"."""
    mpr_name: Literal["MPR_DEST", "MAX_MPR_DEST"] = "MPR_DEST"
    """Name of the responder's window in messages of the verbs (§12 row 38).

    The header's, or the text's "MAX_MPR_DEST"; either is accepted."""


@dataclass(frozen=True, slots=True)
class CongestionConfig(ConfigGroup):
    """Congestion control (nscc.md; qpcc.py says how the choices were made)."""

    cc_algorithm: Literal["fixed", "uet-1.0-nscc", "none"] = "fixed"
    """Algorithm of QPs without a CC profile: "fixed" (cwnd_bytes for each QP), "uet-1.0-nscc", or "none"."""
    cc_scope: Literal["destination", "qp"] = "destination"
    """NSCC's window is one for all QPs of a "destination" (QPCC, §5.15), or one for each "qp"."""
    cc_scaling: Literal["shape", "uet"] = "shape"
    """NSCC's increases are a fixed share of the BDP ("shape"), or compare with 100 Gb/s and 12 us ("uet")."""
    cc_send_rule: Literal["mrc", "uet"] = "mrc"
    """"mrc": send while inflight < cwnd; "uet": while inflight + a full packet <= cwnd (§12 row 29)."""
    cc_start: Annotated[float, NumberRange(0.001, 1)] = 1.0
    """Initial window of NSCC as a share of its ceiling.

    1 is line rate, as the text has it; many hosts that start at once then lose a burst (nscc.md §6.6), which 0.25
    avoids."""
    cc_probe: bool = True
    """Whether the first answer of a destination starts a probe of the base RTT on the control class."""
    cwnd_bytes: Annotated[int, NumberRange(256, 1 << 31)] = 1 << 18
    """Congestion window of a QP whose window is fixed, nominal bytes.

    Also the initial window of NSCC while the link rate is unknown."""
    link_rate_bps: Annotated[float, NumberRange(0, 1e13)] = 0.0
    """Bits per second between this host and its peers, all planes together; 0 = measured."""
    base_rtt_s: Annotated[float, NumberRange(0, 60)] = 0.0
    """Unloaded round trip of a full packet over the longest path, host overhead included; 0 = measured."""
    base_rtt_min_s: Annotated[float, NumberRange(0, 60)] = 0.0
    """Least base RTT that a sample may set, seconds.

    For links that keep to a rate and yet let a lone packet pass at once (BMv2 counts packets): there the round trip
    of a probe says nothing of a full pipe."""
    path_hops: Annotated[int, NumberRange(1, 64)] = 4
    """Links from host to host, each of which serialises a full packet: host, T0, T1, T0, host."""
    fabric_trims: bool = True
    """Whether switches trim (where the peer answers trims too).

    True: target 0.75 base RTT; False: 1.0, and quick adapt by delay."""
    incast_penalty: Annotated[int, NumberRange(0, 127)] = 0
    """Penalty (rcv_cwnd_pen) in our SACKs after a packet was trimmed at our last hop; 0: off.

    16 is right for fabrics that do not mark at the last hop (nscc.md §4.3)."""
    incast_hold_s: Annotated[float, NumberRange(0, 60)] = 0.0025
    """Duration of that penalty after the last such trim; half a base RTT."""


@dataclass(frozen=True, slots=True)
class AcksConfig(ConfigGroup):
    """Rules of a responder's acknowledgments."""

    sack_threshold_bytes: Annotated[int, NumberRange(0, 1 << 24)] = 0
    """Bytes accepted since the last SACK above which the next is due; 0 = 4 x PMTU (§12 row 16)."""
    sack_after_mark: Annotated[int, NumberRange(0, 1 << 16)] = 16
    """Number of packets after a CE-marked one that are acknowledged one by one.

    A marked packet is acknowledged at once (§6.4), and would take all bytes that wait along under its mark: NSCC
    would see no unmarked ones, and windows would stay unequal."""
    sack_flush_s: Annotated[float, NumberRange(1e-6, 60)] = 0.004
    """Time without further packets after which a SACK owed for fewer bytes leaves (§6.4, idle flush)."""
    trim_nack: bool = True
    """We answer trimmed packets with a NACK, and say so when connecting (§6.6)."""
    oor_action: Literal["nack", "drop"] = "nack"
    """Reaction to a PSN beyond the window: "nack" (PSN_OOR_WINDOW) or "drop" (§12 row 13)."""
    bitmap_base: Literal["turns", "cack"] = "turns"
    """Base PSN of bitmaps; any base is accepted when received (§12 row 17).

    "turns": cack + 1 while that shows all, then in turns through the window. "cack": cack + 1 always, which keeps
    packets 64 or more above a hole unknown."""
    rtx_echo: bool = True
    """SACKs repeat the rtx flag of their trigger (§12 row 19)."""
    always_skip_marks: Annotated[int, NumberRange(0, 1 << 16)] = 0
    """Number of CE marks in a row on one EV that make the verdict ALWAYS_SKIP.

    0: never (§6.5 proposes 32)."""


@dataclass(frozen=True, slots=True)
class ResourcesConfig(ConfigGroup):
    """Limits of the responder's memory, and flow control by them (resources.py)."""

    bitmap_packets: Annotated[int, NumberRange(0, 255 * 128)] = 0
    """PSNs above cack that can be marked as here, else NACK NO_BITMAP; 0 = the whole window (§2.10)."""
    work_slots: Annotated[int, NumberRange(0, 1 << 16)] = 0
    """Ends of messages, and packets with A, remembered above a hole, else NACK NO_RESOURCE; 0 = no limit."""
    rx_buffer_bytes: Annotated[int, NumberRange(0, 1 << 31)] = 0
    """Receive buffer in nominal bytes, else NACK NO_PKT_BUFFER; 0 = no limit. A model: see resources.py."""
    rx_drain_bytes_per_s: Annotated[float, NumberRange(1, 1e12)] = 1e6
    """Rate at which that buffer drains."""
    flow_control: bool = False
    """Whether the fill of that buffer sets rcv_cwnd_pen in our SACKs (§6.9)."""
    flow_control_start: Annotated[float, NumberRange(0, 0.99)] = 0.5
    """Fill (0..1) at which the penalty begins; it reaches 127 when the buffer is full."""
    flow_control_restore: bool = True
    """Whether our SACKs ask the peer to restore its old window when the penalty ends (restore_cwnd)."""


@dataclass(frozen=True, slots=True)
class LossConfig(ConfigGroup):
    """Detection of losses, retry timers and the budget of retries."""

    ev_fifo: bool = True
    """Whether packets of one EV arrive in order (SRv6, structured, per-flow hashing).

    True: rule (a) of §5.9 may be used."""
    loss_rule: Literal["all", "distance", "time", "ooo"] = "all"
    """Rules of §5.9 that find losses beside the timer (§12 row 23).

    "all": (a) overtaken and (b) distance; "distance" alone; "time": overtaken alone; "ooo": recovery begins when
    ooo_count passes 1.5 windows, and resends all that is missing up to where it began."""
    clear_bits: Literal["unknown", "lost"] = "unknown"
    """Meaning of a zero bit beyond the highest PSN the responder has seen (§12 row 18).

    "unknown": none; "lost": the packet is given up when a round trip has passed."""
    unknown_nack: Literal["no_resource", "ignore", "fail"] = "no_resource"
    """Reaction to a NACK of an unknown reason (§12 row 31).

    Treat it as "no_resource", "ignore" it, or "fail" the QP."""
    reorder_threshold: Annotated[int, NumberRange(0, 1 << 20)] = 0
    """Distance of rule (b): a hole is lost when a packet sent this many transmissions later arrived.

    0: max(3, cwnd / PMTU) (§12 row 23)."""
    timeout: Annotated[int, NumberRange(1, 24)] = 16
    """Rule (c): retry timer T = 1.024 us x 2**timeout (67 ms), 1..24."""
    timeout_phases: Literal["linear-exponential", "linear", "exponential"] = "linear-exponential"
    """Phases of the retransmission timer: first linear, then exponential (§12 row 24).

    Or "linear" alone, or "exponential" alone."""
    linear_cnt: Annotated[int, NumberRange(0, 7)] = 3
    """Expiries with constant T, 0..7."""
    exp_cnt: Annotated[int, NumberRange(0, EXP_FOREVER)] = 5
    """Expiries with doubling T, 0..25; 25 = for ever."""
    timeout_rtts: Annotated[float, NumberRange(0, 1000)] = 4.0
    """T is at least this many smoothed round trips (0: never mind): deep queues are no loss."""
    timeout_ceiling_s: Annotated[float, NumberRange(1e-6, 3600)] = 4.0
    """T doubles no further than this."""
    all_ports_down: Literal["charge", "wait"] = "charge"
    """Reaction of timers while no plane has its ports up at both ends.

    "charge": they charge the retry budget like any other silence (§5.11 knows no exception); "wait": the QP waits
    without limit."""

    @property
    def base_timeout_s(self) -> float:
        """T of §5.11 in seconds."""
        return TIMEOUT_UNIT_S * 2.0**self.timeout

    def retry_interval_s(self, expiries: int) -> float:
        """Return the timer of a packet that expired `expiries` times, seconds.

        T in the linear phase, then doubling to the ceiling.
        """
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


@dataclass(frozen=True, slots=True)
class PathsConfig(ConfigGroup):
    """Rotation and states of EVs."""

    backup_per_plane: Annotated[int, NumberRange(-1, 1 << 16)] = -1
    """EVs of each plane kept out of rotation; -1 = one in four (Annex C, "Small fabrics")."""
    max_active: Annotated[int, NumberRange(1, 1 << 16)] = 100
    """Most EVs in rotation (§5.5); the rest are backups."""
    ev_min_active: Annotated[int, NumberRange(-1, 1 << 16)] = -1
    """Fewest EVs that losses may leave in rotation; -1 = a quarter of the profile, at least one (§5.12)."""
    skip_mode: Literal["cursor", "rotation", "timer"] = "cursor"
    """End of SKIP: when the "cursor" passes, after the "rotation", or by a "timer" (§5.6, §12 row 22)."""
    skip_timer_s: Annotated[float, NumberRange(1e-9, 60)] = 5e-6
    """Duration of SKIP by "timer", seconds.

    Microseconds for real fabrics, a round trip where round trips take milliseconds."""
    skip_to_bad: bool = True
    """Whether a loss, or ALWAYS_SKIP, takes an EV from SKIP to ASSUMED_BAD at once (§12 row 21)."""
    probe_marked: Literal["skip", "good"] = "skip"
    """State of an EV whose probe was answered with SKIP_ONCE: "skip" or "good" (§12 row 20)."""
    revival_slot: Literal["empty", "own"] = "empty"
    """Slot of a revived EV: an "empty" one of its plane, or its "own" (§12 row 44).

    Without an empty slot it becomes a backup; with "own" its stand-in becomes the backup again."""
    reverse_probe_s: Annotated[float, NumberRange(1e-6, 3600)] = 0.01
    """Least time between EV probes that renew the reverse EV set, seconds.

    While data comes in and none goes out, such a probe leaves once a round trip (§6.8)."""


@dataclass(frozen=True, slots=True)
class ProbesConfig(ConfigGroup):
    """Probes of EVs."""

    PREFIX: ClassVar[str] = "probe_"

    interval_s: Annotated[float, NumberRange(1e-6, 3600)] = 0.2
    """Time from one probe of an EV to the next."""
    timeout_s: Annotated[float, NumberRange(1e-6, 3600)] = 0.1
    """Longest wait for an answer."""
    ok_count: Annotated[int, NumberRange(1, 1 << 16)] = 3
    """Answered probes in a row that bring an ASSUMED_BAD EV back (§12 row 25)."""
    ok_max: Annotated[int, NumberRange(1, 1 << 16)] = 64
    """Largest number of answered probes for a repeat offender, doubled each time (§5.12, hold-down)."""
    forgive_s: Annotated[float, NumberRange(1e-6, 86400)] = 60.0
    """Time without a fault after which the number needed halves."""
    fail_count: Annotated[int, NumberRange(1, 1 << 16)] = 3
    """Unanswered probes in a row that retire a GOOD EV: one may be the reverse path's fault (§5.12)."""


@dataclass(frozen=True, slots=True)
class PortsConfig(ConfigGroup):
    """Updates that tell peers which ports are up."""

    PREFIX: ClassVar[str] = "port_"

    status: Annotated[
        str,
        Only(
            "erth",
            "SETH and CC_STATE have no field for a mask of ports, whatever the paper's text says (§5.12, §12 row 26)",
        ),
    ] = "erth"
    """Carrier of port status updates: "erth"; nothing else has room (§12 row 26)."""
    bit_base: Literal[0, 1] = 0
    """Bit of the wire's port mask that stands for plane 0 (§12 row 27)."""
    status_repeats: Annotated[int, NumberRange(1, 100)] = 3
    """Repetitions of a port status update, one T apart, until acknowledged; then once a refresh."""
    status_refresh_s: Annotated[float, NumberRange(1e-6, 3600)] = 1.0
    """Time from one update to the next once the first is acknowledged."""


@dataclass(frozen=True, slots=True)
class SwitchesConfig(ConfigGroup):
    """Trimming in switches, as the virtual fabric does it."""

    trim_len: Annotated[
        int,
        NumberRange(0, 9000),
        Condition(
            lambda length: length == 0 or length >= TRIM_LEN_MIN, f"0, or {TRIM_LEN_MIN} to keep METH and TSETH (§4.3)"
        ),
    ] = 0
    """Bytes kept of a trimmed frame (§4.3, §12 row 33).

    0: up to RETH, 138 with and 98 without outer header. Lengths in the headers stay. Of the virtual fabric; a live
    one has `trim_len` in the controller's tables."""
    trimmed_queue: Literal["control", "medium"] = "control"
    """Queue in which trimmed packets wait (§12 row 42).

    "control", or a "medium" one of their own with a quarter of what control leaves. Of the virtual fabric; a live
    one has the control queue."""


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of an endpoint. `Config.of(timeout=14)` makes one from flat keys."""

    wire: WireConfig = WireConfig()
    dscp: DscpConfig = DscpConfig()
    qp: QpConfig = QpConfig()
    congestion: CongestionConfig = CongestionConfig()
    acks: AcksConfig = AcksConfig()
    resources: ResourcesConfig = ResourcesConfig()
    loss: LossConfig = LossConfig()
    paths: PathsConfig = PathsConfig()
    probes: ProbesConfig = ProbesConfig()
    ports: PortsConfig = PortsConfig()
    switches: SwitchesConfig = SwitchesConfig()

    @classmethod
    def of(cls, /, **values: Any) -> "Config":
        """Return a configuration with these keys set, the rest at defaults.

        Raises ConfigError for an unknown key or a bad value.
        """
        return cls().with_values(**values)

    @classmethod
    def from_json(cls, data: Any) -> "Config":
        """Make one from a table of keys. Raises ConfigError for anything else, an unknown key or a bad value."""
        if not isinstance(data, dict):
            raise ConfigError(f"the engine's configuration is a table of keys; got {data!r}")
        return cls.of(**{str(key): value for key, value in data.items()})

    def with_values(self, /, **values: Any) -> "Config":
        """Copy with these keys replaced. Raises ConfigError for an unknown key or a bad value."""
        if unknown := sorted(values.keys() - KEYS):
            raise ConfigError(f"no key {', '.join(unknown)} (has: {', '.join(sorted(KEYS))})")
        changes: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            changes.setdefault(KEYS[name].group, {})[KEYS[name].field] = value
        return replace(self, **{group: replace(getattr(self, group), **changes[group]) for group in changes})

    def to_json(self) -> dict[str, Any]:
        return {name: key.value(self) for name, key in KEYS.items()}

    @property
    def sack_threshold(self) -> int:
        """Number of bytes accepted since the last SACK above which a SACK is due."""
        return self.acks.sack_threshold_bytes or 4 * self.qp.pmtu_bytes


@dataclass(frozen=True, slots=True)
class Key:
    """A flat name: the group and the field it stands for, its default and its limits."""

    name: str
    group: str
    field: str
    default: Any
    limits: tuple[Limit, ...]

    def value(self, config: Config) -> Any:
        return getattr(getattr(config, self.group), self.field)

    def check(self, value: Any) -> None:
        """Raise ConfigError, which says what would do, for a value beyond a limit."""
        check_value(self.name, value, self.limits)

    @property
    def range(self) -> NumberRange | None:
        """Lowest and highest value; None for words, switches and numbers of a list."""
        return next((limit for limit in self.limits if isinstance(limit, NumberRange)), None)


def keys_of(groups: Mapping[str, Any]) -> dict[str, Key]:
    """Keys of groups by their name in the record. Raises ConfigError for a key that two groups have."""
    keys: dict[str, Key] = {}
    for group, record in groups.items():
        for field, (default, limits) in limits_of(record.__class__).items():
            name = record.PREFIX + field
            if name in keys:
                raise ConfigError(
                    f"{name}: {keys[name].group} and {group} both have this key; rename one of the fields"
                )
            keys[name] = Key(name, group, field, default, limits)
    return keys


KEYS: Final = keys_of({field.name: field.default for field in fields(Config)})
"""Keys by their names."""
