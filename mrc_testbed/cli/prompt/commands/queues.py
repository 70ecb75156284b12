"""Commands about traffic in switches: queues, counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from mrc_testbed.cli.prompt.commands.base import (
    LOOK,
    Answer,
    Args,
    CliSession,
    arguments,
    command,
    nodes_and_ports,
    one_of,
    switch_names,
)
from mrc_testbed.console.terminal import Cell, table
from mrc_testbed.console.units import show_rate
from mrc_testbed.ipc.controller_client import SWITCHES_S
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.traffic_control import CONTROL, DATA, Queue
from mrc_testbed.topologies.plan import Plan

CLASS_NAMES = {DATA: "data", CONTROL: "control"}


@command("queues", LOOK, complete=nodes_and_ports, reads=True)
def queues(session: CliSession, given: Args) -> Answer:
    """Queues of switch ports: limits, what waits now, what passed and what was dropped.

    queues                        those where something waits or was dropped
    queues p0-t0-0                both classes of every port of a switch
    queues p0-t0-0-eth3           every priority of one port
    """
    arguments(given, "queues [SWITCH|PORT], as in: queues p0-t0-0", 0, 1)
    plan, traffic = session.plan, session.fabric.traffic
    names = [end.interface for switch in plan.switches for end in plan.ports(switch.name)]
    if not given:
        wanted = names
        keep: Callable[[Queue], bool] = _holds_or_dropped
    elif given[0] in names:
        wanted, keep = [given[0]], _any_queue
    else:
        node = one_of(given[0], [*(switch.name for switch in plan.switches), *names], "switch or port")
        wanted = [end.interface for end in plan.ports(node)]
        keep = _in_use
    rows: list[list[Cell]] = []
    data: list[dict[str, Any]] = []
    dark: list[str] = []
    for name in wanted:
        try:
            port = traffic.read(name)
        except FabricError as error:
            if len(wanted) == 1:
                raise
            dark.append(str(error))
            continue
        chosen = [queue for queue in port.queues if keep(queue)]
        data += [{"interface": name, "port_rate_bps": port.rate_bps, **asdict(queue)} for queue in chosen]
        rows += [_queue_row(name, port.rate_bps, queue) for queue in chosen]
    heads = ("port", "queue", "rate", "limit", "waiting", "bytes", "sent", "dropped")
    right = ("limit", "waiting", "bytes", "sent", "dropped")
    lines = [table(session.style, heads, rows, right=right)] if rows else []
    if not given:
        lines.append(f"{len(names) - len(dark)} ports read, {len(rows)} queues hold or dropped packets")
    lines += [f"not read: {len(dark)} ports, the first one: {dark[0]}"] if dark else []
    return Answer("\n".join(lines), data)


def _holds_or_dropped(queue: Queue) -> bool:
    return bool(queue.depth_packets or queue.dropped_pkts)


def _any_queue(_queue: Queue) -> bool:
    return True


def _in_use(queue: Queue) -> bool:
    return queue.priority in CLASS_NAMES or bool(queue.transmit_pkts)


def _queue_row(name: str, port_rate: int | None, queue: Queue) -> list[Cell]:
    rate = queue.rate_bps or port_rate
    return [
        name,
        f"{queue.priority} {CLASS_NAMES.get(queue.priority, '')}".rstrip(),
        "-" if rate is None else show_rate(rate),
        "-" if queue.max_packets is None else f"{queue.max_packets} pkts",
        (str(queue.depth_packets), "warn" if queue.depth_packets else ""),
        str(queue.depth_bytes),
        str(queue.transmit_pkts),
        (str(queue.dropped_pkts), "bad" if queue.dropped_pkts else ""),
    ]


@command("counters", LOOK, complete=switch_names, reads=True)
def counters(session: CliSession, given: Args) -> Answer:
    """What the switches' P4 programs counted: packets by port, marked, trimmed, dropped and why.

    counters                      all switches, one line each
    counters p0-t0-0              every port of one

    in: what came by the port; forwarded, marked, trimmed (before / at the last hop): what left by it; dropped: what
    came in by it and went no further.
    """
    arguments(given, "counters [SWITCH], as in: counters p0-t0-0", 0, 1)
    names = [switch.name for switch in session.plan.switches]
    if given:
        answer = _read(session, one_of(given[0], names, "switch"))
        rows = [counter_row(session.plan, given[0], port, answer["counters"]) for port in answer["ports"]]
        return Answer(_counter_table(session, ("port", "to"), rows), answer)
    answers, rows, dark = {}, [], []
    for name in names:
        try:
            answers[name] = answer = _read(session, name)
        except JsonlError as error:  # it has no power, most likely
            dark.append(f"{name}: {error}")
            continue
        rows.append(
            [name, *_sum(counter_row(session.plan, name, port, answer["counters"])[2:] for port in answer["ports"])]
        )
    lines = [_counter_table(session, ("switch",), rows)] if rows else []
    return Answer("\n".join([*lines, *dark]), answers)


COUNTED = ("in", "forwarded", "marked", "trimmed", "dropped", "why")


def _read(session: CliSession, name: str) -> dict[str, Any]:
    return session.fabric.controller.request("counters", timeout_s=SWITCHES_S, patient=True, switch=name)


def counter_row(plan: Plan, name: str, port: dict[str, Any], counted: dict[str, list[dict[str, Any]]]) -> list[Any]:
    """Port, neighbour, and the columns of COUNTED: numbers, (before, at) the last hop, {reason: number}."""
    interface = port["interface"]
    link = plan.link_of_interface(interface)
    mine = {key: [cell for cell in cells if cell["interface"] == interface] for key, cells in counted.items()}
    trims = {cell["reason"]: cell["packets"] for cell in mine.get("trimmed", ())}
    why = {cell["reason"]: cell["packets"] for cell in mine.get("drops", ())}
    total = {key: sum(cell["packets"] for cell in mine.get(key, ())) for key in ("forwarded", "marked")}
    return [
        interface,
        next(iter(link.ends - {name})),
        port.get("in_pkts", 0),
        total["forwarded"],
        total["marked"],
        Counter(trims),
        sum(why.values()),
        Counter(why),
    ]


def _sum(rows: Iterable[list[Any]]) -> list[Any]:
    """Sums of columns, numbers and Counters alike."""
    total: list[Any] = [0, 0, 0, Counter(), 0, Counter()]
    for row in rows:
        total = [a + b for a, b in zip(total, row, strict=True)]
    return total


def _counter_table(session: CliSession, heads: tuple[str, ...], rows: list[list[Any]]) -> str:
    shown = []
    for row in rows:
        *left, came, forwarded, marked, trims, dropped, why = row
        at_last = sum(number for reason, number in trims.items() if "last" in reason)
        before = sum(trims.values()) - at_last
        shown.append(
            [
                *left,
                str(came),
                str(forwarded),
                (str(marked), "warn" if marked else ""),
                (f"{before} / {at_last}", "warn" if trims else ""),
                (str(dropped), "bad" if dropped else ""),
                ", ".join(f"{reason} {number}" for reason, number in sorted(why.items())),
            ]
        )
    return table(session.style, (*heads, *COUNTED), shown, right=("in", "forwarded", "marked", "trimmed", "dropped"))
