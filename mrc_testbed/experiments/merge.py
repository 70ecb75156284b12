"""Command `mrc merge DIR... --out DIR`: combine results of several folders, each run once.

Folders belong together when the scenario or study has the same name; a run is identified by its label (variant, swept
values) and seed. Folders of one scenario may have the same runs, different ones, or other seeds: seeds 1 to 10 of one
machine and 11 to 20 of another are together what `--repeat 20` makes, with the same digest. Missing runs are printed,
with the command that makes them; damaged runs are left out. Two folders with different content for one run are a
conflict: the run is printed, and nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.markup import escape

from mrc_testbed.console import terminal
from mrc_testbed.console.progress import Progress
from mrc_testbed.errors import EXIT_UNWRITTEN
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.command import EXIT_FAILED, EXIT_PASSED, print_report
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import (
    Results,
    ResultsError,
    folders_below,
    read_manifest,
    refusal,
    refuse_taken,
    rerun_command,
)
from mrc_testbed.experiments.run_store import DamagedRun, RunStore, StoredRun
from mrc_testbed.experiments.runner import Checkpoint, RunReport, RunSet, plan_runs, run_scenario
from mrc_testbed.files.file_names import read_regular

FILES = ("scenario.yaml", "study.yaml")
MERGE_CURE = "make room there and merge again, or give another --out; nothing of this merge is kept"
NAMES_MAX = 8
"""Most runs named in a message."""

Key = tuple[str, int]
"""Identity of a run: its label as JSON, and its seed."""


@dataclass(slots=True)
class ResultsPart:
    """One folder to merge."""

    folder: Path
    manifest: dict[str, Any]
    store: RunStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = RunStore.for_runs(self.folder / "runs", self.manifest["planned"])

    def runs(self, damages: list[str] | None = None) -> Iterator[StoredRun]:
        """Yield the whole runs; `damages` gets a text for each damaged one. Raises ResultsError."""
        for name in self.store.stems:
            try:
                if (stored_run := self.store.read(name)) is not None:
                    yield stored_run
            except DamagedRun as error:
                if damages is not None:
                    damages.append(f"{self.folder}/{error}")
            except OSError as error:
                raise ResultsError(f"{self.folder}: {error}") from None


@dataclass(slots=True)
class MergeResult:
    """Merged results of one scenario or study."""

    folder: Path
    runs: int
    parts: list[Path]
    duplicate_count: int
    """Copies of runs that another folder had already; a run counts once."""
    damages: list[str]
    missing_runs: list[str]
    command: str
    """Command that makes the missing runs; empty: none is missing."""
    digest: str | None = None
    is_passed: bool | None = None
    """Whether all rules held; None: incomplete, or a study, which has no verdict."""
    report: RunReport | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "runs": self.runs,
            "parts": [str(part) for part in self.parts],
            "twice": self.duplicate_count,
            "damaged": self.damages,
            "missing": self.missing_runs,
            "command": self.command,
            "digest": self.digest,
            "passed": self.is_passed,
        }


class _SilentListener:
    """Listener that ignores all progress: a merge makes no runs."""

    def on_start(self, runs: list[RunPlan]) -> None: ...

    def on_progress(self, run: RunPlan, share: float, now: float) -> None: ...

    def on_end(self, run: RunPlan, outcome: Outcome, /) -> None: ...

    def on_stop(self, kept_count: int, folder: Path) -> None: ...


def run(folders: list[Path], out: Path, as_json: bool) -> int:
    """Merge, print, and return the exit code. Raises ResultsError.

    The code is 1 when a rule of a complete scenario did not hold.
    """
    console = terminal.console(stderr=as_json)
    groups = _groups(folders)
    targets = {name: out / name if len(groups) > 1 else out for name in groups}
    refuse_taken(list(targets.values()))
    for parts in groups.values():
        _refuse_different(parts)
    with Progress(console, "merge", size=len(groups)) as progress:
        contents_by_name: dict[str, dict[Key, str]] = {}
        damages: dict[str, list[str]] = {name: [] for name in groups}
        for number, (name, parts) in enumerate(groups.items()):
            progress.share(number / len(groups) / 2, f"reading {name}")
            contents_by_name[name] = _contents(parts, damages[name])
        merge_results: list[MergeResult] = []
        new_results: list[Results] = []
        try:
            for number, (name, parts) in enumerate(groups.items()):
                progress.share(0.5 + number / len(groups) / 2, f"writing {name}")
                merge = _study if "study" in parts[0].manifest else _scenario
                merge_results.append(
                    merge(parts, targets[name], set(contents_by_name[name]), damages[name], new_results)
                )
        except BaseException:  # a full disk, Ctrl-C: the same command has to work again
            _discard(new_results)
            raise
    unwritten = any(result.report is not None and result.report.unwritten for result in merge_results)
    if unwritten:
        _discard(new_results)
    for result in merge_results:
        if result.report is not None:
            print_report(console, result.report)
        if unwritten:
            continue
        for text in result.damages:
            console.print(escape(f"left out: {text}"), style="yellow", soft_wrap=True)
        duplicates_text = f", {result.duplicate_count} of them in several" if result.duplicate_count else ""
        console.print(
            escape(f"{result.runs} runs of {len(result.parts)} folders{duplicates_text}, in {result.folder}"),
            soft_wrap=True,
        )
        if result.command:
            names = ", ".join(result.missing_runs[:NAMES_MAX]) + (
                " ..." if len(result.missing_runs) > NAMES_MAX else ""
            )
            missing_text = f"{len(result.missing_runs)} are missing ({names}); " if result.missing_runs else ""
            console.print(escape(f"{missing_text}go on with: {result.command}"), style="yellow", soft_wrap=True)
    if as_json:
        print(json.dumps([result.to_json() for result in merge_results], indent=2))
    if unwritten:
        return EXIT_UNWRITTEN
    return EXIT_FAILED if any(result.is_passed is False for result in merge_results) else EXIT_PASSED


def _discard(new_results: list[Results]) -> None:
    """Remove the output of an unfinished merge: its parts have all runs."""
    for results in new_results:
        results.discard()


def _groups(folders: list[Path]) -> dict[str, list[ResultsPart]]:
    """Return the folders by the name of their scenario, each once. Raises ResultsError."""
    groups: dict[str, list[ResultsPart]] = {}
    seen_folders = set()
    for path in folders:
        for folder in folders_below(path):
            if folder.resolve() in seen_folders:
                continue
            seen_folders.add(folder.resolve())
            manifest = read_manifest(folder)
            if manifest["where"] != "virtual":
                raise ResultsError(
                    f"{folder}: only runs in virtual time are merged: a live run is another one each time, and "
                    "those of the fluid model are made in seconds"
                )
            name = manifest["study"]["study"] if "study" in manifest else manifest["scenario"]
            groups.setdefault(str(name), []).append(ResultsPart(folder, manifest))
    return groups


def _refuse_different(parts: list[ResultsPart]) -> None:
    """Raise ResultsError for folders with different files, scales or commits."""
    first = parts[0]
    for part in parts[1:]:
        differences = ["scale"] if part.manifest.get("scale") != first.manifest.get("scale") else []
        differences += [name for name in FILES if _content(part.folder / name) != _content(first.folder / name)]
        if part.manifest["machine"]["commit"] != first.manifest["machine"]["commit"]:
            differences.append("commit")
        if differences:
            raise ResultsError(
                f"{first.folder} and {part.folder} are of another {', '.join(differences)}: their runs are not those "
                "of one set; merge them apart, or make one of them again"
            )


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None


def _key(outcome: Outcome) -> Key:
    return json.dumps(outcome.label, sort_keys=True), outcome.seed


def _contents(parts: list[ResultsPart], damages: list[str]) -> dict[Key, str]:
    """Return a digest of each run, without its name and repeat number. Raises ResultsError for conflicts.

    Name and number depend on the position among the repeats, which differs between folders.
    """
    contents: dict[Key, tuple[str, Path]] = {}
    conflicts: list[str] = []
    for part in parts:
        for stored_run in part.runs(damages):
            outcome, key = stored_run.outcome, _key(stored_run.outcome)
            values = outcome.to_json() | {"name": "", "repeat": 0}
            content = hashlib.sha256(json.dumps([values, stored_run.sha256.get("csv")]).encode()).hexdigest()
            first_content, first_folder = contents.setdefault(key, (content, part.folder))
            if first_content != content:
                conflicts.append(f"{outcome.name!r} (seed {outcome.seed}) of {first_folder} and {part.folder}")
    if conflicts:
        conflicts_text = "; ".join(conflicts[:NAMES_MAX]) + (" ..." if len(conflicts) > NAMES_MAX else "")
        raise ResultsError(
            f"{len(conflicts)} run(s) have another content in another folder, though file, seed and commit are the "
            f"same: {conflicts_text}. One of the folders was changed, or its machine computes wrongly: make it again"
        )
    return {key: content for key, (content, _) in contents.items()}


def _scenario(
    parts: list[ResultsPart], out: Path, keys: set[Key], damages: list[str], new_results: list[Results]
) -> MergeResult:
    """Plan the runs of all seeds, enter the existing ones, and judge when none is missing.

    `new_results` gets the results once they have a folder on the disk.
    """
    first = parts[0]
    seeds = [seed for _, seed in keys] or [first.manifest["seed"]]
    run_set = _plan_seeds(first, min(seeds), max(seeds) - min(seeds) + 1)
    runs = {(json.dumps(run.label, sort_keys=True), run.seed): (number, run) for number, run in enumerate(run_set.runs)}
    unknown = [key for key in keys if key not in runs]
    if unknown:
        raise ResultsError(f"{first.folder}/scenario.yaml does not make run {unknown[0][0]} with seed {unknown[0][1]}")
    checkpoint = Checkpoint.create(run_set, out)
    checkpoint.results.cure = MERGE_CURE
    new_results.append(checkpoint.results)
    file = Path(shlex.split(first.manifest["command"])[2])  # the original, not the copy in the folder
    command = rerun_command(file, run_set.backend, run_set.seed, run_set.repeat, None, run_set.scale)
    checkpoint.results.manifest["command"] = command
    outcomes, duplicate_count = checkpoint.outcomes, 0
    try:
        for part in parts:
            for stored_run in part.runs():
                number, run = runs[_key(stored_run.outcome)]
                if number in outcomes:
                    duplicate_count += 1
                    continue
                stored_run.outcome.name, stored_run.outcome.repeat = run.name, run.repeat
                checkpoint.results.add(stored_run.outcome, stored_run.load)
                outcomes[number] = stored_run.outcome
        missing_runs = [run.name for run in checkpoint.runs_to_make(run_set)]
        result = MergeResult(
            out, len(outcomes), [part.folder for part in parts], duplicate_count, damages, missing_runs, ""
        )
        if missing_runs:
            checkpoint.results.stop()
            result.command = f"{command} --resume {shlex.quote(str(out))}"
            return result
        result.report = run_scenario(run_set, _SilentListener(), checkpoint=checkpoint)
        result.digest = result.report.digest
        result.is_passed = result.report.passed
        return result
    finally:
        checkpoint.results.stop()


def _plan_seeds(first: ResultsPart, seed: int, repeat: int) -> RunSet:
    """Return the planned runs of these seeds. Raises ResultsError for a file of another version."""
    manifest = first.manifest
    try:
        document = read(first.folder / "scenario.yaml")
        document.name = str(manifest["scenario"])
        run_set = plan_runs(document, manifest["where"], seed=seed, repeat=repeat, scale=manifest.get("scale"))
    except ScenarioError as error:
        raise ResultsError(
            f"{first.folder}/scenario.yaml is not a scenario of this version: {error.problems[0]}"
        ) from None
    return run_set


def _study(
    parts: list[ResultsPart], out: Path, keys: set[Key], damages: list[str], new_results: list[Results]
) -> MergeResult:
    """Merge the runs of a study, which are not judged: `--resume` decides how many runs it needs."""
    first = parts[0]
    document = read(first.folder / "scenario.yaml")
    document.name = str(first.manifest["scenario"])  # the copy is `scenario.yaml` in every folder
    manifest = first.manifest
    results = Results.create(
        out,
        document,
        manifest["title"],
        "virtual",
        manifest["seed"],
        manifest["planned"],
        manifest["command"],
        None,
        manifest.get("scale"),
    )
    results.cure = MERGE_CURE
    new_results.append(results)
    results.manifest["study"] = manifest["study"]
    try:
        content = _content(first.folder / FILES[1])
        if content is not None:
            results.add_file(FILES[1], content)
        done_keys: set[Key] = set()
        duplicate_count = 0
        for part in parts:
            for stored_run in part.runs():
                if _key(stored_run.outcome) in done_keys:
                    duplicate_count += 1
                    continue
                done_keys.add(_key(stored_run.outcome))
                results.add(stored_run.outcome, stored_run.load)
    except OSError as error:
        raise refusal(out, error) from None
    finally:
        results.stop()
    command = f"{manifest['command']} --resume {shlex.quote(str(out))}"
    return MergeResult(out, len(keys), [part.folder for part in parts], duplicate_count, damages, [], command)
