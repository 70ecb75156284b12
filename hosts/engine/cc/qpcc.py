"""QPCC: one congestion window per destination, shared by all QPs to it (§5.15, nscc.md §1.1, §2.8).

A QP holds a `Share`: it counts what that QP has in flight, so that whatever it leaves behind when it ends can be taken
back, and passes everything else on to the controller. One window for all paths, never one per path. The numbered
design notes that comments name are in docs/design/congestion-window.md.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.cc.ccprofile import (
    ALGORITHMS,
    DEFAULT_PROFILE,
    FIXED_WINDOW,
    NS,
    NSCC,
    CcProfile,
    CcProfiles,
)
from mrc_testbed.hosts.engine.cc.nscc import START_BDPS, Nscc, NsccParameters
from mrc_testbed.hosts.engine.cc.window import FULL_PACKET, LONG_AGO, FixedWindow, plausible_inflight
from mrc_testbed.hosts.engine.config import Config

PROVISIONAL_RTT_S: Final = 0.01
"""Base RTT assumed until the first acknowledgment, when none is configured."""
PROBE_BYTES: Final = 64
"""About what a base RTT probe and its answer weigh, nominal bytes."""
PROBES: Final = 3
"""Attempts to have a base RTT probe answered."""
BASE_STEP: Final = 0.95
"""Ratio to the known base RTT below which a smaller sample rescales the controller.

