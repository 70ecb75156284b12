"""Host of a virtual fabric: one unchanged engine Endpoint behind virtual NIC ports.

The event queue drives it.

The rules of Endpoint are kept here: packets are handed in before the clock when both wait at one instant, `transmit`
and `events` are drained after each call, `room` says per plane how many packets a port takes now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final, Protocol

from mrc_testbed.hosts.engine.connection import TxCredit
from mrc_testbed.hosts.engine.deadlines import NEVER
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Completion, Event
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcWrite
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    EndpointResponse,
    Nack,
    PacketRecord,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.simulator.events import EventQueue, Handler, NodeEvents
from mrc_testbed.simulator.frames import Frame, tally
from mrc_testbed.simulator.ports import NicPort
from mrc_testbed.simulator.profiles import HostProfile
from mrc_testbed.topologies.plan import Host

FOREVER_S: Final = 1e8
"""Seconds; longer than any run."""
BATCH: Final = 64
"""Packets that one transmit call may return."""
STUCK_AFTER: Final = 10_000
"""Calls at one instant after which an engine that still asks for more counts as stuck, a bug."""


class StuckError(Exception):
    """An engine asks to be called at the same instant for ever."""


INNER_BYTES: Final[dict[type[PacketRecord], int]] = {
    RcAck: 68, Cnp: 80,
    Sack: 100, Nack: 84, TransportAck: 68, ReliabilityProbe: 80, EndpointRequest: 80, EndpointResponse: 100,
}  # fmt: skip
"""Bytes from inner IPv6 header to iCRC of the packets without payload, by type.

The nominal size of a write is exactly that (§6.2).
"""
_SACK_BYTES: Final[int] = INNER_BYTES[Sack]


class FrameCodec(Protocol):
    """The codecs of NICs, where packets travel as bytes; wire.py has them."""

    def frame(
        self,
        host: Any,
        packet: PacketRecord,
        size: int,
        source: str,
        target: str,
        rack: int,
        downlink: int,
        plane: int,
        control: bool,
        trimmable: bool,
    ) -> Frame:
        """Return the frame of a packet that a host sends."""

    def decode(self, host: Any, frame: Any, plane: int) -> tuple[str, Any] | None:
        """Return (sender, record) of a frame that arrived; None: the frame was counted by the codec's reason."""


class HostEngine(Protocol):
    """Calls of a host on its engine: an Endpoint, or a stand-in that watches one."""

    def receive(self, packet: PacketRecord, plane: int, peer: str, now: float) -> None: ...

    def transmit(
        self, now: float, limit: int = 64, room: list[int] | None = None
    ) -> list[tuple[int, str, PacketRecord]]: ...

    def on_timer(self, now: float) -> None: ...

    def on_port(self, plane: int, is_up: bool, now: float) -> None: ...

    def events(self) -> list[Event]: ...

    def next_deadline(self, now: float) -> float: ...


class HostNetwork(Protocol):
    """Interface of a fabric to its hosts."""

    queue: EventQueue
    host_profile: HostProfile
    keep_events: bool
    hosts: dict[str, VirtualHost]
    overhead_bytes: int

    @property
    def wires(self) -> FrameCodec | None:
        """The codecs, when packets travel as bytes."""


