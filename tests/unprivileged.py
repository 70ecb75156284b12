"""A command as an ordinary user of this machine.

Interpreter and checkout may lie below a closed home (/root).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.repository import ROOT

NOBODY_ID = 65534

ENTER = """
set -e
kept=$1 user=$2 closed=$3 folders=$4
shift 4
if [ -n "$closed" ]; then
    number=0
    for folder in $folders; do
        number=$((number + 1)); mkdir -p "$kept/$number"; mount --bind "$folder" "$kept/$number"
    done
    mount -t tmpfs -o mode=755 tmpfs "$closed"
    number=0
    for folder in $folders; do
        number=$((number + 1)); mkdir -p "$folder"; mount --move "$kept/$number" "$folder"
    done
fi
exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
"""
"""Script for a mount namespace of its own.

A closed folder is replaced by one that has only what is needed of it.
"""


def cache_of(user: int) -> Path:
    """Return the folder of compiled programs and bytecode of a user, who cannot read ours.

    Kept, so that only the first run compiles them.
    """
    return Path(f"/var/tmp/mrc-testbed-tests-{user}")


def as_nobody(
    command: list[str], home: Path, *, user: int = NOBODY_ID, variables: Mapping[str, str] | None = None, **options
) -> subprocess.Popen[str]:
    """Start a command as an ordinary user, whose home and run folder lie in `home`, a folder below /tmp.

    Needs root.
    """
    cache = cache_of(user)
    needed_folders = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    closed_folders = {parent for path in needed_folders for parent in path.parents if not parent.stat().st_mode & 0o001}
    # Folders that others cannot enter are hidden, and what the command needs of them is mounted there again.
    top = min(closed_folders, key=lambda path: len(path.parts), default=None)
    inner = sorted(str(path) for path in needed_folders if top in path.parents)
    outer = [path for path in inner if not any(path.startswith(f"{ancestor}/") for ancestor in inner)]
    for folder in (home, home / "kept", home / "run", cache):
        folder.mkdir(mode=0o700, exist_ok=True)
        assert not folder.is_symlink() and folder.stat().st_uid in (0, user), f"{folder}: another user made it"
        os.chown(folder, user, user, follow_symlinks=False)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "MRC_CACHE_DIR": str(cache),
        "PYTHONPYCACHEPREFIX": str(cache / "pyc"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "MRC_COMPILED": "0",
        **(variables or {}),
    }
    return subprocess.Popen(
        [
            "unshare",
            "--mount",
            "bash",
            "-c",
            ENTER,
            "enter",
            str(home / "kept"),
            str(user),
            str(top or ""),
            " ".join(outer),
            *command,
        ],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,
    )
