"""The traffic manager of a device: settings of a port, what it counts, and `Device.traffic`.

    device.traffic.set(2, PortTraffic(rate_bps=10_000_000, output=Impairment(delay_us=500)).with_queue(0, max_packets=30))
    device.traffic.state(2).queues[0].depth_packets

Times of the virtual clock (`Device.inject`, `Device.advance`) are nanoseconds. What each figure does to a frame:
docs/traffic-manager.md; limits and gNMI paths: switch/traffic_paths.py. Settings may change while frames wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from switch.traffic_paths import (
    DIRECTIONS,
    IMPAIRMENT_CONFIG,
    OUTPUT_CONFIG,
    PATTERN_MAX,
    PRIORITIES,
    QUEUE_CONFIG,
    ConfigLeaf,
)


class TrafficError(ValueError):
    """A setting out of its range; the text names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One priority of a port; 0 is no limit."""

    rate_bps: int = 0
    rate_pps: int = 0
    max_packets: int = 0
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Impairment:
    """What a cable does to the frames of one direction. A pattern is repeated, a character per frame: 1 means yes."""

    delay_us: int = 0
    loss_ppm: int = 0
    loss_pattern: str = ""
    corrupt_ppm: int = 0
    corrupt_pattern: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """All settings of a port. Priority 7 is served first."""

    rate_bps: int = 0
    rate_pps: int = 0
    queues: tuple[QueueSettings, ...] = (QueueSettings(),) * PRIORITIES
    input: Impairment = Impairment()
    output: Impairment = Impairment()

    def with_queue(self, priority: int, **changes: int) -> PortTraffic:
        """The same with fields of one priority changed."""
        if not 0 <= priority < PRIORITIES:
            raise TrafficError(f"priority {priority} is not in 0..{PRIORITIES - 1}")
        queues = list(self.queues)
        queues[priority] = replace(queues[priority], **changes)
        return replace(self, queues=tuple(queues))

    def check(self) -> None:
        """Raises TrafficError for a value out of range."""
        if len(self.queues) != PRIORITIES:
            raise TrafficError(f"{len(self.queues)} queues (a port has {PRIORITIES})")
        _check(self, OUTPUT_CONFIG, "")
        for priority, queue in enumerate(self.queues):
            _check(queue, QUEUE_CONFIG, f"queue {priority}: ")
        for direction in DIRECTIONS:
            _check(getattr(self, direction), IMPAIRMENT_CONFIG, f"{direction}: ")


def check_value(leaf: ConfigLeaf, value: Any) -> None:
    """Raises TrafficError when `value` is not what the leaf takes."""
    if leaf.maximum is None:
        good = isinstance(value, str) and len(value) <= PATTERN_MAX and not value.strip("01")
    else:
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= leaf.maximum
    if not good:
        shown = repr(value)
        raise TrafficError(f"{leaf.name} = {shown[:60]}{'...' if len(shown) > 60 else ''} (want {leaf.allowed})")


def _check(settings: Any, leaves: tuple[ConfigLeaf, ...], where: str) -> None:
    for leaf in leaves:
        try:
            check_value(leaf, getattr(settings, leaf.field))
        except TrafficError as error:
            raise TrafficError(f"{where}{error}") from None


@dataclass(frozen=True, slots=True)
class QueueState:
    """Now (depth) and since the device was loaded."""

    depth_packets: int
    depth_bytes: int
    transmit_pkts: int
    transmit_octets: int
    dropped_pkts: int
    dropped_octets: int
    """Found the queue full, or no buffer."""


@dataclass(frozen=True, slots=True)
class ImpairmentState:
    held_pkts: int
    """On the line now."""
    lost_pkts: int
    lost_octets: int
    corrupted_pkts: int
    dropped_pkts: int
    dropped_octets: int
    """No buffer was left to delay them in."""


@dataclass(frozen=True, slots=True)
class PortTrafficState:
    queues: tuple[QueueState, ...]
    input: ImpairmentState
    output: ImpairmentState
