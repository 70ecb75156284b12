"""Words about what switches do to traffic now: queues, counters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from topologies.rundir import FabricError
from topologies.traffic import CONTROL, DATA, Queue
from topologies.units import show_rate
from topologies.words.base import (
    LOOK,
    Answer,
    Given,
    Session,
    UsageError,
    arguments,
    interfaces,
    nodes_and_ports,
    one_of,
    switch_names,
    word,
)
from topologies.words.table import table

CLASS_NAMES = {DATA: "data", CONTROL: "control"}
COUNTERS_TIMEOUT_S = 30.0


@word("queues", LOOK, complete=nodes_and_ports, reads=True)
def queues(session: Session, given: Given) -> Answer:
    """Queues of switch ports: limits, what waits now, what passed and what was dropped.

    queues                        those where something waits or was dropped
    queues p0-t0-0                both classes of every port of a switch
    queues p0-t0-0-eth3           every priority of one port
    """
    arguments(given, "queues [SWITCH|PORT], as in: queues p0-t0-0", 0, 1)
    plan, traffic = session.plan, session.fabric.traffic
    names = [end.interface for switch in plan.switches for end in plan.ports(switch.name)]
    if not given:
        wanted, keep = names, lambda queue: queue.depth_packets or queue.dropped_pkts
    elif given[0] in names:
        wanted, keep = [given[0]], lambda queue: True
    else:
        node = one_of(given[0], [*(switch.name for switch in plan.switches), *names], "switch or port")
        wanted = [end.interface for end in plan.ports(node)]
        keep = lambda queue: queue.priority in CLASS_NAMES or queue.transmit_pkts  # noqa: E731
    rows, data, dark = [], [], []
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


def _queue_row(name: str, port_rate: int | None, queue: Queue) -> list:
    rate = queue.rate_bps or port_rate
    return [
        name, f"{queue.priority} {CLASS_NAMES.get(queue.priority, '')}".rstrip(),
        "-" if rate is None else show_rate(rate),
        "-" if queue.max_packets is None else f"{queue.max_packets} pkts",
        (str(queue.depth_packets), "warn" if queue.depth_packets else ""), str(queue.depth_bytes),
        str(queue.transmit_pkts), (str(queue.dropped_pkts), "bad" if queue.dropped_pkts else ""),
    ]  # fmt: skip


@word("counters", LOOK, complete=switch_names, reads=True)
def counters(session: Session, given: Given) -> Answer:
    """What the switches' P4 programs counted: packets by port, drops by reason.

    counters                      all switches, one line each
    counters p0-t0-0              every port of one
    """
    arguments(given, "counters [SWITCH], as in: counters p0-t0-0", 0, 1)
    if given:
        name = one_of(given[0], [one.name for one in session.plan.switches], "switch")
        answer = _read(session, name)
        return Answer(_ports_text(session, name, answer), answer)
    answers, rows = {}, []
    for one in session.plan.switches:
        try:
            answers[one.name] = answer = _read(session, one.name)
        except FabricError as error:
            rows.append([one.name, (str(error), "warn")])
            continue
        totals = _totals(answer["ports"])
        text = ", ".join(f"{key} {value}" for key, value in totals.items()) or "nothing passed"
        rows.append([one.name, text + _reasons(answer)])
    return Answer(table(session.style, ("switch", "packets"), rows), answers)


def _read(session: Session, name: str) -> dict[str, Any]:
    answer = session.fabric.controller.request("counters", timeout_s=COUNTERS_TIMEOUT_S, switch=name)
    if not isinstance(answer.get("ports"), list):
        raise UsageError(f"the controller tells no counters of {name}")
    return answer


def _totals(ports: list[dict[str, Any]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for port in ports:
        for key, value in port.items():
            if key != "port" and isinstance(value, int) and not key.endswith("octets"):
                out[key] = out.get(key, 0) + value
    return {key: value for key, value in out.items() if value}


def _reasons(answer: dict[str, Any]) -> str:
    reasons = {key: value for key, value in (answer.get("reasons") or {}).items() if value}
    return "".join(f"; {key} {value}" for key, value in reasons.items())


def _ports_text(session: Session, name: str, answer: dict[str, Any]) -> str:
    ports = answer["ports"]
    keys = [k for k, v in (ports[0] if ports else {}).items() if k not in ("interface", "port") and isinstance(v, int)]
    linked = {end.interface: link for link in session.plan.links for end in (link.lower, link.upper)}
    rows = []
    for port in ports:
        interface = port["interface"]
        far = next(iter(linked[interface].ends - {name})) if interface in interfaces(session.fabric) else "-"
        rows.append([interface, far, *(str(port[key]) for key in keys)])
    shown = table(session.style, ("port", "to", *keys), rows, right=keys)
    reasons = _reasons(answer)
    return shown + (f"\nby reason{reasons.replace('; ', ': ', 1)}" if reasons else "")
