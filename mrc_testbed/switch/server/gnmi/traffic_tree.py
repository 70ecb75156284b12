"""Traffic settings and counts as gNMI leaves.

switch/device/traffic.py holds the values, switch/device/traffic_paths.py names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, replace
from typing import Any, Protocol

from mrc_testbed.switch.device.traffic import Impairment, PortSettings, PortTrafficState
from mrc_testbed.switch.device.traffic_paths import (
    DIRECTIONS,
    IMPAIRMENT_CONFIG,
    IMPAIRMENT_STATE,
    OUTPUT_CONFIG,
    PRIORITIES,
    QUEUE_CONFIG,
    QUEUE_STATE,
    ConfigLeaf,
    Leaf,
    queue_base,
)

Value = str | int


class TrafficPorts(Protocol):
    """Interfaces with a traffic manager, by name: what the gNMI server needs of them."""

    def names(self) -> Collection[str]: ...

    def get(self, name: str) -> PortSettings: ...

    def state(self, name: str) -> PortTrafficState: ...

    def set(self, changes: Mapping[str, tuple[PortSettings, Collection[str]]]) -> None:
        """New settings of interfaces, each with the directions whose patterns and random choices begin anew."""


def config_values(settings: PortSettings) -> dict[Leaf, Value]:
    """Every config leaf with its value."""
    out: dict[Leaf, Value] = {("output", "config", leaf.name): getattr(settings, leaf.field) for leaf in OUTPUT_CONFIG}
    for priority, queue in enumerate(settings.queues):
        base: Leaf = queue_base(priority)
        out.update({(*base, "config", leaf.name): getattr(queue, leaf.field) for leaf in QUEUE_CONFIG})
    for direction in DIRECTIONS:
        line: Impairment = getattr(settings, direction)
        base = ("impairments", direction, "config")
        out.update({(*base, leaf.name): getattr(line, leaf.field) for leaf in IMPAIRMENT_CONFIG})
    return out


def with_values(settings: PortSettings, changes: Mapping[Leaf, Value]) -> PortSettings:
    """Return the settings with some config leaves changed.

    Values are checked elsewhere (mrc_testbed.switch.device.traffic.check_value).
    """
    values = {**config_values(settings), **changes}
    queues = [
        replace(queue, **_fields(values, (*queue_base(priority), "config"), QUEUE_CONFIG))
        for priority, queue in enumerate(settings.queues)
    ]
    cables: dict[str, Any] = {
        direction: Impairment(**_fields(values, ("impairments", direction, "config"), IMPAIRMENT_CONFIG))
        for direction in DIRECTIONS
    }
    port = _fields(values, ("output", "config"), OUTPUT_CONFIG)
    return replace(settings, queues=tuple(queues), **port, **cables)


def _fields(values: Mapping[Leaf, Value], base: Leaf, leaves: Iterable[ConfigLeaf]) -> dict[str, Any]:
    """Values of the leaves below `base`, by the field of the settings class that each of them stands for."""
    return {leaf.field: values[base + (leaf.name,)] for leaf in leaves}  # noqa: RUF005 - mypy takes the star for 3.11's


def directions_to_restart(changes: Collection[Leaf]) -> set[str]:
    """Directions of which a loss, corruption or seed leaf is named: their choices begin anew."""
    return {leaf[1] for leaf in changes if leaf[0] == "impairments" and leaf[-1] != "delay-us"}


def id_values(name: str) -> dict[Leaf, Value]:
    """List keys, which are leaves too."""
    out: dict[Leaf, Value] = {("interface-id",): name}
    out.update({(*queue_base(n), "name"): str(n) for n in range(PRIORITIES)})
    return out


def all_values(name: str, settings: PortSettings) -> dict[Leaf, Value]:
    """Values of a port that are sent on change."""
    return {**id_values(name), **config_values(settings)}


def state_values(state: PortTrafficState) -> dict[Leaf, Value]:
    """Every state leaf with its value."""
    out: dict[Leaf, Value] = {}
    for priority, queue in enumerate(state.queues):
        base = (*queue_base(priority), "state")
        out.update({(*base, name): value for name, value in zip(QUEUE_STATE, astuple(queue), strict=True)})
    for direction in DIRECTIONS:
        counts = astuple(getattr(state, direction))
        base = ("impairments", direction, "state")
        out.update({(*base, name): value for name, value in zip(IMPAIRMENT_STATE, counts, strict=True)})
    return out
