"""Parameters of the RoCEv2 RC baseline: one record, checked when it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from mrc_testbed.hosts.engine.config import ConfigError

ACK_TIMEOUT_UNIT_S: Final = 4.096e-6
"""Local ACK Timeout = this x 2**timeout [IBTA]; MRC's unit is a quarter of it."""


@dataclass(frozen=True, slots=True)
class RcConfig:
    """Units are in the names. What both transports need (PMTU, UDP port, DSCPs) is in Config."""

    timeout: int = 14
    """Local ACK timeout 4.096 us x 2**timeout: 67 ms, as Config.timeout's; 1..31."""
    retry_cnt: int = 7
    """Times in a row the requestor goes back, for a timeout or a sequence NAK, without progress; 0..7 (3 bits)."""
    rnr_retry: int = 7
    """As often it waits for a posted receive after an RNR NAK; 7 = for ever."""
    rnr_timer: int = 16
    """Code of the wait our RNR NAKs ask for, 0..31; 16 = 2.56 ms."""
    window_packets: int = 0
    """Packets without acknowledgment; 0 = as many full ones as Config.cwnd_bytes holds, to be fair to both."""
    ack_every_packets: int = 16
    """The requestor sets A on every so many packets, besides the last of a message and of the window."""
    ev_choice: str = "spread"
    """Which of the EVs given to connect() the QP keeps: "spread" = number qpn modulo how many, so that n QPs have n
    paths; "random" = as a hash would, collisions included."""
    control: str = "window"
    """ "window" or "dcqcn"."""
    line_rate_bps: float = 100e6
    """dcqcn: where a QP starts, and its most."""
    min_rate_bps: float = 1e5
    g: float = 1 / 16
    """dcqcn: gain of alpha, the estimate of how much is marked."""
    alpha_period_s: float = 0.055
    """dcqcn: alpha x (1 - g) after each such time without CNP."""
    increase_period_s: float = 0.055
    """dcqcn: the rate goes half way to its target after each such time."""
    fast_recovery: int = 5
    """dcqcn: periods since the last CNP after which the target grows too, by `increase_bps` each."""
    increase_bps: float = 1e6
    cnp_interval_s: float = 0.05
    """dcqcn: the receiver answers CE marks with a CNP no more often than this."""
    burst_bytes: int = 16384
    """dcqcn: how much of what the rate allowed and was not used may be sent at once."""

    def __post_init__(self) -> None:
        for key, (low, high) in _RANGES.items():
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ConfigError(f"{key} = {value!r}: must be {low} to {high}")
        for key, allowed in _CHOICES.items():
            if getattr(self, key) not in allowed:
                raise ConfigError(f"{key} = {getattr(self, key)!r}: must be one of {', '.join(allowed)}")
        if self.min_rate_bps > self.line_rate_bps:
            raise ConfigError(f"min_rate_bps = {self.min_rate_bps}: is more than line_rate_bps = {self.line_rate_bps}")

    @property
    def timeout_s(self) -> float:
        return ACK_TIMEOUT_UNIT_S * 2.0**self.timeout

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> RcConfig:
        """The defaults with the keys of `data` replaced. Raises ConfigError for an unknown key or a bad value."""
        known = {f.name for f in fields(cls)}
        if not isinstance(data, dict):
            raise ConfigError(f"the baseline's configuration is a table of keys; got {data!r}")
        if unknown := sorted(map(str, set(data) - known)):
            raise ConfigError(f"no key {', '.join(unknown)} (has: {', '.join(sorted(known))})")
        return cls(**data)


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "timeout": (1, 31),
    "retry_cnt": (0, 7),
    "rnr_retry": (0, 7),
    "rnr_timer": (0, 31),
    "window_packets": (0, 1 << 22),
    "ack_every_packets": (1, 1 << 20),
    "line_rate_bps": (1e3, 1e13),
    "min_rate_bps": (1e2, 1e13),
    "g": (1e-6, 1),
    "alpha_period_s": (1e-6, 3600),
    "increase_period_s": (1e-6, 3600),
    "fast_recovery": (1, 1000),
    "increase_bps": (1, 1e13),
    "cnp_interval_s": (1e-6, 3600),
    "burst_bytes": (1, 1 << 30),
}
_CHOICES: Final = {"ev_choice": ("spread", "random"), "control": ("window", "dcqcn")}
