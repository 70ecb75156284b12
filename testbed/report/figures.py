"""Figures of a report, drawn with matplotlib: each a Figure object that page.py saves as SVG and PNG.

Colours are a set that people with colour blindness tell apart (Okabe and Ito), one a run, the same in every figure;
what the paper shows is grey and dashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from testbed.scenario.measure import Measured
from testbed.scenario.metrics import find
from testbed.scenario.model import Figure, Scenario

matplotlib.use("svg")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
PAPER = {"color": "#777777", "linestyle": "--", "linewidth": 1.2, "zorder": 1}
STATE_COLOURS = {"good": "#d9efe6", "skip": "#f6e3b4", "assumed_bad": "#D55E00", "denied": "#444444"}
WIDTH, HEIGHT = 8.0, 3.4
"""Inches."""
RUNS_MAX = 8
"""Lines of one time figure; more cannot be told apart."""
STRIPS_MAX = 32

Runs = Sequence[tuple[str, dict[str, Any], Measured]]
"""(name, label, measured)."""


@dataclass(slots=True)
class Drawn:
    """A figure with a name for its files and words for who cannot see it."""

    name: str
    title: str
    text: str
    canvas: Canvas


def draw_all(scenario: Scenario, runs: Runs) -> list[Drawn]:
    """What the scenario asks for, then what every scenario gets."""
    out = []
    for number, figure in enumerate(scenario.figures):
        kind = {
            "rate_over_time": over_time, "queue_over_time": over_time, "size_curve": curve, "bars": bars,
            "latency_cdf": cdf,
        }[figure.kind]  # fmt: skip
        out.append(kind(f"figure{number + 1}", figure, scenario, runs))
    for name, _, measured in runs[:RUNS_MAX]:
        if strips := ev_strips(name, measured):
            out.append(strips)
    for name, _, measured in runs[:RUNS_MAX]:
        out += [drawn for drawn in (planes(name, measured), congestion(name, measured)) if drawn]
    if any(flow.latencies_s for _, _, measured in runs for flow in measured.outcome.flows):
        out.append(cdf("latency", Figure(kind="latency_cdf", title="Time of a message"), scenario, runs))
    return out


def _canvas(title: str, height: float = HEIGHT) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
    axes = canvas.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.25)
    return canvas, axes


def _legend(axes: Axes) -> None:
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(fontsize=8, frameon=False, loc="best")


def _scale(figure: Figure, measured: Measured, runs: Runs) -> tuple[float, str]:
    """What values are divided by, and the name of the axis."""
    metric = find(figure.metric, measured.outcome.works(), measured.scenario.measure.queues)
    unit = metric.unit if metric else ""
    if figure.of == "baseline":
        return measured.baseline(figure.metric) or 1.0, "share of the rate before the fault"
    if figure.of == "capacity":
        return measured.outcome.capacity_bps or 1.0, "share of the NICs' capacity"
    if figure.of is not None:
        for _, label, other in runs:
            if label.get("variant") == figure.of:
                return other.value(figure.metric) or 1.0, f"share of {figure.of}"
    return (1e6, "Mb/s") if unit == "bit/s" else (1.0, unit)


def fault_lines(axes: Axes, measured: Measured) -> None:
    """Vertical lines where faults began and ended."""
    marks = [e for e in measured.outcome.events if e["what"] == "fault" and e["t"] >= 0]
    for event in marks[:60]:
        axes.axvline(
            event["t"], color="#bbbbbb" if event["undo"] is not None else "#aa3333", lw=0.8, alpha=0.6, zorder=0
        )


def over_time(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawn:
    """A series metric over time, one line a run, and the paper's."""
    canvas, axes = _canvas(figure.title or figure.metric)
    said = []
    for number, (run, _, measured) in enumerate(runs[:RUNS_MAX]):
        scale, label = _scale(figure, measured, runs)
        times = measured.outcome.series.times_s
        before = [0.0, *times[:-1]]
        values = [measured.values_between(figure.metric, low, high) for low, high in zip(before, times, strict=True)]
        points = [(t, value / scale) for t, value in zip(times, values, strict=True) if value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=COLOURS[number % len(COLOURS)], lw=1.6, label=run)
            shares = [y for _, y in points]
            said.append(f"{run}: {min(shares):.3g} to {max(shares):.3g}")
        axes.set_ylabel(label)
    for label, series in (scenario.paper.series if scenario.paper else {}).items():
        if figure.of in ("baseline", "capacity"):
            axes.plot(*zip(*series, strict=True), label=label, **PAPER)
    if runs:
        fault_lines(axes, runs[0][2])
    axes.set_xlabel("time, s")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return Drawn(name, figure.title or figure.metric, "; ".join(said), canvas)


