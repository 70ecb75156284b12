"""The parts of a page, each as HTML: verdicts, the paper, figures, timelines with all paths, numbers, the machine."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from experiments.language.assertions import ALWAYS, ExpectationVerdict, show, told_together
from experiments.language.model import Scenario
from experiments.metric_values import Measured
from experiments.repeats import Spread, base_name, grouped, spread_text
from experiments.report import paper_reference
from experiments.report.canvas import INK, Drawn, Runs
from experiments.report.ev_strips import STATES, EvLane, flow_svg, lanes
from experiments.report.page_frame import e, mark, table
from experiments.report.timeline import POINTS_MIN, timeline
from experiments.results import file_name

RUNS_MAX = 8
"""Runs whose timeline is drawn; the CSV files have all."""
FLOWS_MAX = 16
"""Flows of a run whose paths are drawn one by one; the strips of the timeline have all of them together."""
LANES_MAX = 64
OPEN_MAX = 2
"""Flows of a run that are shown without being asked for."""
EVENTS_SHOWN = 200
PNG_DPI = 110
"""Pixels an inch."""
WIDE_MAX = 8
"""Columns of the table of numbers."""


# ---- verdicts and the paper -------------------------------------------------------------------------------------


def verdicts(found: list[ExpectationVerdict], repeats: list[Spread]) -> str:
    """What failed first, with what happened around it; then what held. Repeats of a rule are one line."""
    always = [verdict for verdict in found if verdict.rule == ALWAYS]
    shown = [verdict for verdict in found if verdict.rule != ALWAYS]
    rules = {(one.what, one.run): one for one in repeats if one.rule and one.of > 1}
    by_rule: dict[tuple[str, str], list[ExpectationVerdict]] = {}
    for verdict in shown:
        by_rule.setdefault((verdict.rule, base_name(verdict.run)), []).append(verdict)
    rows = []
    for key, ones in sorted(by_rule.items(), key=lambda item: all(verdict.passed for verdict in item[1])):
        if key in rules:
            rows.append(_spread_row(rules[key], ones[0]))
            ones = [verdict for verdict in ones if not verdict.passed]
        rows += map(_verdict_row, ones)
    text = ""
    if always:
        runs = f"{len(always)} run{'' if len(always) == 1 else 's'}"
        text = f'<p class="soft">In {runs} all bytes and sums came out right, and the work came to its end.</p>'
    if any(one.of > 1 for one in rules.values()):
        text += '<p class="soft">A rule has to hold in every repeat.</p>'
    if not rows:
        return text or "<p>Nothing was expected.</p>"
    heads = ("", "rule", "run", "seen", "beside the paper")
    columns = [at for at in range(len(heads)) if at != 4 or any(row[4] for row in rows)]
    return table([heads[at] for at in columns], [[row[at] for at in columns] for row in rows], stack=True) + text


def _verdict_row(verdict: ExpectationVerdict) -> tuple[str, ...]:
    rule = e(verdict.rule) + (f'<br><span class="soft">{e(verdict.why)}</span>' if verdict.why else "")
    seen = e(verdict.seen)
    if not verdict.passed:
        seen += f"<br>expected {e(verdict.expected)}"
        if verdict.events:
            lines = e("\n".join(verdict.events))
            rule += f"<details><summary>events {e(verdict.around)}</summary><pre>{lines}</pre></details>"
    return (
        mark(verdict.passed, "held", "did not hold"),
        rule,
        e(verdict.run),
        seen,
        _beside(verdict.value, verdict.paper),
    )


def _spread_row(spread: Spread, verdict: ExpectationVerdict) -> tuple[str, ...]:
    why = f'<br><span class="soft">{e(verdict.why)}</span>' if verdict.why else ""
    state = mark(spread.held == spread.of, "held", "did not hold")
    return (
        f"{state} {spread.held} of {spread.of}", e(spread.what) + why, e(spread.run), e(spread.text()),
        _beside(spread.median, spread.paper),
    )  # fmt: skip


def _beside(value: float | None, theirs: float | None) -> str:
    if theirs is None:
        return ""
    return f"{theirs:.3g} there: {e(paper_reference.ratio_distance(value, theirs))}"


def reference(scenario: Scenario) -> str:
    """What the paper saw and how this differs."""
    known = scenario.paper
    if known is None:
        return ""
    rows = [("The paper saw", known.saw), ("Scaled here", known.scaled), ("Cannot be shown here", known.cannot)]
    lines = "".join(f"<b>{e(key)}:</b> {e(text)}<br>" for key, text in rows if text)
    return f'<div class="card"><b>{e(known.id)}, figure {e(known.figure)} of the paper</b><br>{lines}</div>'


# ---- figures ----------------------------------------------------------------------------------------------------


def file_of(drawn: Drawn) -> str:
    """Name of a figure's files, without ending."""
    return file_name(drawn.name)


