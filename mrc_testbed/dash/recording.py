"""A finished run as the page shows it: one file, no server, with a slider for the time.

Everything comes from a folder of results: the plan, injected faults, the controller's findings, states of EVs, rates
and counts by interval. What a run did not record is null here and said on the page; nothing is made up.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mrc_testbed.dash import page_files
from mrc_testbed.dash.drawing import drawing
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.ev_strips import EvLane, lanes
from mrc_testbed.experiments.report.faults import fault_times, spans_of
from mrc_testbed.experiments.report.page import measured_runs
from mrc_testbed.experiments.results import ResultsError
from mrc_testbed.experiments.run_store import file_name
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.hosts.agent.path_health import address_of
from mrc_testbed.topologies.plan import Link, Plan, PlanError

DOWN = ("cut", "flap")
"""Actions that take the link of ports."""
OFF = ("power_off", "reboot")
POINTS_MAX = 600
"""Intervals that a page has; of more, several become one."""
PAIRS_MAX = 64
"""Pairs of hosts whose paths a page has."""
WORST = ("failed", "denied", "assumed_bad", "port_down", "good")
"""States of one EV in several QPs: the page shows the first of these."""


def write_pages(folder: Path) -> list[Path]:
    """Write DIR/replay/RUN.html for every run of a folder of results; their paths. Raises ResultsError."""
    results, runs = measured_runs(folder)
    if not runs:
        raise ResultsError(f"{folder}: no run has ended yet: there is nothing to show")
    out = folder / "replay"
    out.mkdir(exist_ok=True)
    written = []
    for name, _, measurement in runs:
        path = out / f"{file_name(name)}.html"
        write_whole(path, page(recording(name, measurement, results.manifest)).encode())
        written.append(path)
    return written


def page(data: dict[str, Any]) -> str:
    """The page with its script, its style and a recording inside. The browser runs and loads nothing else."""
    whole = page_files.text("/")
    allowed: dict[str, list[str]] = {"text/javascript": [], "text/css": []}
    for path, kind in page_files.CONTENT_TYPES.items():
        if kind in allowed:
            inside = page_files.text(path)
            allowed[kind].append(f"'{_digest(inside)}'")
            if kind == "text/css":
                whole = _put(whole, f'<link rel="stylesheet" href="{path}">', f"<style>{inside}</style>")
            else:
                whole = _put(whole, f'<script src="{path}"></script>', f"<script>{inside}</script>")
    policy = (
        f"default-src 'none'; script-src {' '.join(allowed['text/javascript'])}; "
        f"style-src {' '.join(allowed['text/css'])}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    meta = '<meta charset="utf-8">'
    whole = _put(whole, meta, f'{meta}\n<meta http-equiv="Content-Security-Policy" content="{policy}">')
    whole = _put(whole, "<title>MRC fabric</title>", f"<title>{html.escape(str(data['title']))}</title>")
    # "</" would end the element the data stands in.
    shown = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return _put(whole, "</footer>", f'</footer>\n<script type="application/json" id="recording">{shown}</script>')


def _put(whole: str, mark: str, inside: str) -> str:
    """The text with `inside` in the place of a mark that it has once."""
    before, found, after = whole.partition(mark)
    assert found and mark not in after, mark
    return before + inside + after


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def recording(name: str, measurement: Measurement, manifest: dict[str, Any]) -> dict[str, Any]:
    """What the page of a run needs, in seconds, bits/s, bytes and packets; layout in dash.js."""
    outcome, plan = measurement.outcome, measurement.plan.fabric
    series = outcome.series
    step = -(-len(series.times_s) // POINTS_MAX) or 1
    every = series.every_s
    flows = {flow.name: flow for flow in outcome.flows}
    found = lanes(measurement)
    where = "virtual time" if outcome.where == "virtual" else f"live on {manifest.get('target') or 'embedded'}"
    return {
        "title": f"{outcome.scenario}: {measurement.plan.scenario.title}",
        "said": ", ".join([outcome.scenario, *([] if name == "run" else [name]), where, f"seed {outcome.seed}"]),
        "plan": drawing(plan) | {"said": str(plan)},
        "duration_s": outcome.duration_s,
        "times_s": thinned(series.times_s, step, last=True),
        "every_s": every * step,
        "rates": {link.name: _rate(link, plan) for link in plan.links},
        "planes_bps": [thinned([row[p] for row in series.plane_bps], step) for p in range(plan.planes)],
        "counts": {
            key: thinned(getattr(series, key), step, add=True)
            for key in ("marked", "trimmed", "lost", "retransmitted", "dropped")
        },
        "flows": [
            {"label": label, "bytes": flows[label].received_bytes if label in flows else 0, "bps": thinned(row, step)}
            for label, row in series.received_bps.items()
        ],
        "collectives": [_collective(collective) for collective in outcome.collectives],
        "links": {link: _ways(rows, step) for link, rows in series.link_bps.items()},
        "packets": {flow: _packets(rows, step) for flow, rows in series.ev_packets.items()},
        "queues": {port: thinned(row, step, last=True) for port, row in series.queues.items()},
        "pairs": _pairs(plan, found),
        "faults": list(_faults(plan, measurement)),
        "found": _found(plan, measurement),
        "log": _log(measurement),
    }


def _rate(link: Link, plan: Plan) -> float:
    nic = any(end.node in {host.name for host in plan.hosts} for end in (link.lower, link.upper))
    return (plan.host_link if nic else plan.fabric_link).rate_bps or 0.0


def thinned(values: list[Any], step: int, *, add: bool = False, last: bool = False) -> list[Any]:
    """One value for each `step` of them: the mean, the sum (`add`) or the last one; None where none is known."""
    out: list[Any] = []
    for at in range(0, len(values), step):
        known = [value for value in values[at : at + step] if value is not None]
        if not known:
            out.append(None)
        elif last:
            out.append(known[-1])
        else:
            out.append(sum(known) if add else round(sum(known) / len(known)))
    return out


def _ways(rows: list[list[int] | None], step: int) -> list[list[Any]]:
    """Rates away from the hosts, and towards them."""
    return [thinned([None if row is None else row[way] for row in rows], step) for way in (0, 1)]


def _packets(rows: list[dict[str, int]], step: int) -> dict[str, list[int]]:
    """EV (a number, as text) -> packets of each interval."""
    names = sorted({ev for row in rows for ev in row})
    return {str(int(ev, 16)): thinned([row.get(ev, 0) for row in rows], step, add=True) for ev in names}


def _collective(one: Any) -> dict[str, Any]:
    return {
        "label": f"{one.kind} {one.work}",
        "wrong": sum(i.wrong for i in one.iterations),
        "iterations": [[round(i.started_s, 6), round(i.finished_s, 6)] for i in one.iterations],
    }


def _pairs(plan: Plan, found: Iterable[EvLane]) -> dict[str, list[dict[str, Any]]]:
    """`h0 h1` -> its EVs: path, address, and the worst state of its QPs as [from, state] whenever it changes."""
    mine: dict[str, dict[int, list[EvLane]]] = {}
    for lane in found:
        pair = f"{lane.host} {lane.peer}"
        if pair in mine or len(mine) < PAIRS_MAX:
            mine.setdefault(pair, {}).setdefault(lane.ev, []).append(lane)
    out: dict[str, list[dict[str, Any]]] = {}
    for pair, evs in mine.items():
        here, there = (plan.host(name) for name in pair.split())
        out[pair] = []
        for ev, several in evs.items():
            plane = several[0].plane
            try:
                path = list(plan.path(here, there, ev, plane).nodes)
                address = address_of(plan, here, there, ev)
            except PlanError:  # of another plan than the scenario's: the EV alone is known
                path, address = [], None
            out[pair].append({"ev": ev, "plane": plane, "path": path, "address": address, "states": _worst(several)})
    return out


def _worst(several: list[EvLane]) -> list[tuple[float, str]]:
    edges = sorted({start for lane in several for start, _, _ in lane.spans})
    out: list[tuple[float, str]] = []
    for edge in edges:
        now = {state for lane in several for start, stop, state in lane.spans if start <= edge < stop}
        state = next((one for one in WORST if one in now), "good")
        if not out or out[-1][1] != state:
            out.append((round(edge, 6), state))
    return out


def _faults(plan: Plan, measurement: Measurement) -> Iterator[dict[str, Any]]:
    """Injected faults: from, until, what, where (links and switches by name), and what it does to them."""
    end = measurement.outcome.duration_s
    for event, start, stop in spans_of(measurement):
        action = str(event["action"])
        effect = "down" if action in DOWN else "off" if action in OFF else "hurt"
        if action == "controller":
            continue
        yield {
            "from": start,
            "to": stop if stop < end else end + 1,
            "kind": action.replace("_", " "),
            "detail": "",
            "effect": effect,
            "where": places(plan, str(event["text"])),
            "text": event["text"],
        }


def _found(plan: Plan, measurement: Measurement) -> list[dict[str, Any]]:
    """Findings of the controller: from, until, where, text."""
    end = measurement.outcome.duration_s
    open_ones: dict[str, dict[str, Any]] = {}
    out: list[dict[str, Any]] = []
    for event in measurement.outcome.events:
        change, _, text = str(event.get("text", "")).partition(": ")
        if event["what"] != "detected":
            continue
        where = places(plan, text)
        key = " ".join(where) or text
        if change == "raised":
            open_ones[key] = {"from": event["t"], "to": end + 1, "where": where, "text": text}
            out.append(open_ones[key])
        elif change == "cleared" and key in open_ones:
            open_ones.pop(key)["to"] = event["t"]
    return out


def places(plan: Plan, text: str) -> list[str]:
    """Links and switches that a text names; a link is two nodes in a row that it joins."""
    names = set(plan.node_names)
    joined = {frozenset((link.lower.node, link.upper.node)): link.name for link in plan.links}
    words = [(word, gap) for word, gap in re.findall(r"(\w[\w-]*)(\W*)", text)]
    out: list[str] = []
    skip = False
    for (word, gap), following in zip(words, [*words[1:], ("", "")], strict=True):
        if skip or word not in names:
            skip = False
            continue
        link = joined.get(frozenset((word, following[0]))) if gap.strip() in ("", "->") else None
        skip = link is not None
        out.append(link or word)
    return out


def _log(measurement: Measurement) -> list[dict[str, Any]]:
    lines = [(t, "made" if begins else "undone", text) for t, text, begins in fault_times(measurement)]
    for event in measurement.outcome.events:
        match event["what"]:
            case "detected":
                kind = "healed" if str(event["text"]).startswith("cleared") else "fault"
                lines.append((event["t"], kind, f"controller: {event['text']}"))
            case "ev":
                kind = "undone" if event["new"] == "good" else "made"
                said = f"{event['host']}: EV {event['ev']:#06x} {event['new']} (to {event['peer']}): {event['cause']}"
                lines.append((event["t"], kind, said))
            case "plane" if event["peer"] is None:
                state = "up" if event["up"] else "down"
                said = f"{event['host']}: port of plane {event['plane']} {state}"
                lines.append((event["t"], "undone" if event["up"] else "made", said))
            case "qp_error" | "control":
                lines.append(
                    (event["t"], "fault", " ".join(str(v) for k, v in event.items() if k not in ("t", "what")))
                )
    lines.sort(key=lambda line: line[0])
    return [{"at": round(t, 4), "kind": kind, "text": text} for t, kind, text in lines]
