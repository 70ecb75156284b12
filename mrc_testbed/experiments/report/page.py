"""`mrc report DIR`: one self-contained page per scenario (no script, nothing fetched), and an index.

DIR/report.html, DIR/figures/NAME.svg and NAME.png; DIR/index.html when DIR holds several folders of results.

A page has, in this order: the verdict and how far the numbers can be trusted, the rules, the scenario's figures with
the paper's lines and the distance to them in words, everything over time run by run, every path of every flow, events,
all numbers, the machine. The page of an unfinished run shows the results so far, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.console.units import show_seconds
from mrc_testbed.experiments.language.expand import environments_of, expand
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.metrics.assertions import ALWAYS, NO_RUN, judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.metrics.repeats import base_name, group_repeats, spreads, without_failed
from mrc_testbed.experiments.report import sections
from mrc_testbed.experiments.report.canvas import Runs
from mrc_testbed.experiments.report.ev_strips import STATES
from mrc_testbed.experiments.report.figures import asked_for
from mrc_testbed.experiments.report.index import index
from mrc_testbed.experiments.report.pictures import file_of, save
from mrc_testbed.experiments.report.rendering import render
from mrc_testbed.experiments.report.written_page import Page
from mrc_testbed.experiments.resolve.run_plan import RunPlan, resolve
from mrc_testbed.experiments.results import Results, ResultsError, folders_below, read_manifest, trust
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.hosts.engine.config import ConfigError
from mrc_testbed.simulator.profiles import ProfileError
from mrc_testbed.topologies.plan import PlanError


def report(
    folder: Path,
    skipped: list[str] | None = None,
    on_progress: Callable[[float, str], None] = lambda _share, _text: None,
) -> list[Page]:
    """Write the reports of a folder of results, or of a folder of such folders. Raises ResultsError.

    Of several folders, unreadable ones (of another version, half removed) are left out; `skipped` gets the reasons.
    `on_progress` gets the share that is done, 0 to 1, and a text with the next folder.
    """
    if (folder / "manifest.json").exists():
        return [write_page(folder)]
    folders = folders_below(folder)
    pages, errors = [], []
    for number, path in enumerate(folders):
        on_progress(number / len(folders), f"drawing {path}")
        try:
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ResultsError(
                    f"{path} is a link to another folder, where its page would be written: name that one"
                )
            pages.append(write_page(path))
        except ResultsError as error:
            errors.append(str(error))
    if not pages:
        raise ResultsError(errors[0])
    write_whole(folder / "index.html", index(folder, pages, errors).encode())
    if skipped is not None:
        skipped += errors
    return pages


def write_page(folder: Path) -> Page:
    """Write the page of one folder. Raises ResultsError."""
    results, runs = measured_runs(folder)
    manifest = results.manifest
    backend = manifest["where"]
    if not runs:
        page = Page(folder, str(manifest["title"]), manifest, [], 0)
        write_whole(folder / "report.html", render("page.html", **_values(page), runs=[], causes=[]).encode())
        return page
    scenario = runs[0][2].plan.scenario
    environments = environments_of(backend, manifest.get("target") or "embedded")
    verdicts = judge(scenario, runs, environments, manifest.get("scale"))
    if not manifest["complete"]:  # a rule for runs that are not made yet has not failed
        verdicts = [verdict for verdict in verdicts if verdict.run != NO_RUN]
    page = Page(folder, scenario.title, manifest, verdicts, len(runs), spreads(scenario, runs, verdicts))
    values = _values(page) | _values_of_runs(scenario, runs, page, folder / "figures")
    write_whole(folder / "report.html", render("page.html", **values).encode())
    return page


def plans_of(folder: Path, manifest: dict[str, Any]) -> list[RunPlan]:
    """Return the plans of a folder's runs. Raises ResultsError for a file that is no scenario any more."""
    try:
        target, scale = manifest.get("target") or "embedded", manifest.get("scale")
        runs = expand(read(folder / "scenario.yaml"), manifest["where"], target=target, scale=scale)
        return [resolve(run) for run in runs]
    except (ScenarioError, PlanError, ProfileError, ConfigError) as error:
        reason = error.problems[0] if isinstance(error, ScenarioError) else error
        raise ResultsError(f"{folder}/scenario.yaml is not a scenario of this version: {reason}") from None


