"""Processes of a job's ranks: started together, read line by line, ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mrc_testbed.ipc import processes

KEPT_LINES = 30
"""Last lines of each rank, which are shown when it fails."""
LINE_BYTES = 1 << 16
"""Longest line of a rank; a longer one comes in parts."""
PATIENCE_S = 30.0
"""Time after a rank's failure for the others to hear of it and end; then they are killed."""
READ_S = 2.0
"""Time for the last lines of a rank that has ended: what it left behind may keep its output open."""
_LOOK_S = 0.05


@dataclass
class RankProcess:
    """Process of one rank."""

    number: int
    host: str
    process: subprocess.Popen[bytes]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    ended_at: float | None = None
    """Time at which its end was seen, CLOCK_MONOTONIC seconds."""
    is_stopped: bool = False
    """Whether it was ended from here."""

    @property
    def exit_code(self) -> int | None:
        """Exit code as a shell gives it, 128 and the number of the signal that killed it.

        None while it runs and when it was ended from here.
        """
        code = None if self.is_stopped else self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def how_it_ended(self) -> str:
        """Return `exited with code 1` or `was killed by SIGKILL`."""
        code = self.process.poll()
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return "is running" if code is None else f"exited with code {code}"


class Ranks:
    """Ranks of a job. `take`: gets each rank's lines as they come, in a thread of the rank."""

    def __init__(self, take: Callable[[RankProcess, str], None]) -> None:
        self._take = take
        self._readers: list[threading.Thread] = []
        self.members: list[RankProcess] = []

    def start(self, host: str, words: Sequence[str], token: str | None = None, folder: str | None = None) -> None:
        """Start the next rank, in a folder; `token`: of the fabric that it ends with. Raises OSError."""
        process = processes.popen(
            words,
            token,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the terminal's Ctrl-C is for who started the job, who ends it
        )
        rank = RankProcess(len(self.members), host, process)
        self.members.append(rank)
        self._readers.append(threading.Thread(target=self._read, args=(rank,), daemon=True))
        self._readers[-1].start()

    def _read(self, rank: RankProcess) -> None:
        assert rank.process.stdout is not None
        while line := rank.process.stdout.readline(LINE_BYTES):
            text = line.decode(errors="replace").rstrip("\n")
            rank.lines.append(text)
            self._take(rank, text)

    def wait(self, patience_s: float | None, is_over: Callable[[], bool] = lambda: False) -> RankProcess | None:
        """Wait for all ranks; return the first that failed.

        `patience_s`: how long the others may go on after it; None: for ever. `is_over`: asked again and again, ends
        the waiting.
        """
        first_failed, deadline = None, float("inf")
        while self._note_ends() and time.monotonic() < deadline and not is_over():
            time.sleep(_LOOK_S)
            if first_failed is None and (first_failed := self._failed_rank()) is not None and patience_s is not None:
                deadline = time.monotonic() + patience_s
        return first_failed or self._failed_rank()

    def _note_ends(self) -> bool:
        """Note which ranks have ended; return whether one runs."""
        running = [rank for rank in self.members if rank.process.poll() is None]
        for rank in self.members:
            if rank not in running and rank.ended_at is None:
                rank.ended_at = time.monotonic()
        return bool(running)

    def _failed_rank(self) -> RankProcess | None:
        return next((rank for rank in self.members if rank.exit_code not in (None, 0)), None)

    def end(self, grace_s: float = 0.0) -> None:
        """End the ranks that run, after `grace_s` by SIGKILL, and take their last lines. Idempotent."""
        running = [rank for rank in self.members if rank.process.poll() is None]
        for rank in running:
            rank.is_stopped = True
            if grace_s > 0:
                _signal(rank.process, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for rank in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(0.0, deadline - time.monotonic()))
            _signal(rank.process, signal.SIGKILL)  # what it started goes too, where it ended by itself
            rank.process.wait()
        self._note_ends()
        for reader in self._readers:
            reader.join(READ_S)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a rank, and to what it started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
