"""Summary of a finished scenario as `mrc run` prints it, line by line, for 80 columns.

for style, line in summary_lines(report, width=80): ...       # style: "", "good", "bad", "note", "soft"

A rule that held takes a line or two; one that did not shows expected and measured value and the events around.
With repeats a rule is printed once, with the median and the spread of its values and in how many repeats it held.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrc_testbed.console.units import show_length, show_seconds
from mrc_testbed.experiments.backend.outcome import PROGRAM, CollectiveOutcome
from mrc_testbed.experiments.metrics.assertions import ALWAYS, ExpectationVerdict
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import Spread, base_name
from mrc_testbed.experiments.report.step_times import PROGRAMS, step_table

if TYPE_CHECKING:
    from mrc_testbed.experiments.runner import RunReport

WIDTH_MAX = 100
"""Widest line, in columns: longer lines are hard to read on any terminal."""
CAUSES_MAX = 8
"""Most first causes printed; the verdicts below show the others."""
Line = tuple[str, str]
"""Style and text."""


def summary_lines(report: RunReport, width: int) -> Iterator[Line]:
    """Yield the whole summary."""
    width = max(40, min(width, WIDTH_MAX))
    yield from _wrap(
        "good" if report.passed else "bad",
        "passed  " if report.passed else "FAILED  ",
        f"{report.scenario}: {report.title}",
        width,
    )
    for run_name, cause in list(report.causes.items())[:CAUSES_MAX]:
        name = f" ({run_name})" if len(report.runs) > 1 else ""
        yield from _wrap("bad", "  first cause  ", f"{cause}{name}", width)
    repeated = any(repeat.rule and repeat.repeats > 1 for repeat in report.repeats)
    names_runs = len({base_name(run.name) for run, _ in report.runs}) > 1
    if repeated:
        yield from _repeats(report, names_runs, width)
    else:
        for verdict in report.verdicts:
            yield from _verdict(verdict, names_runs, width)
    if not report.has_rules:
        yield from _default_rules(report, names_runs, width)
    # programs have no rule by default, and their step times are their result
    yield from _step_times(report, width)
    for note, names in _notes(report).items():
        yield from _wrap("note", "  note  ", f"{_note_prefix(names, len(report.runs))}{note}", width)
    duration_s = sum(outcome.duration_s for _, outcome in report.runs)
    runs_text = f"{len(report.runs)} run{'s' if len(report.runs) > 1 else ''}"
    text = f"{runs_text}, {show_length(duration_s)} in {show_length(report.wall_s)}"
    if report.folder:
        text += f"; results in {report.folder}"
        text += f", digest {report.digest[:12]}" if report.digest else ""
    yield from _wrap("soft", "  ", text, width)


def _default_rules(report: RunReport, names_runs: bool, width: int) -> Iterator[Line]:
    """Yield the unwritten rules, the only ones that judged a scenario without rules."""
    for verdict in report.verdicts:
        if verdict.rule == ALWAYS:
            name = f" ({verdict.run})" if names_runs else ""
            yield from _wrap("good", "  ok    ", f"{verdict.rule}{name}: {verdict.seen}", width)
    yield from _wrap("note", "  note  ", "the scenario has no rules of its own here: nothing else was judged", width)


def _step_times(report: RunReport, width: int) -> Iterator[Line]:
    """Yield a table of the programs' step times, of a single run a sentence."""
    heads, rows = step_table([(run.name, outcome.label, Measurement(outcome, run)) for run, outcome in report.runs])
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, *rows] if rows else []:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "soft" if row is heads else "", "  ".join(["  " + row[0].ljust(widths[0]), *cells])
    for _, outcome in report.runs if not rows else []:
        for collective in outcome.collectives:
            if collective.kind in PROGRAMS and collective.iterations:
                yield from _wrap("", "  ", _iterations(collective), width, inner=2)


def _iterations(collective: CollectiveOutcome) -> str:
    """Return `job: 20 iterations of 1.2 s (median; 1.1 to 1.9), 63 % of it without computing`."""
    times = sorted(iteration.finished_s - iteration.started_s for iteration in collective.iterations)
    exposed_share = sum(iteration.exposed for iteration in collective.iterations) / len(times)
    spread = f" (median; {show_seconds(times[0])} to {show_seconds(times[-1])})" if len(times) > 1 else ""
    noun = "step" if collective.kind == PROGRAM else "iteration"
    plural = "s" if len(times) > 1 else ""
    text = f"{collective.work}: {len(times)} {noun}{plural} of {show_seconds(times[len(times) // 2])}{spread}"
    return text if collective.kind == PROGRAM else f"{text}, {100 * exposed_share:.0f} % of it without computing"


