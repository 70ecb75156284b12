"""Guests of a live fabric, as another user of this machine: what `mrc up --allow` opens to them."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mrc_testbed.hosts.libmrc import compile_flags
from mrc_testbed.ipc.rundir import RunFiles
from tests.repository import ROOT
from tests.test_doors_live import RunningFabric
from tests.unprivileged import NOBODY_ID, as_nobody

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and packet sockets"),
]
LIMIT_S = 120
MRC = (sys.executable, "-m", "mrc_testbed")
STRANGER_ID = pwd.getpwnam("daemon").pw_uid


@pytest.fixture(scope="module")
def folder():
    """Folder that every user may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="guests-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def fabric(folder):
    with RunningFabric(folder / "run", "--planes", "2", "--rate", "none", "--allow", "nobody") as running_fabric:
        yield running_fabric


@pytest.fixture(scope="module")
def write_program(folder) -> Path:
    path = folder / "write"
    source = ROOT / "examples" / "rdma" / "write.c"
    subprocess.run(["gcc", "-O2", "-o", str(path), str(source), *compile_flags()], check=True)
    return path


def start(fabric: RunningFabric, *command: str, user: int = NOBODY_ID) -> subprocess.Popen[str]:
    home = fabric.folder.parent / f"home-{user}"
    return as_nobody([*command], home, user=user, variables={"MRC_RUN_DIR": str(fabric.folder)})


def run(fabric: RunningFabric, *command: str, user: int = NOBODY_ID) -> tuple[int, str]:
    """Run a command of another user; its exit code and all of its output."""
    process = start(fabric, *command, user=user)
    output, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, output + errors


def test_guest__runs_programs_and_sees_the_devices(fabric, write_program):
    code, output = run(fabric, *MRC, "devices")
    assert code == 0 and "h0    mrc0" in output, output
    responder = start(fabric, *MRC, "exec", "h1", "--here", "--", str(write_program))
    requestor = start(fabric, *MRC, "exec", "h0", "--here", "--", str(write_program), "127.0.0.1", "2")
    requestor_output, requestor_errors = requestor.communicate(timeout=LIMIT_S)
    responder_output, responder_errors = responder.communicate(timeout=LIMIT_S)
    assert "every byte is right" in responder_output, requestor_errors + responder_errors
    assert (requestor.returncode, responder.returncode) == (0, 0)
    assert " writes in " in requestor_output
    code, output = run(fabric, *MRC, "devices", "--json")
    assert [host["is_running"] for host in json.loads(output)] == [True, True]


def test_guest__without_here_is_told_what_needs_root(fabric):
    code, output = run(fabric, *MRC, "exec", "h0", "--", "true")
    assert code == 1 and "only root enters the host's network" in output and "--here" in output


def test_guest__memory_beyond_his_limit_is_refused_with_the_cure(fabric, write_program):
    exec_words = [*MRC, "exec", "h0", "--here", "--", str(write_program)]
    code, output = run(fabric, "sh", "-c", 'ulimit -l 512; exec "$@"', "sh", *exec_words)
    assert code == 1 and "1024 KiB beside 0 KiB are more than the 512 KiB" in output and "ulimit -l" in output


def test_guest__does_nothing_but_run_programs(fabric):
    for words in (
        ("link", "p0-t0-0", "p0-t1-0", "down"),
        ("down",),
        ("tables", "p0-t0-0"),
        ("exec", "p0-t0-0", "--here", "--", "true"),
        ("ls",),
    ):
        code, output = run(fabric, *MRC, *words)
        assert code in (1, 2) and "Traceback" not in output, (words, output)
    assert "0 active" in fabric.type_line("faults", "active")
    attempts = {
        "opened the run folder": f"import os; os.listdir({str(fabric.folder)!r})",
        "read the token": f"open({str(fabric.folder / 'token')!r}).read()",
        "reached a closed socket": (
            f"import socket; socket.socket(socket.AF_UNIX).connect({str(fabric.folder / 'prompt.sock')!r})"
        ),
        "removed a socket": f"import os; os.unlink({str(RunFiles(fabric.folder).guests.door)!r})",
        "made a link": f"import os; os.symlink('/etc', {str(RunFiles(fabric.folder).guests.path / 'x')!r})",
        "replaced the folder": (
            f"import os; os.rename({str(RunFiles(fabric.folder).guests.path)!r}, {str(fabric.folder.parent / 'x')!r})"
        ),
    }
    for attempt, script in attempts.items():
        code, output = run(fabric, sys.executable, "-c", f"{script}\nprint('done')")
        assert code == 1 and "PermissionError" in output, (attempt, output)


def test_guest__has_no_controller(fabric):
    script = (
        "import os; from pathlib import Path; from tests.hosts.nicd.raw_program import RawProgram\n"
        "with RawProgram(Path(os.environ['MRC_NIC_SOCKET'])) as program:\n"
        "    print(program.call('CTL_MODIFY_PORT', 1, 1, 0)[0])\n"
    )
    code, output = run(fabric, *MRC, "exec", "h0", "--here", "--", sys.executable, "-c", script)
    assert (code, output.splitlines()[-1]) == (0, "1"), output  # EPERM


def test_stranger__is_refused_at_every_socket(fabric, write_program):
    for words in (("devices",), ("exec", "h0", "--here", "--", "true")):
        code, output = run(fabric, *MRC, *words, user=STRANGER_ID)
        assert code == 1 and f"user {STRANGER_ID} may not use the devices of this fabric" in output, output
        assert "mrc up --allow USER" in output
    run(fabric, *MRC, "exec", "h0", "--here", "--", "ibv_devices")  # so that the socket is there
    files = RunFiles(fabric.folder).guests
    script = (
        "import os; from pathlib import Path; from mrc_testbed.hosts.nicd.door import guest_environment\n"
        "from mrc_testbed.ipc.rundir import GuestFiles\n"
        f"os.environ.update(guest_environment(GuestFiles(Path({str(files.path)!r})), 'h0'))\n"
        f"os.execv({str(write_program)!r}, ['write'])"
    )
    code, output = run(fabric, sys.executable, "-c", script, user=STRANGER_ID)
    assert code == 1 and f"libmrc: user {STRANGER_ID} may not use the devices of this fabric" in output, output
    assert "device: Operation not permitted" in output


def test_end__leaves_no_socket_for_guests(folder):
    with RunningFabric(folder / "second", "--allow", "nobody") as fabric:
        files = RunFiles(fabric.folder).guests
        assert files.door.is_socket()
    assert not files.path.parent.exists()
