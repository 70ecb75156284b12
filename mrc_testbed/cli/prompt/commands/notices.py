"""Lines about what happens by itself: faults that the controller finds, transfers in the background.

At the prompt a line goes above what is being typed, which stays as it is, cursor included. GNU readline does that: it
calls Python ten times a second while it waits for a key (PyOS_InputHook), in the thread that reads, so nothing is
written behind its back. Other line editors (libedit) have no such call: there a notice waits for the next command.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from mrc_testbed.console.terminal import fold_for
from mrc_testbed.ipc.controller_client import KnownFaults, sources_of
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.signals import ENDING

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric

RETRY_S = 1.0
"""Pause before a controller that does not answer, or has gone, is asked again, seconds."""
WAITING_MAX = 200
"""Notices that wait for a terminal which is taken; older ones are dropped."""


class _Terminal(Enum):
    COMMAND = "free"
    """A command of ours runs: a line is printed at once."""
    PROMPT = "prompt"
    """Return whether the user is typing: the line editor makes room."""
    PROGRAM = "taken"
    """Another program has it: lines wait."""


class Notices:
    """Notices of a session. Threads may call `tell`; all else is for the thread that reads commands."""

    def __init__(self, out: IO[str]) -> None:
        self.on = True
        self._out = out
        self._lock = threading.RLock()
        self._waiting: deque[str] = deque(maxlen=WAITING_MAX)
        self._terminal = _Terminal.COMMAND
        self._editor: _LineEditor | None = None

    def notify(self, text: str) -> None:
        """Print a line, now or as soon as the terminal is free; nothing when switched off."""
        with self._lock:
            if not self.on:
                return
            self._waiting.append(text)
            if self._terminal is _Terminal.COMMAND:
                self._print()

    @contextlib.contextmanager
    def editing(self) -> Iterator[None]:
        """Lines are read by readline within: notices go above them."""
        self._editor = _LineEditor.of_readline(self._print_above)
        try:
            yield
        finally:
            if self._editor is not None:
                self._editor.close()
                self._editor = None
            self.running()

    def reading(self) -> None:
        """A line is going to be read."""
        self._become(_Terminal.PROMPT)

    def running(self) -> None:
        """A line has been read, and its command begins."""
        self._become(_Terminal.COMMAND)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Another program has the terminal within."""
        previous_user = self._terminal
        self._become(_Terminal.PROGRAM)
        try:
            yield
        finally:
            self._become(previous_user)

    def _become(self, user: _Terminal) -> None:
        with self._lock:
            self._terminal = user
            if user is _Terminal.COMMAND:
                self._print()

    def _print_above(self) -> None:
        """Print what waits above the line that is being typed."""
        if self._waiting and self._terminal is _Terminal.PROMPT and self._editor is not None:
            with self._lock, self._editor.room():
                self._print()

    def _print(self) -> None:
        while self._waiting:
            self._out.write(fold_for(self._out, self._waiting.popleft()) + "\n")
        self._out.flush()


