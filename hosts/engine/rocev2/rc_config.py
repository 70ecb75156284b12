"""Parameters of the RoCEv2 RC baseline: one record, checked when it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Final, Literal

from mrc_testbed.hosts.engine.config_limits import ConfigError, NumberRange, check_fields

ACK_TIMEOUT_UNIT_S: Final = 4.096e-6
"""Local ACK Timeout = this x 2**timeout [IBTA]; MRC's unit is a quarter of it."""


@dataclass(frozen=True, slots=True)
class RcConfig:
    """Units are in the names. What both transports need (PMTU, UDP port, DSCPs) is in Config."""

    timeout: Annotated[int, NumberRange(1, 31)] = 14
    """Local ACK timeout 4.096 us x 2**timeout: 67 ms, as Config.loss.timeout's; 1..31."""
    retry_cnt: Annotated[int, NumberRange(0, 7)] = 7
    """Number of times in a row the requestor goes back without progress; 0..7 (3 bits).

    It goes back for a timeout or a sequence NAK."""
    rnr_retry: Annotated[int, NumberRange(0, 7)] = 7
    """Number of waits in a row for a posted receive, after an RNR NAK; 7 = for ever."""
    rnr_timer: Annotated[int, NumberRange(0, 31)] = 16
    """Code of the wait our RNR NAKs ask for, 0..31; 16 = 2.56 ms."""
    window_packets: Annotated[int, NumberRange(0, 1 << 22)] = 0
    """Number of packets without acknowledgment.

    0: as many full ones as `cwnd_bytes` of Config holds, to be fair to both."""
    ack_every_packets: Annotated[int, NumberRange(1, 1 << 20)] = 16
    """Period, in packets, of the A bit, besides the last packet of a message and of the window."""
    ev_choice: Literal["spread", "random"] = "spread"
    """Choice of the EV that the QP keeps among those given to connect().

    "spread" = number qpn modulo how many, so that n QPs have n paths; "random" = as a hash would, collisions
    included."""
    control: Literal["window", "dcqcn"] = "window"
    """ "window" or "dcqcn"."""
    line_rate_bps: Annotated[float, NumberRange(1e3, 1e13)] = 100e6
    """dcqcn: where a QP starts, and its most."""
    min_rate_bps: Annotated[float, NumberRange(1e2, 1e13)] = 1e5
    g: Annotated[float, NumberRange(1e-6, 1)] = 1 / 16
    """dcqcn: gain of alpha, the estimate of how much is marked."""
    alpha_period_s: Annotated[float, NumberRange(1e-6, 3600)] = 0.055
    """dcqcn: alpha x (1 - g) after each such time without CNP."""
    increase_period_s: Annotated[float, NumberRange(1e-6, 3600)] = 0.055
    """dcqcn: the rate goes half way to its target after each such time."""
    fast_recovery: Annotated[int, NumberRange(1, 1000)] = 5
    """dcqcn: periods since the last CNP after which the target grows too, by `increase_bps` each."""
    increase_bps: Annotated[float, NumberRange(1, 1e13)] = 1e6
    cnp_interval_s: Annotated[float, NumberRange(1e-6, 3600)] = 0.05
    """dcqcn: the receiver answers CE marks with a CNP no more often than this."""
    burst_bytes: Annotated[int, NumberRange(1, 1 << 30)] = 16384
    """dcqcn: how much of what the rate allowed and was not used may be sent at once."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_rate_bps > self.line_rate_bps:
            raise ConfigError(f"min_rate_bps = {self.min_rate_bps}: is more than line_rate_bps = {self.line_rate_bps}")

    @property
    def timeout_s(self) -> float:
        return ACK_TIMEOUT_UNIT_S * 2.0**self.timeout

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> RcConfig:
        """Return the defaults with the keys of `data` replaced.

        Raises ConfigError for an unknown key or a bad value.
        """
        field_names = {f.name for f in fields(cls)}
        if not isinstance(data, dict):
            raise ConfigError(f"the baseline's configuration is a table of keys; got {data!r}")
        if unknown := sorted(map(str, set(data) - field_names)):
            raise ConfigError(f"no key {', '.join(unknown)} (has: {', '.join(sorted(field_names))})")
        return cls(**data)
