"""NSCC (Network-Signalled Congestion Control), `uet-1.0-nscc`: window of one destination.

The law of nscc.md §1-§3.

Sections (§) without a name are those of nscc.md.

Each acknowledgment brings three things: bytes that arrived, the round trip of one packet, and whether a switch marked
it. Mark and delay choose one of four reactions (QUADRANTS); trims, losses and the receiver act beside them.

Design notes.

1. Units. Sizes are nominal bytes (UDP length + 40). Times are floats of one unit for all, parameters included; nothing
   in here knows which. The engine uses seconds, the worked examples of nscc.md §3.1 microseconds.
2. `credit` is in bytes squared: an increase of x bytes a round trip is earned as x per byte acknowledged, and one
   round trip acknowledges cwnd bytes. Dividing by cwnd once, when it is applied, spares a division an acknowledgment.
3. The average delay is time-weighted over one base RTT (§2.3). A fixed gain per acknowledgment, as simulators use it,
   would remember many round trips in pipes of 40 packets.
4. Trimmed headers overtake the data queue, so the round trip of their NACKs is shorter than any full packet's: base is
   not learned from them (§6.2, the caution; the UET text would).
5. Quick adapt trusts a measuring window only when the *window* was what limited the sender in it. The UET text trusts
   every one, and never forgets a trim: one old trim and a pause of the application then cost all of cwnd (§6.5).
6. A *crowd* (crowd.py) begins with a trim at the last hop, with a loss at a delay where nothing trims, or with either
   at a window of one packet. Its law moves the window until it is over; marks say nothing more then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from mrc_testbed.hosts.engine.cc.crowd import PACKETS, WINDOW_MIN, Crowd, share_at_target

INF: Final = float("inf")

REFERENCE_BDP: Final = 150_000
"""Bytes: the pipe for which the constants were tuned, 100 Gb/s x 12 us (§1.2)."""
REFERENCE_RTT_S: Final = 12e-6
REFERENCE_MTU: Final = 4096
REFERENCE_PACKETS: Final = REFERENCE_BDP / REFERENCE_MTU
"""Depth of the reference pipe, 36.6 packets, which "shape" scaling keeps (§1.4)."""
TARGET_TRIMMING: Final = 0.75
"""Target delay in base RTTs where switches trim (at 1 BDP): stay below it."""
TARGET_DROPPING: Final = 1.0
START_BDPS: Final = 1.5
"""Ceiling and start of the window, in BDP: new flows start at line rate."""
ALPHA: Final = 4
FAIR: Final = 5
ETA: Final = 0.15
FAST: Final = 0.25
"""Gain of the fast increase, bytes per byte.

