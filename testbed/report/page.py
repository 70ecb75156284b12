"""`mrc report DIR`: one self-contained page a scenario (pictures inside it, no script, nothing fetched), and an index.

DIR/report.html, DIR/figures/NAME.svg and NAME.png; DIR/index.html when DIR holds several folders of results
"""

from __future__ import annotations

import html
import io
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.report.figures import Drawn, Runs, draw_all
from testbed.scenario.expand import expand
from testbed.scenario.expect import Verdict, event_text, judge, show
from testbed.scenario.load import ScenarioError, read
from testbed.scenario.measure import Measured
from testbed.scenario.model import Reference, Scenario
from testbed.scenario.results import Results, ResultsError, file_name

EVENTS_SHOWN = 200
WIDE_MAX = 8
"""Columns of the table of numbers."""
STYLE = """
:root { color-scheme: light dark; --fg: #1d2733; --soft: #5c6b7a; --line: #d8dfe6; --bg: #fff; --card: #f6f8fa;
  --good: #00724f; --bad: #b3420a; }
@media (prefers-color-scheme: dark) { :root { --fg: #dfe6ee; --soft: #93a1b0; --line: #37424e; --bg: #14191f;
  --card: #1c232b; --good: #4cc79a; --bad: #f08a4b; } figure img { background: #fff; border-radius: 4px; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1.2rem 0; } figure img { max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .85rem; }
.card { background: var(--card); border-left: 3px solid var(--line); padding: .6rem 1rem; margin: 1rem 0; }
pre { white-space: pre-wrap; font-size: .8rem; }
"""


@dataclass(slots=True)
class Page:
    """What was written for one folder of results."""

    folder: Path
    title: str
    passed: bool
    verdicts: list[Verdict]
    runs: int
    where: str


def report(folder: Path) -> list[Page]:
    """Write the reports of a folder of results, or of a folder of such folders. Raises ResultsError."""
    if (folder / "manifest.json").exists():
        return [_one(folder)]
    inside = sorted(
        path.parent for path in folder.glob("*/manifest.json") if any((path.parent / "runs").glob("*.json"))
    )
    if not inside:
        raise ResultsError(f"no results in {folder}: give a folder that `mrc run --out` made, or one that holds such")
    pages = [_one(path) for path in inside]
    (folder / "index.html").write_text(_index(folder, pages))
    return pages


def _one(folder: Path) -> Page:
    results, outcomes = Results.open(folder)
    order = {name: number for number, name in enumerate(results.manifest["planned"])}
    outcomes.sort(key=lambda outcome: order.get(outcome.name, len(order)))  # side by side, runs end in any order
    if not outcomes:
        raise ResultsError(f"{folder} holds no finished run yet")
    where = results.manifest["where"]
    try:
        document = read(folder / "scenario.yaml")
        planned = {run.name: run for run in expand(document, where)}
    except ScenarioError as error:
        raise ResultsError(f"{folder}/scenario.yaml is not a scenario of this version: {error.problems[0]}") from None
    runs: list[tuple[str, dict[str, Any], Measured]] = []
    for outcome in outcomes:
        run = planned.get(outcome.name) or planned.get(re.sub(r" ?#\d+$", "", outcome.name) or "run")
        if run is None:
            raise ResultsError(f"{folder}: the scenario has no run {outcome.name!r} any more")
        runs.append((outcome.name, outcome.label, Measured(outcome, run.scenario)))
    scenario = runs[0][2].scenario
    verdicts = judge(scenario, runs, where)
    drawn = draw_all(scenario, runs)
    pictures = [_save(folder / "figures", one) for one in drawn]
    text = _page(scenario, results.manifest, runs, verdicts, list(zip(drawn, pictures, strict=True)))
    (folder / "report.html").write_text(text)
    return Page(folder, scenario.title, all(v.passed for v in verdicts), verdicts, len(runs), where)


def _save(folder: Path, drawn: Drawn) -> str:
    """SVG and PNG files of a figure; returns the SVG's text."""
    folder.mkdir(exist_ok=True)
    name = file_name(drawn.name)
    drawn.canvas.savefig(folder / f"{name}.png", dpi=110)
    text = io.StringIO()
    drawn.canvas.savefig(text, format="svg", metadata={"Date": None})
    (folder / f"{name}.svg").write_text(text.getvalue())
    return text.getvalue()


# ---- words ----------------------------------------------------------------------------------------------------


