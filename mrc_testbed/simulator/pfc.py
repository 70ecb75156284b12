"""Priority flow control of lossless Ethernet (IEEE 802.1Qbb), for the RoCEv2 baseline; MRC has it off.

A switch counts, for each of its links, the data bytes that came in by it and still wait at one of its ports. Beyond
XOFF it sends a pause frame back on that link, for the data priority alone: the sender finishes its packet and holds
data back, while control goes on. At XON it lets it go on. What arrives in between has to fit into the headroom; only
what does not is dropped (`headroom_full`). So a full last hop stops its T1s, those all T0s, those their hosts: a victim
stands in the same queue as the incast, which is what this is here to show.

Design notes.

1. Ports without PFC are of other classes and pay nothing. These two hand all to their PriorityPause.
2. A pause frame is a packet of the reverse direction: it waits for the one being sent, takes its time on the wire,
   shows in traces, and loss takes it too. A pause runs out by itself after its quanta (of 512 bit times); who still
   needs it says so again after half of that.
3. No deadlock can come about: up and down again has no cycle of ports. A storm is a pause that lasts (`storm_after_s`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from mrc_testbed.hosts.engine.wire.packets import ECN_NOT_ECT, PacketRecord
from mrc_testbed.simulator.events import NodeEvents
from mrc_testbed.simulator.frames import NO_PORT, Frame, PacketHook
from mrc_testbed.simulator.ports import EgressPort, NicPort, drain
from mrc_testbed.simulator.profiles import Line, PfcProfile

DATA_PRIORITY = 3
"""The lossless priority; control has a priority that is never paused."""
PAUSE_BYTES = 60
"""The shortest Ethernet frame without FCS."""
QUANTUM_BITS = 512
QUANTA_MAX = 0xFFFF
PAUSE_ADDRESS = bytes.fromhex("0180c2000001")
MAC_CONTROL, PFC_OPCODE = 0x8808, 0x0101


@dataclass(slots=True)
class PauseFrame(PacketRecord):
    """Pause of the data priority for `quanta` times 512 bits; 0 ends the pause.

    Fields of MRC packets mean nothing in it.
    """

    quanta: int

    def encode(self, source: bytes) -> bytes:
        """Return the frame's bytes without FCS, from a port's address (6 bytes)."""
        times = [self.quanta if priority == DATA_PRIORITY else 0 for priority in range(8)]
        head = PAUSE_ADDRESS + source + MAC_CONTROL.to_bytes(2, "big") + PFC_OPCODE.to_bytes(2, "big")
        body = (1 << DATA_PRIORITY).to_bytes(2, "big") + b"".join(time.to_bytes(2, "big") for time in times)
        return (head + body).ljust(PAUSE_BYTES, b"\0")


def pause_for(quanta: int, plane: int = 0) -> PauseFrame:
    """Return a pause frame for a port of a plane."""
    return PauseFrame(0, 0, plane, 0, ECN_NOT_ECT, quanta)


class PriorityPause:
    """One direction of a link with PFC: the sender's queues, and its bytes that wait at the far end."""

    __slots__ = (
        "_asked",
        "_asked_at",
        "_node_events",
        "_out",
        "_paused_since",
        "_paused_until",
        "_pfc",
        "_ports",
        "frames",
        "held_bytes",
        "held_peak",
        "longest_s",
        "paused_s",
        "pauses",
        "port",
        "reverse",
        "storms",
    )

    def __init__(self, port: EgressPort, node_events: NodeEvents) -> None:
        self.port = port
        self._node_events = node_events
        self.reverse: PriorityPause | None = None
        """Other direction of the link, whose sender is the receiver of this one. Set by the fabric."""
        self._pfc: PfcProfile | None = None
        """Thresholds of the switch at the far end; None: a host, which accepts everything."""
        self._ports: Sequence[EgressPort] = ()
        self.held_bytes = self.held_peak = 0
        """Data bytes of this sender that wait at the far end, now and at most."""
        self._asked = False
        """Whether the far end has asked for a pause that still lasts."""
        self._asked_at = -inf
        self._out: deque[Frame] = deque()
        """Pause frames that wait to be sent from this port."""
        self._paused_until = -inf
        """End of the present pause of this sender; -inf: not paused."""
        self._paused_since: float | None = None
        """Start of the present pause; None: not paused."""
        self.pauses = self.frames = self.storms = 0
        """Counts of pauses begun here, of pause frames sent from here, and of pauses that lasted.

        Pause frames include those that end a pause or renew it.
        """
        self.paused_s = self.longest_s = 0.0
        """Time of all pauses that ended, and of the longest one."""

    def set_far_end(self, pfc: PfcProfile | None, ports: Sequence[EgressPort]) -> None:
        """Set thresholds of the switch at the far end; None: a host is there. `ports`: all of the fabric."""
        self._pfc, self._ports = pfc, ports

    def _origin(self, frame: Frame) -> PriorityPause | None:
        """Return the PFC of the port by which a packet came; None: the packet was made at this node."""
        return None if frame.port == NO_PORT else pause_of(self._ports[frame.port])

    # ---- the sender's side ------------------------------------------------------------------------------

    def send(self, frame: Frame, now: float) -> None:
        """Send, queue or drop a packet: EgressPort.send of such a port."""
        port = self.port
        if not port.is_up:
            port._drop(frame, "port_down", now)
            return
        free = port.busy_until <= now and not port._draining
        if frame.control:
            if free:
                port._launch(frame, now)
                return
            depth = port.control_bytes + frame.size
            if depth > port._limits[2] or port._control.count >= port._limits[3]:
                port._drop(frame, "control_queue_full", now)
                return
            port._control.put(frame)
            port.waiting += 1
            port.control_bytes = depth
        else:
            # A paused sender queues even on a free port; behind queued packets the order has to be kept.
            if free and self._paused_since is None and not port._data.count:
                port._launch(frame, now)
                return
            # Bytes that wait here count against the link by which the packet came, not against this port.
            origin = self._origin(frame)
            if origin is not None and not origin._hold(frame.size, now):
                port._drop(frame, "headroom_full", now)
                return
            port._data.put(frame)
            port.waiting += 1
            port.data_bytes += frame.size
            port.peak_bytes = max(port.peak_bytes, port.data_bytes)
        self._go_on(now)

    def _ready(self) -> bool:
        """Whether something may be sent."""
        port = self.port
        return bool(self._out or port._control.count or (port._data.count and self._paused_since is None))

    def _go_on(self, now: float) -> None:
        """Schedule the next packet for when the port is free, if one may be sent."""
        port = self.port
        if not port._draining and self._ready():
            port._draining = True
            self._node_events(max(now, port.busy_until), drain, port)

    def drain(self, now: float) -> None:
        """Send the next packet: pause frames, control, data that is not paused."""
        port = self.port
        port._draining = False
        if not port.is_up:
            return
        if self._out:
            self._launch_pause(self._out.popleft(), now)
        elif port._control.count:
            frame = port._control.take()
            port.waiting -= 1
            port.control_bytes -= frame.size
            port._launch(frame, now)
        elif port._data.count and self._paused_since is None:
            frame = port._data.take()
            port.waiting -= 1
            depth = port.data_bytes = port.data_bytes - frame.size
            if depth > port._ecn_min and frame.ect:
                low, high = port._ecn_min, port._ecn_max
                if depth >= high or port.rng.random() * (high - low) < depth - low:
                    port._mark(frame, now)
            origin = self._origin(frame)
            port._launch(frame, now)
            if origin is not None:
                origin._let_go(frame.size, now)
        self._go_on(now)

    def on_pause_frame(self, frame: Frame, now: float) -> None:
        """Start, renew or end a pause by a pause frame of the far end."""
        packet = frame.packet
        if not self.port.is_up or frame.corrupt or not isinstance(packet, PauseFrame):
            return
        quanta = packet.quanta
        if not quanta:
            self._resume(now)
            return
        self._paused_until = now + quanta * QUANTUM_BITS / self.port.line.rate_bps
        self._node_events(self._paused_until, self._run_out, None)
        if self._paused_since is None:
            self._paused_since = now
            self.pauses += 1
            if self._pfc is not None:
                self._node_events(now + self._pfc.storm_after_s, self._watch, now)

    def _run_out(self, _: object, now: float) -> None:
        if self._paused_until <= now:
            self._resume(now)

    def _watch(self, pause_start: float, _: float) -> None:
        """Count a storm when the pause that began at `pause_start` still lasts."""
        if self._paused_since == pause_start:
            self.storms += 1

    def _resume(self, now: float) -> None:
        if self._paused_since is None:
            return
        duration = now - self._paused_since
        self._paused_since, self._paused_until = None, -inf
        self.paused_s += duration
        self.longest_s = max(self.longest_s, duration)
        self._go_on(now)

    # ---- the receiver's side, which is a switch ------------------------------------------------------------

    def _hold(self, size: int, now: float) -> bool:
        """Count a packet that waits at the far end; False when neither buffer nor headroom has room for it."""
        pfc = self._pfc
        if pfc is None:
            return True
        if self.held_bytes + size > pfc.xoff_bytes + pfc.headroom_bytes:
            return False
        self.held_bytes += size
        self.held_peak = max(self.held_peak, self.held_bytes)
        if self.held_bytes > pfc.xoff_bytes and not self._asked:
            self._asked = True
            self._request_pause(now)
        return True

    def _let_go(self, size: int, now: float) -> None:
        """Release a packet's bytes at the far end, and end the pause at XON."""
        pfc = self._pfc
        if pfc is None:
            return
        self.held_bytes -= size
        if self._asked and self.held_bytes <= pfc.xon_bytes:
            self._asked = False
            self._send_pause(0, now)

    def _request_pause(self, now: float) -> None:
        """Ask for the longest pause, and again when half of it is over."""
        reverse = self.reverse
        assert reverse is not None
        self._asked_at = now
        self._send_pause(QUANTA_MAX, now)
        renew = now + QUANTA_MAX * QUANTUM_BITS / self.port.line.rate_bps / 2
        reverse._node_events(renew, self._renew, now)  # at the far end, which asks

    def _renew(self, asked_at: float, now: float) -> None:
        if self._asked and self._asked_at == asked_at:
            self._request_pause(now)

    def _send_pause(self, quanta: int, now: float) -> None:
        """Send a pause frame from the far end to here."""
        reverse = self.reverse
        if reverse is None or not reverse.port.is_up:
            return
        port = reverse.port
        packet = pause_for(quanta, port.plane)
        frame = Frame(packet, PAUSE_BYTES, port.node, port.neighbour, -1, -1, port.plane, True, False)
        reverse.frames += 1
        if port.busy_until <= now and not port._draining:
            reverse._launch_pause(frame, now)
        else:
            reverse._out.append(frame)
            reverse._go_on(now)

    def _launch_pause(self, frame: Frame, now: float) -> None:
        """Put a pause frame on the wire: at the other end the port takes it, not the switch."""
        port, reverse = self.port, self.reverse
        assert reverse is not None
        arrive, port.arrive = port.arrive, reverse.on_pause_frame
        port._launch(frame, now)
        port.arrive = arrive

    # ---- link state -------------------------------------------------------------------------------------

    def go_down(self, now: float) -> None:
        """Forget all pauses; what waits here is about to be dropped."""
        for frame in self.port._data.frames():
            origin = self._origin(frame)
            if origin is not None:
                origin._let_go(frame.size, now)
        self._out.clear()
        self._resume(now)

    def counters(self) -> dict[str, Any]:
        """Return the counters by name."""
        return {
            "pauses": self.pauses,
            "pause_frames": self.frames,
            "paused_s": round(self.paused_s, 9),
            "longest_pause_s": round(self.longest_s, 9),
            "storms": self.storms,
            "held_peak_bytes": self.held_peak,
        }


