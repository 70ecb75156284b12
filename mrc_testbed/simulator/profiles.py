"""Profiles of links, queues and hosts of a virtual fabric, and the recipe that scales them all.

Rates in bits/s, times in seconds, depths in bytes of whole frames (Ethernet header to iCRC). BDP here is that of one
plane: port rate x unloaded round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.topologies.plan import link_speeds
from mrc_testbed.topologies.plan.link_speeds import ETHERNET_BYTES, OUTER_BYTES, SACK_BYTES
from mrc_testbed.topologies.plan.modes import Mode

DROP_UNTRIMMED = 5.0
"""Limit in units of plane BDP where nothing is trimmed: the upper end of 2 to 5 (§4.4)."""


class ProfileError(ValueError):
    """Invalid value; the message names the value and the valid ones."""


def _positive(name: str, value: float, zero: bool = False) -> None:
    if not (value > 0 or (zero and value == 0)):
        raise ProfileError(f"{name} = {value!r}: must be {'0 or more' if zero else 'more than 0'}")


@dataclass(frozen=True, slots=True)
class Line:
    """One direction of a cable. `rate_bps = inf`: packets take no time to serialise and never queue."""

    rate_bps: float = 100e6
    delay_s: float = 0.0005
    """One-way propagation delay."""
    jitter_s: float = 0.0
    """Each packet is late by a random time up to this, uniformly."""
    fifo: bool = True
    """Jitter never reorders; False: it may (rule (a) of §5.9 then needs `ev_fifo` off)."""

    def __post_init__(self) -> None:
        _positive("rate_bps", self.rate_bps)
        _positive("delay_s", self.delay_s, zero=True)
        _positive("jitter_s", self.jitter_s, zero=True)


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """Lines by tier, and of single links; VirtualFabric.set_line changes a link of a fabric that runs."""

    nic: Line = field(default_factory=Line)
    """Host <-> T0."""
    fabric: Line = field(default_factory=Line)
    """T0 <-> T1."""
    single: Mapping[str, Line] = field(default_factory=dict)
    """Links with a line of their own, by name (Link.name)."""

    def line_of(self, a: str, b: str, is_nic: bool) -> Line:
        """Return the line of the link between two nodes, in either order."""
        line = self.nic if is_nic else self.fabric
        return self.single.get(f"{a} {b}", self.single.get(f"{b} {a}", line)) if self.single else line

    @classmethod
    def uniform(cls, rate_bps: float, delay_s: float, jitter_s: float = 0.0) -> LinkProfile:
        """Return a profile with all links alike."""
        line = Line(rate_bps, delay_s, jitter_s)
        return cls(line, line)


@dataclass(frozen=True, slots=True)
class PfcProfile:
    """Priority flow control of the data class (pfc.py), by link.

    Limits count the bytes that came in by a link and wait in the switch.
    """

    xoff_bytes: int
    """Number of waiting bytes above which the sender is asked to pause."""
    xon_bytes: int
    """Greatest number of waiting bytes at which the pause ends."""
    headroom_bytes: int
    """Bytes that may still arrive above `xoff_bytes`; a packet beyond is dropped (`headroom_full`)."""
    storm_after_s: float
    """A pause that lasts so long is counted as a storm."""

    def __post_init__(self) -> None:
        _positive("xoff_bytes", self.xoff_bytes)
        _positive("xon_bytes", self.xon_bytes, zero=True)
        _positive("headroom_bytes", self.headroom_bytes, zero=True)
        _positive("storm_after_s", self.storm_after_s)
        if self.xon_bytes > self.xoff_bytes:
            raise ProfileError(f"xon_bytes = {self.xon_bytes}: must not be above xoff_bytes = {self.xoff_bytes}")


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """Egress discipline of switch ports (§4.2 to §4.4): two strict-priority classes, marks, trims, limits.

    Depths are those of the class's own queue on one port, the packet in question included (for trimming and limits) or
    left behind (for marking, which is decided when a packet leaves). `None` switches a mechanism off.
    """

    data_bytes: int = 300_000
    """A data packet that would make the queue deeper is dropped (`queue_full`)."""
    data_packets: int | None = None
    """Limit of the data queue in packets, as BMv2 counts; None: none."""
    control_bytes: int = 100_000
    control_packets: int | None = None
    ecn_min_bytes: int | None = 20_000
    """Depth left behind above which an ECT packet may be marked CE; None: no marks."""
    ecn_max_bytes: int | None = None
    """Depth from which on every ECT packet is marked; the probability rises from `ecn_min_bytes` to it.

    None or equal to the minimum: one step.
    """
    last_hop_ecn: bool = False
    """Mark on T0 downlinks too. Off: a mark means a bad path, never incast (§4.4)."""
    trim_bytes: int | None = 100_000
    """A trimmable packet that would make the queue deeper is trimmed instead."""
    trim_lasthop_bytes: int | None = None
    """Trim threshold on T0 downlinks; None: as `trim_bytes`."""
    trim_len: int | None = None
    """Bytes kept of a trimmed frame; None: up to RETH (138 with SRv6, 98 without)."""
    pfc: PfcProfile | None = None
    """Lossless by pauses instead of `data_bytes`; for a whole fabric, and without trimming."""

    def __post_init__(self) -> None:
        for name in ("data_bytes", "control_bytes"):
            _positive(name, getattr(self, name))
        if self.ecn_max_bytes is not None and (self.ecn_min_bytes is None or self.ecn_max_bytes < self.ecn_min_bytes):
            raise ProfileError(f"ecn_max_bytes = {self.ecn_max_bytes}: needs an ecn_min_bytes not above it")
        if self.pfc is not None and self.trim_bytes is not None:
            raise ProfileError("pfc and trim_bytes: a queue that pauses its senders never trims; leave one away")
        if self.trim_len is not None and self.trim_len < 122:
            raise ProfileError(f"trim_len = {self.trim_len}: must keep BTH, METH and TSETH, 122 bytes with SRv6 (§4.3)")

    @classmethod
    def from_bdp(cls, bdp_bytes: float, *, ecn: bool = True, trim: bool = True, **changes: Any) -> QueueProfile:
        """Return the profile of Annex C for a bandwidth-delay product.

        In shares of BDP: ECN 20 % to 80 %, trim 100 % (last hop 150 %), limit 300 % (500 % untrimmed), control 100 %.
        """
        profile = cls(
            data_bytes=int(bdp_bytes * (link_speeds.DROP if trim else DROP_UNTRIMMED)),
            control_bytes=max(int(bdp_bytes * link_speeds.CONTROL), 4096),
            ecn_min_bytes=int(bdp_bytes * link_speeds.ECN_MIN) if ecn else None,
            ecn_max_bytes=int(bdp_bytes * link_speeds.ECN_MAX) if ecn else None,
            trim_bytes=int(bdp_bytes * link_speeds.TRIM_FABRIC) if trim else None,
            trim_lasthop_bytes=int(bdp_bytes * link_speeds.TRIM_LAST_HOP) if trim else None,
        )
        return replace(profile, **changes)


UNLIMITED_QUEUES = QueueProfile(data_bytes=1 << 40, control_bytes=1 << 40, ecn_min_bytes=None, trim_bytes=None)
"""Queues that never mark, trim or drop."""


@dataclass(frozen=True, slots=True)
class HostProfile:
    """Delays and ring sizes of NICs and hosts."""

    ring_packets: int = 4
    """Packets that a port takes before it has no room; they wait behind the packet being sent."""
    receive_s: float = 0.0
    """Seconds from the last bit on the wire until the engine sees the packet."""
    port_event_s: float = 0.0
    """Seconds from a port's change until the engine (and a T0's selector) knows."""

    def __post_init__(self) -> None:
        _positive("ring_packets", self.ring_packets)
        _positive("receive_s", self.receive_s, zero=True)
        _positive("port_event_s", self.port_event_s, zero=True)


@dataclass(frozen=True, slots=True)
class Scale:
    """Consistent `links`, `queues` and `config` for VirtualFabric. Made by `scaled_profiles`."""

    links: LinkProfile
    queues: QueueProfile
    config: Config
    rate_bps: float
    rtt_s: float
    """Unloaded round trip of a full packet and its SACK, over T1."""
    bdp_bytes: int
    """Bandwidth-delay product of one plane, bytes."""
    planes: int

    @property
    def payload_share(self) -> float:
        """Payload bytes per byte on the wire in a full data packet."""
        pmtu = self.config.qp.pmtu_bytes
        return pmtu / frame_bytes(pmtu)


def frame_bytes(payload: int, srv6: bool = True) -> int:
    """Return the bytes on the wire of a WRITE_MIDDLE with a timestamp."""
    return link_speeds.frame_bytes(payload, Mode.SRV6 if srv6 else Mode.ECMP)


def engine_keys(
    planes: int,
    *,
    rate_bps: float,
    rtt_s: float,
    pmtu_bytes: int = 1024,
    ecn: bool = True,
    trim: bool = True,
    cc: str = "uet-1.0-nscc",
) -> dict[str, Any]:
    """Return the keys of Config that the recipe derives from links, for `scaled_profiles`; not checked."""
    return {
        "pmtu_bytes": pmtu_bytes,
        "cwnd_bytes": 1.5 * planes * rate_bps * rtt_s / 8,
        "cc_algorithm": cc,
        "sack_flush_s": rtt_s / 10,
        "link_rate_bps": planes * rate_bps,
        "base_rtt_s": rtt_s,
        "trim_nack": trim,
        "fabric_trims": trim,
        "incast_penalty": 24 if trim and ecn else 0,
        "incast_hold_s": rtt_s / 2,
    }


def scaled_profiles(
    planes: int = 4,
    *,
    rate_bps: float = 10e6,
    rtt_s: float = 0.010,
    pmtu_bytes: int = 1024,
    ecn: bool = True,
    trim: bool = True,
    cc: str = "uet-1.0-nscc",
    config: dict[str, Any] | None = None,
    queues: dict[str, Any] | None = None,
) -> Scale:
    """Return the recipe of §11.4: rates / 10**4, times x 10**3, packets per BDP kept.

    Thresholds come from the plane's BDP.

    Delays are what is left of `rtt_s` after serialising a full packet four times and a SACK four times. `cc`: the
    key cc_algorithm; a fixed window is 1.5 x the BDP of all planes. Where the last hop trims without marking, receivers
    answer its trims with a penalty (nscc.md §4.3). `config` and `queues`: keys that replace what the recipe says.
    Raises ProfileError when the RTT leaves no time to travel.
    """
    full_frame, sack = frame_bytes(pmtu_bytes), SACK_BYTES + ETHERNET_BYTES + OUTER_BYTES
    serialising = 4 * (full_frame + sack) * 8 / rate_bps
    delay = (rtt_s - serialising) / 8
    if delay <= 0:
        raise ProfileError(
            f"rtt_s = {rtt_s}: serialising {full_frame} + {sack} bytes four times at {rate_bps:g} bits/s takes "
            f"{serialising:.6f} s alone"
        )
    bdp = rate_bps * rtt_s / 8
    settings = engine_keys(planes, rate_bps=rate_bps, rtt_s=rtt_s, pmtu_bytes=pmtu_bytes, ecn=ecn, trim=trim, cc=cc)
    if (queues or {}).get("last_hop_ecn"):
        settings["incast_penalty"] = 0
    settings["cwnd_bytes"] = int(settings["cwnd_bytes"])
    return Scale(
        LinkProfile.uniform(rate_bps, delay),
        QueueProfile.from_bdp(bdp, ecn=ecn, trim=trim, **(queues or {})),
        Config.of(**settings | (config or {})),
        rate_bps,
        rtt_s,
        int(bdp),
        planes,
    )


ENDLESS_S = inf
