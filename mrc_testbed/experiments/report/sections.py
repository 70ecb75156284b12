"""Content of a report's sections: rules, timelines and paths, events, numbers, the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from mrc_testbed.console.units import show_rate, show_seconds, show_size
from mrc_testbed.experiments.metrics.assertions import ALWAYS, ExpectationVerdict, Measurements, merge_events, show
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import Spread, base_name, group_repeats, spread_text
from mrc_testbed.experiments.report.canvas import Runs, variant_of
from mrc_testbed.experiments.report.ev_strips import EvLane, flow_svg, lanes
from mrc_testbed.experiments.report.line_colours import INK, line_colours
from mrc_testbed.experiments.report.paper_reference import ratio_distance
from mrc_testbed.experiments.report.pictures import Picture, save
from mrc_testbed.experiments.report.step_times import step_table
from mrc_testbed.experiments.report.timeline import POINTS_MIN, timeline
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.resolve.sizes import in_packets
from mrc_testbed.experiments.run_store import file_name
from mrc_testbed.files.whole_files import write_whole

RUNS_MAX = 8
"""Runs whose timeline is drawn; the CSV files have all."""
FLOWS_MAX = 16
"""Flows of a run whose paths are drawn one by one; the timeline's strips combine all flows."""
LANES_MAX = 64
"""EVs of a flow that are drawn."""
OPEN_MAX = 2
"""Flows of a run that are shown unfolded."""
LIMITS = {"runs": RUNS_MAX, "flows": FLOWS_MAX, "lanes": LANES_MAX, "open": OPEN_MAX}
EVENTS_SHOWN = 200
WIDE_MAX = 8
"""Columns of the table of numbers."""


class TwoLines(NamedTuple):
    """Two lines of a table's cell."""

    text: str
    soft: str
    """Second line, in the colour of remarks; the only line where `text` is empty."""


@dataclass(frozen=True, slots=True)
class PageTable:
    """A plain table."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str | TwoLines]]
    numbers_from: int
    """First column that is aligned to the right, as all after it are."""


# ---- rules --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule with its result, in one run or over all repeats."""

    passed: bool
    rule: str
    reason: str | None
    run: str
    result: str
    paper: str
    """The paper's number and the distance to it; empty where there is none."""
    count: str = ""
    """`2 of 3`: repeats in which the rule held; empty for a single run."""
    bound: str = ""
    """Bound of a rule that did not hold; empty otherwise."""
    span: str = ""
    events: Sequence[str] = ()


def rule_rows(verdicts: list[ExpectationVerdict], repeats: list[Spread]) -> list[RuleRow]:
    """Return the rows of rules, failed rules first; repeats are one row, and one more per failed repeat."""
    spreads = {(repeat.subject, repeat.run): repeat for repeat in repeats if repeat.rule and repeat.repeats > 1}
    by_rule: dict[tuple[str, str], list[ExpectationVerdict]] = {}
    for verdict in verdicts:
        if verdict.rule != ALWAYS:
            by_rule.setdefault((verdict.rule, base_name(verdict.run)), []).append(verdict)
    rows = []
    for key, group in sorted(by_rule.items(), key=lambda item: all(verdict.passed for verdict in item[1])):
        spread = spreads.get(key)
        if spread is not None:
            rows.append(_spread_row(spread, group[0].why))
            group = [verdict for verdict in group if not verdict.passed]
        rows += map(_verdict_row, group)
    return rows


def _verdict_row(verdict: ExpectationVerdict) -> RuleRow:
    return RuleRow(
        verdict.passed,
        verdict.rule,
        verdict.why,
        verdict.run,
        verdict.seen,
        _paper_text(verdict.value, verdict.paper),
        bound="" if verdict.passed else verdict.expected,
        span=verdict.around,
        events=() if verdict.passed else verdict.events,
    )


def _spread_row(spread: Spread, reason: str | None) -> RuleRow:
    return RuleRow(
        spread.repeats_held == spread.repeats,
        spread.subject,
        reason,
        spread.run,
        spread.text(),
        _paper_text(spread.median, spread.paper),
        count=f"{spread.repeats_held} of {spread.repeats}",
    )


def _paper_text(value: float | None, paper_value: float | None) -> str:
    return "" if paper_value is None else f"{paper_value:.3g} there: {ratio_distance(value, paper_value)}"