class PfcPort(EgressPort):
    """A switch's port with PFC."""

    __slots__ = ("pause",)

    def __init__(
        self,
        name: str,
        node: str,
        neighbour: str,
        plane: int,
        line: Line,
        note_delay: Callable[[float], None],
        node_events: NodeEvents,
        rng_seed: str,
        dscp: tuple[int, int],
        *,
        last_hop: bool = False,
        observer: PacketHook | None = None,
    ) -> None:
        super().__init__(
            name,
            node,
            neighbour,
            plane,
            line,
            note_delay,
            node_events,
            rng_seed,
            dscp,
            last_hop=last_hop,
            observer=observer,
        )
        self._make_queues()
        self.pause = PriorityPause(self, node_events)

    def send(self, frame: Frame, now: float) -> None:
        self.pause.send(frame, now)

    def _drain(self, now: float) -> None:
        self.pause.drain(now)

    def go_down(self, now: float) -> None:
        self.pause.go_down(now)
        super().go_down(now)

    def counters(self) -> dict[str, Any]:
        return {**super().counters(), **self.pause.counters()}


class PfcNicPort(NicPort):
    """Host port that switches may pause; the host itself pauses no sender."""

    __slots__ = ("pause",)

    def __init__(
        self,
        name: str,
        node: str,
        neighbour: str,
        plane: int,
        line: Line,
        note_delay: Callable[[float], None],
        node_events: NodeEvents,
        rng_seed: str,
        dscp: tuple[int, int],
        *,
        ring_packets: int,
        on_room: Callable[[float], None],
        observer: PacketHook | None = None,
    ) -> None:
        super().__init__(
            name,
            node,
            neighbour,
            plane,
            line,
            note_delay,
            node_events,
            rng_seed,
            dscp,
            ring_packets=ring_packets,
            on_room=on_room,
            observer=observer,
        )
        self._make_queues()
        self.pause = PriorityPause(self, node_events)

    def send(self, frame: Frame, now: float) -> None:
        self.pause.send(frame, now)

    def _drain(self, now: float) -> None:
        self.pause.drain(now)
        if self.starved and self.waiting <= self._low_water:
            self.starved = False
            self.on_room(now)

    def go_down(self, now: float) -> None:
        self.pause.go_down(now)
        super().go_down(now)

    def counters(self) -> dict[str, Any]:
        return {**super().counters(), **self.pause.counters()}


def pause_of(port: EgressPort) -> PriorityPause | None:
    """Return the PFC of a port; None for a port without PFC."""
    return port.pause if isinstance(port, (PfcPort, PfcNicPort)) else None


def pair(
    a: EgressPort, b: EgressPort, pfc: PfcProfile, ports: Sequence[EgressPort], *, switch_at_a: bool, switch_at_b: bool
) -> None:
    """Connect the two directions of a link; a host at an end pauses no sender.

    `ports`: all of the fabric.
    """
    a_to_b, b_to_a = pause_of(a), pause_of(b)
    assert a_to_b is not None and b_to_a is not None
    a_to_b.reverse, b_to_a.reverse = b_to_a, a_to_b
    a_to_b.set_far_end(pfc if switch_at_b else None, ports)
    b_to_a.set_far_end(pfc if switch_at_a else None, ports)
