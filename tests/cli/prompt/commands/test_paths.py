"""Paths at the prompt: EVs, probes of all of them, the denylist."""

import json

from mrc_testbed.cli.prompt.commands import paths
from tests.cli.prompt.session_doubles import DEFAULT, Client, output_of


def an_ev(ev, **fields):
    row = {
        "ev": ev,
        "plane": ev >> 8,
        "uplink": ev & 0xFF,
        "address": "fcbb:bb00:2000:1000:2001:3000::",
        "path": ["h0", "p0-t0-0", "p0-t1-0", "p0-t0-1", "h2"],
        "state": "good",
        "active": True,
        "rtt_s": 0.0101,
        "sent": 200,
        "lost": 0,
        "ports_down": [],
        "denied_by": [],
    }
    return {**row, **fields}


def fake_probes(monkeypatch, results):
    """Make the three probes of each EV end as `results` says, by EV."""

    def sweep(session, source, destination, count, interval_s, evs):
        return [
            {**a_probe(*probe), "ev": ev}
            for ev, result in results.items()
            if (ev, ev >> 8) in evs
            for probe in (*result, *result[-1:] * 2)[:count]
        ]

    monkeypatch.setattr(paths, "sweep", sweep)


def test_evs__a_line_for_each_path(cli, fabric, monkeypatch):
    lost = an_ev(0x101, state="assumed_bad", active=False, rtt_s=None, lost=3, path=["h0", "a", "b", "c", "h2"])
    denied = an_ev(0x200, state="denied", active=False, sent=0, rtt_s=None, denied_by=["p2-t1-0"])
    peers = [{"peer": "h2", "qps": 1, "evs": [an_ev(0), lost, denied]}]
    fabric.agents["h0"] = Client(health={"mode": "srv6", "peers": peers})
    address = "fcbb:bb00:2000:1000:2001:3000::"
    fake_probes(monkeypatch, {0: [(0.0105,), (0.0101,)], 0x101: [(None, False)], 0x200: [(None,)]})
    first, *lines = output_of(cli, "evs h0 h2").splitlines()
    assert first == "h0 to h2: 3 paths, mode srv6, 1 QP"
    assert [line.split() for line in lines] == [
        ["EV", "path", "uSID", "address", "state", "sent", "lost", "loss", "now", "through"],
        f"0x0000 0/0 {address} good* 200 0 0.0% 10.1 ms p0-t1-0".split(),
        f"0x0101 1/1 {address} assumed_bad 200 3 1.5% out lost b".split(),
        f"0x0200 2/0 {address} denied by 0 0 - back lost p0-t1-0".split(),
        ["p2-t1-0"],
    ]
    assert len({line.index(" fcbb") for line in lines[1:4]}) == 1  # aligned
    assert fabric.agents["h0"].requests == [("health", {"peer": "h2"})]
    first, second, _ = json.loads(output_of(cli, "evs h0 h2 --json"))["evs"]
    assert second["lost"] == 3 and first["probes"] == {"sent": 3, "out": 3, "back": 3, "rtt_s": 0.0101}
    for results, says in (([(0.01,), (None, False)], "out 1/3"), ([(0.01,), (0.01,), (None,)], "back 2/3")):
        fake_probes(monkeypatch, {0: results, 0x101: results, 0x200: results})
        assert output_of(cli, "evs h0 h2").count(says) == 3


def test_evs__of_modes_without_an_outer_header_have_no_address_column(cli, fabric, monkeypatch):
    fake_probes(monkeypatch, {0xDEADBEEF: [(0.01,)]})
    row = an_ev(0xDEADBEEF, plane=0xDEADBE, address=None, uplink=None)
    fabric.agents["h0"] = Client(health={"mode": "ecmp", "peers": [{"peer": "h2", "qps": 0, "evs": [row]}]})
    first, heads, _ = output_of(cli, "evs h0 h2").splitlines()
    assert first.endswith("no QP now (`send h0 h2 16M` makes one)") and "address" not in heads


