"""Devices in one process on a virtual wire, in virtual time; for tests, examples and prompts.

    wire = VirtualWire(planes=2, uplinks=2)
    a, b = wire.open("a"), wire.open("b")

Every (plane, uplink) is a path of its own between any two devices, a FIFO with `delay_s`; it can be cut, and a filter
may lose, repeat or alter any packet. Each waiting call of either device moves both: time jumps to the next thing that
happens, so nothing sleeps and a seed repeats bit for bit. With `framed` packets pass through encoder and decoder.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from threading import RLock
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.wire_variants import in_dialect
from mrc_testbed.hosts.verbs.device import Device
from mrc_testbed.hosts.verbs.driver import Driver

Filter = Callable[[str, str, int, Any], Sequence[float] | None]
"""Filter of packets: (source, destination, plane, packet) -> extra delays of the copies that arrive.

[] = lost; None = as usual."""


@dataclass(slots=True)
class _Path:
    delay_s: float
    cut: bool = False
    free_at: float = 0.0
    """Time before which nothing arrives: what left earlier arrives first."""


class VirtualWire:
    """`planes` x `uplinks` paths between any two devices. `now`: virtual seconds. See the module."""

    def __init__(
        self,
        *,
        planes: int = 2,
        uplinks: int = 2,
        delay_s: float = 0.005,
        seed: int = 1,
        framed: bool = False,
        per_packet_s: float = 0.0,
    ) -> None:
        self.planes, self.uplinks, self.delay_s = planes, uplinks, delay_s
        self.per_packet_s = per_packet_s
        """Time for which a port sends one packet; 0: it takes any number at once."""
        self.now = 0.0
        self.filter: Filter | None = None
        self.sent = 0
        """Packets that left a port."""
        self.lock = RLock()
        self.drivers: dict[str, VirtualDriver] = {}
        self._rng = Random(seed)
        self._is_framed = framed
        self._heap: list[tuple[float, int, str, str, int, Any]] = []
        self._count = 0
        self._paths: dict[tuple[str, str, int, int], _Path] = {}

    def open(self, name: str, config: Config | None = None) -> Device:
        """Open a device on the wire; `name` is its host's. Raises LocalError for a name in use."""
        if name in self.drivers:
            raise LocalError(f"{name} is on the wire already (has: {', '.join(self.drivers)})")
        endpoint = Endpoint(name, config, planes=self.planes, seed=Random(self._rng.getrandbits(64)))
        driver = self.drivers[name] = VirtualDriver(self, endpoint, len(self.drivers) + 1)
        return Device(driver)

    def path(self, source: str, destination: str, ev: int) -> _Path:
        """Return one path in one direction; change `delay_s` and `cut` at will."""
        plane = ev >> 8 & 0xFF
        return self._paths.setdefault((source, destination, plane, ev), _Path(self.delay_s))

    def cut(self, ev: int, *, cut: bool = True) -> None:
        """Cut (or mend) the path of an EV between all devices, both ways."""
        for a in self.drivers:
            for b in self.drivers:
                if a != b:
                    self.path(a, b, ev).cut = cut

    # ---- the clock ------------------------------------------------------------------------------------------

    def step(self, deadline: float | None) -> bool:
        """Jump to the next thing that happens and let it happen; False when there is none until `deadline`."""
        with self.lock:
            self._transmit()
            next_time = self._next_time()
            if next_time is None or (deadline is not None and next_time > deadline):
                if deadline is not None:
                    self.now = max(self.now, deadline)
                return False
            self.now = max(self.now, next_time)
            while self._heap and self._heap[0][0] <= self.now:
                _, _, source, target, plane, data = heapq.heappop(self._heap)
                self._arrive(source, target, plane, data)
            for driver in self.drivers.values():
                driver.endpoint.on_timer(self.now)
            self._transmit()
            return True

    def _next_time(self) -> float | None:
        times = [t for t in (d.endpoint.next_timer() for d in self.drivers.values()) if t is not None]
        if self._heap:
            times.append(self._heap[0][0])
        if self.per_packet_s:
            times += [free_at for driver in self.drivers.values() for free_at in driver.free_at if free_at > self.now]
        return min(times, default=None)

    def _arrive(self, source: str, target: str, plane: int, data: Any) -> None:
        driver = self.drivers.get(target)
        if driver is None or not driver.port_up(plane):
            return
        packet = data if driver.codec is None else driver.codec.decode(data, plane)
        driver.endpoint.receive(packet, plane, source, self.now)

    def _transmit(self) -> None:
        """Let all devices send what they can now, and tell them what happened."""
        busy = True
        while busy:
            busy = False
            for driver in self.drivers.values():
                room = [int(free_at <= self.now) for free_at in driver.free_at] if self.per_packet_s else None
                packets = driver.endpoint.transmit(self.now, room=room)
                for plane, peer, packet in packets:
                    driver.free_at[plane] = self.now + self.per_packet_s
                    self._send(driver, peer, plane, packet)
                busy = bool(driver.collect()) or bool(packets) or busy

    def _send(self, driver: VirtualDriver, peer: str, plane: int, packet: Any) -> None:
        self.sent += 1
        source = driver.endpoint.name
        copies = self.filter(source, peer, plane, packet) if self.filter is not None else None
        target = self.drivers.get(peer)
        path = self._paths.setdefault((source, peer, plane, packet.ev), _Path(self.delay_s))
        if path.cut or target is None or not (driver.port_up(plane) and target.port_up(plane)):
            return
        data = packet
        if driver.codec is not None:
            data = driver.codec.encode(packet, driver.addressing(target)).join()
        for extra in (0.0,) if copies is None else copies:
            arrival = self.now + path.delay_s + extra
            if not extra:
                arrival = path.free_at = max(arrival, path.free_at)
            self._count += 1
            heapq.heappush(self._heap, (arrival, self._count, source, peer, plane, data))


