"""Files of single runs: each is whole or not there, and tells by a seal whether it is still as it was written.

store = RunStore.of(folder / "runs", names)
store.write(outcome, load)              # NAME.csv, then NAME.json with its seal, both on the disk before it returns
stored = store.read("mrc loss=1%")      # None: not there. Raises DamagedRun
store.read(name).sha256                 # what Results.digest() is made of

Whoever makes a run may write it, on any machine that shares the folder: two that write the same run give it the same
content, each under a name of its own until the file is whole. The JSON comes last: where it is, the rest is too. Its
last key is the seal: SHA-256 of the JSON before it and of the files beside it, and how busy the machine was, which no
digest holds.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.files.file_names import read_regular
from mrc_testbed.files.whole_files import PART, sync_folder, write_whole

CSV, OBSERVATIONS = "csv", "observations.jsonl"
"""Files beside a run's JSON, by what their names end in."""
_SEAL = b', "seal": '


class DamagedRun(ValueError):  # noqa: N818 - what was found, not what went wrong
    """A run's file is not as it was written; the text names file and damage."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that is whole on disk."""

    outcome: Outcome
    load: dict[str, Any]
    sha256: dict[str, str]
    """By file: json (the outcome alone), csv, observations.jsonl."""
    file: str
    """Of its JSON, beside the manifest: runs/NAME.json."""

    def entry(self) -> dict[str, Any]:
        """Line of the manifest."""
        one = self.outcome
        return {
            "name": one.name,
            "file": self.file,
            "label": one.label,
            "seed": one.seed,
            "repeat": one.repeat,
            "duration_s": one.duration_s,
            "load": self.load,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class RunStore:
    """The folder `runs` of results. Can be pickled: tasks on other machines take it along."""

    folder: Path
    stems: dict[str, str]
    """Run name -> file name without its ending. Names that would be one file (`a+b`, `a b`) have their own, by their
    order in the plan, so that everybody finds the same."""

    @classmethod
    def of(cls, folder: Path, names: list[str]) -> RunStore:
        """For runs of these names, in the order in which they were planned."""
        stems: dict[str, str] = {}
        taken: set[str] = set()
        for name in names:
            stem = file_name(name)
            while stem in taken:
                stem += "_"
            taken.add(stem)
            stems[name] = stem
        return cls(folder.absolute(), stems)

    def path(self, name: str) -> Path:
        """JSON of a run."""
        return self.folder / f"{self.stems[name]}.json"

    def written(self) -> set[str]:
        """Names of runs whose JSON is there, whole or not: one look at the folder."""
        try:
            files = set(os.listdir(self.folder))
        except OSError:
            return set()
        return {name for name, stem in self.stems.items() if f"{stem}.json" in files}

    def read(self, name: str) -> StoredRun | None:
        """A run that is whole; None when there is none. Raises DamagedRun, OSError for a disk that cannot be read."""
        path = self.path(name)
        try:
            raw = read_regular(path)
        except FileNotFoundError:
            return None
        text, mark, rest = raw.rpartition(_SEAL)
        try:
            seal = json.loads(rest[:-1] if mark and rest.endswith(b"}") else b"")
            sha256, load = dict(seal["sha256"]), dict(seal["load"])
        except (ValueError, TypeError, KeyError):
            raise DamagedRun(f"runs/{path.name}: its end is missing or damaged ({len(raw):,} bytes)") from None
        text += b"}"
        if _sha256(text) != sha256.get("json"):
            raise DamagedRun(f"runs/{path.name}: its bytes are not those that were written")
        for ending in (CSV, OBSERVATIONS):
            self._check(path.with_suffix(f".{ending}"), sha256.get(ending))
        try:
            outcome = Outcome.from_json(json.loads(text))
        except ValueError as error:
            raise DamagedRun(f"runs/{path.name}: {error}") from None
        if outcome.name != name:
            raise DamagedRun(f"runs/{path.name}: is of run {outcome.name!r}, not of {name!r}")
        return StoredRun(outcome, load, sha256, f"runs/{path.name}")

    @staticmethod
    def _check(path: Path, sha256: str | None) -> None:
        if sha256 is None:
            return
        try:
            data = read_regular(path)
        except FileNotFoundError:
            raise DamagedRun(f"runs/{path.name} is missing") from None
        if _sha256(data) != sha256:
            raise DamagedRun(f"runs/{path.name}: its bytes are not those that were written")

    def write(self, outcome: Outcome, load: dict[str, Any]) -> StoredRun:
        """Put a run on the disk; one that is there already with the same content stays. Raises OSError.

        Takes the observations out of the outcome: they may be megabytes, and a scenario may have a hundred runs.
        """
        text = json.dumps(outcome.to_json()).encode()
        files = {CSV: _csv(outcome)} | ({OBSERVATIONS: outcome.observations} if outcome.observations else {})
        sha256 = {"json": _sha256(text)} | {ending: _sha256(data) for ending, data in files.items()}
        outcome.observations = b""
        path = self.path(outcome.name)
        with suppress(DamagedRun):
            there = self.read(outcome.name)
            if there is not None and there.sha256 == sha256:
                return there
        for ending, data in files.items():
            write_whole(path.with_suffix(f".{ending}"), data)
        write_whole(path, text[:-1] + _SEAL + json.dumps({"sha256": sha256, "load": load}).encode() + b"}")
        sync_folder(self.folder)
        return StoredRun(outcome, load, sha256, f"runs/{path.name}")

    def remove(self, name: str) -> None:
        """Forget a run: one that is damaged, or that a merge leaves out."""
        for ending in ("json", CSV, OBSERVATIONS):
            self.path(name).with_suffix(f".{ending}").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        for path in self.folder.glob(f".*{PART}"):
            path.unlink(missing_ok=True)


def file_name(run: str) -> str:
    """A run's name as a file name."""
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", run).strip("_.") or "run"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _csv(outcome: Outcome) -> bytes:
    """Its time series, a line an interval."""
    times_s, columns = outcome.series.times_s, outcome.series.columns()
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["time_s", *(column.name for column in columns)])
    for row in range(len(times_s)):
        writer.writerow([times_s[row], *(c.values[row] if row < len(c.values) else "" for c in columns)])
    return file.getvalue().encode()
