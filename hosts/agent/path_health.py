"""EV health of one host: what its QPs, present and gone, know of each path (`health`, docs/architecture.md).

    {"op": "health", "peer": "h2"}       without `peer`: every peer that a QP was made for

    {"t": ..., "host": "h0", "mode": "srv6", "peers": [{"peer": "h2", "qps": 2, "evs": [{
        "ev": 257, "plane": 1,
        "uplink": 1,                      null where no uplink is taken (inside a rack) or the EV names none (ecmp)
        "address": "fcbb:bb00:2100:...",  outer destination; null in modes without an outer header
        "path": ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h2"],
        "state": "good",                  worst of the QPs': denied, assumed_bad, skip, good; unknown without a QP
        "active": true,                   in the rotation of a QP
        "rtt_s": 0.0101,                  smoothed (gain 1/8), mean of the QPs; else what the last probe took; or null
        "sent": 812, "acked": 790, "lost": 1, "marked": 3, "trimmed": 0,       packets since the agent started
        "probes_answered": 3,
        "denied_by": ["p1-t0-0 p1-t1-1"]  denylist entries
    }]}]}

`acked` counts packets whose path is known: of a packet sent twice only the copy that a SACK names. `marked` counts
SACKs with SKIP_ONCE, `trimmed` trims before the last hop; each of both makes the EV SKIP, which is no event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from typing import Any

from mrc_testbed.hosts.engine.events import EvProbeResult
from mrc_testbed.topologies.plan import Host, Plan, ev_uplink

COUNTS = ("sent", "acked", "lost", "marked", "trimmed", "probes_answered")
_WORST = {"denied": 4, "assumed_bad": 3, "skip": 2, "good": 1, "unknown": 0}


class _Tally:
    """Of one EV towards one peer: what QPs that are gone have counted, and the newest RTT of theirs or of a probe."""

    __slots__ = ("counts", "plane", "rtt_s")

    def __init__(self, plane: int) -> None:
        self.plane = plane
        self.counts = dict.fromkeys(COUNTS, 0)
        self.rtt_s: float | None = None


class PathHealth:
    """Of one host; `ev_states` of a QP is as QueuePair.ev_states gives it."""

    def __init__(self, plan: Plan, here: Host) -> None:
        self._plan, self._here = plan, here
        self._gone: dict[str, dict[int, _Tally]] = defaultdict(dict)

    def _tally(self, peer: str, ev: int, plane: int) -> _Tally:
        return self._gone[peer].setdefault(ev, _Tally(plane))

    def leave(self, peer: str, ev_states: Iterable[dict[str, Any]]) -> None:
        """A QP to `peer` ends: keep its counts. In modes with random EVs they say nothing about other QPs."""
        if not self._plan.mode.ev_is_path:
            return
        for ev_state in ev_states:
            if ev_state["sent"] or ev_state["probes_answered"]:
                tally = self._tally(peer, ev_state["ev"], ev_state["plane"])
                for key in COUNTS:
                    tally.counts[key] += ev_state[key]
                if ev_state["srtt_s"] is not None:
                    tally.rtt_s = ev_state["srtt_s"]

    def probed(self, result: EvProbeResult) -> None:
        """An EV probe of the application ended. What came back another way says nothing of this path's RTT."""
        if result.rtt_s is not None and not result.back_lost and self._plan.mode.ev_is_path:
            self._tally(result.peer, result.ev, result.plane).rtt_s = result.rtt_s

    @property
    def peers(self) -> set[str]:
        """Those of whom something is kept."""
        return set(self._gone)

    def report(
        self,
        peer: Host,
        qps: list[list[dict[str, Any]]],
        denied: Callable[[Host, Iterable[tuple[int, int]]], dict[int, list[str]]],
    ) -> dict[str, Any]:
        """One peer; `qps`: the EV states of each of its QPs."""
        plan, gone = self._plan, self._gone.get(peer.name, {})
        found: dict[int, list[dict[str, Any]]] = {}
        planes: dict[int, int] = {}
        if plan.mode.ev_is_path or not qps:
            planes.update(plan.ev_planes(self._here, peer))
        for states in qps:
            for state in states:
                planes[state["ev"]] = state["plane"]
                found.setdefault(state["ev"], []).append(state)
        by = denied(peer, planes.items())
        evs = [
            self._row(peer, ev, plane, found.get(ev, []), gone.get(ev), by.get(ev, []))
            for ev, plane in sorted(planes.items(), key=lambda pair: (pair[1], pair[0]))
        ]
        return {"peer": peer.name, "qps": len(qps), "evs": evs}

    def _row(
        self, peer: Host, ev: int, plane: int, live: list[dict[str, Any]], gone: _Tally | None, denied_by: list[str]
    ) -> dict[str, Any]:
        plan = self._plan
        counts = {key: sum(one[key] for one in live) for key in COUNTS}
        rtts = [one["srtt_s"] for one in live if one["srtt_s"] is not None]
        rtt_s = sum(rtts) / len(rtts) if rtts else None
        if gone is not None:
            for key in COUNTS:
                counts[key] += gone.counts[key]
            rtt_s = gone.rtt_s if rtt_s is None else rtt_s
        state = max((one["state"] for one in live), key=_WORST.__getitem__, default="unknown")
        if denied_by and not live:
            state = "denied"
        return {
            "ev": ev,
            "plane": plane,
            "uplink": uplink_of(plan, self._here, peer, ev),
            "address": address_of(plan, self._here, peer, ev),
            "path": list(plan.path(self._here, peer, ev, plane).nodes),
            "state": state,
            "active": any(one["active"] for one in live),
            "rtt_s": rtt_s,
            **counts,
            "denied_by": denied_by,
        }


def uplink_of(plan: Plan, here: Host, peer: Host, ev: int) -> int | None:
    """T0 uplink of an EV; None where it names none, or none is taken."""
    return ev_uplink(ev) if plan.mode.ev_is_path and here.rack != peer.rack else None


def address_of(plan: Plan, here: Host, peer: Host, ev: int) -> str | None:
    """Outer destination of its packets as text; None in modes without an outer header."""
    return str(IPv6Address(plan.template(here, peer).address(ev))) if plan.mode.outer_header else None
