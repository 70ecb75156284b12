"""Record and replay of observations: a live case becomes a test (docs/controller.md).

JSON lines. The first holds the kind of the file and the fabric's plan; each other line is a call of the fault list,
without the arguments that have their default. Times are CLOCK_MONOTONIC seconds of the live run::

    {"kind": "observations", "version": 1, "plan": {...}}
    {"of": "port", "now": 13.02, "interface": "p1-t0-0-eth4", "status": "DOWN", "source": "gnmi 127.0.0.1:9339"}
    {"of": "path", "now": 13.4, "about": "h0 p1-t1-1", "trace": ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-0", "h0"], ...}
    {"of": "on_timer", "now": 13.8}

`ObservationRecorder` writes them while the controller runs. `replay` repeats them on a fault list in virtual time: the
list owns no clock, so a replay has the results of the run.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.faults.correlator import OBSERVATIONS, Fault, FaultCorrelator
from mrc_testbed.controller.faults.path_segments import PathSegmenter, PathSegments
from mrc_testbed.controller.faults.timers import FaultTimers
from mrc_testbed.topologies.plan import Plan, PlanError

FILE = "observations.jsonl"
"""File name in the run folder's `log`, which stays when the fabric goes."""
EARLIER = "observations.earlier.jsonl"
"""Name of the older part, renamed when FILE had grown too long."""
KEEP_BYTES = 16 << 20
"""A file longer than this becomes `EARLIER`: half an hour of a quiet default fabric."""
VERSION = 1
LATE_S = 0.25
"""Delay after which a replay fires a timer that the file does not, seconds.

A list with other timers than the recorded one needs calls of `on_timer` at other times.
"""
AFTER_S = 30.0
"""Longest time that timers run on after the last observation of a replay, seconds."""
STATES = ("port", "stream", "path", "counts", "attend")
"""Calls that report a state: a new file begins with the last of them about each subject."""

OnChange = Callable[[float, str, Fault], None]
"""Callback (time, change, fault) for each change of the list."""

log = logging.getLogger(__name__)
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
_SIGNATURES = {name: inspect.signature(getattr(FaultCorrelator, name)) for name in OBSERVATIONS}
_DEFAULTS = {
    name: {key: parameter.default for key, parameter in signature.parameters.items()}
    for name, signature in _SIGNATURES.items()
}


class ObservationRecorder:
    """Recorder of the calls of a fault list, given as the list's `tap`.

    A file that cannot be written ends the recording, never the controller.
    """

    def __init__(self, folder: Path, plan: Plan, keep_bytes: int = KEEP_BYTES) -> None:
        self.path = folder / FILE
        self._plan, self._segmenter, self._keep_bytes = plan, PathSegmenter(plan), keep_bytes
        self._states: dict[tuple[Any, ...], bytes] = {}
        self._out: Any = None
        self._size = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.path.exists():  # written by an earlier controller
                self.path.replace(self.path.with_name(EARLIER))
            self._begin()
        except OSError as error:
            self._give_up(error)

    def __call__(self, name: str, arguments: dict[str, Any]) -> None:
        """Keep one call of the fault list."""
        if self._out is None:
            return
        line = line_of(name, arguments, self._segmenter)
        if name in STATES:
            key = (name, arguments.get("source"), *(arguments.get(k) for k in ("interface", "switch", "about")))
            self._states.pop(key, None)  # the latest last
            self._states[key] = line
        elif name in ("withdraw", "forget"):
            withdrawn_key = (arguments["source"], arguments.get("about"))
            for key in [k for k in self._states if k[1] == withdrawn_key[0] and withdrawn_key[1] in (None, k[-1])]:
                del self._states[key]
        try:
            if self._size > self._keep_bytes:
                self._out.close()
                self.path.replace(self.path.with_name(EARLIER))
                self._begin()
                if name in STATES:
                    return  # the call is among the states that _begin wrote
            self._size += self._out.write(line)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def _begin(self) -> None:
        self._out = self.path.open("wb", buffering=0)
        self._size = self._out.write(b"".join((header_of(self._plan), *self._states.values())))
        self._keep_bytes = max(self._keep_bytes, 4 * self._size)

    def _give_up(self, error: OSError) -> None:
        log.error("%s: %s: observations are no longer recorded", self.path, error.strerror or error)
        self._out = None


