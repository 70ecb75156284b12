"""The report of `mrc demo`, in words and as data, from a story written by hand."""

from io import StringIO

from rich.console import Console

from mrc_testbed.demo.plan import plan_demo
from mrc_testbed.demo.report import DemoReport
from mrc_testbed.demo.timeline import TimelineRecorder
from mrc_testbed.demo.view import DemoView
from mrc_testbed.topologies.plan import Plan
from tests.cli.json_outputs import fit

PLAN = Plan()
LATE_NOTE = "ready to run and without a CPU: h0 31 % of the time: other work keeps the machine busy"


def a_report(machine) -> DemoReport:
    """One cut of two EVs: one was out before it, the other left 20 ms after the command began."""
    recorder = TimelineRecorder((0x200, 0x201))
    recorder.ev_state(0x200, good=False, time_s=100.9)
    cut = recorder.cut(PLAN.link("h2", "p2-t0-1"), (0x200, 0x201), time_s=101.0)
    recorder.ev_state(0x201, good=False, time_s=101.02)
    recorder.is_down(cut, time_s=101.08)
    assert cut.all_withdrawn
    return DemoReport(plan_demo(PLAN), 1.0, cuts=[recorder.story(cut)], machine=machine)


def output_of(report: DemoReport) -> str:
    console = Console(file=StringIO(), width=200)
    DemoView(console, report.plan).report(report)
    return console.file.getvalue()


def test_report__a_busy_machine_is_told():
    cpu_text = "the fabric took 1.3 of 2 CPUs; h0 waited for one 31 % of the time, the others less"
    report = a_report({"cpus": 2, "used": 1.3, "waited": {"h0": 0.31}, "needed": cpu_text, "notes": [LATE_NOTE]})
    assert f"CPU: {cpu_text}\n" in output_of(report) and f"note  {LATE_NOTE}\n" in output_of(report)
    assert fit("demo", report.to_json())["machine"] == report.machine


def test_report__the_cut_is_an_interval_and_what_was_out_before_is_told_apart():
    report = a_report({"cpus": 2, "used": 0.3, "waited": {}, "needed": "little", "notes": []})
    rows = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in output_of(report).splitlines() if "│" in line
    }
    assert rows["down within"] == "+80 ms" and rows["EVs withdrawn"] == "+20 ms (2, 1 before)"
    (cut,) = report.to_json()["cuts"]
    assert (cut["down_within_s"], cut["evs_withdrawn_after_s"], cut["evs_out_before"]) == (0.08, 0.02, ["0x0200"])
    assert "note" not in output_of(report)
