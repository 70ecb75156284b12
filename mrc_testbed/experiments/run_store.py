"""Files of single runs, each whole or absent, with a seal that shows damage.

store = RunStore.for_runs(folder / "runs", names)
store.write(outcome, load)              # NAME.csv, then NAME.json with its seal, both on the disk before it returns
stored = store.read("mrc loss=1%")      # None: absent. Raises DamagedRun
store.read(name).sha256                 # input of Results.digest()

Any process that makes a run may write it, on any machine that shares the folder: two writers of one run write the same
content, each under a name of its own until the file is whole. The JSON is written last, so its presence means that all
files are there. Its last key is the seal: SHA-256 of the JSON before it and of the files beside it, and the load of the
machine, which is in no digest.
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

CSV, OBSERVATIONS, OUTPUT = "csv", "observations.jsonl", "output.txt"
"""Name endings of the files beside a run's JSON."""
_SEAL = b', "seal": '


class DamagedRun(ValueError):  # noqa: N818 - a state of the file, not a failure of the program
    """Error for a run whose file is not as it was written; the text names file and damage."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that is whole on disk."""

    outcome: Outcome
    load: dict[str, Any]
    sha256: dict[str, str]
    """Digest by file: json (the outcome alone), csv, observations.jsonl, output.txt."""
    file: str
    """Path of the JSON, relative to the manifest: runs/NAME.json."""

    def entry(self) -> dict[str, Any]:
        """Return the run's line of the manifest."""
        outcome = self.outcome
        return {
            "name": outcome.name,
            "file": self.file,
            "label": outcome.label,
            "seed": outcome.seed,
            "repeat": outcome.repeat,
            "duration_s": outcome.duration_s,
            "load": self.load,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class RunStore:
    """The folder `runs` of results. Can be pickled, for tasks on other machines."""

    folder: Path
    stems: dict[str, str]
    """Run name -> file name without its ending.

    Names that would give one file (`a+b`, `a b`) get different ones by their order in the plan, the same in every
    process.
    """

    @classmethod
    def for_runs(cls, folder: Path, names: list[str]) -> RunStore:
        """Return the store for runs of these names, in the order planned."""
        stems: dict[str, str] = {}
        used_stems: set[str] = set()
        for name in names:
            stem = file_name(name)
            while stem in used_stems:
                stem += "_"
            used_stems.add(stem)
            stems[name] = stem
        return cls(folder.absolute(), stems)

    def path(self, name: str) -> Path:
        """Return the path of a run's JSON."""
        return self.folder / f"{self.stems[name]}.json"

    def written_names(self) -> set[str]:
        """Return the names of runs whose JSON exists, whole or not; lists the folder once."""
        try:
            files = set(os.listdir(self.folder))
        except OSError:
            return set()
        return {name for name, stem in self.stems.items() if f"{stem}.json" in files}

    def read(self, name: str) -> StoredRun | None:
        """Return a whole run; None when it is absent. Raises DamagedRun, OSError."""
        path = self.path(name)
        try:
            raw = read_regular(path)
        except FileNotFoundError:
            return None
        text, mark, seal_bytes = raw.rpartition(_SEAL)
        try:
            seal = json.loads(seal_bytes[:-1] if mark and seal_bytes.endswith(b"}") else b"")
            sha256, load = dict(seal["sha256"]), dict(seal["load"])
        except (ValueError, TypeError, KeyError):
            raise DamagedRun(f"runs/{path.name}: its end is missing or damaged ({len(raw):,} bytes)") from None
        text += b"}"
        if _sha256(text) != sha256.get("json"):
            raise DamagedRun(f"runs/{path.name}: its bytes are not those that were written")
        for ending in (CSV, OBSERVATIONS, OUTPUT):
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
        """Write a run to the disk; one that exists with the same content stays. Raises OSError.

        Removes observations and output from the outcome: they may be megabytes, and a scenario may have a hundred runs.
        """
        text = json.dumps(outcome.to_json()).encode()
        files = {CSV: _csv(outcome), OBSERVATIONS: outcome.observations, OUTPUT: outcome.output}
        files = {ending: data for ending, data in files.items() if data or ending == CSV}
        sha256 = {"json": _sha256(text)} | {ending: _sha256(data) for ending, data in files.items()}
        outcome.observations = outcome.output = b""
        path = self.path(outcome.name)
        with suppress(DamagedRun):
            existing_run = self.read(outcome.name)
            if existing_run is not None and existing_run.sha256 == sha256:
                return existing_run
        for ending, data in files.items():
            write_whole(path.with_suffix(f".{ending}"), data)
        write_whole(path, text[:-1] + _SEAL + json.dumps({"sha256": sha256, "load": load}).encode() + b"}")
        sync_folder(self.folder)
        return StoredRun(outcome, load, sha256, f"runs/{path.name}")

    def remove(self, name: str) -> None:
        """Remove the files of a run: one that is damaged, or that a merge leaves out."""
        for ending in ("json", CSV, OBSERVATIONS, OUTPUT):
            self.path(name).with_suffix(f".{ending}").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove partial files of killed writers."""
        for path in self.folder.glob(f".*{PART}"):
            path.unlink(missing_ok=True)


def file_name(run: str) -> str:
    """Return a run's name as a file name."""
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", run).strip("_.") or "run"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _csv(outcome: Outcome) -> bytes:
    """Return the time series of a run as CSV, a line for each interval."""
    times_s, columns = outcome.series.times_s, outcome.series.columns()
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["time_s", *(column.name for column in columns)])
    for row in range(len(times_s)):
        writer.writerow([times_s[row], *(c.values[row] if row < len(c.values) else "" for c in columns)])
    return file.getvalue().encode()
