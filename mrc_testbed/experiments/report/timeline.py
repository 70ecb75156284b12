"""One figure per run with everything over time: panels below each other on the same time axis.

rate of each workload | steps of programs | faults | EV states by plane and T1 | sent over each plane | marks, trims,
drops | losses and retransmissions | queue depths.  Panels whose values are all 0, or were not read, are not drawn;
`text` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from mrc_testbed.console.units import rate_unit, show_seconds, time_unit
from mrc_testbed.experiments.backend.outcome import PROGRAM, CollectiveOutcome
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.canvas import BEGIN, WIDTH, Drawing, mark_faults, name_times
from mrc_testbed.experiments.report.ev_strips import STATES, EvLane, by_path, shares
from mrc_testbed.experiments.report.faults import Bar, fault_bars
from mrc_testbed.experiments.report.line_colours import COLOURS

ROWS_MAX = 40
"""Most strips of one figure; more are drawn by plane only."""
QUEUES_MAX = 6
LABEL_MAX = 30
"""Most characters of a fault's name at the side; the events have the full name."""
POINTS_MIN = 4
"""Fewest intervals of a run that has a timeline."""
KINDS = {"marked": "marked CE", "trimmed": "trimmed", "dropped": "dropped", "link_lost": "lost on links"}
STEPS_TITLE = "Time of a step"
LOSSES = {"lost": "found lost", "retransmitted": "sent again"}


@dataclass(slots=True)
class _Panel:
    """A panel: its height in inches and the function that draws it."""

    height: float
    draw: Callable[[Axes], None]


def timeline(name: str, measurement: Measurement, ev_lanes: list[EvLane], colour: str) -> Drawing:
    """Draw the figure of one run with at least POINTS_MIN points in time; `colour`: that of its variant."""
    series = measurement.outcome.series
    statements: list[str] = []
    panels = []
    has_rates = bool(series.received_bps) or not _program_steps(measurement)
    if has_rates:
        panels.append(_Panel(1.7, lambda axes: _rates(axes, measurement, colour)))
    if _program_steps(measurement):
        panels.append(_Panel(1.5, lambda axes: _steps(axes, measurement)))
        statements.append(_step_text(measurement))
    bars = fault_bars(measurement)
    if bars:
        panels.append(_Panel(0.45 + 0.17 * len(bars), lambda axes: _faults(axes, bars)))
    if ev_lanes:
        rows = _rows(ev_lanes)
        panels.append(_Panel(0.45 + 0.17 * len(rows), lambda axes: _states(axes, rows, measurement)))
        statements.append(_state_text(ev_lanes))
    if series.plane_bps and any(map(any, series.plane_bps)):
        panels.append(_Panel(1.5, lambda axes: _planes(axes, measurement)))
    # Panels that would be empty are left out; their totals are in the text.
    for kinds in (KINDS, LOSSES):
        text, drawn_keys = _counts_text(measurement, kinds)
        statements.append(text)
        if drawn_keys:
            panels.append(_Panel(1.3, partial(_counts, measurement=measurement, drawn_keys=drawn_keys, kinds=kinds)))
    if any(depth for depths in series.queues.values() for depth in depths):
        panels.append(_Panel(1.3, lambda axes: _queues(axes, measurement)))
    statements.append(_queue_text(measurement))
    canvas = Canvas(figsize=(WIDTH, 0.5 + sum(panel.height for panel in panels)), layout="constrained")
    heights = [panel.height for panel in panels]
    axes = canvas.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for panel, axis in zip(panels, axes, strict=True):
        panel.draw(axis)
        mark_faults(axis, measurement, named=False)
    # The picture stands alone as well.
    subject = "Received payload" if has_rates else STEPS_TITLE
    axes[0].set_title(f"{name}: {subject[0].lower()}{subject[1:]}" if name != "run" else subject)
    name_times(axes[-1], max(measurement.outcome.duration_s, series.times_s[-1]))
    return Drawing(
        f"timeline-{name}", f"All of {name} over time", " ".join(text for text in statements if text), canvas
    )


def _legend(axes: Axes) -> None:
    """Draw the legend at the right of the panel, where no line is covered."""
    axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.04), handlelength=1.2)


def _middles(times: list[float]) -> list[float]:
    return [(low + high) / 2 for low, high in zip([0.0, *times[:-1]], times, strict=True)]


