"""Switches of a virtual fabric and the forwarding modes as functions.

Only one choice is ever made in a two-tier fabric: the uplink at the source's T0. A mode is a function
`(t0, frame) -> T1 number or None`; None drops the packet (`no_route`). Everything else follows from the plan.

    srv6          the uSID address made from the EV: plane and uplink must exist; static, whatever happens to links
    structured    the first field of the EV (§8.5); static
    ecmp          hash of addresses, flow label and ports over the uplinks whose port is up (watch ports)
    flow-ecmp     the same hash over flows: one path per flow, another one with another seed of the fabric
    switch-spray  a random uplink per packet, of those whose port is up
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final
from zlib import crc32

from mrc_testbed.hosts.engine.paths.ev_formats import Srv6Format, StructuredFormat
from mrc_testbed.simulator.frames import Frame, PacketHook, tally
from mrc_testbed.simulator.ports import EgressPort
from mrc_testbed.topologies.plan import Plan

Chooser = Callable[["VirtualT0", Frame], "int | None"]


class VirtualSwitch:
    """Base of T0 and T1. `dropped`: packets by reason, `no_route`, `blackhole`, `power`."""

    __slots__ = (
        "_waiting",
        "blackhole",
        "downlinks",
        "dropped",
        "is_idle",
        "name",
        "observer",
        "plane",
        "power",
        "racks",
        "uplinks",
    )

    def __init__(self, name: str, plane: int) -> None:
        self.name, self.plane = name, plane
        self.power = True
        self.blackhole = False
        self.is_idle = False
        """Whether the switch forwards nothing: a black hole, or stalled; see set_aside()."""
        self._waiting: list[Frame] | None = None
        """Frames that came in during a stall; None: not stalled."""
        self.dropped: Counter[str] = tally()
        self.observer: PacketHook | None = None
        """Callback for every packet dropped here."""
        self.downlinks: list[EgressPort] = []
        """Ports of a T0 to its hosts, in order."""
        self.uplinks: list[EgressPort] = []
        """Ports of a T0 to the T1s, by T1 number."""
        self.racks: list[EgressPort] = []
        """Ports of a T1 to the T0s, by rack."""

    def drop(self, frame: Frame, reason: str, now: float) -> None:
        self.dropped[reason] += 1
        if self.observer is not None:
            self.observer("drop", now, self.name, frame)

    def set_blackhole(self, on: bool) -> None:
        """Drop every packet from now on, or forward again."""
        self.blackhole = on
        self.is_idle = on or self._waiting is not None

    def stall(self) -> None:
        """Forward nothing until resume(): arriving packets wait; packets queued at ports leave."""
        if self._waiting is None:
            self._waiting = []
        self.is_idle = True

    def resume(self, now: float) -> None:
        """Forward the packets that waited, in the order in which they came."""
        waiting, self._waiting = self._waiting, None
        self.is_idle = self.blackhole
        for frame in waiting or ():
            self.receive(frame, now)

    def set_aside(self, frame: Frame, now: float) -> None:
        """Receive a packet while `is_idle`."""
        if self.blackhole:
            self.drop(frame, "blackhole", now)
        elif self._waiting is not None:
            self._waiting.append(frame)

    def on_wired(self, _plan: Plan) -> None:
        """Build the tables looked up per packet; called once all ports exist."""
        self.port_changed()

    def port_changed(self) -> None:
        """Note that a port went up or down."""

    def receive(self, frame: Frame, now: float) -> None:
        raise NotImplementedError


class VirtualT0(VirtualSwitch):
    """T0 of a rack."""

    __slots__ = (
        "_by_srv6",
        "_choose",
        "_rng",
        "flows",
        "live_uplinks",
        "pruned_links",
        "rack",
        "seed",
        "structure",
        "widths",
    )

    def __init__(
        self,
        name: str,
        plane: int,
        rack: int,
        choose: Chooser,
        seed: str,
        widths: Srv6Format | None = None,
        structure: StructuredFormat | None = None,
    ) -> None:
        super().__init__(name, plane)
        self.rack = rack
        self.widths = widths or Srv6Format()
        self.structure = structure or StructuredFormat()
        """Meaning of an EV's bits (Config.wire.srv6_widths, structured_widths)."""
        self._choose = choose
        self._by_srv6 = choose is srv6
        """Whether the chooser is `srv6`, which is then called by name: by far the quickest when compiled."""
        self.live_uplinks: list[int] = []
        """Uplinks whose port is up, as the selector of the hashing modes knows."""
        self.pruned_links: frozenset[tuple[int, int]] = frozenset()
        """(T1 number, rack) pairs that the control plane excludes from the hashing modes."""
        self.seed = seed
        """Seed made of the fabric's seed and the switch's name."""
        self._rng: Random | None = None
        self.flows: dict[tuple[str, str, int], int] = {}
        """Hashes of the flows seen so far: source, target, destination QP."""

    @property
    def rng(self) -> Random:
        """Random source of this switch alone."""
        if self._rng is None:
            self._rng = Random(self.seed)
        return self._rng

    def port_changed(self) -> None:
        self.live_uplinks = [k for k, port in enumerate(self.uplinks) if port.is_up]

    def receive(self, frame: Frame, now: float) -> None:
        if self.is_idle:
            self.set_aside(frame, now)
            return
        is_fresh, frame.is_fresh = frame.is_fresh, False
        if frame.rack == self.rack:
            if is_fresh and not self._choose_own(frame):
                self.drop(frame, "no_route", now)
                return
            self.downlinks[frame.downlink].send(frame, now)
            return
        uplink = srv6(self, frame) if self._by_srv6 else self._choose(self, frame)
        if uplink is None:
            self.drop(frame, "no_route", now)
        else:
            self.uplinks[uplink].send(frame, now)

    def live_towards(self, rack: int) -> list[int]:
        """Return the uplinks that the hashing modes may use towards a rack."""
        if not self.pruned_links:
            return self.live_uplinks
        return [number for number in self.live_uplinks if (number, rack) not in self.pruned_links]

    def _choose_own(self, frame: Frame) -> bool:
        """Whether the EV fits a path inside the rack: in SRv6 only an EV of this plane, else any."""
        return not self._by_srv6 or self.widths.plane(frame.ev) == self.plane


