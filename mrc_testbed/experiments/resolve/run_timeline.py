"""Fabric, work, faults and judged parts of a run on one time line, for people and for programs.

timeline = timeline_of(plan, describe)
timeline.lines(width=100)     # an axis with its unit, and one row for each part
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor, log10
from typing import Any, Literal

from mrc_testbed.console.terminal import Style
from mrc_testbed.console.units import show_seconds, show_size
from mrc_testbed.experiments.language.model import Expect, ExpectFailure, Instant
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.faults import KINDS

Kind = Literal["fabric", "work", "fault", "rule"]
MARKS: dict[str, str] = {"fabric": "-", "work": "=", "fault": "#", "rule": "~"}
"""Character of the bars of each kind."""
BAR_MIN, BAR_MAX, BAR_SHARE = 16, 64, 0.45
"""Columns of a bar: at least, at most, and as a share of all columns."""
TICK_COLUMNS = 8
"""Columns between two marks of the axis, at least."""
FAULTS_MAX = 24
"""Faults that are drawn; JSON has all."""


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One part of a run. Times are seconds from the start of the work."""

    kind: Kind
    text: str
    begin_s: float
    end_s: float | None
    """None: an instant."""
    is_estimated: bool = False
    """Whether a time is only estimated: by the work's bytes at the full rate of its senders."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": self.text,
            "begin_s": self.begin_s,
            "end_s": self.end_s,
            "estimated": self.is_estimated,
        }


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of a run, in the order in which they are drawn."""

    end_s: float
    is_estimated: bool
    """Whether the run ends with its work, at a time that is only estimated."""
    rows: tuple[TimelineRow, ...]

    def to_json(self) -> dict[str, Any]:
        return {"end_s": self.end_s, "estimated": self.is_estimated, "rows": [row.to_json() for row in self.rows]}

    def lines(self, width: int) -> list[str]:
        """Return the axis and the rows, none wider than `width`."""
        columns = max(BAR_MIN, min(BAR_MAX, round(BAR_SHARE * width)))
        texts = Style(width=width - columns - 2)
        out = [line.rstrip() for line in self._axis(columns)]
        faults = [row for row in self.rows if row.kind == "fault"]
        hidden_rows = faults[FAULTS_MAX:]
        for row in self.rows:
            if row in hidden_rows:
                continue
            first, *more_lines = texts.fold(row.text, hang=2).split("\n")
            out.append(f"{self._bar(row, columns)}  {first}".rstrip())
            out += [f"{'':{columns}}  {line}" for line in more_lines]
        if hidden_rows:
            out.append(f"{'':{columns}}  {len(hidden_rows)} more faults (--json)")
        return out

    def _axis(self, columns: int) -> list[str]:
        """Return the labels of the axis and the axis."""
        step = _step(self.end_s, max(1, columns // TICK_COLUMNS))
        labels, axis = "", ["-"] * columns
        for number in range(floor(self.end_s / step * (1 + 1e-9)) + 1):
            column = self._column(number * step, columns)
            label = show_seconds(number * step)
            axis[column] = "+"
            if column >= len(labels) and column + len(label) <= columns:
                labels = f"{labels:{column}}{label} "
        return [labels, "".join(axis)]

    def _bar(self, row: TimelineRow, columns: int) -> str:
        first = self._column(row.begin_s, columns)
        if row.end_s is None:
            return f"{'':{first}}|".ljust(columns)
        last = self._column(row.end_s, columns)
        bar = MARKS[row.kind] * (last - first + 1)
        # What goes on beyond the run, or as long as it takes, has an open end.
        return (f"{'':{first}}{bar[:-1]}>" if row.is_estimated else f"{'':{first}}{bar}").ljust(columns)

    def _column(self, seconds: float, columns: int) -> int:
        return min(columns - 1, max(0, round(seconds / self.end_s * (columns - 1))))


def _step(length: float, marks: int) -> float:
    """Return a step of 1, 2 or 5 times a power of ten with which an axis has at most that many."""
    power: float = 10.0 ** floor(log10(length / marks))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * marks >= length * (1 - 1e-9))


def timeline_of(plan: RunPlan, describe: Callable[[Expect | ExpectFailure], str]) -> Timeline:
    """Return the time line of a run, with rules as `describe` says them. Raises what RunPlan.work raises."""
    steps, parts = plan.steps(), [*_parts(plan)]
    work_ends = [start + (length or 0.0) for _, start, length, _ in parts]
    fault_ends = [step.time.seconds for step in steps if step.time.seconds is not None]
    end_s = plan.duration_s or max([*work_ends, *(1.1 * end for end in fault_ends)], default=0.0) or 1.0
    end_s = min(end_s, plan.limit_s)
    is_known = plan.duration_s is None and all(length is not None for _, _, length, _ in parts)
    work_s = min(end_s, max(work_ends, default=end_s)) if is_known else end_s
    rows = [TimelineRow("fabric", f"fabric: {plan.fabric}", 0.0, end_s)]
    for text, start, length, is_open in parts:
        end = end_s if length is None else min(end_s, start + length)
        span = _span(start, end, "at least " if is_open else "")
        span = f"{show_seconds(start)} until it ends" if length is None else span
        rows.append(TimelineRow("work", f"{text}, {span}", min(start, end), end, is_open))
    rows += _faults(steps, end_s, work_s)
    for rule in plan.scenario.expect:
        if isinstance(rule, (Expect, ExpectFailure)) and (rule.start is not None or rule.stop is not None):
            begin = 0.0 if rule.start is None else _seconds(rule.start, work_s)
            end = end_s if rule.stop is None else _seconds(rule.stop, work_s)
            is_share = any(moment is not None and moment.seconds is None for moment in (rule.start, rule.stop))
            rows.append(TimelineRow("rule", f"rule: {describe(rule)}", begin, min(end_s, end), is_share))
    return Timeline(end_s, plan.duration_s is None, tuple(rows))


def _parts(plan: RunPlan) -> Iterator[tuple[str, float, float | None, bool]]:
    """Yield text, start, length and whether that is open of each workload, in file order.

    The length is None where it is not known.
    """
    work = plan.work()
    for name in work.names:
        flows = [flow for flow in work.flows if flow.work == name]
        if flows:
            start = min(flow.start_s for flow in flows)
            ends, is_open = _flows_end(plan, flows)
            pair = f"{flows[0].source} to {flows[0].target}"
            text = f"{name}: {pair}" if len(flows) == 1 else f"{name}: {len(flows)} flows"
            yield text, start, ends - start, is_open
        for group in work.groups:
            if group.work == name:
                rounds = group.iterations + group.warm_up
                kind = f"{group.kind} of {show_size(group.size_bytes)}"
                text = f"{name}: {kind}, {len(group.ranks)} ranks, {rounds} iteration{'s' * (rounds > 1)}"
                yield text, group.start_s, _rounds_s(plan, group), group.stop_s is None
        for program in work.programs:
            if program.work == name:
                length = None if program.stop_s is None else program.stop_s - program.start_s
                yield f"{name}: {program}", program.start_s, length, length is None


def _flows_end(plan: RunPlan, flows: list[FlowPlan]) -> tuple[float, bool]:
    """Return when flows end, and whether that is the least."""
    run_s = plan.ends_s
    if any(flow.total_bytes is None and flow.stop_s is None for flow in flows):
        return run_s, False
    ends, is_open, bytes_of = [], False, dict[str, int]()
    for flow in flows:
        if flow.total_bytes is None:
            ends.append(flow.stop_s or run_s)
            continue
        is_open = True
        bytes_of[flow.source] = bytes_of.get(flow.source, 0) + flow.total_bytes
        rate = min(plan.nic_bps * plan.payload_share, flow.rate_bps or plan.nic_bps)
        ends.append(flow.start_s + 8 * bytes_of[flow.source] / rate)
    return max(ends), is_open


def _rounds_s(plan: RunPlan, group: CollectivePlan) -> float:
    """Return how long the rounds of a collective take at least, by the bytes that each rank writes."""
    if group.stop_s is not None:
        return group.stop_s - group.start_s
    return (group.iterations + group.warm_up) * 8 * group.size_bytes / (plan.nic_bps * plan.payload_share)


def _faults(steps: list[FaultStep], end_s: float, work_s: float) -> Iterator[TimelineRow]:
    """Yield a row for each fault, until its end or that of the run."""
    undone = {step.undo: step for step in steps if step.undo is not None}
    for step in steps:
        if step.undo is not None:
            continue
        begin, is_share = _seconds(step.time, work_s), step.time.seconds is None
        end: float | None = None
        moment = f"at {step.time} of the work" if is_share else f"at {show_seconds(begin)}"
        if (undo := undone.get(step.number)) is not None:
            end = begin + undo.delay_s if undo.delay_s is not None else _seconds(undo.time, work_s)
            moment += f" for {show_seconds(end - begin)}"
        elif KINDS[step.action].lasts:
            end = end_s
            moment += " to the end"
        yield TimelineRow(
            "fault", f"{step.fault}, {moment}", min(begin, end_s), None if end is None else min(end, end_s), is_share
        )


def _seconds(moment: Instant, work_s: float) -> float:
    return moment.seconds if moment.seconds is not None else (moment.share or 0.0) * work_s


def _span(begin: float, end: float, prefix: str) -> str:
    return f"{show_seconds(begin)} to {prefix}{show_seconds(end)}"
