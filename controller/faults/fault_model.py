"""Symptoms and faults, with their texts and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mrc_testbed.controller.faults.diagnosis import Explanation, FailureMode, Finding
from mrc_testbed.controller.faults.path_segments import NO_PLANE, Cause, HostLinks, PathSegmenter, PathSegments
from mrc_testbed.topologies.plan import Link, PlanError, Switch

P4RUNTIME = "p4runtime"
EV = "ev"
MAPPER = "mapper"
DIGEST = "digest"
"""Source names of symptoms; a gNMI server's is `gnmi` and its address."""

COUNTERS = "counters"
BOTH_WAYS = "both"
"""Both directions of a link."""

SHOWN_ABOUT = 12
"""Most interfaces and paths listed as evidence of one source; further ones are only counted."""
SYMPTOMS_MAX = 256
"""Symptoms kept with one fault."""

SAME_LOSS = (0.6, 1.7)
"""Ratios between which two readings show the same loss.

Two counts of seven lost packets each differ by a factor of e ** sqrt(1/7 + 1/7) = 1.7 in one standard deviation, and
1 / 1.7 = 0.6.
"""
LEAST_LOSS = 1e-9
"""Divisor that replaces a measured loss of 0; below any loss that can be counted."""

PORT_IS_BAD = {
    "UP": False,
    "UNKNOWN": False,  # RFC 2863: the driver does not report it; Linux holds such an interface usable
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
    MERGED = "merged"  # turned out to be part of the faults in `merged_into`


@dataclass(slots=True, eq=False)
class Symptom:
    """Report of one source that a port, switch or path is bad. Times in seconds."""

    source: str
    subject_name: str
    """Interface, switch or path."""
    subject: Cause | PathSegments
    says: str
    onset: float
    """Begin of the symptom, by the source's own time where it reported one."""
    last_seen: float
    reported_at: float
    """Arrival of the report."""
    cleared_at: float | None = None
    """End of the symptom; None while it lasts."""
    is_lossy: bool = False
    attributed: bool = False
    """Whether it is part of a fault."""
    suppressed_until: float = float("-inf")
    """Time before which the symptom is no evidence, because a cleared fault explains it."""

    @property
    def plane(self) -> int:
        return self.subject.plane

    @property
    def is_certain(self) -> bool:
        """Return whether the subject is a port or a stream; that a path is bad may be chance."""
        return not isinstance(self.subject, PathSegments)

    def is_over(self, causes: frozenset[Cause]) -> bool:
        """Return whether the subject is a path that crosses one of the causes."""
        subject = self.subject
        return isinstance(subject, PathSegments) and any(PathSegmenter.crosses(subject, cause) for cause in causes)


@dataclass(slots=True, eq=False)
class Fault:
    """One thing that is broken. Times are CLOCK_MONOTONIC seconds."""

    number: int
    first_seen: float
    raised_at: float
    """Time of its report; later than `first_seen` by the hold-down."""
    plane: int
    """NO_PLANE for a host."""
    kind: str = ""
    """`link`, `lossy link`, `NIC port`, `T0`, `T1`, `blackhole`, `host` or `unclear`."""
    location: str = ""
    """Name of a switch or a host, or both ends of a link as in the CLI's `link` command.

    `A or B` when unclear.
    """
    text: str = ""
    mode: FailureMode = FailureMode.REPORTED_DOWN
    explanations: tuple[Explanation, ...] = ()
    loss: float | None = None
    arcs: frozenset[str] = frozenset()
    """Broken directions of a link whose ports are up; empty when not known."""
    direction: str | None = None
    """Text of `arcs`: `A -> B` or `both`; None when not known."""
    flaps: int = 0
    state: FaultState = FaultState.ACTIVE
    cleared_at: float | None = None
    """Time at which the fault was cleared or merged; None while active."""
    merged_into: list[int] = field(default_factory=list)
    """Numbers of the faults a merged one is part of."""
    symptoms: list[Symptom] = field(default_factory=list)
    restored_evidence: list[dict[str, Any]] = field(default_factory=list)
    """Evidence from before a restart of the controller, as stored in the journal."""

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
        times = [s.last_seen for s in self.symptoms] + [record["last_seen"] for record in self.restored_evidence]
        return max(times, default=self.first_seen)

    def attach(self, symptom: Symptom) -> bool:
        """Keep a symptom as evidence; return whether it is news: neither known nor one of many alike."""
        if len(self.symptoms) >= SYMPTOMS_MAX or any(s is symptom for s in self.symptoms):
            return False
        alike = [s for s in self.symptoms if s.source == symptom.source]
        self.symptoms.append(symptom)
        if symptom.cleared_at is None:
            self.first_seen = min(self.first_seen, symptom.onset) if not self.flaps else self.first_seen
        return len(alike) < SHOWN_ABOUT and not any(s.subject_name == symptom.subject_name for s in alike)

    def forget_cleared(self) -> None:
        """Drop the symptoms of the last occurrence, which are in the journal: the fault is active again."""
        self.symptoms = [s for s in self.symptoms if s.cleared_at is None]
        self.restored_evidence = []

    def describe(self, finding: Finding, links_of: Mapping[str, Sequence[Link]], symptoms: list[Symptom]) -> None:
        """Update the fault from a finding. While the fault lasts its text keeps the worst symptoms."""
        self._take_direction(finding)
        self.explanations, self.mode = finding.explanations, finding.mode
        if finding.mode is FailureMode.LOSSY:
            if not _is_same_loss(self.loss, finding.loss):
                self.loss = finding.loss  # keep the old figure where the new one differs by noise alone
        else:
            self.loss = 1.0 if finding.mode is FailureMode.SILENT_DOWN else None
        cause = self.certain_cause
        if cause is not None:
            self.kind, self.location = kind_of(cause, finding.mode), cause.name
            self.text = _text(cause, finding.mode, self.loss, self.direction, self.symptoms or symptoms, links_of)
        else:
            choices = [" and ".join(_name(c) for c in explanation) for explanation in finding.explanations]
            locations = [" and ".join(c.name for c in explanation) for explanation in finding.explanations]
            self.kind, self.location = "unclear", " or ".join(locations)
            self.text = f"cannot tell: {' or '.join(choices)} ({_SYMPTOM[finding.mode]})"
        if self.flaps >= 2:
            self.text += f", flapping ({self.flaps + 1} times)"

    def _take_direction(self, finding: Finding) -> None:
        """Keep a reported direction until another is reported or the ports go down: its evidence expires."""
        is_same = has_explanations_of(self, finding) and finding.mode is not FailureMode.REPORTED_DOWN
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
                [{"kind": kind_of(cause, self.mode), "location": cause.name} for cause in explanation]
                for explanation in (self.explanations if len(self.explanations) > 1 else ())
            ],
            "plane": None if self.plane == NO_PLANE else self.plane,
            "text": self.text,
            "how": self.mode.value,
            "loss": None if self.loss is None else round(self.loss, 4),
            "direction": self.direction,
            "flaps": self.flaps,
            "state": self.state.value,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "raised": self.raised_at,
            "cleared": self.cleared_at,
            "into": list(self.merged_into),
            "evidence": self.evidence(),
        }

    def evidence(self) -> list[dict[str, Any]]:
        """Return the evidence by source, in order of arrival."""
        by_source: dict[str, dict[str, Any]] = {
            record["source"]: {**record, "about": [*record["about"]]} for record in self.restored_evidence
        }
        for s in self.symptoms:
            record = by_source.setdefault(
                s.source,
                {
                    "source": s.source,
                    "says": s.says,
                    "about": [],
                    "count": 0,
                    "first_seen": s.onset,
                    "last_seen": s.last_seen,
                    "heard": s.reported_at,
                    "after_s": 0.0,
                    "cleared": s.cleared_at,
                },
            )
            record["count"] += 1
            if s.subject_name not in record["about"] and len(record["about"]) < SHOWN_ABOUT:
                record["about"].append(s.subject_name)
            record["first_seen"] = min(record["first_seen"], s.onset)
            record["last_seen"] = max(record["last_seen"], s.last_seen)
            record["heard"] = min(record["heard"], s.reported_at)
            # Evidence of a source has ended only when all its symptoms have; `cleared` is then the last end.
            if record["cleared"] is not None:
                record["cleared"] = None if s.cleared_at is None else max(record["cleared"], s.cleared_at)
        out = sorted(by_source.values(), key=lambda record: record["heard"])
        for record in out:
            record["after_s"] = round(record["heard"] - out[0]["heard"], 4)
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any], segmenter: PathSegmenter) -> Fault | None:
        """Return the fault of a stored record; None for an invalid record or one of another fabric."""
        try:
            names = [[cause["location"] for cause in choice] for choice in data["alternatives"]] or [[data["location"]]]
            explanations = tuple(tuple(_cause(segmenter, name) for name in choice) for choice in names)
            fault = cls(
                number=int(data["number"]),
                first_seen=float(data["first_seen"]),
                raised_at=float(data["raised"]),
                plane=NO_PLANE if data["plane"] is None else int(data["plane"]),
                kind=str(data["kind"]),
                location=str(data["location"]),
                text=str(data["text"]),
                mode=FailureMode(data["how"]),
                explanations=explanations,
                loss=data["loss"],
                direction=data["direction"],
                arcs=_arcs(explanations, data["direction"]),
                flaps=int(data["flaps"]),
                state=FaultState(data["state"]),
                cleared_at=data["cleared"],
                merged_into=[int(number) for number in data["into"]],
                restored_evidence=[dict(record) for record in data["evidence"]],
            )
            if any(cause.plane != fault.plane for cause in fault.causes):
                return None
            fault.to_json()  # raises for evidence that could not be reported again
            return fault
        except (KeyError, TypeError, ValueError, PlanError):
            return None


