"""Commands about the state of links and switches: link, links, power."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mrc_testbed.cli.prompt.commands.base import (
    BREAK,
    SHOW,
    Answer,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    known_node,
    link_then,
    name_list,
    neighbours,
    node_names,
    nodes_then,
)
from mrc_testbed.console.terminal import table
from mrc_testbed.console.units import show_rate, show_seconds
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.traffic_control import Cable, Setting, directions_of
from mrc_testbed.topologies.plan import Link

Figure = TypeVar("Figure")

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric
    from mrc_testbed.topologies.lab.wires import PortLook

USE_S = 0.25
"""Time that `links` counts packets, seconds."""


@command("links", SHOW, complete=node_names, reads=True)
def links(session: CliSession, args: Args) -> Answer:
    """State, rate, delay, loss and use of each link, or of those of one node.

    links
    links p1-t0-0
    links --json

    rate and delay: of the link, one way ("-": no limit, none); loss: what is injected, there / back where they differ
    ("?": its switch does not tell; BMv2 tells only in the terminal that started the fabric).
    use: what passes now, up / down (away from the hosts / towards them), over a quarter of a second.
    """
    arguments(args, "links [NODE]", 0, 1)
    of_node = known_node(session.plan, args[0]) if args else None
    node_links = [link for link in session.plan.links if of_node is None or of_node in link.ends]
    use = _use(session.fabric.link_states)
    rows = [_row(session.fabric, link, use.get(link.upper.interface)) for link in node_links]
    lines = [
        [
            str(row["plane"]),
            row["link"],
            ("up", "good") if row["up"] else ("DOWN", "bad"),
            _both_directions(row["rate_bps"], lambda bps: "-" if bps is None else show_rate(bps)),
            _both_directions(row["delay_s"], lambda s: "-" if not s else show_seconds(s)),
            (_both_directions(row["loss"], _share), "warn" if any(row["loss"]) else ""),
            "-" if row["use_bps"] is None else _use_text(row),
        ]
        for row in rows
    ]
    heads = ("plane", "link", "state", "rate", "delay", "loss", "use")
    text = table(session.style, heads, lines, right_columns=("plane",))
    return Answer(f"{text}\n{sum(row['up'] for row in rows)} of {len(rows)} links are up", rows)


def _row(fabric: Fabric, link: Link, use: tuple[float, float] | None) -> dict[str, Any]:
    """Two-element lists are (up, down): what the lower end sends, what the upper end sends."""
    ends = [_direction(fabric, link, end) for end in (link.lower.node, link.upper.node)]
    return {
        "plane": link.plane,
        "link": link.name,
        "up": fabric.link_is_up(link),
        "rate_bps": [rate for rate, _, _ in ends],
        "delay_s": [delay for _, delay, _ in ends],
        "loss": [_loss(cable) for *_, cable in ends],
        "corruption": [None if cable is None else cable.corruption for *_, cable in ends],
        "use_bps": list(use) if use else None,
    }


def _direction(fabric: Fabric, link: Link, sender: str) -> tuple[float | None, float, Cable | None]:
    """Return rate (None: no limit), delay and cable (None: not given) of one end, as planned or set."""
    interface, direction = directions_of(fabric.plan, link, sender)
    speed = fabric.plan.speed(link)
    rate, delay_s = speed.rate_bps, speed.delay_s
    if fabric.traffic.cannot(Setting(interface, "delay-us", 1, direction=direction)):
        delay_s = 0.0
    if interface not in fabric.traffic.touched_interfaces:
        return rate, delay_s, Cable()
    try:
        now = fabric.traffic.read(interface)
    except FabricError:
        return rate, delay_s, None
    cable = now.output if direction == "output" else now.input
    if link.end(sender).interface == interface:
        rate = now.rate_bps
    return rate, cable.delay_s, cable


def _loss(cable: Cable | None) -> float | None:
    if cable is None:
        return None
    pattern = cable.loss_pattern
    return pattern.count("1") / len(pattern) if pattern else cable.loss


def _share(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{100 * value:.3g}%" if value else "-"


def _both_directions(values: Iterable[Figure], show: Callable[[Figure], str]) -> str:
    """One text when both directions are alike."""
    up_text, down_text = map(show, values)
    return up_text if up_text == down_text else f"{up_text} / {down_text}"


def _use_text(row: dict[str, Any]) -> str:
    def show(use: float, rate: float | None) -> str:
        if use < 1:
            return "0"
        return show_rate(use) + (f" ({100 * use / rate:.0f}%)" if rate else "")

    up_text, down_text = (show(use, rate) for use, rate in zip(row["use_bps"], row["rate_bps"], strict=True))
    return f"{up_text} / {down_text}"


def _use(read_ports: Callable[[], Mapping[str, PortLook]]) -> dict[str, tuple[float, float]]:
    """(up, down) bits/s of links, by the interface of the upper end, which is always a switch's."""
    first_ports, began = read_ports(), time.monotonic()
    if not first_ports:
        return {}
    time.sleep(USE_S)
    now = read_ports()
    span = time.monotonic() - began
    out = {}
    for name, first in first_ports.items():
        if (last := now.get(name)) is not None:
            up_bps, down_bps = (8 * max(b - a, 0) / span for a, b in zip(first[1:], last[1:], strict=True))
            out[name] = up_bps, down_bps
    return out


