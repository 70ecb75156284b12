"""Checks that no test depends on how busy the machine is or how the tests were started (conftest.py)."""

import subprocess
import sys
import time
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

INTERRUPTS_ITS_CHILD = """
import signal, subprocess, sys

def test_it():
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); import time; time.sleep(1000)"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout.readline() == "up\\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == -signal.SIGINT
"""


@settings(max_examples=2, phases=[Phase.generate])
@given(st.booleans())
def test_hypothesis__no_example_has_a_deadline(example):
    assert example in (True, False)
    time.sleep(0.25)  # its default is 0.2 s


def test_ctrl_c__reaches_children_of_a_run_in_the_background(tmp_path):
    """The state is that after `make unit &` in a script: the shell ignores SIGINT for it."""
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "test_inner.py").write_text(INTERRUPTS_ITS_CHILD)
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    shell = subprocess.run(["sh", "-c", 'trap "" INT; exec "$@"', "sh", *inner], capture_output=True, text=True)
    assert shell.returncode == 0, shell.stdout