def _rates(axes: Axes, measurement: Measurement, colour: str) -> None:
    """Draw the goodput of each workload; a single one has the colour of the run's variant."""
    times = measurement.outcome.series.times_s
    programs = [program.work for program in measurement.outcome.programs]
    works = [work for work in measurement.outcome.works() if work not in programs][: len(COLOURS)]
    edges = list(zip([0.0, *times[:-1]], times, strict=True))
    rates = {work: [measurement.value_between(f"rate.{work}", low, high) for low, high in edges] for work in works}
    unit_name, unit = rate_unit(max((rate or 0.0 for values in rates.values() for rate in values), default=0.0))
    for number, (work, values) in enumerate(rates.items()):
        axes.plot(
            _middles(times),
            [float("nan") if v is None else v / unit for v in values],
            lw=1.5,
            color=COLOURS[number] if len(works) > 1 else colour,
            label=work,
        )
    axes.set_ylabel(unit_name)
    axes.set_ylim(0, 1.06 * max(axes.get_ylim()[1], 1e-9))
    _legend(axes)


def _program_steps(measurement: Measurement) -> list[CollectiveOutcome]:
    return [collective for collective in measurement.outcome.collectives if collective.kind == PROGRAM]


def _steps(axes: Axes, measurement: Measurement) -> None:
    """Draw the time of each step of each program where it ended."""
    programs = _program_steps(measurement)
    longest_s = max(i.finished_s - i.started_s for program in programs for i in program.iterations)
    unit_name, unit = time_unit(longest_s)
    for number, program in enumerate(programs):
        ends_s = [i.finished_s for i in program.iterations]
        times = [(i.finished_s - i.started_s) / unit for i in program.iterations]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(ends_s, times, marker="o", ms=2.5, lw=1.0, color=colour, label=program.work)
    axes.set_title(STEPS_TITLE)
    axes.set_ylabel(unit_name)
    axes.set_ylim(bottom=0)
    _legend(axes)


def _step_text(measurement: Measurement) -> str:
    texts = []
    for program in _program_steps(measurement):
        times = sorted(i.finished_s - i.started_s for i in program.iterations)
        texts.append(f"{program.work} {len(times)} of {show_seconds(times[0])} to {show_seconds(times[-1])}")
    return f"Steps: {', '.join(texts)}."


def _faults(axes: Axes, bars: dict[str, list[Bar]]) -> None:
    """Draw a row of bars per fault, or per kind of fault, from start to end."""
    for number, spans in enumerate(bars.values()):
        for start, stop in spans:
            axes.barh(number, max(stop - start, 0.0), left=start, height=0.7, color=BEGIN, alpha=0.75, zorder=2)
            if stop <= start:
                axes.plot(start, number, marker="|", color=BEGIN, ms=9)
    labels = [label if len(label) <= LABEL_MAX else label[: LABEL_MAX - 3] + "..." for label in bars]
    axes.set_yticks(range(len(bars)), labels, fontsize=7.5)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.set_title("Faults")


def _rows(ev_lanes: list[EvLane]) -> dict[str, list[EvLane]]:
    """Return the lanes by plane and T1, or by plane alone for more than ROWS_MAX rows."""
    rows = by_path(ev_lanes)
    if len(rows) <= ROWS_MAX:
        return rows
    out: dict[str, list[EvLane]] = {}
    for lane in sorted(ev_lanes, key=lambda lane: lane.plane):
        out.setdefault(f"plane {lane.plane}", []).append(lane)
    return out


def _states(axes: Axes, rows: dict[str, list[EvLane]], measurement: Measurement) -> None:
    """Draw a strip per path; a state fills a share of the height, that of its EVs among all QPs' EVs."""
    end = measurement.outcome.duration_s
    shown_states = {"good"}
    for number, row in enumerate(rows.values()):
        axes.barh(number, end, height=0.84, color=STATES["good"][1], zorder=1)
        edges, state_shares = shares(row)
        bottom = [number - 0.42] * len(edges)
        for state, values in state_shares.items():
            shown_states.add(state)
            top = [low + 0.84 * value for low, value in zip(bottom, values, strict=True)]
            axes.fill_between(edges, bottom, top, step="post", color=STATES[state][1], lw=0, zorder=2)
            bottom = top
    axes.set_yticks(range(len(rows)), list(rows), fontsize=7.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    has_several_qps = max(len(row) for row in rows.values()) > 1
    axes.set_title("EV states by path" + (" (filled: share of all QPs' EVs on it)" if has_several_qps else ""))
    handles = [Patch(color=colour, label=text) for state, (text, colour) in STATES.items() if state in shown_states]
    axes.legend(handles=handles, fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.04), handlelength=1.2)


