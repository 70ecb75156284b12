"""A fault in one phrase of the command line, as a line of a scenario's `faults`.

    fault_line("cut p1-t0-0 p1-t1-1 at 3 s for 2 s", plan)     # {"at": "3s", "for": "2s", "cut": "p1-t0-0 p1-t1-1"}

The words are those of the prompt of `mrc up`, with the time behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from mrc_testbed.console import units
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.model import ScenarioFault
from mrc_testbed.faults import KINDS
from mrc_testbed.faults.terms import chance, suggestion
from mrc_testbed.topologies.plan import Plan

TIME_FORM = "at TIME [for TIME], such as: at 3 s for 2 s"
FLAP_PERIOD_S = 2.0
"""Period of a flap without one of its own, seconds."""
_TIME = re.compile(r"(?P<words>.*?)(?:\s+at\s+(?P<at>.+?))?(?:\s+for\s+(?P<duration>.+))?\s*")


def _link(words: list[str]) -> tuple[str, list[str]]:
    """Return a link as a file names it, and the words behind it. Raises ValueError."""
    if len(words) < 2:
        raise ValueError("a link is two nodes")
    return f"{words[0]} {words[1]}", words[2:]


def _link_alone(kind: str) -> Callable[[list[str]], dict[str, Any]]:
    def line(words: list[str]) -> dict[str, Any]:
        link, values = _link(words)
        if values:
            raise ValueError(f"{values[0]!r} is too much")
        return {kind: link}

    return line


def _lossy(kind: str) -> Callable[[list[str]], dict[str, Any]]:
    def line(words: list[str]) -> dict[str, Any]:
        link, values = _link(words)
        if not values:
            raise ValueError("no share of packets")
        text = "".join(values)
        chance(text)  # raises UnitError
        return {kind: {"link": link, "pattern" if re.fullmatch("[01]{2,}", text) else "rate": text}}

    return line


def _slower(key: str) -> Callable[[list[str]], dict[str, Any]]:
    def line(words: list[str]) -> dict[str, Any]:
        link, values = _link(words)
        text = "".join(values)
        (units.rate if key == "rate" else units.seconds)(text)  # raises UnitError
        return {"line": {"link": link, key: text}}

    return line


def _flap(words: list[str]) -> dict[str, Any]:
    link, values = _link(words)
    times = {}
    if values and (match := re.fullmatch(r"[x×](\d+)", values[-1])):
        times, values = {"times": int(match[1])}, values[:-1]
    period_s = units.seconds("".join(values)) if values else FLAP_PERIOD_S
    return {"flap": {"link": link, "down": period_s / 2, "up": period_s / 2, **times}}


def _nodes(kind: str, ending: str = "") -> Callable[[list[str]], dict[str, Any]]:
    def line(words: list[str]) -> dict[str, Any]:
        if ending and words[-1:] != [ending]:
            raise ValueError(f"the last word is `{ending}`")
        names = words[:-1] if ending else words
        if not names:
            raise ValueError("no node is named")
        return {kind: names[0] if len(names) == 1 else names}

    return line


def _link_down(words: list[str]) -> dict[str, Any]:
    if words[-1:] != ["down"]:
        raise ValueError("the last word is `down`")
    return _link_alone("cut")(words[:-1])


FORMS: dict[str, tuple[str, Callable[[list[str]], dict[str, Any]]]] = {
    "cut": ("cut NODE NODE", _link_alone("cut")),
    "link": ("link NODE NODE down", _link_down),
    "oneway": ("oneway SENDER RECEIVER", _link_alone("one_way")),
    "silent": ("silent NODE NODE", _link_alone("silent")),
    "loss": ("loss NODE NODE SHARE", _lossy("loss")),
    "corrupt": ("corrupt NODE NODE SHARE", _lossy("corrupt")),
    "rate": ("rate NODE NODE RATE", _slower("rate")),
    "delay": ("delay NODE NODE TIME", _slower("delay")),
    "flap": ("flap NODE NODE [PERIOD] [xTIMES]", _flap),
    "blackhole": ("blackhole SWITCH", _nodes("blackhole")),
    "power": ("power NODE off", _nodes("power_off", "off")),
    "reboot": ("reboot NODE", _nodes("reboot")),
}
"""Word -> its form for people, and its line of a scenario."""


def fault_line(phrase: str, plan: Plan) -> dict[str, Any]:
    """Return the line of a scenario for a phrase, checked against a plan.

    Raises UsageError with what exists.
    """

    def refuse(text: object) -> UsageError:
        return UsageError(f"--fault {phrase!r}: {text}")

    match = _TIME.fullmatch(phrase.strip())
    assert match is not None  # the pattern takes any text
    word, *words = match["words"].split() or [""]
    if word not in FORMS:
        raise refuse(f"no fault {word!r} ({suggestion(word, FORMS)})")
    form, make_line = FORMS[word]
    if match["at"] is None:
        raise refuse(f"no time: give {form} {TIME_FORM}")
    times = {"at": match["at"].replace(" ", "")}
    if match["duration"]:
        times["for"] = match["duration"].replace(" ", "")
    try:
        line = times | make_line(words)
    except ValueError as error:
        raise refuse(f"{error}: give {form} {TIME_FORM}") from None
    try:
        fault = ScenarioFault.model_validate(line)
    except ValidationError as error:
        detail = error.errors()[0]
        text = detail.get("ctx", {}).get("error", detail["msg"])
        raise refuse(f"{text}: give {form} {TIME_FORM}") from None
    for _, text in KINDS[fault.action].check(fault.value, plan):
        raise refuse(text)
    return line
