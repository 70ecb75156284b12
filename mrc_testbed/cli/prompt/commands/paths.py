"""Commands about the paths between two hosts: evs, ping, pingall and others that need addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mrc_testbed.cli.prompt.commands.base import (
    BREAK,
    SEND,
    SHOW,
    Answer,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    denylist_target,
    host_on,
    known_node,
    switch,
    two_hosts,
    two_hosts_then,
)
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import Cell, Style, table
from mrc_testbed.console.units import show_seconds
from mrc_testbed.faults.places import denylist_entry
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError, Watch
from mrc_testbed.topologies.plan import path_label, turning_point

LOOKS = {"good": "good", "skip": "warn", "assumed_bad": "bad", "port_down": "bad", "denied": "bad", "unknown": "dim"}
PROBE_WAIT_S, PROBE_WAIT_RTTS = 1.0, 10
"""Wait for the last probes of a sweep: seconds, and base RTTs of the plan beside them."""
PAIR_S = 0.1
"""Duration of probing the paths of a pair, an estimate, seconds."""
EVS_SWEEPS, EVS_PROBES, EVS_INTERVAL_S = 2, 3, 0.02
"""Sweeps of `evs`, the second over silent paths, and their probes: chance makes no path dead."""
EV_SPACING_S = 0.001
"""Least time, seconds, for the probes of one EV: with many QPs of random EVs the links would overflow."""


@command("evs", SHOW, complete=two_hosts_then(), reads=True)
def evs(session: CliSession, args: Args) -> Answer:
    """Every path between two hosts: plane, uplink, uSID address, state, loss, and whether probes pass now.

    evs h0 h2
    evs h0 h2 --json

    path: PLANE/UPLINK, as `trace` takes it. state: the worst that a QP of the first host holds of it (good, skip,
    assumed_bad, denied), `unknown` without a QP; `h2-eth0 down`: dead, as that port of a NIC is down. `*`: in the
    rotation of a QP, which learns of other faults when it sends.
    sent and lost: packets since the fabric is up. now: three probes, six of a silent path; the round trip,
    or `out lost`, `back lost` (it arrived, and its answer took another way). through: the T1 that the path turns at, or
    the T0 inside a rack.
    """
    usage = "evs HOST HOST, as in: evs h0 h2"
    source, destination = two_hosts(session, arguments(args, usage, 2), usage)
    answer = session.fabric.agent(source).request("health", peer=destination)
    (peer,) = answer["peers"]
    digits = 4 if all(path["ev"] < 1 << 16 for path in peer["evs"]) else 8
    probes: dict[int, list[dict[str, Any]]] = {path["ev"]: [] for path in peer["evs"]}
    evs = [(path["ev"], path["plane"]) for path in peer["evs"]]
    # Three probes share one moment, which a burst or a busy machine may spoil: a silent path gets another three.
    for _ in range(EVS_SWEEPS):
        interval_s = max(EVS_INTERVAL_S, len(evs) * EV_SPACING_S)
        for probe in sweep(session, source, destination, EVS_PROBES, interval_s, evs) if evs else ():
            probes[probe["ev"]].append(probe)
        evs = [(ev, plane) for ev, plane in evs if all(probe["rtt_s"] is None for probe in probes[ev])]
    for path in peer["evs"]:
        path["probes"] = _probe_tally(probes[path["ev"]])
    rows = [_ev_row(path, digits) for path in peer["evs"]]
    heads: tuple[str, ...] = ("EV", "path", "uSID address", "state", "sent", "lost", "loss", "now", "through")
    if not any(path["address"] for path in peer["evs"]):  # modes without an outer header
        heads, rows = heads[:2] + heads[3:], [row[:2] + row[3:] for row in rows]
    numeric = ("sent", "lost", "loss")
    count = peer["qps"]
    qps = f"{count} QP{'s' * (count != 1)}" if count else f"no QP now (`send {source} {destination} 16M` makes one)"
    head = f"{source} to {destination}: {len(rows)} paths, mode {answer['mode']}, {qps}"
    return Answer(f"{head}\n{table(session.style, heads, rows, right_columns=numeric)}", peer)


def _probe_tally(probes: list[dict[str, Any]]) -> dict[str, Any]:
    """Tally of one path's probes: sent, arrived, answered, and the shortest round trip in seconds."""
    rtts = [probe["rtt_s"] for probe in probes if probe["rtt_s"] is not None]
    out = sum(probe["out"] for probe in probes)
    return {"sent": len(probes), "out": out, "back": len(rtts), "rtt_s": min(rtts, default=None)}


