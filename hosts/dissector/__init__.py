"""Wireshark and tshark dissector of MRC: mrc.lua, one file to copy or to load with `-X lua_script:`.

done = tshark(Path("t0.pcap"), "-Y", "mrc.bth.rtx == 1")      # done.stdout, done.stderr, done.returncode
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).with_name("mrc.lua")
"""The plugin."""
PLUGINS = ".local/lib/wireshark/plugins"
"""The personal Lua plugin folder, from HOME."""
NOBODY_USER = "nobody"


def tshark(capture: Path | None, *options: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run tshark with the dissector over a capture file, name resolution off.

    Without a capture: with `options` alone (`-G fields`) and the dissector as a plugin in the user's folder.

    Never as root: from 4.4 on tshark then loads no Lua script, and says nothing of it. Root's tshark runs as the user
    behind sudo, else as nobody; the capture comes by standard input and the script from a folder of its own, so that
    user need not be able to read either. Raises FileNotFoundError without tshark, OSError for the capture.
    """
    uid, gid = _unprivileged_ids() or (None, None)
    with tempfile.TemporaryDirectory(prefix="mrc-tshark-") as home, open(capture or os.devnull, "rb") as packets:
        os.chmod(home, 0o755)
        folder = Path(home) if capture else Path(home) / PLUGINS
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / SCRIPT.name
        shutil.copyfile(SCRIPT, script)
        reading = ("-n", "-X", f"lua_script:{script}", "-r", "-") if capture else ()
        return subprocess.run(
            ["tshark", *reading, *options],
            stdin=packets,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=home,
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "LC_ALL": "C.UTF-8"},
            user=uid,
            group=gid,
            extra_groups=None if uid is None else (),
        )


def _unprivileged_ids() -> tuple[int, int] | None:
    """Return the (uid, gid) to run as in place of root; None when not root."""
    if os.geteuid() != 0:
        return None
    uid, gid = (int(os.environ.get(name, "0")) for name in ("SUDO_UID", "SUDO_GID"))
    if uid and gid:
        return uid, gid
    nobody_entry = pwd.getpwnam(NOBODY_USER)
    return nobody_entry.pw_uid, nobody_entry.pw_gid
