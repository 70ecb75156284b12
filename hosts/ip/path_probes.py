"""Probes of the paths that IP flows use, because no acknowledgement reports a loss there.

No socket and no clock: times are arguments.

A path in use is probed once in `interval_s`; after MISSES_MAX probes in a row without an answer it is withdrawn, and
probed further until one is answered. EV probes are those of §6.10, which need no QP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mrc_testbed.hosts.ip.flows import Path

MISSES_MAX = 2
RETRY_INTERVALS = 4
"""Intervals between two probes of a withdrawn path."""


@dataclass(slots=True)
class ProbedPath:
    """State of one path. `due_at`: time of its next probe; `misses`: unanswered probes in a row."""

    due_at: float
    misses: int = 0

    @property
    def is_withdrawn(self) -> bool:
        return self.misses >= MISSES_MAX


class PathProbes:
    """Probed paths of one host. `send(peer, path)` sends a probe, whose outcome comes to `on_result`."""

    def __init__(self, send: Callable[[str, Path], None], interval_s: float) -> None:
        self._send, self._interval_s = send, interval_s
        self._paths: dict[tuple[str, Path], ProbedPath] = {}

    def withdrawn(self, peer: str) -> set[Path]:
        """Return the paths to a peer that do not answer."""
        return {path for (name, path), state in self._paths.items() if name == peer and state.is_withdrawn}

    def on_timer(self, in_use: Iterable[tuple[str, Path]], now: float) -> bool:
        """Send the probes that are due; return whether any path is to be probed further."""
        in_use = set(in_use)
        for key in in_use:
            self._paths.setdefault(key, ProbedPath(now))
        for key in [key for key, state in self._paths.items() if key not in in_use and not state.is_withdrawn]:
            del self._paths[key]
        for (peer, path), state in self._paths.items():
            if state.due_at <= now:
                state.due_at = now + self._interval_s * (RETRY_INTERVALS if state.is_withdrawn else 1)
                self._send(peer, path)
        return bool(self._paths)

    def on_result(self, peer: str, path: Path, answered: bool) -> None:
        """Note whether a probe was answered; ignore a late result of a path that is no longer probed."""
        state = self._paths.get((peer, path))
        if state is not None:
            state.misses = 0 if answered else state.misses + 1