@command("link", BREAK, complete=link_then("up", "down"))
def link(session: CliSession, args: Args) -> str:
    """Cut a link or restore it.

    link p1-t0-0 p1-t1-1 down     a T0-T1 link
    link h0 p2-t0-0 down          one port of a NIC
    link p1-t0-0 p1-t1-1 up
    """
    a, b, state = arguments(args, "link NODE NODE up|down, as in: link p1-t0-0 p1-t1-1 down", 3)
    if state not in ("up", "down"):
        raise CommandError(f"up or down, not {state!r}: link {a} {b} up|down")
    fabric = session.fabric
    fabric_link = fabric.plan.link(known_node(fabric.plan, a), known_node(fabric.plan, b))
    if state == "down":
        fabric.inject.cut(a, b)
    else:
        fabric.inject.restore(a, b)
    if state == "up" and not fabric.link_is_up(fabric_link):
        dark_nodes = [name for name in fabric_link.ends if name in fabric.nodes_off]
        return (
            f"{fabric_link.name} will be up when {' and '.join(dark_nodes)} has power"
            if dark_nodes
            else f"{fabric_link.name} has no carrier"
        )
    return f"{fabric_link.name} is {state}"


OTHER_NAMES = {
    **dict.fromkeys(("cut", "down", "break", "fail", "unplug", "disconnect", "off", "stop", "kill"), "down"),
    **dict.fromkeys(("restore", "up", "repair", "fix", "plug", "connect", "on", "start", "undo"), "up"),
}
"""Names under which people look for `link` and `power`, and the state that they mean."""


def cure_of(session: CliSession, name: str, args: Args) -> str:
    """The commands that do what one of OTHER_NAMES says. Raises CommandError, PlanError for unknown nodes."""
    state, plan = OTHER_NAMES[name], session.plan
    power_state = "on" if state == "up" else "off"
    nodes = [known_node(plan, argument) for argument in args[:2]]
    if len(nodes) == 2:
        return f"`link {plan.link(nodes[0], nodes[1]).name} {state}`"
    if nodes:
        link_line = f"`link {nodes[0]} NODE {state}` (NODE: {name_list(neighbours(plan, nodes[0]))})"
        return f"`power {nodes[0]} {power_state}`, or for one link {link_line}"
    heal_line = ", `heal` for all that is injected" if state == "up" else ""
    return f"`link NODE NODE {state}` for a link, `power NODE {power_state}` for a switch or a host{heal_line}"


@command("power", BREAK, complete=nodes_then("on", "off"))
def power(session: CliSession, args: Args) -> str:
    """Switch switches and hosts off (state lost, ports down) or on.

    power p1-t1-0 off             a switch loses its tables; on again, the controller fills them
    power h0 off                  a host loses its processes and QPs; its peers are not told
    power h0 h1 on                ports, addresses and agents are back, and know no QP of before
    """
    *names, state = arguments(args, "power NODE... on|off, as in: power p1-t1-0 off", 2, len(session.plan.node_names))
    if state not in ("on", "off"):
        raise CommandError(f"on or off, not {state!r}: power {' '.join(names)} on|off")
    lines = []
    for name in [known_node(session.plan, name) for name in names]:
        is_there_already = (name not in session.fabric.nodes_off) == (state == "on")
        if not is_there_already:
            session.fabric.inject.power(name, state == "on")
        lines.append(f"{name} is {state}{' already' if is_there_already else ''}")
    return "\n".join(lines)