The controller itself follows every sample."""
RATE_WINDOW_RTTS: Final = 2
RATE_STEP: Final = 1.1
"""Ratio to the last rate above which a measured rate is believed; each change rescales the controller."""


class RateMeter:
    """The most bytes per second that were ever acknowledged over `RATE_WINDOW_RTTS` base RTTs."""

    __slots__ = ("_bytes", "_window_start", "rate")

    def __init__(self) -> None:
        self.rate = 0.0
        self._bytes = 0
        self._window_start: float | None = None

    def on_ack(self, now: float, size: int, base_rtt_s: float) -> bool:
        """Count; True when the rate grew."""
        if self._window_start is None:
            self._window_start = now  # what comes with the first acknowledgment took no time to arrive
            return False
        self._bytes += size
        length = now - self._window_start
        if length < RATE_WINDOW_RTTS * base_rtt_s:
            return False
        rate, self._bytes, self._window_start = self._bytes / length, 0, now
        if rate <= self.rate * RATE_STEP:
            return False
        self.rate = rate
        return True

    def pause(self) -> None:
        """Stop measuring while nothing is in flight: idle time must not count."""
        self._bytes, self._window_start = 0, None


class Share:
    """Share of one QP in a QPCC: the interface of a window (window.py), as its requestor sees it."""

    __slots__ = ("_always_ask", "_cc", "_fits", "_mtu", "inflight", "parked", "qpcc")

    def __init__(self, qpcc: Qpcc, config: Config) -> None:
        self.qpcc = qpcc
        self._cc = qpcc.cc
        self._mtu = qpcc.cc.p.mtu
        self._fits = config.congestion.cc_send_rule == "uet"
        self._always_ask = config.sack_threshold
        """The responder's coalescing threshold (assumed ours), bytes.

        Smaller windows would stall without the A bit (nscc.md §2.7)."""
        self.inflight = 0
        """Signed, nominal bytes of this QP alone."""
        self.parked = False
        """Whether nothing is heard of the peer: `inflight` is then outside the window (note 4)."""

    @property
    def cwnd(self) -> float:
        """Window of all QPs of the destination together."""
        return self._cc.cwnd

    @property
    def is_alone(self) -> bool:
        """Whether no other QP goes to this destination."""
        return len(self.qpcc.shares) == 1

    def may_send(self) -> bool:
        if self.parked:
            return self.inflight <= 0
        cc = self._cc
        if self._fits:  # an empty pipe takes a packet whatever the window: else one below a packet would never open
            return cc.inflight + self._mtu <= cc.cwnd or cc.inflight <= 0
        return cc.inflight < cc.cwnd

    def about_to_stall(self) -> bool:
        cc = self._cc
        return self.parked or cc.cwnd - cc.inflight < self._mtu or cc.cwnd < self._always_ask

    def opens_at(self) -> float:
        cc = self._cc
        return cc.opens_at() if cc.cwnd < self._mtu else LONG_AGO

    def took_turn(self, now: float) -> None:
        self._cc.crowd.turn_at = now

    def on_send(self, size: int) -> None:
        self.inflight += size
        if not self.parked:
            self._cc.inflight += size if size <= self.inflight else max(0, self.inflight)

    def on_ack(
        self,
        now: float,
        size: int,
        marked: bool,
        rtt_s: float | None,
        penalty: int = 0,
        restore: bool = False,
        sample_size: int = FULL_PACKET,
    ) -> None:
        self.inflight -= size
        if rtt_s is not None and sample_size < self._mtu:
            rtt_s += self.qpcc.shorter_s(sample_size)
        self.qpcc.on_ack(self, now, size, marked, rtt_s, penalty, restore)
        self._keep_surplus(size)

    def on_trim(self, now: float, size: int, last_hop: bool, left_at: float, attempt: int) -> None:
        self.inflight -= size
        self.qpcc.on_trim(now, size, last_hop, left_at)
        self._keep_surplus(size)

    def on_other_nack(self, size: int) -> None:
        self.inflight -= size
        self._cc.on_other_nack(size)
        self._keep_surplus(size)

    def on_loss(self, now: float, size: int, left_at: float) -> None:
        self.inflight -= size
        if not self.parked:
            self._cc.on_loss(now, size, left_at)
            self._keep_surplus(size)
        elif self.qpcc.all_parked:
            self._cc.inflight += size
            self._cc.on_loss(now, size, left_at)

    def _keep_surplus(self, size: int) -> None:
        """Take back what the window was drained of, `size`, beyond what this QP had in flight (note 5)."""
        if self.inflight < 0:
            self._cc.inflight += min(size, -self.inflight)

    def on_unlost(self, size: int) -> None:
        self.inflight += size
        self._cc.on_unlost(min(size, max(0, self.inflight)))

    def on_silence(self) -> None:
        if not self.parked:
            self._cc.inflight -= max(0, self.inflight)
            self.parked = True

    def on_life(self) -> None:
        if self.parked:
            self._cc.inflight += max(0, self.inflight)
            self.parked = False

    def cap(self, outstanding: int) -> None:
        """See FixedWindow.cap; what is plausible is known for this QP alone."""
        plausible = plausible_inflight(self.inflight, outstanding)
        if plausible != self.inflight:
            if not self.parked:
                self._cc.inflight += max(0, plausible) - max(0, self.inflight)
            self.inflight = plausible

    def leave(self) -> None:
        self.qpcc.leave(self)

    def report(self) -> dict[str, Any]:
        return self.qpcc.report()


Window = FixedWindow | Share
"""Congestion window of a requestor.

