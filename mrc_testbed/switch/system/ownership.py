"""Users who could change a folder's contents, by owners and modes up to the file system's root."""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

OVERFLOW_UID = 65534
"""Owner that the kernel shows in a user namespace for users who are not mapped there.

The machine's root is such a user too.
"""


def refusal(folder: Path, owners: tuple[int, ...] = ()) -> str | None:
    """Return why other users could change what is in a folder, with the cure; None when they cannot.

    `owners` are the users it may belong to: this one or root when empty. Raises FileNotFoundError where it is missing,
    and OSError where it may not be read.
    """
    folder = folder.absolute()
    status = os.lstat(folder)
    allowed = owners or (os.geteuid(), 0)
    if stat.S_ISLNK(status.st_mode):
        return f"{folder} is a symbolic link: remove it, or name the folder that it leads to"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is no folder: remove it"
    if status.st_uid not in allowed:
        return f"{folder} belongs to user {status.st_uid}, not to user {os.geteuid()}: remove it"
    if status.st_mode & 0o022:
        return f"{folder} can be changed by other users (mode {status.st_mode & 0o7777:04o}): empty it, `chmod 700` it"
    return _parents_refusal(folder)


def _parents_refusal(folder: Path) -> str | None:
    """Return the refusal of a folder above: its owner or writers could replace the folder below.

    None when there is no reason to refuse.
    """
    trusted_owners = {0, os.geteuid(), *((OVERFLOW_UID,) if _maps_few_users() else ())}
    for parent in dict.fromkeys((*folder.parents, *folder.parent.resolve().parents, folder.parent.resolve())):
        status = os.lstat(parent)
        if status.st_uid not in trusted_owners:
            return f"{parent} belongs to user {status.st_uid}, who could replace {folder}: remove it"
        # A sticky folder lets only the owner of an entry rename it, which has been looked at on the way down.
        if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            mode = f"{status.st_mode & 0o7777:04o}"
            return f"{parent} can be changed by other users (mode {mode}), who could replace {folder}: `chmod go-w` it"
    return None


@cache
def _maps_few_users() -> bool:
    """Return whether this user namespace lacks users of the machine, as that of `--rootless` does."""
    try:
        rows = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return False
    return rows != [["0", "0", "4294967295"]]