def measured_runs(folder: Path) -> tuple[Results, list[tuple[str, dict[str, Any], Measurement]]]:
    """Return results, and their runs in planned order. Raises ResultsError."""
    if "study" in read_manifest(folder):
        raise ResultsError(
            f"{folder} is of a study, which has no page: its table is study.csv, its pictures are in figures/ "
            f"(`mrc study FILE --resume {folder}` makes them again)"
        )
    results, outcomes = Results.open(folder)
    plans_by_name = {plan.name: plan for plan in plans_of(folder, results.manifest)}
    runs = []
    bases = {base_name(name): plan for name, plan in plans_by_name.items()}
    for outcome in outcomes:
        plan = plans_by_name.get(outcome.name) or bases.get(base_name(outcome.name))
        if plan is None:
            raise ResultsError(f"{folder}: the scenario has no run {outcome.name!r} any more")
        runs.append((outcome.name, outcome.label, Measurement(outcome, plan)))
    return results, runs


def _values(page: Page) -> dict[str, Any]:
    """Return the values of every page: verdict in a word, command, seeds, remarks on trust, the machine."""
    manifest = page.manifest
    remarks = trust(manifest)
    warnings = [text for text in remarks if text.startswith(("Unfinished", "The machine"))]
    run_names = {run["name"] for run in manifest["runs"]}
    return {
        "page": page,
        "title": page.title,
        "manifest": manifest,
        "command": manifest.get("command"),
        "seeds": sorted({run["seed"] for run in manifest["runs"]}) or [manifest["seed"]],
        "lasted": show_seconds(sum(run["duration_s"] for run in manifest["runs"])),
        "warnings": warnings,
        "remarks": [text for text in remarks if text not in warnings],
        "missing": [name for name in manifest["planned"] if name not in run_names],
        "machine": sections.machine(manifest),
    }


def _values_of_runs(scenario: Scenario, runs: Runs, page: Page, figures: Path) -> dict[str, Any]:
    """Return the values of a page with completed runs; write their pictures to `figures`."""
    figures.mkdir(exist_ok=True)
    for picture in [
        *figures.glob("*.svg"),
        *figures.glob("*.png"),
    ]:  # of an earlier report, which may have drawn others
        picture.unlink()
    sound_runs = without_failed(runs)
    drawings = asked_for(scenario, sound_runs)
    page.picture = file_of(drawings[0]) if drawings else None
    groups = group_repeats(runs)
    numbers, unmeasured_names = sections.numbers(sound_runs)
    return {
        "scenario": scenario,
        "runs": runs,
        "causes": [(name, cause) for name, _, measurement in runs if (cause := measurement.outcome.cause)],
        "rules": sections.rule_rows(page.verdicts, page.repeats),
        "intact_runs": sum(verdict.rule == ALWAYS for verdict in page.verdicts),
        "step_times": sections.step_times(sound_runs),
        "figures": [save(drawing, figures) for drawing in drawings],
        "timelines": sections.timelines(runs, figures),
        "groups": len(groups),
        "some_too_short": not all(sections.is_long_enough(repeats[0][2]) for repeats in groups.values()),
        "limits": sections.LIMITS,
        "states": list(STATES.values()),
        "fabric": sections.fabric_text(runs[0][2].plan),
        "sizes": list(sections.recorded_sizes(runs[0][2])),
        "logs": sections.event_logs(runs),
        "numbers": numbers,
        "unmeasured": unmeasured_names,
        "repeats": sections.repeat_table(page.repeats),
    }
