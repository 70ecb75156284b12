"""Figures of a scenario, drawn with matplotlib; pictures.py saves them as SVG and PNG.

Repeats of a run are one line, the median, in a band from the lowest to the highest. A kind of figure is a function in
FIGURES; common code is in canvas.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from mrc_testbed.console import units
from mrc_testbed.experiments.language.expand import label_parts
from mrc_testbed.experiments.language.model import Figure, Scenario
from mrc_testbed.experiments.metrics.assertions import matches, show
from mrc_testbed.experiments.metrics.metric_values import RECOVERED_SHARE, Measurement
from mrc_testbed.experiments.metrics.repeats import base_name, group_repeats, spread_text
from mrc_testbed.experiments.report import paper_reference
from mrc_testbed.experiments.report.canvas import (
    GREY,
    Drawing,
    Runs,
    canvas_of,
    legend,
    mark_all,
    name_times,
    scale_of,
    styles,
    styles_of,
    title_of,
    variant_of,
)
from mrc_testbed.experiments.report.curves import curve
from mrc_testbed.experiments.report.faults import MARKS_MAX, fault_times
from mrc_testbed.experiments.report.line_colours import INK, line_colours

RUNS_MAX = 8
"""Most lines of one figure; more cannot be distinguished."""
COINCIDE = 0.01
"""Greatest distance of two lines that are reported as the same, as a share of the first value."""


def asked_for(scenario: Scenario, runs: Runs) -> list[Drawing]:
    """Return the scenario's figures, and the times of messages where measured and shown by no figure."""
    out = []
    for number, figure in enumerate(scenario.figures):
        out.append(FIGURES[figure.kind](f"figure{number + 1}", figure, scenario, _select_runs(runs, figure.where)))
    asked = any(figure.kind == "latency_cdf" for figure in scenario.figures)
    if not asked and any(flow.latencies_s for _, _, measurement in runs for flow in measurement.outcome.flows):
        out.append(message_cdf("latency", Figure(kind="latency_cdf"), scenario, runs))
    return out


def _select_runs(runs: Runs, selection: dict[str, Any]) -> Runs:
    """Return the runs that a figure shows, with names that lack the labels common to all."""
    shared_keys = {key for key, value in selection.items() if not isinstance(value, list)}
    out = []
    for name, label, measurement in runs:
        if matches(label, selection):
            parts = label_parts({key: value for key, value in label.items() if key not in shared_keys})
            number = name[len(base_name(name)) :]
            out.append((" ".join(parts) + number if parts else name, label, measurement))
    return out


# ---- over time --------------------------------------------------------------------------------------------------


def time_points(figure: Figure, measurement: Measurement, runs: Runs) -> tuple[list[tuple[float, float]], str]:
    """Return (middle of the interval, value) of a series metric, and the name of the axis."""
    scale, label = scale_of(figure, measurement, runs)
    times = measurement.outcome.series.times_s
    out = []
    for low, high in zip([0.0, *times[:-1]], times, strict=True):
        value = measurement.value_between(figure.metric, low, high)
        if value is not None and high > low:
            out.append(((low + high) / 2, value / scale))
    return out, label