def test_evs__probes_those_evs_that_it_shows(cli, fabric, monkeypatch):
    """The EVs of a QP in ecmp and flow-ecmp are its own, not those that a sweep draws by itself."""
    fake_probes(monkeypatch, {ev: [(0.01,)] for ev in (0x7, 0x101, 0x103)})
    peers = [{"peer": "h2", "qps": 2, "evs": [an_ev(0x103), an_ev(0x7)]}]
    fabric.agents["h0"] = Client(health={"mode": "ecmp", "peers": peers})
    assert [line.split()[0] for line in output_of(cli, "evs h0 h2").splitlines()[2:]] == ["0x0103", "0x0007"]


def test_evs__a_dead_port_is_named_instead_of_what_an_idle_qp_holds(cli, fabric, monkeypatch):
    fake_probes(monkeypatch, {0: [(None, False)]})
    row = an_ev(0, state="port_down", active=False, ports_down=["h2-eth0"])
    fabric.agents["h0"] = Client(health={"mode": "srv6", "peers": [{"peer": "h2", "qps": 1, "evs": [row]}]})
    assert "::  h2-eth0 down   200     0  0.0%  out lost  p0-t1-0" in output_of(cli, "evs h0 h2")


def test_deny_and_allow__on_every_host_or_one(cli, fabric):
    answer = {"entries": [{"scope": "t1", "name": "p1-t1-0", "cause": "cli"}], "denied": {"h2": [256]}, "changed": 2}
    fabric.agents = {h.name: Client(deny=answer, allow=answer, denylist=answer) for h in DEFAULT.hosts}
    assert output_of(cli, "deny p1-t1-0") == "p1-t1-0 is denied on 4 hosts: 8 EVs of QPs changed"
    assert fabric.agents["h0"].requests == [
        ("deny", {"entries": [{"scope": "t1", "name": "p1-t1-0", "cause": "cli"}]}),
    ]
    assert output_of(cli, "deny --host h1 h3 p1-t0-1") == "h3 p1-t0-1 is denied on h1: 2 EVs of QPs changed"
    assert fabric.agents["h1"].requests[-1][1]["entries"][0]["scope"] == "nic-plane"
    assert output_of(cli, "denylist").splitlines()[1].split() == ["h0", "t1", "p1-t1-0", "cli", "1"]
    assert output_of(cli, "allow").startswith("no host has a denylist entry any more")


def a_probe(rtt_s, out=True):
    """Return a probe's result as an agent reports it (hosts/agent/services/ev_ping.py)."""
    return {"rtt_s": rtt_s, "out": out, "back": rtt_s is not None if out else None}


def test_pingall__every_path_of_every_pair(cli, fabric, monkeypatch):
    """One path to h2 is dead from h0, so h0's answers to h2 are lost on it; nothing reaches h3."""

    def sweep(session, source, destination, count, interval_s):
        if destination == "h3":
            return [a_probe(None, out=False)] * 8
        if (source, destination) == ("h3", "h0"):
            return [a_probe(None, out=False), a_probe(None), *[a_probe(0.001)] * 6]
        last = {("h0", "h2"): a_probe(None, out=False), ("h2", "h0"): a_probe(None)}
        return [a_probe(0.001)] * 7 + [last.get((source, destination), a_probe(0.002))]

    monkeypatch.setattr(paths, "sweep", sweep)
    assert output_of(cli, "pingall").splitlines() == [
        "*** Ping: testing reachability over every path",
        "h0 -> h1 h2(7/8) X",
        "h1 -> h0 h2 X",
        "h2 -> h0(back 7/8) h1 X",
        "h3 -> h0(7/8 back 6/7) h1 h2",
        "*** Results: 27% dropped (70/96 received); 2 answered another way, their own way back is lost",
    ]
    assert output_of(cli, "pingpairfull").splitlines()[1:3] == [
        "h0 -> h2(7/8)(1 ms..1 ms)",
        "h2 -> h0(back 7/8)(1 ms..1 ms)",
    ]
