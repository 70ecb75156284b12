"""A selector that gives asyncio the two things which an agent needs and asyncio lacks.

1. A turn before each wait. What callbacks and tasks have posted has to leave before the loop sleeps, and what a NIC
   has received is taken down to the last frame before any timer is looked at. libuv calls this a prepare watcher;
   asyncio's place for it is the selector that it is given, whose `select` it calls once in each of its rounds. As a
   callback of `add_reader` a turn costs a handle for each port and wake-up, and everybody who posts a write would
   have to remember to ask for one: a forgotten one is a write that lies there until the next timer.
2. Timers precise to some 50 us (timerfd.py), for the turn and for `loop.call_at` alike: epoll counts milliseconds.

    selector = TurnSelector()
    loop = asyncio.SelectorEventLoop(selector)
    selector.turn = agent.turn

`turn()` does what there is to do and returns when it wants to be called next: CLOCK_MONOTONIC seconds, 0.0 for at
once, None for not before something happens. It has to return 0.0 when it has set an event or a timer of the loop,
because asyncio has worked out before how long it may sleep.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable

from hosts.agent.timerfd import TimerFd


def no_turn() -> float | None:
    """Nothing to do."""
    return None


class TurnSelector(selectors.EpollSelector):
    """For one asyncio loop, which closes it. Raises OSError when the kernel gives no timerfd."""

    def __init__(self) -> None:
        super().__init__()
        self.turn: Callable[[], float | None] = no_turn
        self._alarm = TimerFd()
        self._wakers: set[int] = {self._alarm.fileno()}
        """Descriptors that end a wait and nothing else: asyncio does not hear of them."""
        self.register(self._alarm.fileno(), selectors.EVENT_READ)

    def wake_for(self, descriptors: Iterable[int]) -> None:
        """From now on these are the descriptors that end a wait when they become readable, for the turn to read."""
        for number in self._wakers:
            self.unregister(number)  # also one that stays: a descriptor closed and opened anew has the same number
        self._wakers = {self._alarm.fileno(), *descriptors}
        for number in self._wakers:
            self.register(number, selectors.EVENT_READ)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """One wait of asyncio's, after a turn."""
        called_at = time.monotonic()
        try:
            due = self.turn()
        except BaseException:
            self.turn = no_turn  # the loop has to clean up yet
            raise
        if timeout is not None:
            if timeout <= 0:
                due = 0.0
            elif due is None or called_at + timeout < due:
                due = called_at + timeout
        wait = 0.0 if due == 0.0 else self._alarm.wait(due)
        wakers = self._wakers
        return [ready for ready in super().select(wait) if ready[0].fd not in wakers]

    def close(self) -> None:
        """Idempotent."""
        super().close()
        self._alarm.close()
