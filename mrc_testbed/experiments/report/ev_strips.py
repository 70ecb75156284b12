"""Strips of EV states over time, one per path of a flow, from a run's events.

    ev_lanes = lanes(measurement)                    # one per QP and EV: states over time
    rows = by_path(ev_lanes)                         # aggregated: one row per plane and T1, over all flows
    text = flow_svg("flow:h0-h2", ev_lanes, measurement)   # all strips of one flow, small SVG by hand

SKIP lasts a turn of the rotation and is no event of a run: it is not in the strips, but shows in packets over the EV.
"""

from __future__ import annotations

import html
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mrc_testbed.console.units import time_unit
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.faults import MARKS_MAX, fault_times
from mrc_testbed.topologies.plan import PlanError

STATES = {
    "good": ("GOOD", "#bfe3d3"),
    "assumed_bad": ("ASSUMED_BAD", "#D55E00"),
    "denied": ("DENIED", "#7a4a9a"),
    "port_down": ("port down", "#8a949e"),
    "failed": ("QP failed", "#b00020"),
}
"""State -> (name, colour). `port_down`: the NIC's or the peer's port of that plane has no link."""
LABEL, STRIP_WIDTH, TOP = 190, 810, 4
"""Width of the labels, width of the strips, top margin; in flow_svg's units."""
ROWS = ((3, 40), (8, 26))
"""(EVs, height of a row): rows for few EVs are high enough to read packets; others have ROW."""
ROW = 15
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
"""Units of time between two numbers of an axis."""
EDGES_MAX = 400
"""Most points in time of one strip of all flows."""
NARROW = 0.8
"""The narrowest rectangle of a strip, in its units."""
TITLES_MAX = 100
"""Most rectangles of a lane that have a tooltip with their times."""
TRAFFIC_POINTS = 120
Span = tuple[float, float, str]
"""Span of a state: (from, to, state), seconds."""


@dataclass(slots=True)
class EvLane:
    """One EV of one QP."""

    flow: str
    host: str
    peer: str
    qpn: int
    ev: int
    plane: int
    t1: str
    """T1 of the EV's path; empty inside a rack, and `p0-t1-*` where switches choose."""
    spans: list[Span]

    @property
    def changes(self) -> int:
        return len(self.spans) - 1


def lanes(measurement: Measurement) -> list[EvLane]:
    """Return all EVs of all QPs; of results without recorded EVs, only those that changed state."""
    outcome = measurement.outcome
    plan = measurement.plan.fabric
    moves: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for event in outcome.events:
        if event["what"] == "ev":
            moves.setdefault((event["host"], event["qpn"], event["ev"]), []).append(event)
    known = outcome.paths or _from_events(moves)
    ports = _ports(outcome.events)
    errors = {(e["host"], e["qpn"]): e["t"] for e in reversed(outcome.events) if e["what"] == "qp_error"}
    out = []
    for path in known:
        host, peer, qpn = path["host"], path["peer"], path["qpn"]
        for ev, plane, state in path["evs"]:
            spans = _spans(state, moves.get((host, qpn, ev), []), outcome.duration_s)
            for downtimes in (ports.get((host, None, plane)), ports.get((host, peer, plane))):
                spans = _overlay(spans, downtimes or [], "port_down")
            if (host, qpn) in errors:
                spans = _overlay(spans, [(errors[host, qpn], outcome.duration_s)], "failed")
            out.append(EvLane(path["flow"], host, peer, qpn, ev, plane, _t1_of(plan, host, peer, ev, plane), spans))
    return sorted(out, key=lambda lane: (lane.flow, lane.qpn, lane.plane, lane.ev))


