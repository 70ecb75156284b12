"""Recording of a finished run for the page: one file, no server, with a slider for the time.

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
from mrc_testbed.experiments.backend.outcome import CollectiveOutcome
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.report.ev_strips import EvLane, lanes
from mrc_testbed.experiments.report.faults import fault_times, spans_of
from mrc_testbed.experiments.report.page import measured_runs
from mrc_testbed.experiments.report.step_times import PROGRAMS
from mrc_testbed.experiments.results import ResultsError
from mrc_testbed.experiments.run_store import file_name
from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.hosts.agent.path_health import address_of
from mrc_testbed.topologies.plan import Link, Plan, PlanError

LINK_ACTIONS = ("cut", "flap")
"""Actions that take the link of ports down."""
POWER_ACTIONS = ("power_off", "reboot")
"""Actions that take the power of a switch."""
POINTS_MAX = 600
"""Most intervals on a page; more are thinned."""
PAIRS_MAX = 64
"""Most pairs of hosts whose paths are on a page."""
STATES_BY_SEVERITY = ("failed", "denied", "assumed_bad", "port_down", "good")
"""States of an EV, worst first: the page shows the worst over all QPs."""


def write_pages(folder: Path) -> list[Path]:
    """Write DIR/replay/RUN.html for every run of a folder of results; return the paths.

    Raises ResultsError.
    """
    results, runs = measured_runs(folder)
    if not runs:
        raise ResultsError(f"{folder}: no finished run. Cure: wait for the first run to end")
    out = folder / "replay"
    out.mkdir(exist_ok=True)
    paths = []
    for name, _, measurement in runs:
        path = out / f"{file_name(name)}.html"
        write_whole(path, page(recording(name, measurement, results.manifest)).encode())
        paths.append(path)
    return paths


def page(data: dict[str, Any]) -> str:
    """Return the page with script, style and recording embedded.

    The page's policy allows the browser nothing else.
    """
    document = page_files.text("/")
    digests: dict[str, list[str]] = {"text/javascript": [], "text/css": []}
    for path, kind in page_files.CONTENT_TYPES.items():
        if kind in digests:
            content = page_files.text(path)
            digests[kind].append(f"'{_digest(content)}'")
            if kind == "text/css":
                document = _put(document, f'<link rel="stylesheet" href="{path}">', f"<style>{content}</style>")
            else:
                document = _put(document, f'<script src="{path}"></script>', f"<script>{content}</script>")
    policy = (
        f"default-src 'none'; script-src {' '.join(digests['text/javascript'])}; "
        f"style-src {' '.join(digests['text/css'])}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    meta = '<meta charset="utf-8">'
    document = _put(document, meta, f'{meta}\n<meta http-equiv="Content-Security-Policy" content="{policy}">')
    document = _put(document, "<title>MRC fabric</title>", f"<title>{html.escape(str(data['title']))}</title>")
    # "</" would end the element the data stands in.
    recording_json = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return _put(
        document, "</footer>", f'</footer>\n<script type="application/json" id="recording">{recording_json}</script>'
    )


def _put(document: str, mark: str, content: str) -> str:
    """Return the document with `content` in the place of a mark that occurs once."""
    head, mark_text, tail = document.partition(mark)
    assert mark_text and mark not in tail, mark
    return head + content + tail


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def recording(name: str, measurement: Measurement, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a run's page, in seconds, bits/s, bytes and packets; layout in dash.js."""
    outcome, plan = measurement.outcome, measurement.plan.fabric
    series = outcome.series
    # A series has POINTS_MAX points at most: longer runs are thinned.
    step = -(-len(series.times_s) // POINTS_MAX) or 1
    every = series.every_s
    flows = {flow.name: flow for flow in outcome.flows}
    ev_lanes = lanes(measurement)
    backend_text = "virtual time" if outcome.where == "virtual" else f"live on {manifest.get('target') or 'embedded'}"
    return {
        "title": f"{outcome.scenario}: {measurement.plan.scenario.title}",
        "said": ", ".join([outcome.scenario, *([] if name == "run" else [name]), backend_text, f"seed {outcome.seed}"]),
        "plan": drawing(plan) | {"said": str(plan)},
        "duration_s": outcome.duration_s,
        "times_s": thin(series.times_s, step, last=True),
        "every_s": every * step,
        "rates": {link.name: _rate(link, plan) for link in plan.links},
        "planes_bps": [thin([row[p] for row in series.plane_bps], step) for p in range(plan.planes)],
        "counts": {
            key: thin(getattr(series, key), step, add=True)
            for key in ("marked", "trimmed", "lost", "retransmitted", "dropped")
        },
        "flows": [
            {"label": label, "bytes": flows[label].received_bytes if label in flows else 0, "bps": thin(row, step)}
            for label, row in series.received_bps.items()
        ],
        "collectives": [
            _collective(collective, measurement.plan.iterations.get(collective.work) or len(collective.iterations))
            for collective in outcome.collectives
        ],
        "links": {link: _ways(rows, step) for link, rows in series.link_bps.items()},
        "packets": {flow: _packets(rows, step) for flow, rows in series.ev_packets.items()},
        "queues": {port: thin(row, step, last=True) for port, row in series.queues.items()},
        "pairs": _pairs(plan, ev_lanes),
        "faults": list(_faults(plan, measurement)),
        "found": _findings(plan, measurement) if outcome.where == "live" else None,  # elsewhere no controller looks
        "log": _log(measurement),
    }


def _rate(link: Link, plan: Plan) -> float:
    return plan.speed(link).rate_bps or 0.0


def thin(values: list[Any], step: int, *, add: bool = False, last: bool = False) -> list[Any]:
    """Return one value per `step` values: mean, sum (`add`) or last; None where all are None."""
    out: list[Any] = []
    for offset in range(0, len(values), step):
        values_present = [value for value in values[offset : offset + step] if value is not None]
        if not values_present:
            out.append(None)
        elif last:
            out.append(values_present[-1])
        else:
            out.append(sum(values_present) if add else round(sum(values_present) / len(values_present)))
    return out


def _ways(rows: list[list[int] | None], step: int) -> list[list[Any]]:
    """Return rates away from the hosts, and towards them."""
    return [thin([None if row is None else row[way] for row in rows], step) for way in (0, 1)]


def _packets(rows: list[dict[str, int]], step: int) -> dict[str, list[int]]:
    """Return packets of each interval by EV (its number as text)."""
    names = sorted({ev for row in rows for ev in row})
    return {str(int(ev, 16)): thin([row.get(ev, 0) for row in rows], step, add=True) for ev in names}


def _collective(collective: CollectiveOutcome, planned_count: int) -> dict[str, Any]:
    return {
        "label": f"{collective.work} ({collective.kind})",
        "sums": collective.kind not in PROGRAMS,
        "planned": planned_count,
        "wrong": sum(i.wrong for i in collective.iterations),
        "iterations": [[round(i.started_s, 9), round(i.finished_s, 9)] for i in collective.iterations],
    }


def _pairs(plan: Plan, ev_lanes: Iterable[EvLane]) -> dict[str, list[dict[str, Any]]]:
    """Return the EVs of each pair `h0 h1`: path, address, and changes of the worst state of its QPs.

    A change is [time, state].
    """
    lanes_by_pair: dict[str, dict[int, list[EvLane]]] = {}
    for lane in ev_lanes:
        pair = f"{lane.host} {lane.peer}"
        if pair in lanes_by_pair or len(lanes_by_pair) < PAIRS_MAX:
            lanes_by_pair.setdefault(pair, {}).setdefault(lane.ev, []).append(lane)
    out: dict[str, list[dict[str, Any]]] = {}
    for pair, evs in lanes_by_pair.items():
        source, destination = (plan.host(name) for name in pair.split())
        out[pair] = []
        for ev, same_ev in evs.items():
            plane = same_ev[0].plane
            try:
                path = list(plan.path(source, destination, ev, plane).nodes)
                address = address_of(plan, source, destination, ev)
            except PlanError:  # of another plan than the scenario's: the EV alone is known
                path, address = [], None
            out[pair].append(
                {"ev": ev, "plane": plane, "path": path, "address": address, "states": _worst_states(same_ev)}
            )
    return out


def _worst_states(ev_lanes: list[EvLane]) -> list[tuple[float, str]]:
    edges = sorted({start for lane in ev_lanes for start, _, _ in lane.spans})
    out: list[tuple[float, str]] = []
    for edge in edges:
        now = {state for lane in ev_lanes for start, stop, state in lane.spans if start <= edge < stop}
        state = next((candidate for candidate in STATES_BY_SEVERITY if candidate in now), "good")
        if not out or out[-1][1] != state:
            out.append((round(edge, 9), state))
    return out


def _faults(plan: Plan, measurement: Measurement) -> Iterator[dict[str, Any]]:
    """Yield injected faults: start, end, kind, links and switches by name, and the effect on them."""
    end = measurement.outcome.duration_s
    for event, start, stop in spans_of(measurement):
        action = str(event["action"])
        effect = "down" if action in LINK_ACTIONS else "off" if action in POWER_ACTIONS else "hurt"
        if action == "controller":
            continue
        yield {
            "from": start,
            "to": stop if stop < end else end + 1,
            "kind": action.replace("_", " "),
            "detail": "",
            "effect": effect,
            "where": locations_in(plan, str(event["text"])),
            "text": event["text"],
        }


def _findings(plan: Plan, measurement: Measurement) -> list[dict[str, Any]]:
    """Return findings of the controller: start, end, links and switches, text."""
    end = measurement.outcome.duration_s
    open_findings: dict[str, dict[str, Any]] = {}
    out: list[dict[str, Any]] = []
    for event in measurement.outcome.events:
        change, _, text = str(event.get("text", "")).partition(": ")
        if event["what"] != "detected":
            continue
        locations = locations_in(plan, text)
        key = " ".join(locations) or text
        if change == "raised":
            open_findings[key] = {"from": event["t"], "to": end + 1, "where": locations, "text": text}
            out.append(open_findings[key])
        elif change == "cleared" and key in open_findings:
            open_findings.pop(key)["to"] = event["t"]
    return out


def locations_in(plan: Plan, text: str) -> list[str]:
    """Return the links and switches that a text names; a link is named by its two ends in a row."""
    names = set(plan.node_names)
    link_names = {frozenset((link.lower.node, link.upper.node)): link.name for link in plan.links}
    words = [(word, gap) for word, gap in re.findall(r"(\w[\w-]*)(\W*)", text)]
    out: list[str] = []
    skip = False
    for (word, gap), following in zip(words, [*words[1:], ("", "")], strict=True):
        if skip or word not in names:
            skip = False
            continue
        link = link_names.get(frozenset((word, following[0]))) if gap.strip() in ("", "->") else None
        skip = link is not None
        out.append(link or word)
    return out


def _log(measurement: Measurement) -> list[dict[str, Any]]:
    lines = [(t, "made" if is_start else "undone", text) for t, text, is_start in fault_times(measurement)]
    for event in measurement.outcome.events:
        match event["what"]:
            case "detected":
                kind = "healed" if str(event["text"]).startswith("cleared") else "fault"
                lines.append((event["t"], kind, f"controller: {event['text']}"))
            case "ev":
                kind = "undone" if event["new"] == "good" else "made"
                text = f"{event['host']}: EV {event['ev']:#06x} {event['new']} (to {event['peer']}): {event['cause']}"
                lines.append((event["t"], kind, text))
            case "plane" if event["peer"] is None:
                state = "up" if event["up"] else "down"
                text = f"{event['host']}: port of plane {event['plane']} {state}"
                lines.append((event["t"], "undone" if event["up"] else "made", text))
            case "qp_error" | "control":
                lines.append(
                    (event["t"], "fault", " ".join(str(v) for k, v in event.items() if k not in ("t", "what")))
                )
    lines.sort(key=lambda line: line[0])
    return [{"at": round(t, 9), "kind": kind, "text": text} for t, kind, text in lines]