def _band(repeats: list[list[tuple[float, float]]]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the first repeat's times; median, lowest and highest value of all repeats at these times."""
    xs = [x for x, _ in repeats[0]]
    columns = [[paper_reference.value_at(points, x) for points in repeats if points] for x in xs]
    return xs, [median(c) for c in columns], [min(c) for c in columns], [max(c) for c in columns]


def over_time(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawing:
    """Draw a series metric over time, one line per run, with the paper's lines."""
    title = title_of(figure, runs)
    canvas, (axes,) = canvas_of(title)
    groups = dict(list(group_repeats(runs).items())[:RUNS_MAX])
    statements, remarks, label, median_of = [], [], "", {}
    looks = styles_of(runs, scenario.variants)
    for run, repeats in groups.items():
        point_sets = [time_points(figure, measurement, runs) for _, _, measurement in repeats]
        label = point_sets[0][1]
        if not point_sets[0][0]:
            statements.append(f"{run}: not measured")
            continue
        xs, middle, low, high = _band([points for points, _ in point_sets])
        axes.plot(xs, middle, label=run if len(groups) > 1 else None, **looks[run])
        if len(repeats) > 1:
            axes.fill_between(xs, low, high, color=looks[run]["color"], alpha=0.2, lw=0)
        median_of[run] = list(zip(xs, middle, strict=True))
        statements.append(f"{run}: {min(low):.3g} to {max(high):.3g}")
        if figure.of == "baseline":
            remarks += _fall(run, repeats[0][2], median_of[run])
    axes.set_ylim(bottom=0)
    # The paper's lines are shares: they fit a figure of shares alone.
    if figure.of in ("baseline", "capacity") and figure.kind == "rate_over_time":
        remarks += _paper_lines(axes, scenario, median_of, looks)
        axes.axhline(1.0, color=GREY, lw=0.8, zorder=0.4)
        axes.set_ylim(0, max(1.08, axes.get_ylim()[1]))
    remarks += _same_lines(median_of)
    differ = mark_all(axes, groups, looks)
    name_times(axes, _end_s(figure, runs), figure.start or 0.0)
    axes.set_ylabel(label)
    legend(canvas, axes)
    every = runs[0][2].outcome.series.every_s if runs else 0.0
    text = f"{title}, {label}, over time, one point each {units.show_seconds(every)}. {'; '.join(statements)}."
    mark_count = max((len(fault_times(measurement)) for _, _, measurement in runs), default=0)
    if len(runs) > len(group_repeats(runs)):
        text += " Lines are medians of the repeats, bands reach from the lowest to the highest."
    if mark_count > MARKS_MAX:
        text += f" Its {mark_count} beginnings and ends of faults are in the bars below."
    elif differ:
        text += " Runs have different faults, which are marked below, run by run."
    if len(group_repeats(runs)) > RUNS_MAX:
        text += f" Drawn are the first {RUNS_MAX} of {len(group_repeats(runs))} runs."
    return Drawing(name, title, text, canvas, remarks)


def _end_s(figure: Figure, runs: Runs) -> float:
    """Return the end of the time axis, seconds."""
    if figure.stop is not None:
        return figure.stop
    return max((measurement.outcome.duration_s for _, _, measurement in runs), default=0.0) or 1.0


def _in_span(figure: Figure, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that a figure of a part of the runs shows."""
    low, high = figure.start or 0.0, inf if figure.stop is None else figure.stop
    return [point for point in points if low <= point[0] <= high]


def _same_lines(points_by_run: dict[str, list[tuple[float, float]]]) -> list[tuple[str, str]]:
    """Return remarks on lines that coincide with an earlier one."""
    out, names = [], list(points_by_run)
    for index, name in enumerate(names):
        for earlier in names[:index]:
            points, earlier_points = points_by_run[name], points_by_run[earlier]
            if (
                points
                and earlier_points
                and max(abs(y - paper_reference.value_at(earlier_points, x)) for x, y in points)
                < COINCIDE * earlier_points[0][1]
            ):
                out.append((name, f"the same line as {earlier}"))
                break
    return out


def _fall(run: str, measurement: Measurement, points: list[tuple[float, float]]) -> list[tuple[str, str]]:
    fall = paper_reference.fall_below(measurement, points, RECOVERED_SHARE)
    if fall is None:
        return []
    deepest, seconds = fall
    errors = sum(event["what"] == "qp_error" for event in measurement.outcome.events)
    failed = f"; {errors} QP{'' if errors == 1 else 's'} failed" if errors else ""
    if seconds == 0:
        words = f"never below {100 * RECOVERED_SHARE:.0f} % of its rate before the fault (lowest {deepest:.3g})"
    else:
        words = f"fell to {deepest:.3g}; {units.show_seconds(seconds)} below {100 * RECOVERED_SHARE:.0f} % of its rate"
    return [(run, words + failed)]


def _paper_lines(
    axes: Axes, scenario: Scenario, points_by_run: dict[str, Any], looks: dict[str, dict[str, Any]]
) -> list[tuple[str, str]]:
    """Draw the paper's lines; return remarks on the distance of each run's line."""
    out = []
    runs = list(points_by_run)
    for number, (label, points, own_runs) in enumerate(paper_reference.lines_of(scenario, runs)):
        has_one_run = len(own_runs) == 1 and len(runs) > 1
        colour = looks[own_runs[0]]["color"] if has_one_run else GREY
        line_label = label if label.startswith("paper") else f"paper: {label}"
        axes.plot(
            *zip(*points, strict=True),
            label=line_label,
            color=colour,
            ls=("--", ":", "-.")[number % 3],
            lw=1.5,
            zorder=3,
        )
        for run in own_runs:
            words = paper_reference.line_distance(points_by_run[run], points)
            if words:
                subject = "beside the paper" if label == "paper" else f"beside “{label}” of the paper"
                out.append((f"{run} {subject}" if len(runs) > 1 else subject, words))
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) == 1 and axes.lines:  # one run and one line of the paper: name both
        axes.lines[0].set_label("here")
    return out


# ---- one number a run ----------------------------------------------------------------------------------------


def bars(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawing:
    """Draw one bar per run with its number; of repeats the median, and a line from lowest to highest."""
    title = title_of(figure, runs)
    groups = group_repeats(runs)
    canvas, (axes,) = canvas_of(title, max(2.2, 0.42 * len(groups) + 1.2))
    label, rows = "", []
    for run, repeats in groups.items():
        values = []
        for _, _, measurement in repeats:
            value = measurement.value(figure.metric)
            if value is not None:
                scale, label = scale_of(figure, measurement, runs)
                # Times of all magnitudes stand on one axis: each has its own unit.
                scale = 1.0 if figure.log and label in units.TIME_UNITS else scale
                values.append((value / scale, show(figure.metric, value, measurement)))
        rows.append((run, values))
    # Runs of one variant have one colour, whatever their swept values.
    variants = {run: variant_of(repeats[0][1], repeats[0][2].plan) for run, repeats in groups.items()}
    colours = line_colours(variants.values(), scenario.variants)
    for number, (run, values) in enumerate(rows):
        if not values:
            text = " not in this run" if figure.log else " not measured"
            axes.annotate(text, (0, number), xycoords=axes.get_yaxis_transform(), va="center", fontsize=8.5)
            continue
        heights = [height for height, _ in values]
        middle = median(heights)
        axes.barh(number, middle, color=colours[variants[run]], height=0.55)
        if len(heights) > 1:
            axes.plot([min(heights), max(heights)], [number, number], color=INK, lw=1.4)
        number_text = units.show_seconds if figure.log and label in units.TIME_UNITS else "{:.3g}".format
        text = f" {number_text(middle)}" + (f" ({values[0][1]})" if len(values) == 1 and figure.of else "")
        text += f" ({number_text(min(heights))} to {number_text(max(heights))})" if len(heights) > 1 else ""
        axes.annotate(text, (max(heights), number), va="center", fontsize=8.5)
    axes.set_yticks(range(len(rows)), [run for run, _ in rows], fontsize=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if figure.log and any(height > 0 for _, values in rows for height, _ in values):
        axes.set_xscale("log")
        axes.margins(x=0.25)
        is_time = label in units.TIME_UNITS
        axes.xaxis.set_major_formatter(lambda value, _: units.show_seconds(value) if is_time else f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        label = f"{'time' if is_time else label}, logarithmic"
    else:
        axes.margins(x=0.25)
        axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="y")
    statements = "; ".join(f"{run}: {spread_text([height for height, _ in values])}" for run, values in rows)
    return Drawing(name, title, f"{title}, {label}. {statements}.", canvas)


def message_cdf(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawing:
    """Return the distribution of message completion times, over all repeats."""
    times_by_work: dict[tuple[str, str], list[float]] = {}
    for run, _, measurement in runs:
        for flow in measurement.outcome.flows:
            if flow.latencies_s:
                times_by_work.setdefault((base_name(run), flow.work), []).extend(flow.latencies_s)
    words = ("messages", "time from posting to completion", "not measured (measure: {latency: true})")
    return _cdf(name, title_of(figure, runs, "time of a message"), (scenario, runs), times_by_work, words)


def iteration_cdf(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawing:
    """Return the distribution of iteration times of collectives and training, over all repeats."""
    times_by_work = {
        key: [duration_s for repeat in repeats for _, duration_s in repeat]
        for key, repeats in _iterations(runs).items()
    }
    words = ("iterations", "time of an iteration", "no iteration ended")
    return _cdf(name, title_of(figure, runs, "time of an iteration"), (scenario, runs), times_by_work, words)


def _iterations(runs: Runs) -> dict[tuple[str, str], list[list[tuple[float, float]]]]:
    """Return (run, work) -> for each repeat the (end, duration) of its iterations, seconds."""
    out: dict[tuple[str, str], list[list[tuple[float, float]]]] = {}
    for run, _, measurement in runs:
        for collective in measurement.outcome.collectives:
            times = [(i.finished_s, i.finished_s - i.started_s) for i in collective.iterations]
            if times:
                out.setdefault((base_name(run), collective.work), []).append(times)
    return out


def iterations_over_time(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawing:
    """Draw the time of each iteration at its end; of repeats the first."""
    title = title_of(figure, runs, "time of an iteration")
    canvas, (axes,) = canvas_of(title)
    shown_iterations = {key: _in_span(figure, repeats[0]) for key, repeats in _iterations(runs).items()}
    iterations = dict([item for item in shown_iterations.items() if item[1]][:RUNS_MAX])
    labels, looks = _work_styles(list(iterations), scenario, runs)
    unit_name, unit = units.time_unit(max((t for points in iterations.values() for _, t in points), default=0.0))
    statements = []
    for key, points in iterations.items():
        ends_s = [end_s for end_s, _ in points]
        durations = [duration_s / unit for _, duration_s in points]
        axes.plot(ends_s, durations, marker="o", ms=2.5, label=labels[key], **looks[labels[key]])
        span_text = f"{min(durations):.3g} to {max(durations):.3g} {unit_name}"
        statements.append(f"{labels[key]}: {len(durations)} of {span_text}")
    if not iterations:
        axes.annotate("no iteration ended", (0.5, 0.5), xycoords="axes fraction", ha="center")
    groups = group_repeats(runs)
    differ = mark_all(axes, groups, styles_of(runs, scenario.variants))
    # The last point is not on the edge.
    last_s = max((end_s for points in iterations.values() for end_s, _ in points), default=1.0)
    name_times(axes, last_s * 1.02 if figure.stop is None else figure.stop, figure.start or 0.0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"time of an iteration, {unit_name}")
    legend(canvas, axes)
    text = f"{title}: a point for each, where it ended. {'; '.join(statements) or 'No iteration ended'}."
    text += " Runs have different faults, which are marked below, run by run." if differ else ""
    text += " Drawn is the first of the repeats." if len(runs) > len(groups) else ""
    return Drawing(name, title, text, canvas, [])


def _work_styles(
    keys: list[tuple[str, str]], scenario: Scenario, runs: Runs
) -> tuple[dict[tuple[str, str], str], dict[str, dict[str, Any]]]:
    """Return the label of each (run, work), without common parts, and the style of each label."""
    several_runs, several_works = (len({key[index] for key in keys}) > 1 for index in (0, 1))
    labels = {(run, work): " ".join([run] * several_runs + [work] * several_works) or work for run, work in keys}
    variants = {base_name(run): variant_of(label, measurement.plan) for run, label, measurement in runs}
    return labels, styles({labels[key]: variants[key[0]] for key in keys}, scenario.variants)


def _cdf(
    name: str,
    title: str,
    scenario_runs: tuple[Scenario, Runs],
    times_by_work: dict[tuple[str, str], list[float]],
    words: tuple[str, str, str],
) -> Drawing:
    """Return a distribution. `words`: the counted noun, the axis, the text for an empty figure."""
    canvas, (axes,) = canvas_of(title)
    shown_works = dict(list(times_by_work.items())[:RUNS_MAX])
    labels, looks = _work_styles(list(shown_works), *scenario_runs)
    statements = []
    unit_name, unit = units.time_unit(max((max(times) for times in shown_works.values()), default=0.0))
    for key, times in shown_works.items():
        times.sort()
        label, shares = labels[key], [(i + 1) / len(times) for i in range(len(times))]
        axes.step([t / unit for t in times], shares, where="post", label=label, **looks[label])
        p50, p99 = (units.show_seconds(times[min(len(times) - 1, int(q * len(times)))]) for q in (0.5, 0.99))
        statements.append(f"{label}: {len(times)} {words[0]}, half within {p50}, 99 % within {p99}")
    if not times_by_work:
        axes.annotate(words[2], (0.5, 0.5), xycoords="axes fraction", ha="center")
    else:
        axes.set_xscale("log")
        for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            ticks(lambda value, _: f"{value:g}")
    axes.set_xlabel(f"{words[1]}, {unit_name}")
    axes.set_ylabel(f"share of {words[0]}")
    axes.set_ylim(0, 1.02)
    legend(canvas, axes)
    text = f"{title}, as the share of {words[0]} that took at most so long. {'; '.join(statements) or 'Not measured'}."
    return Drawing(name, title, text, canvas, [])


FIGURES: dict[str, Callable[[str, Figure, Scenario, Runs], Drawing]] = {
    "rate_over_time": over_time,
    "queue_over_time": over_time,
    "size_curve": curve,
    "bars": bars,
    "latency_cdf": message_cdf,
    "iteration_cdf": iteration_cdf,
    "iterations_over_time": iterations_over_time,
}
"""Function of each kind of figure: (name, figure of the scenario, scenario, runs to show)."""
