"""Fabrics of a user by name: their run folders, who holds them, and which of them a command means.

The fabric `mrc` has the run folder itself (rundir.py), every other one a folder in `fabrics/` of it. A folder has the
record of its run (`state.json`) from before anything is made until all is removed, so a record whose front process has
gone is a dead fabric: `mrc clean` removes what it left.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.rundir import (
    FABRICS_FOLDER,
    FIRST_NAME,
    FabricError,
    RunFiles,
    RunState,
    default_run_dir,
    read_json,
)

NAME_PATTERN = re.compile("[a-z][a-z0-9-]{0,15}")
MRC_HOST = "MRC_HOST"
"""Variable with the name of the host that a process is in."""
OWN_FABRIC = "MRC_OWN_FABRIC"
"""Variable of a program of a prompt, which asks the fabric of MRC_RUN_DIR, whatever else is up."""


@dataclass(frozen=True)
class FabricRecord:
    """A fabric as its run folder records it."""

    name: str
    files: RunFiles
    state: RunState
    plan: dict[str, Any]
    """plan.json; empty while it is not written yet."""

    @property
    def is_alive(self) -> bool:
        """Whether its front process lives."""
        pid, start = self.state.front_pid, self.state.front_start
        return start is not None and procfs.start_time(pid) == start and not procfs.is_zombie(pid)

    @property
    def condition(self) -> str:
        """`up`, `starting` or `dead`."""
        if not self.is_alive:
            return "dead"
        return "up" if self.state.is_whole else "starting"

    def ports(self) -> dict[str, int]:
        """Purpose -> TCP port, those of the controller and the live view too."""
        ports = dict(self.state.ports)
        for purpose, file in (("controller", self.files.controller_file), ("page", self.files.dash_file)):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                ports[purpose] = int(str(read_json(file)["url"]).split("://")[1].split("/")[0].rpartition(":")[2])
        return ports


class Fabrics:
    """Fabrics below a run folder (`base` None: the default one)."""

    def __init__(self, base: Path | None = None) -> None:
        self.base = default_run_dir() if base is None else base

    @staticmethod
    def name_of(folder: Path) -> str:
        """Return the name of the fabric whose run folder that is."""
        return RunFiles(folder).name

    @staticmethod
    def base_of(folder: Path) -> Path:
        """Return the run folder that has the folders of all fabrics of a user, from one of them."""
        return RunFiles(folder).base

    def folder(self, name: str) -> Path:
        """Return the run folder of a fabric, present or absent. Raises FabricError for what is no name."""
        if not NAME_PATTERN.fullmatch(name):
            raise FabricError(
                f"{name!r} is no name of a fabric. Cure: a small letter, then up to 15 small letters, digits or dashes"
            )
        return self.base if name == FIRST_NAME else self.base / FABRICS_FOLDER / name

    def records(self) -> list[FabricRecord]:
        """Every recorded fabric, the oldest first. Raises FabricError for a record that cannot be read."""
        folders = [self.base]
        with contextlib.suppress(OSError):
            folders += [path for path in (self.base / FABRICS_FOLDER).iterdir() if path.is_dir()]
        records = [record for folder in folders if (record := self._record(folder)) is not None]
        return sorted(records, key=lambda record: (record.state.began_at, record.name))

    def _record(self, folder: Path) -> FabricRecord | None:
        files = RunFiles(folder)
        try:
            state = RunState(**read_json(files.state_file))
        except FileNotFoundError:
            return None
        except PermissionError:
            raise FabricError(f"{files.state_file}: the fabric belongs to root. Cure: use sudo") from None
        except (OSError, ValueError, TypeError) as error:
            raise FabricError(
                f"{files.state_file} cannot be read: {error}. Cure: look for leftovers, remove it"
            ) from error
        try:
            plan = read_json(files.plan_file)
        except (OSError, ValueError):
            plan = {}
        return FabricRecord(self.name_of(folder), files, state, plan if isinstance(plan, dict) else {})

    def free_name(self) -> str:
        """Return the first of `mrc`, `mrc2`, `mrc3`, ... that no living fabric has."""
        taken_names = {record.name for record in self.records() if record.is_alive}
        number = 1
        while (name := FIRST_NAME + ("" if number == 1 else str(number))) in taken_names:
            number += 1
        return name

    def choose(self, name: str | None = None, *, dead: bool = False) -> FabricRecord:
        """Return the fabric of that name, or the only one; `dead`: also one that has died.

        Raises FabricError that lists the names when there are several, and names the cure when there is none.
        """
        all_records = self.records()
        records = [record for record in all_records if record.is_alive or dead]
        names = ", ".join(record.name for record in records)
        if name is not None:
            self.folder(name)
            for record in records:
                if record.name == name:
                    return record
            if any(record.name == name for record in all_records):
                raise FabricError(f"the fabric {name} is dead: its front process has gone. Cure: `mrc down {name}`")
            has = f"has: {names}" if records else "none is up"
            raise FabricError(f"no fabric {name!r} ({has}). Cure: `mrc ls` lists all, `mrc up --name {name}` starts it")
        if not records:
            raise FabricError(f"no fabric is running in {self.base}. Cure: start one with `mrc up`")
        if len(records) > 1:
            raise FabricError(f"several fabrics are up: {names}. Cure: name one, as in --fabric {records[0].name}")
        return records[0]

    def asked_folder(self, name: str | None) -> Path:
        """Return the run folder of the fabric that a command asks.

        By default the only living one; inside a host or from a prompt its own. Where none is up the first one's, whose
        reader says so. Raises FabricError as `choose` does.
        """
        is_bound = bool({MRC_HOST, OWN_FABRIC} & os.environ.keys())
        if name is None and (is_bound or not any(record.is_alive for record in self.records())):
            return self.base
        return self.choose(name).files.path
