"""Kinds of faults: what a scenario file says of each, what it means in a plan, and what it does.

    value = CutFault.value_type ...                  # what the file says after `cut:`, checked by its type
    mistakes = list(CutFault.check(value, plan))     # names that do not exist
    fault = CutFault.resolve(value, plan, dice)      # all draws made; str(fault) says it to people
    fault = CutFault.on("p0-t0-0 p0-t1-1")           # the same by hand
    fault.begin(target, held, number);  fault.end(target, held)

To add one: a class here, and its place in KINDS (those of scenario files, in the order of messages) or VIRTUAL_KINDS.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, model_validator

from mrc_testbed.faults.places import (
    Links,
    Mistake,
    Nodes,
    directions_of,
    host_mistakes,
    link_mistakes,
    links_of,
    node_mistakes,
    nodes_of,
    switch_mistakes,
)
from mrc_testbed.faults.target import Damage, Direction, FaultError, FaultHolds, FaultTarget, PacketChoice
from mrc_testbed.faults.terms import Part, Rate, Seconds, Share
from mrc_testbed.topologies.plan import Plan

DRAIN_S = 0.5
"""Between denying a plane's EVs and cutting its links."""
PLACES_NAMED = 8
"""Largest number of places that a text about a fault names one by one."""
PLACES_BEGUN = 2
"""Number of places named where there are more than that."""

