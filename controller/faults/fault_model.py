"""Symptoms and faults, with their texts and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mrc_testbed.controller.faults.diagnosis import Explanation, Finding, How
from mrc_testbed.controller.faults.path_segments import Cause, PathSegmenter, PathSegments
from mrc_testbed.topologies.plan import Link, PlanError, Switch

P4RUNTIME = "p4runtime"
EV = "ev"
MAPPER = "mapper"
DIGEST = "digest"
"""Source names of symptoms; a gNMI server's is `gnmi` and its address."""

COUNTERS = "counters"
BOTH = "both"
"""Both directions of a link."""

SHOWN_ABOUT = 12
"""Interfaces and paths that one source's evidence names; the rest is counted."""
SYMPTOMS_MAX = 256
"""Symptoms kept with one fault."""

SAME_LOSS = (0.6, 1.7)
"""Ratios between which two readings show the same loss: two counts of seven lost packets each are apart by a factor of
e ** sqrt(1/7 + 1/7) = 1.7 in one standard deviation, and 1 / 1.7 = 0.6."""
LEAST_LOSS = 1e-9
"""Divisor in place of a measured loss of 0, below any loss that can be counted."""

PORT_IS_BAD = {
    "UP": False,
    "UNKNOWN": False,  # RFC 2863: the driver does not tell; Linux holds such an interface usable
    "DORMANT": True,
    "TESTING": True,
    "DOWN": True,
    "LOWER_LAYER_DOWN": True,
    "NOT_PRESENT": True,
}
"""Whether an oper-status (openconfig-interfaces) means that no packet passes."""


class FaultState(Enum):
    """State in the life cycle of a fault."""

    ACTIVE = "active"
    CLEARED = "cleared"  # nothing reports it any more
    MERGED = "merged"  # turned out to be part of the faults in `into`


@dataclass(slots=True, eq=False)
class Symptom:
    """One source reports that one thing is bad, from `since` to `cleared` (None: still). Times in seconds."""

    source: str
    about: str
    """Interface, switch or path."""
    subject: Cause | PathSegments
    says: str
    since: float
    """By the source's own clock, where it told one."""
    last_seen: float
    heard: float
    """Arrival of its report."""
    cleared: float | None = None
    is_lossy: bool = False
    attributed: bool = False
    """Whether it is part of a fault."""
    suppressed_until: float = float("-inf")
    """A cleared fault explained it: it is no evidence before this time."""

    @property
    def plane(self) -> int:
        return self.subject.plane

    @property
    def is_certain(self) -> bool:
        """Whether it is about a port or a stream; that a path is bad may be chance."""
        return not isinstance(self.subject, PathSegments)

    def is_over(self, causes: frozenset[Cause]) -> bool:
        """Whether it is about a path that crosses one of the causes."""
        subject = self.subject
        return isinstance(subject, PathSegments) and any(PathSegmenter.crosses(subject, cause) for cause in causes)