def header_of(plan: Plan) -> bytes:
    """Return the first line of a file of observations."""
    return _line({"kind": "observations", "version": VERSION, "plan": plan.to_json()})


def line_of(name: str, arguments: dict[str, Any], segmenter: PathSegmenter) -> bytes:
    """Return the line of one call, traces as lists of nodes, without arguments that have their default."""
    record: dict[str, Any] = {"of": name, "now": arguments["now"]}
    defaults = _DEFAULTS[name]
    for key, value in arguments.items():
        if isinstance(value, PathSegments):
            record[key] = segmenter.nodes(value)
        elif value != defaults[key]:
            record[key] = value
    return _line(record)


def _line(record: dict[str, Any]) -> bytes:
    return _ENCODE(record).encode() + b"\n"


# ---- replay -------------------------------------------------------------------------------------------------


class Observations:
    """Fabric and calls of a file of observations.

    Raises InputError, with the line's number, for an invalid file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}: give a file that a controller wrote (log/{FILE})") from error
        if torn := lines.pop():
            raise InputError(
                f"{path}: line {len(lines) + 1} is cut short ({len(torn)} bytes without an end of line): the file was "
                f"copied while it was written, or not whole; cut off that line (head -n {len(lines)}), or copy it again"
            )
        header = self._record(1, lines[0]) if lines else {}
        if header.get("kind") != "observations":
            raise InputError(f"{path}: no file of observations: its first line has no kind `observations` (log/{FILE})")
        if header.get("version") != VERSION:
            raise InputError(f"{path}: unknown version {header.get('version')!r} of observations (known: {VERSION})")
        try:
            self.plan = Plan.from_json(header.get("plan"))
        except (PlanError, TypeError) as error:
            raise InputError(f"{path}: line 1: plan: {error}") from error
        segmenter = PathSegmenter(self.plan)
        self.calls = [self._call(number, line, segmenter) for number, line in enumerate(lines[1:], 2)]

    def _record(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise InputError(f"{self.path}: line {number} is no JSON object: {line[:60]!r}")
        return record

    def _call(self, number: int, line: bytes, segmenter: PathSegmenter) -> tuple[str, dict[str, Any]]:
        record = self._record(number, line)
        name = record.pop("of", None)
        source_line = f"{self.path}: line {number}"
        if name not in _SIGNATURES:
            raise InputError(f"{source_line}: no observation {name!r} (has: {', '.join(_SIGNATURES)})")
        if not isinstance(record.get("now"), (int, float)):
            raise InputError(f"{source_line}: {name}: `now` is no time in seconds")
        try:
            if "trace" in record:
                record["trace"] = segmenter.from_nodes(tuple(record["trace"]))
            _SIGNATURES[name].bind(None, **record)
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(f"{source_line}: {name}: {error}") from error
        return name, record


def replay(
    plan: Plan,
    calls: Iterable[tuple[str, dict[str, Any]]],
    on_change: OnChange = lambda _now, _change, _fault: None,
    *,
    times: FaultTimers | None = None,
    late_s: float = LATE_S,
    after_s: float = AFTER_S,
    make: Callable[..., FaultCorrelator] = FaultCorrelator,
) -> FaultCorrelator:
    """Return a fault list after the given calls, in virtual time.

    Its timers fire with the calls of `on_timer`, or `late_s` after they were due.
    """
    faults = make(plan, times)
    end = 0.0

    def report_changes(now: float) -> None:
        for change, fault in faults.changes():
            on_change(now, change, fault)

    def ring_until(limit: float) -> None:
        while (due := faults.next_timer()) is not None and due + late_s <= limit:
            faults.on_timer(due + late_s)
            report_changes(due + late_s)

    for name, arguments in calls:
        ring_until(arguments["now"])
        end = max(end, arguments["now"])
        getattr(faults, name)(**arguments)
        report_changes(arguments["now"])
    ring_until(end + after_s)
    return faults


def replay_file(path: Path, on_change: OnChange = lambda _now, _change, _fault: None) -> FaultCorrelator:
    """Replay a file of observations. Raises InputError, also for names that its fabric does not have."""
    observations = Observations(path)
    number = 1

    def calls() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal number
        for call in observations.calls:
            number += 1
            yield call

    try:
        return replay(observations.plan, calls(), on_change)
    except (PlanError, KeyError) as error:
        raise InputError(f"{path}: line {number}: {error} (its fabric: {observations.plan})") from error
