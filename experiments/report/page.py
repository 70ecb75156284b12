"""`mrc report DIR`: one self-contained page a scenario (pictures inside it, no script, nothing fetched), and an index.

DIR/report.html, DIR/figures/NAME.svg and NAME.png; DIR/index.html when DIR holds several folders of results.

A page tells, in this order: what failed and what held, how far the numbers can be trusted, the scenario's figures with
the paper's lines and the distance to them in words, everything over time run by run, every path of every flow, what was
done, all numbers, the machine. Of a run that was cut short it shows what there is, and says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.language.assertions import NO_RUN, judge
from experiments.language.expand import expand
from experiments.language.model import Scenario
from experiments.language.yaml_loader import ScenarioError, read
from experiments.metric_values import Measured
from experiments.repeats import base_name, spreads
from experiments.report import html_parts
from experiments.report.canvas import Runs
from experiments.report.figures import asked_for
from experiments.report.index import index
from experiments.report.page_frame import e, mark, shell
from experiments.report.written_page import Page
from experiments.results import Results, ResultsError, trust

DEEP = ("*/manifest.json", "*/*/manifest.json")
"""Where results lie in a folder of them: results/e6, results/live/e6."""


def report(folder: Path, skipped: list[str] | None = None) -> list[Page]:
    """Write the reports of a folder of results, or of a folder of such folders. Raises ResultsError.

    Of several folders those that cannot be read (of another version, half removed) are left out; `skipped` gets why.
    """
    if (folder / "manifest.json").exists():
        return [one(folder)]
    inside = sorted({path.parent for pattern in DEEP for path in folder.glob(pattern)})
    if not inside:
        missing = "" if folder.is_dir() else " (there is no such folder)"
        raise ResultsError(
            f"no results in {folder}{missing}: give a folder that `mrc run --out` made, or one that holds such"
        )
    pages, bad = [], []
    for path in inside:
        try:
            pages.append(one(path))
        except ResultsError as error:
            bad.append(str(error))
    if not pages:
        raise ResultsError(bad[0])
    (folder / "index.html").write_text(index(folder, pages, bad))
    if skipped is not None:
        skipped += bad
    return pages


def one(folder: Path) -> Page:
    """Write the page of one folder. Raises ResultsError."""
    results, runs = measured_runs(folder)
    manifest = results.manifest
    where = manifest["where"]
    if not runs:
        page = Page(folder, str(manifest["title"]), manifest, [], 0)
        (folder / "report.html").write_text(shell(page.title, _head(page) + html_parts.machine(manifest)))
        return page
    scenario = runs[0][2].scenario
    verdicts = judge(scenario, runs, where)
    if not manifest["complete"]:  # a rule for runs that are still to come has not failed
        verdicts = [verdict for verdict in verdicts if verdict.run != NO_RUN]
    page = Page(folder, scenario.title, manifest, verdicts, len(runs), spreads(scenario, runs, verdicts))
    body = [_head(page), _body(scenario, runs, page, folder / "figures")]
    (folder / "report.html").write_text(shell(scenario.title, "\n".join(body)))
    return page


def measured_runs(folder: Path) -> tuple[Results, list[tuple[str, dict[str, Any], Measured]]]:
    """Results and their runs in the order they were planned. Raises ResultsError."""
    results, outcomes = Results.open(folder)
    order = {name: number for number, name in enumerate(results.manifest["planned"])}
    outcomes.sort(key=lambda outcome: order.get(outcome.name, len(order)))  # side by side, runs end in any order
    try:
        planned = {run.name: run for run in expand(read(folder / "scenario.yaml"), results.manifest["where"])}
    except ScenarioError as error:
        raise ResultsError(f"{folder}/scenario.yaml is not a scenario of this version: {error.problems[0]}") from None
    runs = []
    bases = {base_name(name): run for name, run in planned.items()}
    for outcome in outcomes:
        run = planned.get(outcome.name) or bases.get(base_name(outcome.name))
        if run is None:
            raise ResultsError(f"{folder}: the scenario has no run {outcome.name!r} any more")
        runs.append((outcome.name, outcome.label, Measured(outcome, run.scenario)))
    return results, runs


def _head(page: Page) -> str:
    """Title, verdict in a word, how it was made, how far to trust it."""
    manifest = page.manifest
    good = sum(verdict.passed for verdict in page.verdicts)
    state = mark(page.passed) if page.complete else '<span class="bad">unfinished</span>'
    seeds = sorted({one["seed"] for one in manifest["runs"]}) or [manifest["seed"]]
    seed_text = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    lasted = sum(one["duration_s"] for one in manifest["runs"])
    runs = f"{page.runs} run{'' if page.runs == 1 else 's'}, {lasted:.1f} s"
    line = f"{state} · {good} of {len(page.verdicts)} rules held · {e(page.where)} · {runs} · {seed_text}"
    made = f"<br>Made by <code>{e(manifest['command'])}</code>" if manifest.get("command") else ""
    warned = [text for text in trust(manifest) if text.startswith(("Unfinished", "The machine"))]
    calm = [text for text in trust(manifest) if text not in warned]
    return "\n".join(
        [
            f"<h1>{e(page.title)}</h1>",
            f'<p>{line}<br><span class="soft">{e(manifest["scenario"])}, {e(manifest["began"])}{made}</span></p>',
            *(f'<p class="warn" role="note">{e(text)}</p>' for text in warned),
            html_parts.planned(manifest),
            *(f'<p class="soft">{e(text)}</p>' for text in calm),
        ]
    )


def _body(scenario: Scenario, runs: Runs, page: Page, figures: Path) -> str:
    figures.mkdir(exist_ok=True)
    for old in [*figures.glob("*.svg"), *figures.glob("*.png")]:  # of an earlier report, which may have drawn others
        old.unlink()
    drawn = asked_for(scenario, runs)
    page.picture = html_parts.file_of(drawn[0]) if drawn else None
    return "\n".join(
        [
            "<h2>What was expected, what was seen</h2>", html_parts.verdicts(page.verdicts, page.repeats),
            html_parts.reference(scenario),
            "<h2>Figures</h2>" if drawn else "", *(html_parts.figure(one, figures) for one in drawn),
            "<h2>Everything over time, run by run</h2>", html_parts.timelines(runs, figures),
            "<h2>What was done</h2>", html_parts.done(scenario, runs),
            "<h2>Numbers</h2>", html_parts.numbers(runs, page.repeats),
            "<h2>On what</h2>", html_parts.machine(page.manifest),
        ]
    )  # fmt: skip
