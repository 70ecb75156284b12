"""`mrc simtest` and `mrc fuzz`: run, print, exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import UsageError
from mrc_testbed.simulator.simtest import campaign as campaigns
from mrc_testbed.simulator.simtest import fuzz as fuzzing
from mrc_testbed.simulator.simtest.schedule import draw

SHRUNK = "simtest-{seed}.json"
"""Name of the file for the shrunk schedule of a failing seed, in the working directory."""


def simtest(
    seeds: int, first: int, seed: int | None, replay: Path | None, jobs: int, keep_going: bool, as_json: bool
) -> int:
    """Run schedules and print the result; return 0 when no invariant was violated, else 1.

    Raises ScheduleError.
    """
    if seed is not None or replay is not None:
        schedule = campaigns.load(replay) if replay is not None and seed is None else draw(seed or 0)
        shrunk_to = Path(SHRUNK.format(seed=schedule.seed)) if seed is not None else None
        result, text = campaigns.replay(schedule, shrunk_to)
        if as_json:
            failure = None if result.violation is None else campaigns.failure_json(result)
            print(json.dumps({"schedule": schedule.to_json(), "stats": result.stats, "failure": failure}, indent=1))
        else:
            print(text)
        return 0 if result.violation is None else 1
    report = campaigns.campaign(first, seeds, jobs, campaigns.CampaignProgress(seeds), keep_going)
    print(json.dumps(report.to_json(), indent=1) if as_json else report.text())
    return 0 if report.passed else 1


def fuzz(target: str, runs: int, seconds: int, seed: int) -> int:
    """Fuzz a target with atheris, else with plain mutations. Raises UsageError for an unknown target."""
    if target not in fuzzing.TARGETS:
        raise UsageError(f"no fuzz target {target!r} (has: {', '.join(fuzzing.TARGETS)}, p4)")
    if find_spec("atheris") is not None:
        limits = [f"-atheris_runs={runs}", f"-max_total_time={seconds}", f"-seed={seed}"]
        command = [sys.executable, "-m", "mrc_testbed.simulator.simtest.fuzz", target, *limits]
        os.execv(sys.executable, command)
    print("fuzz: atheris is not installed (pip install 'mrc-testbed[fuzz]'): plain mutations instead", file=sys.stderr)
    start, input_count = time.monotonic(), 0
    with Progress(console(stderr=True), f"fuzz {target}") as progress:
        while input_count < runs and (elapsed_s := time.monotonic() - start) < seconds:
            progress.share(max(input_count / runs, elapsed_s / seconds), f"{input_count:,} inputs")
            input_count += fuzzing.run_mutations(target, seed + input_count, min(1000, runs - input_count))
    print(f"fuzz {target}: {input_count:,} inputs, nothing found")
    return 0
