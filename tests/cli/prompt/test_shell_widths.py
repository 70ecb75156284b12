"""Every command that prints a table, on a fabric of 64 switches with long names.

No line is over 100 columns.
"""

import io
import os
import re

import pytest

from mrc_testbed.cli.prompt.commands import WORDS, links, paths
from mrc_testbed.cli.prompt.shell import FabricCLI
from mrc_testbed.console.terminal import Style
from mrc_testbed.hosts.tools import ping, stat, write_bw
from mrc_testbed.topologies.lab.wires import PortLook
from mrc_testbed.topologies.plan import Plan
from tests.cli.prompt.session_doubles import Client, StandInFabric
from tests.hosts.tools.tool_results import RESULT, status

PLAN = Plan.scaled(planes=16, racks=2, spines=2, hosts_per_rack=12)
EVS = [ev for ev, _ in PLAN.ev_planes(PLAN.host("h10"), PLAN.host("h20"))]
LINK = "p15-t0-1 p15-t1-1"
BIG_COUNT = 123_456_789


def an_ev(ev):
    path = PLAN.path(PLAN.host("h10"), PLAN.host("h20"), ev).nodes
    return {
        "ev": ev,
        "plane": ev >> 8,
        "uplink": ev & 0xFF,
        "path": list(path),
        "state": "denied",
        "active": True,
        "address": "fcbb:bb00:2f00:1f01:2f01:3b00::",
        "rtt_s": None,
        "sent": BIG_COUNT,
        "lost": 12345,
        "acked": 0,
        "denied_by": ["cli", "controller p15-t0-1 p15-t1-1"],
    }


def a_probe(ev, out=False):
    return {"event": "probe", "ev": ev, "plane": ev >> 8, "round": 0, "out": out, "rtt_s": None, "port_up": False}


def a_fault(number):
    evidence = [{"source": name, "after_s": 0.25 * n} for n, name in enumerate(("gnmi", "digest", "mapper", "hosts"))]
    text = f"T0-T1 link {LINK} loses 12.5 % of its packets in the direction p15-t0-1 -> p15-t1-1, or the other one"
    return {
        "number": number,
        "state": "active",
        "text": text,
        "location": LINK,
        "kind": "lossy link",
        "evidence": evidence,
        "first_seen": 1.0,
        "raised": 2.0,
        "cleared": None,
        "last_seen": 3.0,
    }


def counters():
    def cell(port, **fields):
        return {"port": port, "interface": f"p15-t0-1-eth{port}", "packets": BIG_COUNT, "bytes": BIG_COUNT, **fields}

    ports = [{"interface": f"p15-t0-1-eth{n}", "port": n, "in_pkts": BIG_COUNT} for n in range(1, 15)]
    drops = [
        cell(n, reason=reason) for n in range(1, 15) for reason in ("NO_ROUTE", "DEAD_NEXT_HOP 14", "HOP_LIMIT", "TTL")
    ]
    trims = [cell(n, reason=reason) for n in range(1, 15) for reason in ("trimmed", "trimmed last hop")]
    tables = {key: [cell(n) for n in range(1, 15)] for key in ("forwarded", "marked")}
    return {"ports": ports, "counters": {**tables, "drops": drops, "trimmed": trims}}