def direction_of(explanations: tuple[Explanation, ...], arcs: frozenset[str]) -> str | None:
    """Return the broken directions of a link in words; None when not known."""
    if not arcs or len(explanations) != 1:
        return None
    (link,) = explanations[0]
    assert isinstance(link, Link)
    if len(arcs) == 2:
        return BOTH_WAYS
    ends = (link.lower.node, link.upper.node)
    return " -> ".join(ends if link.lower.interface in arcs else ends[::-1])


def _arcs(explanations: tuple[Explanation, ...], direction: str | None) -> frozenset[str]:
    """Return the arcs of a direction in words, the inverse of direction_of. Raises ValueError."""
    if direction is None:
        return frozenset()
    ((link,),) = explanations
    if not isinstance(link, Link):
        raise ValueError(f"{direction}: {link.name} has no direction")
    for arcs in ({link.lower.interface}, {link.upper.interface}, {link.lower.interface, link.upper.interface}):
        if direction_of(explanations, frozenset(arcs)) == direction:
            return frozenset(arcs)
    raise ValueError(f"{direction}: no direction of {link.name}")


def _is_same_loss(known_loss: float | None, measured_loss: float | None) -> bool:
    """Return whether a reading confirms the known loss; a total loss (1.0) is a death, not a reading."""
    if known_loss in (None, 1.0) or measured_loss is None:
        return False
    lower, upper = SAME_LOSS
    return lower < known_loss / max(measured_loss, LEAST_LOSS) < upper


