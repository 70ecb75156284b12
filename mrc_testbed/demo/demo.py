"""`mrc demo`: a file crosses the fabric while links are cut; the report shows how the paths healed.

A plan (plan.py, pure), a run of it on a fabric (run.py), a view of both on a console (view.py).
"""

from __future__ import annotations

from rich.console import Console

from mrc_testbed.demo.plan import DemoPlan
from mrc_testbed.demo.report import DemoReport
from mrc_testbed.demo.run import DemoRun
from mrc_testbed.demo.view import DemoView
from mrc_testbed.topologies.lab.open_fabric import open_fabric


def show(plan: DemoPlan, console: Console) -> DemoReport:
    """Bring the fabric up, run the demonstration, remove the fabric.

    Raises DemoError and the errors of the fabric and agents.
    """
    view = DemoView(console, plan)
    with open_fabric(plan.fabric, plan.lab, console) as fabric, DemoRun(plan, fabric, view) as run:
        report = run.run()
    view.report(report)
    return report
