"""The op `counts`: counts of all switches, summed over their ports, in one cheap answer.

    {"op": "counts", "cells": {"trimmed": [0, 512]}, "depths": ["p0-t0-0-eth1"]}
    -> {"devices": {"p0-t0-0": {"on": true, "cells": {"trimmed": [3, 1]}, "queue_drops": [0, ...], "lost": 2}, ...},
        "depths": {"p0-t0-0-eth1": 1166}}

`cells`: by the last part of a P4 counter's name, offsets; each is answered by the packets in the cells offset + port of
all ports of the switch; null when its program has no such counter or cell. `queue_drops`: packets that found a queue
full, by priority. `lost`: packets that the cables' settings lost. `depths`: bytes that wait in the data queue, null
while the switch is off. All counts are since the device began.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.traffic_paths import PRIORITIES
from mrc_testbed.switch.server.chassis import Chassis
from mrc_testbed.switch.server.control import ControlError, Fields

OFFSETS_MAX = 256
EXAMPLE = '{"op": "counts", "cells": {"drops": [4608]}, "depths": ["p0-t0-0-eth1"]}'


def parse(request: Fields) -> tuple[dict[str, list[int]], list[str]]:
    """(cells, depths) of a request. Raises ControlError."""
    cells, depths = request.get("cells", {}), request.get("depths", [])
    good = isinstance(cells, dict) and all(
        isinstance(cell, list) and all(type(n) is int and 0 <= n < 1 << 31 for n in cell) for cell in cells.values()
    )
    if not good or sum(map(len, cells.values())) > OFFSETS_MAX:
        raise ControlError(f"counts: cells: want at most {OFFSETS_MAX} offsets by counter, like {EXAMPLE}")
    if not isinstance(depths, list) or not all(isinstance(depth, str) for depth in depths):
        raise ControlError(f"counts: depths: want names of interfaces, like {EXAMPLE}")
    return cells, depths


def counts_of(chassis: Chassis, cells: Mapping[str, Sequence[int]]) -> Fields:
    """One switch."""
    device = chassis.device
    if device is None:
        return {"on": False}
    drops, lost = [0] * PRIORITIES, 0
    for port in chassis.ports:
        raw = _traffic(device, port)
        for priority, queue in enumerate(raw.queues):
            drops[priority] += queue.dropped_packets
        lost += sum(line.lost_packets for line in raw.lines)
    return {
        "on": True,
        "queue_drops": drops,
        "lost": lost,
        "cells": {name: _sums(chassis, device, name, offsets) for name, offsets in cells.items()},
    }


def depth_of(chassis: Chassis, port: int) -> int | None:
    """Bytes that wait in the data queue of a port; None while the switch is off."""
    return None if chassis.device is None else _traffic(chassis.device, port).queues[0].bytes


def _traffic(device: P4Device, port: int) -> Any:
    """The counts as they are in memory: making objects of all of them would take most of the time."""
    raw = native.TrafficCounts()
    native.runtime().rt_traffic_read(device.handle, port, ctypes.byref(raw))
    return raw


def _sums(chassis: Chassis, device: P4Device, name: str, offsets: Sequence[int]) -> list[int] | None:
    if chassis.pipeline is None:
        return None
    ids = [counter.id for counter in device.schema.counters.values() if counter.name.rpartition(".")[2] == name]
    try:
        return [device.count_packets(ids[0], offset, chassis.ports) for offset in offsets]
    except (IndexError, TableError):
        return None
