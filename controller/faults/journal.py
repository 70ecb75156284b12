"""The fault list on disk: `faults.jsonl` in the run folder, append-only JSON lines, one for each change of a fault.

    {"kind": "boot", "id": "8c1f..."}                 which boot of the machine the times belong to
    {"kind": "ready", "t": 12.5}                      every switch equalled the plan for the first time
    {"kind": "fault", "t": 13.1, "change": "raised", "fault": {...}}
    {"kind": "policy", "policy": "lossy"}             the denylist policy was changed
    {"kind": "denied", "owed": true}                  agents may hold a denylist of ours
    {"kind": "reacted", "dead": ["p0-t0-1 p0-t1-0"]}  what the switches were told to avoid (reconvergence.py)

A line is written and synced before the change is told to anyone, so that a `kill -9` cannot take back what somebody
has heard. A torn last line is what such a kill may leave: it is cut off at the next start, with a word in the log. The
file's lock says that a controller runs in this run folder, and is gone with it however it ended.
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
class Remembered:
    """Content of a journal."""

    faults: list[dict[str, Any]] = field(default_factory=list)
    """Last known record of every fault, by number."""
    was_ready: bool = False
    """The fabric was in line once: a switch that does not answer now is lost, not late."""
    denied: bool = False
    """Some agent may hold a denylist of this controller."""
    policy: str | None = None
    """The denylist policy that was set last; None when it was never changed."""
    reacted: list[Any] = field(default_factory=list)
    """Names of the links and switches that a slow control plane had acted on."""


class Journal:
    """Use `open`, then `fault`, `ready`, `policy`, `reacted`; `close`."""

    def __init__(self, path: Path, descriptor: int, remembered: Remembered) -> None:
        self.path = path
        self.remembered = remembered
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
        self = cls(path, descriptor, Remembered())
        try:
            self._recall()
        except OSError as error:
            self.close()
            raise InputError(f"{path}: {error.strerror}") from error
        return self

    def close(self) -> None:
        """Let the file and its lock go. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def fault(self, change: str, fault: dict[str, Any], t: float) -> None:
        """Keep one change of a fault."""
        self._append({"kind": "fault", "t": t, "change": change, "fault": fault}, sync=change != "updated")

    def ready(self, t: float) -> None:
        """The fabric is in line."""
        self.remembered.was_ready = True
        self._append({"kind": "ready", "t": t}, sync=True)

    def policy(self, policy: str) -> None:
        """The denylist policy was set."""
        self._append({"kind": "policy", "policy": policy}, sync=True)

    def denied(self, is_owed: bool) -> None:
        """Agents are about to get a denylist, or all have an empty one."""
        self._append({"kind": "denied", "owed": is_owed}, sync=False)

    def reacted(self, dead: list[str]) -> None:
        """Switches are about to avoid these."""
        self._append({"kind": "reacted", "dead": dead}, sync=False)

    def _append(self, record: dict[str, Any], *, sync: bool) -> None:
        """One write for one line: lines never mix, and a kill tears the last one at most."""
        try:
            os.write(self._descriptor, json.dumps(record, separators=(",", ":")).encode() + b"\n")
            if sync:
                os.fdatasync(self._descriptor)
        except OSError as error:  # a full disk must not end the controller: it goes on without a memory
            log.error("%s: %s: the fault list would not survive a restart", self.path, error.strerror)

    def _recall(self) -> None:
        boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
        data = self.path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            log.warning("%s: cut off a torn last line of %d bytes", self.path, len(torn))
            os.ftruncate(self._descriptor, len(data) - len(torn))
        records = [record for line in whole.split(b"\n") if (record := self._record(line)) is not None]
        boots = [record.get("id") for record in records if record["kind"] == "boot"]
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
                    self.remembered.was_ready = True
                case "policy":
                    self.remembered.policy = record.get("policy")
                case "denied":
                    self.remembered.denied = record.get("owed") is True
                case "reacted":
                    dead = record.get("dead")
                    self.remembered.reacted = dead if isinstance(dead, list) else []
        self.remembered.faults = [faults[number] for number in sorted(faults)]
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
            log.warning("%s: passed over a line that is no record: %r", self.path, line[:60])
            return None
        return record

    def _compact(self, boot: str) -> None:
        """One line a fault, in a new file that takes the old one's place at once (the lock moves with it)."""
        remembered = self.remembered
        lines: list[dict[str, Any]] = [{"kind": "boot", "id": boot}]
        lines += [{"kind": "ready", "t": 0.0}] if remembered.was_ready else []
        lines += [{"kind": "policy", "policy": remembered.policy}] if remembered.policy else []
        lines += [{"kind": "denied", "owed": True}] if remembered.denied else []
        lines += [{"kind": "reacted", "dead": remembered.reacted}] if remembered.reacted else []
        lines += [{"kind": "fault", "t": 0.0, "change": "kept", "fault": fault} for fault in remembered.faults]
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
        os.fsync(descriptor)
        new.replace(self.path)
        os.close(self._descriptor)
        self._descriptor = descriptor
