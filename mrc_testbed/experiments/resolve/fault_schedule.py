"""The faults of one run as steps: every random draw made, every `for` turned into its undoing, links and nodes by name.

    for step in steps(run.scenario, plan, seed=run.seed):
        step.when, step.fault, step.undo

Both back ends carry out the same steps, by a StepRunner on their FaultTarget.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from mrc_testbed.experiments.language.model import Scenario, ScenarioFault, When
from mrc_testbed.faults import KINDS, FaultTarget, Held, InjectedFault
from mrc_testbed.topologies.plan import Plan


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One thing that happens to the fabric.

    undo      number of the step whose effect ends here; None for a fault of its own
    after     seconds after the step `undo`, where that one's time is a share of the work
    """

    number: int
    when: When
    fault: InjectedFault
    undo: int | None = None
    after: float | None = None

    @property
    def action(self) -> str:
        """Kind of its fault, the key in the file."""
        return self.fault.action

    @property
    def targets(self) -> tuple[Any, ...]:
        """Links or switches of its fault."""
        return self.fault.targets

    def __str__(self) -> str:
        return f"end of {self.fault}" if self.undo is not None else str(self.fault)


def steps(scenario: Scenario, plan: Plan, seed: int) -> list[FaultStep]:
    """All steps of a run, in order of time; those with a share of the work last, in file order."""
    made: list[FaultStep] = []
    for at, fault in enumerate(scenario.faults):
        dice = random.Random(f"{seed}/fault {at}")
        for time in _times(fault, dice):
            _add(made, fault, time, plan, dice)
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


def _add(made: list[FaultStep], line: ScenarioFault, when: When, plan: Plan, dice: random.Random) -> None:
    fault = KINDS[line.action].resolve(line.value, plan, dice)
    step = FaultStep(len(made), when, fault)
    made.append(step)
    if line.duration is None:
        return
    if when.seconds is None:
        made.append(FaultStep(len(made), when, fault, undo=step.number, after=line.duration))
    else:
        end = When(seconds=when.seconds + line.duration)
        made.append(FaultStep(len(made), end, fault, undo=step.number))


class StepRunner:
    """Carries steps out on a fabric, and knows what each of them holds."""

    def __init__(self, target: FaultTarget) -> None:
        self._target = target
        self._held: dict[int, Held] = {}
        """By step number."""

    def apply(self, step: FaultStep) -> None:
        """Do a step, or undo the one that it ends. Raises the target's error."""
        if step.undo is not None:
            step.fault.end(self._target, self._held.pop(step.undo, Held()))
            return
        held = Held()
        step.fault.begin(self._target, held, step.number)
        self._held[step.number] = held