class VirtualDriver(Driver):
    """One device's end of the wire. EVs are numbered as a fabric's plan does: plane << 8 | uplink."""

    def __init__(self, wire: VirtualWire, endpoint: Endpoint, number: int) -> None:
        super().__init__(endpoint)
        self.wire = wire
        self.lock = wire.lock  # one lock for all: each moves the others
        self.free_at = [0.0] * wire.planes
        """Time at which each port can send its next packet."""
        config = endpoint.config
        self.codec = in_dialect(Codec(config), config, outer_header=False) if wire._is_framed else None
        self._number = number
        self._ports_up = [True] * wire.planes

    def now(self) -> float:
        return self.wire.now

    def step(self, deadline: float | None) -> bool:
        return self.wire.step(deadline)

    def evs(self, _peer: str) -> list[tuple[int, int]]:
        return [(p << 8 | uplink, p) for p in range(self.planes) for uplink in range(self.wire.uplinks)]

    def check_ev(self, _peer: str, ev: int, plane: int) -> str | None:
        if ev >> 8 & 0xFF != plane or ev & 0xFF >= self.wire.uplinks:
            return f"EV {ev:#06x} is no path of plane {plane} (plane << 8 | uplink, {self.wire.uplinks} uplinks)"
        return None

    def gids(self) -> tuple[str, ...]:
        return tuple(f"fd00:{plane:x}::{self._number:x}" for plane in range(self.planes))

    def resolve(self, gid: str) -> str:
        for name, driver in self.wire.drivers.items():
            if driver is not self and (gid == name or gid in driver.gids()):
                return name
        peer_names = [f"{n} ({d.gids()[0]})" for n, d in self.wire.drivers.items() if d is not self]
        raise LocalError(f"no host on the wire has the address {gid!r} (has: {', '.join(peer_names) or 'none'})")

    def addressing(self, target: VirtualDriver) -> Addressing:
        """Inner addresses of frames to `target`."""
        return Addressing(bytes(15) + bytes([self._number]), bytes(15) + bytes([target._number]))

    def port_up(self, plane: int) -> bool:
        return self._ports_up[plane]

    def set_port(self, plane: int, enabled: bool) -> None:
        self._ports_up[plane] = enabled
        super().set_port(plane, enabled)

    def close(self) -> None:
        self.wire.drivers.pop(self.endpoint.name, None)