A union of both classes rather than a Protocol: machine code calls them directly."""


class Qpcc:
    """Congestion control towards one destination.

    `probe(self, now)` sends a base RTT probe, whose outcome goes to on_probe; it returns False when no probe can be
    sent now.
    """

    __slots__ = (
        "_base_configured",
        "_config",
        "_hops",
        "_known_base",
        "_meter",
        "_mtu",
        "_planes",
        "_probe",
        "_probes_left",
        "_probing",
        "_profile",
        "_rng",
        "_throttled_shares",
        "_trimming",
        "_window",
        "cc",
        "peer",
        "shares",
    )

    def __init__(
        self,
        peer: str,
        profile: CcProfile,
        config: Config,
        planes: int,
        mtu: int,
        trimming: bool,
        probe: Callable[[Qpcc, float], bool],
        now: float,
        rng: Random,
    ) -> None:
        self.peer = peer
        self.shares: list[Share] = []
        self._profile, self._config, self._planes, self._mtu = profile, config, planes, mtu
        self._trimming, self._probe, self._rng = trimming, probe, rng
        self._hops = config.congestion.path_hops
        self._probes_left = PROBES if config.congestion.cc_probe else 0
        self._probing = False
        self._throttled_shares: set[Share] = set()
        """QPs whose responder throttles us: the episode ends with the last of them."""
        self._base_configured = bool(config.congestion.base_rtt_s or profile.base_rtt)
        base = config.congestion.base_rtt_s if profile.base_rtt is None else profile.base_rtt * NS
        self._known_base = base
        """Base RTT that is configured, else the one that the parameters were derived from; 0 = no sample yet."""
        self._meter = None if config.congestion.link_rate_bps else RateMeter()
        self._window = profile.max_cwnd or config.congestion.cwnd_bytes
        """Initial window while the rate is unknown, bytes."""
        self.cc = Nscc(self._parameters(base or PROVISIONAL_RTT_S), now, rng)

    def _parameters(self, base_rtt_s: float) -> NsccParameters:
        congestion, meter = self._config.congestion, self._meter
        if meter is None:
            rate = congestion.link_rate_bps / 8
        else:
            rate = meter.rate or self._window / (START_BDPS * base_rtt_s)
        return self._profile.parameters(
            self._mtu,
            rate,
            base_rtt_s,
            trimming=self._trimming,
            scaling=congestion.cc_scaling,
            base_min_s=min(base_rtt_s, congestion.base_rtt_min_s),
        )

    # ---- members ----------------------------------------------------------------------------------------

    def join(self, now: float) -> Share:
        """Return the share of a QP that connects.

        The first QP after a time without any starts with a fresh window, but a known base RTT.
        """
        if not self.shares:
            old_controller = self.cc
            self.cc = Nscc(old_controller.p, now, self._rng)
            self.cc.tallies = old_controller.tallies
            self.cc.learn_base(old_controller.base)
            self.cc.cwnd = max(self.cc.wmax * self._config.congestion.cc_start, self.cc.p.mtu)
            if self._meter is not None:
                self._meter.pause()
        share = Share(self, self._config)
        self.shares.append(share)
        return share

    def leave(self, share: Share) -> None:
        """Remove the share of a destroyed QP, and its bytes in flight."""
        if share in self.shares:
            self.shares.remove(share)
            self._throttled_shares.discard(share)
            if not share.parked:
                self.cc.inflight -= max(0, share.inflight)
            share.inflight = 0

    @property
    def all_parked(self) -> bool:
        """Whether no QP of the destination is heard."""
        return all(share.parked for share in self.shares)

    # ---- feedback ---------------------------------------------------------------------------------------

    def on_ack(
        self, share: Share, now: float, size: int, marked: bool, rtt_s: float | None, penalty: int, restore: bool
    ) -> None:
        """Feedback of one QP, for the window of all."""
        cc, throttled_shares = self.cc, self._throttled_shares
        ends: bool | None = restore
        if penalty:
            throttled_shares.add(share)
        elif throttled_shares:
            throttled_shares.discard(share)
            if throttled_shares:
                ends = None
        if rtt_s is not None and not self._base_configured:
            self._measure_base(rtt_s)
        cc.on_ack(now, size, marked, rtt_s, penalty, ends)
        meter = self._meter
        if meter is not None and self._known_base:
            if meter.on_ack(now, size, cc.base):
                cc.retune(self._parameters(self._known_base))
            if cc.inflight <= 0:
                meter.pause()
        self._learn_base(now)

    def on_trim(self, now: float, size: int, last_hop: bool, left_at: float) -> None:
        self.cc.on_trim(now, size, last_hop, left_at)
        self._learn_base(now)

    def _learn_base(self, now: float) -> None:
        """Probe for the base RTT, at the first answer of any kind (nscc.md §2.8)."""
        if self._probes_left > 0 and not self._probing:
            self._probing = self._probe(self, now)

    def on_probe(self, rtt_s: float | None) -> None:
        """Take the outcome of the base RTT probe: answered after `rtt_s`, or (None) not at all.

        Without an answer another probe follows, up to PROBES.
        """
        self._probing = False
        if rtt_s is None:
            self._probes_left -= 1
            return
        self._probes_left = 0
        rtt_s += self._serialisation_s(PROBE_BYTES)
        if not self._base_configured:
            self._measure_base(rtt_s)
        self.cc.learn_base(rtt_s)

    def shorter_s(self, size: int) -> float:
        """Extra time of a full packet over one of `size` bytes (note 3); 0 where no rate is configured."""
        return 0.0 if self._meter is not None else self._serialisation_s(size)

    def _serialisation_s(self, size: int) -> float:
        return self._hops * max(0, self._mtu - size) / (self.cc.p.rate / self._planes)

    def _measure_base(self, rtt_s: float) -> None:
        """Take a sample as base RTT where none is configured.

        The first sample is the base; a smaller one later changes the scale of everything.
        """
        if rtt_s > 0 and (not self._known_base or rtt_s < self._known_base * BASE_STEP):
            self.cc.base = self._known_base = rtt_s
            self.cc.retune(self._parameters(rtt_s))

    # ---- inspection -------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return the state for tools: bytes, seconds, and counts of each Reaction (by its words)."""
        cc = self.cc
        return {
            "algorithm": NSCC,
            "cwnd_bytes": cc.cwnd,
            "max_cwnd_bytes": cc.wmax,
            "inflight_bytes": max(0, cc.inflight),
            "base_rtt_s": cc.base,
            "target_delay_s": cc.p.target,
            "delay_s": cc.avg,
            "rate_bps": cc.p.rate * 8,
            "rate_measured": self._meter is not None,
            "base_rtt_measured": not self._base_configured,
            "qps": len(self.shares),
            "reactions": {r.value: n for r, n in cc.counts.items() if n},
        }


