"""Guests of root's fabrics: users whom `mrc up --allow` lets run programs on the hosts' RDMA devices."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.nicd.door import plan_for_guest
from mrc_testbed.ipc.rundir import FabricError, GuestFiles, checked, default_run_dir, guests_folder
from mrc_testbed.topologies.plan import Plan

ROOT = 0


@dataclass(frozen=True)
class Guest:
    """Fabric as a guest sees it: its plan, and the sockets that he may open."""

    plan: Plan
    run_dir: GuestFiles


def is_root() -> bool:
    """Return whether this user is root, who is nobody's guest."""
    return os.geteuid() == ROOT


def find_guest(name: str | None) -> Guest | None:
    """Return root's fabric that this user is a guest of; None for root, and where none has guests.

    `name`: of the fabric that a command asks, None: the only one. A rootless fabric of the user's own comes first.

    Raises FabricError.
    """
    base = default_run_dir()
    if is_root() or os.access(base, os.X_OK):
        return None
    # What stands there is connected to: it must be root's, as the fabric is.
    folder = checked(guests_folder(base), owners=(ROOT,))
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not names:
        return None
    if name is None and len(names) > 1:
        raise FabricError(f"several fabrics have guests: {', '.join(names)}. Cure: name one, as in --fabric {names[0]}")
    if name is not None and name not in names:
        raise FabricError(f"no fabric {name!r} has guests (has: {', '.join(names)})")
    files = GuestFiles(Path(folder, name or names[0]))
    return Guest(plan_for_guest(files), files)


def guest_numbers(names: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of the users of --allow. Raises UsageError."""
    numbers = []
    for name in names:
        try:
            numbers.append(pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise UsageError(
                f"--allow {name}: this machine has no such user. Cure: `getent passwd` lists them"
            ) from None
    return tuple(dict.fromkeys(numbers))
