"""Defaults of the engines at another clock: times multiplied for round trips other than 10 ms.

The recipe (mrc-protocol §11.4) has the paper's times x 10**3, and so have the defaults of Config and RcConfig that are
times. A clock of 0.001 takes them back: timers of 65 us, not 67 ms, on fabrics of 10 us. One of 5.6 goes with 56 ms.

Changed: keys in seconds, except those the recipe computes from the links' round trip
(`simulator.profiles.scaled_profiles`), and the two exponents named `timeout`, which go down by the nearest whole number
of halvings (0.001 is 2**-10 within 2.4 %). Not changed: counts, shares, windows, rates, and SETTLE_S, which follows the
round trip.
"""

from __future__ import annotations

from math import log2
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig

FROM_LINKS = frozenset(("base_rtt_s", "base_rtt_min_s", "sack_flush_s", "incast_hold_s"))
"""Keys of times that `scaled` sets, or that are measured."""


def config_times(clock: float) -> dict[str, Any]:
    """Return keys of Config at a clock; empty at 1."""
    return _times(Config().to_json(), clock)


def rc_times(clock: float) -> dict[str, Any]:
    """Return keys of RcConfig at a clock; empty at 1."""
    return _times(RcConfig().to_json(), clock)


def _times(defaults: dict[str, Any], clock: float) -> dict[str, Any]:
    if clock == 1:
        return {}
    out: dict[str, Any] = {"timeout": max(1, defaults["timeout"] + round(log2(clock)))}
    for name, value in defaults.items():
        if name.endswith("_s") and not name.endswith("_per_s") and name not in FROM_LINKS:
            out[name] = value * clock
    return out
