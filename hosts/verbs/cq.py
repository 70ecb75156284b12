"""Completion queues, their entries, and completion channels."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.verbs.checks import number
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
    vendor_err: int = 0
    """Cause of a failure as this device numbers it (VENDOR_ERRORS in hosts/verbs/qp.py); 0 for a success."""
    src_qp: int = 0
    """QP that sent the peer's WriteIMM; 0 in all other entries."""
    detail: str = ""
    """Words about a failure; empty for a success."""
    at: float = 0.0
    """Time of the driver's clock, seconds."""

    @property
    def ok(self) -> bool:
        return self.status is WcStatus.IBV_WC_SUCCESS


class CompletionChannel:
    """Channel of events of armed queues; `fileno()` is readable while an event waits (Linux eventfd).

    Events come while the device is being worked on: in a waiting call, in `Device.process`, or by its own thread.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._pending: deque[NotifyingQueue] = deque()
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.users = 0
        """Queues that announce themselves here."""
        with context.lock:
            context.require_open()
            context.parts.append(self)

    def belongs_to(self, context: DeviceContext) -> bool:
        """Whether a queue of that context may use it."""
        return self._context is context and self._eventfd >= 0

    def fileno(self) -> int:
        return self._eventfd

    def announce(self, queue: NotifyingQueue) -> None:
        """Take an armed queue that has an entry (called by the queue)."""
        self._pending.append(queue)
        os.eventfd_write(self._eventfd, 1)

    def forget(self, queue: NotifyingQueue) -> None:
        """Drop the events of a queue that is destroyed (called by the queue)."""
        if queue in self._pending:
            self._pending = deque(pending for pending in self._pending if pending is not queue)
            self._drain()

    def _drain(self) -> None:
        """Make the descriptor unreadable when no event waits."""
        if not self._pending:
            os.eventfd_read(self._eventfd)

    def get_event(self, timeout_s: float | None = None) -> NotifyingQueue | None:
        """Return the next queue that was armed and has an entry; None when `timeout_s` is over.

        The caller acknowledges it by `ack_events` of the queue, before that can be destroyed.
        """
        self._context.wait_for(lambda: bool(self._pending), timeout_s)
        return self.poll_event()

    def poll_event(self) -> NotifyingQueue | None:
        """Return the next queue that was announced; None when there is none by now."""
        with self._context.lock:
            if not self._pending:
                return None
            queue = self._pending.popleft()
            queue.events_to_ack += 1
            self._drain()
            return queue

    def destroy(self) -> None:
        """Destroy the channel; raises VerbsError (EBUSY) while a queue uses it. Idempotent."""
        with self._context.lock:
            if self.users:
                raise VerbsError(f"the completion channel has {self.users} CQs: destroy these first", errno.EBUSY)
            self.close()

    def close(self) -> None:
        """Close the descriptor (called by the context when it ends)."""
        if self._eventfd >= 0:
            self._context.parts.remove(self)
            os.close(self._eventfd)
            self._eventfd = -1


class NotifyingQueue:
    """Queue that can be armed to announce itself at a channel: base of the CQs of QPs and of EV events."""

    def __init__(self, context: DeviceContext, cqe: int, cq_context: Any, channel: CompletionChannel | None) -> None:
        if channel is not None and not channel.belongs_to(context):
            raise VerbsError("create_cq: the completion channel is not one of this context of the device")
        self._context = context
        self.cqe = cqe
        """Entries it can hold."""
        self.cq_context = cq_context
        self.channel = channel
        self.events_to_ack = 0
        """Events that the channel gave and nobody has acknowledged."""
        self.destroyed = False
        self._armed = self._solicited_only = False
        context.require_open()
        if channel is not None:
            channel.users += 1
        context.parts.append(self)

    def req_notify(self, solicited_only: bool = False) -> None:
        """Arm: announce the next entry at the channel (solicited ones and failures only, if so asked).

        As in ibverbs, poll once more after arming: what was there before is not announced.
        """
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel: create_cq(..., channel=device.create_comp_channel())")
        with self._context.lock:
            self._armed = True
            self._solicited_only = solicited_only

    def _announce(self, solicited: bool) -> None:
        """Announce a new entry, if that was asked for (lock held)."""
        if self._armed and self.channel is not None and (solicited or not self._solicited_only):
            self._armed = False
            self.channel.announce(self)

    def ack_events(self, count: int = 1) -> None:
        """Acknowledge events that `CompletionChannel.get_event` gave (`mrc_ack_cq_events`)."""
        with self._context.lock:
            number("ack_events: count", count, 0, self.events_to_ack)
            self.events_to_ack -= count

    def destroy(self) -> None:
        """Destroy the queue; raises VerbsError (EBUSY) while a QP uses it or an event is not acknowledged.

        In C the call waits for the acknowledgment. Here it would wait for its own caller. Idempotent.
        """
        with self._context.lock:
            self._check_unused()
            if self.events_to_ack:
                raise VerbsError(f"{self.events_to_ack} events of this CQ are not acknowledged (ack)", errno.EBUSY)
            self.close()

    def _check_unused(self) -> None:
        """Raise VerbsError (EBUSY) while something fills the queue."""

    def close(self) -> None:
        """End the queue whoever uses it (called by the context when it ends)."""
        if self.destroyed:
            return
        self.destroyed = True
        self._context.parts.remove(self)
        self._context.forget(self)
        if self.channel is not None:
            self.channel.forget(self)
            self.channel.users -= 1


class CompletionQueue(NotifyingQueue):
    """Completion queue, made by `Device.create_cq`; one entry more than `cqe` is an overrun.

    Entries come in the order in which requests of one QP end.
    """

    def __init__(self, context: DeviceContext, cqe: int, cq_context: Any, channel: CompletionChannel | None) -> None:
        super().__init__(context, cqe, cq_context, channel)
        self.users = 0
        """QPs that complete here (a QP with one CQ for both directions counts twice)."""
        self.overrun = False
        self._entries: deque[WorkCompletion] = deque()

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

    def push(self, entries: Sequence[WorkCompletion], solicited: bool = False) -> None:
        """Add completions (called by the device, lock held)."""
        for entry in entries:
            if len(self._entries) >= self.cqe:
                if not self.overrun:
                    self.overrun = True
                    self._context.report_async(EventType.IBV_EVENT_CQ_ERR, self, f"more than {self.cqe} completions")
                continue
            self._entries.append(entry)
        if entries:
            self._announce(solicited or any(not entry.ok for entry in entries))

    def forget(self, qp_num: int) -> None:
        """Drop the completions of a QP that was reset (called by the QP, lock held)."""
        self._entries = deque(e for e in self._entries if e.qp_num != qp_num)

    def _check_unused(self) -> None:
        if self.users:
            raise VerbsError("QPs still complete into this CQ: destroy these first", errno.EBUSY)