Kind = TypeVar("Kind", bound="InjectedFault")


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """Base of all kinds. `targets`: links as Ends, or switches by name; () for what has no place.

    Fields beside `targets` are the figures of a kind, in the order in which people are told of them.
    """

    targets: tuple[Any, ...] = ()
    action: ClassVar[str]
    """Name of the kind: the key in a scenario file."""
    value_type: ClassVar[Any]
    """Type of its value there."""
    lasts: ClassVar[bool] = True
    """Whether the fault holds until end(), so that `for` makes sense."""
    symptom: ClassVar[Literal["down", "lossy"] | None] = None
    """Probe result under the fault: no packets arrive ("down"), or some are lost ("lossy").

    None: no symptom.
    """

    @classmethod
    def on(cls: type[Kind], *locations: str, **figures: Any) -> Kind:
        """The fault of some links ("p0-t0-0 p0-t1-1"), switches or hosts. Raises FaultError for wrong figures."""
        targets = tuple(tuple(location.split()) if " " in location else location for location in locations)
        try:
            return cls(targets, **figures)
        except TypeError as error:
            raise FaultError(f"{cls.action}: {error}") from None

    @classmethod
    def check(cls, value: Any, plan: Plan) -> Iterator[Mistake]:
        """Yield the errors of a file's value that names what a plan does not have."""
        yield from ()

    @classmethod
    def resolve(cls, value: Any, plan: Plan, dice: random.Random) -> InjectedFault:
        """The fault that a file's value means in a plan, every draw made."""
        raise NotImplementedError

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        """Begin the fault; `holds` takes what end() gives back. `number`: of the step, for dice of its own."""
        raise NotImplementedError

    def end(self, target: FaultTarget, holds: FaultHolds) -> None:
        """Undo it."""
        target.undo(holds)

    def to_json(self) -> dict[str, Any]:
        """`{"fault": "cut", "targets": [["p0-t0-0", "p0-t1-1"]], ...}`; fault_from_json() is the inverse."""
        return {"fault": self.action, **asdict(self)}

    @property
    def values(self) -> dict[str, Any]:
        """Return the figures of the fault by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "targets"}

    @property
    def places_text(self) -> str:
        """Return the names of the places of the fault; of many, the first ones and how many more there are."""
        names = [" ".join(target) if isinstance(target, tuple) else str(target) for target in self.targets]
        if len(names) <= PLACES_NAMED:
            return ", ".join(names)
        kind = "links" if isinstance(self.targets[0], tuple) else "nodes"
        return f"{', '.join(names[:PLACES_BEGUN])} and {len(names) - PLACES_BEGUN} more {kind}"

    def __str__(self) -> str:
        locations = self.places_text
        figures = " ".join(f"{key}={value}" for key, value in self.values.items() if value is not None)
        return " ".join(part for part in (self.action.replace("_", " "), locations, figures) if part)


# ---- links ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkFault(InjectedFault):
    """Base of those that a file says by links alone."""

    value_type: ClassVar[Any] = Links

    @classmethod
    def check(cls, value: Links, plan: Plan) -> Iterator[Mistake]:
        yield from (((), text) for text in link_mistakes(value, plan))

    @classmethod
    def resolve(cls, value: Links, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls(links_of(value, plan, dice))


@dataclass(frozen=True, slots=True)
class CutFault(LinkFault):
    """The cable is pulled: both ends lose their port."""

    action: ClassVar[str] = "cut"
    symptom: ClassVar[Literal["down", "lossy"] | None] = "down"

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            holds += target.cut(a, b)


@dataclass(frozen=True, slots=True)
class OneWayFault(LinkFault):
    """Packets from the first node to the second vanish; ports stay up.
    A drawn link loses one direction by the dice.
    """

    action: ClassVar[str] = "one_way"
    symptom: ClassVar[Literal["down", "lossy"] | None] = "down"

    @classmethod
    def resolve(cls, value: Links, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls(directions_of(value, plan, dice))

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            holds += target.swallow(a, b, both_ways=False)


@dataclass(frozen=True, slots=True)
class SilentFault(LinkFault):
    """Packets vanish both ways; ports stay up."""

    action: ClassVar[str] = "silent"
    symptom: ClassVar[Literal["down", "lossy"] | None] = "down"

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            holds += target.swallow(a, b, both_ways=True)


@dataclass(frozen=True, slots=True)
class RestoreFault(LinkFault):
    """Undo all faults of these links."""

    action: ClassVar[str] = "restore"
    lasts: ClassVar[bool] = False

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            target.restore(a, b)


class PacketPick(Part):
    """Packets of a link that are hit."""

    link: Links | None = None
    into: Literal["hosts"] | str | None = None
    """Instead of `link`: the receive side of a host's NIC ports, or of all `hosts`."""
    rate: Share | None = None
    pattern: str | None = None
    """0s and 1s, repeated packet by packet; 1 is hit."""
    direction: Literal["both", "up", "down"] = "both"

    @model_validator(mode="after")
    def _check_choice(self) -> PacketPick:
        if (self.link is None) == (self.into is None):
            raise ValueError("give one of link and into")
        if (self.rate is None) == (self.pattern is None):
            raise ValueError("give one of rate and pattern")
        if self.pattern is not None and (set(self.pattern) - set("01") or not self.pattern):
            raise ValueError(f"pattern {self.pattern!r}: 0s and 1s, one for each packet")
        return self


@dataclass(frozen=True, slots=True)
class LossFault(InjectedFault):
    """Packets are lost, by one of `rate`, `pattern` and `packets`; ports stay up. See PacketChoice."""

    rate: float | None = None
    pattern: str | None = None
    direction: Direction = "both"
    packets: tuple[int, ...] | None = None
    only: Literal["data", "control"] | None = None
    action: ClassVar[str] = "loss"
    value_type: ClassVar[Any] = PacketPick
    symptom: ClassVar[Literal["down", "lossy"] | None] = "lossy"
    damage: ClassVar[Damage] = "loss"

    def __post_init__(self) -> None:
        self.choice(0)  # raises FaultError for figures that choose nothing

    def choice(self, number: int) -> PacketChoice:
        """The packets that are hit, of step `number`."""
        return PacketChoice(self.rate, self.pattern, self.packets, self.only, seed=number + 1)

    @classmethod
    def check(cls, value: PacketPick, plan: Plan) -> Iterator[Mistake]:
        if value.link is not None:
            yield from ((("link",), text) for text in link_mistakes(value.link, plan))
        elif value.into is not None and value.into != "hosts":
            yield from ((("into",), text) for text in host_mistakes(value.into, plan))

    @classmethod
    def resolve(cls, value: PacketPick, plan: Plan, dice: random.Random) -> InjectedFault:
        if value.link is not None:
            return cls(links_of(value.link, plan, dice), value.rate, value.pattern, value.direction)
        hosts = [host.name for host in plan.hosts] if value.into == "hosts" else [value.into]
        links = [k for k in plan.links if k.lower.node in hosts]
        return cls(tuple((k.upper.node, k.lower.node) for k in links), value.rate, value.pattern, "one_way")

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            holds += target.impair(self.damage, a, b, self.choice(number), direction=self.direction)