class _LineEditor:
    """GNU readline of this process, through the library that Python's own module is linked with."""

    FUNCTIONS = ("rl_clear_visible_line", "rl_forced_update_display")

    def __init__(self, library: ctypes.PyDLL, on_idle: Callable[[], None]) -> None:
        self._library = library
        self._libc = ctypes.PyDLL(None)
        self._slot = ctypes.c_void_p.in_dll(ctypes.pythonapi, "PyOS_InputHook")
        self._original_hook = self._slot.value
        self._on_idle = on_idle
        self._hook = ctypes.PYFUNCTYPE(ctypes.c_int)(self._on_wait)  # kept: C has its address alone
        self._signals = PromptSignals(_LineEditor._on_wait, self._hold, self._go_on)
        self._go_on()

    @classmethod
    def of_readline(cls, on_idle: Callable[[], None]) -> _LineEditor | None:
        """The editor, which calls `idle` while it waits; None where it is another one, or none."""
        try:
            import readline

            library = ctypes.PyDLL(readline.__file__)
        except (ImportError, OSError, AttributeError, TypeError):  # built into the interpreter, it has no file
            return None
        return cls(library, on_idle) if all(hasattr(library, name) for name in cls.FUNCTIONS) else None

    def _on_wait(self) -> int:
        self._on_idle()
        return 0

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Take the line off the screen, and put it back below what is printed within."""
        self._library.rl_clear_visible_line()
        self._libc.fflush(None)
        try:
            yield
        finally:
            self._library.rl_forced_update_display()

    def _hold(self) -> None:
        """Keep C from calling."""
        self._slot.value = self._original_hook

    def _go_on(self) -> None:
        self._slot.value = ctypes.cast(self._hook, ctypes.c_void_p).value

    def close(self) -> None:
        try:
            self._signals.close()
        finally:
            self._hold()


class _Sender(threading.Thread):
    """Sends a signal to the main thread again and again, until that has answered it."""

    RETRY_S = 0.02

    def __init__(self, number: int) -> None:
        super().__init__(name="signal", daemon=True)
        self._number = number
        self._stop_event = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stop_event.wait(self.RETRY_S):
            signal.pthread_kill(threading.main_thread().ident or 0, self._number)

    def stop(self) -> None:
        self._stop_event.set()
        self.join()


class PromptSignals:
    """Signals that come while somebody types: none is lost in the function that the line editor calls.

    What is raised in a function that C calls is printed and forgotten, and C calls it first when a signal interrupts
    its wait. So a signal that is handled within is sent anew, while C is kept from calling: it looks for signals then.
    """

    def __init__(self, called_by_c: Callable[..., int], hold: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._code = called_by_c.__code__
        self._hold, self._go_on = hold, go_on
        self._senders: dict[int, _Sender] = {}
        self._answering: int | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *ENDING):
                if callable(handler := signal.getsignal(number)):  # else it is ignored, or ends the process by itself
                    self._handlers[number] = handler
                    signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == self._answering:  # sent once more than needed
            return
        if self._is_within(frame):
            self._hold()
            if number not in self._senders:
                self._senders[number] = _Sender(number)
            return
        self._stop(number)
        self._handlers[number](number, frame)

    def _is_within(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        return frame is not None

    def _stop(self, number: int) -> bool:
        """End its sending; whether there was one."""
        sender = self._senders.pop(number, None)
        if sender is None:
            return False
        self._answering = number
        sender.stop()
        self._answering = None
        if not self._senders:
            self._go_on()
        return True

    def close(self) -> None:
        """Let signals have their handlers of before, those too that are not answered yet."""
        waiting = [number for number in self._handlers if self._stop(number)]
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number in waiting:
            signal.raise_signal(number)


class FaultFollower:
    """A thread that tells what the controller finds, what keeps it from its work, and what is over."""

    def __init__(self, fabric: Fabric, notify: Callable[[str], None]) -> None:
        self._fabric, self._notify = fabric, notify
        self._stop_event = threading.Event()
        self._watch: Any = None
        self._known_faults = KnownFaults("kind", "location")  # figures in the text change all the time
        self._problems: dict[tuple[int, float], bool] = {}
        """Reported problems, and whether they last, by number and time of begin.

        A restarted controller counts anew.
        """
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. Idempotent."""
        self._stop_event.set()
        if self._watch is not None:
            self._watch.close()
        self._thread.join(RETRY_S)

    def _run(self) -> None:
        while not self._stop_event.is_set():
            try:
                with self._fabric.controller.watch(events="fault,problem") as self._watch:
                    self._catch_up()
                    while not self._stop_event.is_set():
                        if event := self._watch.get(RETRY_S):
                            self._on_event(event)
            except JsonlError:  # it is restarting, or the fabric ends
                self._stop_event.wait(RETRY_S)

    def _catch_up(self) -> None:
        """Tell the end of what was told before and ended while no stream was open: a new one does not name it."""
        answer = self._fabric.controller.request("faults")
        for change, fault in self._known_faults.reconcile(answer["faults"]):
            self._notify(self.fault_text(change, fault))
        for problem in answer["problems"]:
            if problem["over"] is not None and self._problems.get((problem["number"], problem["began"])):
                self._on_event({"event": "problem", "change": "over", "problem": problem})

    def _on_event(self, event: dict[str, Any]) -> None:
        if event.get("event") == "fault" and (change := self._known_faults.change(event["fault"])):
            self._notify(self.fault_text(change, event["fault"]))
        if event.get("event") == "problem" and (text := self.problem_text(event["change"], event["problem"])):
            self._notify(text)

    def problem_text(self, change: str, problem: dict[str, Any]) -> str | None:
        """A line about a problem of the controller; None when it was told before."""
        key, lasts = (problem["number"], problem["began"]), change != "over"
        if self._problems.get(key) in (lasts, False):  # what is over does not begin again
            return None
        self._problems[key] = lasts
        if lasts:
            return f"controller: {problem['text']}"
        lasted_s = problem["over"] - problem["began"]
        return f"controller: over after {lasted_s:.1f} s: {problem['kind']}: {problem['about']}"

    @staticmethod
    def fault_text(change: str, fault: dict[str, Any]) -> str:
        """A line about a change of a fault."""
        number, text = fault["number"], fault["text"]
        if change == "cleared":
            return f"fault {number} is over after {fault['cleared'] - fault['first_seen']:.1f} s: {text}"
        if change == "merged":
            return f"fault {number} is part of fault {', '.join(map(str, fault['into']))}: {text}"
        sources = ", ".join(sources_of(fault))
        return f"fault {number}{' is now' if change == 'updated' else ''}: {text}" + (
            f" (seen by {sources})" if sources else ""
        )
