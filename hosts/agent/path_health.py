"""EV health of one host: state of each path by its open and closed QPs (docs/architecture.md).

    {"op": "health", "peer": "h2"}       without `peer`: every peer that a QP was made for

    {"t": ..., "host": "h0", "mode": "srv6", "peers": [{"peer": "h2", "qps": 2, "evs": [{
        "ev": 257, "plane": 1,
        "uplink": 1,                      null where no uplink is taken (inside a rack) or the EV names none (ecmp)
        "address": "fcbb:bb00:2100:...",  outer destination; null in modes without an outer header
        "path": ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h2"],
        "state": "good",                  worst of the QPs': denied, assumed_bad, skip, good; unknown without a QP;
                                          port_down: a port at either end is down, so no QP uses the EV
        "ports_down": [],                 NIC ports of this plane that are down, as far as the host knows
        "active": true,                   in the rotation of a QP, and in use
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
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address
from typing import Any

from mrc_testbed.hosts.engine.events import EvProbeResult
from mrc_testbed.topologies.plan import Host, Plan, ev_uplink

COUNTS = ("sent", "acked", "lost", "marked", "trimmed", "probes_answered")
_SEVERITY = {"denied": 4, "assumed_bad": 3, "skip": 2, "good": 1, "unknown": 0}
PORT_DOWN = "port_down"
"""State of an EV whose plane has a port down at either end; only `denied` is shown before it."""


class _Tally:
    """Counts of closed QPs for one EV towards one peer, with the newest RTT of theirs or of a probe."""

    __slots__ = ("counts", "plane", "rtt_s")

    def __init__(self, plane: int) -> None:
        self.plane = plane
        self.counts = dict.fromkeys(COUNTS, 0)
        self.rtt_s: float | None = None


class PathHealth:
    """EV health of one host; the `ev_states` of a QP are what QueuePair.ev_states returns."""

    def __init__(self, plan: Plan, host: Host) -> None:
        self._plan, self._host = plan, host
        self._closed_tallies: dict[str, dict[int, _Tally]] = defaultdict(dict)

    def _tally(self, peer: str, ev: int, plane: int) -> _Tally:
        return self._closed_tallies[peer].setdefault(ev, _Tally(plane))

    def keep_counts(self, peer: str, ev_states: Iterable[dict[str, Any]]) -> None:
        """Keep the counts of a QP to `peer` that closes.

        With random EVs nothing is kept: those of one QP say nothing about other QPs.
        """
        if not self._plan.mode.ev_is_path:
            return
        for ev_state in ev_states:
            if ev_state["sent"] or ev_state["probes_answered"]:
                tally = self._tally(peer, ev_state["ev"], ev_state["plane"])
                for key in COUNTS:
                    tally.counts[key] += ev_state[key]
                if ev_state["srtt_s"] is not None:
                    tally.rtt_s = ev_state["srtt_s"]

    def on_probe_result(self, result: EvProbeResult) -> None:
        """Keep the RTT of an application's EV probe, unless its answer came back over another path."""
        if result.rtt_s is not None and not result.back_lost and self._plan.mode.ev_is_path:
            self._tally(result.peer, result.ev, result.plane).rtt_s = result.rtt_s

    @property
    def peers(self) -> set[str]:
        """Names of the peers with kept counts."""
        return set(self._closed_tallies)

    def report(
        self,
        peer: Host,
        qps: list[list[dict[str, Any]]],
        denied: Callable[[Host, Iterable[tuple[int, int]]], dict[int, list[str]]],
        ports_down: Mapping[int, list[str]],
    ) -> dict[str, Any]:
        """Return the health of the paths to one peer.

        `qps`: the EV states of each of its QPs. `ports_down`: NIC ports that are down at either end, by plane.
        """
        plan, tallies = self._plan, self._closed_tallies.get(peer.name, {})
        states_of_ev: dict[int, list[dict[str, Any]]] = {}
        planes: dict[int, int] = {}
        if plan.mode.ev_is_path or not qps:
            planes.update(plan.ev_planes(self._host, peer))
        for states in qps:
            for state in states:
                planes[state["ev"]] = state["plane"]
                states_of_ev.setdefault(state["ev"], []).append(state)
        denied_by = denied(peer, planes.items())
        evs = [
            self._row(peer, ev, plane, states_of_ev.get(ev, []), tallies.get(ev))
            | _usability(states_of_ev.get(ev, []), denied_by.get(ev, []), ports_down.get(plane, []))
            for ev, plane in sorted(planes.items(), key=lambda pair: (pair[1], pair[0]))
        ]
        return {"peer": peer.name, "qps": len(qps), "evs": evs}

    def _row(
        self, peer: Host, ev: int, plane: int, states: list[dict[str, Any]], tally: _Tally | None
    ) -> dict[str, Any]:
        """Return what is counted and measured of one EV, and its path."""
        plan = self._plan
        counts = {key: sum(state_json[key] for state_json in states) for key in COUNTS}
        rtts = [state_json["srtt_s"] for state_json in states if state_json["srtt_s"] is not None]
        rtt_s = sum(rtts) / len(rtts) if rtts else None
        if tally is not None:
            for key in COUNTS:
                counts[key] += tally.counts[key]
            rtt_s = tally.rtt_s if rtt_s is None else rtt_s
        return {
            "ev": ev,
            "plane": plane,
            "uplink": uplink_of(plan, self._host, peer, ev),
            "address": address_of(plan, self._host, peer, ev),
            "path": list(plan.path(self._host, peer, ev, plane).nodes),
            "rtt_s": rtt_s,
            **counts,
        }


def _usability(states: list[dict[str, Any]], denied_by: list[str], ports_down: list[str]) -> dict[str, Any]:
    """Return the state of an EV over all QPs, and what keeps packets off it."""
    state = max((state_json["state"] for state_json in states), key=_SEVERITY.__getitem__, default="unknown")
    if denied_by and not states:
        state = "denied"
    return {
        "state": shown_state(state, bool(ports_down)),
        "active": not ports_down and any(state_json["active"] for state_json in states),
        "ports_down": ports_down,
        "denied_by": denied_by,
    }


def shown_state(state: str, port_is_down: bool) -> str:
    """Return the state of an EV for people: a QP that is idle keeps calling an EV good whose port is down."""
    return PORT_DOWN if port_is_down and state != "denied" else state


def ports_down(plan: Plan, host: Host, peer: Host, local_ports: int, peer_ports: int) -> dict[int, list[str]]:
    """Return the NIC ports of two hosts that are down, by plane.

    Bit p of a mask of ports: the port of plane p is up.
    """
    ports = {
        plane: [
            plan.host_port(end, plane).interface
            for end, mask in ((host, local_ports), (peer, peer_ports))
            if not mask >> plane & 1
        ]
        for plane in range(plan.planes)
    }
    return {plane: names for plane, names in ports.items() if names}


def uplink_of(plan: Plan, host: Host, peer: Host, ev: int) -> int | None:
    """Return the T0 uplink of an EV; None where the EV names none, or none is taken."""
    return ev_uplink(ev) if plan.mode.ev_is_path and host.rack != peer.rack else None


def address_of(plan: Plan, host: Host, peer: Host, ev: int) -> str | None:
    """Return the outer destination of an EV's packets as text; None in modes without an outer header."""
    return str(IPv6Address(plan.template(host, peer).address(ev))) if plan.mode.outer_header else None
