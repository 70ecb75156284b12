"""Ctrl-C and a full disk while a live fabric is set up: told in a line, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mrc_testbed.errors import EXIT_INTERRUPTED, EXIT_UNWRITTEN, INTERRUPTION
from mrc_testbed.ipc import procfs
from tests.cli.test_app_interrupts import INTERRUPTER, ROOT, SCENARIO

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="a live fabric needs root")]

SHAPE = "--planes 2 --racks {racks} --spines 1 --hosts-per-rack 1"
UP_COMMAND, DEMO, RUN = "up " + SHAPE.format(racks=1), "demo " + SHAPE.format(racks=2), "run a.yaml --out out"
MOMENTS = [
    (UP_COMMAND, "subprocess.Popen,mrc_testbed.switch.server,1"), (UP_COMMAND, "socket.connect,h0.sock,1"),
    (UP_COMMAND, "os.remove,,1"), (RUN, "socket.connect,switchd.sock,1"),
    (UP_COMMAND, "subprocess.Popen,,1"), (UP_COMMAND, "subprocess.Popen,mrc_testbed.hosts.agent,1"),
    (UP_COMMAND, "socket.connect,switchd.sock,1"), (DEMO, "socket.connect,h1.sock,1"),
    (RUN, "socket.connect,h1.sock,1"),
]  # fmt: skip
"""A command and the call of its front process at which Ctrl-C comes.

Each of them is before the fabric ends.
"""
USUAL_MOMENTS = 4
"""Number of moments in `make test`; the others are in `make thorough`."""


@pytest.fixture
def mrc(tmp_path):
    """`mrc` in a folder and a run folder of its own, without input; what it makes has a mark."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(INTERRUPTER)
    (tmp_path / "a.yaml").write_text(SCENARIO)

    def run(words, moment="none,,1", run_dir=tmp_path / "run"):
        env = os.environ | {
            "PYTHONPATH": f"{tmp_path / 'first'}:{ROOT}",
            "INTERRUPT_AT": moment,
            "MRC_RUN_DIR": str(run_dir),
        }
        return subprocess.run(
            [sys.executable, "-m", "mrc_testbed", *words.split()],
            cwd=tmp_path,
            env=env,
            start_new_session=True,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    return run


def leftovers(run_dir):
    """Return a fabric's leftovers: interfaces, processes, and files beside the lock and the logs."""
    links = {name for name in os.listdir("/sys/class/net") if name.startswith(("p0-", "p1-", "h0", "h1"))}
    files = set(os.listdir(run_dir)) - {"lock", "log"} if run_dir.exists() else set()
    return links, procfs.with_environment(f"MRC_RUN_DIR={run_dir}"), files


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        *MOMENTS[:USUAL_MOMENTS],
        *(pytest.param(*moment, marks=pytest.mark.thorough) for moment in MOMENTS[USUAL_MOMENTS:]),
    ],
)
def test_ctrl_c__while_a_fabric_is_set_up_leaves_nothing(mrc, tmp_path, words, moment):
    result = mrc(words, moment)
    assert result.returncode == EXIT_INTERRUPTED and "Traceback" not in result.stdout, result.stdout
    assert result.stdout.count(INTERRUPTION) == 1 and not (tmp_path / "out").exists()
    assert leftovers(tmp_path / "run") == (set(), [], set())


def test_up__in_a_run_folder_of_any_size_tells_file_and_cure_and_leaves_nothing(mrc, tmp_path):
    ends = []
    for number, pages in enumerate((1, 4, 10, 2000)):
        disk = tmp_path / f"disk{number}"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={pages * 4}k", "tmpfs", disk], check=True)
        try:
            result = mrc(UP_COMMAND, run_dir=disk / "run")
            assert "Traceback" not in result.stdout, result.stdout
            links, processes, _ = leftovers(disk / "run")
            assert (links, processes) == (set(), []), result.stdout
        finally:
            subprocess.run(["umount", disk], check=True)
        if result.returncode:
            assert "make room there" in result.stdout and str(disk) in result.stdout, result.stdout
        ends.append(result.returncode)
    assert EXIT_UNWRITTEN in ends and ends[-1] == 0 and set(ends) <= {0, 1, EXIT_UNWRITTEN}