def _from_events(moves: dict[tuple[str, int, int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {
            "flow": f"{host}-{e[0]['peer']}",
            "host": host,
            "peer": e[0]["peer"],
            "qpn": qpn,
            "evs": [[ev, e[0]["plane"], e[0]["old"]]],
        }
        for (host, qpn, ev), e in moves.items()
    ]


def _t1_of(plan: Any, host: str, peer: str, ev: int, plane: int) -> str:
    """Return the name of a path's T1; empty for an EV not in the plan (stev in virtual time)."""
    try:
        nodes = plan.path(plan.host(host), plan.host(peer), ev, plane).nodes
    except PlanError:
        return ""
    return nodes[2] if len(nodes) == 5 else ""


def _ports(events: list[dict[str, Any]]) -> dict[tuple[str, str | None, int], list[tuple[float, float]]]:
    """Return (host, peer or None for its own port, plane) -> downtimes (from, to) of that port."""
    out: dict[tuple[str, str | None, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["what"] != "plane":
            continue
        downs = out.setdefault((event["host"], event["peer"], event["plane"]), [])
        is_open = bool(downs) and downs[-1][1] == float("inf")
        if not event["up"] and not is_open:
            downs.append((event["t"], float("inf")))
        elif event["up"] and is_open:
            downs[-1] = (downs[-1][0], event["t"])
    return out


def _spans(state: str, moves: Iterable[dict[str, Any]], end: float) -> list[Span]:
    """Return the spans of states in order; SKIP counts as GOOD, at the start and on the way back."""
    out: list[Span] = []
    start_s, state = 0.0, "good" if state == "skip" else state
    for move in moves:
        new_state = "good" if move["new"] == "skip" else move["new"]
        time_s = min(max(move["t"], 0.0), end)
        if new_state == state or (move["t"] < 0 and not out):
            state = new_state
            continue
        if time_s > start_s:
            out.append((start_s, time_s, state))
        start_s, state = max(start_s, time_s), new_state
    out.append((start_s, end, state))
    return out


def _overlay(spans: list[Span], intervals: list[tuple[float, float]], state: str) -> list[Span]:
    """Return `spans` with `state` in all of `intervals`; equal neighbours are merged."""
    for low, high in intervals:
        out: list[Span] = []
        for start, stop, was in spans:
            overlap_start, overlap_stop = max(start, low), min(stop, high)
            if overlap_start >= overlap_stop:
                out.append((start, stop, was))
                continue
            if start < overlap_start:
                out.append((start, overlap_start, was))
            out.append((overlap_start, overlap_stop, state))
            if overlap_stop < stop:
                out.append((overlap_stop, stop, was))
        spans = out
    merged_spans: list[Span] = []
    for start, stop, was in spans:
        if merged_spans and merged_spans[-1][2] == was:
            merged_spans[-1] = (merged_spans[-1][0], stop, was)
        else:
            merged_spans.append((start, stop, was))
    return merged_spans


def by_path(lanes_shown: list[EvLane]) -> dict[str, list[EvLane]]:
    """Return lanes by plane and T1, over all flows: `plane 0 by p0-t1-2`."""
    out: dict[str, list[EvLane]] = {}
    for lane in sorted(lanes_shown, key=lambda lane: (lane.plane, lane.t1)):
        via_text = f" by {lane.t1}" if lane.t1 and not lane.t1.endswith("*") else ""
        out.setdefault(f"plane {lane.plane}{via_text}", []).append(lane)
    return out


def shares(row: list[EvLane]) -> tuple[list[float], dict[str, list[float]]]:
    """Return the edges of a row in time, and the share of its EVs in each state but good between edges.

    Edges are the times of changes, or those of EDGES_MAX equal steps (with means over the steps) if that is fewer.
    """
    edges = sorted({edge for lane in row for span in lane.spans for edge in span[:2]})
    if len(edges) > EDGES_MAX:
        edges = [edges[0] + (edges[-1] - edges[0]) * number / EDGES_MAX for number in range(EDGES_MAX + 1)]
    seconds = {state: [0.0] * len(edges) for state in STATES if state != "good"}
    for start, stop, state in (span for lane in row for span in lane.spans if span[2] in seconds):
        number = bisect_right(edges, start) - 1
        while number < len(edges) - 1 and edges[number] < stop:
            low, high = edges[number], edges[number + 1]
            seconds[state][number] += (min(stop, high) - max(start, low)) / (high - low)
            number += 1
    return edges, {state: [n / len(row) for n in values] for state, values in seconds.items() if any(values)}


# ---- strips of one flow, as SVG ---------------------------------------------------------------------------------


def flow_svg(flow: str, lanes_shown: list[EvLane], measurement: Measurement) -> str:
    """Return all strips of one flow: a row per EV (by QP), states as colours, packets as a line."""
    end = measurement.outcome.duration_s or 1.0
    has_several_qps = len({lane.qpn for lane in lanes_shown}) > 1
    row = next((high for lane_limit, high in ROWS if len(lanes_shown) <= lane_limit), ROW)
    height = TOP + row * len(lanes_shown) + 34
    changed_count = sum(lane.changes > 0 for lane in lanes_shown)
    words = f"{flow}: {len(lanes_shown)} EVs, {changed_count} of them changed"
    parts = [
        f'<svg viewBox="0 0 {LABEL + STRIP_WIDTH + 10} {height}" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{html.escape(words)}" font-family="sans-serif" font-size="10">'
    ]
    peak = _peak(measurement, flow)
    for number, lane in enumerate(lanes_shown):
        y = TOP + row * number
        label = f"plane {lane.plane}  EV {lane.ev:#06x}" + (f"  {lane.t1}" if lane.t1 else "")
        label += f"  QP {lane.qpn}" if has_several_qps else ""
        attributes = f'x="{LABEL - 6}" y="{y + row / 2 + 3:g}" text-anchor="end" fill="currentColor"'
        parts.append(f"<text {attributes}>{html.escape(label)}</text>")
        parts += _strip(lane, y, row, end)
        if not has_several_qps and peak:
            parts.append(_traffic(measurement, flow, lane, y, row, peak, end))
    parts += [_faults(measurement, end, TOP + row * len(lanes_shown)), _axis(end, TOP + row * len(lanes_shown))]
    return "".join(parts) + "</svg>"


def _strip(lane: EvLane, y: float, row: int, end: float) -> list[str]:
    """Return a lane as rectangles: GOOD for its whole width, other states above; near neighbours merged."""
    merged_spans: list[Span] = []
    near = NARROW * end / STRIP_WIDTH
    unit_name, unit = time_unit(end)
    for span in (lane_span for lane_span in lane.spans if lane_span[2] != "good"):
        if merged_spans and merged_spans[-1][2] == span[2] and span[0] - merged_spans[-1][1] < near:
            merged_spans[-1] = (merged_spans[-1][0], span[1], span[2])
        else:
            merged_spans.append(span)
    out = [f'<rect x="{LABEL}" y="{y}" width="{STRIP_WIDTH}" height="{row - 2}" fill="{STATES["good"][1]}"/>']
    for start, stop, state in merged_spans:
        x, width = LABEL + STRIP_WIDTH * start / end, max(STRIP_WIDTH * (stop - start) / end, NARROW)
        text = (
            f"<title>{STATES[state][0]} from {start / unit:.3f} to {stop / unit:.3f} {unit_name}</title>"
            if len(merged_spans) < TITLES_MAX
            else ""
        )
        attributes = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{row - 2}"'
        out.append(f'<rect {attributes} fill="{STATES[state][1]}">{text}</rect>')
    return out


def _peak(measurement: Measurement, flow: str) -> int:
    """Return the most packets that one EV of a flow carried in an interval; 0 if not recorded."""
    return max(
        (max(packets.values(), default=0) for packets in measurement.outcome.series.ev_packets.get(flow, [])), default=0
    )


def _traffic(measurement: Measurement, flow: str, lane: EvLane, y: float, row: int, peak: int, end: float) -> str:
    """Return packets over one EV as a line in its strip, from 0 (bottom) to the busiest EV's peak (top)."""
    series = measurement.outcome.series
    key = f"{lane.ev:#06x}"
    values = [packets.get(key, 0) for packets in series.ev_packets.get(flow, [])]
    step = max(1, -(-len(values) // TRAFFIC_POINTS))
    points = []
    for first in range(0, min(len(values), len(series.times_s)), step):
        window = values[first : first + step]
        x = LABEL + STRIP_WIDTH * min(series.times_s[min(first + step, len(series.times_s)) - 1], end) / end
        points.append(f"{x:.0f},{y + (row - 3) * (1 - sum(window) / len(window) / peak):.1f}")
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="#0b3d63" stroke-width="1"/>'


def _faults(measurement: Measurement, end: float, bottom: float) -> str:
    """Return lines where faults began (solid) and ended (dashed)."""
    out = []
    marks = fault_times(measurement)
    for t, text, is_start in marks if len(marks) <= MARKS_MAX else []:
        x = LABEL + STRIP_WIDTH * t / end
        dash = "" if is_start else ' stroke-dasharray="3 2"'
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom}" stroke="#c74040" stroke-width="0.8"{dash}>'
            f"<title>{html.escape(text)}</title></line>"
        )
    return "".join(out)


def _axis(end: float, y: float) -> str:
    """Return the time axis below the strips, with up to seven round numbers."""
    unit_name, unit = time_unit(end)
    length = end / unit
    step = next((s for s in STEPS if length / s <= 7), STEPS[-1])
    out = []
    for number in range(int(length / step + 1e-9) + 1):
        x = LABEL + STRIP_WIDTH * number * step / length
        out.append(f'<text x="{x:.1f}" y="{y + 13}" text-anchor="middle" fill="currentColor">{number * step:g}</text>')
    out.append(
        f'<text x="{LABEL + STRIP_WIDTH / 2}" y="{y + 27}" text-anchor="middle" fill="currentColor">'
        f"time, {unit_name}</text>"
    )
    return "".join(out)
