"""mrc-stat: live QPs, EV states and counters of one host or of all, once or periodically."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from mrc_testbed.console.terminal import Cell, Style, table
from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.hosts.tools import common
from mrc_testbed.hosts.tools.common import Event, ToolError, Work, megabits
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Plan, PlanError, turning_point

TOOL = "mrc-stat"
SCHEMA = "mrc-stat/1"
EXAMPLES = (
    "`mrc-stat`: this host, inside one; all hosts from outside",
    "`mrc-stat h0`: one host",
    "`mrc-stat h0 -e`: with the state of every EV of every QP",
    "`mrc-stat h0 -i 1`: again every second, with rates; Ctrl-C ends it",
    "`mrc-stat h0 -i 0.5 -c 10 --json`: ten looks, one JSON document a line",
)
CLEAR = "\x1b[H\x1b[J"
QP_COUNTERS = (
    "sent",
    "retransmitted",
    "lost",
    "timeouts",
    "trimmed",
    "trimmed_lasthop",
    "marked",
    "refused",
    "bytes_sent",
    "bytes_received",
)
PORT_COUNTERS = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")


# ---- contents -------------------------------------------------------------------------------------------


def sample(status: Event) -> Event:
    """Return the displayed part of an agent's `status`.

    Counters are since the start of the agent, or of the QP.
    """
    return {
        "host": status["host"],
        "t": status["t"],
        "nic": status["nic"],
        "up_s": status["up_s"],
        "cpu_s": status["cpu_s"],
        "max_rss_kib": status["max_rss_kib"],
        "unclaimed": status["unclaimed"],
        "ports": {plane: _port(port) for plane, port in status["ports"].items()},
        "qps": [_qp(qp) for qp in status["qps"]],
    }


def _port(port: Event) -> Event:
    dropped = {way: sum(port.get(f"{way}_dropped", {}).values()) for way in ("tx", "rx")}
    return {
        "interface": port["interface"],
        "up": port["up"],
        **{key: port.get(key, 0) for key in PORT_COUNTERS},
        "tx_dropped": dropped["tx"],
        "rx_dropped": dropped["rx"],
        "pacing": port.get("pacing"),
    }


def _qp(qp: Event) -> Event:
    row = {key: qp[key] for key in ("qpn", "remote_qpn", "peer", "state", "busy", "outstanding", "error")}
    return {
        **row,
        "transport": qp.get("transport", "mrc"),
        **{key: qp["counters"].get(key, 0) for key in QP_COUNTERS},
        "plane_bytes": qp["counters"].get("plane_bytes", []),
        "congestion": qp.get("congestion", {}),
        "ev_states": dict(Counter(ev["state"] for ev in qp["evs"])),
        "evs": qp["evs"],
    }


def add_rates(now: Event, last_sample: Event | None) -> Event:
    """Return `now` with bits per second and CPU share since `last_sample`; None without one."""
    seconds = 0.0 if last_sample is None else now["t"] - last_sample["t"]

    def rate(new_value: float, old_value: float) -> float | None:
        return max(0.0, new_value - old_value) * 8 / seconds if seconds > 0 else None

    old_qps = {} if last_sample is None else {qp["qpn"]: qp for qp in last_sample["qps"]}
    for qp in now["qps"]:
        old_qp = old_qps.get(qp["qpn"], {"bytes_sent": 0, "bytes_received": 0})
        qp["tx_bps"] = rate(qp["bytes_sent"], old_qp["bytes_sent"])
        qp["rx_bps"] = rate(qp["bytes_received"], old_qp["bytes_received"])
    for plane, port in now["ports"].items():
        old_port = port if last_sample is None else last_sample["ports"][plane]
        port["tx_bps"], port["rx_bps"] = (
            rate(port["tx_bytes"], old_port["tx_bytes"]),
            rate(port["rx_bytes"], old_port["rx_bytes"]),
        )
    now["cpu_share"] = None
    if last_sample is not None and seconds > 0:
        now["cpu_share"] = (now["cpu_s"] - last_sample["cpu_s"]) / seconds
    return now


def text(host_sample: Event, *, evs: bool, plan: Plan, style: Style) -> str:
    """Return one host as tables."""
    share = host_sample["cpu_share"]
    cpu = f"{host_sample['cpu_s']:.1f} s" if share is None else f"{100 * share:.0f}%"
    memory = f"{host_sample['max_rss_kib'] // 1024} MiB"
    port_rows = [_port_row(port) for port in host_sample["ports"].values()]
    lines = [
        f"{host_sample['host']}: {host_sample['nic']} NIC, up {host_sample['up_s']:.0f} s, CPU {cpu}, {memory}, "
        f"{host_sample['unclaimed']} packets unclaimed",
        table(style, PORT_HEADS, port_rows, right_columns=PORT_HEADS[2:], indent=2),
        *_late_line(host_sample["ports"].values()),
    ]
    if not host_sample["qps"]:
        return style.fold("\n".join([*lines, "  no QPs"]))
    lines.append(
        table(style, QP_HEADS, [_qp_row(qp) for qp in host_sample["qps"]], right_columns=QP_HEADS[3:-1], indent=2)
    )
    for qp in host_sample["qps"]:
        notes = [qp["error"]] if qp["error"] else []
        if "delay_s" in qp["congestion"]:
            notes.append(_congestion(qp["congestion"]))
        lines += [f"  {qp['qpn']:#08x}: {note}" for note in notes]
        if evs:
            rows = [_ev_row(plan, host_sample["host"], qp["peer"], ev) for ev in qp["evs"]]
            lines += [f"  {qp['qpn']:#08x}: {len(rows)} EVs"] if len(host_sample["qps"]) > 1 else []
            lines.append(table(style, EV_HEADS, rows, right_columns=EV_HEADS[4:9], indent=2))
    return style.fold("\n".join(lines))


PORT_HEADS = ("port", "state", "tx packets", "rx packets", "tx Mb/s", "rx Mb/s", "dropped tx/rx")
QP_HEADS = (
    "QP",
    "peer",
    "state",
    "posted",
    "sent",
    "retrans",
    "lost",
    "trimmed",
    "marked",
    "tx Mb/s",
    "rx Mb/s",
    "EVs",
)
EV_HEADS = ("EV", "plane", "state", "role", "sent", "lost", "marked", "trimmed", "RTT", "through")


def _port_row(port: Event) -> list[Cell]:
    return [
        port["interface"],
        ("up", "good") if port["up"] else ("DOWN", "bad"),
        str(port["tx_packets"]),
        str(port["rx_packets"]),
        megabits(port["tx_bps"]),
        megabits(port["rx_bps"]),
        f"{port['tx_dropped']}/{port['rx_dropped']}",
    ]


LATE_SHARE = 0.01


def _late_line(ports: Iterable[Event]) -> list[str]:
    """Return a warning when ports with a rate do not keep their times.

    What is measured then is the machine.
    """
    pacings = [port["pacing"] for port in ports if port["pacing"]]
    frames, late_frames = sum(pacing["frames"] for pacing in pacings), sum(pacing["late"] for pacing in pacings)
    if late_frames <= LATE_SHARE * frames:
        return []
    worst_ms = max(pacing["late_max_s"] for pacing in pacings) * 1e3
    return [
        f"  machine too busy for these rates: {late_frames} of {frames} frames left 2 ms late or more, "
        f"up to {worst_ms:.0f} ms"
    ]


def _qp_row(qp: Event) -> list[Cell]:
    states = ", ".join(f"{number} {state}" for state, number in sorted(qp["ev_states"].items())) or "-"
    name = "" if qp["transport"] == "mrc" else f"  {qp['transport']}"
    counts = ("outstanding", "sent", "retransmitted", "lost", "trimmed", "marked")
    return [
        f"{qp['qpn']:#08x}",
        qp["peer"],
        qp["state"],
        *(str(qp[key]) for key in counts),
        megabits(qp["tx_bps"]),
        megabits(qp["rx_bps"]),
        f"{states}{name}",
    ]


def _congestion(cc: Event) -> str:
    """NSCC's view of the way to the peer: one window for all QPs there."""
    measured_note = " (measured)" if cc["base_rtt_measured"] else ""
    window, max_window, inflight = (cc[f"{key}_bytes"] / 1e3 for key in ("cwnd", "max_cwnd", "inflight"))
    return (
        f"{cc['algorithm']}, {cc['qps']} QPs: window {window:.0f} of {max_window:.0f} kB, {inflight:.0f} kB in flight; "
        f"base RTT {cc['base_rtt_s'] * 1e3:.2f} ms{measured_note}, "
        f"queueing {cc['delay_s'] * 1e3:.2f} ms, target {cc['target_delay_s'] * 1e3:.2f} ms"
    )


