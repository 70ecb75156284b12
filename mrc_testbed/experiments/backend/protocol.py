"""The protocol of the back ends: a plan in, an outcome out; nothing else differs for who runs and judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.resolve.run_plan import RunPlan

Watch = Callable[[float, float], None]
"""Called with (share done 0..1, seconds of the run) now and then."""


def unwatched(_share: float, _now: float) -> None:
    """A Watch that does not look."""


class Backend(Protocol):
    """Virtual, fluid or live."""

    def run(self, plan: RunPlan, watch: Watch = unwatched) -> Outcome:
        """Carry out a run. Raises what the fabric or the engines refuse."""
        ...