The three gains above: proportional, fair and unconditional increase, in MTU a round trip."""
FAST_MAX: Final = 1.0
"""Fast increase at most doubles the window a round trip (§1.4, pipes beyond 150 packets)."""
CALM_SHARE: Final = 12
"""Delay counts as none below base RTT / this ("shape"); 1 us of 12 us in absolute terms."""
QA_TARGETS: Final = 4
"""Delay, in targets, that alone causes a quick adapt where nothing trims: the depth of a 5 BDP buffer."""
ADJUST_PACKETS: Final = 8
PENALTY_UNIT: Final = 7
"""rcv_cwnd_pen is in 1 / 2**7 of the bytes acknowledged (§2.6)."""
FLAG_WINDOWS: Final = 2
"""Quick-adapt windows after which a trim is forgotten (note 5)."""


@dataclass(frozen=True, slots=True)
class NsccParameters:
    """Parameters of a CC profile scaled to one pipe. Bytes, and times in one unit (note 1)."""

    mtu: float
    """Nominal size of a full packet; the floor of the window."""
    rate: float
    """Bytes per unit of time that host and peer can exchange, all planes together."""
    base_rtt: float
    """Unloaded round trip of a full packet over the longest path; samples may lower it, never raise it."""
    target: float
    """Queueing delay the loop steers to."""
    max_cwnd: float
    alpha: float
    """Proportional increase: bytes per round trip and unit of missing delay."""
    fi: float
    """Fair increase: bytes per round trip."""
    eta: float
    """Unconditional increase: bytes per adjust_period."""
    fi_scale: float
    """Fast increase: bytes per byte acknowledged."""
    calm_delay: float
    """Delay below which a delay counts as none."""
    gamma: float = 0.8
    """Gain of the multiplicative decrease, and the smallest factor that one may apply."""
    max_md_jump: float = 0.5
    adjust_bytes: float = 0.0
    """Earned increases are applied after more than so many bytes, or so much time."""
    adjust_period: float = 0.0
    quick_adapt: bool = True
    qa_gate: int = 3
    """Quick adapt only when less than max_cwnd / 2**qa_gate arrived in its window."""
    qa_threshold: float = INF
    base_min: float = 0.0
    """Least base that a sample may set."""
    crowd_share: float = PACKETS
    """Window in a crowd at a delay of `target`, in packets."""

    @property
    def bdp(self) -> float:
        """Return the bytes that fill the pipe without a queue."""
        return self.rate * self.base_rtt

    @classmethod
    def derive(
        cls,
        mtu: float,
        rate: float,
        base_rtt: float,
        *,
        trimming: bool = True,
        scaling: str = "shape",
        target: float | None = None,
        unit_s: float = 1.0,
    ) -> NsccParameters:
        """Return the default parameters of §1.2 for one pipe.

        `unit_s`: seconds per unit of time of `rate`, `base_rtt` and `target`.

        `scaling` "shape" keeps increases a constant fraction of the BDP, whatever the link: right for emulation;
        "uet" compares with 100 Gb/s and 12 us as the text does: right there, wild at milliseconds (§1.4).
        """
        if target is None:
            target = base_rtt * (TARGET_TRIMMING if trimming else TARGET_DROPPING)
        bdp = rate * base_rtt
        # Compared with the reference pipe: in bytes and seconds, else ("shape") in packets and base RTTs.
        if scaling == "uet":
            size = bdp / REFERENCE_BDP
            slowness = target * unit_s / REFERENCE_RTT_S
            calm_delay, fast = 1e-6 / unit_s, FAST * size
        else:
            size = bdp / mtu / REFERENCE_PACKETS
            slowness = target / base_rtt
            calm_delay, fast = base_rtt / CALM_SHARE, min(FAST * size, FAST_MAX)
        return cls(
            mtu,
            rate,
            base_rtt,
            target,
            START_BDPS * bdp,
            alpha=ALPHA * size * slowness * mtu / target,
            fi=FAIR * size * mtu,
            eta=ETA * size * mtu,
            fi_scale=fast,
            calm_delay=calm_delay,
            adjust_bytes=ADJUST_PACKETS * mtu,
            adjust_period=base_rtt,
            qa_threshold=INF if trimming else QA_TARGETS * target,
            crowd_share=share_at_target(bdp / mtu),
        )


class Reaction(Enum):
    """Effect of one acknowledgment on the window."""

    PROPORTIONAL = "proportional increase"
    FAST = "fast increase"
    FAIR = "fair increase"
    NOTHING = "left to path selection"
    DECREASE = "decrease"
    DECREASE_WAITS = "no decrease yet"
    """The average is below target, or the last decrease less than a round trip ago."""
    HELD = "increase forbidden by the receiver"
    QUICK_ADAPT = "quick adapt"
    MUTED = "mark ignored after a quick adapt"
    NO_SAMPLE = "no round trip known"

    __hash__ = object.__hash__


class Tally:
    """Number of acknowledgments with one reaction; a dict of numbers would make objects of them."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


# (marked, delay at or above target) -> how to read it (§2.1). PROPORTIONAL may turn out FAST when there is no queue at
# all, DECREASE may have to wait, and a receiver that throttles us turns increases into HELD.
QUADRANTS: Final[dict[tuple[bool, bool], Reaction]] = {
    (False, False): Reaction.PROPORTIONAL,  # idle or light
    (False, True): Reaction.FAIR,  # was congested, is draining
    (True, False): Reaction.NOTHING,  # one path is filling: another EV cures that, not a smaller window
    (True, True): Reaction.DECREASE,  # congested
}
# Its cells by name: a look into it costs as much as the rest of a reaction.
_QUADRANT_LIGHT: Final = QUADRANTS[False, False]
_QUADRANT_DRAIN: Final = QUADRANTS[False, True]
_QUADRANT_ONE_PATH: Final = QUADRANTS[True, False]
_QUADRANT_CONGESTION: Final = QUADRANTS[True, True]