def _notes(report: RunReport) -> dict[str, list[str]]:
    """Return each note with the names of its runs."""
    runs_by_note: dict[str, list[str]] = {}
    for run, outcome in report.runs:
        for note in dict.fromkeys(outcome.notes):
            runs_by_note.setdefault(note, []).append(run.name)
    return runs_by_note


def _note_prefix(names: list[str], run_count: int) -> str:
    """Return the runs in front of a note: empty for a single run, "all" for a note of all runs."""
    if run_count == 1:
        return ""
    if len(names) == run_count:
        return f"all {run_count} runs: "
    return f"{', '.join(names)}: "


def _verdict(verdict: ExpectationVerdict, names_runs: bool, width: int) -> Iterator[Line]:
    if verdict.rule == ALWAYS and verdict.passed:
        return
    name = f" ({verdict.run})" if names_runs else ""
    if verdict.passed:
        yield from _wrap("good", "  ok    ", f"{verdict.rule}{name}: {verdict.seen}", width)
        return
    yield from _wrap("bad", "  NOT   ", f"{verdict.rule}{name}", width)
    yield from _failed(verdict, width)


def _failed(verdict: ExpectationVerdict, width: int) -> Iterator[Line]:
    """Yield the expected value, the measured one, the events around it."""
    for key, text in (("expected", verdict.expected), ("seen", verdict.seen), ("why", verdict.why)):
        if text:
            yield from _wrap("", f"        {key:9s} ", text, width)
    if verdict.events:
        yield "", f"        events {verdict.around}:" if verdict.around else "        events:"
        for line in verdict.events:
            yield from _wrap("soft", "        ", line, width, inner=14)


def _repeats(report: RunReport, names_runs: bool, width: int) -> Iterator[Line]:
    """Yield rules over all repeats, then the repeats that failed, then the metrics."""
    failed = [verdict for verdict in report.verdicts if not verdict.passed]
    rules = [
        repeat
        for repeat in report.repeats
        if repeat.rule and not (repeat.subject == ALWAYS and repeat.repeats_held == repeat.repeats)
    ]
    for rule in rules:
        good = rule.repeats_held == rule.repeats
        name = f" ({rule.run})" if names_runs else ""
        yield from _wrap("good" if good else "bad", "  ok    " if good else "  NOT   ", f"{rule.subject}{name}", width)
        yield from _wrap("", "        ", f"held in {rule.repeats_held} of {rule.repeats}: {_values(rule)}", width)
        for verdict in failed:
            if (verdict.rule, base_name(verdict.run)) == (rule.subject, rule.run):
                yield from _wrap("bad", "        ", f"in {verdict.run}:", width)
                yield from _failed(verdict, width)
    rule_keys = {(rule.subject, rule.run) for rule in rules}
    for verdict in failed:
        # a verdict whose run was not measured has no spread
        if (verdict.rule, base_name(verdict.run)) not in rule_keys:
            yield from _verdict(verdict, names_runs, width)
    metrics = [repeat for repeat in report.repeats if not repeat.rule]
    if metrics:
        seeds = sorted({seed for metric in metrics for seed in metric.seeds})
        yield "soft", f"  over the whole run, seeds {', '.join(map(str, seeds))}:"
    for metric in metrics:
        name = f" ({metric.run})" if names_runs else ""
        yield from _wrap("", "        ", f"{metric.subject}{name}: {metric.text()}", width, inner=2)


def _values(spread: Spread) -> str:
    return spread.text() + (f"; the paper has {spread.paper:g}" if spread.paper is not None else "")


def _wrap(style: str, first: str, text: str, width: int, inner: int = 0) -> Iterator[Line]:
    """Yield `text` after `first`; further lines are indented to it, and by `inner` columns more."""
    indent = " " * (len(first) + inner)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        drop_whitespace=True,
        break_long_words=False,
    )
    for line in lines or [first.rstrip()]:
        yield style, line
