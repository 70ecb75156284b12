"""Hooks and fixtures that hold for every test."""

import gc
import os
import signal

from hypothesis import HealthCheck, settings

# Tests are of the Python files, and replace parts of them; tests/native_build has those of both forms, in processes.
os.environ.setdefault("MRC_COMPILED", "0")

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