def _state_text(ev_lanes: list[EvLane]) -> str:
    changed_lanes = [lane for lane in ev_lanes if lane.changes]
    bad_lanes = [lane for lane in ev_lanes if any(state == "assumed_bad" for _, _, state in lane.spans)]
    if not changed_lanes:
        return f"None of {len(ev_lanes)} EVs changed its state (SKIP, which lasts a turn, is not noted)."
    return f"{len(changed_lanes)} of {len(ev_lanes)} EVs changed, {len(bad_lanes)} of them ASSUMED_BAD for a time."


def _planes(axes: Axes, measurement: Measurement) -> None:
    """Draw the bytes that hosts sent over each plane, stacked."""
    series = measurement.outcome.series
    count = len(series.plane_bps[0])
    unit_name, unit = rate_unit(max(map(sum, series.plane_bps)))
    columns = [[values[p] / unit for values in series.plane_bps] for p in range(count)]
    axes.stackplot(
        _middles(series.times_s),
        *columns,
        labels=[f"plane {p}" for p in range(count)],
        colors=[COLOURS[p % len(COLOURS)] for p in range(count)],
        alpha=0.8,
        lw=0,
    )
    axes.set_title("Sent over each plane, headers included")
    axes.set_ylabel(unit_name)
    _legend(axes)


def _counts_text(measurement: Measurement, kinds: dict[str, str]) -> tuple[str, list[str]]:
    """Return the totals of some kinds of packets in words, and the kinds that are not 0."""
    words, drawn_keys = [], []
    for key, text in kinds.items():
        values = getattr(measurement.outcome.series, key)
        if any(values):
            drawn_keys.append(key)
            words.append(f"{sum(value or 0 for value in values)} {text}" + _gaps(values))
        elif values and None not in values:
            words.append(f"0 {text}")
        else:
            total = measurement.outcome.metrics.get("dropped.queue" if key == "dropped" else key)
            words.append(f"{text}: not read over time" + ("" if total is None else f", {total:g} in the end"))
    return f"Packets: {', '.join(words)}.", drawn_keys


def _gaps(values: list[int | None]) -> str:
    """Return the number of intervals in which a counter could not be read, as text; empty for 0."""
    gap_count = sum(value is None for value in values)
    return f" ({gap_count} of {len(values)} intervals not read)" if gap_count else ""


def _counts(axes: Axes, measurement: Measurement, drawn_keys: list[str], kinds: dict[str, str]) -> None:
    """Draw packets per second of each kind."""
    series = measurement.outcome.series
    middles = _middles(series.times_s)
    spans = [high - low for low, high in zip([0.0, *series.times_s[:-1]], series.times_s, strict=True)]
    for key in drawn_keys:
        # Intervals without a reading are gaps of the line.
        values = getattr(series, key)
        rate = [
            float("nan") if value is None or span <= 0 else value / span
            for value, span in zip(values, spans, strict=False)
        ]
        colour = COLOURS[list({**KINDS, **LOSSES}).index(key)]
        axes.plot(
            middles[: len(rate)],
            rate,
            color=colour,
            lw=1.3,
            label=kinds[key],
            ls="--" if key == "retransmitted" else "-",
            # A slope would begin before the fault.
            drawstyle="steps-mid",
        )
    axes.set_title(
        "Switches and links: " + ", ".join(kinds[key] for key in drawn_keys)
        if kinds is KINDS
        else "Requestors: lost and sent again"
    )
    axes.set_ylabel("packets/s")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _queues(axes: Axes, measurement: Measurement) -> None:
    """Draw the bytes in each queue at the end of each interval; gaps where a queue could not be read."""
    series = measurement.outcome.series
    for number, (port, values) in enumerate(list(series.queues.items())[:QUEUES_MAX]):
        kilobytes = [float("nan") if value is None else value / 1e3 for value in values]
        axes.plot(series.times_s[: len(values)], kilobytes, color=COLOURS[number], lw=1.2, label=port)
    axes.set_title("Queue depth")
    axes.set_ylabel("kB")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _queue_text(measurement: Measurement) -> str:
    queues = measurement.outcome.series.queues
    if not queues:
        return "Queue depths: not read (measure: {queues: [...]})."
    texts = []
    for port, values in list(queues.items())[:QUEUES_MAX]:
        read = [value for value in values if value is not None]
        texts.append(f"{port} {max(read) / 1e3:.3g} kB" if read else f"{port} not read")
    omitted_text = f" and {len(queues) - QUEUES_MAX} more queues" if len(queues) > QUEUES_MAX else ""
    return f"Deepest queue: {', '.join(texts)}{omitted_text}."