def _ev_row(plan: Plan, host: str, peer: str, ev: Event) -> list[Cell]:
    try:
        route = turning_point(plan.path(plan.host(host), plan.host(peer), ev["ev"], ev["plane"]).nodes)
    except PlanError:
        route = "no path of the plan"
    rtt = "-" if ev.get("srtt_s") is None else f"{ev['srtt_s'] * 1e3:.3f} ms"
    counts = ("sent", "lost", "marked", "trimmed")
    return [
        f"{ev['ev']:#06x}",
        str(ev["plane"]),
        ev["state"],
        "active" if ev.get("active") else "backup",
        *(str(ev.get(key, 0)) for key in counts),
        rtt,
        route,
    ]


# ---- sampling -----------------------------------------------------------------------------------------------


class Hosts:
    """The agents to sample, and the last sample of each."""

    def __init__(self, clients: dict[str, JsonlClient], *, is_single: bool) -> None:
        self._clients = clients
        self._is_single = is_single
        self._last_samples: dict[str, Event] = {}

    def sample_all(self) -> list[Event]:
        """Return a sample of all hosts; of several, one that does not answer has its `error`.

        Raises ToolError.
        """
        out = []
        for name, client in self._clients.items():
            try:
                now = add_rates(sample(client.request("status")), self._last_samples.get(name))
            except JsonlError as error:
                if self._is_single:
                    raise ToolError(str(error)) from error
                now = {"host": name, "error": str(error)}
            else:
                self._last_samples[name] = now
            out.append(now)
        if all("error" in host for host in out):
            raise ToolError(f"no agent answers: {out[0]['error']}")
        return out