def _cause(segmenter: PathSegmenter, name: str) -> Cause:
    a, _, b = name.partition(" ")
    if b:
        return segmenter.plan.link(a, b)
    is_host = any(host.name == name for host in segmenter.plan.hosts)
    return HostLinks.from_plan(segmenter.plan, name) if is_host else segmenter.plan.switch(name)


# ---- words --------------------------------------------------------------------------------------------------

_SYMPTOM = {
    FailureMode.REPORTED_DOWN: "all their links went down together",
    FailureMode.SILENT_DOWN: "paths are dead and ports are up",
    FailureMode.LOSSY: "paths lose packets",
}


def key_of(explanations: tuple[Explanation, ...]) -> frozenset[frozenset[Cause]]:
    """Return a key of the explanations that does not depend on their order."""
    return frozenset(frozenset(explanation) for explanation in explanations)


def has_explanations_of(fault: Fault, finding: Finding) -> bool:
    """Return whether a fault has the explanations of a finding."""
    return key_of(fault.explanations) == key_of(finding.explanations)


def is_nic_link(cause: Cause) -> bool:
    """Return whether a cause is a link between a NIC and its T0."""
    return isinstance(cause, Link) and cause.is_nic


def kind_of(cause: Cause, mode: FailureMode) -> str:
    """Return the kind of a cause in words: blackhole, T1, lossy link, NIC port, host, ..."""
    if isinstance(cause, HostLinks):
        return "host"
    if isinstance(cause, Switch):
        return "blackhole" if mode is FailureMode.SILENT_DOWN else f"T{cause.tier}"
    if mode is not FailureMode.REPORTED_DOWN:
        return "lossy link"
    return "NIC port" if is_nic_link(cause) else "link"


def _name(cause: Cause, direction: str | None = None) -> str:
    if isinstance(cause, HostLinks):
        return f"host {cause.name}"
    if isinstance(cause, Switch):
        return f"T{cause.tier} {cause.name}"
    location = cause.name if direction in (None, BOTH_WAYS) else direction
    return f"{cause.kind} link {location}" + (" both ways" if direction == BOTH_WAYS else "")


def _text(
    cause: Cause,
    mode: FailureMode,
    loss: float | None,
    direction: str | None,
    symptoms: list[Symptom],
    links_of: Mapping[str, Sequence[Link]],
) -> str:
    name = _name(cause, direction)
    if mode is FailureMode.SILENT_DOWN:
        if isinstance(cause, Switch):
            return f"{name} forwards nothing while its ports are up (blackhole)"
        return f"{name} loses everything while its ports are up"
    if mode is FailureMode.LOSSY:
        share = "some" if loss is None else f"{100 * loss:.2g} %"
        return f"{name} loses {share} of its packets"
    if isinstance(cause, Link):
        return f"{name} down"
    if isinstance(cause, HostLinks):
        return f"{name} down (all {len(cause.links)} NIC links down)"
    signs = ["P4Runtime stream lost"] if any(s.source == P4RUNTIME for s in symptoms) else []
    total = len(links_of[cause.name])
    down_count = len({s.subject for s in symptoms if isinstance(s.subject, Link)} & set(links_of[cause.name]))
    if down_count:
        signs.append(f"all {down_count} links down" if down_count == total else f"{down_count} of {total} links down")
    return f"{name} ({', '.join(signs) or 'as remembered'})"
