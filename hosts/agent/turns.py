"""Turn of a host's NIC and engine: receive, timers, send (agent.py explains the order).

Compiled where the engine is: at a paced rate a turn has four packets, and each pays for this code.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Event
from mrc_testbed.hosts.nic.base import Nic

RECEIVE_BATCH: Final = 8
"""Frames read from one port before the next: ports read one after the other look reordered."""
TRANSMIT_BATCH: Final = 64
ROUNDS: Final = 64
"""Receive-transmit rounds before the management socket gets its turn."""
PATIENCE: Final = 4
"""Turns in which receiving never came to an end, after which timers run all the same."""
RETRY_S: Final = 0.001
"""Delay of the next attempt when the kernel took no more frames."""

_now: Final = time.monotonic


class Turns:
    """Turns of one engine.

    `on_events` is called with its events, in order; `before_packets` when frames have been read and before the engine
    has them or sends.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        on_events: Callable[[list[Event]], object],
        before_packets: Callable[[], object] | None = None,
    ) -> None:
        self._endpoint, self._on_events, self._before_packets = endpoint, on_events, before_packets
        self._undrained_turns = 0
        self._engine_due = 0.0
        """The engine's next deadline when the last turn ended, for the begin of the next one; 0 = not asked."""

    def turn(self, nic: Nic) -> float | None:
        """Do what NIC and engine have to do now; return when to be called next (turn_selector.py)."""
        if self._network(nic):
            return 0.0
        engine_due = self._engine_due = self._endpoint.next_deadline(_now())
        due = None if engine_due == NEVER else engine_due
        frame = nic.next_at()
        if frame is not None and (due is None or frame < due):
            due = frame
        if nic.backlog:
            retry_time = _now() + RETRY_S
            if due is None or retry_time < due:
                due = retry_time
        return due

    def _network(self, nic: Nic) -> bool:
        """Receive, run timers, send; return whether more remains, or events went to other code."""
        endpoint = self._endpoint
        has_events = drained = False
        received = sent = 0
        nic.flush()
        for _ in range(ROUNDS):
            time_before = _now()
            arrivals = nic.receive(RECEIVE_BATCH)
            if self._before_packets is not None:
                self._before_packets()
            now = _now()  # not before: what came while we were held up is late
            received = 0
            for plane, peer, packet in arrivals:
                endpoint.receive(packet, plane, peer, now)
                received += 1
            if received < RECEIVE_BATCH:  # so no port had more
                drained = True
                self._on_timer(time_before)  # not now: an answer may have come since
            sent = 0
            packets = endpoint.transmit(_now(), TRANSMIT_BATCH, nic.room(), nic.control_room())
            if packets:
                nic.send_many(packets)
                sent = len(packets)
            nic.flush()
            events = endpoint.events()
            if events:
                has_events = True
                self._on_events(events)
            elif received < RECEIVE_BATCH and sent < TRANSMIT_BATCH:
                received = sent = 0  # all that could be done has been; what comes now wakes us
                break
        self._engine_due = 0.0
        self._undrained_turns = 0 if drained else self._undrained_turns + 1
        if self._undrained_turns >= PATIENCE:
            self._undrained_turns = 0
            self._on_timer(_now())
        return has_events or received > 0 or sent > 0

    def _on_timer(self, now: float) -> None:
        """Run the timers that are due.

        The first time after a wait the engine need not be asked: what was not due when the last turn ended is not due
        now, and what was set since is checked when this one ends.
        """
        engine_due, self._engine_due = self._engine_due, 0.0
        if engine_due <= now and self._endpoint.next_deadline(now) <= now:
            self._endpoint.on_timer(now)
