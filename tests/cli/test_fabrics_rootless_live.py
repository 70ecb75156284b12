"""Two fabrics of an ordinary user side by side: virtual wires, interfaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mrc_testbed.ipc import procfs
from tests.unprivileged import as_nobody

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")]
SHAPE = "--planes 1 --racks 2 --spines 1 --hosts-per-rack 1 --rootless"


@pytest.fixture
def mrc():
    """`mrc` of an ordinary user; every fabric is down at the end."""
    with tempfile.TemporaryDirectory(prefix="mrc-rootless-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)

        def run(words, code=0, prompt_text=""):
            command = [sys.executable, "-m", "mrc_testbed", *words.split()]
            process = as_nobody(command, Path(folder) / "home", stdin=subprocess.PIPE)
            out, error = process.communicate(prompt_text)
            assert process.returncode == code, out + error
            return out + error

        yield run
        run("down --all")


@pytest.mark.thorough
def test_two_fabrics__of_a_user_who_is_not_root(mrc):
    for name, wires in (("a", "virtual"), ("b", "veth")):
        output = mrc(f"up -d --name {name} --wires {wires} {SHAPE}")
        if "unshare" in output:
            pytest.skip("this machine has no user namespaces")
        assert f"{name} is up: `mrc attach {name}`" in output
    rows = {row["name"]: row for row in json.loads(mrc("ls --json"))}
    assert {name: row["state"] for name, row in rows.items()} == {"a": "up", "b": "up"}

    # A cut is of one fabric alone, and both carry transfers.
    assert mrc("link p0-t0-0 p0-t1-0 down --fabric b") == "p0-t0-0 p0-t1-0 is down\n"
    assert [mrc(f"injected --fabric {name}").count("cut") for name in ("a", "b")] == [0, 1]
    assert "1 undone" in mrc("heal --fabric b")
    for name in ("a", "b"):
        assert "begun" in mrc(f"send h0 h1 256K --fabric {name}")
        assert json.loads(mrc(f"wait --fabric {name} --json"))["transfers"][-1]["state"] == "done"
        assert mrc(f"exec h0 --fabric {name} -- printenv MRC_HOST") == "h0\n"
    assert "p0-t0-0 p0-t1-0  up" in mrc("attach b", prompt_text="links p0-t0-0\ndetach\n")

    # Its user ends the one and removes what a killed one left.
    assert "a is down" in mrc("down a")
    os.kill(rows["b"]["pid"], signal.SIGKILL)
    while procfs.start_time(rows["b"]["pid"]) is not None and not procfs.is_zombie(rows["b"]["pid"]):
        pass
    assert "clean: " in mrc("clean")
    assert json.loads(mrc("ls --json")) == []
