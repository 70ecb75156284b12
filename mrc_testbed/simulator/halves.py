"""One run in two processes, each with the hosts of half of the racks.

    result = run_in_halves(function, *arguments)

Both processes call `function(half, *arguments)`. They make the same fabric (`VirtualFabric(..., half=half)`), flows and
faults, and run the same stretches of time, agreed upon before each. Each one handles only the events of its own hosts
and T0s. T1s are in both: a T1 sends to a rack in the half of that rack. So a packet changes halves at most once, from
T0 to T1 (border.py). What a half does not run stays as it was made, so counters of both halves add up.

`function` has to ask for the same exchanges (`gather`) in both processes: whatever decides what comes next has to be
the same in both. Half 0 is this process, and what `function` returns there is the result.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.child_errors import portable, with_trace
from mrc_testbed.simulator.events import machine_code

Value = TypeVar("Value")
MEETING, VALUE, ERROR, LAST = b"m", b"v", b"e", b"l"
"""Kinds of messages: of queues that meet, of gather(), an exception of half 1, and the last one."""
SHARED_BYTES = 2 << 20
"""Size of the memory for the frames between the halves; the kernel gives pages only as they are used."""
LOOK_S = 0.001
"""Seconds for which a half looks for a message before it sleeps: what a stretch of 64 hosts takes."""


def racks_of(half_number: int, count: int) -> range:
    """Return the racks of half 0 or 1, of `count` racks."""
    return range(count // 2, count) if half_number else range(count // 2)


def reason_against(racks: int, *, pauses: bool, as_bytes: bool = False) -> str:
    """Return why a fabric has no halves; "" where it has.

    `pauses`: with PFC, whose pauses cross from T1s to T0s at any time. `as_bytes`: packets travel as bytes.
    """
    if racks < 2:
        return "one rack has no halves"
    if pauses:
        return "a fabric with pauses (PFC) has no halves"
    return "a fabric whose packets are bytes has no halves" if as_bytes else ""


class LostHalfError(UsageError):
    """The process of the other half has ended before the run."""


class SplitError(Exception):
    """Both halves were not given the same calls, a mistake of the program."""


class Channel(Protocol):
    """Way of the messages between the halves."""

    def exchange(self, message: bytes, /) -> bytes:
        """Send a message; return that of the other half. Raises EOFError or OSError once it has ended."""


class PipeChannel:
    """Channel of halves that run Python; that of machine code is in simulator/channel.c."""

    def __init__(self, number: int, pipe: Connection) -> None:
        self._number, self._pipe = number, pipe

    def exchange(self, message: bytes, /) -> bytes:
        # One half sends first: two that send at once would both wait for room in the pipe.
        if self._number == 0:
            self._pipe.send_bytes(message)
        answer = self._pipe.recv_bytes()
        if self._number == 1:
            self._pipe.send_bytes(message)
        return answer


def _channel(number: int, pipe: Connection, memory: mmap) -> Channel:
    """Return the channel of half 0 or 1 by a pipe, and by memory that both have mapped."""
    code = machine_code()
    if code is None:
        return PipeChannel(number, pipe)
    channel: Channel = code.Channel(memory, number, pipe.fileno(), LOOK_S if len(os.sched_getaffinity(0)) > 1 else 0.0)
    return channel


class Half:
    """One of two processes of a run, with its channel to the other; `number`: 0 or 1."""

    def __init__(self, number: int, channel: Channel) -> None:
        self.number = number
        self._channel = channel

    def swap(self, kind: bytes, message: bytes) -> bytes:
        """Send a message to the other half; return the one that it sends.

        Both have to be of the same `kind`, a byte. Raises LostHalfError, SplitError, and what half 1 has raised.
        """
        try:
            answer = self._channel.exchange(kind + message)
        except (EOFError, OSError):
            raise LostHalfError("the process of the other half has ended") from None
        if answer[:1] == ERROR:
            raise with_trace(*pickle.loads(answer[1:]))
        if answer[:1] != kind:
            raise SplitError("the halves of a run differ in what they do next: a mistake of the program that they run")
        return answer[1:]

    def gather(self, value: Value) -> tuple[Value, Value]:
        """Return the values of half 0 and of half 1."""
        other_value: Value = pickle.loads(self.swap(VALUE, pickle.dumps(value)))
        return (other_value, value) if self.number else (value, other_value)


def run_in_halves(function: Callable[..., Value], *arguments: Any, **local_options: Any) -> Value:
    """Return `function(half, *arguments)` of half 0, which runs in this process.

    Half 1 runs in a copy of it. `local_options`: keyword arguments for half 0 alone. Raises what the function raises in
    either half, and LostHalfError.
    """
    context = get_context("fork")  # a new process would first have to import, and to take over, what this one has
    pipe, other_pipe = context.Pipe()
    memory = mmap(-1, SHARED_BYTES)
    process = context.Process(target=_run_other, args=(pipe, other_pipe, memory, function, arguments), daemon=True)
    process.start()
    other_pipe.close()
    try:
        return function(Half(0, _channel(0, pipe, memory)), *arguments, **local_options)
    except LostHalfError:
        process.join()
        raise LostHalfError(
            f"the process of one half of the run ended with exit code {process.exitcode}: "
            "nothing of this run is kept. Cure: free memory, or leave --halves out"
        ) from None
    finally:
        pipe.close()
        process.kill()
        process.join()


def _run_other(
    first_pipe: Connection,
    pipe: Connection,
    memory: mmap,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """Run half 1 in a process of its own, which ends with half 0."""
    first_pipe.close()  # else the end of half 0 would not be seen
    # A terminal's signals go to both processes; half 0 ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    channel = _channel(1, pipe, memory)
    half = Half(1, channel)
    # Half 0 ends this process once it has read everything; its own end is seen as that of the pipe.
    with suppress(LostHalfError, EOFError, OSError):
        try:
            function(half, *arguments)
            half.swap(LAST, b"")
        except LostHalfError:
            raise
        except Exception as error:
            channel.exchange(ERROR + pickle.dumps((portable(error), traceback.format_exc())))
    os._exit(0)
