"""Faults of one run as steps: random draws made, `for` turned into an undo step, names resolved.

    for step in steps(run.scenario, plan, seed=run.seed):
            step.time, step.fault, step.undo

Both back ends carry out the same steps, by a StepRunner on their FaultTarget.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from mrc_testbed.experiments.language.model import Instant, Scenario, ScenarioFault
from mrc_testbed.faults import KINDS, FaultHolds, FaultTarget, InjectedFault
from mrc_testbed.topologies.plan import Plan


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One change of the fabric: a fault begins or ends.

    undo      number of the step whose effect ends here; None for a fault of its own
    delay_s   seconds after the step `undo`, where that step's time is a share of the work
    """

    number: int
    time: Instant
    fault: InjectedFault
    undo: int | None = None
    delay_s: float | None = None

    @property
    def action(self) -> str:
        """Kind of the step's fault, the key in the file."""
        return self.fault.action

    @property
    def targets(self) -> tuple[Any, ...]:
        """Links or switches of the step's fault."""
        return self.fault.targets

    def __str__(self) -> str:
        return f"end of {self.fault}" if self.undo is not None else str(self.fault)


def steps(scenario: Scenario, plan: Plan, seed: int) -> list[FaultStep]:
    """Return all steps of a run, in order of time; those with a share of the work last, in file order."""
    schedule: list[FaultStep] = []
    for index, fault in enumerate(scenario.faults):
        dice = random.Random(f"{seed}/fault {index}")
        for time in _times(fault, dice):
            _add(schedule, fault, time, plan, dice)
    return sorted(schedule, key=lambda step: (step.time.seconds is None, step.time.seconds or 0.0, step.number))


def _times(fault: ScenarioFault, dice: random.Random) -> list[Instant]:
    if fault.at is not None:
        return [fault.at]
    poisson = fault.poisson
    assert poisson is not None  # the model allows nothing else
    out, now = [], poisson.start + dice.expovariate(poisson.rate)
    while now < poisson.stop:
        out.append(Instant(seconds=now))
        now += dice.expovariate(poisson.rate)
    return out


def _add(schedule: list[FaultStep], line: ScenarioFault, time: Instant, plan: Plan, dice: random.Random) -> None:
    fault = KINDS[line.action].resolve(line.value, plan, dice)
    step = FaultStep(len(schedule), time, fault)
    schedule.append(step)
    if line.duration is None:
        return
    if time.seconds is None:
        schedule.append(FaultStep(len(schedule), time, fault, undo=step.number, delay_s=line.duration))
    else:
        end = Instant(seconds=time.seconds + line.duration)
        schedule.append(FaultStep(len(schedule), end, fault, undo=step.number))


class StepRunner:
    """Carries out steps on a fabric, and keeps the effect of each until it ends."""

    def __init__(self, target: FaultTarget) -> None:
        self._target = target
        self._effects: dict[int, FaultHolds] = {}
        """Effect of each active step, by step number."""

    def apply(self, step: FaultStep) -> None:
        """Begin the fault of a step, or end the fault that the step undoes. Raises the target's error."""
        if step.undo is not None:
            step.fault.end(self._target, self._effects.pop(step.undo, FaultHolds()))
            return
        effect = FaultHolds()
        step.fault.begin(self._target, effect, step.number)
        self._effects[step.number] = effect
