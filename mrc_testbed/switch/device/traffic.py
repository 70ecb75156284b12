"""The traffic manager of a device: settings of a port, what it counts, and `P4Device.traffic`.

    link = PortSettings(rate_bps=10_000_000, output=Impairment(delay_us=500))
    device.traffic.set(2, link.with_queue(0, max_packets=30))
    device.traffic.state(2).queues[0].depth_packets

Times of the virtual clock (`P4Device.inject`, `P4Device.advance`) are nanoseconds. What each figure does to a frame:
docs/traffic-manager.md; limits and gNMI paths: switch/device/traffic_paths.py. Settings may change while frames wait.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.native_device import NativeDevice
from mrc_testbed.switch.device.traffic_paths import (
    DIRECTIONS,
    IMPAIRMENT_CONFIG,
    OUTPUT_CONFIG,
    PATTERN_MAX,
    PRIORITIES,
    QUEUE_CONFIG,
    ConfigLeaf,
)

PORT_MAX = 509
"""Traffic settings are of front ports; the CPU port has none."""


class TrafficSettingError(ValueError):
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
    """Impairment of one direction of a cable. A pattern is repeated, a character per frame: 1 means yes."""

    delay_us: int = 0
    loss_ppm: int = 0
    loss_pattern: str = ""
    corrupt_ppm: int = 0
    corrupt_pattern: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PortSettings:
    """All settings of a port. Priority 7 is served first."""

    rate_bps: int = 0
    rate_pps: int = 0
    queues: tuple[QueueSettings, ...] = (QueueSettings(),) * PRIORITIES
    input: Impairment = Impairment()
    output: Impairment = Impairment()

    def with_queue(self, priority: int, **changes: int) -> PortSettings:
        """Return the settings with fields of one priority changed."""
        if not 0 <= priority < PRIORITIES:
            raise TrafficSettingError(f"priority {priority} is not in 0..{PRIORITIES - 1}")
        queues = list(self.queues)
        queues[priority] = replace(queues[priority], **changes)
        return replace(self, queues=tuple(queues))

    def check(self) -> None:
        """Raises TrafficSettingError for a value out of range."""
        if len(self.queues) != PRIORITIES:
            raise TrafficSettingError(f"{len(self.queues)} queues (a port has {PRIORITIES})")
        _check(self, OUTPUT_CONFIG, "")
        for priority, queue in enumerate(self.queues):
            _check(queue, QUEUE_CONFIG, f"queue {priority}: ")
        for direction in DIRECTIONS:
            _check(getattr(self, direction), IMPAIRMENT_CONFIG, f"{direction}: ")


def check_value(leaf: ConfigLeaf, value: Any) -> None:
    """Raises TrafficSettingError when `value` is not what the leaf takes."""
    if leaf.maximum is None:
        good = isinstance(value, str) and len(value) <= PATTERN_MAX and not value.strip("01")
    else:
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= leaf.maximum
    if not good:
        value_text = repr(value)
        raise TrafficSettingError(
            f"{leaf.name} = {value_text[:60]}{'...' if len(value_text) > 60 else ''} (want {leaf.allowed_text})"
        )


def _check(settings: Any, leaves: tuple[ConfigLeaf, ...], prefix: str) -> None:
    for leaf in leaves:
        try:
            check_value(leaf, getattr(settings, leaf.field))
        except TrafficSettingError as error:
            raise TrafficSettingError(f"{prefix}{error}") from None


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
    peak_packets: int
    """The greatest depth."""


@dataclass(frozen=True, slots=True)
class ImpairmentState:
    """Counters of one direction of a cable."""

    held_pkts: int
    """Frames on the line now."""
    lost_pkts: int
    lost_octets: int
    corrupted_pkts: int
    dropped_pkts: int
    dropped_octets: int
    """No buffer was left to delay them in."""


@dataclass(frozen=True, slots=True)
class PortTrafficState:
    """Queues and cables of a port, now."""

    queues: tuple[QueueState, ...]
    input: ImpairmentState
    output: ImpairmentState


NO_TRAFFIC = PortTrafficState(
    (QueueState(0, 0, 0, 0, 0, 0, 0),) * PRIORITIES,
    ImpairmentState(0, 0, 0, 0, 0, 0),
    ImpairmentState(0, 0, 0, 0, 0, 0),
)


def traffic_counts(state: PortTrafficState) -> dict[str, Any]:
    """Return the nonzero counts: {"queues": {"0": {"transmit_pkts": 3}}, "input": {...}, ...}."""

    def nonzero(counts: Any) -> dict[str, int]:
        return {name: value for name, value in asdict(counts).items() if value}

    queues = {str(n): nonzero(queue) for n, queue in enumerate(state.queues) if queue != NO_TRAFFIC.queues[0]}
    return {"queues": queues, "input": nonzero(state.input), "output": nonzero(state.output)}


DEFAULT_SETTINGS = PortSettings()
"""Initial settings of a port: no limit, no delay, no loss."""


class DeviceTraffic:
    """The traffic manager of one device, by port number. Any thread may call it while frames flow.

    `on_change` is called after settings have changed.
    """

    def __init__(self, device: NativeDevice, on_change: Callable[[], None]) -> None:
        self._device, self._on_change = device, on_change
        self._settings: dict[int, PortSettings] = {}
        self._lib = device.lib

    def get(self, port: int) -> PortSettings:
        """Current settings of a port."""
        return self._settings.get(self._checked(port), DEFAULT_SETTINGS)

    def set(self, port: int, settings: PortSettings, *, restart: Collection[str] = ()) -> None:
        """Replace all settings of a port; what waits there goes on under them.

        A direction's pattern and random choices begin anew when its seed changes, a pattern also when it does; and
        for the directions (`input`, `output`) in `restart`. Raises TrafficSettingError, and then nothing is changed.
        """
        settings.check()
        raw = _native(settings, restart)
        if self._lib.rt_traffic_set(self._device.handle, self._checked(port), ctypes.byref(raw)):
            raise MemoryError(f"{self._device.name}: out of memory")
        self._settings[port] = settings
        self._on_change()

    def reset(self) -> None:
        """No settings on any port."""
        for port in list(self._settings):
            self.set(port, DEFAULT_SETTINGS)

    def state(self, port: int) -> PortTrafficState:
        """Depths and counts."""
        raw = native.TrafficCounts()
        self._lib.rt_traffic_read(self._device.handle, self._checked(port), ctypes.byref(raw))
        queues = tuple(QueueState(*(getattr(queue, name) for name, _ in queue._fields_)) for queue in raw.queues)
        lines = [ImpairmentState(*(getattr(line, name) for name, _ in line._fields_)) for line in raw.lines]
        return PortTrafficState(queues, *lines)

    def buffers(self, limit: int | None = None) -> tuple[int, int]:
        """(bytes in use, bound) of the device's buffers; `limit` sets the bound."""
        if limit is not None and not 0 < limit < 1 << 40:
            raise TrafficSettingError(f"{limit} bytes of buffers (want 1 to 2**40 - 1)")
        used_bytes, bound = ctypes.c_uint64(), ctypes.c_uint64()
        self._lib.rt_traffic_pool(self._device.handle, limit or 0, ctypes.byref(used_bytes), ctypes.byref(bound))
        return used_bytes.value, bound.value

    def _checked(self, port: int) -> int:
        if not 0 <= port <= PORT_MAX:
            raise TrafficSettingError(
                f"{self._device.name}: port {port} is not in 0..{PORT_MAX} (a CPU port has no queues)"
            )
        return port


def _native(settings: PortSettings, restart: Collection[str]) -> native.TrafficSettings:
    raw = native.TrafficSettings(settings.rate_bps, settings.rate_pps)
    for index, queue in enumerate(settings.queues):
        raw.queues[index] = native.NativeQueueSettings(*astuple(queue))
    for index, direction in enumerate(DIRECTIONS):
        line: Impairment = getattr(settings, direction)
        raw.lines[index] = native.LineSettings(
            line.delay_us * 1000,
            line.seed,
            line.loss_ppm,
            line.corrupt_ppm,
            line.loss_pattern.encode(),
            line.corrupt_pattern.encode(),
            direction in restart,
        )
    return raw