def burst():
    tally = {"state": "down", "sent": 50, "back": 0, "trimmed": 17, "rtt_median_s": 12.3}
    rows = [
        {
            "link": link.name,
            "state": "down",
            "why": "",
            "by": [f"h{n}" for n in range(24)],
            "plane": link.plane,
            "kind": link.kind,
            "control": tally,
            "data": tally,
        }
        for link in PLAN.links
    ]
    note = "T0-T1 links are probed by carrier alone in this mode, since no EV names them; see docs/telemetry.md"
    return {"links": rows, "count": 50, "duration_s": 12.3, "stalled_s": 1.0, "note": note}


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(links, "USE_S", 0.0)
    monkeypatch.setattr(paths, "sweep", lambda *_: [a_probe(ev) for ev in EVS])
    fabric = StandInFabric(tmp_path, PLAN)
    fabric.link_states = lambda: {link.upper.interface: PortLook(True, BIG_COUNT, BIG_COUNT) for link in PLAN.links}
    entries = [{"scope": "link", "name": LINK, "cause": "controller: " + a_fault(1)["text"]}]
    health = {"mode": "srv6", "peers": [{"peer": "h20", "qps": 128, "evs": [an_ev(ev) for ev in EVS]}]}
    agent = Client(health=health, denylist={"entries": entries, "denied": {"h20": EVS}, "changed": 3})
    fabric.agents = {host.name: agent for host in PLAN.hosts}
    fabric.controller = Client(faults={"faults": [a_fault(n) for n in (9, 10)]}, counters=counters())
    fabric.mapper = Client(probe_all=burst())
    with open(os.devnull) as no_input:
        cli = FabricCLI(fabric, no_input, io.StringIO())
        for line in (f"loss {LINK} 12.5%", f"delay {LINK} 123.456ms", f"flap {LINK} 20s x12", "blackhole p15-t1-0"):
            cli.onecmd(line)
        yield cli
        cli.onecmd("heal")


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("links", ["h23", "p15-t0-1", "p15-t1-1", "12.5%"]),
        ("evs h10 h20", ["0x0f01", "15/1", "fcbb:bb00:2f00:1f01:2f01:3b00::", "p15-t1-1", "controller"]),
        ("denylist", ["h23", LINK.split()[1], "controller:", "32"]),
        ("faults all", ["gnmi,", "digest", "mapper", "hosts", "direction", "10"]),
        ("check", ["h23", "suspect:", "docs/telemetry.md", "p15-t1-1,", "59"]),
        ("queues p15-t0-1", ["p15-t0-1-eth14"]),
        ("counters", ["p15-t1-1", "DEAD_NEXT_HOP", "NO_ROUTE"]),
        ("counters p15-t0-1", ["p15-t0-1-eth14", "HOP_LIMIT", str(BIG_COUNT)]),
        ("injected", ["blackhole", "p15-t0-1"]),
        ("pingall", ["h23", "->"]),
        ("pingallfull", ["h23"]),
        ("help", ["links", "capture", "pingpairfull"]),
    ],
)
def test_words__fit_100_columns_and_say_it_all(cli, line, shows):
    cli.stdout.seek(0)
    cli.stdout.truncate()
    cli.onecmd(line)
    output = cli.stdout.getvalue()
    assert max(map(len, output.splitlines())) <= 100, max(output.splitlines(), key=len)
    assert "…" not in output and "internal error" not in output
    assert not [word for word in shows if word not in re.split(r"[ \n]+", output)]


def test_words__help_of_each_fits(cli):
    cli.stdout = out = io.StringIO()
    for word in WORDS:
        cli.onecmd(f"help {word}")
    output = out.getvalue()
    assert not [line for line in output.splitlines() if len(line) > 100]
    assert " ".join(output.split()) == " ".join(" ".join(word.help for word in WORDS.values()).split())


def test_tools__fit_100_columns_on_sixteen_planes():
    h10, h20 = PLAN.host("h10"), PLAN.host("h20")
    reports = ping.reports_for(PLAN, h10, h20, [(ev, ev >> 8) for ev in EVS])
    for n, (ev, report) in enumerate(reports.items()):
        report.count({**a_probe(ev), "rtt_s": 0.09876} if n % 2 else a_probe(ev))
    # Each field has its longest value: a line that is too long shows only then.
    sample = stat.sample(status(1e6, BIG_COUNT))
    sample["qps"][0] |= {
        "error": "retry budget spent: " + "the peer does not answer " * 5,
        "transport": "rocev2",
        "ev_states": {"good": 10, "skip": 7, "assumed_bad": 9, "denied": 6},
        "evs": [{**an_ev(ev), "srtt_s": 1.234567} for ev in EVS],
    }
    texts = [
        ping.report(list(reports.values()), Style()),
        stat.text(stat.add_rates(sample, None), evs=True, plan=PLAN, style=Style()),
        write_bw.row({**RESULT, "plane_bps": [12345.6e6] * 16}),
        write_bw.COLUMNS,
        write_bw.interval_row(
            {
                "from_s": 1.0,
                "to_s": 2.0,
                "bw_bps": 1e9,
                "received_bps": 1e9,
                "retransmitted": 12345,
                "plane_bps": [12345.6e6] * 16,
            }
        ),
    ]
    lines = "\n".join(texts).splitlines()
    assert max(map(len, lines)) <= 100, max(lines, key=len)
    assert any("0x0f01" in line and "p15-t1-1" in line for line in lines) and "…" not in "\n".join(lines)