def figure(drawn: Drawn, folder: Path) -> str:
    """A figure with its words, its files written."""
    svg = _save(folder, drawn)
    beside = "".join(f"<dt>{e(what)}</dt><dd>{e(words)}</dd>" for what, words in drawn.beside)
    told = f'<dl class="beside">{beside}</dl>' if beside else ""
    return f'<figure><div class="picture">{svg}</div>{told}<figcaption>{e(drawn.text)}</figcaption></figure>'


def _save(folder: Path, drawn: Drawn) -> str:
    """SVG and PNG files of a figure; returns the SVG for the page: its colours, its words for screen readers.

    Each is laid out and drawn once, which the canvases do; `savefig` does it all twice for each.
    """
    name = file_of(drawn)
    drawn.canvas.dpi = PNG_DPI
    FigureCanvasAgg(drawn.canvas).print_png(folder / f"{name}.png")
    text = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": drawn.title}
    FigureCanvasSVG(drawn.canvas).print_svg(text, metadata=metadata)
    (folder / f"{name}.svg").write_text(text.getvalue())
    svg = text.getvalue()
    svg = _unique(svg[svg.index("<svg") :], drawn.name)
    svg = svg.replace(INK, "currentColor").replace("fill: #ffffff", "fill: none")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r">\s*\n\s*<", "><", svg)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{e(drawn.text)}" ', svg, count=1)


def _unique(svg: str, name: str) -> str:
    """Ids of one picture must not meet those of another on the same page."""
    prefix = re.sub(r"\W", "_", name) + "_"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    return re.sub(r"url\(#", f"url(#{prefix}", svg)


def timelines(runs: Runs, folder: Path) -> str:
    """One fold a run: everything over time, then every flow's paths. Of repeats the first is shown."""
    groups = {name: repeats for name, repeats in grouped(runs).items() if _long_enough(repeats[0][2])}
    if not groups:
        return "<p>No run lasted for more than a few intervals (measure: every); runs/NAME.csv has what there is.</p>"
    out = []
    first = next((name for name in groups if name.casefold() == "mrc"), next(iter(groups)))
    for run, repeats in list(groups.items())[:RUNS_MAX]:
        measured = repeats[0][2]
        found = lanes(measured)
        summary = e(run) + (f" (the first of {len(repeats)} repeats)" if len(repeats) > 1 else "")
        opened = " open" if run == first or len(groups) <= 2 else ""
        inner = figure(timeline(run, measured, found), folder) + _flows(found, measured, folder, run)
        out.append(f"<details{opened}><summary>{summary}</summary>{inner}</details>")
    text = "<p>Red lines: a fault begins; grey dotted ones: it ends. Folds open one by one.</p>"
    total = len(grouped(runs))
    if total > len(out):
        why = "those that lasted long enough, " if len(groups) < total else ""
        text += f"<p>Drawn are {len(out)} of {total} runs ({why}{RUNS_MAX} at most); runs/NAME.csv has all.</p>"
    return text + "".join(out)


def _long_enough(measured: Measured) -> bool:
    return len(measured.outcome.series.times_s) >= POINTS_MIN


def _flows(found: list[EvLane], measured: Measured, folder: Path, run: str) -> str:
    """A menu of flows, each with a strip for every one of its EVs; those with most changes first."""
    flows: dict[str, list[EvLane]] = {}
    for lane in found:
        flows.setdefault(lane.flow, []).append(lane)
    if not flows:
        return '<p class="soft">EVs were not noted (measure: {evs: false}, or no MRC flow).</p>'
    order = sorted(flows, key=lambda flow: -sum(lane.changes for lane in flows[flow]))
    key = "".join(f'<span><i style="background:{colour}"></i>{text}</span>' for text, colour in STATES.values())
    traffic = " A line in a strip: packets sent over it." if measured.outcome.series.ev_packets else ""
    out = [f'<h3>Paths of each flow</h3><p class="key">{key}{traffic}</p>']
    for flow in order[:FLOWS_MAX]:
        mine = flows[flow]
        changes = sum(lane.changes for lane in mine)
        svg = flow_svg(flow, mine[:LANES_MAX], measured)
        (folder / f"{file_name(f'paths-{run}-{flow}')}.svg").write_text(svg.replace("currentColor", INK))
        more = f'<p class="soft">{LANES_MAX} of {len(mine)} EVs are drawn.</p>' if len(mine) > LANES_MAX else ""
        text = f"{e(flow)}: {len(mine)} EVs, {changes} changes"
        opened = " open" if len(order) <= OPEN_MAX else ""
        out.append(f'<details{opened}><summary>{text}</summary><div class="picture">{svg}</div>{more}</details>')
    if len(order) > FLOWS_MAX:
        out.append(f'<p class="soft">{FLOWS_MAX} of {len(order)} flows, those with most changes.</p>')
    return "".join(out)


def planned(manifest: dict[str, Any]) -> str:
    """Of results that were cut short: the runs that are missing."""
    there = {one["name"] for one in manifest["runs"]}
    missing = [name for name in manifest["planned"] if name not in there]
    return f"<p>Not here: {e(', '.join(missing[:40]))}{' ...' if len(missing) > 40 else ''}</p>" if missing else ""


