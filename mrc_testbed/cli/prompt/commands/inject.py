"""Commands for faults: rate, delay, loss, corrupt, oneway, blackhole, flap, reboot, injected, heal.

Those that a scenario knows as well are kinds of `faults`, done by `topologies/lab/fault_target.py`. `fabric.inject`
(topologies/lab/fault_injection.py) remembers each fault and how to undo it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from mrc_testbed.cli.prompt.commands.base import (
    BREAK,
    OFF_VALUES,
    Answer,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    known_node,
    link_then,
    nodes_then,
    switch,
    switch_names,
    take_link,
)
from mrc_testbed.console.terminal import Cell, table
from mrc_testbed.console.units import rate as rate_of
from mrc_testbed.console.units import seconds
from mrc_testbed.faults import (
    BlackholeFault,
    CorruptFault,
    Direction,
    FaultHolds,
    FlapFault,
    InjectedFault,
    LineFault,
    LossFault,
    OneWayFault,
    RebootFault,
)
from mrc_testbed.faults.places import Ends
from mrc_testbed.faults.terms import chance
from mrc_testbed.topologies.lab.fault_injection import Injection
from mrc_testbed.topologies.lab.fault_target import LiveFaultTarget
from mrc_testbed.topologies.plan import Link

FLAP_PERIOD_S = 2.0
NO_STEP = -1
"""Number of a fault that is no step of a scenario."""
_TIMES = re.compile(r"^[x×]?(\d+)$")


def injection_text(injection: Injection) -> str:
    """Text of an injection: `loss on p0-t0-0 p0-t1-1: 1 %`."""
    # "power on p0-t0-0: off" would read as its opposite.
    if injection.kind == "power":
        return f"power of {injection.location} {injection.detail}"
    return f"{injection.kind.replace('_', ' ')} on {injection.location}" + (
        f": {injection.detail}" if injection.detail else ""
    )


def start(session: CliSession, fault: InjectedFault) -> Injection:
    """Begin a fault of one place; its injection."""
    injections = FaultHolds()
    fault.begin(LiveFaultTarget(session.fabric), injections, NO_STEP)
    if not injections:  # a share of none, which a sweep may have
        link_name = session.plan.link(*fault.targets[0]).name
        raise CommandError(f"{fault.action} on {link_name}: give a probability above 0, or a pattern such as 0001")
    injection: Injection = injections[0]
    return injection


def _undo(session: CliSession, kind: str, link: Link) -> str:
    """End the injections of a kind on a link."""
    injections = [
        injection
        for injection in session.fabric.inject.active
        if injection.kind == kind and injection.location == link.name
    ]
    for injection in injections:
        session.fabric.inject.undo(injection)
    return f"{link.name}: {kind} is as planned again" if injections else f"{link.name}: no {kind} was injected"


def _on_link(
    session: CliSession, args: Args, kind: str, usage: str, make: Callable[[Ends, Direction, str], InjectedFault]
) -> str:
    """`KIND LINK VALUE|off`; a new value replaces what was injected of that kind there."""
    link, sender, values = take_link(session.plan, args, usage)
    (value,) = arguments(values, usage, 1)
    if value.lower() in OFF_VALUES:
        return _undo(session, kind, link)
    replaced_injections = [
        injection
        for injection in session.fabric.inject.active
        if injection.kind == kind
        and injection.location == link.name
        and injection.detail.endswith(f" from {sender}" if sender else "")
    ]
    direction: Direction = "both" if sender is None else "up" if sender == link.lower.node else "down"
    injection = start(session, make((link.lower.node, link.upper.node), direction, value))
    for replaced_injection in replaced_injections:
        session.fabric.inject.undo(replaced_injection)
    return injection_text(injection)


@command("rate", BREAK, complete=link_then("1M", "5M", "off"))
def rate(session: CliSession, args: Args) -> str:
    """Limit a link, in bits/s; `off` gives it the plan's rate again.

    rate p0-t0-0 p0-t1-1 5M       both directions
    rate p0-t0-0-eth3 500K        what this port sends
    rate p0-t0-0 p0-t1-1 off
    """
    usage = "rate LINK RATE|off, as in: rate p0-t0-0 p0-t1-1 5M"
    return _on_link(
        session, args, "rate", usage, lambda ends, way, value: LineFault((ends,), rate=rate_of(value), direction=way)
    )


@command("delay", BREAK, complete=link_then("1ms", "10ms", "off"))
def delay(session: CliSession, args: Args) -> str:
    """Set the one-way delay of a link; `off` gives it the plan's again.

    delay p0-t0-0 p0-t1-1 5ms     both directions
    delay p0-t0-0-eth3 2ms        what this port sends
    delay p0-t0-0 p0-t1-1 off
    """
    usage = "delay LINK TIME|off, as in: delay p0-t0-0 p0-t1-1 5ms"
    return _on_link(
        session, args, "delay", usage, lambda ends, way, value: LineFault((ends,), delay=seconds(value), direction=way)
    )


@command("loss", BREAK, complete=link_then("1%", "10%", "off"))
def loss(session: CliSession, args: Args) -> str:
    """Lose packets of a link by chance or by a pattern; the ports stay up.

    loss p0-t0-0 p0-t1-1 1%       both directions
    loss p0-t0-0-eth3 1%          what this port sends
    loss h0 p0-t0-0 0001          each fourth packet (1 = lost, repeated)
    loss p0-t0-0 p0-t1-1 off
    """
    return _chance(session, args, LossFault)


@command("corrupt", BREAK, complete=link_then("0.1%", "1%", "off"))
def corrupt(session: CliSession, args: Args) -> str:
    """Flip a bit of packets of a link, by chance or by a pattern; the receiver finds out by the iCRC.

    corrupt p0-t0-0 p0-t1-1 0.1%
    corrupt p0-t0-0-eth3 01       each second packet this port sends
    corrupt p0-t0-0 p0-t1-1 off
    """
    return _chance(session, args, CorruptFault)


def _chance(session: CliSession, args: Args, kind: type[LossFault]) -> str:
    name = kind.action
    usage = f"{name} LINK SHARE|PATTERN|off, as in: {name} p0-t0-0 p0-t1-1 1%"

    def make(ends: Ends, direction: Direction, value: str) -> InjectedFault:
        return kind((ends,), direction=direction, **chance(value))

    return _on_link(session, args, name, usage, make)


@command("oneway", BREAK, complete=link_then("off"))
def oneway(session: CliSession, args: Args) -> str:
    """Cut one direction: nothing that the first node sends arrives at the second; both ports stay up.

    oneway p0-t0-0 p0-t1-1
    oneway p0-t0-0 p0-t1-1 off
    """
    usage = "oneway SENDER RECEIVER [off], as in: oneway p0-t0-0 p0-t1-1"
    link, sender, values = take_link(session.plan, args, usage)
    arguments(values, usage, 0, 1)
    sender = sender or args[0].partition(",")[0].partition(":")[0]
    (receiver,) = link.ends - {sender}
    if not values:
        return injection_text(start(session, OneWayFault(((sender, receiver),))))
    if values[0].lower() not in OFF_VALUES:
        raise CommandError(f"{values[0]!r} is not `off`: usage: {usage}")
    injections = [
        injection
        for injection in session.fabric.inject.active
        if injection.kind == "one_way_cut" and injection.location == link.name and injection.detail == f"from {sender}"
    ]
    for injection in injections:
        session.fabric.inject.undo(injection)
    return f"{link.name}: what {sender} sends arrives" + ("" if injections else " (and did before)")


@command("blackhole", BREAK, complete=lambda fabric, words: switch_names(fabric, words) if not words else ("off",))
def blackhole(session: CliSession, args: Args) -> str:
    """Make a switch lose every packet while its ports stay up and it answers P4Runtime.

    blackhole p1-t1-0
    blackhole p1-t1-0 off
    """
    usage = "blackhole SWITCH [off], as in: blackhole p1-t1-0"
    name, *values = arguments(args, usage, 1, 2)
    switch(session.plan, name)
    if not values:
        return injection_text(start(session, BlackholeFault((name,))))
    if values[0].lower() not in OFF_VALUES:
        raise CommandError(f"{values[0]!r} is not `off`: usage: {usage}")
    injections = [
        injection
        for injection in session.fabric.inject.active
        if injection.kind == "blackhole" and injection.location == name
    ]
    for injection in injections:
        session.fabric.inject.undo(injection)
    return f"{name} forwards again" if injections else f"{name} was no black hole"


@command("flap", BREAK, complete=link_then("2s", "500ms"))
def flap(session: CliSession, args: Args) -> str:
    """Cut a link and restore it, again and again, in the background.

    flap p0-t0-0 p0-t1-1          every 2 s (1 s down, 1 s up), until `heal` or `link ... up`
    flap p0-t0-0 p0-t1-1 2s x5    five times
    flap h0 p2-t0-0 500ms x10
    """
    usage = "flap LINK [PERIOD] [xTIMES], as in: flap p0-t0-0 p0-t1-1 2s x5"
    link, sender, values = take_link(session.plan, args, usage)
    arguments(values, usage, 0, 2)
    if sender is not None:
        raise CommandError(f"a flap takes the whole link: usage: {usage}")
    times = None
    if values and values[-1][:1] in "x×" and (times_match := _TIMES.match(values[-1])):
        times, values = int(times_match[1]), values[:-1]
    if len(values) > 1:
        raise CommandError(f"{values[1]!r}: give how often as x5: usage: {usage}")
    period_s = seconds(values[0]) if values else FLAP_PERIOD_S
    return injection_text(start(session, FlapFault((_ends(link),), period_s / 2, period_s / 2, times)))


@command("reboot", BREAK, complete=nodes_then())
def reboot(session: CliSession, args: Args) -> str:
    """Take the power of a switch or a host and give it back, one node after the other.

    reboot p1-t1-0                comes up empty, and the controller fills it again
    reboot p1-t1-0 2s             two seconds without power
    reboot h0                     comes up with an agent that knows no QP
    """
    usage = "reboot NODE... [TIME], as in: reboot p1-t1-0 2s"
    *names, last = arguments(args, usage, 1, 1 + len(session.plan.node_names))
    off_s = 0.0
    if names and last[:1].isdecimal():
        off_s = seconds(last)
    else:
        names.append(last)
    lines = []
    for name in [known_node(session.plan, name) for name in names]:
        injection = start(session, RebootFault((name,), off_s))
        took_s = (injection.ended_at or injection.began_at) - injection.began_at
        is_switch = name in session.fabric.switches
        end_text = "empty: `faults` and `routes` show how it comes back" if is_switch else "and knows no QP of before"
        lines.append(f"{name} was off for {took_s:.2f} s and is on again, {end_text}")
    return "\n".join(lines)


@command("injected", BREAK, reads=True)
def list_injected(session: CliSession, args: Args) -> Answer:
    """Faults that were injected and hold now: what, where, for how long.

    injected
    """
    arguments(args, "injected", 0)
    now = time.monotonic()
    active = session.fabric.inject.active
    data: list[dict[str, Any]] = [injection.to_json() for injection in active]
    if not active:
        return Answer("nothing is injected", data)
    rows: list[list[Cell]] = [
        [
            str(injection.number),
            (injection.kind.replace("_", " "), "warn"),
            injection.location,
            injection.detail,
            f"{now - injection.began_at:.1f} s",
        ]
        for injection in active
    ]
    return Answer(table(session.style, ("#", "fault", "where", "how", "for"), rows, right_columns=("#", "for")), data)


@command("heal", BREAK)
def heal(session: CliSession, args: Args) -> str:
    """Undo every injected fault: links up, nodes powered, rates, delays and losses as planned.

    heal
    """
    if args:
        undoing = [f"`{_undoing_line(injection)}`" for injection in session.fabric.inject.active]
        single_cures = f", for a single fault {' or '.join(undoing)}" if undoing else "; nothing is injected now"
        raise CommandError(f"heal takes no name, it undoes everything: {' '.join(args)!r}. Cure: `heal`{single_cures}")
    injections = session.fabric.inject.heal()
    if not injections:
        return "nothing was injected; links, switches and queues are as planned"
    return "\n".join(
        [*(f"healed: {injection_text(injection)}" for injection in injections), f"{len(injections)} undone"]
    )


def _undoing_line(injection: Injection) -> str:
    """Command that ends one injected fault."""
    if injection.kind == "power":
        return f"power {injection.location} on"
    if injection.kind == "queue":
        return "heal"
    if injection.kind in ("cut", "cut_port", "one_way_cut", "flap"):
        return f"link {injection.location} up"
    return f"{injection.kind} {injection.location} off"


def _ends(link: Link) -> tuple[str, str]:
    return link.lower.node, link.upper.node