@dataclass(slots=True, eq=False)
class Fault:
    """One thing that is broken. Times are CLOCK_MONOTONIC seconds."""

    number: int
    first_seen: float
    raised: float
    """Time at which it was named."""
    plane: int
    kind: str = ""
    """`link`, `lossy link`, `NIC port`, `T0`, `T1`, `blackhole` or `unclear`."""
    location: str = ""
    """Switch name, or the two ends of a link as the CLI's `link` command names them; `A or B` when unclear."""
    text: str = ""
    how: How = How.DOWN
    explanations: tuple[Explanation, ...] = ()
    loss: float | None = None
    arcs: frozenset[str] = frozenset()
    """Of a link whose ports are up: its broken directions, where that could be told."""
    direction: str | None = None
    """Of the same: `A -> B` or `both` (reads the arcs)."""
    flaps: int = 0
    state: FaultState = FaultState.ACTIVE
    cleared: float | None = None
    """Time at which it was cleared or merged; None while active."""
    into: list[int] = field(default_factory=list)
    """Numbers of the faults a merged one is part of."""
    symptoms: list[Symptom] = field(default_factory=list)
    past: list[dict[str, Any]] = field(default_factory=list)
    """Evidence of an earlier life, as it was written down."""

    @property
    def causes(self) -> frozenset[Cause]:
        return frozenset(cause for explanation in self.explanations for cause in explanation)

    @property
    def certain_cause(self) -> Cause | None:
        """The root cause, when there is exactly one."""
        if len(self.explanations) == 1 and len(self.explanations[0]) == 1:
            return self.explanations[0][0]
        return None

    @property
    def last_seen(self) -> float:
        """Time of the newest symptom."""
        seen = [s.last_seen for s in self.symptoms] + [one["last_seen"] for one in self.past]
        return max(seen, default=self.first_seen)

    def attach(self, symptom: Symptom) -> bool:
        """Keep a symptom as evidence; False when it is known, or one of too many alike."""
        if len(self.symptoms) >= SYMPTOMS_MAX or any(s is symptom for s in self.symptoms):
            return False
        alike = [s for s in self.symptoms if s.source == symptom.source]
        self.symptoms.append(symptom)
        if symptom.cleared is None:
            self.first_seen = min(self.first_seen, symptom.since) if not self.flaps else self.first_seen
        return len(alike) < SHOWN_ABOUT and not any(s.about == symptom.about for s in alike)

    def forget_cleared(self) -> None:
        """Drop the symptoms of its last occurrence, which are in the journal: it is active again."""
        self.symptoms = [s for s in self.symptoms if s.cleared is None]
        self.past = []

    def describe(self, finding: Finding, links_of: Mapping[str, Sequence[Link]], symptoms: list[Symptom]) -> None:
        """Take over what was found, in words. While it lasts the text says what was seen at its worst."""
        self._take_direction(finding)
        self.explanations, self.how = finding.explanations, finding.how
        if finding.how is How.LOSSY:
            if not _is_same_loss(self.loss, finding.loss):
                self.loss = finding.loss  # the same loss, measured again, is no news
        else:
            self.loss = 1.0 if finding.how is How.SILENT else None
        cause = self.certain_cause
        if cause is not None:
            self.kind, self.location = kind_of(cause, finding.how), cause.name
            self.text = _text(cause, finding.how, self.loss, self.direction, self.symptoms or symptoms, links_of)
        else:
            choices = [" and ".join(_name(c) for c in explanation) for explanation in finding.explanations]
            places = [" and ".join(c.name for c in explanation) for explanation in finding.explanations]
            self.kind, self.location = "unclear", " or ".join(places)
            self.text = f"cannot tell: {' or '.join(choices)} ({_SYMPTOM[finding.how]})"
        if self.flaps >= 2:
            self.text += f", flapping ({self.flaps + 1} times)"

    def _take_direction(self, finding: Finding) -> None:
        """Once told it stays until another one is, or the link's ports go down: its evidence grows old."""
        is_same = named_alike(self, finding) and finding.how is not How.DOWN
        self.arcs = finding.arcs or (self.arcs if is_same else frozenset())
        self.direction = direction_of(finding.explanations, self.arcs)

    # ---- to and from JSON -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind,
            "location": self.location,
            "certain": len(self.explanations) == 1,
            "alternatives": [
                [{"kind": kind_of(cause, self.how), "location": cause.name} for cause in explanation]
                for explanation in (self.explanations if len(self.explanations) > 1 else ())
            ],
            "plane": self.plane,
            "text": self.text,
            "how": self.how.value,
            "loss": None if self.loss is None else round(self.loss, 4),
            "direction": self.direction,
            "flaps": self.flaps,
            "state": self.state.value,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "raised": self.raised,
            "cleared": self.cleared,
            "into": list(self.into),
            "evidence": self.evidence(),
        }

    def evidence(self) -> list[dict[str, Any]]:
        """Evidence by source, in order of arrival."""
        by_source: dict[str, dict[str, Any]] = {one["source"]: {**one, "about": [*one["about"]]} for one in self.past}
        for s in self.symptoms:
            one = by_source.setdefault(
                s.source,
                {
                    "source": s.source,
                    "says": s.says,
                    "about": [],
                    "count": 0,
                    "first_seen": s.since,
                    "last_seen": s.last_seen,
                    "heard": s.heard,
                    "after_s": 0.0,
                    "cleared": s.cleared,
                },
            )
            one["count"] += 1
            if s.about not in one["about"] and len(one["about"]) < SHOWN_ABOUT:
                one["about"].append(s.about)
            one["first_seen"] = min(one["first_seen"], s.since)
            one["last_seen"] = max(one["last_seen"], s.last_seen)
            one["heard"] = min(one["heard"], s.heard)
            if one["cleared"] is not None:
                one["cleared"] = None if s.cleared is None else max(one["cleared"], s.cleared)
        out = sorted(by_source.values(), key=lambda one: one["heard"])
        for one in out:
            one["after_s"] = round(one["heard"] - out[0]["heard"], 4)
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any], segmenter: PathSegmenter) -> Fault | None:
        """A fault as it was written down; None for what is none or is of another fabric."""
        try:
            names = [[one["location"] for one in choice] for choice in data["alternatives"]] or [[data["location"]]]
            explanations = tuple(tuple(_cause(segmenter, name) for name in choice) for choice in names)
            fault = cls(
                number=int(data["number"]),
                first_seen=float(data["first_seen"]),
                raised=float(data["raised"]),
                plane=int(data["plane"]),
                kind=str(data["kind"]),
                location=str(data["location"]),
                text=str(data["text"]),
                how=How(data["how"]),
                explanations=explanations,
                loss=data["loss"],
                direction=data["direction"],
                arcs=_arcs(explanations, data["direction"]),
                flaps=int(data["flaps"]),
                state=FaultState(data["state"]),
                cleared=data["cleared"],
                into=[int(number) for number in data["into"]],
                past=[dict(one) for one in data["evidence"]],
            )
            if any(cause.plane != fault.plane for cause in fault.causes):
                return None
            fault.to_json()  # evidence that cannot be told again is none
            return fault
        except (KeyError, TypeError, ValueError, PlanError):
            return None


