"""Results on disk: one folder for each scenario, written as runs end.

Ctrl-C or `kill -9` loses only the run in progress.

A folder with results is written to again only to complete it. A command that fails or is stopped before any run ended
leaves its folder as it was, so that the same command can be given again; only `kill -9` and a second Ctrl-C leave a
folder without runs.

A run of virtual time is the same whenever and wherever it is made, so a folder can be resumed: `reopen` takes the runs
that are whole (run_store.py), if file, seed and commit are the same; damaged runs are made again. The files of the runs
are authoritative: the manifest's list of runs is written now and then, and when the command ends. The process that
writes to a folder holds a lock on it, which dies with the process.

DIR/manifest.json        schema mrc-results/1: file, seed, machine, loads; verdicts once all runs ended
DIR/scenario.yaml        copy of the file
DIR/runs/NAME.json       schema mrc-run/1: everything of one run (outcome.py), and its seal (run_store.py)
DIR/runs/NAME.csv        its time series: time_s, rate_bps of flows, lost, retransmitted, marked, trimmed, dropped,
                         planes, queues
DIR/runs/NAME.observations.jsonl   live: observations of the controller, for `mrc faults --replay` (docs/controller.md)
DIR/runs/NAME.output.txt           live: lines that programs of users printed, with their times
DIR/tasks/               while a scheduler makes runs: input and output of its tasks (executors/)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mrc_testbed.errors import DISK_FULL_ERRNOS, FullDiskError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.topology import topology_files
from mrc_testbed.experiments.language.yaml_loader import Document
from mrc_testbed.experiments.metrics.assertions import ExpectationVerdict
from mrc_testbed.experiments.metrics.repeats import Spread
from mrc_testbed.experiments.run_store import CSV, OBSERVATIONS, DamagedRun, RunStore, StoredRun
from mrc_testbed.files.file_names import is_plain, read_regular
from mrc_testbed.files.package import PACKAGE, SCENARIOS
from mrc_testbed.files.whole_files import PART, write_whole
from mrc_testbed.topologies.lab.options import EMBEDDED, LabOptions

SCHEMA = "mrc-results/1"
OVERLOAD = 0.9
"""Share of all CPUs busy above which times of a live run cannot be trusted."""
STOLEN = 0.01
"""Share of CPU time stolen by a hypervisor above which live times cannot be trusted (ms slices)."""
WRITE_EACH, WRITE_EVERY_S = 50, 2.0
"""Runs after each of which the manifest is written, and seconds of wall time between later writes."""
PACKAGES = ("finsy", "pydantic", "numpy", "scapy", "mininet", "pyroute2")

TASKS = "tasks"
"""Folder beside `runs` for files of a scheduler's tasks; kept while they work and when one failed."""
RESUME_CURE = "make room, and go on with --resume; runs that are whole stay"
OTHER_RUN_TEXT = "not the run that the manifest has"


class ResultsError(Exception):
    """Error for a folder that cannot be read or written as results; the text names the missing part."""


class UnwrittenError(ResultsError, FullDiskError):
    """Error for a full disk; the text names the file and the cure."""


def refusal(path: Path, error: OSError, kept_text: str = "") -> ResultsError:
    """Return the error for results that cannot be written.

    UnwrittenError, with the cure, after a full disk, which has an exit code of its own. `kept_text` ends the message.
    """
    if error.errno in DISK_FULL_ERRNOS:
        return UnwrittenError(f"{path}: {error.strerror}: make room there, or write elsewhere{kept_text}")
    return ResultsError(f"{path}: {error.strerror}{kept_text}")


RESULTS = Path("results")
"""Default folder of results."""


def default_folder(scenario: str, base: Path | None = None) -> Path:
    """Return results/NAME-20261121-141500, with a number when that exists."""
    base = base or RESULTS
    stem = f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = base / stem, 2
    while folder.exists():
        folder, number = base / f"{stem}-{number}", number + 1
    return folder


