"""Timer that a selector can wait for, precise to some 50 us; epoll's own timeout counts milliseconds.

    alarm = TimerFd()
    selector.register(alarm, EVENT_READ, lambda mask: None)
    selector.select(alarm.wait(deadline))          # deadline: CLOCK_MONOTONIC seconds, or None

The timer is armed again only for an earlier expiry, or after it has expired: a deadline that moves away with every
packet, as retry timers do, costs nothing but an early wake-up now and then.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = os.O_NONBLOCK, os.O_CLOEXEC, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)


class TimerFd:
    """One timerfd. Raises OSError when the kernel gives none."""

    def __init__(self) -> None:
        self._fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise _error("timerfd_create")
        self._spec = _Itimerspec()
        self._armed_for = 0.0
        """Expiry time, past or to come; 0 = never armed."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._fd

    def wait(self, deadline: float | None, now: float | None = None) -> float | None:
        """Return the timeout for `select`: 0 when `deadline` has come, else None with the timer armed.

        The timer expires at `deadline` or earlier. `now`: CLOCK_MONOTONIC seconds, read here when left out.
        """
        now = time.monotonic() if now is None else now
        if deadline is not None and deadline <= now:
            return 0.0
        if self._armed_for > now and (deadline is None or self._armed_for <= deadline):
            return None
        if deadline is not None or self._armed_for:
            self._set(0.0 if deadline is None else deadline)
        return None

    def _set(self, time: float) -> None:
        """Arm the timer for `time`; 0 disarms. Either makes the descriptor unreadable until then."""
        value = self._spec.value
        value.sec = int(time)
        value.nsec = int((time - value.sec) * 1e9)
        if _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None) < 0:
            raise _error("timerfd_settime")
        self._armed_for = time

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _error(call: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{call}: {errno.errorcode.get(code, code)}")
