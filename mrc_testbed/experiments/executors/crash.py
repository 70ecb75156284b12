"""Texts for a worker process that died: the cause, and what to send in a bug report."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from mrc_testbed.native_build import state
from mrc_testbed.switch.system.cache_folder import BuildError, safe_cache_dir

CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
"""Signals that a process gets for its own fault; others come from another process."""


def stack_file() -> Path:
    """Make an empty file that a process writes its stack to when it crashes (`faulthandler`)."""
    handle, name = tempfile.mkstemp(prefix="mrc-stack-", suffix=".txt")
    os.close(handle)
    return Path(name)


def death_of(run_name: str, exit_code: int | None, stack: Path) -> str:
    """Describe how the process of a run died; for a crash of ours, name the report file in the cache."""
    subject = f"the process of run {run_name!r}"
    if exit_code is None or exit_code >= 0:
        return f"{subject} ended with exit code {exit_code}, which is a fault of mrc-testbed: please report it"
    number = -exit_code
    name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
    if number == signal.SIGKILL:
        return f"{subject} was killed ({name}) from outside, by the kernel if memory was short: then give fewer --jobs"
    if number not in CRASH_SIGNALS:
        return f"{subject} was ended by {name} from outside"
    form = "as machine code: MRC_COMPILED=0 runs it in Python" if state().active else "in Python"
    return (
        f"{subject} crashed ({name}): a fault of mrc-testbed, not of the scenario. Please report it with "
        f"{_report(run_name, name, stack)}. The engine ran {form}"
    )


def _report(run_name: str, signal_name: str, stack: Path) -> str:
    """Write a crash report and return its path in words; the command itself if it cannot be written."""
    command = " ".join(sys.argv)
    facts = (
        f"command: {command}\nrun: {run_name}\nsignal: {signal_name}\nPython: {sys.version}\nengine: {state().reason}\n"
    )
    try:
        folder = safe_cache_dir() / "crashes"
        folder.mkdir(exist_ok=True)
        path = folder / stack.name.replace("stack", "crash")
        path.write_text(facts + "\n" + stack.read_text(encoding="utf-8", errors="replace"), encoding="utf-8")
    except (OSError, BuildError):
        return f"the command {command!r}"
    return f"the scenario file and {path}"