def direction_of(explanations: tuple[Explanation, ...], arcs: frozenset[str]) -> str | None:
    """The broken directions of a link in words."""
    if not arcs or len(explanations) != 1:
        return None
    (link,) = explanations[0]
    assert isinstance(link, Link)
    if len(arcs) == 2:
        return BOTH
    ends = (link.lower.node, link.upper.node)
    return " -> ".join(ends if link.lower.interface in arcs else ends[::-1])


def _arcs(explanations: tuple[Explanation, ...], direction: str | None) -> frozenset[str]:
    """Inverse of direction_of. Raises ValueError."""
    if direction is None:
        return frozenset()
    ((link,),) = explanations
    if not isinstance(link, Link):
        raise ValueError(f"{direction}: {link.name} has no direction")
    for arcs in ({link.lower.interface}, {link.upper.interface}, {link.lower.interface, link.upper.interface}):
        if direction_of(explanations, frozenset(arcs)) == direction:
            return frozenset(arcs)
    raise ValueError(f"{direction}: no direction of {link.name}")


def _is_same_loss(old: float | None, new: float | None) -> bool:
    """Whether a reading shows the loss that is known already; a total loss (1.0) is a death, not a reading."""
    if old in (None, 1.0) or new is None:
        return False
    least, most = SAME_LOSS
    return least < old / max(new, LEAST_LOSS) < most


def _cause(segmenter: PathSegmenter, name: str) -> Cause:
    a, _, b = name.partition(" ")
    return segmenter.plan.link(a, b) if b else segmenter.plan.switch(name)


# ---- words --------------------------------------------------------------------------------------------------

_SYMPTOM = {
    How.DOWN: "all their links went down together",
    How.SILENT: "paths are dead and ports are up",
    How.LOSSY: "paths lose packets",
}


def key_of(explanations: tuple[Explanation, ...]) -> frozenset[frozenset[Cause]]:
    """The same for the same explanations in any order."""
    return frozenset(frozenset(explanation) for explanation in explanations)


def named_alike(fault: Fault, finding: Finding) -> bool:
    """Whether a fault has the explanations of a finding."""
    return key_of(fault.explanations) == key_of(finding.explanations)


def is_nic(cause: Cause) -> bool:
    """A link between a NIC and its T0."""
    return isinstance(cause, Link) and cause.lower.node.startswith("h")


def kind_of(cause: Cause, how: How) -> str:
    """Kind of a cause in words: blackhole, T1, lossy link, NIC port, ..."""
    if isinstance(cause, Switch):
        return "blackhole" if how is How.SILENT else f"T{cause.tier}"
    if how is not How.DOWN:
        return "lossy link"
    return "NIC port" if is_nic(cause) else "link"


def _name(cause: Cause, direction: str | None = None) -> str:
    if isinstance(cause, Switch):
        return f"T{cause.tier} {cause.name}"
    place = cause.name if direction in (None, BOTH) else direction
    return f"{'NIC-T0' if is_nic(cause) else 'T0-T1'} link {place}" + (" both ways" if direction == BOTH else "")


def _text(
    cause: Cause,
    how: How,
    loss: float | None,
    direction: str | None,
    symptoms: list[Symptom],
    links_of: Mapping[str, Sequence[Link]],
) -> str:
    name = _name(cause, direction)
    if how is How.SILENT:
        if isinstance(cause, Switch):
            return f"{name} forwards nothing while its ports are up (blackhole)"
        return f"{name} loses everything while its ports are up"
    if how is How.LOSSY:
        share = "some" if loss is None else f"{100 * loss:.2g} %"
        return f"{name} loses {share} of its packets"
    if isinstance(cause, Link):
        return f"{name} down"
    signs = ["P4Runtime stream lost"] if any(s.source == P4RUNTIME for s in symptoms) else []
    total = len(links_of[cause.name])
    bad = len({s.subject for s in symptoms if isinstance(s.subject, Link)} & set(links_of[cause.name]))
    if bad:
        signs.append(f"all {bad} links down" if bad == total else f"{bad} of {total} links down")
    return f"{name} ({', '.join(signs) or 'as remembered'})"
