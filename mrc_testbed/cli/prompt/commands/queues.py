"""Commands about traffic in switches: queues, counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from mrc_testbed.cli.prompt.commands.base import (
    SHOW,
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


@command("queues", SHOW, complete=nodes_and_ports, reads=True)
def queues(session: CliSession, args: Args) -> Answer:
    """Queues of switch ports: limits, what waits now, what passed and what was dropped.

    queues                        those where something waits or was dropped
    queues p0-t0-0                both classes of every port of a switch
    queues p0-t0-0-eth3           every priority of one port
    """
    arguments(args, "queues [SWITCH|PORT], as in: queues p0-t0-0", 0, 1)
    plan, traffic = session.plan, session.fabric.traffic
    names = [end.interface for switch in plan.switches for end in plan.ports(switch.name)]
    if not args:
        ports = names
        keep: Callable[[Queue], bool] = _holds_or_dropped
    elif args[0] in names:
        ports, keep = [args[0]], _any_queue
    else:
        node = one_of(args[0], [*(switch.name for switch in plan.switches), *names], "switch or port")
        ports = [end.interface for end in plan.ports(node)]
        keep = _in_use
    rows: list[list[Cell]] = []
    data: list[dict[str, Any]] = []
    unread: list[str] = []
    for name in ports:
        try:
            port = traffic.read(name)
        except FabricError as error:
            # Of several ports the others are still worth showing.
            if len(ports) == 1:
                raise
            unread.append(str(error))
            continue
        queues_shown = [queue for queue in port.queues if keep(queue)]
        data += [{"interface": name, "port_rate_bps": port.rate_bps, **asdict(queue)} for queue in queues_shown]
        rows += [_queue_row(name, port.rate_bps, queue) for queue in queues_shown]
    heads = ("port", "queue", "rate", "limit", "waiting", "bytes", "sent", "dropped")
    numeric = ("limit", "waiting", "bytes", "sent", "dropped")
    lines = [table(session.style, heads, rows, right_columns=numeric)] if rows else []
    if not args:
        lines.append(f"{len(names) - len(unread)} ports read, {len(rows)} queues hold or dropped packets")
    lines += [f"not read: {len(unread)} ports, the first one: {unread[0]}"] if unread else []
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


@command("counters", SHOW, complete=switch_names, reads=True)
def counters(session: CliSession, args: Args) -> Answer:
    """Show the counters of the switches' P4 programs: packets by port, marked, trimmed, dropped and why.

    counters                      all switches, one line each
    counters p0-t0-0              every port of one

    in: what came by the port; forwarded, marked, trimmed (before / at the last hop): what left by it; dropped: what
    came in by it and went no further.
    """
    arguments(args, "counters [SWITCH], as in: counters p0-t0-0", 0, 1)
    names = [switch.name for switch in session.plan.switches]
    if args:
        answer = _read(session, one_of(args[0], names, "switch"))
        rows = [counter_row(session.plan, args[0], port, answer["counters"]) for port in answer["ports"]]
        return Answer(_counter_table(session, ("port", "to"), rows), answer)
    answers, rows, unread = {}, [], []
    for name in names:
        try:
            answers[name] = answer = _read(session, name)
        except JsonlError as error:  # it has no power, most likely
            unread.append(f"{name}: {error}")
            continue
        rows.append(
            [name, *_sum(counter_row(session.plan, name, port, answer["counters"])[2:] for port in answer["ports"])]
        )
    lines = [_counter_table(session, ("switch",), rows)] if rows else []
    return Answer("\n".join([*lines, *unread]), answers)


COUNTER_HEADS = ("in", "forwarded", "marked", "trimmed", "dropped", "why")


def _read(session: CliSession, name: str) -> dict[str, Any]:
    return session.fabric.controller.request("counters", timeout_s=SWITCHES_S, patient=True, switch=name)


def counter_row(plan: Plan, name: str, port: dict[str, Any], counters: dict[str, list[dict[str, Any]]]) -> list[Any]:
    """Port, neighbour, and the columns of COUNTED: numbers, (before, at) the last hop, {reason: number}."""
    interface = port["interface"]
    link = plan.link_of_interface(interface)
    port_cells = {key: [cell for cell in cells if cell["interface"] == interface] for key, cells in counters.items()}
    trims = {cell["reason"]: cell["packets"] for cell in port_cells.get("trimmed", ())}
    drops = {cell["reason"]: cell["packets"] for cell in port_cells.get("drops", ())}
    total = {key: sum(cell["packets"] for cell in port_cells.get(key, ())) for key in ("forwarded", "marked")}
    return [
        interface,
        next(iter(link.ends - {name})),
        port.get("in_pkts", 0),
        total["forwarded"],
        total["marked"],
        Counter(trims),
        sum(drops.values()),
        Counter(drops),
    ]


def _sum(rows: Iterable[list[Any]]) -> list[Any]:
    """Sums of columns, numbers and Counters alike."""
    total: list[Any] = [0, 0, 0, Counter(), 0, Counter()]
    for row in rows:
        total = [a + b for a, b in zip(total, row, strict=True)]
    return total


def _counter_table(session: CliSession, heads: tuple[str, ...], rows: list[list[Any]]) -> str:
    lines = []
    for row in rows:
        *labels, came, forwarded, marked, trims, dropped, drops = row
        at_last = sum(number for reason, number in trims.items() if "last" in reason)
        before_last = sum(trims.values()) - at_last
        lines.append(
            [
                *labels,
                str(came),
                str(forwarded),
                (str(marked), "warn" if marked else ""),
                (f"{before_last} / {at_last}", "warn" if trims else ""),
                (str(dropped), "bad" if dropped else ""),
                ", ".join(f"{reason} {number}" for reason, number in sorted(drops.items())),
            ]
        )
    return table(
        session.style,
        (*heads, *COUNTER_HEADS),
        lines,
        right_columns=("in", "forwarded", "marked", "trimmed", "dropped"),
    )
