"""Commands about faults as the controller knows them: faults, routes, check, notices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mrc_testbed.cli.prompt.commands.base import (
    LOOK,
    Answer,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    one_of,
)
from mrc_testbed.cli.prompt.commands.check import PROBE_S, check_fabric
from mrc_testbed.console.terminal import Cell, table
from mrc_testbed.ipc.controller_client import SWITCHES_S
from mrc_testbed.topologies.lab.fault_injection import Injection

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric

SETTLE_S = 2.0
"""How long a difference has to last before `routes` tells it, seconds."""
SHOWN = ("active", "all")
SWITCH = ("on", "off")
BEFORE_S = 0.05
"""A fault seen this long before its injection began was told by something else, seconds (clocks are one)."""


def _shown_words(_fabric: Fabric, _before: list[str]) -> Iterable[str]:
    return SHOWN


@command("faults", LOOK, complete=_shown_words, reads=True)
def faults(session: CliSession, given: Args) -> Answer:
    """Faults the controller knows: what, where, since when, seen by whom, how fast.

    faults                        active ones, and those that ended in the last minute
    faults all

    what: of a link whose ports are up also the direction, `A -> B` or both ways, where it can be told.
    seen by: each source, and how long after the first of them it spoke. found after: from the injection of a fault at
    that place until the controller named it; `not found` lists what was injected and nobody has named. A line that
    begins with `controller` says what keeps it from its work, and what therefore does not work: an error of its own
    with the log that has the details, a switch that another controller has taken, counters that are not read.
    """
    arguments(given, "faults [active|all]", 0, 1)
    which = one_of(given[0], SHOWN, "choice") if given else None
    answer = session.fabric.controller.request("faults")
    listed, problems = answer["faults"], answer.get("problems", [])
    now = time.monotonic()
    shown = [one for one in listed if _is_shown(one, which, now)]
    past = list(session.fabric.inject.log) if hasattr(session.fabric, "inject") else []
    begun = [one for _, what, one in past if what == "begin"]
    rows = []
    for one in shown:
        injection = injection_of(one, begun)
        one["injected"] = injection.to_json() if injection else None
        one["found_after_s"] = one["raised"] - injection.began_at if injection else None
        rows.append(_row(one, now))
    missed = [one for one in _active_injections(session) if not any(_explains(f, one) for f in listed)]
    active = sum(one["state"] == "active" for one in listed)
    heads = ("#", "state", "what", "since", "seen by", "found after")
    lines = [table(session.style, heads, rows, right=("#", "since", "found after"))] if rows else []
    lines += [
        session.style.paint(f"not found: {one.kind.replace('_', ' ')} on {one.location} {one.detail}".rstrip(), "warn")
        + f", injected {now - one.began_at:.1f} s ago"
        for one in missed
    ]
    lines += [
        session.style.paint(f"controller: {problem['text']}", "warn" if problem["over"] is None else "dim")
        + f", {_ago((problem['over'] or now) - problem['began'])}"
        + ("" if problem["over"] is None else ", over")
        for problem in problems
        if problem["over"] is None or which == "all" or (which is None and now - problem["over"] < 60)
    ]
    return Answer("\n".join([*lines, f"{active} active, {len(listed) - active} past"]), shown)


def _is_shown(fault: dict[str, Any], which: str | None, now: float) -> bool:
    if fault["state"] == "active" or which == "all":
        return True
    return which is None and fault["cleared"] is not None and now - fault["cleared"] < 60


def _row(fault: dict[str, Any], now: float) -> list[Cell]:
    looks = {"active": "bad", "cleared": "good", "merged": "dim"}
    found = fault["found_after_s"]
    return [
        str(fault["number"]),
        (fault["state"], looks.get(fault["state"], "")),
        fault["text"],
        _ago(now - fault["first_seen"]),
        _seen_by(fault["evidence"]),
        "-" if found is None else f"{found * 1e3:.0f} ms" if found < 10 else f"{found:.1f} s",
    ]


def _ago(span_s: float) -> str:
    return f"{span_s:.1f} s" if span_s < 600 else f"{span_s / 60:.0f} min"


def _seen_by(evidence: list[dict[str, Any]]) -> str:
    out: list[str] = []
    for one in evidence:
        after = one.get("after_s")
        source = str(one["source"]).split()[0]
        text = source if not after else f"{source} +{after * 1e3:.0f} ms"
        if not any(text.split()[0] == old.split()[0] for old in out):
            out.append(text)
    return ", ".join(out) or "-"


def injection_of(fault: dict[str, Any], begun: list[Injection]) -> Injection | None:
    """The last fault injected at the place of a fault before it was seen, and not over by then."""
    for one in reversed(begun):
        over = one.ended_at is not None and one.ended_at < fault["first_seen"] - BEFORE_S
        if one.began_at <= fault["raised"] and not over and _explains(fault, one):
            return one
    return None


def _explains(fault: dict[str, Any], one: Injection) -> bool:
    """Whether a fault names the place of an injection, and not only the other direction of it."""
    if fault["location"] == one.location:
        direction = fault.get("direction")
        return one.sender is None or direction in (None, "both") or direction.startswith(f"{one.sender} -> ")
    return any(part["location"] == one.location for option in fault.get("alternatives", []) for part in option)


def _active_injections(session: CliSession) -> list[Injection]:
    """Injections that a controller ought to find: a slower or a longer link is no fault."""
    inject = getattr(session.fabric, "inject", None)
    return [one for one in inject.active if one.kind not in ("rate", "delay")] if inject else []


@command("routes", LOOK)
def routes(session: CliSession, given: Args) -> str:
    """Read every switch table again and compare it with what was written at the start.

    routes
    """
    arguments(given, "routes", 0)
    until = time.monotonic() + SETTLE_S
    with session.progress("routes", SETTLE_S, len(session.plan.switches)):
        while True:
            answer = session.fabric.controller.request("verify", timeout_s=SWITCHES_S, patient=True)
            differences = answer.get("differences", [])
            if not differences or time.monotonic() >= until:
                break
            time.sleep(SETTLE_S / 10)  # it may be writing them just now: a link has changed
    if differences or not answer["unchanged_since_start"]:
        shown = "; ".join(str(difference) for difference in differences[:5]) or "digests differ from those at the start"
        raise CommandError(f"switch tables differ from what was written: {shown}")
    return f"tables of {len(answer['digests'])} switches read back: unchanged since the start"


@command("check", LOOK, reads=True)
def check(session: CliSession, given: Args) -> Answer:
    """Probe every link in both classes, now, and say what is bad (the pre-job check; `mrc check` in a shell).

    check
    check 200                     200 probes of each link and class (50)
    """
    (count,) = arguments(given, "check [PROBES], as in: check 200", 0, 1) or ("50",)
    if not count.isdecimal():
        raise CommandError(f"{count!r} is no number of probes: check [PROBES]")
    plan, fabric = session.plan, session.fabric
    probes = int(count)
    with session.progress("check", PROBE_S * probes, probes):
        result = check_fabric(fabric.mapper, probes, lambda name: fabric.link_is_up(plan.link_named(name)))
    if not result.ok:
        session.out.write(session.style.fold(result.text(session.style)) + "\n")
        raise CommandError(result.verdict)
    return Answer(result.text(session.style), result.to_json())


@command("notices", LOOK, complete=lambda _fabric, before: () if before else SWITCH)
def notices(session: CliSession, given: Args) -> str:
    """Tell faults and transfers as they happen, or only when asked.

    notices                       whether they are told
    notices off                   only `faults`, `wait` and the live view tell
    notices on

    At a terminal they are told unless switched off; commands from a pipe are told of their transfers only.
    """
    told = session.notices
    if told is None:
        raise CommandError("there is nobody to tell here: notices belong to the prompt of `mrc up`")
    if wanted := arguments(given, "notices [on|off]", 0, 1):
        if wanted[0] not in SWITCH:
            raise CommandError(f"on or off, not {wanted[0]!r}: notices [on|off]")
        told.on = wanted[0] == "on"
    return f"notices are {'on' if told.on else 'off'}"
