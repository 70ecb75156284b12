"""Results on disk: a folder a scenario, written as runs end: Ctrl-C or `kill -9` loses only the run in progress.

A folder with results is written to again only to complete it. One of a command that failed or was stopped before any
run ended is as it was, so that the same command can be given again; only `kill -9` and a second Ctrl-C leave one
without runs.

A run of virtual time is the same whenever and wherever it is made, so a folder may be gone on with: `reopen` takes it
again, with the runs that are whole (run_store.py), from the same file, seed and commit; those that are damaged are made
again. What runs there are is said by their files: the manifest's list of them is written now and then, and when the
command ends. Who writes to a folder holds a lock on it, which dies with the process.

DIR/manifest.json        schema mrc-results/1: what was run, on what, how loaded; verdicts once all is done
DIR/scenario.yaml        the file as it was
DIR/runs/NAME.json       schema mrc-run/1: everything of one run (outcome.py), and its seal (run_store.py)
DIR/runs/NAME.csv        its time series: time_s, rate_bps of flows, lost, retransmitted, marked, trimmed, dropped,
                         planes, queues
DIR/runs/NAME.observations.jsonl   live: observations of the controller, for `mrc faults --replay` (docs/controller.md)
DIR/tasks/               while runs are made elsewhere: what a scheduler's tasks got and said (executors/)
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

from mrc_testbed.errors import FULL, FullDiskError
from mrc_testbed.experiments.backend.outcome import Outcome
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
"""Share of their time that a hypervisor gave to other guests, above which neither: it goes in slices of many ms."""
WRITE_EACH, WRITE_EVERY_S = 50, 2.0
"""The manifest is written after each of the first runs, and then with so much wall time between."""
PACKAGES = ("finsy", "pydantic", "numpy", "scapy", "mininet", "pyroute2")

TASKS = "tasks"
"""Folder beside `runs` for what tasks elsewhere need, there while they work and when one has failed."""
RESUMED = "make room, and go on with --resume; runs that are whole stay"
NOT_THE_ONE = "it is not the one that the manifest has"


class ResultsError(Exception):
    """A folder is not one of results; the text names the missing part."""


class UnwrittenError(ResultsError, FullDiskError):
    """The disk did not take results; the text names the file and the cure."""


def refusal(path: Path, error: OSError, kept: str = "") -> ResultsError:
    """The error that tells why results cannot be written, and, after a full disk, the cure; `kept` says what is whole.

    Returns UnwrittenError after a full disk, which has an exit code of its own.
    """
    if error.errno in FULL:
        return UnwrittenError(f"{path}: {error.strerror}: make room there, or write elsewhere{kept}")
    return ResultsError(f"{path}: {error.strerror}{kept}")


RESULTS = Path("results")
"""Where results go unless told otherwise."""


def default_folder(scenario: str, base: Path | None = None) -> Path:
    """results/NAME-20261121-141500; a number is added when that exists."""
    base = base or RESULTS
    stem = f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = base / stem, 2
    while folder.exists():
        folder, number = base / f"{stem}-{number}", number + 1
    return folder


def again(
    path: Path, where: str, seed: int | None, repeat: int | None, lab: LabOptions | None, scale: str | None = None
) -> str:
    """The command line that makes the same runs; part of the manifest. `lab`: of live runs."""
    top = SCENARIOS.parent
    shown = path.resolve().relative_to(top) if path.resolve().is_relative_to(top) else path
    words = ["mrc", "run", str(shown)]
    words += [f"--{where}"] if where in ("virtual", "fluid") else []
    options: list[tuple[str, object]] = [("--scale", scale), ("--seed", seed), ("--repeat", repeat)]
    if lab is not None:
        target, servers = None if lab.target == EMBEDDED else lab.target, lab.servers and lab.servers.file
        options = [("--target", target), ("--wires", lab.wires), ("--servers", servers), *options]
    for key, value in options:
        words += [key, str(value)] if value is not None else []
    return " ".join(words)


def machine() -> dict[str, Any]:
    """The machine and its software: versions, kernel, CPU, commit."""
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
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return found[1] if found else platform.processor()


@cache
def _commit() -> str | None:
    """Commit of the checkout we run from, with `+` when files differ from it; None outside of one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), "describe", "--always", "--abbrev=12", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _taken(folder: Path) -> str:
    """Why a folder is refused, and how to go on."""
    try:
        manifest = json.loads(read_regular(folder / "manifest.json"))
        planned, complete = len(manifest["planned"]), manifest["complete"]
        ended = len(RunStore.of(folder / "runs", manifest["planned"]).written())
    except (OSError, ValueError, KeyError, TypeError):
        ended, planned, complete = 0, 0, True
    state = "" if complete else f" ({ended} of {planned} runs ended: they still go on, or were killed)"
    cure = "" if complete or manifest.get("where") != "virtual" else ", or go on with them (--resume)"
    return f"{folder} holds results already{state}: give another --out, or remove it{cure}"


