"""The dissector as a plugin of the user's Wireshark and tshark: installed, renewed, and removed again."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.errors import FULL, UsageError
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.hosts.dissector import PLUGINS, SCRIPT

_PERSONAL = re.compile(r"^Personal Lua Plugins:\s*(/.*\S)\s*$", re.MULTILINE)
"""The line of `tshark -G folders`."""
ASK_S = 30.0
"""A bound for an answer of tshark, seconds: without one, Wireshark's usual folder is taken."""
FIRST_LINE = SCRIPT.read_bytes().partition(b"\n")[0]
"""What every version of our dissector begins with."""


@dataclass(frozen=True)
class PluginUser:
    """Whose Wireshark it is: under sudo the user who called it, for root's own loads no Lua script."""

    home: Path
    uid: int
    gid: int

    @classmethod
    def current(cls) -> PluginUser:
        uid = int(os.environ.get("SUDO_UID", "0")) if os.geteuid() == 0 else os.geteuid()
        if uid == os.geteuid():  # HOME may be elsewhere than the user database has it
            return cls(Path.home(), uid, os.getegid())
        try:
            known = pwd.getpwuid(uid)
        except KeyError:
            raise UsageError(f"SUDO_UID={uid}: there is no such user; run it without sudo") from None
        return cls(Path(known.pw_dir), uid, known.pw_gid)

    @property
    def _process(self) -> dict[str, object]:
        """How a process of the user is started."""
        return {} if self.uid == os.geteuid() else {"user": self.uid, "group": self.gid, "extra_groups": ()}

    def folder(self) -> Path:
        """Personal Lua plugin folder as tshark names it; Wireshark's usual one without tshark."""
        usual = self.home / PLUGINS
        try:
            done = subprocess.run(
                ["tshark", "-G", "folders"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=ASK_S,
                env={**os.environ, "HOME": str(self.home), "LC_ALL": "C.UTF-8"},
                **self._process,  # type: ignore[call-overload]
            )
        except (OSError, subprocess.SubprocessError):
            return usual
        found = _PERSONAL.search(done.stdout)
        return Path(found[1]) if found else usual


def install(user: PluginUser | None = None) -> str:
    """Copy the dissector to the plugin folder, unless it is there; returns what was done. Raises UsageError."""
    user = user or PluginUser.current()
    target = user.folder() / SCRIPT.name
    script = SCRIPT.read_bytes()
    with _acting_for(user, target):
        there = _read(target)
        if there == script:
            return f"{target}: is installed already, and the same"
        if there is not None and not _ours(there):
            raise UsageError(f"{target}: is there and not ours; move it away first")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, script)  # if it was a link, what it led to stays as it is
    did = "installed" if there is None else "renewed"
    return f"{target}: {did}; Wireshark and tshark load it from their next start on"


def uninstall(user: PluginUser | None = None) -> str:
    """Remove what `install` has put there; returns what was done. Raises UsageError."""
    user = user or PluginUser.current()
    target = user.folder() / SCRIPT.name
    with _acting_for(user, target):
        there = _read(target)
        if there is None and not target.is_symlink():
            return f"{target}: is not installed"
        if there is not None and not _ours(there):
            raise UsageError(f"{target}: is not ours, it stays")
        target.unlink()
    return f"{target}: removed"


@contextmanager
def _acting_for(user: PluginUser, target: Path) -> Iterator[None]:
    """With the user's rights and no more: folders and files become theirs, and their links lead root nowhere."""
    before = os.geteuid(), os.getegid()
    try:
        if user.uid != before[0]:
            os.setegid(user.gid)
            os.seteuid(user.uid)
        yield
    except OSError as error:
        if error.errno in FULL:  # with an exit code of its own
            raise
        raise UsageError(f"{target}: {error.strerror}; tshark -X lua_script:{SCRIPT} needs no plugin") from None
    finally:
        if user.uid != before[0]:
            os.seteuid(before[0])
            os.setegid(before[1])


def _read(target: Path) -> bytes | None:
    try:
        return target.read_bytes()
    except FileNotFoundError:
        return None


def _ours(script: bytes) -> bool:
    """Whether it is a version of our dissector: they all begin with the same line."""
    return script.partition(b"\n")[0] == FIRST_LINE
