"""A command as an ordinary user of this machine.

Interpreter and checkout may lie below a closed home (/root).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.repository import ROOT

NOBODY_ID = 65534
CACHE = Path(f"/var/tmp/mrc-testbed-tests-{NOBODY_ID}")
"""Compiled programs and bytecode of that user, who cannot read ours.

Kept, so that only the first run compiles them.
"""

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


def as_nobody(command: list[str], home: Path, **options) -> subprocess.Popen[str]:
    """Start a command as user `nobody`, whose home and run folder lie in `home`, a folder below /tmp.

    Needs root.
    """
    needed_folders = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    closed_folders = {parent for path in needed_folders for parent in path.parents if not parent.stat().st_mode & 0o001}
    # Folders that others cannot enter are hidden, and what the command needs of them is mounted there again.
    top = min(closed_folders, key=lambda path: len(path.parts), default=None)
    inner = sorted(str(path) for path in needed_folders if top in path.parents)
    outer = [path for path in inner if not any(path.startswith(f"{ancestor}/") for ancestor in inner)]
    for folder in (home, home / "kept", home / "run", CACHE):
        folder.mkdir(mode=0o700, exist_ok=True)
        assert not folder.is_symlink() and folder.stat().st_uid in (0, NOBODY_ID), f"{folder}: another user made it"
        os.chown(folder, NOBODY_ID, NOBODY_ID, follow_symlinks=False)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "MRC_CACHE_DIR": str(CACHE),
        "PYTHONPYCACHEPREFIX": str(CACHE / "pyc"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "MRC_COMPILED": "0",
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
            str(NOBODY_ID),
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
