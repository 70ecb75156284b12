"""Installation and removal of the dissector as a plugin of the user's Wireshark and tshark."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.errors import DISK_FULL_ERRNOS, UsageError
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.hosts.dissector import PLUGINS, SCRIPT

_PERSONAL = re.compile(r"^Personal Lua Plugins:\s*(/.*\S)\s*$", re.MULTILINE)
"""Line of `tshark -G folders` with the plugin folder."""
ASK_S = 30.0
"""Limit of waiting for tshark, seconds: without its answer, Wireshark's usual folder is taken."""
FIRST_LINE = SCRIPT.read_bytes().partition(b"\n")[0]
"""First line of every version of our dissector."""


@dataclass(frozen=True)
class PluginUser:
    """User whose Wireshark gets the plugin: under sudo the calling user (root's loads no Lua script)."""

    home: Path
    uid: int
    gid: int

    @classmethod
    def current(cls) -> PluginUser:
        uid = int(os.environ.get("SUDO_UID", "0")) if os.geteuid() == 0 else os.geteuid()
        if uid == os.geteuid():  # HOME may be elsewhere than the user database has it
            return cls(Path.home(), uid, os.getegid())
        try:
            user_entry = pwd.getpwuid(uid)
        except KeyError:
            raise UsageError(f"SUDO_UID={uid}: no such user; run the command without sudo") from None
        return cls(Path(user_entry.pw_dir), uid, user_entry.pw_gid)

    @property
    def _process(self) -> dict[str, object]:
        """Options of `subprocess.run` that start a process as the user."""
        return {} if self.uid == os.geteuid() else {"user": self.uid, "group": self.gid, "extra_groups": ()}

    def folder(self) -> Path:
        """Return the personal Lua plugin folder that tshark names; Wireshark's usual one without tshark."""
        usual = self.home / PLUGINS
        try:
            process = subprocess.run(
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
        match = _PERSONAL.search(process.stdout)
        return Path(match[1]) if match else usual


def install(user: PluginUser | None = None) -> str:
    """Copy the dissector to the plugin folder unless present; return a report. Raises UsageError."""
    user = user or PluginUser.current()
    target = user.folder() / SCRIPT.name
    script = SCRIPT.read_bytes()
    with _acting_for(user, target):
        installed_script = _read(target)
        if installed_script == script:
            return f"{target}: is installed already, and the same"
        if installed_script is not None and not _is_own_script(installed_script):
            raise UsageError(f"{target}: is there and not ours; move it away first")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, script)  # if it was a link, what it led to stays as it is
    did = "installed" if installed_script is None else "renewed"
    return f"{target}: {did}; Wireshark and tshark load it from their next start on"


def uninstall(user: PluginUser | None = None) -> str:
    """Remove the installed dissector; return a report. Raises UsageError."""
    user = user or PluginUser.current()
    target = user.folder() / SCRIPT.name
    with _acting_for(user, target):
        installed_script = _read(target)
        if installed_script is None and not target.is_symlink():
            return f"{target}: is not installed"
        if installed_script is not None and not _is_own_script(installed_script):
            raise UsageError(f"{target}: is not ours, it stays")
        target.unlink()
    return f"{target}: removed"


@contextmanager
def _acting_for(user: PluginUser, target: Path) -> Iterator[None]:
    """Act with the user's rights: new files are the user's, and symbolic links cannot mislead root."""
    root_ids = os.geteuid(), os.getegid()
    try:
        if user.uid != root_ids[0]:
            os.setegid(user.gid)
            os.seteuid(user.uid)
        yield
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        raise UsageError(f"{target}: {error.strerror}; tshark -X lua_script:{SCRIPT} needs no plugin") from None
    finally:
        if user.uid != root_ids[0]:
            os.seteuid(root_ids[0])
            os.setegid(root_ids[1])


def _read(target: Path) -> bytes | None:
    try:
        return target.read_bytes()
    except FileNotFoundError:
        return None


def _is_own_script(script: bytes) -> bool:
    """Whether a script is a version of our dissector, by its first line."""
    return script.partition(b"\n")[0] == FIRST_LINE
