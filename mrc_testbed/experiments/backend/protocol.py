"""Protocol of the back ends: a plan in, an outcome out; runner and judge need nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.resolve.run_plan import RunPlan

Watch = Callable[[float, float], None]
"""Callback with (share done 0..1, seconds of the run), called now and then."""


def ignore_progress(_share: float, _now: float) -> None:
    """Ignore the progress of a run."""


class Backend(Protocol):
    """Protocol of a back end: virtual, fluid or live."""

    def run(self, plan: RunPlan, watch: Watch = ignore_progress) -> Outcome:
        """Carry out a run. Raises what the fabric or the engines refuse."""
        ...
