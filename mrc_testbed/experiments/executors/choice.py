"""Choice of an executor by its name, as `--executor` of `mrc run` and `mrc study` has it."""

from __future__ import annotations

from mrc_testbed.experiments.executors.crew import Crew
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool


def crew_of(options: ExecutorOptions, jobs: int) -> Crew | None:
    """Who makes the runs; None: one after the other in this process. Raises UsageError for what is not installed.

    `jobs`: processes side by side of those that are on this machine.
    """
    if options.name == "local":
        return WorkerPool(jobs) if jobs > 1 else None
    if options.name == "ray":
        from mrc_testbed.experiments.executors.ray_crew import RayCrew

        return RayCrew(options.task_s)
    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    return SubmititCrew(options, jobs)
