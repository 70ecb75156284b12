"""Outputs of a front process to which several people give words at the same time.

A text that a word prints goes to whoever gave the word, by the thread that runs it. What happens by itself goes to the
prompt of the process, and to everyone who listens; during a `wait` also to whoever waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import IO

from mrc_testbed.console.terminal import fold_for

Listener = Callable[[str], None]


class Outputs:
    """Streams of a front process. Any thread may call."""

    def __init__(self, stdout: IO[str], notify: Listener) -> None:
        self.stdout = stdout
        """The prompt's own stream, for threads of nobody."""
        self.notify_prompt = notify
        self._callers = threading.local()
        self._waiting: list[tuple[IO[str], int]] = []
        self._listeners: list[tuple[Listener, int]] = []
        self._lock = threading.Lock()
        self.known_transfers: set[str] = set()
        """Transfers whose end a `wait` of another shell has told."""

    @contextlib.contextmanager
    def caller(self, stream: IO[str]) -> Iterator[None]:
        """Send texts of this thread's words to a stream within."""
        previous_stream = getattr(self._callers, "stream", None)
        self._callers.stream = stream
        try:
            yield
        finally:
            self._callers.stream = previous_stream

    @contextlib.contextmanager
    def waiting(self, stream: IO[str], prompt: int) -> Iterator[None]:
        """Let somebody at a prompt (0: at none) wait within for what happens by itself."""
        with self._lock:
            self._waiting.append((stream, prompt))
        try:
            yield
        finally:
            with self._lock:
                self._waiting.remove((stream, prompt))

    @contextlib.contextmanager
    def listening(self, listener: Listener, prompt: int) -> Iterator[None]:
        """Tell a prompt what happens by itself within; its listener raises OSError once it has gone."""
        with self._lock:
            self._listeners.append((listener, prompt))
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove((listener, prompt))

    def print_text(self, text: str) -> None:
        """Print the text of a word for whoever gave it; from a thread of nobody, for all who wait."""
        stream = getattr(self._callers, "stream", None)
        with self._lock:
            waiting = [*self._waiting]
        streams = [stream] if stream is not None else [reader for reader, _ in waiting] or [self.stdout]
        for reader in streams:
            with contextlib.suppress(OSError):  # a reader has gone, and the others have not
                print(fold_for(reader, text), file=reader, flush=True)
        if stream is None and waiting:
            self.notify(text, *(prompt for _, prompt in waiting))

    def notify(self, text: str, *informed_prompts: int) -> None:
        """Tell what has happened by itself to all prompts but those that know."""
        self.notify_prompt(text)
        with self._lock:
            listeners = [listener for listener, prompt in self._listeners if prompt not in informed_prompts]
        for listener in listeners:
            with contextlib.suppress(OSError):  # it has gone, and its connection will tell
                listener(text)


class CallerStream:
    """Stream that many words write to, such as Mininet's log: to each word's caller its own part."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    @property
    def _stream(self) -> IO[str]:
        stream: IO[str] = getattr(self._outputs._callers, "stream", None) or self._outputs.stdout
        return stream

    def write(self, text: str) -> int:
        """Write to the stream of this thread's caller."""
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream of this thread's caller."""
        self._stream.flush()
