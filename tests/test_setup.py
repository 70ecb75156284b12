"""scripts/setup and what its neighbours share.

Steps with a time left, packages in spite of another apt.
"""

import fcntl
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

SCRIPTS = ("install-bmv2", "isolated-python", "lib.sh", "matrix", "provision", "setup", "uv.sh")


def lib(script: str, **options) -> subprocess.Popen[str]:
    """A script that has sourced scripts/lib.sh."""
    return subprocess.Popen(
        ["bash", "-c", f"set -euo pipefail; program=test; . scripts/lib.sh; {script}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def on_a_terminal(script: str) -> str:
    """Return a terminal's content, 80 columns wide, after a script that has sourced scripts/lib.sh."""
    front, terminal = pty.openpty()
    script = f"stty cols 80; program=test; . scripts/lib.sh; {script}"
    with subprocess.Popen(["bash", "-c", script], cwd=ROOT, stdin=terminal, stderr=terminal):
        os.close(terminal)
        output = b""
        try:
            while chunk := os.read(front, 4096):
                output += chunk
        except OSError:  # Linux ends a pty so
            pass
    os.close(front)
    return output.decode()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here (Debian's package `shellcheck`)")
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts__shellcheck_finds_nothing(name):
    process = subprocess.run(["shellcheck", "-x", f"scripts/{name}"], cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, "")


def test_scripts__all_are_looked_at():
    assert {path.name for path in (ROOT / "scripts").iterdir()} == set(SCRIPTS)


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="these tests run in another environment than .venv")
def test_setup__with_nothing_to_do_is_silent():
    process = subprocess.run([ROOT / "scripts" / "setup", "--quiet"], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_setup__an_option_it_does_not_have():
    process = subprocess.run([ROOT / "scripts" / "setup", "--fast"], capture_output=True, text=True, timeout=60)
    assert process.returncode == 1 and process.stderr == "setup: error: no option --fast (has: --quiet, --tests)\n"


def test_steps__a_line_each_where_there_is_no_terminal():
    with lib(
        "steps=2; begin_step one; begun=$((begun - 5)); tell_progress 1 2; end_step; begin_step two; end_step"
    ) as process:
        output, _ = process.communicate(timeout=20)
    assert re.sub(r"in \d+ s", "in N s", output).splitlines() == [
        "test: 1 of 2: one",
        "test: 1 of 2: one: done in N s",
        "test: 2 of 2: two",
        "test: 2 of 2: two: done in N s",
    ]


def test_steps__a_terminal_has_one_line_that_tells_the_share_done():
    output = on_a_terminal("begin_step one; begun=$((begun - 30)); tell_progress 3 4; tell_progress 3 4; end_step")
    assert re.search(r"\rtest: 1 of 1: one, 3\d s, 75 %\x1b\[K", output)
    assert output.count("75 %") == 1  # the same again is not written again
    assert output.count("\n") == 1


def test_steps__no_figure_is_negative_when_the_clock_is_set_back_or_more_comes_than_was_announced():
    output = on_a_terminal(
        "begin_step one; SECONDS=-14; tell_progress 0 0; tell_progress 9 4; tell_progress -3 4; end_step"
    )
    assert "100 %" in output and not re.search(r"-\d", output)


def test_steps__a_line_is_never_wider_than_the_terminal():
    output = on_a_terminal(f"begin_step {'long' * 50}")
    assert len(output.strip("\r").removesuffix("\x1b[K")) == 79


def test_follow__output_is_kept_and_a_failure_is_one():
    with lib("count() { :; }; follow count bash -c 'echo one; echo two; exit 3' || { echo $?; cat $log; }") as process:
        assert process.communicate(timeout=20)[0] == "3\none\ntwo\n"


def test_follow__ctrl_c_ends_it_with_a_word():
    """The signal comes once the command runs.

    Bash stumbles over a signal in the midst of making a pipeline (and ends, too).
    """
    script = 'count() { [ -z "$1" ] || echo "$1"; }; follow count sh -c \'echo begun; exec sleep 60\'; echo went on'
    with lib(script) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and output == "test: interrupted; the next run begins where this one stopped\n"


@pytest.fixture
def apt(tmp_path):
    """Environment in which apt-get has folders of its own, no package source, and `sudo` asks nobody."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get here")
    for folder in ("state/lists/partial", "cache/archives/partial", "etc", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "state" / "status").touch()
    (tmp_path / "bin" / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "bin" / "sudo").chmod(0o755)
    config = tmp_path / "apt.conf"
    config.write_text(
        f'Dir::State "{tmp_path}/state";\nDir::State::status "{tmp_path}/state/status";\n'
        f'Dir::Cache "{tmp_path}/cache";\nDir::Etc "{tmp_path}/etc";\nAPT::Sandbox::User "";\n'
    )
    return os.environ | {"APT_CONFIG": str(config), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}


def take_lock(path: Path) -> int:
    """Return the descriptor of a lock as apt takes it; closing it lets it go."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


@pytest.mark.parametrize("command, file", [("update", "state/lists/lock"), ("install -y", "state/lock-frontend")])
def test_apt__waits_for_whoever_holds_a_lock(tmp_path, apt, command, file):
    lock = take_lock(tmp_path / file)
    with lib(f"begin_step packages; apt_get count_apt {command} && echo updated", env=apt) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "test: 1 of 1: packages\n"
        waits = process.stdout.readline()
        os.close(lock)
        output, _ = process.communicate(timeout=60)
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert waits == f"test: waiting for process {os.getpid()} ({name}), which holds {tmp_path}/{file}\n"
    assert (process.returncode, output) == (0, "updated\n")


def test_apt__does_not_wait_for_ever(tmp_path, apt):
    lock = take_lock(tmp_path / "state/lists/lock")
    with lib("install_packages nothing", env=apt | {"APT_PATIENCE_S": "0"}) as process:
        output, _ = process.communicate(timeout=60)
    os.close(lock)
    assert process.returncode == 1 and f"process {os.getpid()}" in output and "still has not ended" in output
    assert output.endswith(
        "test: error: apt-get could not install nothing (its last lines are above); is a package source reachable?\n"
    )


def test_apt__a_package_that_does_not_exist_is_an_error_with_what_apt_said(apt):
    with lib("install_packages no-such-package", env=apt) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "E: Unable to locate package no-such-package" in output


@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync here (Debian's package `rsync`)")
def test_provision__a_second_time_keeps_files_of_the_user(tmp_path):
    """A checkout whose setup does nothing, provisioned twice with work of the user in between."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "scripts").mkdir(parents=True)
    for name in ("provision", "lib.sh"):
        shutil.copy(ROOT / "scripts" / name, source / "scripts" / name)
    (source / "scripts" / "setup").write_text("#!/bin/sh\n")
    (source / "scripts" / "setup").chmod(0o755)
    (source / "notes.md").write_text("first")
    command = ["bash", str(source / "scripts" / "provision"), "--into", str(copy), "--no-bmv2"]
    subprocess.run(command, check=True, capture_output=True)
    (copy / "scenarios").mkdir()
    (copy / "scenarios" / "mine.yaml").write_text("mine")
    (copy / "notes.md").write_text("changed here")
    (source / "notes.md").write_text("second")
    subprocess.run(command, check=True, capture_output=True)
    assert (copy / "scenarios" / "mine.yaml").read_text() == "mine"
    assert (copy / "notes.md").read_text() == "second"
    assert (copy / ".replaced" / "notes.md").read_text() == "changed here"
