"""An asyncio loop without waiting: its clock starts at 0 and jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        events = super().select(0)
        if not events:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(0.0, timeout)
        return events


class JumpingLoop(asyncio.SelectorEventLoop):
    """Fails when nothing will ever happen."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now
