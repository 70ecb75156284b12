"""Another simulator as a program of the user: run once, with its words in the error."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from mrc_testbed.errors import UsageError

WORDS_MAX = 500
"""Characters of a program's output in an error."""


class ProgramRun(NamedTuple):
    """One run of a program."""

    output: str
    cpu_s: float
    wall_s: float


def run_program(option: str, command: Sequence[str | Path], folder: Path) -> ProgramRun:
    """Run a command in a folder; return what it prints, and how long it took.

    `option`: the option that gave the program's path, for errors. Raises UsageError when it cannot be run or fails.
    """
    name = f"{option} {command[0]}"
    began = perf_counter()
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}: give the path of the program") from None
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        last_words = (process.stderr or process.stdout)[-WORDS_MAX:]
        raise UsageError(f"{name}: ended with exit code {process.returncode}: {last_words}")
    cpu_s = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    return ProgramRun(process.stdout, cpu_s, perf_counter() - began)
