"""The outermost frame of commands: a reader that leaves, an output that cannot be written."""

import os
import subprocess
import sys

import pytest

from mrc_testbed.errors import EXIT_UNWRITTEN
from tests.repository import ROOT

MODULE = """\
import os, sys, threading

def main():
    try:
        print("line\\n" * 20000)
        {action}
    finally:
        open("clean", "w").close()
    return 1
"""


def end_of(tmp_path, action, stdout, stderr=subprocess.PIPE):
    """Return exit code and errors of a command that prints a lot; it makes the file `clean` at its end."""
    (tmp_path / "talkative.py").write_text(MODULE.format(action=action))
    start = "from mrc_testbed.console.command_line import begin; begin('talkative', 'interrupted')"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    process = subprocess.run(
        [sys.executable, "-c", start], cwd=tmp_path, env=env, stdout=stdout, stderr=stderr, text=True, timeout=60
    )
    return process.returncode, process.stderr


@pytest.fixture
def left_pipe():
    """A pipe whose reader has left, as `head` does."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    "action",
    [
        "print('more')",
        "sys.stdout.write('x' * 100000); sys.stdout.flush()",
        "print('to nobody', file=sys.stderr)",
        "[print('a', flush=True) for _ in iter(int, 1)]",
        "thread = threading.Thread(target=print, args=('x' * 99999,)); thread.start(); thread.join(); print('main')",
    ],
)
def test_reader_that_left__is_no_error(tmp_path, left_pipe, action):
    """The command says nothing and ends, also where it would print without end."""
    assert end_of(tmp_path, action, left_pipe) == (0, "")


def test_reader_that_left__lets_the_command_clean_up(tmp_path, left_pipe):
    assert end_of(tmp_path, "[print('x' * 9999) for _ in iter(int, 1)]", left_pipe) == (0, "")
    assert (tmp_path / "clean").exists()


@pytest.mark.parametrize("action", ["pass", "print('more' * 99999)", "sys.exit(0)"])
def test_full_disk__is_one_line(tmp_path, action):
    with open("/dev/full", "w") as full_disk:
        code, errors = end_of(tmp_path, action, full_disk)
    assert code == EXIT_UNWRITTEN
    assert errors.endswith("its output: No space left on device. Cure: make room, or write elsewhere\n")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        "mrc_testbed --help",
        pytest.param("mrc_testbed p4 --help", marks=pytest.mark.thorough),
        "mrc_testbed plan --nics 64 --json",
    ],
)
@pytest.mark.parametrize("output", ["reader", "disk"])
@pytest.mark.parametrize("variable", ["1", ""])
def test_commands_of_mrc__end_so_too(left_pipe, words, output, variable):
    """Test both kinds of streams: a buffered one fails at each flush, as it keeps its text."""
    with open("/dev/full", "w") as full_disk:
        stdout = left_pipe if output == "reader" else full_disk
        argv = [sys.executable, "-m", *words.split()]
        env = {**os.environ, "PYTHONUNBUFFERED": variable}
        process = subprocess.run(argv, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert "Traceback" not in process.stderr and process.stderr.count("\n") == (output == "disk")
    assert process.returncode == (0 if output == "reader" else EXIT_UNWRITTEN)
