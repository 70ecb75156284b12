"""Burst of probes over every link, in both classes, for `mrc check`. Pure; `now` is a parameter.

A burst says of each link what its probes say once the links before it are taken into account: a T1 probe also crosses
the NIC-T0 link of its host, so it is evidence about its T0-T1 link only when the T0 probes of that host and plane were
well. A link that nobody could look at is `unknown`, and says behind what it lies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.hosts.clustermapper.packets import ReturnedProbe, ServiceClass
from mrc_testbed.hosts.clustermapper.targets import ProbeTarget, TargetKind
from mrc_testbed.topologies.plan import Link, Plan

COUNT = 50
COUNT_MAX = 10_000
GAP_S = 0.01
"""Seconds between two probes of one target and class, when the fabric is small."""
PROBES_PER_S = 6000.0
"""Rate of probes to all targets together.

One process and the switches carry it beside other work on 2 cores."""
PATIENCE_S = 0.5
LOSSY_SHARE = 0.05


@dataclass(slots=True)
class BurstTally:
    """Result of one target's probes of one class. Times in seconds."""

    sent: int = 0
    returned_count: int = 0
    trimmed: int = 0
    marked: int = 0
    rtts: list[float] = field(default_factory=list)
    sequences: set[int] = field(default_factory=set)

    @property
    def loss(self) -> float:
        return 1.0 - self.returned_count / self.sent if self.sent else 0.0

    @property
    def state(self) -> str:
        """ok, lossy (LOSSY_SHARE or more lost), down (nothing came back), or unknown (nothing was sent)."""
        if not self.sent:
            return "unknown"
        if not self.returned_count:
            return "down"
        return "lossy" if self.loss >= LOSSY_SHARE else "ok"

    def add(self, tally: BurstTally) -> None:
        self.sent += tally.sent
        self.returned_count += tally.returned_count
        self.trimmed += tally.trimmed
        self.marked += tally.marked
        self.rtts += tally.rtts

    def to_json(self) -> dict[str, Any]:
        rtts = sorted(self.rtts)
        return {
            "state": self.state,
            "sent": self.sent,
            "back": self.returned_count,
            "loss": round(self.loss, 4),
            "trimmed": self.trimmed,
            "marked": self.marked,
            "rtt_min_s": rtts[0] if rtts else None,
            "rtt_median_s": rtts[len(rtts) // 2] if rtts else None,
            "rtt_max_s": rtts[-1] if rtts else None,
        }


class Burst:
    """`count` probes to each target in each class. Raises ValueError for a count that is none."""

    def __init__(
        self, targets: tuple[ProbeTarget, ...], classes: tuple[ServiceClass, ...], count: int, stream: int, now: float
    ) -> None:
        if not 1 <= count <= COUNT_MAX:
            raise ValueError(f"count = {count}: give 1 to {COUNT_MAX} probes")
        self.targets, self.classes, self.count, self.stream = targets, classes, count, stream
        self.tallies = {(t.number, c): BurstTally() for t in targets for c in classes}
        self.gap_s = max(GAP_S, len(self.tallies) / PROBES_PER_S)
        self.began_at = now
        self.next_at = now
        self.sequence = 0
        self.stalled_s = 0.0
        """Longest delay of this process's wake-ups during the burst, seconds.

        Large numbers mean that the machine is overloaded."""

    def next_timer(self) -> float:
        return self.next_at

    def due(self, now: float) -> int | None:
        """Return the sequence number to send to every target in every class now, or None."""
        if self.sequence >= self.count or now < self.next_at:
            return None
        self.sequence += 1
        last = self.sequence == self.count
        self.next_at = now + PATIENCE_S if last else max(self.next_at + self.gap_s, now + self.gap_s / 2)
        return self.sequence

    def is_over(self, now: float) -> bool:
        """Whether all probes are back, or the wait for the last is over."""
        if self.sequence < self.count:
            return False
        return now >= self.next_at or all(t.returned_count >= t.sent for t in self.tallies.values())

    def sent(self, number: int, service_class: ServiceClass) -> None:
        self.tallies[number, service_class].sent += 1

    def on_return(self, probe: ReturnedProbe, rtt_s: float) -> None:
        """Count a returned probe of this burst; copies count once."""
        tally = self.tallies.get((probe.target, ServiceClass(probe.service_class)))
        if tally is None or probe.sequence in tally.sequences or not 0 < probe.sequence <= self.sequence:
            return
        tally.sequences.add(probe.sequence)
        tally.returned_count += 1
        tally.trimmed += probe.trimmed
        tally.marked += probe.marked
        tally.rtts.append(rtt_s)

    def links_json(self, plan: Plan) -> list[dict[str, Any]]:
        """Return a row for each link of the plan, in its order."""
        by_link: dict[Link, list[ProbeTarget]] = {}
        for target in self.targets:
            by_link.setdefault(target.link, []).append(target)
        first = {(t.host, t.plane): t for t in self.targets if t.kind is TargetKind.T0}
        return [self._link_json(link, by_link.get(link, []), first) for link in plan.links]

    def _link_json(
        self, link: Link, targets: list[ProbeTarget], first: dict[tuple[str, int], ProbeTarget]
    ) -> dict[str, Any]:
        row: dict[str, Any] = {"link": link.name, "plane": link.plane, "kind": link.kind}
        if not targets:
            return {**row, "state": "unknown", "why": "no host probes it: T1 self-probes need SRv6", "by": []}
        clear = [t for t in targets if t.kind is TargetKind.T0 or self._is_well(first[t.host, t.plane])]
        if not clear:
            failed_links = sorted({first[t.host, t.plane].link.name for t in targets})
            return {**row, "state": "unknown", "why": f"behind {' and '.join(failed_links)}", "by": []}
        row["by"] = [t.host for t in clear]
        states = []
        for service_class in self.classes:
            tally = BurstTally()
            for target in clear:
                tally.add(self.tallies[target.number, service_class])
            row[service_class.label] = tally.to_json()
            states.append(tally.state)
        worst_state = next(s for s in ("down", "lossy", "unknown", "ok") if s in states)
        return {**row, "state": worst_state, "why": ""}

    def _is_well(self, target: ProbeTarget) -> bool:
        return all(self.tallies[target.number, c].state == "ok" for c in self.classes)
