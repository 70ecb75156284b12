"""Command line options of an executor."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.executors.packs import TASK_S, packs
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.virtual.estimate import duration

EXECUTORS = ("local", "slurm", "submitit-local", "ray")
"""Names: processes of the command; a Slurm cluster; processes of submitit; a Ray cluster."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """Name and settings of an executor."""

    name: str = "local"
    task_s: float = TASK_S
    """Least estimated seconds of work for a task."""
    slurm: dict[str, str] = field(default_factory=dict)
    """Parameters of sbatch, by submitit's names: partition, account, qos, ..."""

    def __post_init__(self) -> None:
        if self.name not in EXECUTORS:
            raise UsageError(f"--executor {self.name}: give one of {', '.join(EXECUTORS)}")
        if self.slurm and self.name != "slurm":
            raise UsageError(f"--slurm belongs to --executor slurm, not to {self.name}: leave it out")

    @property
    def elsewhere(self) -> bool:
        """Whether runs are packed into tasks of a scheduler, not processes of the command."""
        return self.name != "local"

    def describe(self, runs: list[RunPlan], costs: dict[str, float]) -> str:
        """Return the estimate in words: `1000 runs, about 300 s of one CPU, 5 tasks for slurm`."""
        run_costs = [costs[run.name] for run in runs]
        tasks = "" if self.name == "submitit-local" else f", {len(packs(run_costs, self.task_s))} task(s)"
        cpu_time = duration(sum(run_costs))
        return f"{len(runs)} runs, about {cpu_time} of one CPU{tasks} for {self.name} (pieces were measured)"
