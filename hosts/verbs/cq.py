"""Completion queues, their entries, and completion channels."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.enums import EventType, WcFlags, WcOpcode, WcStatus
from mrc_testbed.hosts.verbs.errors import VerbsError

NO_FLAGS = WcFlags(0)
MAX_CQE = 1 << 20
"""Entries that a queue may be asked for."""


@dataclass(slots=True)
class WorkCompletion:
    """One entry of a completion queue (`ibv_wc`)."""

    wr_id: int
    """Number that the application gave the request."""
    status: WcStatus
    opcode: WcOpcode
    """Valid in failed ones too."""
    qp_num: int
    byte_len: int = 0
    """Bytes written by the request, or by the peer's WriteIMM."""
    imm_data: int | None = None
    """Immediate, 32 bits, of a WriteIMM received; None in all other entries."""
    wc_flags: WcFlags = NO_FLAGS
    detail: str = ""
    """Words about a failure; empty for a success."""
    at: float = 0.0
    """Time of the driver's clock, seconds."""

    @property
    def ok(self) -> bool:
        return self.status is WcStatus.IBV_WC_SUCCESS


class CompletionChannel:
    """Channel of events of armed CQs; `fileno()` is readable while an event waits (Linux eventfd).

    Events come while the device is being worked on: in a waiting call, in `Device.process`, or by its own thread.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._pending: deque[CompletionQueue] = deque()
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.users = 0
        """CQs that announce themselves here."""
        with context.lock:
            context.require_open()
            context.parts.append(self)

    def fileno(self) -> int:
        return self._eventfd

    def announce(self, cq: CompletionQueue) -> None:
        """Queue an armed CQ that has an entry (called by the CQ)."""
        self._pending.append(cq)
        os.eventfd_write(self._eventfd, 1)

    def get_event(self, timeout_s: float | None = None) -> CompletionQueue | None:
        """Return the next CQ that was armed and has an entry; None when `timeout_s` is over."""
        self._context.wait_for(lambda: bool(self._pending), timeout_s)
        return self.poll_event()

    def poll_event(self) -> CompletionQueue | None:
        """Return the next CQ that was announced; None when there is none by now."""
        with self._context.lock:
            if not self._pending:
                return None
            cq = self._pending.popleft()
            if not self._pending:
                os.eventfd_read(self._eventfd)
            return cq

    def destroy(self) -> None:
        """Destroy the channel; raises VerbsError (EBUSY) while a CQ uses it."""
        if self.users:
            raise VerbsError(f"the completion channel has {self.users} CQs: destroy these first", errno.EBUSY)
        with self._context.lock:
            if self in self._context.parts:
                self._context.parts.remove(self)
            self.close()

    def close(self) -> None:
        """Close the descriptor (called by the context when it ends)."""
        if self._eventfd >= 0:
            os.close(self._eventfd)
            self._eventfd = -1


class CompletionQueue:
    """Completion queue, made by `Device.create_cq`.

    Entries come in the order in which requests of one QP end.
    """

    def __init__(self, context: DeviceContext, cqe: int, cq_context: Any, channel: CompletionChannel | None) -> None:
        self._context = context
        self.cqe = cqe
        """Entries it can hold; one more is an overrun."""
        self.cq_context = cq_context
        self.channel = channel
        self.users = 0
        """QPs that complete here (a QP with one CQ for both directions counts twice)."""
        self.overrun = False
        self.destroyed = False
        self._entries: deque[WorkCompletion] = deque()
        self._armed = self._solicited_only = False
        if channel is not None:
            channel.users += 1
        context.parts.append(self)

    def belongs_to(self, context: DeviceContext) -> bool:
        """Whether a QP of that device may complete here."""
        return self._context is context and not self.destroyed

    def __len__(self) -> int:
        """Entries waiting to be polled."""
        return len(self._entries)

    def poll(self, num_entries: int = 16) -> list[WorkCompletion]:
        """Up to `num_entries` completions, oldest first; does not wait and does not work on the network.

        Raises VerbsError when the queue was overrun and what it held is polled: completions were lost.
        """
        with self._context.lock:
            entries = self._entries
            if not entries and self.overrun:
                raise VerbsError(
                    f"more completions than the {self.cqe} that the CQ holds: some were lost. Cure: "
                    "create_cq with the sum of the queue sizes of its QPs, or poll more often",
                    errno.ENOMEM,
                )
            return [entries.popleft() for _ in range(min(num_entries, len(entries)))]

    def wait(self, count: int = 1, timeout_s: float | None = None) -> list[WorkCompletion]:
        """Work on the device until `count` completions are there, and take them.

        Fewer when `timeout_s` is over.

        None waits without limit - in virtual time until nothing can happen any more.
        """
        self._context.wait_for(lambda: len(self._entries) >= count or self.overrun, timeout_s)
        return self.poll(count)

    def req_notify(self, solicited_only: bool = False) -> None:
        """Arm: announce the next completion at the channel (solicited ones and failures only, if so asked).

        As in ibverbs, poll once more after arming: what was there before is not announced.
        """
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel: create_cq(..., channel=device.create_comp_channel())")
        with self._context.lock:
            self._armed = True
            self._solicited_only = solicited_only

    def push(self, entries: Sequence[WorkCompletion], solicited: bool = False) -> None:
        """Add completions (called by the device, lock held)."""
        for entry in entries:
            if len(self._entries) >= self.cqe:
                if not self.overrun:
                    self.overrun = True
                    self._context.report_async(EventType.IBV_EVENT_CQ_ERR, self, f"more than {self.cqe} completions")
                continue
            self._entries.append(entry)
        is_due = not self._solicited_only or solicited or any(not e.ok for e in entries)
        if entries and self._armed and is_due and self.channel is not None:
            self._armed = False
            self.channel.announce(self)

    def forget(self, qp_num: int) -> None:
        """Drop the completions of a QP that was reset (called by the QP, lock held)."""
        self._entries = deque(e for e in self._entries if e.qp_num != qp_num)

    def destroy(self) -> None:
        """Destroy the CQ; raises VerbsError (EBUSY) while a QP uses it."""
        with self._context.lock:
            if self.users:
                raise VerbsError("QPs still complete into this CQ: destroy these first", errno.EBUSY)
            if not self.destroyed:
                self._context.parts.remove(self)
                self.close()

    def close(self) -> None:
        """End the queue whoever uses it (called by the context when it ends)."""
        self.destroyed = True
        if self.channel is not None:
            self.channel.users -= 1
