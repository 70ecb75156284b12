"""Numbers with units, as people type them: `40M`, `1.25ms`, `64K`, `1%`.

CLI, options and scenarios share this module.

Rates are decimal (10M = 10**7 bits/s), sizes binary (64K = 65,536 bytes), times are seconds without a unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isinf

RATE_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
SIZE_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
TIME_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}

_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z/%]*)\s*$")


class UnitError(ValueError):
    """A text is not a number with a fitting unit; the message has examples."""


def _split(text: object, subject: str, examples: str) -> tuple[float, str]:
    match = _NUMBER.match(str(text)) if isinstance(text, (str, int, float)) and not isinstance(text, bool) else None
    if match is None:
        raise UnitError(f"{subject} {text!r}: give {examples}")
    if isinf(number := float(match[1])):
        raise UnitError(f"{subject} {text!r}: is more than a number can hold; give {examples}")
    return number, match[2]


def _parse_scaled(
    text: object, subject: str, units: Mapping[str, float], examples: str, endings: tuple[str, ...] = ()
) -> float:
    number, unit = _split(text, subject, examples)
    low = unit.lower()
    for ending in endings:
        low = low.removesuffix(ending)
    if low not in units:
        raise UnitError(f"{subject} {text!r}: no unit {unit!r}; give {examples}")
    return number * units[low]


def rate(text: object) -> float:
    """Bits/s: `10M`, `10Mb/s`, `2.5Gbps`, `500K`, `1e7`. Raises UnitError."""
    return _parse_scaled(text, "rate", RATE_UNITS, "bits/s, such as 500K, 10M or 1G", ("bit/s", "bps", "b/s"))


def size(text: object) -> int:
    """Bytes: `4096`, `64K`, `64KiB`, `1MB` (binary all of them). Raises UnitError."""
    value = _parse_scaled(text, "size", SIZE_UNITS, "bytes, such as 4096, 64K or 1M", ("ib", "b"))
    if value != int(value):
        raise UnitError(f"size {text!r}: not a whole number of bytes")
    return int(value)


def seconds(text: object) -> float:
    """Seconds: `2`, `2s`, `1.25ms`, `50us`, `4min`. Raises UnitError."""
    return _parse_scaled(text, "time", TIME_UNITS, "seconds, such as 2, 1.25ms, 50us or 4min")


def share(text: object) -> float:
    """A part of a whole, 0 to 1: `1%`, `0.01`. Raises UnitError."""
    number, unit = _split(text, "share", "a part, such as 1% or 0.01")
    if unit not in ("", "%"):
        raise UnitError(f"share {text!r}: no unit {unit!r}; give a part, such as 1% or 0.01")
    value = number / 100 if unit == "%" else number
    if not 0 <= value <= 1:
        raise UnitError(f"share {text!r}: must be 0 to 1, or 0% to 100%")
    return value


def show_rate(bps: float) -> str:
    """`9.8 Mb/s`."""
    for name, unit in (("Tb/s", 1e12), ("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if abs(bps) >= unit:
            return f"{bps / unit:.3g} {name}"
    return f"{bps:.3g} b/s"


def show_seconds(value: float, digits: int = 3) -> str:
    """`12.5 ms`."""
    if abs(value) >= 1000:
        return f"{value:.0f} s"
    for name, unit in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= unit:
            return f"{value / unit:.{digits}g} {name}"
    return "0 s" if value == 0 else f"{value / 1e-9:.{digits}g} ns"


def show_length(seconds: float) -> str:
    """`16.0 s`, `800 us`: the length of runs, to a tenth of a second."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else show_seconds(seconds)


def short_seconds(value: float) -> str:
    """`2s`, `0.5s`, `550us`: a time as a scenario has it."""
    limits = (("s", 0.1, 1.0), ("ms", 1e-3, 1e-3), ("us", 1e-6, 1e-6))
    name, _, unit = next((row for row in limits if value == 0 or abs(value) >= row[1]), ("ns", 0.0, 1e-9))
    return f"{value / unit:.6g}{name}"


def time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit of an axis or a column of times up to `longest_s`, and its length: `us`, 1e-6 s."""
    for name, limit_s, unit in (("s", 0.5, 1.0), ("ms", 10e-3, 1e-3), ("us", 10e-6, 1e-6)):
        if longest_s >= limit_s or longest_s <= 0:
            return name, unit
    return "ns", 1e-9


def rate_unit(most_bps: float) -> tuple[str, float]:
    """Return the unit of an axis of rates up to `most_bps`, and its size: `Gb/s`, 1e9 bit/s."""
    for name, limit_bps, unit in (("Tb/s", 10e12, 1e12), ("Gb/s", 10e9, 1e9)):
        if most_bps >= limit_bps:
            return name, unit
    return "Mb/s", 1e6


def fitting_unit(unit: str, largest: float) -> tuple[str, float]:
    """Return the unit for values of `unit` up to `largest`, and its size: `us`, 1e-6 of `s`."""
    choose = {"bit/s": rate_unit, "s": time_unit}.get(unit)
    return (unit, 1.0) if choose is None else choose(largest)


def show_size(size: int) -> str:
    """`512 B`, `32 KiB`, `1.5 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"


def bits(rate: float) -> str:
    """`37.2 Mb/s`: a rate in bits/s for people."""
    for unit in ("b/s", "kb/s", "Mb/s"):
        if rate < 1000:
            return f"{rate:.1f} {unit}"
        rate /= 1000
    return f"{rate:.2f} Gb/s"