def refuse_taken(folders: list[Path]) -> None:
    """Before an hour of runs, not at the last one's turn. Raises ResultsError when a folder is taken, or meant twice.

    `Results.create` has the last word: another command may be faster.
    """
    for folder in folders:
        if (folder / "manifest.json").exists() or (folder / "runs").exists():
            raise ResultsError(_taken(folder))
    refuse_twice(folders)


def refuse_twice(folders: list[Path]) -> None:
    """Raises ResultsError when two scenarios would share a folder."""
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise ResultsError(f"two scenarios would both write to {folder}: run them one by one, with an --out each")


@dataclass(slots=True)
class Results:
    """The folder of one scenario's runs."""

    folder: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    _made: list[Path] = field(default_factory=list)
    """Folders and files of ours, in the order in which they were made; nothing that was there before."""
    _lock: int | None = None
    """Descriptor of `runs`, locked while runs are written there."""
    _written_at: float = 0.0
    """Monotonic time at which the manifest was written."""

    cure: str = "make room; runs that are whole stay"
    """What helps when the disk takes no more of it, for the error that tells it."""
    _store: RunStore | None = None

    @property
    def store(self) -> RunStore:
        """Its runs' files."""
        if self._store is None:
            self._store = RunStore.of(self.folder / "runs", self.manifest["planned"])
        return self._store

    @classmethod
    def create(
        cls,
        folder: Path,
        document: Document,
        title: str,
        where: str,
        seed: int,
        runs: list[str],
        command: str = "",
        target: str | None = None,
        scale: str | None = None,
    ) -> Results:
        """Make the folder. `command`: what makes these results again; `target`: of live runs; `scale`: the file's.

        Raises ResultsError when it holds results already, or cannot be written.
        """
        manifest = {
            "schema": SCHEMA,
            "scenario": document.name,
            "title": title,
            "where": where,
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
        made = cls(folder, manifest)
        if where == "virtual":
            made.cure = RESUMED
        try:
            made._claim(document)
            made._take_lock()
        except BaseException as error:
            made.stop()
            if isinstance(error, OSError):
                raise refusal(folder, error) from None
            raise
        return made

    def _claim(self, document: Document) -> None:
        """Take the folder; of commands that begin together one makes `runs`. Raises ResultsError, OSError."""
        runs, scenario, text = self.folder / "runs", self.folder / "scenario.yaml", document.path.read_bytes()
        if (self.folder / "manifest.json").exists():
            raise ResultsError(_taken(self.folder))
        self._made += reversed([path for path in (self.folder, *self.folder.parents) if not path.exists()])
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            runs.mkdir()
        except FileExistsError:
            raise ResultsError(_taken(self.folder)) from None
        self._made.append(runs)
        if scenario.exists():  # `--out .` beside the file itself
            if scenario.read_bytes() != text:
                raise ResultsError(f"{scenario} is another scenario: give another --out, or remove it")
        else:
            self._made.append(scenario)
            write_whole(scenario, text)
        self._made.append(self.folder / "manifest.json")
        self.write()

    @classmethod
    def reopen(
        cls,
        folder: Path,
        files: Mapping[str, bytes],
        where: str,
        seed: int,
        runs: list[str],
        scale: str | None,
        keep: Callable[[StoredRun], None],
    ) -> tuple[Results, list[str]]:
        """Results to go on with, and what is damaged, in words. `keep` gets each run that is whole, in order of `runs`.

        `files`: name -> content of what they were made from. A run that is damaged is removed. Raises ResultsError:
        refused are results of other files, another seed, scale, list of runs or commit, and those that somebody still
        writes.
        """
        results = cls(folder, read_manifest(folder), cure=RESUMED)
        manifest = results.manifest
        try:
            changed = [name for name, content in files.items() if read_regular(folder / name) != content]
        except OSError as error:
            raise ResultsError(f"{folder}: {error.strerror}: {Path(error.filename).name}") from None
        ours = {"where": where, "seed": seed, "scale": scale, "planned": runs}
        other = [key for key, value in ours.items() if manifest.get(key) != value]
        other += changed
        other += [] if manifest["machine"]["commit"] == _commit() else ["commit"]
        if where != "virtual":
            raise ResultsError(f"{folder}: only runs in virtual time can be gone on with; give another --out")
        if other:
            text = f"{folder} was made with another {', '.join(other)}: give the same again, or another --out"
            raise ResultsError(text)
        try:
            (folder / "runs").mkdir(exist_ok=True)
            results._take_lock()
            damaged = results._look(keep)
            results._sweep()
        except OSError as error:
            raise refusal(folder, error) from None
        return results, damaged

    def _look(self, keep: Callable[[StoredRun], None]) -> list[str]:
        """Enter the runs that are whole; remove those that are not, and return what was wrong. Raises OSError."""
        store, damaged, wanted = self.store, [], len(self.manifest["runs"])
        entries = []
        known = {one["name"]: one["sha256"] for one in self.manifest["runs"]}
        for name in store.stems:
            try:
                if (one := store.read(name)) is None:
                    continue
                if known.get(name, one.sha256) != one.sha256:
                    raise DamagedRun(f"{one.file}: {NOT_THE_ONE}")
                keep(one)
                entries.append(one.entry())
            except DamagedRun as error:
                damaged.append(str(error))
                store.remove(name)
        self.manifest["runs"] = entries
        if len(entries) < wanted:
            self.manifest["complete"] = False
        return damaged

    def _sweep(self) -> None:
        """Remove what writers that were killed left behind. Raises OSError."""
        self.store.sweep()
        for path in self.folder.glob(f".*{PART}"):
            path.unlink(missing_ok=True)

    def _take_lock(self) -> None:
        """Hold the folder until the process ends, or stop() or finish(). Raises ResultsError, OSError."""
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
        """One more file that says what was run, removed with the folder. Raises OSError."""
        self._made.append(self.folder / name)
        write_whole(self.folder / name, content)

    def keep_only(self, names: set[str]) -> None:
        """Forget other runs."""
        for one in self.manifest["runs"]:
            if one["name"] not in names:
                self.store.remove(one["name"])
        self.manifest["runs"] = [one for one in self.manifest["runs"] if one["name"] in names]

    def stop(self) -> int:
        """The command ends before its time: how many runs are kept. Without any, all that was made is removed again.

        A folder in which somebody else has put something stays, and so does one for which tasks still work.
        """
        with suppress(OSError):  # a full disk has the runs that are whole, and that is what counts
            if self._lock is not None and not self.manifest["complete"]:
                self._sweep()
                self._enter_unread()
                if self.manifest["runs"]:
                    self.write()
        self._release()
        kept = len(self.manifest["runs"])
        if not kept and self._made and not (self.folder / TASKS).exists():
            self.discard()
        return kept

    def discard(self) -> None:
        """Remove all that was made, runs that ended too; what was there before, or somebody else put there, stays."""
        self._release()
        for name in self.store.stems:
            with suppress(OSError):
                self.store.remove(name)  # also files beside a JSON that was not written
        for path in reversed(self._made):
            with suppress(OSError):
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink(missing_ok=True)

    def _enter_unread(self) -> None:
        """Runs that tasks have written and nobody has heard of yet."""
        known = {one["name"] for one in self.manifest["runs"]}
        for name in self.store.written() - known:
            with suppress(DamagedRun):
                if (stored := self.store.read(name)) is not None:
                    self._enter(stored)

    def add(self, outcome: Outcome, load: dict[str, Any]) -> None:
        """A run is over: its files, and a line in the manifest. Raises ResultsError when it cannot be written."""
        try:
            self._enter(self.store.write(outcome, load))
            few = len(self.manifest["runs"]) <= WRITE_EACH
            if few or time.monotonic() - self._written_at >= WRITE_EVERY_S:
                self.write()
        except OSError as error:
            text = f"{self.folder}: run {outcome.name!r} cannot be written: {error.strerror}"
            raise UnwrittenError(f"{text}: {self.cure}") from None

    def _enter(self, stored: StoredRun) -> None:
        """A line of the manifest, once for each run."""
        self.manifest["runs"] = [one for one in self.manifest["runs"] if one["name"] != stored.outcome.name]
        self.manifest["runs"].append(stored.entry())

    def digest(self) -> str:
        """SHA-256 of what the runs gave, in the order they were planned: names, seeds, metrics, series, observations.

        No times of the machine, loads or paths are in it: the same file and seed give the same in virtual time,
        whatever machine, number of jobs, executor, Ctrl-C and --resume it took.
        """
        found = hashlib.sha256()
        for one in self._in_order():
            found.update(json.dumps([one[key] for key in ("name", "label", "seed", "repeat")]).encode())
            for file in ("json", CSV, OBSERVATIONS):
                found.update(bytes.fromhex(one["sha256"].get(file, "")))
        return found.hexdigest()

    def _in_order(self) -> list[dict[str, Any]]:
        """Lines of the manifest as planned: side by side, runs end in any order."""
        order = {name: number for number, name in enumerate(self.manifest["planned"])}
        return sorted(self.manifest["runs"], key=lambda one: order[one["name"]])

    def finish(self, verdicts: list[ExpectationVerdict], repeats: list[Spread]) -> None:
        """All runs are over and judged. Raises ResultsError when that cannot be written."""
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
        """The manifest, replaced at once. Raises OSError."""
        write_whole(self.folder / "manifest.json", json.dumps(self.manifest, indent=2).encode())
        self._written_at = time.monotonic()

    @classmethod
    def open(cls, folder: Path) -> tuple[Results, list[Outcome]]:
        """Results that were written, and their runs in the order they were planned. Raises ResultsError."""
        results = cls(folder, read_manifest(folder))
        manifest, store, outcomes = results.manifest, results.store, []
        known = {one["name"]: one for one in manifest["runs"]}
        manifest["runs"] = []
        try:
            for name in store.stems:
                if manifest["complete"] and name not in known:
                    continue  # of a study that needed fewer
                if (stored := store.read(name)) is None:
                    if manifest["complete"]:
                        raise ResultsError(_missing(folder, store.path(name)))
                    continue
                entry = known.get(name, stored.entry())
                if entry["sha256"] != stored.sha256:
                    raise DamagedRun(f"{stored.file}: {NOT_THE_ONE}")
                outcomes.append(stored.outcome)
                manifest["runs"].append(entry)
        except DamagedRun as error:
            raise ResultsError(f"{folder}: {error}: {_mended(manifest)}") from None
        except OSError as error:
            raise ResultsError(f"{folder}: {error}") from None
        return results, outcomes


def read_manifest(folder: Path) -> dict[str, Any]:
    """What stands in manifest.json. Raises ResultsError."""
    try:
        manifest = json.loads(read_regular(folder / "manifest.json"))
        if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
            raise ResultsError(f"{folder}/manifest.json is not of schema {SCHEMA}")
        _refuse_names(folder, manifest)
        planned = set(manifest["planned"])
        if any(one["name"] not in planned for one in manifest["runs"]):
            raise ResultsError(f"{folder}/manifest.json has runs that were not planned")
    except FileNotFoundError as error:
        raise ResultsError(_missing(folder, Path(error.filename))) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{folder}/manifest.json: {error}") from None
    return manifest


def _refuse_names(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises ResultsError for names of the manifest that would lead out of the folder that is written, and for links.

    A folder of results may come from somebody else, and its names become names of folders and files.
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


def _mended(manifest: dict[str, Any]) -> str:
    """How to get a run again."""
    if manifest["where"] == "virtual":
        return f"`{manifest['command']} --resume DIR` makes it again"
    return f"make the results again: `{manifest['command']}`"


DEPTHS = ("", "*/", "*/*/")
"""Places of results in a folder of them: itself, results/e6, results/live/e6."""


def folders_below(folder: Path) -> list[Path]:
    """Folders of results: the one given, or those in it. Raises ResultsError when there are none."""
    found = sorted({path.parent for depth in DEPTHS for path in folder.glob(f"{depth}manifest.json")})
    if not found:
        missing = "" if folder.is_dir() else " (there is no such folder)"
        raise ResultsError(
            f"no results in {folder}{missing}: give a folder that `mrc run --out` made, or one that holds such"
        )
    return found


def _missing(folder: Path, file: Path) -> str:
    """Mistake and cure for a folder that has no results."""
    if not folder.is_dir():
        return f"no folder {folder}: give one that `mrc run --out` made"
    inside = sorted(path.parent.name for path in folder.glob("*/manifest.json"))
    if file.name != "manifest.json":
        return f"no whole results in {folder}: {file.relative_to(folder)} is missing"
    if inside:
        shown = ", ".join(inside[:8]) + (" ..." if len(inside) > 8 else "")
        return f"{folder} holds several results: give one of them ({shown})"
    return f"no results in {folder}: it has no manifest.json; give a folder that `mrc run --out` made"


def trust(manifest: dict[str, Any]) -> list[str]:
    """What a reader has to know before believing a number, one sentence each: completeness, and how good times are."""
    planned, loads = len(manifest["planned"]), [(one["name"], one["load"]) for one in manifest["runs"]]
    out = []
    if not manifest["complete"]:
        out.append(f"Unfinished: {len(loads)} of {planned} runs ended; the rest were not run, or were cut short.")
    if manifest["where"] == "virtual":
        return [*out, "Virtual time: exact and the same on any machine, however busy it was."]
    if manifest["where"] == "fluid":
        return [*out, "Fluid model: rates instead of packets; its error against virtual time is in docs/fluid.md."]
    over = [f"“{name}” {_share(load)}" for name, load in loads if load["overloaded"]]
    if over:
        out.append(
            f"The machine was overloaded in {len(over)} of {len(loads)} runs (CPUs busy: {', '.join(over)}): "
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
    """How busy the machine was while there was work: from /proc/stat, all CPUs, steal and others' work included.

    Niced work is not counted where it gives way: unless the kernel groups tasks by session (autogroup), which makes
    `nice` mean nothing between sessions. `look` is called while the run's work goes on; what is before the first
    look and after the last, the fabric coming up and going, does not count.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: tuple[int, int, int] | None = None
        self._last = self._started = self._read()

    def look(self) -> None:
        self._last = self._read()
        self._first = self._first or self._last

    @staticmethod
    def _read() -> tuple[int, int, int]:
        """(busy, stolen, all) clock ticks since boot; what was stolen is among the busy ones."""
        try:
            fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return 0, 0, 0
        nice, idle = (0 if _grouped() else fields[1]), fields[3] + fields[4]
        return sum(fields) - idle - nice, fields[7], sum(fields)

    def read(self, where: str) -> dict[str, Any]:
        """Share of all CPUs busy, what that means for the times of a live run, and seconds since the meter's start."""
        first, last = (self._first, self._last) if self._first else (self._started, self._read())
        ticks = [after - before for before, after in zip(first, last, strict=True)]
        busy, stolen = (ticks[0] / ticks[2], ticks[1] / ticks[2]) if ticks[2] else (0.0, 0.0)
        overloaded = where == "live" and (busy > OVERLOAD or stolen > STOLEN)
        kinds = {"virtual": "exact: virtual time", "fluid": "approximate: fluid model"}
        trust = kinds.get(where, "good to a few ms")
        if overloaded:
            theirs = f", {100 * stolen:.0f} % of it for other guests of the host" if stolen > STOLEN else ""
            trust = f"poor: the CPUs were busy {100 * busy:.0f} % of the time{theirs}; packets and timers had to wait"
        return {
            "busy": round(busy, 3),
            "stolen": round(stolen, 3),
            "overloaded": overloaded,
            "times": trust,
            "wall_s": round(time.monotonic() - self._began, 3),
        }
