"""Limited resources of a responder: bits that mark arrivals, slots for pending work, buffer (§6.2).

Real NICs refuse packets for want of these; software has plenty of them. The limits are off by default and exist so
that the other end's reactions can be seen and tested (§2.10, §5.14). The buffer is a leaky bucket: accepted packets
fill it, it drains at a rate, and how full it is sets the penalty of the receiver's flow control (§6.9).

None of them can refuse the packet that is next in order for ever, so a transfer always goes on.
"""

from __future__ import annotations

from typing import Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.packets import NackReason

PENALTY_MAX: Final = 127


class Resources:
    """Limited resources of one QP; `fill_bytes` is how much of the buffer is in use."""

    __slots__ = ("_bits", "_buffer", "_drain", "_drained_at", "_flow_control", "_slots", "_start", "fill_bytes")

    def __init__(self, config: Config) -> None:
        limits = config.resources
        self._bits = limits.bitmap_packets or 1 << 30
        self._slots = limits.work_slots or 1 << 30
        self._buffer = limits.rx_buffer_bytes
        self._drain = limits.rx_drain_bytes_per_s
        self._flow_control = limits.flow_control
        self._start = limits.flow_control_start
        self.fill_bytes = 0.0
        self._drained_at = 0.0

    @staticmethod
    def for_config(config: Config) -> Resources | None:
        """Return the resources of a configuration; None when nothing is limited, which saves the checks."""
        limits = config.resources
        return Resources(config) if limits.bitmap_packets or limits.work_slots or limits.rx_buffer_bytes else None

    def refuse(self, size: int, offset: int, waiting_count: int, is_end: bool, now: float) -> NackReason | None:
        """Return the reason to refuse a packet; None: accepted, and its bytes are in the buffer.

        `offset`: packets between it and the next one in order; `waiting_count`: pieces of work that wait; `is_end`:
        the packet would add one.
        """
        if offset >= self._bits:
            return NackReason.NO_BITMAP
        if is_end and offset and waiting_count >= self._slots:
            return NackReason.NO_RESOURCE
        if self._buffer:
            self.fill_bytes = max(0.0, self.fill_bytes - (now - self._drained_at) * self._drain)
            self._drained_at = now
            if self.fill_bytes and self.fill_bytes + size > self._buffer:
                return NackReason.NO_PKT_BUFFER
            self.fill_bytes += size
        return None

    def penalty(self) -> int:
        """rcv_cwnd_pen, 0..127: grows from `flow_control_start` of the buffer to all of it."""
        if not self._flow_control or not self._buffer:
            return 0
        excess = (self.fill_bytes / self._buffer - self._start) / (1.0 - self._start)
        return max(0, min(PENALTY_MAX, int(excess * PENALTY_MAX)))