@dataclass(frozen=True, slots=True)
class CorruptFault(LossFault):
    """A bit of packets flips, chosen as those of a loss are."""

    action: ClassVar[str] = "corrupt"
    damage: ClassVar[Damage] = "corrupt"


@dataclass(frozen=True, slots=True)
class DuplicateFault(LossFault):
    """Packets arrive twice, chosen as those of a loss are. Only in virtual time."""

    action: ClassVar[str] = "duplicate"
    symptom: ClassVar[Literal["down", "lossy"] | None] = None
    damage: ClassVar[Damage] = "duplicate"


@dataclass(frozen=True, slots=True)
class LateFault(LossFault):
    """Packets, or (`twin`) copies of them, arrive `seconds` late. Only in virtual time.
    The packets are chosen as for a loss.
    """

    seconds: float = 1.0
    twin: bool = False
    action: ClassVar[str] = "late"
    symptom: ClassVar[Literal["down", "lossy"] | None] = None

    def __post_init__(self) -> None:
        LossFault.__post_init__(self)
        if self.seconds < 0:
            raise FaultError(f"seconds = {self.seconds}: must be 0 or more")

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            holds += target.hold_up(
                a, b, self.choice(number), seconds=self.seconds, twin=self.twin, direction=self.direction
            )


class LineChange(Part):
    """New line properties of a link."""

    link: Links
    rate: Rate | None = None
    delay: Seconds | None = None
    direction: Literal["both", "up", "down"] = "both"