class Nscc:
    """One controller. `inflight`: what all QPs have in flight, none of them less than nothing."""

    __slots__ = (
        "avg",
        "base",
        "calm_bytes",
        "credit",
        "crowd",
        "cwnd",
        "inflight",
        "mute_bytes",
        "muted_bytes",
        "p",
        "qa_due",
        "qa_limited",
        "qa_trim_at",
        "saved_window",
        "settled_bytes",
        "sprint",
        "t_avg",
        "t_cut",
        "t_settle",
        "tallies",
        "wmax",
        "won",
    )

    def __init__(self, parameters: NsccParameters, now: float = 0.0, rng: Random | None = None) -> None:
        self.p = parameters
        self.crowd = Crowd(parameters.mtu, rng or Random(0), now)
        """See note 6."""
        self.base = parameters.base_rtt
        """Smallest round trip seen, and never above the configured one."""
        # A new flow starts at its ceiling, line rate (§1.2).
        self.wmax = parameters.max_cwnd
        self.cwnd = parameters.max_cwnd
        self.inflight = 0
        self.saved_window = 0.0
        """Window from before the receiver throttled us; 0 = it does not."""
        self.credit = 0.0
        """Increases earned and not applied yet, bytes squared (note 2)."""
        self.settled_bytes = 0
        """Bytes acknowledged since the increases were applied last."""
        self.calm_bytes = 0
        """Bytes acknowledged in a row without queueing delay; a window's worth starts the sprint."""
        self.sprint = False
        self.won = 0
        """Bytes acknowledged in the current quick-adapt window.

        The window ends at `qa_due`; 0: none has begun yet."""
        self.qa_due = 0.0
        self.qa_limited = False
        """Whether cwnd held the sender back in this quick-adapt window (note 5)."""
        self.qa_trim_at: float | None = None
        """Last trim since the last quick adapt: what arms it."""
        self.mute_bytes = self.muted_bytes = 0
        """Bytes whose marks a quick adapt ignores (the flight at that time), and bytes of them already passed."""
        self.t_settle = self.t_cut = self.t_avg = now
        self.avg = 0.0
        """Queueing delay, averaged over about one base RTT."""
        self.tallies = {reaction: Tally() for reaction in Reaction}

    @property
    def counts(self) -> dict[Reaction, int]:
        """Number of acknowledgments by reaction."""
        return {reaction: tally.count for reaction, tally in self.tallies.items()}

    # ---- sending ----------------------------------------------------------------------------------------

    def on_send(self, size: int) -> None:
        self.inflight += size

    def on_unlost(self, size: int) -> None:
        """Add a packet that was given up and has arrived: the byte counter will drain it once more."""
        self.inflight += size

    def opens_at(self) -> float:
        """Return when the next packet may leave by a window below one packet."""
        return self.crowd.opens_at(self.cwnd, self.base)

    # ---- acknowledgments --------------------------------------------------------------------------------

    def on_ack(
        self, now: float, size: int, marked: bool, rtt: float | None, penalty: int = 0, restore: bool | None = False
    ) -> Reaction:
        """Count `size` newly acknowledged bytes, and react to mark and round trip of the SACK's trigger.

        `penalty` 0..127 and `restore` come from the receiver (§2.6); restore None: its throttling goes on elsewhere.
        """
        reaction = self._react(now, size, marked, rtt, penalty, restore)
        self.tallies[reaction].count += 1
        return reaction

    def _react(
        self, now: float, size: int, marked: bool, rtt: float | None, penalty: int, restore: bool | None
    ) -> Reaction:
        self._drain(size)
        self.settled_bytes += size
        self.won += size
        if not self.crowd.is_joined:
            self._receiver(penalty, restore, size)
        if rtt is None:
            return Reaction.NO_SAMPLE
        self.learn_base(rtt)
        delay = max(0.0, rtt - self.base)
        self._average(now, delay)
        # In a crowd the delay alone moves the window (note 6).
        if self.crowd.is_joined:
            return self._share_crowd(now, size, rtt, delay, penalty)
        if (adaptation := self._quick_adapt(now, delay, marked, lost=False)) is not None:
            return adaptation
        is_late = delay >= self.p.target
        if marked:
            reaction = _QUADRANT_CONGESTION if is_late else _QUADRANT_ONE_PATH
        else:
            reaction = _QUADRANT_DRAIN if is_late else _QUADRANT_LIGHT
        if reaction is Reaction.DECREASE:
            reaction = self._decrease(now)
        elif penalty and reaction is not Reaction.NOTHING:
            reaction = Reaction.HELD
        elif reaction is Reaction.FAIR:
            self.credit += self.p.fi * size
        elif reaction is Reaction.PROPORTIONAL:
            if self._sprints(size, delay):
                reaction = Reaction.FAST
            else:
                self.credit += self.p.alpha * size * (self.p.target - delay)
        period = self.p.adjust_period
        if now - self.t_settle >= period or self.settled_bytes > self.p.adjust_bytes:
            self._settle(now)
        return reaction

    # ---- bad news ---------------------------------------------------------------------------------------

    def on_trim(self, now: float, size: int, last_hop: bool = False, left_at: float = INF) -> None:
        """Take a packet off that was trimmed, in the core or at the last hop.

        The window shrinks by one packet, or by a quick adapt.
        """
        self._drain(size)
        self._average(now, self.p.base_rtt)  # stand-in for the delay of a full queue
        if self.crowd.is_joined:
            self.cwnd = self.crowd.after_trim(self.cwnd, now, left_at, self.base)
            return
        self.qa_trim_at = now
        adaptation = self._quick_adapt(now, 0.0, True, lost=True)
        if adaptation is None:
            self._shrink(size)
        else:
            self.tallies[adaptation].count += 1
        if last_hop:
            self._join_crowd()

    def on_loss(self, now: float, size: int, left_at: float = INF) -> None:
        """Take a packet off that was given up, by its timer or by inference.

        The window shrinks by one packet; quick adapt is not armed.
        """
        self._drain(size)
        if self.crowd.is_joined:
            self.cwnd = self.crowd.after_loss(self.cwnd, now, left_at, self.base, size, self.avg >= self.p.target)
            return
        self._shrink(size)
        if self.p.qa_threshold < INF and self.avg >= self.p.target:  # nothing trims: a full queue loses
            self._join_crowd()

    def on_other_nack(self, size: int) -> None:
        """Take off a packet refused for want of resources at the responder; the network is not to blame."""
        self.inflight -= size

    def _drain(self, size: int) -> None:
        """Take `size` bytes off that left the network."""
        if self.inflight + self.p.mtu > self.cwnd:
            self.qa_limited = True
        self.inflight -= size
        self.muted_bytes += size

    def _shrink(self, size: int) -> None:
        self.cwnd = max(self.cwnd - size, self.p.mtu)
        if self.cwnd <= self.p.mtu:
            self._join_crowd()

    # ---- a crowd (note 6) -------------------------------------------------------------------------------

    def _join_crowd(self) -> None:
        """Enter the crowd, and share by its law."""
        self.crowd.join()
        self.saved_window = self.credit = 0.0
        self.calm_bytes, self.settled_bytes, self.sprint = 0, 0, False

    def _share_crowd(self, now: float, size: int, rtt: float, delay: float, penalty: int) -> Reaction:
        """Apply one acknowledgment in a crowd."""
        p = self.p
        if penalty:  # the receiver's word counts down to one packet; below it the delay speaks for all senders alike
            cut = self.cwnd - (penalty * size >> PENALTY_UNIT)
            self.cwnd = max(min(self.cwnd, p.mtu), cut)
            return Reaction.HELD
        is_calm = delay < p.calm_delay
        window = self.crowd.after_ack(self.cwnd, now, size, now - rtt, is_calm, delay / p.target, p.crowd_share)
        self.cwnd = min(window, self.wmax)
        if not self.crowd.is_joined:
            self.t_settle, self.qa_due, self.qa_trim_at = now, 0.0, None
        if is_calm:
            return Reaction.FAST
        return Reaction.FAIR if delay >= p.target else Reaction.PROPORTIONAL

    # ---- delay ------------------------------------------------------------------------------------------

    def learn_base(self, rtt: float) -> None:
        """Lower the base to a round trip that may be of an empty path; the window's ceiling follows."""
        if 0 < rtt < self.base > self.p.base_min:
            self.base = max(rtt, self.p.base_min)
            self._follow_base()

    def _follow_base(self) -> None:
        self.wmax = max(self.p.mtu, min(self.p.max_cwnd, START_BDPS * self.p.rate * self.base))

    def _average(self, now: float, delay: float) -> None:
        weight = min(1.0, (now - self.t_avg) / self.base)
        self.avg += weight * (delay - self.avg)
        self.t_avg = now

    # ---- the receiver -----------------------------------------------------------------------------------

    def _receiver(self, penalty: int, restore: bool | None, size: int) -> None:
        """Throttle while the receiver asks for it (§2.6).

        Afterwards the window from before comes back if the receiver says so, else it is forgotten.
        """
        if penalty:
            self.saved_window = self.saved_window or self.cwnd
            self.cwnd = max(self.p.mtu, min(self.cwnd, self.inflight) - (penalty * size >> PENALTY_UNIT))
        elif self.saved_window and restore is not None:
            if restore:
                self.cwnd = self.saved_window
            self.saved_window = 0.0

    # ---- quick adapt ------------------------------------------------------------------------------------

    def _quick_adapt(self, now: float, delay: float, marked: bool, lost: bool) -> Reaction | None:
        """Set the window to what really arrived (§2.4); None when the event is to be treated as usual."""
        p = self.p
        if not p.quick_adapt:
            return None
        reaction = None
        if marked and self.muted_bytes < self.mute_bytes:
            reaction = Reaction.MUTED  # about packets sent before the reset
        elif now >= self.qa_due:
            length = self.base + p.target
            if self.qa_trim_at is not None and now - self.qa_trim_at > FLAG_WINDOWS * length:
                self.qa_trim_at = None
            cause = lost or self.qa_trim_at is not None or delay > p.qa_threshold
            if self.qa_due and self.qa_limited and cause and self.won < self.wmax / (1 << p.qa_gate):
                self.cwnd = max(self.won, p.mtu)
                self.mute_bytes, self.muted_bytes, self.qa_trim_at = self.inflight, 0, None
                reaction = Reaction.QUICK_ADAPT
            self.won, self.qa_due = 0, now + length
            self.qa_limited = False
        if self.inflight <= 0:
            self.won, self.qa_due = 0, 0.0  # idle: the next window begins with the next acknowledgment
        if reaction is not None:
            self.credit, self.settled_bytes = 0.0, 0
        return reaction

    # ---- increase and decrease --------------------------------------------------------------------------

    def _sprints(self, size: int, delay: float) -> bool:
        """Fast increase once more than a whole window arrived without any queue; ends with the first delay."""
        if delay >= self.p.calm_delay:
            self.calm_bytes, self.sprint = 0, False
            return False
        self.calm_bytes += size
        self.sprint = self.sprint or self.calm_bytes > self.cwnd
        if self.sprint:
            self.cwnd = min(self.cwnd + size * self.p.fi_scale, self.wmax)
        return self.sprint

    def _decrease(self, now: float) -> Reaction:
        """Decrease by the excess of the *average* delay over target, at most once a round trip.

        Credit earned before stays.
        """
        self.calm_bytes, self.sprint = 0, False
        p, avg = self.p, self.avg
        if avg <= p.target or now - self.t_cut <= self.base:
            return Reaction.DECREASE_WAITS
        factor = max(1 - p.gamma * (avg - p.target) / avg, p.max_md_jump)
        self.cwnd, self.t_cut = max(self.cwnd * factor, p.mtu), now
        return Reaction.DECREASE

    def _settle(self, now: float) -> None:
        """Apply the increases earned; eta comes on top once per period, whatever the quadrant."""
        self.cwnd += self.credit / self.cwnd
        if now - self.t_settle >= self.p.adjust_period:
            self.t_settle = now
            self.cwnd += self.p.eta
        self.cwnd = min(self.cwnd, self.wmax)
        self.credit, self.settled_bytes = 0.0, 0

    # ---- a pipe that is measured ------------------------------------------------------------------------

    def retune(self, parameters: NsccParameters) -> None:
        """Base RTT or rate turned out different (they are measured): keep the state, change the scale."""
        self.p = parameters
        self.base = min(self.base, parameters.base_rtt)
        self._follow_base()
        floor = WINDOW_MIN * parameters.mtu if self.crowd.is_joined else parameters.mtu
        self.cwnd = max(min(self.cwnd, self.wmax), floor)
