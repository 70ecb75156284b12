"""Choice of an executor by its name, the value of `--executor` of `mrc run` and `mrc study`."""

from __future__ import annotations

from mrc_testbed.experiments.executors.crew import Crew
from mrc_testbed.experiments.executors.options import ExecutorOptions
from mrc_testbed.experiments.executors.worker_pool import WorkerPool


def crew_of(options: ExecutorOptions, jobs: int) -> Crew | None:
    """Return the executor of runs; None: one run after the other in this process.

    `jobs`: processes side by side on this machine. Raises UsageError for an executor that is not installed.
    """
    if options.name == "local":
        return WorkerPool(jobs) if jobs > 1 else None
    if options.name == "ray":
        from mrc_testbed.experiments.executors.ray_crew import RayCrew

        return RayCrew(options.task_s)
    from mrc_testbed.experiments.executors.submitit_crew import SubmititCrew

    return SubmititCrew(options, jobs)
