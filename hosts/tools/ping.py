"""mrc-ping: EV probes over every path to a peer, a line per path: alive, dead on the way out, or back.

A path has two directions. The first answer to a probe comes back over the path itself; without it the probe is sent
again, and that answer comes back another way (hosts/engine/paths/ack_paths.py). So `out` counts probes that are known
to have arrived at the peer, `back` those whose answer came over the same path.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from mrc_testbed.console.terminal import Cell, Style, table
from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.hosts.agent.path_health import address_of, uplink_of
from mrc_testbed.hosts.tools import common
from mrc_testbed.hosts.tools.common import Event, Work
from mrc_testbed.topologies.plan import Host, Plan, path_label, turning_point

TOOL = "mrc-ping"
SCHEMA = "mrc-ping/2"
EXAMPLES = (
    "`mrc-ping h2`: 4 probes on each path to h2, inside a host",
    "`mrc-ping --from h0 h2`: the same from outside",
    "`mrc-ping h2 -c 0`: until Ctrl-C",
    "`mrc-ping h2 -c 20 -i 0.05`: 20 probes a path, every 50 ms",
    "`mrc-ping h2 --json`: for programs",
)


@dataclass
class PathReport:
    """Probe statistics of one path. Times in seconds."""

    ev: int
    plane: int
    nodes: tuple[str, ...]
    uplink: int | None = None
    """None where the EV names none (ecmp, spraying switches) or none is taken (inside a rack)."""
    address: str | None = None
    """Outer destination of its packets: the uSIDs. None in modes without an outer header."""
    sent: int = 0
    out: int = 0
    """Probes known to have arrived at the peer."""
    rtts_s: list[float] = field(default_factory=list)
    """RTTs of the probes whose answer came back over the same path, seconds."""
    port_down: bool = False
    """Our own port of the plane was down for a probe."""

    @property
    def out_lost(self) -> bool:
        """Whether probes were sent and none arrived at the peer: the way out is dead, the way back unknown."""
        return self.sent > 0 and not self.out

    @property
    def back_lost(self) -> bool:
        """Probes arrived at the peer and no answer came back over this path: only the way back is dead."""
        return self.out > 0 and not self.rtts_s

    def count(self, event: Event) -> None:
        """Count one more `probe` event of this path (hosts/agent/services/ev_ping.py)."""
        self.sent += 1
        self.out += event["out"]
        self.port_down |= not event["port_up"]
        if event["rtt_s"] is not None:
            self.rtts_s.append(event["rtt_s"])

    @property
    def loss_percent(self) -> float:
        return 100.0 * (self.sent - len(self.rtts_s)) / self.sent if self.sent else 0.0

    def to_json(self) -> dict[str, Any]:
        rtts = [rtt * 1e3 for rtt in self.rtts_s]
        return {
            "ev": self.ev,
            "plane": self.plane,
            "uplink": self.uplink,
            "path": list(self.nodes),
            "address": self.address,
            "sent": self.sent,
            "out": self.out,
            "back": len(rtts),
            "loss_percent": round(self.loss_percent, 2),
            "out_lost": self.out_lost,
            "back_lost": self.back_lost,
            "port_down": self.port_down,
            "rtt_min_ms": min(rtts, default=None),
            "rtt_avg_ms": sum(rtts) / len(rtts) if rtts else None,
            "rtt_max_ms": max(rtts, default=None),
        }


def reports_for(plan: Plan, source: Host, peer: Host, evs: Iterable[Sequence[int]]) -> dict[int, PathReport]:
    """Return an empty report for each (EV, plane), by EV."""
    return {
        ev: PathReport(
            ev,
            plane,
            plan.path(source, peer, ev, plane).nodes,
            uplink_of(plan, source, peer, ev),
            address_of(plan, source, peer, ev),
        )
        for ev, plane in evs
    }


def report(reports: list[PathReport], style: Style) -> str:
    """Return one line a path, and a summary."""
    heads: list[str] = ["EV", "path", "outer address", "sent", "out", "back", "loss", "RTT min/avg/max ms", "through"]
    rows = [_row(path_report) for path_report in reports]
    if not any(path_report.address for path_report in reports):  # modes without an outer header
        del heads[2]
        rows = [row[:2] + row[3:] for row in rows]
    lines = [table(style, heads, rows, right_columns=("sent", "out", "back", "loss"))]
    sent, returned_probes = (
        sum(path_report.sent for path_report in reports),
        sum(len(path_report.rtts_s) for path_report in reports),
    )
    share = f"{100 * (sent - returned_probes) / sent:.1f}% lost" if sent else "nothing lost"
    out_count, back_count = sum(r.out_lost for r in reports), sum(r.back_lost for r in reports)
    loss_text = f"{out_count} lost out, {back_count} lost back"
    lines.append(f"{len(reports)} paths, {loss_text}; {sent} probes sent, {returned_probes} came back, {share}")
    return "\n".join(lines)


def _row(path_report: PathReport) -> list[Cell]:
    times: Cell = "-"
    if path_report.rtts_s:
        rtts = [rtt * 1e3 for rtt in path_report.rtts_s]
        times = f"{min(rtts):.3f}/{sum(rtts) / len(rtts):.3f}/{max(rtts):.3f}"
    elif path_report.back_lost:
        times = "out ok, back lost", "bad"
    elif path_report.out_lost:
        times = ("out lost (port down)" if path_report.port_down else "out lost"), "bad"
    return [
        f"{path_report.ev:#06x}",
        path_label(path_report.plane, path_report.uplink),
        path_report.address or "-",
        str(path_report.sent),
        str(path_report.out),
        str(len(path_report.rtts_s)),
        f"{path_report.loss_percent:.0f}%",
        times,
        turning_point(path_report.nodes),
    ]


def probe_line(event: Event) -> str:
    """Return the line of one probe, for -v."""
    if event["rtt_s"] is not None:
        outcome = f"{event['rtt_s'] * 1e3:.3f} ms"
    else:
        outcome = "out ok, back lost" if event["out"] else "out lost"
    return f" probe {event['round']}  EV {event['ev']:#06x}  plane {event['plane']}  {outcome}"


def command(
    peer: Annotated[str, typer.Argument(metavar="PEER", help="Host to probe, such as h2.", show_default=False)],
    source: common.Source = None,
    count: Annotated[
        int,
        common.option(
            "-c", "--count", parser=common.int_type(0), metavar="N", help="Probes on each path (4); 0: until Ctrl-C."
        ),
    ] = 4,
    interval: Annotated[
        float,
        common.option(
            "-i", "--interval", parser=common.seconds_type, metavar="S", help="Seconds between probes (0.2)."
        ),
    ] = 0.2,
    timeout: Annotated[
        float,
        common.option(
            "-W", "--timeout", parser=common.seconds_type, metavar="S", help="Seconds to wait for an answer (1)."
        ),
    ] = 1.0,
    verbose: Annotated[bool, common.option("-v", "--verbose", help="Print a line for each probe too.")] = False,
    run_dir: common.RunDir = None,
    as_json: common.Json = False,
) -> Work:
    """Probe every path to another host.

    A probe needs no QP and disturbs none. Exit code 0: every path works both ways; 1: one does not, out or back.
    """

    def work() -> int:
        measuring_host = common.find_measuring_host(TOOL, run_dir, source)
        target = measuring_host.peer(peer)
        reports: dict[int, PathReport] = {}

        def on_begin(start: Event) -> None:
            reports.update(reports_for(measuring_host.plan, measuring_host.host, target, start["evs"]))
            if not as_json:
                times = f"{count} probe{'s' * (count > 1)} each" if count else "until Ctrl-C"
                source_name = measuring_host.host.name
                print(f"EV probes from {source_name} to {target.name}: {len(reports)} paths, {times}", flush=True)

        def on_event(event: Event) -> None:
            reports[event["ev"]].count(event)
            if verbose and not as_json:
                print(probe_line(event), flush=True)

        fields = {
            "peer": target.name,
            "count": count,
            "interval_s": interval,
            "wait_s": timeout,
        }
        end = common.conduct(measuring_host, "ev_sweep", fields, on_begin, on_event)
        paths = list(reports.values())
        if as_json:
            document = {"schema": SCHEMA, "host": measuring_host.host.name, "peer": target.name, "state": end["state"]}
            print(json.dumps({**document, "paths": [path.to_json() for path in paths]}, indent=2))
        else:
            print(report(paths, Style.for_stream(sys.stdout)))
        code = common.finish(end, TOOL)
        if code == EXIT_INTERRUPTED:  # how one ends `-c 0`: what was seen until then decides
            code = common.OK
        return common.FAILED if code == common.OK and any(path.out_lost or path.back_lost for path in paths) else code

    return work


def main(argv: list[str] | None = None) -> int:
    """The console script; its exit code (hosts/tools/common.py)."""
    return common.run(TOOL, command, EXAMPLES, argv)


if __name__ == "__main__":
    sys.exit(main())