class VirtualT1(VirtualSwitch):
    """T1 of a plane."""

    __slots__ = ()

    def receive(self, frame: Frame, now: float) -> None:
        if self.is_idle:
            self.set_aside(frame, now)
        elif frame.rack < 0:  # a damaged address belongs to no rack
            self.drop(frame, "no_route", now)
        else:
            self.racks[frame.rack].send(frame, now)


# ---- modes ------------------------------------------------------------------------------------------------


def srv6(t0: VirtualT0, frame: Frame) -> int | None:
    """Choose the uplink by the T1 uSID of the outer address."""
    ev = frame.ev
    uplink = t0.widths.uplink(ev)
    return uplink if t0.widths.plane(ev) == t0.plane and uplink < len(t0.uplinks) else None


def choose_by_field(t0: VirtualT0, frame: Frame) -> int | None:
    """Choose the uplink by the T0 field of the EV."""
    uplink = t0.structure.field(frame.ev, 0)
    return uplink if uplink < len(t0.uplinks) else None


def ecmp(t0: VirtualT0, frame: Frame) -> int | None:
    """Choose an uplink by a hash that includes the EV."""
    uplinks = t0.live_towards(frame.rack)
    key = f"{frame.source}>{frame.target}/{frame.ev}@{t0.name}"
    return uplinks[_hash(key) % len(uplinks)] if uplinks else None


def flow_ecmp(t0: VirtualT0, frame: Frame) -> int | None:
    """Choose an uplink by the flow's hash over hosts and destination QP.

    A seed replaces the source port that a real QP draws.
    """
    uplinks = t0.live_towards(frame.rack)
    if not uplinks:
        return None
    flow = (frame.source, frame.target, frame.packet.dest_qp)
    flow_hash = t0.flows.get(flow)
    if flow_hash is None:
        flow_hash = t0.flows[flow] = _hash(f"{frame.source}>{frame.target}/{frame.packet.dest_qp}@{t0.seed}")
    return uplinks[flow_hash % len(uplinks)]


def switch_spray(t0: VirtualT0, frame: Frame) -> int | None:
    """Choose a random live uplink."""
    uplinks = t0.live_towards(frame.rack)
    return uplinks[int(t0.rng.random() * len(uplinks))] if uplinks else None


def _hash(key: str) -> int:
    """Return a hash of a key, the same in every run of Python.

    Its low bits are well spread, unlike those of a CRC of similar keys.
    """
    value = crc32(key.encode()) * 0x9E3779B1 & 0xFFFFFFFF
    return value >> 16 ^ value & 0xFFFF


MODES: Final[dict[str, Chooser]] = {
    "srv6": srv6,
    "structured": choose_by_field,
    "ecmp": ecmp,
    "flow-ecmp": flow_ecmp,
    "switch-spray": switch_spray,
}
ALIASES: Final[dict[str, str]] = {"stev": "structured", "random": "switch-spray"}


def find_mode(mode: str | Chooser) -> tuple[str, Any]:
    """Return (name, function) of a mode, given as either. Raises ValueError that lists the names."""
    if callable(mode):
        return getattr(mode, "__name__", "custom"), mode
    name = ALIASES.get(mode, mode)
    if name not in MODES:
        raise ValueError(f"no mode {mode!r} (known: {', '.join((*MODES, *ALIASES))})")
    return name, MODES[name]