# ---- timelines and paths ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowStrips:
    """EV states of one flow."""

    name: str
    lanes: int
    changes: int
    svg: Markup


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """Everything over time of one run, the first of its repeats."""

    name: str
    repeats: int
    is_open: bool
    picture: Picture
    flows: list[FlowStrips] = field(default_factory=list)
    """Flows with most changes first; FLOWS_MAX of them have a picture."""
    has_packets: bool = False
    """Whether packets by EV were recorded."""


def timelines(runs: Runs, folder: Path) -> list[RunTimeline]:
    """Return timelines of up to RUNS_MAX runs of at least POINTS_MIN points; write pictures to `folder`."""
    groups = {name: repeats for name, repeats in group_repeats(runs).items() if is_long_enough(repeats[0][2])}
    first = next((name for name in groups if name.casefold() == "mrc"), next(iter(groups), ""))
    variants = {name: variant_of(label, measurement.plan) for name, label, measurement in runs}
    colours = line_colours(variants.values(), runs[0][2].plan.scenario.variants if runs else ())
    out = []
    for run, repeats in list(groups.items())[:RUNS_MAX]:
        first_name, _, measurement = repeats[0]
        ev_lanes = lanes(measurement)
        out.append(
            RunTimeline(
                run,
                len(repeats),
                run == first or len(groups) <= 2,
                save(timeline(run, measurement, ev_lanes, colours[variants[first_name]]), folder),
                _flows(ev_lanes, measurement, folder, run),
                bool(measurement.outcome.series.ev_packets),
            )
        )
    return out


def is_long_enough(measurement: Measurement) -> bool:
    """Return whether a run has points enough for a timeline."""
    return len(measurement.outcome.series.times_s) >= POINTS_MIN


def _flows(ev_lanes: list[EvLane], measurement: Measurement, folder: Path, run: str) -> list[FlowStrips]:
    flows: dict[str, list[EvLane]] = {}
    for lane in ev_lanes:
        flows.setdefault(lane.flow, []).append(lane)
    changes = {flow: sum(lane.changes for lane in flow_lanes) for flow, flow_lanes in flows.items()}
    out = []
    for number, flow in enumerate(sorted(flows, key=lambda flow: -changes[flow])):
        svg = ""
        if number < FLOWS_MAX:
            svg = flow_svg(flow, flows[flow][:LANES_MAX], measurement)
            name = file_name(f"paths-{run}-{flow}")
            write_whole(folder / f"{name}.svg", svg.replace("currentColor", INK).encode())
        out.append(FlowStrips(flow, len(flows[flow]), changes[flow], Markup(svg)))
    return out


# ---- events, numbers, machine -------------------------------------------------------------------------------------


def fabric_text(plan: RunPlan) -> str:
    """Return the fabric in one line."""
    part = plan.fabric
    return (
        f"{part.planes} planes x ({part.racks} T0 + {part.spines} T1), {part.racks * part.hosts_per_rack} hosts; "
        f"mode {part.mode}; links of {show_rate(plan.rate_bps)}, round trip {show_seconds(plan.rtt_s)}"
    )


def recorded_sizes(measurement: Measurement) -> Iterator[str]:
    """Yield a line for each workload: sizes of messages and writes, in bytes and packets."""
    plan, outcome = measurement.plan, measurement.outcome
    for collective in outcome.collectives:
        if collective.largest_write_bytes:
            packets = in_packets(plan, collective.largest_write_bytes, plan.transport.pmtu)
            largest = show_size(collective.largest_write_bytes)
            yield f"{collective.work}: {collective.kind}, largest write {largest} = {packets}"
    for program in outcome.programs:
        codes = ", ".join("ended by the run" if code is None else str(code) for code in program.exit_codes)
        yield f"{program.work}: program `{program.command}` on {', '.join(program.ranks)}; exit codes {codes or 'none'}"
    for work in dict.fromkeys(flow.work for flow in outcome.flows if flow.message_bytes):
        size = next(flow.message_bytes for flow in outcome.flows if flow.work == work)
        yield f"{work}: messages {show_size(size)} = {in_packets(plan, size, plan.transport.pmtu)}"


@dataclass(frozen=True, slots=True)
class EventLog:
    """Events of one run, as lines."""

    run: str
    total: int
    lines: list[str]
    """Lines of up to EVENTS_SHOWN events, then the number of omitted ones."""


