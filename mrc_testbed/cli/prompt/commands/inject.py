"""Commands that inject and heal faults: rate, delay, loss, corrupt, oneway, blackhole, flap, reboot, injected, heal.

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
    OFF,
    Answer,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    link_then,
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
    FlapFault,
    Held,
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


def said(one: Injection) -> str:
    """Text of an injection: `loss on p0-t0-0 p0-t1-1: 1 %`."""
    return f"{one.kind.replace('_', ' ')} on {one.location}" + (f": {one.detail}" if one.detail else "")


def begin(session: CliSession, fault: InjectedFault) -> Injection:
    """Begin a fault of one place; its injection."""
    made = Held()
    fault.begin(LiveFaultTarget(session.fabric), made, NO_STEP)
    if not made:  # a share of none, which a sweep may have
        place = session.plan.link(*fault.targets[0]).name
        raise CommandError(f"{fault.action} on {place}: give a probability above 0, or a pattern such as 0001")
    one: Injection = made[0]
    return one


def _undo(session: CliSession, kind: str, link: Link) -> str:
    """End the injections of a kind on a link."""
    ended = [one for one in session.fabric.inject.active if one.kind == kind and one.location == link.name]
    for one in ended:
        session.fabric.inject.undo(one)
    return f"{link.name}: {kind} is as planned again" if ended else f"{link.name}: no {kind} was injected"


def _on_link(
    session: CliSession, given: Args, kind: str, usage: str, make: Callable[[Ends, Direction, str], InjectedFault]
) -> str:
    """`KIND LINK VALUE|off`; a new value replaces what was injected of that kind there."""
    link, sender, rest = take_link(session.plan, given, usage)
    (value,) = arguments(rest, usage, 1)
    if value.lower() in OFF:
        return _undo(session, kind, link)
    old = [
        one
        for one in session.fabric.inject.active
        if one.kind == kind and one.location == link.name and one.detail.endswith(f" from {sender}" if sender else "")
    ]
    direction: Direction = "both" if sender is None else "up" if sender == link.lower.node else "down"
    made = begin(session, make((link.lower.node, link.upper.node), direction, value))
    for one in old:
        session.fabric.inject.undo(one)
    return said(made)


@command("rate", BREAK, complete=link_then("1M", "5M", "off"))
def rate(session: CliSession, given: Args) -> str:
    """Limit a link, in bits/s; `off` gives it the plan's rate again.

    rate p0-t0-0 p0-t1-1 5M       both directions
    rate p0-t0-0-eth3 500K        what this port sends
    rate p0-t0-0 p0-t1-1 off
    """
    usage = "rate LINK RATE|off, as in: rate p0-t0-0 p0-t1-1 5M"
    return _on_link(
        session, given, "rate", usage, lambda ends, way, value: LineFault((ends,), rate=rate_of(value), direction=way)
    )


@command("delay", BREAK, complete=link_then("1ms", "10ms", "off"))
def delay(session: CliSession, given: Args) -> str:
    """Set the one-way delay of a link; `off` gives it the plan's again.

    delay p0-t0-0 p0-t1-1 5ms     both directions
    delay p0-t0-0-eth3 2ms        what this port sends
    delay p0-t0-0 p0-t1-1 off
    """
    usage = "delay LINK TIME|off, as in: delay p0-t0-0 p0-t1-1 5ms"
    return _on_link(
        session, given, "delay", usage, lambda ends, way, value: LineFault((ends,), delay=seconds(value), direction=way)
    )


@command("loss", BREAK, complete=link_then("1%", "10%", "off"))
def loss(session: CliSession, given: Args) -> str:
    """Lose packets of a link by chance or by a pattern; the ports stay up.

    loss p0-t0-0 p0-t1-1 1%       both directions
    loss p0-t0-0-eth3 1%          what this port sends
    loss h0 p0-t0-0 0001          each fourth packet (1 = lost, repeated)
    loss p0-t0-0 p0-t1-1 off
    """
    return _chance(session, given, LossFault)


@command("corrupt", BREAK, complete=link_then("0.1%", "1%", "off"))
def corrupt(session: CliSession, given: Args) -> str:
    """Flip a bit of packets of a link, by chance or by a pattern; the receiver finds out by the iCRC.

    corrupt p0-t0-0 p0-t1-1 0.1%
    corrupt p0-t0-0-eth3 01       each second packet this port sends
    corrupt p0-t0-0 p0-t1-1 off
    """
    return _chance(session, given, CorruptFault)


def _chance(session: CliSession, given: Args, kind: type[LossFault]) -> str:
    name = kind.action
    usage = f"{name} LINK SHARE|PATTERN|off, as in: {name} p0-t0-0 p0-t1-1 1%"

    def make(ends: Ends, direction: Direction, value: str) -> InjectedFault:
        return kind((ends,), direction=direction, **chance(value))

    return _on_link(session, given, name, usage, make)


@command("oneway", BREAK, complete=link_then("off"))
def oneway(session: CliSession, given: Args) -> str:
    """Cut one direction: nothing that the first node sends arrives at the second; both ports stay up.

    oneway p0-t0-0 p0-t1-1
    oneway p0-t0-0 p0-t1-1 off
    """
    usage = "oneway SENDER RECEIVER [off], as in: oneway p0-t0-0 p0-t1-1"
    link, sender, rest = take_link(session.plan, given, usage)
    arguments(rest, usage, 0, 1)
    sender = sender or given[0].partition(",")[0].partition(":")[0]
    (receiver,) = link.ends - {sender}
    if not rest:
        return said(begin(session, OneWayFault(((sender, receiver),))))
    if rest[0].lower() not in OFF:
        raise CommandError(f"usage: {usage}")
    ended = [
        one
        for one in session.fabric.inject.active
        if one.kind == "one_way_cut" and one.location == link.name and one.detail == f"from {sender}"
    ]
    for one in ended:
        session.fabric.inject.undo(one)
    return f"{link.name}: what {sender} sends arrives" + ("" if ended else " (and did before)")


@command("blackhole", BREAK, complete=lambda fabric, before: switch_names(fabric, before) if not before else ("off",))
def blackhole(session: CliSession, given: Args) -> str:
    """Make a switch lose every packet while its ports stay up and it answers P4Runtime.

    blackhole p1-t1-0
    blackhole p1-t1-0 off
    """
    name, *rest = arguments(given, "blackhole SWITCH [off], as in: blackhole p1-t1-0", 1, 2)
    switch(session.plan, name)
    if not rest:
        return said(begin(session, BlackholeFault((name,))))
    if rest[0].lower() not in OFF:
        raise CommandError("usage: blackhole SWITCH [off], as in: blackhole p1-t1-0")
    ended = [one for one in session.fabric.inject.active if one.kind == "blackhole" and one.location == name]
    for one in ended:
        session.fabric.inject.undo(one)
    return f"{name} forwards again" if ended else f"{name} was no black hole"


@command("flap", BREAK, complete=link_then("2s", "500ms"))
def flap(session: CliSession, given: Args) -> str:
    """Cut a link and restore it, again and again, in the background.

    flap p0-t0-0 p0-t1-1          every 2 s (1 s down, 1 s up), until `heal` or `link ... up`
    flap p0-t0-0 p0-t1-1 2s x5    five times
    flap h0 p2-t0-0 500ms x10
    """
    usage = "flap LINK [PERIOD] [xTIMES], as in: flap p0-t0-0 p0-t1-1 2s x5"
    link, sender, rest = take_link(session.plan, given, usage)
    arguments(rest, usage, 0, 2)
    if sender is not None:
        raise CommandError(f"a flap takes the whole link: usage: {usage}")
    times = None
    if rest and rest[-1][:1] in "x×" and (found := _TIMES.match(rest[-1])):
        times, rest = int(found[1]), rest[:-1]
    if len(rest) > 1:
        raise CommandError(f"{rest[1]!r}: give how often as x5: usage: {usage}")
    period_s = seconds(rest[0]) if rest else FLAP_PERIOD_S
    return said(begin(session, FlapFault((_ends(link),), period_s / 2, period_s / 2, times)))


@command("reboot", BREAK, complete=switch_names)
def reboot(session: CliSession, given: Args) -> str:
    """Take a switch's power and give it back: it comes up empty, and the controller fills it again.

    reboot p1-t1-0
    reboot p1-t1-0 2s             two seconds without power
    """
    name, *rest = arguments(given, "reboot SWITCH [TIME], as in: reboot p1-t1-0 2s", 1, 2)
    switch(session.plan, name)
    one = begin(session, RebootFault((name,), seconds(rest[0]) if rest else 0.0))
    off_s = (one.ended_at or one.began_at) - one.began_at
    return f"{name} was off for {off_s:.2f} s and is on again, empty: `faults` and `routes` show how it comes back"


@command("injected", BREAK, reads=True)
def injected(session: CliSession, given: Args) -> Answer:
    """Faults that were injected and hold now: what, where, for how long.

    injected
    """
    arguments(given, "injected", 0)
    now = time.monotonic()
    active = session.fabric.inject.active
    data: list[dict[str, Any]] = [one.to_json() for one in active]
    if not active:
        return Answer("nothing is injected", data)
    rows: list[list[Cell]] = [
        [str(one.number), (one.kind.replace("_", " "), "warn"), one.location, one.detail, f"{now - one.began_at:.1f} s"]
        for one in active
    ]
    return Answer(table(session.style, ("#", "fault", "where", "how", "for"), rows, right=("#", "for")), data)


@command("heal", BREAK)
def heal(session: CliSession, given: Args) -> str:
    """Undo every injected fault: links up, switches powered, rates, delays and losses as planned.

    heal
    """
    arguments(given, "heal", 0)
    ended = session.fabric.inject.heal()
    if not ended:
        return "nothing was injected; links, switches and queues are as planned"
    return "\n".join([*(f"healed: {said(one)}" for one in ended), f"{len(ended)} undone"])


def _ends(link: Link) -> tuple[str, str]:
    return link.lower.node, link.upper.node
