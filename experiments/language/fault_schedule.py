"""The faults of one run as steps: every random draw made, every `for` turned into its undoing, links and nodes by name.

    for step in steps(run.scenario, plan, seed=run.seed):
        step.when, step.action, step.targets, step.values

Pure; both back ends carry out the same steps. A step's `undo` names the step number it takes back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from experiments.language.model import Links, Random, Scenario, ScenarioFault, When
from topologies.plan import Link, Plan


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One thing that happens to the fabric.

    targets   links as (lower, upper) node pairs, one way as (from, to); or switch names; or () for all
    values    what else the action needs: rate, pattern, delay, direction, down, up, times, plane, what
    undo      number of the step whose effect ends here; None for a fault of its own
    after     seconds after the step `undo`, where that one's time is a share of the work
    """

    number: int
    when: When
    action: str
    targets: tuple[Any, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    undo: int | None = None
    after: float | None = None

    def __str__(self) -> str:
        what = ", ".join(" ".join(t) if isinstance(t, tuple) else str(t) for t in self.targets)
        rest = " ".join(f"{key}={value}" for key, value in self.values.items() if value is not None)
        verb = f"end of {self.action}" if self.undo is not None else self.action
        return " ".join(part for part in (verb.replace("_", " "), what, rest) if part)


def steps(scenario: Scenario, plan: Plan, seed: int) -> list[FaultStep]:
    """All steps of a run, in order of time; those with a share of the work last, in file order."""
    made: list[FaultStep] = []
    for at, fault in enumerate(scenario.faults):
        dice = random.Random(f"{seed}/fault {at}")
        for when in _times(fault, dice):
            _add(made, fault, when, plan, dice)
    return sorted(made, key=lambda step: (step.when.seconds is None, step.when.seconds or 0.0, step.number))


def _times(fault: ScenarioFault, dice: random.Random) -> list[When]:
    if fault.at is not None:
        return [fault.at]
    poisson = fault.poisson
    assert poisson is not None  # the model allows nothing else
    out, now = [], poisson.start + dice.expovariate(poisson.rate)
    while now < poisson.stop:
        out.append(When(seconds=now))
        now += dice.expovariate(poisson.rate)
    return out


def _add(made: list[FaultStep], fault: ScenarioFault, when: When, plan: Plan, dice: random.Random) -> None:
    targets, values = _targets_and_values(fault, plan, dice)
    step = FaultStep(len(made), when, fault.action, targets, values)
    made.append(step)
    if fault.duration is None:
        return
    if when.seconds is None:
        made.append(FaultStep(len(made), when, fault.action, targets, values, undo=step.number, after=fault.duration))
    else:
        end = When(seconds=when.seconds + fault.duration)
        made.append(FaultStep(len(made), end, fault.action, targets, values, undo=step.number))


def _targets_and_values(
    fault: ScenarioFault, plan: Plan, dice: random.Random
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    value: Any = getattr(fault, fault.action)
    match fault.action:
        case "cut" | "silent" | "restore":
            return _links(value, plan, dice), {}
        case "one_way":
            return _directed(value, plan, dice), {}
        case "loss" | "corrupt":
            kept = {"rate": value.rate, "pattern": value.pattern}
            if value.into is not None:
                hosts = [host.name for host in plan.hosts] if value.into == "hosts" else [value.into]
                links = [k for k in plan.links if k.lower.node in hosts]
                return tuple((k.upper.node, k.lower.node) for k in links), kept | {"direction": "one_way"}
            return _links(value.link, plan, dice), kept | {"direction": value.direction}
        case "line":
            kept = {"rate": value.rate, "delay": value.delay, "direction": value.direction}
            return _links(value.link, plan, dice), kept
        case "flap":
            return _links(value.link, plan, dice), {"down": value.down, "up": value.up, "times": value.times}
        case "blackhole" | "power_off" | "power_on" | "reboot":
            return _switches(value, plan, dice), {}
        case "corrupts":
            return (value.switch,), {"rate": value.rate}
        case "drain":
            return (), {"plane": value}
        case "controller":
            return (), {"what": value}
    return (), {}


def _links(value: Links, plan: Plan, dice: random.Random) -> tuple[tuple[str, str], ...]:
    out: list[tuple[str, str]] = []
    for one in value if isinstance(value, list) else [value]:
        found = [plan.link(*one)] if isinstance(one, tuple) else _draw(one, _of_kind(one, plan), dice)
        out += [(link.lower.node, link.upper.node) for link in found]
    return tuple(dict.fromkeys(out))


def _directed(value: Links, plan: Plan, dice: random.Random) -> tuple[tuple[str, str], ...]:
    """As given where it is given; a drawn link loses one direction by the dice."""
    out: list[tuple[str, str]] = []
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, tuple):
            out.append(one)
            continue
        for link in _draw(one, _of_kind(one, plan), dice):
            ends = (link.lower.node, link.upper.node)
            out.append(ends if dice.random() < 0.5 else ends[::-1])
    return tuple(dict.fromkeys(out))


def _switches(value: Any, plan: Plan, dice: random.Random) -> tuple[str, ...]:
    if isinstance(value, Random):
        tier = {"t0": 0, "t1": 1}.get(value.random)
        known = [s.name for s in plan.switches if tier in (None, s.tier) and value.plane in (None, s.plane)]
        return tuple(_draw(value, known, dice))
    return (value,) if isinstance(value, str) else tuple(value)


def _of_kind(wanted: Random, plan: Plan) -> list[Link]:
    hosts = {host.name for host in plan.hosts}

    def fits(link: Link) -> bool:
        is_nic = link.lower.node in hosts
        kind = wanted.random in ("links", "nic-links" if is_nic else "fabric-links")
        return kind and wanted.plane in (None, link.plane) and wanted.host in (None, link.lower.node)

    return [link for link in plan.links if fits(link)]


def _draw(wanted: Random, known: list[Any], dice: random.Random) -> list[Any]:
    count = wanted.count if wanted.share is None else max(wanted.share > 0, round(wanted.share * len(known)))
    return dice.sample(known, min(count, len(known)))