class VirtualHost:
    """Host with its engine `endpoint`; `events`: all of them in order, if the fabric keeps them."""

    def __init__(self, fabric: HostNetwork, host: Host, endpoint: Endpoint) -> None:
        self._queue = fabric.queue
        self.node_events: NodeEvents = fabric.queue.add_node(False)
        """Events of the host."""
        self._hosts = fabric.hosts
        """All hosts of the fabric, by name."""
        self._target: VirtualHost | None = None
        """Host that the newest packet went to."""
        # Copied out of the fabric: each packet needs these.
        self._ring, self._keep_events = fabric.host_profile.ring_packets, fabric.keep_events
        self._overhead, self._wires = fabric.overhead_bytes, fabric.wires
        self.plan_host = host
        self.name = host.name
        self.rack, self.downlink = host.rack, host.downlink
        self.endpoint = endpoint
        self.engine: HostEngine = endpoint
        """Receiver of the host's calls: the endpoint, or the stand-in that watches it."""
        self.ports: list[NicPort] = []
        self.events: list[Event] = []
        self.dropped: Counter[str] = tally()
        """Frames that the NIC did not take: `iCRC`, or another reason of the codec."""
        self.received = 0
        self._listeners: list[Callable[[Event], None]] = []
        self._on_completion: dict[int, Callable[[Completion], None]] = {}
        self._due = False
        self._wake = NEVER
        """Last value of next_deadline()."""
        self._timer = NEVER
        """Time of the earliest timer event in the queue."""
        self._credit = TxCredit(endpoint.planes)
        """Packets that each port can take, found out anew for each call of the engine."""
        self.lives = 0
        """Number of processes started anew on this host."""
        self.alive = True
        self.power = True
        self._on_death: list[Callable[[], None]] = []
        self._stalled_until = -1.0
        self._unread: list[int] | None = None
        """Planes still to be read while ports are read one after the other, last first; None: see _holds()."""
        self._gap_s = 0.0
        self._waiting: list[Any] = []
        """Frames that wait for the CPU, in the order in which they came."""
        self._port_news: set[int] = set()
        """Planes whose port changed meanwhile."""
        self.take: Handler = self.receive if self._wires is None else self.receive_bytes
        """Handler to which the ports of T0s deliver."""
        # Methods bound once, as each event needs them.
        self._on_pump: Handler = self._pump
        self._on_timer_event: Handler = self._on_timer
        self._count_if_alone = self.node_events.count_if_alone
        self._dscp_control = endpoint.config.dscp.control
        self._trimmable = (endpoint.config.dscp.trimmable, endpoint.config.dscp.trimmable_retx)

    # ---- application ------------------------------------------------------------------------------------

    def listen(self, handler: Callable[[Event], None]) -> None:
        """Call `handler` for every event of the engine, at its time; it may post more work."""
        self._listeners.append(handler)

    def on_completion(self, qpn: int, handler: Callable[[Completion], None]) -> None:
        """Call `handler` for every completion of one QP; it may post more work."""
        self._on_completion[qpn] = handler

    def on_death(self, handler: Callable[[], None]) -> None:
        """Call `handler` when the process ends, whose applications end with it."""
        self._on_death.append(handler)

    def collect(self) -> bool:
        """Pass on the engine's pending events now; True when there were any."""
        return self._notify(self.engine.events())

    def kick(self) -> None:
        """Let the engine send at this instant: work was posted."""
        self._request(self._queue.now)

    def schedule(self, time: float, action: Callable[[], object]) -> None:
        """Call a function of this host's application at a time, at once when the time has passed.

        The function may post work here.
        """
        self.node_events.push(time, self._call, action)

    def _call(self, action: Callable[[], object], now: float) -> None:
        action()
        self._request(now)

    def close(self) -> None:
        """Drop the references to engine, ports and application, see VirtualFabric.close."""
        self.ports.clear()
        self._listeners.clear()
        self._on_completion.clear()
        self._on_death.clear()
        self.engine = self.endpoint
        self._target = None
        self.take = self._on_pump = self._on_timer_event = _ignore_event

    # ---- process ----------------------------------------------------------------------------------------

    def stall(self, seconds: float, order: Sequence[int] | None = None, gap_s: float = 0.0) -> None:
        """Take the CPU for a while; see faults.StallFault."""
        queue = self._queue
        if self._unread is not None:
            self._stalled_until, self._unread = -1.0, None
        self._stalled_until = max(self._stalled_until, queue.now + seconds)
        self._gap_s = gap_s
        self.node_events.push(self._stalled_until, self._resume, None if order is None else tuple(order))

    def _resume(self, order: tuple[int, ...] | None, now: float) -> None:
        if now < self._stalled_until or not self.alive:
            return
        self._stalled_until = -1.0
        for plane in sorted(self._port_news):
            self.engine.on_port(plane, self.ports[plane].is_up, now)
        self._port_news.clear()
        if order is None:
            waiting, self._waiting = self._waiting, []
            self._take_all(waiting, now)
            return
        planes = [*order, *(plane for plane in range(len(self.ports)) if plane not in order)]
        self._stalled_until = inf  # until the last one is read
        self._unread = planes[::-1]
        self._read_port(None, now)

    def _read_port(self, _: object, now: float) -> None:
        """Read one port's waiting frames; the engine answers before the next port is read."""
        unread = self._unread
        if not unread or not self.alive:
            return
        plane = unread.pop()
        frames = [frame for frame in self._waiting if frame.plane == plane]
        self._waiting = [frame for frame in self._waiting if frame.plane != plane]
        if not unread:
            self._stalled_until, self._unread = -1.0, None
        self._take_all(frames, now)
        if unread:
            self.node_events.push(now + self._gap_s, self._read_port, None)

    def _take_all(self, frames: list[Any], now: float) -> None:
        """Deliver all frames to the engine before the engine may send."""
        due, self._due = self._due, True
        for frame in frames:
            self.take(frame, now)
        self._due = due
        self._request(now)

    def _holds(self, frame: Frame) -> bool:
        """Whether a frame that arrives in a stall has to wait; without a process it is dropped."""
        if not self.alive:
            self.dropped["no process"] += 1
        elif self._unread is None or frame.plane in self._unread:
            self._waiting.append(frame)
        else:
            return False
        return True

    @property
    def stalled(self) -> bool:
        """Whether the host has no CPU now."""
        return self._queue.now < self._stalled_until

    @property
    def stalled_for_ever(self) -> bool:
        """Whether the host's stall outlasts every run."""
        return self._unread is None and self._stalled_until > FOREVER_S

    def vanish(self) -> None:
        """End the process; see faults.VanishFault."""
        self.alive = False
        self._stalled_until, self._unread = inf, None
        self._waiting.clear()
        handlers, self._on_death = self._on_death, []
        for handler in handlers:
            handler()
        if handlers:
            self._queue.halt()

    def begin(self, endpoint: Endpoint) -> None:
        """Begin another process with an engine of its own, which first learns the state of its ports."""
        now = self._queue.now
        self.endpoint = self.engine = endpoint
        self.alive = True
        self._stalled_until, self._unread = -1.0, None
        self._waiting.clear()
        self._port_news.clear()
        self._on_completion.clear()
        self._wake = NEVER
        for plane, port in enumerate(self.ports):
            if not port.is_up:
                endpoint.on_port(plane, False, now)
        self._request(now)

    # ---- network ----------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: float) -> None:
        """Take a frame that arrived on the port of its plane."""
        if now < self._stalled_until and self._holds(frame):
            return
        if frame.corrupt:
            self.dropped["iCRC"] += 1
            return
        self.received += 1
        if self.engine is self.endpoint:  # called as what it is, not as a protocol, by far the quickest when compiled
            self.endpoint.receive(frame.packet, frame.plane, frame.source, now)
        else:
            self.engine.receive(frame.packet, frame.plane, frame.source, now)
        self._pump_if_changed(now)

    def receive_bytes(self, frame: Frame, now: float) -> None:
        """Decode the bytes of a frame and pass the packet to the engine, as `receive` does."""
        if now < self._stalled_until and self._holds(frame):
            return
        wires, plane = self._wires, frame.plane
        assert wires is not None
        arrival = wires.decode(self, frame, plane)
        if arrival is None:
            return
        self.received += 1
        peer, packet = arrival
        self.engine.receive(packet, plane, peer, now)
        self._pump_if_changed(now)

    def port_changed(self, plane: int, now: float) -> None:
        """Notify the engine of the state of a plane's port, which may have changed."""
        if now < self._stalled_until:
            self._port_news.add(plane)
            return
        self.engine.on_port(plane, self.ports[plane].is_up, now)
        self._request(now)

    def on_room(self, now: float) -> None:
        """Let the engine send: a port that was full has room again."""
        self._pump_soon(now)

    def _pump_if_changed(self, now: float) -> None:
        """Let the engine send after a packet, unless that was data for which no SACK is due yet, as most are."""
        endpoint = self.endpoint
        is_settled = now < self._wake and self.engine is endpoint and self._is_settled(endpoint)
        if not is_settled or endpoint.next_deadline(now) < self._wake:
            self._pump_soon(now)

    def _pump_soon(self, now: float) -> None:
        """Let the engine send after all arrivals of this instant; at once when no other event is due now."""
        if not self._due and self._count_if_alone(now):
            self._pump(None, now)
        else:
            self._request(now)

    def _request(self, now: float) -> None:
        """Let the engine send after the events queued for this instant."""
        if not self._due:
            self._due = True
            self.node_events(now, self._on_pump, None)

    def _on_timer(self, _: object, now: float) -> None:
        if self._timer <= now:
            self._timer = NEVER
        endpoint = self.endpoint
        if self.engine is endpoint and now >= self._stalled_until and not self._due and self._is_settled(endpoint):
            due = endpoint.next_deadline(now)
            if due > now:  # what was due has moved back, as a receiver's SACK does with each packet
                self._wake = due
                self._wake_at(due)
                return
        self._request(now)

    def _is_settled(self, endpoint: Endpoint) -> bool:
        """Return whether a pump could change nothing but deadlines."""
        for port in self.ports:
            waiting: int = port.waiting
            if waiting < self._ring:
                return endpoint.is_settled(True)
        return endpoint.is_settled(False)

    def _wake_at(self, due: float) -> None:
        """Set a timer where none comes before."""
        if due < self._timer:
            self._timer = due
            self.node_events(due, self._on_timer_event, None)

    def _pump(self, _: object, now: float) -> None:
        """Run the engine's timers, sends and events of this instant."""
        self._due = False
        engine = self.engine
        if now < self._stalled_until:
            if self._unread is not None:  # between two ports; the clock has to wait for the packets in the others
                while self._transmit(now) or self._notify(engine.events()):
                    pass
                self._wake = engine.next_deadline(now)
            return
        endpoint = self.endpoint  # called as what it is where nobody stands in its place
        watched = engine is not endpoint
        if self._wake <= now:
            if watched:
                engine.on_timer(now)
            else:
                endpoint.on_timer(now)
        for _call in range(STUCK_AFTER):
            has_more = self._transmit(now)
            has_events = watched or endpoint.has_events
            if (has_events and self._notify(engine.events() if watched else endpoint.events())) or has_more:
                continue
            due = self._wake = engine.next_deadline(now) if watched else endpoint.next_deadline(now)
            if due > now:
                self._wake_at(due)
                return
            engine.on_timer(now)
        raise StuckError(f"{self.name} at {now} s: the engine has something to do for ever; next_deadline() {due}")

    def _transmit(self, now: float) -> bool:
        """Hand packets to the ports as far as they have room; return True when there may be more."""
        if not self.endpoint.can_send():
            return False
        ring, credit = self._ring, self._credit
        credit.begin()
        for plane, port in enumerate(self.ports):
            waiting: int = port.waiting  # of 32 bits in machine code, which TxCredit's numbers are not
            credit.offer(plane, ring - waiting)
            port.starved = waiting >= ring
        if not credit.free_ports:  # nothing can be sent before on_room() is called
            return False
        if self.engine is self.endpoint:
            sent = self.endpoint.transmit_ready(now, BATCH, credit, None)
        else:
            sent = self.engine.transmit(now, BATCH, [ring - port.waiting for port in self.ports])
            for plane, _, _ in sent:
                credit.take(plane)
        has_more = len(sent) >= BATCH
        for plane, peer, packet in sent:
            port = self.ports[plane]
            port.send(self._frame(packet, plane, peer), now)
            if port.waiting >= ring:
                port.starved = True
            elif not credit.free_ports >> plane & 1:
                has_more = True  # the first packet did not wait: there is room again already
        return has_more

    def _notify(self, events: list[Event]) -> bool:
        """Pass events on to the listeners; return True when there were any."""
        if not events:
            return False
        self._queue.halt()
        if self._keep_events:
            self.events += events
        for event in events:
            if type(event) is Completion:
                handler = self._on_completion.get(event.qpn)
                if handler is not None:
                    handler(event)
            for listener in self._listeners:
                listener(event)
        return True

    def _frame(self, packet: PacketRecord, plane: int, peer: str) -> Frame:
        """Return the frame of a packet that this host sends."""
        target = self._target
        # Names of hosts are the plan's own strings: most packets follow one to the same host.
        if target is None or peer is not target.name:
            target = self._target = self._hosts[peer]
        rack, downlink = target.rack, target.downlink
        dscp, trimmable = packet.dscp, False
        if isinstance(packet, Write):
            size = packet.size
            trimmable = dscp == self._trimmable[0] or dscp == self._trimmable[1]
        elif type(packet) is Sack:
            size = _SACK_BYTES
        elif isinstance(packet, RcWrite):
            size = packet.size
        else:
            size = INNER_BYTES[type(packet)]
        size += self._overhead
        control = dscp == self._dscp_control
        if self._wires is None:
            return Frame(packet, size, self.name, peer, rack, downlink, plane, control, trimmable)
        return self._wires.frame(self, packet, size, self.name, peer, rack, downlink, plane, control, trimmable)


def _ignore_event(_argument: object, _now: float) -> None:
    """Ignore an event of a closed host."""