def curve(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawn:
    """A metric against a swept size, one line for each combination of the other labels."""
    canvas, axes = _canvas(figure.title or figure.metric, 4.2)
    lines: dict[str, list[tuple[float, float]]] = {}
    label = ""
    for _, labels, measured in runs:
        value = measured.value(figure.metric)
        if value is None or figure.x is None:
            continue
        scale, label = _scale(figure, measured, runs)
        rest = " ".join(str(v) if k == "variant" else f"{k} {v}" for k, v in labels.items() if k != figure.x)
        lines.setdefault(rest, []).append((_number(labels[figure.x]), value / scale))
    markers, groups = "osv^D*", {key: number for number, key in enumerate(lines)}
    for rest, points in lines.items():
        number = groups[rest]
        axes.plot(
            *zip(*sorted(points), strict=True), color=COLOURS[number % len(COLOURS)], label=rest or figure.metric,
            marker=markers[number % len(markers)], ms=4, lw=1.4, ls="-" if "0%" in rest or "loss" not in rest else "--",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xlabel(f"{figure.x}, bytes")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    _legend(axes)
    said = "; ".join(f"{rest}: {max(y for _, y in points):.3g} at most" for rest, points in lines.items())
    return Drawn(name, figure.title or figure.metric, said, canvas)


def _number(value: Any) -> float:
    from topologies import units

    return float(units.size(value)) if isinstance(value, str) else float(value)


def bars(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawn:
    """One bar a run."""
    canvas, axes = _canvas(figure.title or figure.metric)
    names, heights, label = [], [], ""
    for run, _, measured in runs:
        value = measured.value(figure.metric)
        if value is not None:
            scale, label = _scale(figure, measured, runs)
            names.append(run)
            heights.append(value / scale)
    axes.bar(range(len(names)), heights, color=[COLOURS[i % len(COLOURS)] for i in range(len(names))], width=0.6)
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=20 if len(names) > 4 else 0)
    axes.set_ylabel(label)
    said = "; ".join(f"{run}: {height:.4g}" for run, height in zip(names, heights, strict=True))
    return Drawn(name, figure.title or figure.metric, said, canvas)


def cdf(name: str, figure: Figure, scenario: Scenario, runs: Runs) -> Drawn:
    """How long messages took: the share of them that took at most x."""
    canvas, axes = _canvas(figure.title or "Time of a message")
    number, said = 0, []
    for run, _, measured in runs:
        for work in measured.outcome.works():
            times = sorted(t for f in measured.outcome.flows if f.work == work for t in f.latencies_s)
            if times:
                shares = [(i + 1) / len(times) for i in range(len(times))]
                axes.plot(
                    [t * 1e3 for t in times], shares, color=COLOURS[number % len(COLOURS)], label=f"{run}: {work}"
                )
                said.append(f"{run} {work}: median {times[len(times) // 2] * 1e3:.3g} ms")
                number += 1
    axes.set_xscale("log")
    axes.set_xlabel("time from posting to completion, ms")
    axes.set_ylabel("share of messages")
    _legend(axes)
    return Drawn(name, figure.title or "Time of a message", "; ".join(said), canvas)


def ev_strips(name: str, measured: Measured) -> Drawn | None:
    """One strip a path of the first flow: what its EV was, when."""
    events = [e for e in measured.outcome.events if e["what"] == "ev"]
    if not events:
        return None
    first = (events[0]["host"], events[0]["qpn"])
    mine = [e for e in events if (e["host"], e["qpn"]) == first]
    evs = sorted({e["ev"] for e in mine})[:STRIPS_MAX]
    end = measured.outcome.duration_s
    title = f"Paths that changed, {first[0]} to {mine[0]['peer']} ({name})"
    canvas, axes = _canvas(title, 0.8 + 0.22 * max(len(evs), 3))
    for row, ev in enumerate(evs):
        at, state = 0.0, "good"
        for event in [*[e for e in mine if e["ev"] == ev], {"t": end, "new": ""}]:
            axes.barh(row, max(event["t"] - at, 0), left=at, height=0.8, color=STATE_COLOURS.get(state, "#eeeeee"))
            at, state = event["t"], event["new"]
    planes_of = {e["ev"]: e["plane"] for e in mine}
    axes.set_yticks(range(len(evs)), [f"plane {planes_of[ev]}  EV {ev:#06x}" for ev in evs], fontsize=7)
    axes.set_xlim(0, end)
    axes.set_xlabel("time, s")
    axes.grid(False)
    fault_lines(axes, measured)
    for state, colour in STATE_COLOURS.items():
        axes.barh(0, 0, color=colour, label=state.replace("_", " ").upper())
    axes.legend(fontsize=7, ncols=4, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    return Drawn(f"evs-{name}", title, f"{len(mine)} changes of {len(evs)} EVs", canvas)


def planes(name: str, measured: Measured) -> Drawn | None:
    """What hosts sent over each plane."""
    series = measured.outcome.series
    if not series.plane_bps:
        return None
    canvas, axes = _canvas(f"Sent over each plane ({name})", 2.6)
    count = len(series.plane_bps[0])
    columns = [[values[p] / 1e6 for values in series.plane_bps] for p in range(count)]
    axes.stackplot(series.times_s, *columns, labels=[f"plane {p}" for p in range(count)],
                   colors=[COLOURS[p % len(COLOURS)] for p in range(count)], alpha=0.75)  # fmt: skip
    axes.set_xlabel("time, s")
    axes.set_ylabel("Mb/s, headers included")
    axes.legend(fontsize=7, ncols=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    fault_lines(axes, measured)
    mean = [sum(column) / len(column) for column in columns]
    said = "mean " + ", ".join(f"{value:.3g}" for value in mean) + " Mb/s"
    return Drawn(f"planes-{name}", f"Sent over each plane ({name})", said, canvas)


def congestion(name: str, measured: Measured) -> Drawn | None:
    """Marks, trims, drops and losses, per second; the recorded queues beneath."""
    series = measured.outcome.series
    lines = {key: getattr(series, key) for key in ("marked", "trimmed", "dropped", "lost")}
    if not any(any(values) for values in lines.values()) and not series.queues:
        return None
    title = f"Marks, trims, drops, losses ({name})"
    canvas, axes = _canvas(title, 2.6)
    for number, (key, values) in enumerate(lines.items()):
        if any(values):
            rate = [float("nan") if value is None else value / series.every_s for value in values]
            axes.plot(series.times_s[: len(rate)], rate, color=COLOURS[number], label=key, lw=1.2)
    axes.set_ylabel("packets/s")
    axes.set_xlabel("time, s")
    if series.queues:
        twin = axes.twinx()
        for number, (port, values) in enumerate(list(series.queues.items())[:4]):
            kilobytes = [float("nan") if value is None else value / 1e3 for value in values]
            style = {"color": COLOURS[4 + number % 4], "lw": 1, "ls": ":", "label": f"queue {port}"}
            twin.plot(series.times_s[: len(values)], kilobytes, **style)
        twin.set_ylabel("queue, kB")
        twin.legend(fontsize=7, frameon=False, loc="upper left")
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    fault_lines(axes, measured)
    said = ", ".join(f"{sum(value or 0 for value in values)} {key}" for key, values in lines.items())
    return Drawn(f"congestion-{name}", title, said, canvas)
