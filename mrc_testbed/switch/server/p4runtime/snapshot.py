"""Contents of a switch for P4Runtime clients: a device with program, digests and idle timeouts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from finsy.proto import p4r

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.server.p4runtime.digests import Digests
from mrc_testbed.switch.server.p4runtime.pipeline import Pipeline
from mrc_testbed.switch.server.p4runtime.translate import table_entry_out

SCAN_MIN_S = 0.01
"""Shortest interval of the search for idle entries, seconds; a shorter idle timeout is reported late."""
SCAN_MAX_S = 3600.0

Send = Callable[[p4r.StreamMessageResponse, int], bool]
"""Sender of a message about the object of this P4Info id to the primaries it concerns.

Returns whether there was any.
"""


class Contents:
    """Contents of one device of a switch. Used on the asyncio loop only.

    A switch has one that runs, and after VERIFY_AND_SAVE one that waits for COMMIT, on a device of its own which gets
    no packets: until then writes go there, as the specification demands.
    """

    def __init__(self, device: P4Device, pipeline: Pipeline, send: Send) -> None:
        """`device` has been loaded with the program of `pipeline`."""
        self.device = device
        self.pipeline = pipeline
        self._send = send
        info, type_bits = pipeline.program.p4info, device.schema.type_bits
        self.digests = Digests(info, self._send_digests, asyncio.get_running_loop(), type_bits)
        self._times_out = any(table.idle_timeout for table in device.schema.tables.values())
        self._timer: asyncio.TimerHandle | None = None

    def _send_digests(self, message: p4r.StreamMessageResponse) -> bool:
        return self._send(message, message.digest.digest_id)

    def take_digests(self) -> None:
        """Hands on what the program sent by digest()."""
        if self.device.digests_waiting:
            self.digests.feed(self.device.digests())

    def stop(self) -> None:
        """No more idle timeouts: the device goes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch_idle(self) -> None:
        """Report idle entries, and set a timer for the next; call it when entries have changed."""
        self.stop()
        if not self._times_out:
            return
        entries, wait_s = self.device.take_idle()
        by_table: dict[int, list[p4r.TableEntry]] = {}
        for entry in entries:
            by_table.setdefault(entry.table_id, []).append(table_entry_out(entry))
        for table_id, sent in by_table.items():
            note = p4r.IdleTimeoutNotification(table_entry=sent, timestamp=time.time_ns())
            self._send(p4r.StreamMessageResponse(idle_timeout_notification=note), table_id)
        if wait_s is not None:
            wait_s = min(max(wait_s, SCAN_MIN_S), SCAN_MAX_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.watch_idle)
