"""Egress ports: serialisation, two strict-priority queues, marks, trims, drops and wire faults.

A port owns one direction of a link. Design notes.

1. An idle port needs one event a packet: its arrival at the other end. Only when a packet has to wait is there a second
   one, when the port is free again. Most hops of a run are of the first kind.
2. A link that goes down takes what is on its wire along by removing those arrivals from the queue of events: rare, and
   so the arrival itself checks nothing.
3. An `observer` of the ports sees the packets; without one each packet costs one test for None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf
from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.simulator.events import AddEvent, Handler, NodeEvents
from mrc_testbed.simulator.frames import NO_PORT, Frame, FrameQueue, PacketHook, tally
from mrc_testbed.simulator.impairment import Lateness, Picker
from mrc_testbed.simulator.profiles import Line, QueueProfile
from mrc_testbed.topologies.plan.link_speeds import OUTER_BYTES, TRIM_BYTES

SRV6_TRIM_BYTES: Final = TRIM_BYTES + OUTER_BYTES
PLAIN_TRIM_BYTES: Final = TRIM_BYTES
"""Default lengths of a trimmed frame with and without an outer header (§4.3)."""
MEDIUM_SHARE: Final = 1 / 3
"""Bytes of trimmed packets for each of data, while both wait: a quarter of what control leaves (§4.2)."""
_NO_FRAMES: Final = FrameQueue()
_NO_COUNTS: Final[Counter[str]] = Counter()
"""Shared empty queues and counts of ports that never needed their own, as most ports; never written."""


class EgressPort:
    """`node` -> `neighbour`, named after its interface. Counters count since the fabric was made."""

    # What each packet needs comes first, in narrow types where they do: machine code keeps attributes in this order,
    # and with thousands of ports none of them is in the CPU's caches when its packet comes.
    observer: PacketHook | None
    is_up: bool
    _draining: bool
    _impaired: bool
    _fifo: bool
    number: int
    busy_until: float
    _byte_s: float
    _delay: float
    _jitter: float
    _last_at: float
    forwarded: int
    forwarded_bytes: int
    _neighbour_events: AddEvent
    arrive: Handler
    data_bytes: int
    control_bytes: int
    plane: int
    waiting: int
    starved: bool
    _data: FrameQueue
    _control: FrameQueue
    _medium: FrameQueue | None
    _node_events: NodeEvents
    _trim_at: float
    peak_bytes: int

    __slots__ = (
        "_byte_s",
        "_control",
        "_corrupt",
        "_cut",
        "_data",
        "_delay",
        "_draining",
        "_dscp",
        "_ecn_max",
        "_ecn_min",
        "_fifo",
        "_impaired",
        "_jitter",
        "_last_at",
        "_lateness",
        "_limits",
        "_loss",
        "_low_water",
        "_medium",
        "_medium_due",
        "_neighbour_events",
        "_node_events",
        "_note_delay",
        "_repeat",
        "_rng",
        "_rng_seed",
        "_trim_at",
        "_trim_len",
        "arrive",
        "busy_until",
        "control_bytes",
        "data_bytes",
        "dropped",
        "extra_delay_s",
        "forwarded",
        "forwarded_bytes",
        "is_up",
        "last_hop",
        "line",
        "lost",
        "marked",
        "name",
        "neighbour",
        "node",
        "number",
        "observer",
        "on_room",
        "peak_bytes",
        "plane",
        "starved",
        "trimmed",
        "waiting",
    )

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
        self.observer = observer
        """Callback for every packet sent, marked, trimmed, dropped or lost; None: none."""
        self.is_up = True
        self._draining = self._impaired = self._fifo = False
        self.busy_until = -inf
        """Time when the last bit of the packet being sent leaves."""
        self._byte_s = self._delay = self._jitter = 0.0
        self._last_at = -inf
        self.forwarded = self.forwarded_bytes = 0
        self._neighbour_events = node_events
        """Events of the neighbour."""
        self.arrive = _nowhere
        """Handler of the packets at the other end; see lead_to()."""
        self.number = NO_PORT
        """Number of the port among all ports of a fabric."""
        self.waiting = 0
        """Packets queued, without the one being sent; `data_bytes` and `control_bytes` are theirs."""
        self.data_bytes = self.control_bytes = 0
        self.peak_bytes = 0
        """Deepest the data queue ever was."""
        self._data = self._control = _NO_FRAMES
        """See _make_queues()."""
        self._medium: FrameQueue | None = None
        """Queue of trimmed packets (Config.switches.trimmed_queue), counted as control; None: no own queue."""
        self._trim_at = inf
        self._limits = (inf, inf, inf, inf)
        self._node_events = node_events
        self._ecn_min = self._ecn_max = inf
        self.name, self.node, self.neighbour, self.plane = name, node, neighbour, plane
        self.last_hop = last_hop
        """Whether the port leads to a NIC."""
        self._note_delay = note_delay
        self._rng_seed = rng_seed
        self._rng: Random | None = None
        self._dscp = dscp
        self._medium_due = 0.0
        """Bytes of trimmed packets that may be sent before data has its turn again."""
        self.marked = self.trimmed = 0
        self.dropped = _NO_COUNTS
        """Dropped packets by reason: `queue_full`, `control_queue_full`, `not_trimmable`, `port_down`."""
        self.lost = _NO_COUNTS
        """Lost packets by reason: `cut`, `loss`, `link_down`; `corrupt` counts packets that arrived damaged."""
        self._cut = False
        self.extra_delay_s = 0.0
        """Seconds that the receiving host takes before it sees a packet."""
        self._loss: Picker | None = None
        self._corrupt: Picker | None = None
        self._repeat: Picker | None = None
        self._lateness: Lateness | None = None
        self._trim_len = SRV6_TRIM_BYTES
        # The next three are a NicPort's. They are here so that both kinds fill whole lines of the CPU's caches
        # (tests/native_build/test_modules_both_forms.py).
        self.on_room: Callable[[float], None] = _unheard
        """Callback when the port has room again."""
        self.starved = False
        """Whether the ring was full when the host last sent; on_room is then called."""
        self._low_water = 0
        self.set_line(line)

    def lead_to(self, arrive: Handler, node_events: AddEvent) -> None:
        """Deliver packets to a handler, by events of the neighbour."""
        self.arrive = arrive
        self._neighbour_events = node_events

    def deliver(self, frame: Frame, time: float) -> None:
        """Let a packet that was sent elsewhere arrive at the neighbour at a time."""
        self._neighbour_events(time, self.arrive, frame)

    def close(self) -> None:
        """Drop the reference to the neighbour, see VirtualFabric.close."""
        self.arrive = _nowhere

    def _make_queues(self) -> None:
        """Make the queues of this port: its first packet has to wait."""
        self._data, self._control = FrameQueue(), FrameQueue()

    # ---- settings ---------------------------------------------------------------------------------------

    @property
    def rng(self) -> Random:
        """Random source of this port alone, so that one fault does not shift the draws of another."""
        if self._rng is None:
            self._rng = Random(self._rng_seed)
        return self._rng

    def set_line(self, line: Line) -> None:
        """Set rate, delay and jitter from the next packet on."""
        self.line = line
        self._byte_s = 8 / line.rate_bps
        self._delay, self._jitter, self._fifo = line.delay_s + self.extra_delay_s, line.jitter_s, line.fifo
        self._note_delay(self._delay)

    def change_line(self, **changes: Any) -> None:
        """Change rate_bps, delay_s, jitter_s or fifo and keep the rest. Raises ProfileError."""
        self.set_line(replace(self.line, **changes))

    def set_queues(self, queues: QueueProfile, srv6: bool, config: Config | None = None) -> None:
        """Set thresholds and limits from now on; packets already queued stay.

        `config`: its `trimmed_queue` counts, and its `trim_len` where the profile has none.
        """
        if config is not None and config.switches.trimmed_queue == "medium":
            self._medium = FrameQueue()
        ecn = queues.ecn_min_bytes is not None and (not self.last_hop or queues.last_hop_ecn)
        self._ecn_min = queues.ecn_min_bytes if ecn and queues.ecn_min_bytes is not None else inf
        self._ecn_max = max(self._ecn_min, (queues.ecn_max_bytes or 0) if ecn else inf)
        trim = queues.trim_bytes
        if self.last_hop and queues.trim_lasthop_bytes is not None and trim is not None:
            trim = queues.trim_lasthop_bytes
        self._trim_at = inf if trim is None else trim
        self._trim_len = (
            queues.trim_len
            or (config.switches.trim_len if config is not None else 0)
            or (SRV6_TRIM_BYTES if srv6 else PLAIN_TRIM_BYTES)
        )
        packets = [inf if n is None else n for n in (queues.data_packets, queues.control_packets)]
        self._limits = (queues.data_bytes, packets[0], queues.control_bytes, packets[1])

    def set_impairment(self, name: str, value: Any) -> None:
        """Set `cut` (bool), `loss`, `corrupt`, `repeat` (Picker or None) or `lateness` (Lateness or None)."""
        setattr(self, f"_{name}", value)
        self._impaired = bool(self._cut or self._loss or self._corrupt or self._repeat or self._lateness)

    @property
    def swallows(self) -> bool:
        """Whether every packet that leaves is lost."""
        return self._cut or (self._loss is not None and self._loss.hits_all)

    def clear_impairments(self) -> None:
        self._cut = self._impaired = False
        self._loss = self._corrupt = self._repeat = self._lateness = None

    # ---- packets ----------------------------------------------------------------------------------------

    def send(self, frame: Frame, now: float) -> None:
        """Send, queue, trim or drop a packet."""
        if not self.is_up:
            self._drop(frame, "port_down", now)
            return
        if self.busy_until <= now and not self._draining:
            self._launch(frame, now)
            return
        # The shared empty queues are never written; the first packet that waits makes the port its own.
        if self._data is _NO_FRAMES:
            self._make_queues()
        size = frame.size
        if not frame.control:
            depth = self.data_bytes + size
            if depth > self._trim_at:
                if frame.trimmable and size > self._trim_len:
                    self._trim(frame, now)
                elif depth > self._limits[0]:
                    self._drop(frame, "not_trimmable", now)
                    return
            # Trimming turns a data packet into a control packet, which goes on below.
            if not frame.control:
                if depth > self._limits[0] or self._data.count >= self._limits[1]:
                    self._drop(frame, "queue_full", now)
                    return
                self._data.put(frame)
                self.waiting += 1
                self.data_bytes = depth
                if depth > self.peak_bytes:
                    self.peak_bytes = depth
        if frame.control:
            depth = self.control_bytes + frame.size
            if depth > self._limits[2] or self._control.count >= self._limits[3]:
                self._drop(frame, "control_queue_full", now)
                return
            if frame.trimmed and self._medium is not None:
                self._medium.put(frame)
            else:
                self._control.put(frame)
            self.waiting += 1
            self.control_bytes = depth
        if not self._draining:
            self._draining = True
            self._node_events(self.busy_until, _DRAIN, self)

    def _drain(self, now: float) -> None:
        """Send the next packet, control before data: the port is free again."""
        medium = self._medium
        if self.control_bytes and (medium is None or self._control.count):
            frame = self._control.take()
            self.control_bytes -= frame.size
        # Only trimmed packets are left of control: they share the port with data, by the bytes due to them.
        elif (
            self.control_bytes and medium is not None and medium.count and (self._medium_due > 0 or not self.data_bytes)
        ):
            frame = medium.take()
            self.control_bytes -= frame.size
            self._medium_due = max(0.0, self._medium_due - frame.size)
        elif self.data_bytes:
            frame = self._data.take()
            if medium is not None and medium.count:
                self._medium_due += frame.size * MEDIUM_SHARE
            # Marked on leaving, by what is left behind: the newest state of the queue.
            depth = self.data_bytes = self.data_bytes - frame.size
            if depth > self._ecn_min and frame.ect:
                low, high = self._ecn_min, self._ecn_max
                if depth >= high or self.rng.random() * (high - low) < depth - low:
                    self._mark(frame, now)
        else:
            self._draining = False
            return
        self.waiting -= 1
        self._launch(frame, now)
        if self.waiting:
            self._node_events(self.busy_until, _DRAIN, self)
        else:
            self._draining = False

    def _launch(self, frame: Frame, now: float) -> None:
        """Put a packet on the wire now."""
        if self.observer is not None:
            self.observer("send", now, self.name, frame)
        size = frame.size
        end = self.busy_until = now + size * self._byte_s
        self.forwarded += 1
        self.forwarded_bytes += size
        if self._impaired and not self._survives(frame, end):
            return
        arrival_time = end + self._delay
        if self._jitter:
            arrival_time += self.rng.random() * self._jitter
        if self._fifo:
            if arrival_time < self._last_at:
                arrival_time = self._last_at
            self._last_at = arrival_time
        frame.port = self.number
        self._neighbour_events(arrival_time, self.arrive, frame)

    def _survives(self, frame: Frame, end: float) -> bool:
        """Apply the faults of this direction to a packet; return False when the packet is lost."""
        if self._cut:
            self.lose(frame, "cut", end)
            return False
        if self._loss is not None and self._loss.hits(frame.is_data):
            self.lose(frame, "loss", end)
            return False
        if self._corrupt is not None and self._corrupt.hits(frame.is_data):
            self._count_loss("corrupt")
            frame.spoil(self.rng.random())
        if self._repeat is not None and self._repeat.hits(frame.is_data):
            twin = frame.copy()
            twin.port = self.number
            self._neighbour_events(end + self._delay + self._jitter, self.arrive, twin)
        if self._lateness is not None and self._lateness.hits(frame.is_data):
            stray = frame.copy() if self._lateness.twin else frame
            stray.port = self.number
            self._neighbour_events(end + self._delay + self._lateness.seconds, self.arrive, stray)
            return self._lateness.twin
        return True

    # ---- events for observers ---------------------------------------------------------------------------

    def _mark(self, frame: Frame, now: float) -> None:
        frame.mark()
        self.marked += 1
        if self.observer is not None:
            self.observer("mark", now, self.name, frame)

    def _trim(self, frame: Frame, now: float) -> None:
        frame.trim(self._trim_len, self._dscp[self.last_hop], self.last_hop)
        self.trimmed += 1
        if self.observer is not None:
            self.observer("trim", now, self.name, frame)

    def _drop(self, frame: Frame, reason: str, now: float) -> None:
        if self.dropped is _NO_COUNTS:
            self.dropped = tally()
        self.dropped[reason] += 1
        if self.observer is not None:
            self.observer("drop", now, self.name, frame)

    def lose(self, frame: Frame, reason: str, now: float) -> None:
        """Count a packet that was sent and will not arrive."""
        self._count_loss(reason)
        if self.observer is not None:
            self.observer("lose", now, self.name, frame)

    def _count_loss(self, reason: str) -> None:
        if self.lost is _NO_COUNTS:
            self.lost = tally()
        self.lost[reason] += 1

    # ---- link state -------------------------------------------------------------------------------------

    def go_down(self, now: float) -> None:
        """Drop what waits here: the link is dead. The fabric removes what is on the wire."""
        self.is_up = False
        for queue in (self._control, self._data, self._medium):
            for frame in queue.take_all() if queue is not None else ():
                self._drop(frame, "port_down", now)
        self.waiting = self.data_bytes = self.control_bytes = 0
        self.busy_until = min(self.busy_until, now)

    def go_up(self) -> None:
        self.is_up = True

    def counters(self) -> dict[str, Any]:
        """Return all counters by name."""
        return {
            "forwarded": self.forwarded,
            "forwarded_bytes": self.forwarded_bytes,
            "marked": self.marked,
            "trimmed": self.trimmed,
            "dropped": dict(sorted(self.dropped.items())),
            "lost": dict(sorted(self.lost.items())),
            "peak_bytes": self.peak_bytes,
        }


class NicPort(EgressPort):
    """Host port without marks and trims; notifies its host when there is room again."""

    __slots__ = ()

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
        super().__init__(name, node, neighbour, plane, line, note_delay, node_events, rng_seed, dscp, observer=observer)
        self.on_room = on_room
        self._low_water = ring_packets // 2

    def _drain(self, now: float) -> None:
        super()._drain(now)
        if self.starved and self.waiting <= self._low_water:
            self.starved = False
            self.on_room(now)

    def go_up(self) -> None:
        super().go_up()
        self.starved = False


def drain(port: EgressPort, now: float) -> None:
    """Let a port that is free again send: an event handler that is no bound method."""
    port._drain(now)


_DRAIN: Final[Handler] = drain
"""The handler as a constant: machine code would look a function up by its name each time."""


def _unheard(_now: float) -> None:
    """Ignore that there is room; switch ports notify no host."""


def _nowhere(_frame: Frame, _now: float) -> None:
    raise AssertionError("port without a neighbour. Cure: call lead_to() first")
