"""`mrc merge DIR... --out DIR`: results of several folders as one, each run once.

What belongs together is told by the name of the scenario or study; a run is known by its label (variant, swept values)
and seed. Folders of one scenario may have the same runs, others of them, or other seeds: seeds 1 to 10 of one machine
and 11 to 20 of another are together what `--repeat 20` makes, with the same digest. What is missing is told, with the
command that makes it; runs that are damaged are left out. The same run with another content is a conflict: it is named,
and nothing is written.
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
from mrc_testbed.errors import UNWRITTEN
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.command import FAILED, PASSED, print_report
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.results import (
    Results,
    ResultsError,
    again,
    folders_below,
    read_manifest,
    refusal,
    refuse_taken,
)
from mrc_testbed.experiments.run_store import DamagedRun, RunStore, StoredRun
from mrc_testbed.experiments.runner import Planned, Prepared, RunReport, carry_out, plan_runs
from mrc_testbed.files.file_names import read_regular

FILES = ("scenario.yaml", "study.yaml")
AGAIN = "make room there and merge again, or give another --out; nothing of this merge is kept"
SHOWN = 8
"""Runs named in a message."""

Key = tuple[str, int]
"""A run: its label as JSON, and its seed."""


@dataclass(slots=True)
class ResultsPart:
    """A folder that is merged."""

    folder: Path
    manifest: dict[str, Any]
    store: RunStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = RunStore.of(self.folder / "runs", self.manifest["planned"])

    def runs(self, damaged: list[str] | None = None) -> Iterator[StoredRun]:
        """Those that are whole. Raises ResultsError for a disk that cannot be read."""
        for name in self.store.stems:
            try:
                if (stored := self.store.read(name)) is not None:
                    yield stored
            except DamagedRun as error:
                if damaged is not None:
                    damaged.append(f"{self.folder}/{error}")
            except OSError as error:
                raise ResultsError(f"{self.folder}: {error}") from None


@dataclass(slots=True)
class Merged:
    """What came of one scenario."""

    folder: Path
    runs: int
    parts: list[Path]
    twice: int
    """Runs that more than one folder had; they count once."""
    damaged: list[str]
    missing: list[str]
    command: str
    """Makes what is missing."""
    digest: str | None = None
    passed: bool | None = None
    """None: not complete, or a study, which has no verdict."""
    report: RunReport | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "runs": self.runs,
            "parts": [str(part) for part in self.parts],
            "twice": self.twice,
            "damaged": self.damaged,
            "missing": self.missing,
            "command": self.command,
            "digest": self.digest,
            "passed": self.passed,
        }


class _Quiet:
    """No runs are made here."""

    def begins(self, runs: list[RunPlan]) -> None: ...

    def progress(self, run: RunPlan, share: float, now: float) -> None: ...

    def ends(self, run: RunPlan, outcome: Outcome, /) -> None: ...

    def stops(self, kept: int, folder: Path) -> None: ...


def run(folders: list[Path], out: Path, as_json: bool) -> int:
    """Merge and tell; returns the exit code: 1 when a rule of a complete scenario did not hold. Raises ResultsError."""
    console = terminal.console(stderr=as_json)
    groups = _groups(folders)
    targets = {name: out / name if len(groups) > 1 else out for name in groups}
    refuse_taken(list(targets.values()))
    for parts in groups.values():
        _refuse_different(parts)
    with Progress(console, "merge", size=len(groups)) as progress:
        found: dict[str, dict[Key, str]] = {}
        damaged: dict[str, list[str]] = {name: [] for name in groups}
        for number, (name, parts) in enumerate(groups.items()):
            progress.share(number / len(groups) / 2, f"reading {name}")
            found[name] = _contents(parts, damaged[name])
        merged: list[Merged] = []
        made: list[Results] = []
        try:
            for number, (name, parts) in enumerate(groups.items()):
                progress.share(0.5 + number / len(groups) / 2, f"writing {name}")
                merge = _study if "study" in parts[0].manifest else _scenario
                merged.append(merge(parts, targets[name], set(found[name]), damaged[name], made))
        except BaseException:  # a full disk, Ctrl-C: the same command has to work again
            _discard(made)
            raise
    unwritten = any(one.report is not None and one.report.unwritten for one in merged)
    if unwritten:
        _discard(made)
    for one in merged:
        if one.report is not None:
            print_report(console, one.report)
        if unwritten:
            continue
        for text in one.damaged:
            console.print(escape(f"left out: {text}"), style="yellow", soft_wrap=True)
        twice = f", {one.twice} of them in several" if one.twice else ""
        console.print(escape(f"{one.runs} runs of {len(one.parts)} folders{twice}, in {one.folder}"), soft_wrap=True)
        if one.command:
            names = ", ".join(one.missing[:SHOWN]) + (" ..." if len(one.missing) > SHOWN else "")
            lacks = f"{len(one.missing)} are missing ({names}); " if one.missing else ""
            console.print(escape(f"{lacks}go on with: {one.command}"), style="yellow", soft_wrap=True)
    if as_json:
        print(json.dumps([one.to_json() for one in merged], indent=2))
    if unwritten:
        return UNWRITTEN
    return FAILED if any(one.passed is False for one in merged) else PASSED


def _discard(made: list[Results]) -> None:
    """Remove what a merge that did not come to its end has written: its parts have it all."""
    for results in made:
        results.discard()


def _groups(folders: list[Path]) -> dict[str, list[ResultsPart]]:
    """Folders by the name of their scenario, each once. Raises ResultsError."""
    groups: dict[str, list[ResultsPart]] = {}
    seen = set()
    for given in folders:
        for folder in folders_below(given):
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
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
    """Raises ResultsError for folders that are not of the same file, scale and commit."""
    first = parts[0]
    for part in parts[1:]:
        other = ["scale"] if part.manifest.get("scale") != first.manifest.get("scale") else []
        other += [name for name in FILES if _content(part.folder / name) != _content(first.folder / name)]
        if part.manifest["machine"]["commit"] != first.manifest["machine"]["commit"]:
            other.append("commit")
        if other:
            raise ResultsError(
                f"{first.folder} and {part.folder} are of another {', '.join(other)}: their runs are not those of one "
                "set; merge them apart, or make one of them again"
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


def _contents(parts: list[ResultsPart], damaged: list[str]) -> dict[Key, str]:
    """Digest of each run without what depends on its place among the repeats. Raises ResultsError for conflicts."""
    found: dict[Key, tuple[str, Path]] = {}
    conflicts: list[str] = []
    for part in parts:
        for stored in part.runs(damaged):
            one, key = stored.outcome, _key(stored.outcome)
            values = one.to_json() | {"name": "", "repeat": 0}
            content = hashlib.sha256(json.dumps([values, stored.sha256.get("csv")]).encode()).hexdigest()
            there, where = found.setdefault(key, (content, part.folder))
            if there != content:
                conflicts.append(f"{one.name!r} (seed {one.seed}) of {where} and {part.folder}")
    if conflicts:
        shown = "; ".join(conflicts[:SHOWN]) + (" ..." if len(conflicts) > SHOWN else "")
        raise ResultsError(
            f"{len(conflicts)} run(s) have another content in another folder, though file, seed and commit are the "
            f"same: {shown}. One of the folders was changed, or its machine computes wrongly: make it again"
        )
    return {key: content for key, (content, _) in found.items()}


def _scenario(parts: list[ResultsPart], out: Path, keys: set[Key], damaged: list[str], made: list[Results]) -> Merged:
    """Plan the runs of all seeds, put in those that are there, and judge when none is missing.

    `made` gets the results as soon as something of them is on the disk.
    """
    first = parts[0]
    seeds = [seed for _, seed in keys] or [first.manifest["seed"]]
    planned = _planned(first, min(seeds), max(seeds) - min(seeds) + 1)
    runs = {(json.dumps(run.label, sort_keys=True), run.seed): (number, run) for number, run in enumerate(planned.runs)}
    unknown = [key for key in keys if key not in runs]
    if unknown:
        raise ResultsError(f"{first.folder}/scenario.yaml does not make run {unknown[0][0]} with seed {unknown[0][1]}")
    prepared = Prepared.create(planned, out)
    prepared.results.cure = AGAIN
    made.append(prepared.results)
    file = Path(shlex.split(first.manifest["command"])[2])  # not the copy in the folder
    command = again(file, planned.where, planned.seed, planned.repeat, None, planned.scale)
    prepared.results.manifest["command"] = command
    done, twice = prepared.done, 0
    try:
        for part in parts:
            for stored in part.runs():
                number, run = runs[_key(stored.outcome)]
                if number in done:
                    twice += 1
                    continue
                stored.outcome.name, stored.outcome.repeat = run.name, run.repeat
                prepared.results.add(stored.outcome, stored.load)
                done[number] = stored.outcome
        missing = [run.name for run in prepared.missing(planned)]
        merged = Merged(out, len(done), [part.folder for part in parts], twice, damaged, missing, "")
        if missing:
            prepared.results.stop()
            merged.command = f"{command} --resume {shlex.quote(str(out))}"
            return merged
        merged.report = carry_out(planned, _Quiet(), prepared=prepared)
        merged.digest, merged.passed = merged.report.digest, merged.report.passed
        return merged
    finally:
        prepared.results.stop()


def _planned(first: ResultsPart, seed: int, repeat: int) -> Planned:
    """The runs of these seeds. Raises ResultsError for a file that is no scenario (any more)."""
    manifest = first.manifest
    try:
        document = read(first.folder / "scenario.yaml")
        document.name = str(manifest["scenario"])
        planned = plan_runs(document, manifest["where"], seed=seed, repeat=repeat, scale=manifest.get("scale"))
    except ScenarioError as error:
        raise ResultsError(
            f"{first.folder}/scenario.yaml is not a scenario of this version: {error.problems[0]}"
        ) from None
    return planned


def _study(parts: list[ResultsPart], out: Path, keys: set[Key], damaged: list[str], made: list[Results]) -> Merged:
    """The runs of a study; how many it needs is decided when it is gone on with. `made`: as of a scenario."""
    first = parts[0]
    document = read(first.folder / "scenario.yaml")
    document.name = str(first.manifest["scenario"])
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
    results.cure = AGAIN
    made.append(results)
    results.manifest["study"] = manifest["study"]
    try:
        content = _content(first.folder / FILES[1])
        if content is not None:
            results.add_file(FILES[1], content)
        done: set[Key] = set()
        twice = 0
        for part in parts:
            for stored in part.runs():
                if _key(stored.outcome) in done:
                    twice += 1
                    continue
                done.add(_key(stored.outcome))
                results.add(stored.outcome, stored.load)
    except OSError as error:
        raise refusal(out, error) from None
    finally:
        results.stop()
    command = f"{manifest['command']} --resume {shlex.quote(str(out))}"
    return Merged(out, len(keys), [part.folder for part in parts], twice, damaged, [], command)