@dataclass(frozen=True)
class OutputStyle:
    """Form of the output. `is_repeated`: one sample of several."""

    as_json: bool
    evs: bool
    is_repeated: bool


def show(hosts: list[Event], style: OutputStyle, plan: Plan) -> None:
    """Print one sample."""
    if style.as_json:
        for host in hosts:
            if not style.evs:
                for qp in host.get("qps", ()):
                    del qp["evs"]
        document = {"schema": SCHEMA, "hosts": hosts}
        print(json.dumps(document, indent=None if style.is_repeated else 2), flush=True)
        return
    text_style = Style.for_stream(sys.stdout)
    blocks = [h["error"] if "error" in h else text(h, evs=style.evs, plan=plan, style=text_style) for h in hosts]
    top = CLEAR if style.is_repeated and sys.stdout.isatty() else ""
    print(top + "\n".join(blocks), flush=True)


def command(
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST]", help="Such as h0 (default: the host we are in, else all).", show_default=False
        ),
    ] = None,
    interval: Annotated[
        float | None,
        common.option("-i", "--interval", parser=common.seconds_type, metavar="S", help="Every S seconds, with rates."),
    ] = None,
    count: Annotated[
        int | None,
        common.option("-c", "--count", parser=common.count_type, metavar="N", help="Samples, with -i (until Ctrl-C)."),
    ] = None,
    evs: Annotated[bool, common.option("-e", "--evs", help="Every EV of every QP.")] = False,
    run_dir: common.RunDir = None,
    as_json: common.Json = False,
) -> Work:
    """Live QPs, EV states and counters."""
    style = OutputStyle(as_json=as_json, evs=evs, is_repeated=interval is not None)

    def work() -> int:
        if count and not interval:
            raise ToolError("-c goes with -i: how often to look")
        folder = common.run_dir_of(run_dir)
        plan = common.load_plan(folder)
        name = host or common.this_host(plan)
        try:
            names = [plan.host(name).name] if name else [host.name for host in plan.hosts]
        except PlanError as error:
            raise ToolError(str(error)) from error
        files = RunFiles(folder)
        clients = {host_name: JsonlClient(files.agent_socket(host_name), name=host_name) for host_name in names}
        hosts = Hosts(clients, is_single=name is not None)
        looks = count
        try:
            show(hosts.sample_all(), style, plan)
            while interval and (looks is None or looks > 1):
                time.sleep(interval)
                show(hosts.sample_all(), style, plan)
                looks = None if looks is None else looks - 1
        except KeyboardInterrupt:
            # Ctrl-C is the usual end of -i; without it the one sample was cut short.
            return EXIT_INTERRUPTED if not interval else common.OK
        finally:
            for client in clients.values():
                client.close()
        return common.OK

    return work


def main(argv: list[str] | None = None) -> int:
    """The console script; its exit code (hosts/tools/common.py)."""
    return common.run(TOOL, command, EXAMPLES, argv)


if __name__ == "__main__":
    sys.exit(main())
