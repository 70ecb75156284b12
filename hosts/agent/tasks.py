"""Coroutines inside a `selectors` loop: talking to other agents takes several answers, and must not block.

    tasks = Tasks(time.monotonic)
    tasks.spawn(send_file(...), on_done)             # async def, awaiting Future, tasks.sleep(), tasks.turn()
    ...in the loop:  tasks.run();  timeout = tasks.next_timer()

No threads, no asyncio loop: the host's one loop stays the only place where something waits.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Future:
    """One value that is not there yet; `await` it once. Setting it twice keeps the first."""

    __slots__ = ("_error", "_value", "_waiter", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiter: Callable[[], None] | None = None

    def set(self, value: Any = None) -> None:
        self._finish(value, None)

    def fail(self, error: BaseException) -> None:
        """The awaiting coroutine sees `error` raised."""
        self._finish(None, error)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self.done:
            return
        self.done, self._value, self._error = True, value, error
        if self._waiter is not None:
            self._waiter()

    def __await__(self) -> Generator[Future, None, Any]:
        if not self.done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value


class Task:
    """A running coroutine; `cancel()` closes it at its next await (its `finally` blocks run)."""

    def __init__(self, tasks: Tasks, coroutine: Coroutine[Future, None, Any], on_done: Callable[[Task], None]) -> None:
        self._tasks = tasks
        self._coroutine = coroutine
        self._on_done = on_done
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def cancel(self) -> None:
        if not self.done:
            self._coroutine.close()
            self.done = True
            self._tasks.forget(self)

    def step(self) -> None:
        """Run to the next await that has to wait."""
        if self.done:
            return
        try:
            future = self._coroutine.send(None)
        except StopIteration as end:
            self.value = end.value
        except Exception as error:
            self.error = error
        else:
            future._waiter = lambda: self._tasks.wake(self)
            return
        self.done = True
        self._tasks.forget(self)
        self._on_done(self)


class Tasks:
    """The coroutines of one loop. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._ready: deque[Task] = deque()
        self._timers: list[tuple[float, int, Future]] = []
        self._order = itertools.count()
        self._all: set[Task] = set()

    def spawn(self, coroutine: Coroutine[Future, None, Any], on_done: Callable[[Task], None]) -> Task:
        """Start `coroutine` at the next `run`; `on_done(task)` is called when it returned or raised."""
        task = Task(self, coroutine, on_done)
        self._all.add(task)
        self._ready.append(task)
        return task

    def wake(self, task: Task) -> None:
        self._ready.append(task)

    def forget(self, task: Task) -> None:
        self._all.discard(task)

    def sleep(self, seconds: float) -> Future:
        """A future that is set `seconds` from now."""
        return self.at(self.clock() + seconds)

    def at(self, when: float, future: Future | None = None) -> Future:
        """A future that is set at time `when`, or before by whoever else has it."""
        future = future or Future()
        heapq.heappush(self._timers, (when, next(self._order), future))
        return future

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Call `callback` in the first `run` after time `when`."""
        self.at(when)._waiter = callback

    def turn(self) -> Future:
        """Let the rest of the loop have a turn: set in the next `run`."""
        return self.at(self.clock())

    def next_timer(self) -> float | None:
        """When `run` has something to do: now if a task is ready, else the earliest timer, else None."""
        if self._ready:
            return self.clock()
        return self._timers[0][0] if self._timers else None

    def run(self) -> None:
        """Set the futures that are due and step each task that is ready now, once."""
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2].set()
        for _ in range(len(self._ready)):
            self._ready.popleft().step()

    def cancel_all(self) -> None:
        """Close every coroutine."""
        for task in list(self._all):
            task.cancel()
        self._ready.clear()
        self._timers.clear()
