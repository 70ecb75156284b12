"""Counters and queues of a switch, read on request: P4 counters by P4Runtime, the others by gNMI."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

from finsy import GNMIClient, GNMIPath, GNMIUpdate, GRPCStatusCode
from finsy.gnmiclient import GNMIClientError
from finsy.proto import gnmi, p4r

from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime.entries import Catalog, short_name
from mrc_testbed.ipc.patience import AnswerLimit
from mrc_testbed.topologies.plan import CPU_PORT

COUNTERS = "interfaces/interface[name={}]/state/counters"
QUEUES = "qos/interfaces/interface[interface-id={}]/output/queues/queue[name=*]/state"
CELL_BITS = 9
"""`drops` and `trimmed` are indexed by a reason or kind and a port of so many bits (p4src/README.md)."""
REASONS = {
    1: "malformed",
    2: "not IPv6",
    3: "hop limit",
    4: "wrong uSID",
    5: "unknown uSID",
    6: "no route",
    7: "no uplink",
    8: "not trimmable",
    9: "queue",
    10: "dead next hop",
    12: "bad SRH",
}
"""drop_reason_t of p4src/headers.p4."""
TRIMS = {0: "trimmed", 1: "trimmed last hop"}
DEAD_NEXT_HOP = 10
FULL_QUEUE = (8, 9)
"""Reasons that say: the data queue of the egress port was full. Nothing is broken there."""
ANSWER_S = 10.0
"""First limit of the answer to a Get of gNMI, seconds."""
_limits: defaultdict[str, AnswerLimit] = defaultdict(lambda: AnswerLimit(ANSWER_S))
"""Limits by address: they grow on a slow machine."""
NO_PORT = 0
"""Index of packets that got no port."""


@cache
def _path(text: str) -> GNMIPath:
    """Return the path of a text; cached, because finsy takes 0.5 ms to parse a path."""
    return GNMIPath(text)


async def read_leaves(
    address: str, paths: Iterable[str], *, missing_ok: bool = False
) -> list[tuple[list[tuple[str, dict[str, str]]], Any]]:
    """Return (path elements with their keys, value) of every leaf below the paths.

    With `missing_ok` a server without such paths has no leaves. Raises SwitchError.
    """
    limit = _limits[address]
    limit_s = limit.limit_s
    try:
        async with GNMIClient(address) as client:
            updates = await asyncio.wait_for(client.get(*(_path(path) for path in paths)), limit_s)
    except asyncio.TimeoutError:
        limit.miss()
        raise SwitchError(f"gnmi {address}: no answer in {limit_s:g} s", retry=True) from None
    except GNMIClientError as error:
        if missing_ok and error.code is GRPCStatusCode.NOT_FOUND:
            return []
        reason = f"{error.code.name}: {error.message or 'no reason given'}"
        raise SwitchError(f"gnmi {address}: {reason}", retry=True) from error
    leaves = (([(e.name, dict(e.key)) for e in update.path.path.elem], _value(update)) for update in updates)
    return [(elems, value) for elems, value in leaves if elems]


def _value(update: GNMIUpdate) -> Any:
    value: gnmi.TypedValue | None = update.typed_value
    kind = value.WhichOneof("value") if value is not None else None
    return getattr(value, kind) if kind in ("uint_val", "int_val", "string_val", "bool_val", "double_val") else None


async def read_ports(address: str, interfaces: list[str]) -> dict[str, dict[str, Any]]:
    """Return port counters (in_pkts, out_pkts, ...) by interface. Raises SwitchError."""
    out: dict[str, dict[str, Any]] = {name: {} for name in interfaces}
    for elems, value in await read_leaves(address, (COUNTERS.format(name) for name in interfaces)):
        name = next((keys.get("name", "") for elem, keys in elems if elem == "interface"), "")
        out.setdefault(name, {})[elems[-1][0].replace("-", "_")] = value
    return out


async def read_queues(address: str, interfaces: list[str], *, missing_ok: bool = False) -> list[dict[str, Any]]:
    """Return every queue of every port, as {interface, queue, depth_packets, ...}. Raises SwitchError.

    With `missing_ok` a server that knows no queues, as BMv2's, has none.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for elems, value in await read_leaves(address, (QUEUES.format(name) for name in interfaces), missing_ok=missing_ok):
        keys = {elem: next(iter(key.values())) for elem, key in elems if key}
        queue = (keys.get("interface", ""), keys.get("queue", ""))
        row = rows.setdefault(queue, {"interface": queue[0], "queue": queue[1]})
        row[elems[-1][0].replace("-", "_")] = value
    return list(rows.values())


def counters_by_name(catalog: Catalog, cells: Iterable[p4r.CounterEntry], ports: dict[int, str]) -> dict[str, Any]:
    """Return P4 counters that are not zero: {counter: [{port, interface, reason?, packets, bytes}]}."""
    names = {counter.id: short_name(counter.name) for counter in catalog.schema.counters}
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for cell in cells:
        if not cell.data.packet_count:
            continue
        name, index = names.get(cell.counter_id, f"counter {cell.counter_id}"), cell.index.index
        row: dict[str, Any] = {}
        kinds = {"drops": REASONS, "trimmed": TRIMS}.get(name)
        if kinds is not None:
            row["reason"] = kinds.get(index >> CELL_BITS, str(index >> CELL_BITS))
            index &= (1 << CELL_BITS) - 1
        interface = "controller" if index == CPU_PORT else ports.get(index)
        row |= {"port": index, "interface": interface}
        out.setdefault(name, []).append(
            {**row, "packets": cell.data.packet_count, "bytes": cell.data.byte_count},
        )
    return out
