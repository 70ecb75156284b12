"""Bring a fabric up with its progress shown: what `mrc up`, demo and benches share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from mrc_testbed.console.progress import Progress
from mrc_testbed.ipc.rundir import default_run_dir
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.lab.slots import take_slot
from mrc_testbed.topologies.plan import Plan

START_S, PROCESS_S = 2.0, 0.1
"""Start seconds of a fabric, and of each switch or agent: the guess for a first run."""


@contextmanager
def open_fabric(plan: Plan, lab: LabOptions, console: Console, run_dir: Path | None = None) -> Iterator[Fabric]:
    """A running Fabric; each step on the way is told on `console`.

    `run_dir`: its run folder; None: the default one. Beside other fabrics it gets names and ports of its own.

    Raises FabricError, ProcessError or RunDirError on entering, with everything removed again; ProcessError in place
    of what is raised within when a process of the fabric has died.
    """
    size = len(plan.switches) + len(plan.hosts)
    removal = Progress(console, f"down {lab.target}", guess_s=START_S, size=size, text="removing the fabric")
    folder = run_dir or default_run_dir()
    with ExitStack() as stack:
        slot_plan, slot_lab = stack.enter_context(take_slot(plan, lab, folder))
        stack.push(removal.__exit__)  # the last one: what is between this and the next is removed meanwhile
        with Progress(console, f"up {lab.target}", guess_s=START_S + PROCESS_S * size, size=size) as progress:
            fabric = stack.enter_context(Fabric(slot_plan, slot_lab, folder, progress=progress.step))
        stack.callback(removal.__enter__)
        with fabric.blaming_the_dead():
            yield fabric