def distance(verdict: Verdict) -> str:
    """How far from the paper's number, in words."""
    if verdict.paper is None or verdict.value is None:
        return ""
    apart = verdict.value - verdict.paper
    if verdict.paper == 0:
        return "as in the paper" if apart == 0 else f"the paper has 0, here it is {verdict.value:.3g}"
    share = apart / abs(verdict.paper)
    if abs(share) < 0.02:
        return f"paper {verdict.paper:.3g}: the same within 2 %"
    return f"paper {verdict.paper:.3g}: {100 * abs(share):.0f} % {'more' if share > 0 else 'less'} here"


def series_distance(measured: Measured, metric: str, of: str, points: list[tuple[float, float]]) -> str | None:
    """How far a rate over time is from the paper's line."""
    scale = measured.baseline(metric) if of == "baseline" else measured.outcome.capacity_bps
    times = measured.outcome.series.times_s
    if not scale or not times or not points:
        return None
    xs = [x for x, _ in points]
    apart = []
    for low, high in zip([0.0, *times[:-1]], times, strict=True):
        middle = (low + high) / 2
        value = measured.values_between(metric, low, high)
        if value is not None and xs[0] <= middle <= xs[-1] and low > 0.5:
            after = min(bisect_right(xs, middle), len(points) - 1)
            (x0, y0), (x1, y1) = points[after - 1], points[after]
            theirs = y0 if x1 == x0 else y0 + (y1 - y0) * (middle - x0) / (x1 - x0)
            apart.append((abs(value / scale - theirs), middle))
    if not apart:
        return None
    mean, (worst, at) = sum(a for a, _ in apart) / len(apart), max(apart)
    return f"on average {100 * mean:.1f} points from the paper's line, farthest {100 * worst:.0f} points at {at:.1f} s"


def _e(text: object) -> str:
    return html.escape(str(text))


def _page(
    scenario: Scenario, manifest: dict[str, Any], runs: Runs, verdicts: list[Verdict], pictures: list[tuple[Drawn, str]]
) -> str:
    passed = all(verdict.passed for verdict in verdicts)
    mark = '<span class="good">passed</span>' if passed else '<span class="bad">failed</span>'
    duration = sum(measured.outcome.duration_s for _, _, measured in runs)
    body = [
        f"<h1>{_e(scenario.title)}</h1>",
        f'<p class="soft">{_e(manifest["scenario"])} · {mark} · {len(runs)} runs, {duration:.1f} s '
        f"{'of virtual time' if manifest['where'] == 'virtual' else 'live'} · seed {manifest['seed']}</p>",
        _paper(scenario.paper, runs, scenario) if scenario.paper else "",
        "<h2>What was expected, what was seen</h2>", _verdicts(verdicts),
    ]  # fmt: skip
    for drawn, svg in pictures:
        svg = svg[svg.index("<svg") :]
        body.append(f"<figure>{_unique(svg, drawn.name)}<figcaption>{_e(drawn.text)}</figcaption></figure>")
    body += [
        "<h2>What was done</h2>", _done(scenario, runs),
        "<h2>Numbers</h2>", _numbers(runs),
        "<h2>On what</h2>", _machine(manifest),
    ]  # fmt: skip
    return _shell(scenario.title, "\n".join(body))


def _unique(svg: str, name: str) -> str:
    """Ids of one picture must not meet those of another on the same page."""
    prefix = re.sub(r"\W", "_", name) + "_"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    return re.sub(r"url\(#", f"url(#{prefix}", svg)


def _paper(paper: Reference, runs: Runs, scenario: Scenario) -> str:
    rows = [("The paper saw", paper.saw), ("Scaled here", paper.scaled), ("Cannot be shown", paper.cannot)]
    for figure in scenario.figures:
        if figure.kind == "rate_over_time" and figure.of in ("baseline", "capacity"):
            for label, points in paper.series.items():
                for name, _, measured in runs[:4]:
                    words = series_distance(measured, figure.metric, figure.of, points)
                    if words:
                        rows.append((f"{name} and “{label}”", words))
    lines = "".join(f"<b>{_e(key)}:</b> {_e(text)}<br>" for key, text in rows if text)
    return f'<div class="card"><b>{_e(paper.id)}, figure {_e(paper.figure)}</b><br>{lines}</div>'


