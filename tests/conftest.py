"""Hooks and fixtures that hold for every test."""

import gc
import os
import re
import signal
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
import typer.main
from _pytest.mark.expression import Expression
from hypothesis import HealthCheck, settings

# Tests are of the Python files, and replace parts of them; tests/native_build has those of both forms, in processes.
os.environ.setdefault("MRC_COMPILED", "0")

# All commands of `mrc` with their options take a tenth of a second to build, which is done anew for each invocation.
typer.main.get_command = cache(typer.main.get_command)

# The width of whoever runs the tests is not theirs (xdist tells it to its workers): a pipe has its own.
os.environ.pop("COLUMNS", None)

# On a busy machine an example takes as long as it takes: a test that measures that fails now and then for no fault.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Restore SIGINT and SIGHUP, so that they end processes that tests start.

    A shell starts what it puts into the background with SIGINT ignored, `nohup` with SIGHUP ignored, and children
    inherit that: tests that send either to a child would wait for it in vain, such as those of `make unit &`.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


COLLECT_AFTER = 20_000
"""Count of new objects after which the garbage collector looks through them.

With Python's 700, tests of the engine took a seventh more CPU.
"""


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through the collected tests again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


MARKERS = ("root", "build", "alone", "house", "documents", "thorough", "resilience")
"""Markers by which the Makefile selects tests."""
MARKER = re.compile(r"mark\.(\w+)")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return every NAME that a file writes as `mark.NAME`; none where there is no file."""
    return frozenset(MARKER.findall(path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


@cache
def markers_in(path: Path) -> tuple[str, ...]:
    """Return the MARKERS that a file or a conftest.py of its folders writes as `mark.NAME`."""
    folders = [folder for folder in path.parents if folder.is_relative_to(Path(__file__).parent)]
    names = frozenset().union(names_in(path), *(names_in(folder / "conftest.py") for folder in folders))
    return tuple(name for name in MARKERS if name in names)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file alone none of whose tests can be one that `-m` selects.

    To import all files takes a worker twenty seconds, and a sixth of them have a test with a fabric.
    """
    if collection_path.suffix != ".py" or not config.option.markexpr:
        return None
    names, selection = markers_in(collection_path), Expression.compile(config.option.markexpr)
    subsets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    is_needed = any(selection.evaluate(lambda name, **_: name in subset) for subset in subsets)  # noqa: B023 - at once
    return None if is_needed else True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a test whose marker its file does not write: `-m` with that marker would not find it."""
    unseen_names = {marker.name for marker in item.iter_markers()} & {*MARKERS} - {*markers_in(item.path)}
    if unseen_names:
        raise pytest.UsageError(f"{item.nodeid}: write `pytest.mark.{unseen_names.pop()}` in the file itself")
