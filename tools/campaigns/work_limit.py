"""A bound of the work that a compiler may do, for campaigns whose programs nobody has tried."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTimeError(BaseException):
    """The work was not done in time: no Exception, for the compiler would report one as its own fault."""


@contextmanager
def work_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in the main thread after `seconds` of this process's CPU.

    A busy machine changes nothing. It is raised again after as long, for one that a destructor raises is lost.
    """

    def raise_out_of_time(*_signal: object) -> None:
        raise OutOfTimeError

    previous_handler = signal.signal(signal.SIGPROF, raise_out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous_handler)