# ---- what was done, numbers, machine ------------------------------------------------------------------------------


def done(scenario: Scenario, runs: Runs) -> str:
    """The fabric, notes of all runs, events of each."""
    part = scenario.fabric
    text = (
        f"{part.planes} planes x ({part.racks} T0 + {part.spines} T1), {part.racks * part.hosts_per_rack} hosts; "
        f"mode {scenario.mode}; links of {scenario.links.rate / 1e6:g} Mb/s, round trip {scenario.links.rtt * 1e3:g} ms"
    )
    out = [f"<p>{e(text)}{' (the first run; others differ)' if scenario.variants else ''}</p>"]
    for name, _, measured in runs:
        out += [f'<p class="warn" role="note">{e(name)}: {e(note)}</p>' for note in measured.outcome.notes]
    for repeats in list(grouped(runs).values())[:RUNS_MAX]:
        name, _, measured = repeats[0]
        lines = [line for _, _, line in told_together(measured.outcome.events)]
        if lines:
            more = [f"... and {len(lines) - EVENTS_SHOWN} lines more"] if len(lines) > EVENTS_SHOWN else []
            if measured.outcome.events_dropped:
                more.append(f"{measured.outcome.events_dropped} events were not kept")
            told = e("\n".join([*lines[:EVENTS_SHOWN], *more]))
            out.append(
                f"<details><summary>events of {e(name)} ({len(lines)} lines)</summary><pre>{told}</pre></details>"
            )
    return "".join(out)


def numbers(runs: Runs, repeats: list[Spread]) -> str:
    """Every metric by run; with many runs those go down the side, and only what tells them apart is shown."""
    groups = grouped(runs)
    names = list(dict.fromkeys(name for _, _, measured in runs for name in measured.outcome.metrics))
    values = {run: {name: _values(ones, name) for name in names} for run, ones in groups.items()}
    there = [name for name in names if any(values[run][name] for run in groups)]
    if len(groups) <= WIDE_MAX:
        heads = ["metric", *(e(run) for run in groups)]
        rows = [[e(name), *(_cell(name, groups[run], values[run][name]) for run in groups)] for name in there]
    else:
        telling = [name for name in there if len({str(values[run][name]) for run in groups}) > 1][:WIDE_MAX]
        heads = ["run", *map(e, telling)]
        rows = [[e(run), *(_cell(name, groups[run], values[run][name]) for name in telling)] for run in groups]
    missing = [name for name in names if name not in there]
    text = table(heads, rows, numbers=range(1, len(heads)))
    if missing:
        text += f'<p class="soft">Not measured in any run: {e(", ".join(missing))}.</p>'
    several = [one for one in repeats if not one.rule and len(one.values) > 1]
    return text + (_spreads(several) if several else "")


def _spreads(found: list[Spread]) -> str:
    """Median and spread of what rules and figures name."""
    rows = []
    for one in found:
        iqr = (
            "–"
            if one.iqr is None
            else f"{spread_text([one.iqr[0]], one.unit)} to {spread_text([one.iqr[1]], one.unit)}"
        )
        ends = [e(spread_text([value], one.unit)) for value in (one.median, one.low, one.high) if value is not None]
        rows.append((e(one.what), e(one.run), str(len(one.values)), *ends, e(iqr)))
    heads = ("over the repeats", "run", "values", "median", "lowest", "highest", "middle half")
    return "<h3>Repeats</h3>" + table(heads, rows, numbers=(2, 3, 4, 5, 6))


def _values(repeats: Any, name: str) -> list[float]:
    found = (measured.outcome.metrics.get(name) for _, _, measured in repeats)
    return [value for value in found if value is not None]


def _cell(name: str, repeats: Any, values: list[float]) -> str:
    if not values:
        return '<span class="soft">not measured</span>'
    measured = repeats[0][2]
    if len(values) == 1:
        return e(show(name, values[0], measured))
    values = sorted(values)
    middle = values[len(values) // 2] if len(values) % 2 else sum(values[len(values) // 2 - 1 :][:2]) / 2
    low, high = (show(name, value, measured) for value in (values[0], values[-1]))
    return f'{e(show(name, middle, measured))}<br><span class="soft">{e(low)} to {e(high)}</span>'


def machine(manifest: dict[str, Any]) -> str:
    """What ran it and how busy that was."""
    made = manifest["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in made["packages"].items() if version)
    loads = [one["load"]["busy"] for one in manifest["runs"]]
    busy = f"{100 * min(loads):.0f} to {100 * max(loads):.0f} % of all CPUs" if loads else "not measured"
    rows = [
        ("commit", made["commit"] or "not known"), ("kernel", made["kernel"]),
        ("CPU", f"{made['cpus']} x {made['cpu']}"), ("Python", made["python"]), ("packages", packages),
        ("busy", busy), ("began", manifest["began"]),
    ]  # fmt: skip
    return table(("", ""), [(e(key), e(value)) for key, value in rows])
