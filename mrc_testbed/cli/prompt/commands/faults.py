"""Commands about faults as the controller knows them: faults, routes, check, notices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mrc_testbed.cli.prompt.commands.base import (
    SHOW,
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
"""Time a difference has to last before `routes` reports it, seconds."""
CHOICES = ("active", "all")
SWITCH = ("on", "off")
BEFORE_S = 0.05
"""Time, seconds: a fault seen earlier than that before its injection has another cause (same clock)."""


def _shown_words(_fabric: Fabric, _words: list[str]) -> Iterable[str]:
    return CHOICES


@command("faults", SHOW, complete=_shown_words, reads=True)
def faults(session: CliSession, args: Args) -> Answer:
    """Faults the controller knows: what, where, since when, seen by whom, how fast.

    faults                        active ones, and those that ended in the last minute
    faults all

    what: of a link whose ports are up also the direction, `A -> B` or both ways, where it can be told.
    seen by: each source, and how long after the first of them it spoke. found after: from the injection of a fault at
    that place until the controller named it; `not found` lists what was injected and nobody has named. A line that
    begins with `controller` says what keeps it from its work, and what therefore does not work: an error of its own
    with the log that has the details, a switch that another controller has taken, counters that are not read.
    """
    arguments(args, "faults [active|all]", 0, 1)
    choice = one_of(args[0], CHOICES, "choice") if args else None
    answer = session.fabric.controller.request("faults")
    all_faults, problems = answer["faults"], answer.get("problems", [])
    now = time.monotonic()
    shown_faults = [fault for fault in all_faults if _is_shown(fault, choice, now)]
    # A fabric of another process has no log of injections here.
    past = list(session.fabric.inject.log) if hasattr(session.fabric, "inject") else []
    injections = [injection for _, change, injection in past if change == "begin"]
    rows = []
    for fault in shown_faults:
        injection = injection_of(fault, injections)
        fault["injected"] = injection.to_json() if injection else None
        fault["found_after_s"] = fault["raised"] - injection.began_at if injection else None
        rows.append(_row(fault, now))
    missed_injections = [
        injection for injection in _active_injections(session) if not any(_explains(f, injection) for f in all_faults)
    ]
    active = sum(fault["state"] == "active" for fault in all_faults)
    heads = ("#", "state", "what", "since", "seen by", "found after")
    lines = [table(session.style, heads, rows, right_columns=("#", "since", "found after"))] if rows else []
    lines += [
        session.style.paint(
            f"not found: {injection.kind.replace('_', ' ')} on {injection.location} {injection.detail}".rstrip(), "warn"
        )
        + f", injected {now - injection.began_at:.1f} s ago"
        for injection in missed_injections
    ]
    lines += [
        session.style.paint(f"controller: {problem['text']}", "warn" if problem["over"] is None else "dim")
        + f", {_ago((problem['over'] or now) - problem['began'])}"
        + ("" if problem["over"] is None else ", over")
        for problem in problems
        if problem["over"] is None or choice == "all" or (choice is None and now - problem["over"] < 60)
    ]
    return Answer("\n".join([*lines, f"{active} active, {len(all_faults) - active} past"]), shown_faults)


def _is_shown(fault: dict[str, Any], choice: str | None, now: float) -> bool:
    if fault["state"] == "active" or choice == "all":
        return True
    return choice is None and fault["cleared"] is not None and now - fault["cleared"] < 60


def _row(fault: dict[str, Any], now: float) -> list[Cell]:
    looks = {"active": "bad", "cleared": "good", "merged": "dim"}
    delay_s = fault["found_after_s"]
    return [
        str(fault["number"]),
        (fault["state"], looks.get(fault["state"], "")),
        fault["text"],
        _ago(now - fault["first_seen"]),
        _seen_by(fault["evidence"]),
        "-" if delay_s is None else f"{delay_s * 1e3:.0f} ms" if delay_s < 10 else f"{delay_s:.1f} s",
    ]


def _ago(span_s: float) -> str:
    return f"{span_s:.1f} s" if span_s < 600 else f"{span_s / 60:.0f} min"


def _seen_by(evidence: list[dict[str, Any]]) -> str:
    out: list[str] = []
    for entry in evidence:
        after_s = entry.get("after_s")
        source = str(entry["source"]).split()[0]
        text = source if not after_s else f"{source} +{after_s * 1e3:.0f} ms"
        if not any(text.split()[0] == earlier_text.split()[0] for earlier_text in out):
            out.append(text)
    return ", ".join(out) or "-"


def injection_of(fault: dict[str, Any], injections: list[Injection]) -> Injection | None:
    """The last fault injected at the place of a fault before it was seen, and not over by then."""
    for injection in reversed(injections):
        is_over = injection.ended_at is not None and injection.ended_at < fault["first_seen"] - BEFORE_S
        if injection.began_at <= fault["raised"] and not is_over and _explains(fault, injection):
            return injection
    return None


def _explains(fault: dict[str, Any], injection: Injection) -> bool:
    """Whether a fault names the place of an injection, and not only the other direction of it."""
    if fault["location"] == injection.location:
        direction = fault.get("direction")
        return (
            injection.sender is None or direction in (None, "both") or direction.startswith(f"{injection.sender} -> ")
        )
    return any(part["location"] == injection.location for option in fault.get("alternatives", []) for part in option)


def _active_injections(session: CliSession) -> list[Injection]:
    """Injections that a controller ought to find: a slower or a longer link is no fault."""
    inject = getattr(session.fabric, "inject", None)
    return [injection for injection in inject.active if injection.kind not in ("rate", "delay")] if inject else []


@command("routes", SHOW)
def routes(session: CliSession, args: Args) -> str:
    """Read every switch table again and compare it with what was written at the start.

    routes
    """
    arguments(args, "routes", 0)
    deadline = time.monotonic() + SETTLE_S
    with session.progress("routes", SETTLE_S, len(session.plan.switches)):
        while True:
            answer = session.fabric.controller.request("verify", timeout_s=SWITCHES_S, patient=True)
            differences = answer.get("differences", [])
            if not differences or time.monotonic() >= deadline:
                break
            time.sleep(SETTLE_S / 10)  # it may be writing them just now: a link has changed
    if differences or not answer["unchanged_since_start"]:
        shown = "; ".join(str(difference) for difference in differences[:5]) or "digests differ from those at the start"
        raise CommandError(f"switch tables differ from what was written: {shown}")
    return f"tables of {len(answer['digests'])} switches read back: unchanged since the start"


@command("check", SHOW, reads=True)
def check(session: CliSession, args: Args) -> Answer:
    """Probe every link in both classes now, and print bad ones (pre-job check; `mrc check` in a shell).

    check
    check 200                     200 probes of each link and class (50)
    """
    (count,) = arguments(args, "check [PROBES], as in: check 200", 0, 1) or ("50",)
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


@command("notices", SHOW, complete=lambda _fabric, words: () if words else SWITCH)
def notices(session: CliSession, args: Args) -> str:
    """Tell faults and transfers as they happen, or only when asked.

    notices                       whether they are told
    notices off                   only `faults`, `wait` and the live view tell
    notices on

    At a terminal they are told unless switched off; commands from a pipe are told of their transfers only.
    """
    receiver = session.notices
    if receiver is None:
        raise CommandError("no notices here: use the prompt of `mrc up`")
    if choices := arguments(args, "notices [on|off]", 0, 1):
        if choices[0] not in SWITCH:
            raise CommandError(f"on or off, not {choices[0]!r}: notices [on|off]")
        receiver.on = choices[0] == "on"
    return f"notices are {'on' if receiver.on else 'off'}"
