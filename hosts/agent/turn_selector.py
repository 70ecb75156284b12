"""A selector that gives asyncio the three things which an agent needs and asyncio lacks.

1. A turn before each wait. What callbacks and tasks have posted has to leave before the loop sleeps, and what a NIC
   has received is taken down to the last frame before any timer is looked at. libuv calls this a prepare watcher;
   asyncio's place for it is the selector that it is given, whose `select` it calls once in each of its rounds. As a
   callback of `add_reader` a turn costs a handle for each port and wake-up, and everybody who posts a write would
   have to remember to ask for one: a forgotten one is a write that lies there until the next timer.
2. Timers precise to some 50 us, for the turn and for `loop.call_at` alike: epoll counts milliseconds, select(2)
   microseconds. One call is the wait and the timer: nothing has to be armed before.
3. A rest between turns. A wake-up costs an agent more than the work that follows: with everything in the processor's
   caches gone, 100 us and more for a turn. A turn that frames ask for begins `rest_s` after the last one at least, and
   does the work of all that came; the first after a longer pause begins at once. One that is due by its own time has to
   wait for three quarters of that alone, so that what is due once in each `rest_s` is never put off. asyncio waits
   for nothing: a request or a timer of the loop ends a rest.

    selector = TurnSelector()
    loop = asyncio.SelectorEventLoop(selector)
    selector.turn = agent.turn

`turn()` does what there is to do and returns when it wants to be called next: CLOCK_MONOTONIC seconds, 0.0 for at
once, None for not before something happens. It has to return 0.0 when it has set an event or a timer of the loop,
because asyncio has worked out before how long it may sleep; only then, and when something is ready for asyncio, is it
asyncio's turn: frames alone never leave `select`.
"""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

DUE_REST = 0.75
"""Share of a rest that a turn waits when its own time has come."""


def no_turn() -> float | None:
    """Do nothing; return that no turn is due."""
    return None


class TurnSelector(selectors.EpollSelector):
    """Selector of one asyncio loop, which closes it."""

    def __init__(self) -> None:
        super().__init__()
        self.turn: Callable[[], float | None] = no_turn
        self.rest_s = 0.0
        """Least time from the begin of a turn to the next that asyncio has not asked for."""
        self._wakers = select.epoll()
        """Holds the descriptors that end a wait and nothing else; asyncio does not see them."""
        self._waking: set[int] = set()
        self._asyncio = [self.fileno()]
        self._epolls = [self.fileno(), self._wakers.fileno()]

    def wake_for(self, descriptors: Iterable[int]) -> None:
        """Set the descriptors that end a wait when they become readable, for the turn to read."""
        for number in self._waking:  # also one that stays: a descriptor closed and opened anew has the same number
            with suppress(OSError):
                self._wakers.unregister(number)
        self._waking = set(descriptors)
        for number in self._waking:
            self._wakers.register(number, select.EPOLLIN)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait once for asyncio, with a turn before the wait and one for each wake-up in it."""
        began = time.monotonic()
        ends = None if timeout is None else began + timeout
        while True:
            try:
                due = self.turn()
            except BaseException:
                self.turn = no_turn  # the loop has to clean up yet
                raise
            if due == 0.0 or not self._sleep(began, due, ends):
                return super().select(0)
            began = time.monotonic()

    def _sleep(self, began: float, due: float | None, ends: float | None) -> bool:
        """Wait for work of a turn that is `due`; return False when asyncio has work, at `ends` at the latest.

        `began`: when the last turn began. All times are CLOCK_MONOTONIC seconds.
        """
        now = time.monotonic()
        rest_end = began + self.rest_s
        if now < rest_end:
            wake_time = rest_end if due is None or due > rest_end else max(due, began + DUE_REST * self.rest_s)
            if ends is not None and ends < wake_time:
                wake_time = ends
            if wake_time > now and select.select(self._asyncio, (), (), wake_time - now)[0]:
                return False
            now = time.monotonic()
            if due is not None and due <= now:
                return ends is None or now < ends
        wait_end = due if ends is None or (due is not None and due < ends) else ends
        if wait_end is not None and wait_end <= now:
            return False  # without a rest asyncio has its turn between two of ours
        ready_fds = select.select(self._epolls, (), (), None if wait_end is None else wait_end - now)[0]
        return self._asyncio[0] not in ready_fds and (ends is None or bool(ready_fds) or time.monotonic() < ends)

    def close(self) -> None:
        """Idempotent."""
        super().close()
        self._wakers.close()
