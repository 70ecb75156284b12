"""Messages over queue pairs: what a flow posts and checks. No clock, no socket.

Live agents (hosts/agent/services/traffic.py) and the virtual fabric (experiments) drive the same objects: they give a
clock, a way to be called at a time, and the QPs; they pass on completions and received immediates.

    sender = FlowSender(qps, shape, remote, clock, call_at);  sender.start();  sender.completed(completion)
    sink = FlowSink(view, shape);                             sink.on_message(imm)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion, Status
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes


@dataclass(frozen=True, slots=True)
class StreamShape:
    """Message stream of a flow: `messages` (None: until stopped) of `message_bytes`.

    `depth`: messages posted and not completed. `rate_bps`: offered load, None = no limit. `name` and `seed` determine
    the bytes.
    """

    name: str
    message_bytes: int
    messages: int | None
    depth: int
    rate_bps: float | None = None
    seed: int = 0

    @property
    def content(self) -> MessageBytes:
        """Bytes of all messages."""
        return MessageBytes(f"{self.seed}/{self.name}", self.message_bytes)


class SimulatedReceiver(Protocol):
    """Receiver's memory that stores no bytes: it is told what to expect, and sees whether that came."""

    def expect(self, index: int, number: int) -> None:
        """Expect message `number` in a slot."""

    def finish(self, index: int) -> bool:
        """Return whether the message of a slot is complete and intact."""


class FlowSender:
    """Sender of messages over its QPs in turn, into the receiver's `depth` slots.

    With `imm`, message i carries i. `receiver`: of a simulation, which checks each message when it completes.
    """

    def __init__(
        self,
        qps: Sequence[Any],
        shape: StreamShape,
        remote: tuple[int, int],
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Any],
        *,
        imm: bool = False,
        latencies: bool = False,
        receiver: SimulatedReceiver | None = None,
    ) -> None:
        self.qps, self.shape, self._clock, self._call_at = list(qps), shape, clock, call_at
        self._va, self._rkey = remote
        self._imm, self._receiver = imm, receiver
        self._content = shape.content
        self._waiting: dict[int, deque[tuple[int, float]]] = {qp.qpn: deque() for qp in self.qps}
        """(slot, posted at) of each QPN, oldest first."""
        self._free_slots = deque(range(shape.depth))
        self._alive_qpns = {qp.qpn for qp in self.qps}
        self._stopped = self._timed = False
        self._began = 0.0
        self.posted = self.completed_count = self.failed = self.damaged_count = 0
        self.finished_at: float | None = None
        """Clock of the last good completion."""
        self.latencies_s: list[float] | None = [] if latencies else None

    def start(self) -> None:
        """Post the first messages; the offered rate counts from now."""
        self._began = self._clock()
        self._post()

    def stop(self) -> None:
        """Post no more; what is posted still completes."""
        self._stopped = True

    def abandon(self) -> None:
        """End with what is posted failed: the process of the host has died, and no completion comes."""
        for messages in self._waiting.values():
            self.failed += len(messages)
            messages.clear()
        self._alive_qpns.clear()

    @property
    def is_over(self) -> bool:
        """Whether a started sender is finished: all is sent, it was stopped, or its QPs are dead."""
        posts_no_more = self._stopped or self.posted == self.shape.messages or not self._alive_qpns
        return posts_no_more and not any(self._waiting.values())

    def _post(self) -> None:
        shape = self.shape
        while self._free_slots and self._alive_qpns and not self._stopped and self.posted != shape.messages:
            now = self._clock()
            if shape.rate_bps is not None:
                due = self._began + self.posted * shape.message_bytes * 8 / shape.rate_bps
                if due > now + 1e-12:
                    self._schedule(due)
                    return
            alive_qps = [qp for qp in self.qps if qp.qpn in self._alive_qpns]
            qp = min(alive_qps, key=lambda qp: (len(self._waiting[qp.qpn]), qp.qpn))
            slot = self._free_slots.popleft()
            options = {"imm": self.posted & 0xFFFFFFFF} if self._imm else {}
            try:
                content, number = self._content, self.posted
                data: Any = content.part(number)
                if self._receiver is not None:
                    data = content.text_part(number)
                    self._receiver.expect(slot, number)
                qp.post_write(data, self._va + slot * shape.message_bytes, self._rkey, now=now, **options)
            except LocalError:  # its peer takes no more WriteIMM now: the next completion goes on
                self._free_slots.appendleft(slot)
                if not any(self._waiting.values()):
                    self._alive_qpns.discard(qp.qpn)  # it failed
                    continue
                return
            self._waiting[qp.qpn].append((slot, now))
            self.posted += 1

    def _schedule(self, due: float) -> None:
        if not self._timed:
            self._timed = True
            self._call_at(due, self._due)

    def _due(self) -> None:
        self._timed = False
        self._post()

    def completed(self, completion: Completion) -> None:
        """Take the completion of a work request of one of our QPs."""
        slot, posted_at = self._waiting[completion.qpn].popleft()
        if completion.status is not Status.SUCCESS:
            self.failed += 1
            self._alive_qpns.discard(completion.qpn)
        else:
            if self._receiver is not None and not self._receiver.finish(slot):
                self.damaged_count += 1
            self.completed_count += 1
            self.finished_at = completion.at
            if self.latencies_s is not None:
                self.latencies_s.append(completion.at - posted_at)
        self._free_slots.append(slot)
        self._post()


class FlowSink:
    """The receiver's memory of a flow: tells whether a message is what was sent."""

    def __init__(self, view: memoryview, shape: StreamShape) -> None:
        self._view, self.shape = view, shape
        self._content = shape.content
        self.checked = self.damaged_count = 0

    def _slot(self, slot: int) -> memoryview:
        size = self.shape.message_bytes
        return self._view[slot * size : (slot + 1) * size]

    def on_message(self, imm: int) -> None:
        """Take a message with that immediate, which is in one of the slots."""
        self.checked += 1
        if not any(self._content.matches(imm, self._slot(slot)) for slot in range(self.shape.depth)):
            self.damaged_count += 1
