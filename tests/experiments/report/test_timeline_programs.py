"""A run of a user's program: steps in the picture, command and exit codes on the page."""

from __future__ import annotations

from mrc_testbed.experiments.backend.outcome import PROGRAM, CollectiveOutcome, Iteration, Outcome, ProgramOutcome
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.sections import recorded_sizes
from mrc_testbed.experiments.report.timeline import timeline
from mrc_testbed.experiments.runner import plan_runs

TEXT = """\
title: a program
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
workload: [{program: train it, name: job, ranks: 2}]
"""


def measurement(folder):
    path = folder / "program.yaml"
    path.write_text(TEXT)
    (plan,) = plan_runs(read(path), "live").runs
    outcome = Outcome("program", "run", {}, "live", 1, 0, "srv6", 0.0, duration_s=5.0)
    outcome.programs = [ProgramOutcome("job", "train it", ["h0", "h1"], None, 0.0, 4.0, [0, None], [None, None])]
    steps = [Iteration(number, number - 0.25 * number, number, "h0", 0) for number in range(1, 4)]
    outcome.collectives = [CollectiveOutcome("job", PROGRAM, ["h0", "h1"], 0, 0.0, iterations=steps)]
    series = outcome.series
    series.times_s = [1.0, 2.0, 3.0, 4.0, 5.0]
    series.lost = series.retransmitted = [0, 0, 3, 0, 0]
    outcome.event(2.5, "fault", number=0, action="cut", undo=None, text="cut p0-t0-0 p0-t1-0")
    return Measurement(outcome, plan)


def test_timeline__draws_step_times_in_the_place_of_rates(tmp_path):
    drawing = timeline("run", measurement(tmp_path), [], "blue")
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in drawing.canvas.axes]
    assert titles[:2] == ["Time of a step", "Faults"] and "Requestors: lost and sent again" in titles
    assert list(drawing.canvas.axes[0].lines[0].get_ydata()) == [0.25, 0.5, 0.75]
    assert drawing.text.startswith("Steps: job 3 of 250 ms to 750 ms.")


def test_recorded_sizes__name_the_command_and_how_its_ranks_ended(tmp_path):
    (line,) = recorded_sizes(measurement(tmp_path))
    assert line == "job: program `train it` on h0, h1; exit codes 0, ended by the run"