@dataclass(frozen=True, slots=True)
class LineFault(InjectedFault):
    """A link has another rate, delay or jitter, or reorders packets.
    Jitter and reordering exist only in virtual time.
    """

    rate: float | None = None
    delay: float | None = None
    direction: Direction = "both"
    jitter: float | None = None
    in_order: bool | None = None
    action: ClassVar[str] = "line"
    value_type: ClassVar[Any] = LineChange

    @classmethod
    def check(cls, value: LineChange, plan: Plan) -> Iterator[Mistake]:
        yield from ((("link",), text) for text in link_mistakes(value.link, plan))

    @classmethod
    def resolve(cls, value: LineChange, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls(links_of(value.link, plan, dice), value.rate, value.delay, value.direction)

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for a, b in self.targets:
            holds += target.set_line(
                a,
                b,
                rate_bps=self.rate,
                delay_s=self.delay,
                jitter_s=self.jitter,
                in_order=self.in_order,
                direction=self.direction,
            )


class FlapPart(Part):
    """`times` x (down for `down`, up for `up`); `times: null`: until it is undone."""

    link: Links
    down: Seconds = 1.0
    up: Seconds = 1.0
    times: Annotated[int, Field(ge=1)] | None = 5


@dataclass(frozen=True, slots=True)
class FlapFault(InjectedFault):
    """Links are cut and restored, again and again; `times` None: until it is undone."""

    down: float = 1.0
    up: float = 1.0
    times: int | None = 5
    action: ClassVar[str] = "flap"
    value_type: ClassVar[Any] = FlapPart
    lasts: ClassVar[bool] = False

    @classmethod
    def check(cls, value: FlapPart, plan: Plan) -> Iterator[Mistake]:
        yield from ((("link",), text) for text in link_mistakes(value.link, plan))

    @classmethod
    def resolve(cls, value: FlapPart, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls(links_of(value.link, plan, dice), value.down, value.up, value.times)

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        holds += target.flap(self.targets, down_s=self.down, up_s=self.up, times=self.times)


# ---- switches ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SwitchFault(InjectedFault):
    """Base of those that a file says by switches alone."""

    value_type: ClassVar[Any] = Nodes

    @classmethod
    def check(cls, value: Nodes, plan: Plan) -> Iterator[Mistake]:
        yield from (((), text) for text in switch_mistakes(value, plan))

    @classmethod
    def resolve(cls, value: Nodes, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls(nodes_of(value, plan, dice))


@dataclass(frozen=True, slots=True)
class BlackholeFault(SwitchFault):
    """Switches drop everything while their ports stay up."""

    action: ClassVar[str] = "blackhole"
    symptom: ClassVar[Literal["down", "lossy"] | None] = "down"

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for switch in self.targets:
            holds += target.blackhole(switch)


class Corrupting(Part):
    """A switch that flips a bit in a share of what it forwards."""

    switch: str
    rate: Share


@dataclass(frozen=True, slots=True)
class CorruptingSwitchFault(InjectedFault):
    """A switch flips a bit in a share of what it forwards."""

    rate: float = 0.0
    action: ClassVar[str] = "corrupts"
    value_type: ClassVar[Any] = Corrupting
    symptom: ClassVar[Literal["down", "lossy"] | None] = "lossy"

    @classmethod
    def check(cls, value: Corrupting, plan: Plan) -> Iterator[Mistake]:
        yield from ((("switch",), text) for text in switch_mistakes(value.switch, plan))

    @classmethod
    def resolve(cls, value: Corrupting, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls((value.switch,), value.rate)

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for switch in self.targets:
            holds += target.corrupt_switch(switch, self.rate)


# ---- power ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PowerFault(InjectedFault):
    """Base of those that a file says by nodes, which are switches or hosts."""

    value_type: ClassVar[Any] = Nodes

    @classmethod
    def check(cls, value: Nodes, plan: Plan) -> Iterator[Mistake]:
        yield from (((), text) for text in node_mistakes(value, plan))

    @classmethod
    def resolve(cls, value: Nodes, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls(nodes_of(value, plan, dice))


@dataclass(frozen=True, slots=True)
class PowerOffFault(PowerFault):
    """Switches lose their power and their state, hosts their processes and QPs; ports go down."""

    action: ClassVar[str] = "power_off"
    symptom: ClassVar[Literal["down", "lossy"] | None] = "down"

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for node in self.targets:
            holds += target.power_off(node)


@dataclass(frozen=True, slots=True)
class PowerOnFault(PowerFault):
    """Switches and hosts have power again: tables are empty, and no QP is known."""

    action: ClassVar[str] = "power_on"
    lasts: ClassVar[bool] = False

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for node in self.targets:
            target.power_on(node)


@dataclass(frozen=True, slots=True)
class RebootFault(PowerFault):
    """Switches and hosts go and come back empty, `off` seconds later (None: as long as fits the fabric)."""

    off: float | None = None
    action: ClassVar[str] = "reboot"
    lasts: ClassVar[bool] = False

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for node in self.targets:
            holds += target.reboot(node, self.off)


# ---- CPUs -------------------------------------------------------------------------------------------------

ALL_SWITCHES = "switches"
"""Target of a stall: the one process that forwards for all switches of a live fabric."""


@dataclass(frozen=True, slots=True)
class StallFault(InjectedFault):
    """A host or a switch has no CPU for a while. Only in virtual time.
    Arriving packets wait, nothing leaves, timers come late.

    `order`: planes in the order in which a host then reads its ports, `gap_s` apart: all that waited on the first one
    is read and acknowledged before the second is looked at, as a live host does that is held up. Planes not named
    come last. None: everything is read at once, in the order in which it came. ALL_SWITCHES stall together, and go on
    one plane after the other.
    """

    seconds: float = 1.0
    order: tuple[int, ...] | None = None
    gap_s: float = 0.0
    action: ClassVar[str] = "stall"
    lasts: ClassVar[bool] = False

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for node in self.targets:
            target.stall(node, self.seconds, order=self.order, gap_s=self.gap_s)


@dataclass(frozen=True, slots=True)
class VanishFault(InjectedFault):
    """The process of a host dies without a word: its ports stay up, nobody answers. Only in virtual time."""

    action: ClassVar[str] = "vanish"
    lasts: ClassVar[bool] = False
    symptom: ClassVar[Literal["down", "lossy"] | None] = "down"

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        for host in self.targets:
            target.vanish(host)


# ---- planes, control plane, everything --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrainFault(InjectedFault):
    """A plane taken out for maintenance: its EVs denied first, then its links cut.
    The end goes the other way round.
    """

    plane: int = 0
    action: ClassVar[str] = "drain"
    value_type: ClassVar[Any] = int

    @classmethod
    def check(cls, value: int, plan: Plan) -> Iterator[Mistake]:
        if not 0 <= value < plan.planes:
            yield (), f"no plane {value} (has: 0 to {plan.planes - 1})"

    @classmethod
    def resolve(cls, value: int, plan: Plan, dice: random.Random) -> InjectedFault:
        return cls((), value)

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        target.deny_plane(self.plane, True)
        holds.delayed = target.later(DRAIN_S, lambda: holds.extend(target.cut_plane(self.plane)))

    def end(self, target: FaultTarget, holds: FaultHolds) -> None:
        if holds.delayed is not None and holds.delayed.call_off():
            target.deny_plane(self.plane, False)
            return
        target.undo(holds)
        target.later(DRAIN_S, lambda: target.deny_plane(self.plane, False))


@dataclass(frozen=True, slots=True)
class ControllerFault(InjectedFault):
    """The controller's process is killed, or started again."""

    what: Literal["kill", "start"] = "kill"
    action: ClassVar[str] = "controller"
    value_type: ClassVar[Any] = Literal["kill", "start"]

    @classmethod
    def resolve(cls, value: Literal["kill", "start"], plan: Plan, dice: random.Random) -> InjectedFault:
        return cls((), value)

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        target.set_controller(self.what == "start")

    def end(self, target: FaultTarget, holds: FaultHolds) -> None:
        target.set_controller(self.what == "kill")


@dataclass(frozen=True, slots=True)
class HealFault(InjectedFault):
    """Undo everything."""

    action: ClassVar[str] = "heal"
    value_type: ClassVar[Any] = Literal[True]
    lasts: ClassVar[bool] = False

    @classmethod
    def resolve(cls, value: Literal[True], plan: Plan, dice: random.Random) -> InjectedFault:
        return cls()

    def begin(self, target: FaultTarget, holds: FaultHolds, number: int) -> None:
        target.heal()


KINDS: dict[str, type[InjectedFault]] = {
    kind.action: kind
    for kind in (
        CutFault,
        OneWayFault,
        SilentFault,
        RestoreFault,
        LossFault,
        CorruptFault,
        LineFault,
        FlapFault,
        BlackholeFault,
        CorruptingSwitchFault,
        PowerOffFault,
        PowerOnFault,
        RebootFault,
        DrainFault,
        ControllerFault,
        HealFault,
    )
}
"""Kinds by their keys in a scenario file."""
VIRTUAL_KINDS: dict[str, type[InjectedFault]] = {
    kind.action: kind for kind in (DuplicateFault, LateFault, StallFault, VanishFault)
}
"""Kinds that only a virtual fabric has, and no scenario file says."""


def fault_from_json(data: Any) -> InjectedFault:
    """The fault that InjectedFault.to_json() wrote. Raises FaultError."""
    kinds = KINDS | VIRTUAL_KINDS
    if not isinstance(data, dict) or data.get("fault") not in kinds:
        raise FaultError(f"a fault has a key `fault`, one of {', '.join(sorted(kinds))}; got {data!r}")
    kind = kinds[data["fault"]]
    values = {key: _tuples(value) for key, value in data.items() if key != "fault"}
    names = [field.name for field in fields(kind)]
    if unknown := sorted(set(values) - set(names)):
        raise FaultError(f"{kind.action} has no {', '.join(unknown)} (has: {', '.join(names)})")
    return kind(**values)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