_DEFAULTS: Final = {"none": CcProfile(None), **{name: CcProfile(name) for name in ALGORITHMS}}


def default_profile(config: Config) -> CcProfile:
    """Return the CC profile that a configuration describes."""
    return _DEFAULTS[config.congestion.cc_algorithm]


class Qpccs:
    """All QPCCs of an endpoint, and the CC profiles that QPs choose from."""

    def __init__(self, config: Config, planes: int, probe: Callable[[Qpcc, float], bool], rng: Random) -> None:
        self.profiles = CcProfiles(default_profile(config))
        self._planes, self._probe, self._rng = planes, probe, rng
        self._by_key: dict[tuple[Any, ...], Qpcc] = {}

    def window(
        self, peer: str, profile_id: int, config: Config, mtu: int, mpr_packets: int, trims: bool, now: float
    ) -> Window:
        """Return the window of a QP that connects.

        `config`: the QP's; `mtu`: nominal bytes; `mpr_packets`: the peer's window; `trims`: whether the peer answers
        trimmed packets.
        """
        congestion = config.congestion
        profile = self.profiles.get(profile_id) if profile_id != DEFAULT_PROFILE else default_profile(config)
        if profile.algorithm is None:
            return FixedWindow(mpr_packets * mtu, mtu, congestion.base_rtt_s, self._rng, now)
        if profile.algorithm == FIXED_WINDOW:
            return FixedWindow(profile.max_cwnd or congestion.cwnd_bytes, mtu, congestion.base_rtt_s, self._rng, now)
        key = (peer, profile_id, profile, trims)
        shared = congestion.cc_scope == "destination"
        qpcc = self._by_key.get(key) if shared else None
        if qpcc is None:
            trimming = trims and congestion.fabric_trims
            qpcc = Qpcc(peer, profile, config, self._planes, mtu, trimming, self._probe, now, self._rng)
            if shared:
                self._by_key[key] = qpcc
        return qpcc.join(now)
