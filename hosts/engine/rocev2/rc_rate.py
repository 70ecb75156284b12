"""Two ways in which a RoCEv2 RC sender controls how fast it sends (RcConfig.control).

`control = "window"` sends as fast as the port takes it, `window_packets` at most without
acknowledgment. `control = "dcqcn"` adds a rate, a simplification of DCQCN [public paper, SIGCOMM 2015]:

    kept           CNP at most once per cnp_interval_s; alpha += g (1 - alpha) and rate x (1 - alpha/2) per CNP; alpha
                   decay; recovery half way to the target rate each period; additive increase of the target after
                   `fast_recovery` periods
    left out       the byte counter beside the recovery timer, hyper increase, rate limits of the NIC's scheduler
    times          of the paper x 1000, as every time in this testbed (mrc-protocol §11.4)

Neither reacts to loss: RoCE was made for networks without it.
"""

from __future__ import annotations

from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig


class LineRate:
    """No rate: the window alone holds the sender back."""

    __slots__ = ()
    rate_bps: float | None = None

    def send_at(self, now: float) -> float:
        """Earliest time of the next packet."""
        return now

    def on_send(self, size: int, now: float) -> None:
        """Note that `size` nominal bytes left."""

    def on_cnp(self, now: float) -> None:
        """Note that the receiver saw CE marks."""


class Dcqcn:
    """See the module. Has no timer: what its timers would have done is made up for before each use."""

    __slots__ = ("_alpha_at", "_config", "_next", "_period", "_periods", "alpha", "rate_bps", "target_bps")

    def __init__(self, config: RcConfig, now: float) -> None:
        self._config = config
        self.rate_bps = self.target_bps = config.line_rate_bps
        self.alpha = 1.0
        self._alpha_at = self._period = now
        """Times up to which alpha was decayed and the rate was raised."""
        self._periods = 0
        """Increase periods since the last CNP."""
        self._next = now

    def _catch_up(self, now: float) -> None:
        config = self._config
        periods = int((now - self._alpha_at) / config.alpha_period_s)
        if periods > 0:
            self.alpha *= (1 - config.g) ** periods
            self._alpha_at += periods * config.alpha_period_s
        while now - self._period >= config.increase_period_s:
            if self.rate_bps >= config.line_rate_bps:
                self._period = now
                return
            self._period += config.increase_period_s
            self._periods += 1
            if self._periods > config.fast_recovery:
                self.target_bps = min(self.target_bps + config.increase_bps, config.line_rate_bps)
            self.rate_bps = (self.rate_bps + self.target_bps) / 2
            if config.line_rate_bps - self.rate_bps < config.increase_bps / 2:
                self.rate_bps = self.target_bps = config.line_rate_bps

    def send_at(self, now: float) -> float:
        """Earliest time of the next packet."""
        return self._next

    def on_send(self, size: int, now: float) -> None:
        """Note that `size` nominal bytes left."""
        self._catch_up(now)
        credit = self._config.burst_bytes * 8 / self.rate_bps
        self._next = max(self._next, now - credit) + size * 8 / self.rate_bps

    def on_cnp(self, now: float) -> None:
        """Cut the rate by half of alpha, as the receiver saw CE marks; the old rate is the target."""
        self._catch_up(now)
        config = self._config
        self.target_bps = self.rate_bps
        self.rate_bps = max(self.rate_bps * (1 - self.alpha / 2), config.min_rate_bps)
        self.alpha = (1 - config.g) * self.alpha + config.g
        self._alpha_at = self._period = now
        self._periods = 0


def rate_control(config: RcConfig, now: float) -> LineRate | Dcqcn:
    """Return the rate control that `config.control` names."""
    return Dcqcn(config, now) if config.control == "dcqcn" else LineRate()