def _now(probes: dict[str, Any]) -> tuple[str, str]:
    """State of a path by its probes, and its colour."""
    sent, out_count, back_count = probes["sent"], probes["out"], probes["back"]
    if not out_count or not back_count:
        return ("back lost" if out_count else "out lost"), "bad"
    if back_count < sent:
        return (f"out {out_count}/{sent}" if out_count < sent else f"back {back_count}/{out_count}"), "warn"
    return show_seconds(probes["rtt_s"]), ""


def _ev_row(path: dict[str, Any], digits: int) -> list[Cell]:
    state, sent, lost = path["state"], path["sent"], path["lost"]
    mark = "*" if path["active"] else ""
    causes = f" by {', '.join(path['denied_by'])}" if path["denied_by"] else ""
    shown_state = f"{', '.join(path['ports_down'])} down" if state == "port_down" else f"{state}{mark}{causes}"
    loss = f"{100 * lost / sent:.1f}%" if sent else "-"
    return [
        f"0x{path['ev']:0{digits}x}",
        path_label(path["plane"], path["uplink"]),
        path["address"] or "-",
        (shown_state, LOOKS.get(state, "")),
        str(sent),
        (str(lost), "bad" if lost else ""),
        loss,
        _now(path["probes"]),
        turning_point(path["path"]),
    ]


# ---- probing --------------------------------------------------------------------------------------------------


def sweep(
    session: CliSession,
    source: str,
    destination: str,
    count: int,
    interval_s: float,
    evs: list[tuple[int, int]] | None = None,
) -> Iterator[dict[str, Any]]:
    """`probe` events of an EV sweep of a host's agent, until it ends. Raises JsonlError, CommandError.

    `evs`: (EV, plane) of the paths; None: those of a new QP.
    """
    client = JsonlClient(session.fabric.run_dir.agent_socket(source), name=source)
    try:
        wait_s = PROBE_WAIT_S + PROBE_WAIT_RTTS * session.plan.base_rtt_s()
        client.request("ev_sweep", peer=destination, evs=evs, count=count, interval_s=interval_s, wait_s=wait_s)
        watch = Watch(client)
        while True:
            event = watch.get(wait_s + count * interval_s + 10.0)
            if event is None:
                if client.server_gets_on():
                    continue
                event = watch.get(0.0)  # it may just have come
            if event is None:
                raise JsonlError(f"{source}: ev_sweep: its agent does not answer any more")
            if event.get("event") == "end":
                if event["state"] == "failed":
                    raise CommandError(f"{source} to {destination}: {event['error']}")
                return
            yield event
    finally:
        client.close()


@command("pingall", SEND)
def pingall(session: CliSession, args: Args) -> str:
    """Probe every path between all pairs of hosts once, as Mininet's pingall does with its one path.

    pingall

    A host that all paths lead to and come back from is named. `h2(7/8)`: probes arrive on 7 of 8 paths; `X`: on none;
    `h2(back 7/8)`: they arrive on all 8, and the answers come back on 7 of them; `h2(7/8 back 6/7)`: both.
    """
    arguments(args, "pingall", 0)
    return _ping_pairs(session, [host.name for host in session.plan.hosts], times=False)


@command("pingallfull", SEND)
def pingallfull(session: CliSession, args: Args) -> str:
    """Ping all pairs like pingall, and show the RTT over the fastest and the slowest path.

    pingallfull
    """
    arguments(args, "pingallfull", 0)
    return _ping_pairs(session, [host.name for host in session.plan.hosts], times=True)


@command("pingpair", SEND)
def pingpair(session: CliSession, args: Args) -> str:
    """pingall between the first host and the first one in another rack.

    pingpair
    """
    arguments(args, "pingpair", 0)
    first = session.plan.hosts[0].name
    return _ping_pairs(session, [first, session.plan.first_remote_host(first).name], times=False)


@command("pingpairfull", SEND)
def pingpairfull(session: CliSession, args: Args) -> str:
    """pingpair with RTTs.

    pingpairfull
    """
    arguments(args, "pingpairfull", 0)
    first = session.plan.hosts[0].name
    return _ping_pairs(session, [first, session.plan.first_remote_host(first).name], times=True)


def _ping_pairs(session: CliSession, names: list[str], times: bool) -> str:
    with session.progress("pingall", PAIR_S * len(names) ** 2) as progress:
        return _ping_report(session, names, times, progress)