def event_logs(runs: Runs) -> list[EventLog]:
    """Return the events of the first repeat of up to RUNS_MAX runs; runs without events are left out."""
    out = []
    for repeats in list(group_repeats(runs).values())[:RUNS_MAX]:
        name, _, measurement = repeats[0]
        lines = [line for _, _, line in merge_events(measurement.outcome.events, measurement.outcome.duration_s)]
        remarks = [f"... and {len(lines) - EVENTS_SHOWN} lines more"] if len(lines) > EVENTS_SHOWN else []
        if measurement.outcome.events_dropped:
            remarks.append(f"{measurement.outcome.events_dropped} events were not kept")
        if lines:
            out.append(EventLog(name, len(lines), [*lines[:EVENTS_SHOWN], *remarks]))
    return out


def numbers(runs: Runs) -> tuple[PageTable, list[str]]:
    """Return a table of every metric by run, and the names of metrics that no run measured.

    With many runs the rows are runs, and only metrics in which the runs differ are columns.
    """
    groups = group_repeats(runs)
    names = list(dict.fromkeys(name for _, _, measurement in runs for name in measurement.outcome.metrics))
    values = {run: {name: _values(group, name) for name in names} for run, group in groups.items()}
    measured_names = [name for name in names if any(values[run][name] for run in groups)]
    heads: list[str]
    rows: list[list[str | TwoLines]]
    if len(groups) <= WIDE_MAX:
        heads = ["metric", *groups]
        rows = [[name, *(_cell(name, groups[run], values[run][name]) for run in groups)] for name in measured_names]
    else:
        telling = [name for name in measured_names if len({str(values[run][name]) for run in groups}) > 1][:WIDE_MAX]
        heads = ["run", *telling]
        rows = [[run, *(_cell(name, groups[run], values[run][name]) for name in telling)] for run in groups]
    return PageTable(heads, rows, 1), [name for name in names if name not in measured_names]


def _values(repeats: Measurements, name: str) -> list[float]:
    metric_values = (measurement.outcome.metrics.get(name) for _, _, measurement in repeats)
    return sorted(value for value in metric_values if value is not None)


def _cell(name: str, repeats: Measurements, values: list[float]) -> str | TwoLines:
    if not values:
        return TwoLines("", "not measured")
    texts = [show(name, value, repeats[0][2]) for value in (median(values), values[0], values[-1])]
    return texts[0] if len(values) == 1 else TwoLines(texts[0], f"{texts[1]} to {texts[2]}")


def repeat_table(repeats: list[Spread]) -> PageTable:
    """Return a table of median and spread of the metrics that rules and figures name."""
    rows = []
    for repeat in repeats:
        if repeat.rule or len(repeat.values) < 2:
            continue
        iqr = " to ".join(spread_text([value], repeat.unit) for value in repeat.iqr) if repeat.iqr is not None else "–"
        ends = [
            spread_text([value], repeat.unit) for value in (repeat.median, repeat.low, repeat.high) if value is not None
        ]
        rows.append([repeat.subject, repeat.run, str(len(repeat.values)), *ends, iqr])
    return PageTable(("over the repeats", "run", "values", "median", "lowest", "highest", "middle half"), rows, 2)


def step_times(runs: Runs) -> PageTable | None:
    """Return a table of the step times of training and traces over several runs; None without."""
    heads, rows = step_table(runs)
    return PageTable(heads, rows, 1) if rows else None


def machine(manifest: dict[str, Any]) -> PageTable:
    """Return a table of the machine, its software and its load."""
    machine_info = manifest["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine_info["packages"].items() if version)
    loads = [run["load"]["busy"] for run in manifest["runs"]]
    busy_text = f"{100 * min(loads):.0f} to {100 * max(loads):.0f} % of all CPUs" if loads else "not measured"
    rows = [
        ("commit", str(machine_info["commit"] or "not known")),
        ("kernel", str(machine_info["kernel"])),
        ("CPU", f"{machine_info['cpus']} x {machine_info['cpu']}"),
        ("Python", str(machine_info["python"])),
        ("packages", packages),
        ("busy", busy_text),
        ("began", str(manifest["began"])),
    ]
    return PageTable(("", ""), rows, 2)
