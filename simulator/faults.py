"""Faults of a virtual fabric as data: what a schedule consists of, what a failing seed prints, what a shrinker removes.

`VirtualFabric.at(t, fault)` applies one at a time; `fault.to_json()` and `fault_from_json` go through files. Links are
named by their two nodes, as in the Mininet CLI; faults with a direction act on packets from `a` to `b`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from random import Random
from typing import Any, ClassVar, Protocol

from simulator.impairment import Lateness, Picker
from simulator.ports import EgressPort
from simulator.switches import VirtualSwitch


class FaultError(ValueError):
    """A fault names what does not exist or cannot be; the message says what would do."""


class StallingHost(Protocol):
    """A host whose process faults can hold up or end."""

    def stall(self, seconds: float, order: Sequence[int] | None = None, gap_s: float = 0.0) -> None: ...

    def vanish(self) -> None: ...


class FaultyFabric(Protocol):
    """What faults act on; VirtualFabric says what each of these does."""

    switches: dict[str, VirtualSwitch]

    @property
    def now(self) -> float: ...

    def at(self, time: float, what: VirtualFault | Callable[[], Any]) -> None: ...

    def directions(self, a: str, b: str, both: bool) -> list[EgressPort]: ...

    def set_link(self, a: str, b: str, *, up: bool) -> None: ...

    def set_line(self, a: str, b: str, *, both: bool = True, **changes: Any) -> None: ...

    def set_power(self, switch: str, on: bool) -> None: ...

    def set_blackhole(self, switch: str, on: bool) -> None: ...

    def stall_switch(self, switch: str, seconds: float) -> None: ...

    def host(self, name: str) -> StallingHost: ...

    def heal(self) -> None: ...


KINDS: dict[str, type[VirtualFault]] = {}
"""Every fault by its class name."""


@dataclass(frozen=True, slots=True)
class VirtualFault:
    """Base of all faults. `apply` acts on a fabric now."""

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    def apply(self, fabric: FaultyFabric) -> None:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """`{"fault": "LinkDown", "a": ..., ...}`."""
        return {"fault": type(self).__name__, **asdict(self)}


def fault_from_json(data: Any) -> VirtualFault:
    """Inverse of VirtualFault.to_json. Raises FaultError."""
    if not isinstance(data, dict) or data.get("fault") not in KINDS:
        raise FaultError(f"a fault has a key `fault`, one of {', '.join(sorted(KINDS))}; got {data!r}")
    kind = KINDS[data["fault"]]
    values = {key: value for key, value in data.items() if key != "fault"}
    names = {f.name for f in fields(kind)}
    if unknown := sorted(set(values) - names):
        raise FaultError(f"{kind.__name__} has no {', '.join(unknown)} (has: {', '.join(sorted(names))})")
    for key in ("packets", "order"):
        if isinstance(values.get(key), list):
            values[key] = tuple(values[key])
    try:
        return kind(**values)
    except TypeError as error:
        raise FaultError(f"{kind.__name__}: {error}") from None


# ---- ports, cables, switches ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkDown(VirtualFault):
    """The cable is pulled: both ends see their port go down, what is queued or on the wire is lost."""

    a: str
    b: str

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.set_link(self.a, self.b, up=False)


@dataclass(frozen=True, slots=True)
class LinkUp(VirtualFault):
    """The cable is back (a link stays down as long as one of its switches has no power)."""

    a: str
    b: str

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.set_link(self.a, self.b, up=True)


@dataclass(frozen=True, slots=True)
class Flap(VirtualFault):
    """`times` x (down for `down_s`, up for `up_s`), beginning with down now."""

    a: str
    b: str
    down_s: float
    up_s: float
    times: int = 1

    def apply(self, fabric: FaultyFabric) -> None:
        at = fabric.now
        for _ in range(self.times):
            fabric.at(at, LinkDown(self.a, self.b))
            fabric.at(at + self.down_s, LinkUp(self.a, self.b))
            at += self.down_s + self.up_s


@dataclass(frozen=True, slots=True)
class Cut(VirtualFault):
    """Packets from `a` to `b` vanish (`both`: also the other way); no port changes state, nobody is told."""

    a: str
    b: str
    both: bool = False

    def apply(self, fabric: FaultyFabric) -> None:
        for port in fabric.directions(self.a, self.b, self.both):
            port.set_impairment("cut", True)


@dataclass(frozen=True, slots=True)
class Mend(VirtualFault):
    """Ends Cut, Loss, Corrupt, Repeat and Late on a link, in both directions."""

    a: str
    b: str

    def apply(self, fabric: FaultyFabric) -> None:
        for port in fabric.directions(self.a, self.b, True):
            port.clear_impairments()


@dataclass(frozen=True, slots=True)
class SetLine(VirtualFault):
    """New rate, delay or jitter from `a` to `b` (`both`: the other way too); None = as it is."""

    a: str
    b: str
    rate_bps: float | None = None
    delay_s: float | None = None
    jitter_s: float | None = None
    fifo: bool | None = None
    both: bool = True

    def apply(self, fabric: FaultyFabric) -> None:
        changes = {key: getattr(self, key) for key in ("rate_bps", "delay_s", "jitter_s", "fifo")}
        fabric.set_line(self.a, self.b, both=self.both, **{k: v for k, v in changes.items() if v is not None})


@dataclass(frozen=True, slots=True)
class PowerOff(VirtualFault):
    """A switch stops: all its links go down, its queues are lost."""

    switch: str

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.set_power(self.switch, False)


@dataclass(frozen=True, slots=True)
class PowerOn(VirtualFault):
    """The switch is back, with its routes."""

    switch: str

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.set_power(self.switch, True)


@dataclass(frozen=True, slots=True)
class Blackhole(VirtualFault):
    """A switch swallows every packet while its links stay up; `on = False` ends it."""

    switch: str
    on: bool = True

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.set_blackhole(self.switch, self.on)


ALL_SWITCHES = "switches"
ONE_AFTER_THE_OTHER_S = 1e-6


@dataclass(frozen=True, slots=True)
class Stall(VirtualFault):
    """A host or a switch has no CPU for a while: what arrives waits, nothing leaves, timers come late.

    `order`: planes in the order in which a host then reads its ports, `gap_s` apart: all that waited on the first one
    is read and acknowledged before the second is looked at, as a live host does that is held up. Planes not named
    come last. None: everything is read at once, in the order in which it came. The node ALL_SWITCHES is the one process
    of a live fabric that forwards for all of them: they stall together, and go on one plane after the other.
    """

    node: str
    seconds: float
    order: tuple[int, ...] | None = None
    gap_s: float = 0.0

    def apply(self, fabric: FaultyFabric) -> None:
        if self.node == ALL_SWITCHES:
            turn = {plane: place for place, plane in enumerate(self.order or ())}
            for name, switch in fabric.switches.items():
                place = turn.get(switch.plane, len(turn))
                fabric.stall_switch(name, self.seconds + place * (self.gap_s or ONE_AFTER_THE_OTHER_S))
        elif self.node in fabric.switches:
            fabric.stall_switch(self.node, self.seconds)
        else:
            fabric.host(self.node).stall(self.seconds, self.order, self.gap_s)


@dataclass(frozen=True, slots=True)
class Vanish(VirtualFault):
    """The process of a host dies without a word: its ports stay up, nobody answers. See VirtualFabric.start_process."""

    host: str

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.host(self.host).vanish()


@dataclass(frozen=True, slots=True)
class Heal(VirtualFault):
    """Undo everything: links up, switches on and forwarding, no impairments, lines as at first."""

    def apply(self, fabric: FaultyFabric) -> None:
        fabric.heal()


# ---- single packets ---------------------------------------------------------------------------------------

ONLY = ("all", "data", "control")


@dataclass(frozen=True, slots=True)
class Picked(VirtualFault):
    """Base of the faults that hit some of the packets from `a` to `b`. Exactly one way to pick must be given.

    Counting starts when the fault is applied, at 0, over the packets of the kind `only` names.
    """

    a: str
    b: str
    rate: float | None = None
    """Each packet with this probability ..."""
    every: int | None = None
    """... or every n-th (the first hit is number n - 1) ..."""
    packets: tuple[int, ...] | None = None
    """... or those with these numbers ..."""
    burst: int | None = None
    """... or this many in a row, starting with number 0, again each `period` packets when that is given."""
    period: int | None = None
    only: str = "all"
    """`data` (whole or trimmed), `control` or `all`."""
    both: bool = False
    impairment: ClassVar[str] = ""

    def __post_init__(self) -> None:
        given = [key for key in ("rate", "every", "packets", "burst") if getattr(self, key) is not None]
        if len(given) != 1:
            raise FaultError(f"{type(self).__name__}: give one of rate, every, packets, burst; got {given or 'none'}")
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise FaultError(f"rate = {self.rate}: must be 0 to 1")
        if any(value is not None and value < 1 for value in (self.every, self.burst, self.period)):
            raise FaultError("every, burst and period must be 1 or more")
        if self.only not in ONLY:
            raise FaultError(f"only = {self.only!r}: must be one of {', '.join(ONLY)}")

    def picker(self, rng: Random) -> Picker:
        """What decides for one direction of a link."""
        return Picker(
            rng, rate=self.rate, every=self.every, packets=self.packets, burst=self.burst, period=self.period,
            only=self.only,
        )  # fmt: skip

    def apply(self, fabric: FaultyFabric) -> None:
        for port in fabric.directions(self.a, self.b, self.both):
            port.set_impairment(self.impairment, self.picker(port.rng))


@dataclass(frozen=True, slots=True)
class Loss(Picked):
    """Packets are lost on the wire."""

    impairment: ClassVar[str] = "loss"


@dataclass(frozen=True, slots=True)
class Corrupt(Picked):
    """A bit flips on the wire: the iCRC of a whole packet fails at the receiver."""

    impairment: ClassVar[str] = "corrupt"


@dataclass(frozen=True, slots=True)
class Repeat(Picked):
    """A packet arrives twice."""

    impairment: ClassVar[str] = "repeat"


@dataclass(frozen=True, slots=True)
class Late(Picked):
    """Packets arrive `seconds` late (`twin`: a copy of them does), whatever others do meanwhile."""

    seconds: float = 1.0
    twin: bool = False
    impairment: ClassVar[str] = "late"

    def __post_init__(self) -> None:
        Picked.__post_init__(self)
        if self.seconds < 0:
            raise FaultError(f"seconds = {self.seconds}: must be 0 or more")

    def apply(self, fabric: FaultyFabric) -> None:
        for port in fabric.directions(self.a, self.b, self.both):
            port.set_impairment(self.impairment, Lateness(self.picker(port.rng), self.seconds, self.twin))