def _ping_report(session: CliSession, names: list[str], times: bool, progress: Progress) -> str:
    lines, sent, out_count, back_count = ["*** Ping: testing reachability over every path"], 0, 0, 0
    for number, source in enumerate(names):
        progress.share(number / len(names), f"probes from {source}")
        cells = []
        if source in session.fabric.nodes_off:
            lines.append(f"{source} is off: `power {source} on`")
            continue
        for destination in names:
            if destination == source:
                continue
            probes = list(sweep(session, source, destination, 1, 0.01))
            sent += len(probes)
            out_count += sum(probe["out"] for probe in probes)
            back_count += sum(probe["rtt_s"] is not None for probe in probes)
            cells.append(_host_cell(session.style, destination, probes, times))
        lines.append(f"{source} -> {' '.join(cells)}")
    lost = 100 * (sent - out_count) / sent if sent else 0.0
    tail = (
        f"; {out_count - back_count} answered another way, their own way back is lost" if out_count > back_count else ""
    )
    lines.append(f"*** Results: {lost:.0f}% dropped ({out_count}/{sent} received){tail}")
    return "\n".join(lines)


def _host_cell(style: Style, name: str, probes: list[dict[str, Any]], times: bool) -> str:
    """Name of a host in the output of pingall, by one probe on each path."""
    out = sum(probe["out"] for probe in probes)
    if not out:
        return style.paint("X", "bad")
    rtts = [probe["rtt_s"] for probe in probes if probe["rtt_s"] is not None]
    shares = []
    if out < len(probes):
        shares.append(f"{out}/{len(probes)}")
    if len(rtts) < out:
        shares.append(f"back {len(rtts)}/{out}")
    share = style.paint(f"({' '.join(shares)})", "warn") if shares else ""
    span = f"({show_seconds(min(rtts))}..{show_seconds(max(rtts))})" if times and rtts else ""
    return f"{name}{share}{span}"


@command("denylist", SHOW, reads=True)
def denylist(session: CliSession, args: Args) -> Answer:
    """Show the denylist of every host: causes, and the EVs that it takes away.

    denylist
    """
    arguments(args, "denylist", 0)
    rows, data = [], {}
    for name in _hosts_on(session):
        data[name] = answer = session.fabric.agent(name).request("denylist")
        denied = sum(len(evs) for evs in answer["denied"].values()) if answer["denied"] else 0
        rows += [
            [name, entry["scope"], entry["name"], entry["cause"] or "-", str(denied)] for entry in answer["entries"]
        ]
    if not rows:
        return Answer("no host has a denylist entry", data)
    heads = ("host", "scope", "what", "cause", "EVs denied")
    return Answer(table(session.style, heads, rows, right_columns=("EVs denied",)), data)


@command("deny", BREAK, complete=denylist_target)
def deny(session: CliSession, args: Args) -> str:
    """Take a place off the paths of all hosts, or of one: no packet uses it until `allow`.

    deny p1-t1-0                  a T1
    deny p1-t0-0 p1-t1-1          a T0-T1 link
    deny h3 p1-t0-1               a NIC port, for those who send to it or from it
    deny --host h0 p1-t1-0        for h0 alone
    """
    return _change_denylist(session, args, "deny")


@command("allow", BREAK, complete=denylist_target)
def allow(session: CliSession, args: Args) -> str:
    """Take a place off the denylist again; without one, everything.

    allow p1-t1-0
    allow
    """
    return _change_denylist(session, args, "allow")


def _hosts_on(session: CliSession) -> list[str]:
    """Return the hosts that have power."""
    nodes_off = session.fabric.nodes_off
    return [host.name for host in session.plan.hosts if host.name not in nodes_off]


def _change_denylist(session: CliSession, args: Args, op: str) -> str:
    names, targets = _hosts_on(session), list(args)
    if targets[:1] == ["--host"]:
        arguments(targets, f"{op} --host HOST PLACE, as in: {op} --host h0 p1-t1-0", 3, 4)
        names, targets = [host_on(session, targets[1])], targets[2:]
    if op == "allow" and not targets:
        ev_counts = [session.fabric.agent(name).request("denylist", entries=[])["changed"] for name in names]
        return f"no host has a denylist entry any more ({sum(ev_counts)} EVs of QPs changed)"
    ends = arguments(targets, f"{op} SWITCH, or {op} NODE NODE: {op} p1-t1-0", 1, 2)
    ends = [switch(session.plan, *ends)] if len(ends) == 1 else [known_node(session.plan, name) for name in ends]
    entry = denylist_entry(session.plan, *ends)
    if op == "deny":
        entry["cause"] = "cli"
    ev_counts = [session.fabric.agent(name).request(op, entries=[entry])["changed"] for name in names]
    hosts = names[0] if len(names) == 1 else f"{len(names)} hosts"
    return (
        f"{entry['name']} is {'denied' if op == 'deny' else 'allowed'} on {hosts}: {sum(ev_counts)} EVs of QPs changed"
    )
