"""Journal of the fault list: `faults.jsonl` in the run folder, a JSON line per change of a fault.

    {"kind": "boot", "id": "8c1f..."}                 which boot of the machine the times belong to
    {"kind": "ready", "t": 12.5}                      every switch equalled the plan for the first time
    {"kind": "fault", "t": 13.1, "change": "raised", "fault": {...}}
    {"kind": "policy", "policy": "lossy"}             the denylist policy was changed
    {"kind": "denied", "owed": true}                  agents may hold a denylist of this controller
    {"kind": "reacted", "dead": ["p0-t0-1 p0-t1-0"]}  links and switches that routes avoid (reconvergence.py)

The file is append-only. A line is written and synced before the change is published, so that a `kill -9` loses no
change that a client knows. Such a kill may leave a torn last line, which is cut off at the next start with a warning.
The file's lock shows that a controller runs in this run folder; it ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.controller.errors import InputError
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import RunFiles

COMPACT_BYTES = 8 << 20
"""A journal longer than this is rewritten at the start with one line a fault."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JournalContent:
    """Content of a journal."""

    faults: list[dict[str, Any]] = field(default_factory=list)
    """Last known record of every fault, by number."""
    was_ready: bool = False
    """Whether the fabric was in line once: a switch that does not answer now is lost, not late."""
    may_hold_denylists: bool = False
    """Whether some agent may hold a denylist of this controller."""
    denylist_policy: str | None = None
    """Denylist policy that was set last; None when it was never changed."""
    avoided_names: list[Any] = field(default_factory=list)
    """Names of the links and switches that a slow control plane had acted on."""


class Journal:
    """Open journal: `open()`, then the `record_*` methods, then `close()`."""

    def __init__(self, path: Path, descriptor: int, content: JournalContent) -> None:
        self.path = path
        self.content = content
        self._descriptor = descriptor

    @classmethod
    def open(cls, run_dir: Path) -> Journal:
        """Take the journal of a run folder and read it.

        Raises JsonlError when another controller holds it; InputError when the file cannot be used.
        """
        path = RunFiles(run_dir).fault_journal
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise JsonlError(f"another controller runs in this run folder ({run_dir}): stop it first") from None
        self = cls(path, descriptor, JournalContent())
        try:
            self._recall()
        except OSError as error:
            self.close()
            raise InputError(f"{path}: {error.strerror}") from error
        return self

    def close(self) -> None:
        """Close the file and release its lock. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def record_fault(self, change: str, fault: dict[str, Any], t: float) -> None:
        """Record one change of a fault."""
        self._append({"kind": "fault", "t": t, "change": change, "fault": fault}, sync=change != "updated")

    def record_ready(self, t: float) -> None:
        """Record that the fabric is in line."""
        self.content.was_ready = True
        self._append({"kind": "ready", "t": t}, sync=True)

    def record_policy(self, policy: str) -> None:
        """Record that the denylist policy was set."""
        self._append({"kind": "policy", "policy": policy}, sync=True)

    def record_denied(self, is_owed: bool) -> None:
        """Record that agents are about to get a denylist, or that all have an empty one."""
        self._append({"kind": "denied", "owed": is_owed}, sync=False)

    def record_reaction(self, avoided_names: list[str]) -> None:
        """Record the links and switches that routes are about to avoid."""
        self._append({"kind": "reacted", "dead": avoided_names}, sync=False)

    def _append(self, record: dict[str, Any], *, sync: bool) -> None:
        """Append a record in one write: lines never mix, and a kill tears the last one at most."""
        try:
            os.write(self._descriptor, json.dumps(record, separators=(",", ":")).encode() + b"\n")
            if sync:
                os.fdatasync(self._descriptor)
        except OSError as error:  # a full disk must not end the controller: it goes on without a journal
            log.error("%s: %s: the fault list would not survive a restart", self.path, error.strerror)

    def _recall(self) -> None:
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
        data = self.path.read_bytes()
        lines, _, torn = data.rpartition(b"\n")
        if torn:
            log.warning("%s: cut off a torn last line of %d bytes", self.path, len(torn))
            os.ftruncate(self._descriptor, len(data) - len(torn))
        records = [record for line in lines.split(b"\n") if (record := self._record(line)) is not None]
        boots = [record.get("id") for record in records if record["kind"] == "boot"]
        # CLOCK_MONOTONIC restarts with the machine, so times of another boot mean nothing now.
        if boots and boots[-1] != boot:
            log.warning("%s: of another boot of this machine; its faults are forgotten", self.path)
            records = []
            os.ftruncate(self._descriptor, 0)
        faults: dict[int, dict[str, Any]] = {}
        for record in records:
            match record["kind"]:
                case "fault":
                    fault = record.get("fault")
                    if isinstance(fault, dict) and isinstance(fault.get("number"), int):
                        faults[fault["number"]] = fault
                case "ready":
                    self.content.was_ready = True
                case "policy":
                    self.content.denylist_policy = record.get("policy")
                case "denied":
                    self.content.may_hold_denylists = record.get("owed") is True
                case "reacted":
                    names = record.get("dead")
                    self.content.avoided_names = names if isinstance(names, list) else []
        self.content.faults = [faults[number] for number in sorted(faults)]
        if not records:
            self._append({"kind": "boot", "id": boot}, sync=False)
        elif len(data) > COMPACT_BYTES:
            self._compact(boot)

    def _record(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
            log.warning("%s: skipped a line that is no record: %r", self.path, line[:60])
            return None
        return record

    def _compact(self, boot: str) -> None:
        """Rewrite the journal with one line per fault, in a new file that replaces the old (with the lock)."""
        content = self.content
        lines: list[dict[str, Any]] = [{"kind": "boot", "id": boot}]
        lines += [{"kind": "ready", "t": 0.0}] if content.was_ready else []
        lines += [{"kind": "policy", "policy": content.denylist_policy}] if content.denylist_policy else []
        lines += [{"kind": "denied", "owed": True}] if content.may_hold_denylists else []
        lines += [{"kind": "reacted", "dead": content.avoided_names}] if content.avoided_names else []
        lines += [{"kind": "fault", "t": 0.0, "change": "kept", "fault": fault} for fault in content.faults]
        new_path = self.path.with_suffix(".new")
        new_path.unlink(missing_ok=True)
        descriptor = os.open(new_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
        os.fsync(descriptor)
        new_path.replace(self.path)
        os.close(self._descriptor)
        self._descriptor = descriptor