def rerun_command(
    path: Path, backend: str, seed: int | None, repeat: int | None, lab: LabOptions | None, scale: str | None = None
) -> str:
    """Return the command line that makes the same runs, for the manifest. `lab`: options of live runs."""
    top = SCENARIOS.parent
    path_text = path.resolve().relative_to(top) if path.resolve().is_relative_to(top) else path
    words = ["mrc", "run", str(path_text)]
    words += [f"--{backend}"] if backend in ("virtual", "fluid") else []
    options: list[tuple[str, object]] = [("--scale", scale), ("--seed", seed), ("--repeat", repeat)]
    if lab is not None:
        target, servers = None if lab.target == EMBEDDED else lab.target, lab.servers and lab.servers.file
        options = [("--target", target), ("--wires", lab.wires), ("--servers", servers), *options]
    for key, value in options:
        words += [key, str(value)] if value is not None else []
    return " ".join(words)


def machine() -> dict[str, Any]:
    """Return the machine and its software: versions, kernel, CPU, commit."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": sys.version.split()[0],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "packages": versions,
        "commit": _commit(),
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match[1] if match else platform.processor()


@cache
def _commit() -> str | None:
    """Return the commit of this checkout, with `+` when files differ from it; None outside a checkout."""
    try:
        result = subprocess.run(
            ["git", "-C", str(PACKAGE), "describe", "--always", "--abbrev=12", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _refusal_text(folder: Path) -> str:
    """Return the error text for a folder that holds results already, with the cure."""
    try:
        manifest = json.loads(read_regular(folder / "manifest.json"))
        planned_count, complete = len(manifest["planned"]), manifest["complete"]
        ended_count = len(RunStore.for_runs(folder / "runs", manifest["planned"]).written_names())
    except (OSError, ValueError, KeyError, TypeError):
        ended_count, planned_count, complete = 0, 0, True
    state = "" if complete else f" ({ended_count} of {planned_count} runs ended: the others still run, or were killed)"
    cure = "" if complete or manifest.get("where") != "virtual" else ", or go on with them (--resume)"
    return f"{folder} holds results already{state}: give another --out, or remove it{cure}"


def refuse_taken(folders: list[Path]) -> None:
    """Raise ResultsError when a folder holds results already, or two scenarios would share it.

    Called before the first run, since a refusal after an hour of runs is late. `Results.create` checks again: another
    command may be faster.
    """
    for folder in folders:
        if (folder / "manifest.json").exists() or (folder / "runs").exists():
            raise ResultsError(_refusal_text(folder))
    refuse_twice(folders)


def refuse_twice(folders: list[Path]) -> None:
    """Raise ResultsError when two scenarios would share a folder."""
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise ResultsError(f"two scenarios would both write to {folder}: run them one by one, with an --out each")


@dataclass(slots=True)
class Results:
    """Folder of one scenario's runs."""

    folder: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    _created_paths: list[Path] = field(default_factory=list)
    """Folders and files that this command made, in that order; nothing that existed before."""
    _lock: int | None = None
    """Descriptor of `runs`, locked while runs are written there."""
    _written_at: float = 0.0
    """Monotonic time at which the manifest was written."""

    cure: str = "make room; runs that are whole stay"
    """Cure in the error for a full disk."""
    _store: RunStore | None = None

    @property
    def store(self) -> RunStore:
        """Files of the runs."""
        if self._store is None:
            self._store = RunStore.for_runs(self.folder / "runs", self.manifest["planned"])
        return self._store

    @classmethod
    def create(
        cls,
        folder: Path,
        document: Document,
        title: str,
        backend: str,
        seed: int,
        runs: list[str],
        command: str = "",
        target: str | None = None,
        scale: str | None = None,
    ) -> Results:
        """Make the folder.

        `command`: command line that makes these results again; `target`: switches of live runs; `scale`: a scale of the
        file. Raises ResultsError when the folder holds results already, or cannot be written.
        """
        manifest = {
            "schema": SCHEMA,
            "scenario": document.name,
            "title": title,
            "where": backend,
            "seed": seed,
            "scale": scale,
            "command": command,
            "target": target,
            "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "machine": machine(),
            "planned": runs,
            "runs": [],
            "complete": False,
            "verdicts": [],
        }
        results = cls(folder, manifest)
        if backend == "virtual":
            results.cure = RESUME_CURE
        try:
            results._claim(document)
            results._take_lock()
        except BaseException as error:  # Ctrl-C too: the folder must be as it was
            results.stop()
            if isinstance(error, OSError):
                raise refusal(folder, error) from None
            raise
        return results

    def _claim(self, document: Document) -> None:
        """Make the folder and its files. Raises ResultsError, OSError.

        Of commands that start together only one makes `runs`.
        """
        runs, scenario, text = self.folder / "runs", self.folder / "scenario.yaml", document.path.read_bytes()
        if (self.folder / "manifest.json").exists():
            raise ResultsError(_refusal_text(self.folder))
        self._created_paths += reversed([path for path in (self.folder, *self.folder.parents) if not path.exists()])
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            runs.mkdir()
        except FileExistsError:
            raise ResultsError(_refusal_text(self.folder)) from None
        self._created_paths.append(runs)
        if scenario.exists():  # `--out .` beside the file itself
            if scenario.read_bytes() != text:
                raise ResultsError(f"{scenario} is another scenario: give another --out, or remove it")
        else:
            self._created_paths.append(scenario)
            write_whole(scenario, text)
        for name, content in topology_files(document).items():
            if not (copy := self.folder / name).exists():
                self._created_paths.append(copy)
                write_whole(copy, content)
        self._created_paths.append(self.folder / "manifest.json")
        self.write()

    @classmethod
    def reopen(
        cls,
        folder: Path,
        files: Mapping[str, bytes],
        backend: str,
        seed: int,
        runs: list[str],
        scale: str | None,
        keep: Callable[[StoredRun], None],
    ) -> tuple[Results, list[str]]:
        """Return results to resume, and a text for each damaged run.

        `files`: name -> content of the files that results are made from; `keep` gets each run that is whole, in order
        of `runs`. A damaged run is removed. Raises ResultsError for results of other files, another seed, scale, list
        of runs or commit, and for a folder that another command still writes.
        """
        results = cls(folder, read_manifest(folder), cure=RESUME_CURE)
        manifest = results.manifest
        try:
            changed_files = [name for name, content in files.items() if read_regular(folder / name) != content]
        except OSError as error:
            raise ResultsError(f"{folder}: {error.strerror}: {Path(error.filename).name}") from None
        settings = {"where": backend, "seed": seed, "scale": scale, "planned": runs}
        differences = [key for key, value in settings.items() if manifest.get(key) != value]
        differences += changed_files
        differences += [] if manifest["machine"]["commit"] == _commit() else ["commit"]
        if backend == "live":
            raise ResultsError(f"{folder}: live runs cannot be gone on with; give another --out")
        if differences:
            text = f"{folder} was made with another {', '.join(differences)}: give the same again, or another --out"
            raise ResultsError(text)
        try:
            (folder / "runs").mkdir(exist_ok=True)
            results._take_lock()
            damages = results._check_runs(keep)
            results._sweep()
        except OSError as error:
            raise refusal(folder, error) from None
        return results, damages

    def _check_runs(self, keep: Callable[[StoredRun], None]) -> list[str]:
        """Enter the whole runs in the manifest; remove and return the damaged ones, as texts. Raises OSError."""
        store, damages, listed_count = self.store, [], len(self.manifest["runs"])
        entries = []
        digests = {entry["name"]: entry["sha256"] for entry in self.manifest["runs"]}
        for name in store.stems:
            try:
                if (stored_run := store.read(name)) is None:
                    continue
                if digests.get(name, stored_run.sha256) != stored_run.sha256:
                    raise DamagedRun(f"{stored_run.file}: {OTHER_RUN_TEXT}")
                keep(stored_run)
                entries.append(stored_run.entry())
            except DamagedRun as error:
                damages.append(str(error))
                store.remove(name)
        self.manifest["runs"] = entries
        if len(entries) < listed_count:
            self.manifest["complete"] = False
        return damages

    def _sweep(self) -> None:
        """Remove partial files of killed writers. Raises OSError."""
        self.store.sweep()
        for path in self.folder.glob(f".*{PART}"):
            path.unlink(missing_ok=True)

    def _take_lock(self) -> None:
        """Lock the folder until the process ends, or stop() or finish(). Raises ResultsError, OSError."""
        lock = os.open(self.folder / "runs", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ResultsError(f"{self.folder}: another command still runs there: wait for it") from None
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def add_file(self, name: str, content: bytes) -> None:
        """Add a file that describes the runs; discard() removes it. Raises OSError."""
        self._created_paths.append(self.folder / name)
        write_whole(self.folder / name, content)

    def keep_only(self, names: set[str]) -> None:
        """Remove all runs but these."""
        for entry in self.manifest["runs"]:
            if entry["name"] not in names:
                self.store.remove(entry["name"])
        self.manifest["runs"] = [entry for entry in self.manifest["runs"] if entry["name"] in names]

    def stop(self) -> int:
        """Release the folder before all runs ended; return how many runs are kept.

        Without a run, all that this command made is removed. A folder with files of another process stays, and so does
        one for which tasks still work.
        """
        with suppress(OSError):  # a full disk has the runs that are whole, and that is what counts
            if self._lock is not None and not self.manifest["complete"]:
                self._sweep()
                self._enter_unread()
                if self.manifest["runs"]:
                    self.write()
        self._release()
        kept_count = len(self.manifest["runs"])
        if not kept_count and self._created_paths and not (self.folder / TASKS).exists():
            self.discard()
        return kept_count

    def discard(self) -> None:
        """Remove all that this command made, ended runs too; files of others stay."""
        self._release()
        for name in self.store.stems:
            with suppress(OSError):
                self.store.remove(name)  # also files beside a JSON that was not written
        for path in reversed(self._created_paths):
            with suppress(OSError):
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink(missing_ok=True)

    def _enter_unread(self) -> None:
        """Enter runs that tasks have written and that this process has not read yet."""
        listed_names = {entry["name"] for entry in self.manifest["runs"]}
        for name in self.store.written_names() - listed_names:
            with suppress(DamagedRun):
                if (stored_run := self.store.read(name)) is not None:
                    self._enter(stored_run)

    def add(self, outcome: Outcome, load: dict[str, Any]) -> None:
        """Write an ended run: its files, and its line in the manifest. Raises UnwrittenError."""
        try:
            self._enter(self.store.write(outcome, load))
            is_early = len(self.manifest["runs"]) <= WRITE_EACH
            if is_early or time.monotonic() - self._written_at >= WRITE_EVERY_S:
                self.write()
        except OSError as error:
            text = f"{self.folder}: run {outcome.name!r} cannot be written: {error.strerror}"
            raise UnwrittenError(f"{text}: {self.cure}") from None

    def _enter(self, stored_run: StoredRun) -> None:
        """Enter a run in the manifest, in place of an earlier line for it."""
        self.manifest["runs"] = [entry for entry in self.manifest["runs"] if entry["name"] != stored_run.outcome.name]
        self.manifest["runs"].append(stored_run.entry())

    def digest(self) -> str:
        """Return the SHA-256 of all outcomes, in the order planned.

        Included: names, seeds, metrics, series, observations. Not included: times of the machine, loads, paths. So the
        same file and seed give the same digest in virtual time on any machine, with any number of jobs and executor,
        also after Ctrl-C and --resume.
        """
        sha256 = hashlib.sha256()
        for entry in self._in_order():
            sha256.update(json.dumps([entry[key] for key in ("name", "label", "seed", "repeat")]).encode())
            for file in ("json", CSV, OBSERVATIONS):
                sha256.update(bytes.fromhex(entry["sha256"].get(file, "")))
        return sha256.hexdigest()

    def _in_order(self) -> list[dict[str, Any]]:
        """Return the runs of the manifest in the order planned; parallel runs end in any order."""
        order = {name: number for number, name in enumerate(self.manifest["planned"])}
        return sorted(self.manifest["runs"], key=lambda entry: order[entry["name"]])

    def finish(self, verdicts: list[ExpectationVerdict], repeats: list[Spread]) -> None:
        """Write the verdicts; all runs ended and are judged. Raises UnwrittenError."""
        self.manifest["runs"] = self._in_order()
        self.manifest["digest"] = self.digest() if self.manifest["where"] != "live" else None
        self.manifest["verdicts"] = [verdict.to_json() for verdict in verdicts]
        self.manifest["repeats"] = [spread.to_json() for spread in repeats]
        self.manifest["complete"] = True
        self.manifest["passed"] = all(verdict.passed for verdict in verdicts)
        try:
            self.write()
        except OSError as error:
            self.manifest["complete"] = False
            raise UnwrittenError(f"{self.folder}/manifest.json: {error.strerror}: {self.cure}") from None
        with suppress(OSError):
            self._sweep()
        self._release()

    def write(self) -> None:
        """Replace the manifest atomically. Raises OSError."""
        write_whole(self.folder / "manifest.json", json.dumps(self.manifest, indent=2).encode())
        self._written_at = time.monotonic()

    @classmethod
    def open(cls, folder: Path) -> tuple[Results, list[Outcome]]:
        """Return stored results, and their runs in the order planned. Raises ResultsError."""
        results = cls(folder, read_manifest(folder))
        manifest, store, outcomes = results.manifest, results.store, []
        entries = {entry["name"]: entry for entry in manifest["runs"]}
        manifest["runs"] = []
        try:
            for name in store.stems:
                if manifest["complete"] and name not in entries:
                    continue  # a study needed fewer runs than planned
                if (stored_run := store.read(name)) is None:
                    if manifest["complete"]:
                        raise ResultsError(_no_results_text(folder, store.path(name)))
                    continue
                entry = entries.get(name, stored_run.entry())
                if entry["sha256"] != stored_run.sha256:
                    raise DamagedRun(f"{stored_run.file}: {OTHER_RUN_TEXT}")
                outcomes.append(stored_run.outcome)
                manifest["runs"].append(entry)
        except DamagedRun as error:
            raise ResultsError(f"{folder}: {error}: {_repair_hint(manifest)}") from None
        except OSError as error:
            raise ResultsError(f"{folder}: {error}") from None
        return results, outcomes


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of manifest.json. Raises ResultsError."""
    try:
        manifest = json.loads(read_regular(folder / "manifest.json"))
        if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
            raise ResultsError(f"{folder}/manifest.json is not of schema {SCHEMA}")
        _refuse_names(folder, manifest)
        planned_names = set(manifest["planned"])
        if any(entry["name"] not in planned_names for entry in manifest["runs"]):
            raise ResultsError(f"{folder}/manifest.json has runs that were not planned")
    except FileNotFoundError as error:
        raise ResultsError(_no_results_text(folder, Path(error.filename))) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{folder}/manifest.json: {error}") from None
    return manifest


def _refuse_names(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise ResultsError for names in the manifest that lead out of the folder, and for symbolic links.

    A folder of results may come from another user, and its names become names of folders and files.
    """
    names = {"scenario": manifest["scenario"]}
    if "study" in manifest:
        names["study"] = manifest["study"]["study"]
    for key, name in names.items():
        if not is_plain(name):
            raise ResultsError(
                f"{folder}/manifest.json: {key} {name!r} is no name of a file, and results would be written elsewhere: "
                "was the folder changed? Make it again"
            )
    for name in ("runs", TASKS, "figures", "replay", "scenario.yaml", "study.yaml"):
        if (folder / name).is_symlink():
            raise ResultsError(f"{folder}/{name} is a symbolic link: results are in their own folder; copy them there")


def _repair_hint(manifest: dict[str, Any]) -> str:
    """Return the command that makes damaged runs again, in a sentence."""
    if manifest["where"] == "virtual":
        return f"`{manifest['command']} --resume DIR` makes it again"
    return f"make the results again: `{manifest['command']}`"


DEPTHS = ("", "*/", "*/*/")
"""Depths of results below a folder: itself, results/e6, results/live/e6."""


def folders_below(folder: Path) -> list[Path]:
    """Return the folders of results at or below a folder. Raises ResultsError when there are none."""
    folders = sorted({path.parent for depth in DEPTHS for path in folder.glob(f"{depth}manifest.json")})
    if not folders:
        missing_text = "" if folder.is_dir() else " (no such folder)"
        raise ResultsError(
            f"no results in {folder}{missing_text}: give a folder that `mrc run --out` made, or one with such folders"
        )
    return folders


def _no_results_text(folder: Path, file: Path) -> str:
    """Return the error text for a folder without results, with the cure."""
    if not folder.is_dir():
        return f"no folder {folder}: give one that `mrc run --out` made"
    subfolders = sorted(path.parent.name for path in folder.glob("*/manifest.json"))
    if file.name != "manifest.json":
        return f"no whole results in {folder}: {file.relative_to(folder)} is missing"
    if subfolders:
        names_text = ", ".join(subfolders[:8]) + (" ..." if len(subfolders) > 8 else "")
        return f"{folder} holds several results: give one of them ({names_text})"
    return f"no results in {folder}: manifest.json is missing; give a folder that `mrc run --out` made"


def trust(manifest: dict[str, Any]) -> list[str]:
    """Return sentences on how far numbers can be trusted: completeness, precision of times."""
    planned_count, loads = len(manifest["planned"]), [(entry["name"], entry["load"]) for entry in manifest["runs"]]
    out = []
    if not manifest["complete"]:
        out.append(f"Unfinished: {len(loads)} of {planned_count} runs ended; the rest were not run, or were cut short.")
    if manifest["where"] == "virtual":
        return [*out, "Virtual time: exact and the same on any machine, however busy it was."]
    if manifest["where"] == "fluid":
        return [*out, "Fluid model: rates instead of packets; its error against virtual time is in docs/fluid.md."]
    overloaded_runs = [f"“{name}” {_share(load)}" for name, load in loads if load["overloaded"]]
    if overloaded_runs:
        shares = ", ".join(overloaded_runs)
        out.append(
            f"The machine was overloaded in {len(overloaded_runs)} of {len(loads)} runs (CPUs busy: {shares}): "
            "packets and timers waited for the CPUs. Do not trust times, rates and what follows from them there "
            "(outages, latencies, queues, marks); bytes, sums and which paths were given up are right."
        )
    elif loads:
        busiest = max(load["busy"] for _, load in loads)
        out.append(f"Live: the CPUs were at most {100 * busiest:.0f} % busy; times are good to a few milliseconds.")
    return out


def _share(load: dict[str, Any]) -> str:
    stolen = load.get("stolen", 0.0)
    return f"{100 * load['busy']:.0f} %" + (f" ({100 * stolen:.0f} % stolen)" if stolen > STOLEN else "")


def _grouped() -> bool:
    try:
        return Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return False


class LoadMeter:
    """Load of the machine during a run, from /proc/stat: all CPUs, with steal and other processes' work.

    Niced work is not counted where it gives way: unless the kernel groups tasks by session (autogroup), which makes
    `nice` mean nothing between sessions. `sample` is called while the run's work goes on; load before the first sample
    and after the last, when the fabric starts and stops, does not count.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first_sample: tuple[int, int, int] | None = None
        self._last_sample = self._start_sample = self._read()

    def sample(self) -> None:
        """Take a sample, which becomes the end of the measured span."""
        self._last_sample = self._read()
        self._first_sample = self._first_sample or self._last_sample

    @staticmethod
    def _read() -> tuple[int, int, int]:
        """Return (busy, stolen, all) clock ticks since boot; busy ticks include stolen ones."""
        try:
            fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return 0, 0, 0
        nice, idle_ticks = (0 if _grouped() else fields[1]), fields[3] + fields[4]
        return sum(fields) - idle_ticks - nice, fields[7], sum(fields)

    def read(self, backend: str) -> dict[str, Any]:
        """Return the load: share of all CPUs busy, quality of a live run's times, seconds since the start."""
        first, last = (
            (self._first_sample, self._last_sample) if self._first_sample else (self._start_sample, self._read())
        )
        ticks = [end - start for start, end in zip(first, last, strict=True)]
        busy_share, stolen_share = (ticks[0] / ticks[2], ticks[1] / ticks[2]) if ticks[2] else (0.0, 0.0)
        overloaded = backend == "live" and (busy_share > OVERLOAD or stolen_share > STOLEN)
        kinds = {"virtual": "exact: virtual time", "fluid": "approximate: fluid model"}
        trust = kinds.get(backend, "good to a few ms")
        if overloaded:
            stolen_text = (
                f", {100 * stolen_share:.0f} % of it for other guests of the host" if stolen_share > STOLEN else ""
            )
            busy_text = f"the CPUs were busy {100 * busy_share:.0f} % of the time{stolen_text}"
            trust = f"poor: {busy_text}; packets and timers had to wait"
        return {
            "busy": round(busy_share, 3),
            "stolen": round(stolen_share, 3),
            "overloaded": overloaded,
            "times": trust,
            "wall_s": round(time.monotonic() - self._began, 3),
        }