def _verdicts(verdicts: list[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        mark = '<span class="good">ok</span>' if verdict.passed else '<span class="bad">not</span>'
        extra = "".join(f"<br><span class=soft>{_e(line)}</span>" for line in verdict.events)
        why = f'<br><span class="soft">{_e(verdict.why)}</span>' if verdict.why else ""
        rows.append(
            f"<tr><td>{mark}</td><td>{_e(verdict.rule)}{why}{extra}</td><td>{_e(verdict.run)}</td>"
            f"<td>{_e(verdict.seen)}</td><td>{_e(distance(verdict))}</td></tr>"
        )
    head = "<tr><th></th><th>rule</th><th>run</th><th>seen</th><th>paper</th></tr>"
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _done(scenario: Scenario, runs: Runs) -> str:
    part = scenario.fabric
    text = (
        f"{part.planes} planes x ({part.racks} T0 + {part.spines} T1), {part.racks * part.hosts_per_rack} hosts; "
        f"mode {scenario.mode}; links of {scenario.links.rate / 1e6:g} Mb/s, round trip {scenario.links.rtt * 1e3:g} ms"
    )
    events = runs[0][2].outcome.events
    lines = "\n".join(f"{event['t']:9.3f} s  {event_text(event)}" for event in events[:EVENTS_SHOWN])
    more = f"\n... and {len(events) - EVENTS_SHOWN} more" if len(events) > EVENTS_SHOWN else ""
    notes = "".join(
        f'<p class="bad">{_e(name)}: {_e(note)}</p>' for name, _, measured in runs for note in measured.outcome.notes
    )
    if not lines:
        return f"<p>{_e(text)}</p>{notes}"
    told = f"<details><summary>events of {_e(runs[0][0])}</summary><pre>{_e(lines + more)}</pre></details>"
    return f"<p>{_e(text)}</p>{notes}{told}"


def _numbers(runs: Runs) -> str:
    """Metrics by run; with many runs those go down the side, and only what tells them apart is shown."""
    metrics = [measured.outcome.metrics for _, _, measured in runs]
    names = [name for name in metrics[0] if any(one.get(name) is not None for one in metrics)]
    if len(runs) <= WIDE_MAX:
        head = ["metric", *(run for run, _, _ in runs)]
        rows = [[name, *(_value(measured, name) for _, _, measured in runs)] for name in names]
    else:
        telling = [name for name in names if len({one.get(name) for one in metrics}) > 1][:WIDE_MAX]
        head = ["run", *telling]
        rows = [[run, *(_value(measured, name) for name in telling)] for run, _, measured in runs]
    top = "".join(f"<th>{_e(cell)}</th>" for cell in head)
    lines = "".join(
        f"<tr><td>{_e(first)}</td>" + "".join(f'<td class="n">{_e(cell)}</td>' for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return f'<div class="wide"><table><tr>{top}</tr>{lines}</table></div>'


def _value(measured: Measured, name: str) -> str:
    value = measured.outcome.metrics.get(name)
    return "–" if value is None else show(name, value, measured)


def _machine(manifest: dict[str, Any]) -> str:
    machine = manifest["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    loads = [one["load"] for one in manifest["runs"]]
    busiest = max((load["busy"] for load in loads), default=0.0)
    trust = sorted({load["times"] for load in loads})
    rows = [
        ("commit", machine["commit"]), ("kernel", machine["kernel"]),
        ("CPU", f"{machine['cpus']} x {machine['cpu']}"), ("Python", machine["python"]), ("packages", packages),
        ("busy", f"{100 * busiest:.0f} % of all CPUs at most"), ("times", "; ".join(trust)),
        ("began", manifest["began"]),
    ]  # fmt: skip
    return "<table>" + "".join(f"<tr><td>{_e(key)}</td><td>{_e(value)}</td></tr>" for key, value in rows) + "</table>"


def _index(folder: Path, pages: list[Page]) -> str:
    rows = []
    for page in sorted(pages, key=lambda page: _natural(page.folder.name)):
        mark = '<span class="good">passed</span>' if page.passed else '<span class="bad">failed</span>'
        good = sum(verdict.passed for verdict in page.verdicts)
        link = f'<a href="{_e(page.folder.name)}/report.html">{_e(page.folder.name)}</a>'
        rows.append(
            f"<tr><td>{mark}</td><td>{link}</td><td>{_e(page.title)}</td><td>{_e(page.where)}</td>"
            f'<td class="n">{page.runs}</td><td class="n">{good} of {len(page.verdicts)}</td></tr>'
        )
    head = "<tr><th></th><th>scenario</th><th>title</th><th></th><th>runs</th><th>rules held</th></tr>"
    passed = sum(page.passed for page in pages)
    table = f"<div class='wide'><table>{head}{''.join(rows)}</table></div>"
    return _shell(folder.name, f"<h1>{passed} of {len(pages)} scenarios passed</h1>{table}")


def _natural(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _shell(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{_e(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
