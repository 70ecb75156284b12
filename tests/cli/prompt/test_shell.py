"""The CLI: words, mistakes that cost one line, completion. No root: the fabric behind it is a stand-in."""

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from mrc_testbed.cli.prompt.commands import WORDS, Style, faults, paths
from mrc_testbed.cli.prompt.commands.transfers import _size
from mrc_testbed.cli.prompt.shell import FabricCLI
from mrc_testbed.ipc.rpc import JsonlError
from tests.cli.prompt.session_doubles import DEFAULT, Client, StandInFabric
from tests.repository import ROOT


@pytest.fixture
def fabric(tmp_path):
    return StandInFabric(tmp_path)


@pytest.fixture
def cli(fabric):
    with open(os.devnull) as nothing:
        yield FabricCLI(fabric, nothing, io.StringIO())


def said(cli, line):
    """What one command prints."""
    cli.stdout.seek(0)
    cli.stdout.truncate()
    assert cli.onecmd(cli.precmd(line)) is None
    return cli.stdout.getvalue().rstrip("\n")


def test_link__down_and_up(cli, fabric):
    assert said(cli, "link p1-t0-0 p1-t1-1 down") == "p1-t0-0 p1-t1-1 is down"
    assert said(cli, "links p1-t1-1").splitlines() == [
        "plane  link             state  rate  delay  loss  use",
        "    1  p1-t0-0 p1-t1-1  DOWN   -     -      -     -",
        "    1  p1-t0-1 p1-t1-1  up     -     -      -     -",
        "1 of 2 links are up",
    ]
    assert said(cli, "link p1-t1-1 p1-t0-0 up   # in either order") == "p1-t0-0 p1-t1-1 is up"
    assert said(cli, "links").endswith("32 of 32 links are up")


def test_power__off_and_on(cli):
    assert said(cli, "power p2-t1-0 off") == "p2-t1-0 is off"
    assert said(cli, "power p2-t1-0 off") == "p2-t1-0 is off already"
    assert said(cli, "link p2-t0-0 p2-t1-0 up") == "p2-t0-0 p2-t1-0 will be up when p2-t1-0 has power"
    assert said(cli, "switch p2-t1-0 start") == "p2-t1-0 is on"


@pytest.mark.parametrize(
    "line, answer",
    [
        ("link p1-t0-0", "usage: link NODE NODE up|down, as in: link p1-t0-0 p1-t1-1 down"),
        ("link p1-t0-9 p1-t1-0 down", "no node 'p1-t0-9' (did you mean p1-t0-1, p1-t0-0"),
        ("link h0 h1 down", "no link between h0 and h1 (h0 is linked to: p0-t0-0, p1-t0-0, p2-t0-0, p3-t0-0)"),
        ("link h0 p0-t0-0 sideways", "up or down, not 'sideways'"),
        ("links x y", "usage: links [NODE]"),
        ("lnik h0 p0-t0-0 down", "no command or node 'lnik' (did you mean: link"),
        ("p1-t0-7 ip link", "no command or node 'p1-t0-7' (did you mean: p1-t0-1"),
        ("power h0 off", "no switch 'h0'"),
        ("power p0-t0-0 maybe", "on or off, not 'maybe'"),
        ("power", "usage: power SWITCH on|off"),
        ("switch p0-t0-0 explode", "start or stop, not 'explode'"),
        ("evs h0", "usage: evs HOST HOST, as in: evs h0 h2"),
        ("evs h0 p0-t0-0", "no host 'p0-t0-0' (has: h0 ... h3)"),
        ("evs h0 h0", "give two hosts: evs HOST HOST"),
        ("faults soon", "no choice 'soon' (has active ... all)"),
        ("rate p0-t0-0 p0-t1-1", "usage: rate LINK RATE|off, as in: rate p0-t0-0 p0-t1-1 5M"),
        ("rate p0-t0-0", "p0-t0-0 has several links: usage: rate LINK RATE|off"),
        ("rate p0-t0-0 p0-t1-1 fast", "rate 'fast': give bits/s, such as 500K, 10M or 1G"),
        ("delay p0-t0-0 p0-t1-1 5 parsecs", "usage: delay LINK TIME|off"),
        ("delay p0-t0-0 p0-t1-1 5parsecs", "time '5parsecs': no unit 'parsecs'"),
        ("loss p0-t0-0 p0-t1-1 200%", "share '200%': must be 0 to 1, or 0% to 100%"),
        ("loss p0-t0-0 p1-t1-1 1%", "no link between p0-t0-0 and p1-t1-1"),
        ("loss p0-t0-7-eth3 1%", "no node 'p0-t0-7-eth3' (did you mean"),
        ("corrupt", "usage: corrupt LINK SHARE|PATTERN|off"),
        ("oneway p0-t0-0 p0-t1-1 maybe", "usage: oneway SENDER RECEIVER [off]"),
        ("blackhole h0", "no switch 'h0'"),
        ("blackhole p0-t1-0 now", "usage: blackhole SWITCH [off]"),
        ("flap p0-t0-0 p0-t1-1 2s 5", "'5': give how often as x5"),
        ("flap p0-t0-0 p0-t1-1 0s", "period_s = 0.0: give 0.01 to 3600 seconds"),
        ("flap p0-t0-0-eth3 2s", "a flap takes the whole link"),
        ("reboot", "usage: reboot SWITCH [TIME]"),
        ("reboot p0-t1-0 soon", "time 'soon': give seconds"),
        ("heal all", "usage: heal"),
        ("queues p0-t0-9", "no switch or port 'p0-t0-9' (did you mean"),
        ("counters h0", "no switch 'h0'"),
        ("check many", "'many' is no number of probes"),
        ("deny p0-t9-0", "no switch 'p0-t9-0'"),
        ("allow --host h9 p0-t1-0", "no host 'h9'"),
        ("trace h0 h2", "usage: trace HOST HOST EV [--full], as in: trace h0 h2 0x0101"),
        ("trace h0 h0 1", "give two hosts"),
        ("p4sh h0", "no switch 'h0'"),
        ("send h0 h2 --fast", "no option '--fast' (has: --rocev2)"),
        ("iperf h0", "usage: iperf [HOST HOST]"),
        ("iperfudp h0 h1", "there is no UDP between hosts, only MRC"),
        ("evs h0 h2", "h0: nobody listens"),
        ("send h0 h0", "h0 cannot send to itself"),
        ("send h0 h2 nofile", "'nofile' is neither a file nor a size such as 4096, 16M or 1G"),
        ("send h0 h2 1M fast", "rate 'fast': give bits/s"),
        ("send h0 h2 900000G", "has no room for two copies"),
        ("send", "usage: send HOST HOST [SIZE|FILE] [RATE] [--rocev2]"),
        ("pcap", "usage: capture PORT|NODE [OPTIONS], as in: capture p1-t0-0-eth3"),
        ("dpctl show", "switches here speak P4Runtime"),
        ("source /no/such", "cannot read /no/such: No such file"),
        ("help lin", "no command 'lin' (did you mean: link, links"),
        ("h0", "usage: h0 COMMAND, as in: h0 ip link"),
        ('"', "no command or node"),
        ("!!!", "no command or node"),
    ],
)
def test_mistakes__are_one_line_that_helps(cli, line, answer):
    shown = said(cli, line)
    assert answer in shown and shown.startswith("*** ") and "\n" not in shown


def test_bug__is_one_line_with_the_traceback_in_a_log(cli, fabric, tmp_path):
    fabric.agents["h0"] = Client(health={})
    assert re.fullmatch(
        r"\*\*\* internal error in 'evs': KeyError: 'peers' \(traceback in .*/cli.log\)", said(cli, "evs h0 h2")
    )
    assert "Traceback" in (tmp_path / "cli.log").read_text()
    assert cli.failures == 1


def an_ev(ev, **fields):
    row = {"ev": ev, "plane": ev >> 8, "uplink": ev & 0xFF, "address": "fcbb:bb00:2000:1000:2001:3000::",
           "path": ["h0", "p0-t0-0", "p0-t1-0", "p0-t0-1", "h2"], "state": "good", "active": True, "rtt_s": 0.0101,
           "sent": 200, "lost": 0, "denied_by": []}  # fmt: skip
    return {**row, **fields}


def probed(monkeypatch, results):
    """Have three probes of each EV end so; by EV."""

    def sweep(session, source, destination, count, interval_s):
        return [{**a_probe(*one), "ev": ev} for ev, ones in results.items() for one in (*ones, *ones[-1:] * 2)[:count]]

    monkeypatch.setattr(paths, "sweep", sweep)


def test_evs__a_line_for_each_path(cli, fabric, monkeypatch):
    lost = an_ev(0x101, state="assumed_bad", active=False, rtt_s=None, lost=3, path=["h0", "a", "b", "c", "h2"])
    denied = an_ev(0x200, state="denied", active=False, sent=0, rtt_s=None, denied_by=["p2-t1-0"])
    peers = [{"peer": "h2", "qps": 1, "evs": [an_ev(0), lost, denied]}]
    fabric.agents["h0"] = Client(health={"mode": "srv6", "peers": peers})
    address = "fcbb:bb00:2000:1000:2001:3000::"
    probed(monkeypatch, {0: [(0.0105,), (0.0101,)], 0x101: [(None, False)], 0x200: [(None,)]})
    first, *lines = said(cli, "evs h0 h2").splitlines()
    assert first == "h0 to h2: 3 paths, mode srv6, 1 QP"
    assert [line.split() for line in lines] == [
        ["EV", "path", "uSID", "address", "state", "sent", "lost", "loss", "now", "through"],
        f"0x0000 0/0 {address} good* 200 0 0.0% 10.1 ms p0-t1-0".split(),
        f"0x0101 1/1 {address} assumed_bad 200 3 1.5% out lost b".split(),
        f"0x0200 2/0 {address} denied by 0 0 - back lost p0-t1-0".split(),
        ["p2-t1-0"],
    ]
    assert len({line.index(" fcbb") for line in lines[1:4]}) == 1  # aligned
    assert fabric.agents["h0"].asked == [("health", {"peer": "h2"})]
    first, second, _ = json.loads(said(cli, "evs h0 h2 --json"))["evs"]
    assert second["lost"] == 3 and first["probes"] == {"sent": 3, "out": 3, "back": 3, "rtt_s": 0.0101}
    for results, says in (([(0.01,), (None, False)], "out 1/3"), ([(0.01,), (0.01,), (None,)], "back 2/3")):
        probed(monkeypatch, {0: results, 0x101: results, 0x200: results})
        assert said(cli, "evs h0 h2").count(says) == 3


def test_evs__of_modes_without_an_outer_header_have_no_address_column(cli, fabric, monkeypatch):
    probed(monkeypatch, {0xDEADBEEF: [(0.01,)]})
    one = an_ev(0xDEADBEEF, address=None, uplink=None)
    fabric.agents["h0"] = Client(health={"mode": "ecmp", "peers": [{"peer": "h2", "qps": 0, "evs": [one]}]})
    first, heads, _ = said(cli, "evs h0 h2").splitlines()
    assert first.endswith("no QP now (`send h0 h2 16M` makes one)") and "address" not in heads


def a_fault(**fields):
    evidence = [{"source": "gnmi 127.0.0.1:1", "after_s": 0.0}, {"source": "mapper", "after_s": 0.52}]
    row = {"number": 1, "state": "active", "kind": "link", "location": "p1-t0-0 p1-t1-1", "first_seen": 2.0,
           "text": "T0-T1 link p1-t0-0 p1-t1-1 down", "raised": 2.25, "cleared": None}  # fmt: skip
    return {**row, "evidence": evidence, **fields}


def test_faults__who_saw_them_and_how_fast(cli, fabric):
    said(cli, "link p1-t0-0 p1-t1-1 down")
    said(cli, "blackhole p2-t1-0")
    at = fabric.inject.active[0].at
    seen = {"first_seen": at + 0.001, "raised": at + 1.25}
    old = a_fault(number=2, state="cleared", cleared=at - 90)
    fabric.controller = Client(faults={"faults": [a_fault(**seen), old]})
    lines = said(cli, "faults").splitlines()
    assert lines[0].split() == ["#", "state", "what", "since", "seen", "by", "found", "after"]
    assert re.fullmatch(
        r"1  active  T0-T1 link p1-t0-0 p1-t1-1 down  +\S+ (s|min)  gnmi, mapper \+520 ms  +1250 ms", lines[1]
    )
    assert re.fullmatch(r"not found: blackhole on p2-t1-0 ports stay up, injected .* s ago", lines[2])
    assert lines[3:] == ["1 active, 1 past"]
    assert len(json.loads(said(cli, "faults all --json"))) == 2


@pytest.mark.parametrize(
    ("direction", "is_found"),
    [(None, True), ("both", True), ("p1-t0-0 -> p1-t1-1", True), ("p1-t1-1 -> p1-t0-0", False)],
)
def test_faults__the_other_direction_alone_is_not_what_was_injected(cli, fabric, direction, is_found):
    said(cli, "oneway p1-t0-0 p1-t1-1")
    at = fabric.inject.active[0].at
    told = a_fault(kind="lossy link", direction=direction, first_seen=at + 0.1, raised=at + 1.0)
    fabric.controller = Client(faults={"faults": [told]})
    assert ("not found" in said(cli, "faults")) is not is_found


def test_faults__none(cli, fabric):
    fabric.controller = Client(faults={"faults": []})
    assert said(cli, "faults") == "0 active, 0 past"


def test_routes__from_the_controller(cli, fabric, monkeypatch):
    monkeypatch.setattr(faults, "SETTLE_S", 0.0)
    fabric.controller = Client(verify={"digests": dict.fromkeys("abc", ""), "unchanged_since_start": True})
    assert said(cli, "routes") == "tables of 3 switches read back: unchanged since the start"
    fabric.controller = Client(
        verify={"digests": {}, "unchanged_since_start": False, "differences": ["p0-t0-0: usid_next * is missing"]}
    )
    assert said(cli, "routes").startswith("*** switch tables differ from what was written: p0-t0-0: usid_next")


# ---- breaking and healing -------------------------------------------------------------------------------------


def test_routes__a_difference_that_is_being_put_right_is_none(cli, fabric):
    answers = [{"digests": {}, "unchanged_since_start": True, "differences": ["p0-t0-0: dead_ports"]}] * 2
    answers.append({"digests": {}, "unchanged_since_start": True, "differences": []})
    fabric.controller.request = lambda op, **fields: answers.pop(0)
    assert said(cli, "routes").endswith("unchanged since the start") and not answers


def test_impairments__set_replace_and_take_away(cli, fabric):
    assert said(cli, "loss p0-t0-0 p0-t1-1 1%") == "loss on p0-t0-0 p0-t1-1: 1 %"
    assert said(cli, "loss p0-t0-0,p0-t1-1 5%") == "loss on p0-t0-0 p0-t1-1: 5 %"
    assert said(cli, "delay p0-t0-0-eth4 5ms") == "delay on p0-t0-0 p0-t1-1: 5 ms from p0-t0-0"
    assert said(cli, "rate p0-t1-1 p0-t0-0 5M") == "rate on p0-t0-0 p0-t1-1: 5 Mb/s"
    assert [one.kind for one in fabric.inject.active] == ["loss", "delay", "rate"]
    row = said(cli, "links p0-t1-1").splitlines()[1]
    assert re.fullmatch(r"    0  p0-t0-0 p0-t1-1  up     5 Mb/s  5 ms / -  5%    -", row)
    assert said(cli, "injected").splitlines()[1].startswith("2  loss   p0-t0-0 p0-t1-1  5 %")
    assert said(cli, "loss p0-t0-0 p0-t1-1 off") == "p0-t0-0 p0-t1-1: loss is as planned again"
    assert said(cli, "loss p0-t0-0 p0-t1-1 off") == "p0-t0-0 p0-t1-1: no loss was injected"
    assert said(cli, "heal").splitlines()[-1] == "2 undone"
    assert said(cli, "heal") == "nothing was injected; links, switches and queues are as planned"
    assert said(cli, "injected") == "nothing is injected"


def test_patterns__are_told_from_shares(cli, fabric):
    assert said(cli, "loss h0 p0-t0-0 0001") == "loss on h0 p0-t0-0: pattern 0001"
    assert said(cli, "corrupt p0-t0-0 p0-t1-0 1") == "corrupt on p0-t0-0 p0-t1-0: 100 %"
    assert said(cli, "corrupt p0-t0-0 p0-t1-0 01") == "corrupt on p0-t0-0 p0-t1-0: pattern 01"
    nothing = "*** loss on h0 p0-t0-0: give a probability above 0, or a pattern such as 0001"
    assert said(cli, "loss h0 p0-t0-0 0.0%") == nothing
    assert said(cli, "loss p0-t1-0,p0-t0-0 1%") == "loss on p0-t0-0 p0-t1-0: 1 %"
    assert said(cli, "loss p0-t1-0-eth1 2%") == "loss on p0-t0-0 p0-t1-0: 2 % from p0-t1-0"


def test_switch_faults__on_and_off(cli, fabric):
    assert said(cli, "blackhole p1-t1-0") == "blackhole on p1-t1-0: ports stay up"
    assert said(cli, "blackhole p1-t1-0 off") == "p1-t1-0 forwards again"
    assert said(cli, "blackhole p1-t1-0 off") == "p1-t1-0 was no black hole"
    assert said(cli, "oneway p0-t1-1 p0-t0-0") == "one way cut on p0-t0-0 p0-t1-1: from p0-t1-1"
    assert said(cli, "oneway p0-t1-1 p0-t0-0 off") == "p0-t0-0 p0-t1-1: what p0-t1-1 sends arrives"
    assert re.match(r"p1-t1-0 was off for \S+ s and is on again, empty", said(cli, "reboot p1-t1-0"))


def test_flap__in_the_background_until_healed(cli, fabric):
    assert said(cli, "flap p0-t0-0 p0-t1-1 2s x5") == "flap on p0-t0-0 p0-t1-1: every 2 s, 5 times"
    assert said(cli, "flap h0 p0-t0-0") == "flap on h0 p0-t0-0: every 2 s"
    assert said(cli, "heal").splitlines()[-1] == "2 undone"
    assert not fabric.cut


# ---- queues, counters, denylist, check ------------------------------------------------------------------------


def test_queues__of_a_port_a_switch_and_of_all(cli):
    said(cli, "rate p0-t0-0 p0-t1-0 5M")
    lines = said(cli, "queues p0-t0-0-eth3").splitlines()
    assert len(lines) == 9 and lines[1].split() == ["p0-t0-0-eth3", "0", "data", "5", "Mb/s", "-", "0", "0", "0", "0"]
    assert len(said(cli, "queues p0-t0-0").splitlines()) == 1 + 2 * 4
    assert said(cli, "queues") == "48 ports read, 0 queues hold or dropped packets"
    assert json.loads(said(cli, "queues p0-t0-0-eth3 --json"))[0]["port_rate_bps"] == 5_000_000


def test_counters__of_one_switch_and_of_all(cli, fabric):
    def cell(port, packets, **reason):
        return {"port": port, "interface": f"p0-t0-0-eth{port}", "packets": packets, "bytes": 9, **reason}

    trimmed = [cell(1, 3, reason="trimmed last hop"), cell(3, 4, reason="trimmed")]
    drops = [cell(3, 2, reason="no route"), cell(3, 5, reason="queue")]
    counted = {"forwarded": [cell(1, 10), cell(3, 30)], "marked": [cell(3, 7)], "trimmed": trimmed, "drops": drops}
    ports = [{"interface": f"p0-t0-0-eth{n}", "port": n, "in_pkts": 100 + n} for n in (1, 3)]
    fabric.controller = Client(counters={"ports": ports, "counters": counted})
    assert [line.split() for line in said(cli, "counters p0-t0-0").splitlines()] == [
        ["port", "to", "in", "forwarded", "marked", "trimmed", "dropped", "why"],
        ["p0-t0-0-eth1", "h0", "101", "10", "0", "0", "/", "3", "0"],
        ["p0-t0-0-eth3", "p0-t1-0", "103", "30", "7", "4", "/", "0", "7", "no", "route", "2,", "queue", "5"],
    ]
    assert fabric.controller.asked[-1][1]["switch"] == "p0-t0-0"
    ports[:] = [{"interface": "p0-t0-0-eth1", "port": 1}]
    assert said(cli, "counters").splitlines()[1].split() == ["p0-t0-0", "0", "10", "0", "0", "/", "3", "0"]


def test_deny_and_allow__on_every_host_or_one(cli, fabric):
    answer = {"entries": [{"scope": "t1", "name": "p1-t1-0", "cause": "cli"}], "denied": {"h2": [256]}, "changed": 2}
    fabric.agents = {h.name: Client(deny=answer, allow=answer, denylist=answer) for h in DEFAULT.hosts}
    assert said(cli, "deny p1-t1-0") == "p1-t1-0 is denied on 4 hosts: 8 EVs of QPs changed"
    assert fabric.agents["h0"].asked == [
        ("deny", {"entries": [{"scope": "t1", "name": "p1-t1-0", "cause": "cli"}]}),
    ]  # fmt: skip
    assert said(cli, "deny --host h1 h3 p1-t0-1") == "h3 p1-t0-1 is denied on h1: 2 EVs of QPs changed"
    assert fabric.agents["h1"].asked[-1][1]["entries"][0]["scope"] == "nic-plane"
    assert said(cli, "denylist").splitlines()[1].split() == ["h0", "t1", "p1-t1-0", "cli", "1"]
    assert said(cli, "allow").startswith("no host has a denylist entry any more")


def a_link(name, state="ok", **fields):
    tally = {"state": state, "sent": 50, "back": 50 if state == "ok" else 0, "trimmed": 0, "rtt_median_s": 0.0004}
    row = {"link": name, "plane": 0, "kind": "T0-T1", "state": state, "why": "", "by": ["h0", "h1"]}
    return {**row, "control": tally, "data": tally, **fields}


def a_burst(*rows):
    return {"links": list(rows), "count": 50, "duration_s": 0.9, "stalled_s": 0.0, "note": ""}


def test_check__says_what_is_bad_and_which_switch_it_may_be(cli, fabric):
    fabric.mapper = Client(probe_all=a_burst(a_link("p0-t0-0 p0-t1-0"), a_link("p0-t0-1 p0-t1-0")))
    assert said(cli, "check").endswith(" in 0.9 s: 2 of 2 links probed, all well") and cli.failures == 0
    rows = [a_link(f"p0-t0-{n} p0-t1-0", "down") for n in range(2)] + [a_link("h0 p0-t0-0"), a_link("p0-t0-0 p0-t1-1")]
    fabric.mapper = Client(probe_all=a_burst(*rows))
    lines = said(cli, "check 50").splitlines()
    assert lines[1].split() == ["p0-t0-0", "p0-t1-0", "down", "50/50", "50/50", "0", "0.40", "ms", "h0", "h1"]
    assert "suspect: p0-t1-0, none of its links works" in lines
    assert lines[-1] == "*** 2 down of 4 links: p0-t1-0" and cli.failures == 1


def test_check__of_links_that_cannot_be_probed_the_carrier_is_looked_at(cli, fabric):
    unprobed = a_link("p0-t0-0 p0-t1-0", "unknown", by=[], why="no host probes it", control=None, data=None)
    burst = {**a_burst(a_link("h0 p0-t0-0"), unprobed), "note": "T0-T1 links are not probed in this mode"}
    fabric.mapper = Client(probe_all=burst)
    assert said(cli, "check").endswith(": 1 of 2 links probed, all well, the others have\n    carrier")
    said(cli, "link p0-t0-0 p0-t1-0 down")
    lines = said(cli, "check").splitlines()
    assert lines[1].split() == ["p0-t0-0", "p0-t1-0", "down", "-", "-", "-", "-", "not", "probed:", "no", "carrier"]
    assert lines[-1] == "*** 1 down of 2 links"


def a_probe(rtt_s, out=True):
    """What an agent tells of one (hosts/agent/services/ev_ping.py)."""
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
    assert said(cli, "pingall").splitlines() == [
        "*** Ping: testing reachability over every path",
        "h0 -> h1 h2(7/8) X",
        "h1 -> h0 h2 X",
        "h2 -> h0(back 7/8) h1 X",
        "h3 -> h0(7/8 back 6/7) h1 h2",
        "*** Results: 27% dropped (70/96 received); 2 answered another way, their own way back is lost",
    ]
    assert said(cli, "pingpairfull").splitlines()[1:3] == [
        "h0 -> h2(7/8)(1 ms..1 ms)",
        "h2 -> h0(back 7/8)(1 ms..1 ms)",
    ]


# ---- transfers ------------------------------------------------------------------------------------------------


class Agent:
    """An agent that takes a file and tells `events` about it."""

    def __init__(self, *events):
        self.events = list(events)
        self.sent = {}

    def watch(self):
        return self

    def get(self):
        if not self.events:
            raise JsonlError("closed")
        return self.events.pop(0)

    def close(self):
        pass

    def request(self, op, **fields):
        assert op == "send_file"
        self.sent = fields
        self.sent["bytes"] = os.path.getsize(fields["path"])
        return {"transfer": 7}


def event(name, **fields):
    return {"event": name, "t": 1e9, "transfer": 7, **fields}


def test_send__says_how_it_goes_and_removes_its_random_files(cli, fabric, tmp_path):
    (tmp_path / "arrived").write_bytes(b"x")
    fabric.agents["h0"] = agent = Agent(
        {"event": "lost", "t": 1.0, "qpn": 1},
        event("transfer", state="sending"),
        event("progress", bytes_done=30_000, transfer=6),
        event("progress", bytes_done=20_000),
        event("progress", bytes_done=60_000),
        event("progress", bytes_done=61_000),
        event(
            "transfer",
            state="done",
            duration_s=2.0,
            goodput_bps=40e6,
            remote_path=str(tmp_path / "arrived"),
            counters={"lost": 3, "retransmitted": 4},
        ),
    )
    out = said(cli, "send h0 h2 100000 40M") + "\n"
    cli.onecmd("wait")
    out = cli.stdout.getvalue()
    assert [re.sub(r" after .* s", "", line.partition("): ")[2]) for line in out.splitlines()] == [
        "begun",
        "60%",
        "arrived bit for bit in 2.00 s, 40 Mb/s; 3 packets lost, 4 retransmitted",
    ]
    assert (
        "transport" not in agent.sent
        and agent.sent["bytes"] == 100_000
        and agent.sent["rate_bps"] == 40e6
        and agent.sent["peer"] == "h2"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == []
    assert cli.failures == 0


@pytest.mark.parametrize("refused", [False, True])
def test_send__the_users_file_is_brought_to_the_senders_machine_and_the_copy_removed(cli, fabric, tmp_path, refused):
    (tmp_path / "model.bin").write_bytes(bytes(1000))
    brought = tmp_path / "h0-copy"
    fabric.bring = lambda host, path: Path(shutil.copy(path, brought))
    agent = fabric.agents["h0"] = Agent(event("transfer", state="failed", error="retry budget spent"))
    if refused:
        agent.request = lambda op, **fields: agent.sent.update(fields) or fabric.agent("nobody")
    said(cli, f"send h0 h2 {tmp_path / 'model.bin'}")
    cli.onecmd("wait")
    assert agent.sent["path"] == str(brought)
    assert (tmp_path / "model.bin").exists() and not brought.exists()


def test_send__failure_is_counted_at_wait_and_the_users_file_stays(cli, fabric, tmp_path):
    (tmp_path / "model.bin").write_bytes(bytes(1000))
    fabric.agents["h0"] = Agent(event("transfer", state="failed", error="retry budget spent"))
    said(cli, f"send h0 h2 {tmp_path / 'model.bin'}")
    cli.onecmd("wait")
    assert "failed after" in cli.stdout.getvalue() and "retry budget spent" in cli.stdout.getvalue()
    assert "*** 1 of the transfers failed" in cli.stdout.getvalue()
    assert (tmp_path / "model.bin").exists() and cli.failures == 1


@pytest.mark.parametrize(
    "line, offers",
    [
        ("link p1-t0", "p1-t0-0 p1-t0-1"),
        ("link p1-t0-0 p1-t1", "p1-t1-0 p1-t1-1"),
        ("link h0 ", "p0-t0-0 p1-t0-0 p2-t0-0 p3-t0-0"),
        ("link p1-t0-0 p1-t1-1 d", "down"),
        ("power p3-t1", "p3-t1-0 p3-t1-1"),
        ("power p1-t0-0 o", "on off"),
        ("links p0-t1", "p0-t1-0 p0-t1-1"),
        ("send h0 h", "h1 h2 h3"),
        ("p2-t1", "p2-t1-0 p2-t1-1"),
        ("rou", "routes"),
        ("loss p0-t0-0 p0-t1-0 1", "1% 10%"),
        ("loss p0-t0-0-eth3 o", "off"),
        ("flap h1 ", "p0-t0-0 p1-t0-0 p2-t0-0 p3-t0-0"),
        ("reboot p2-t1", "p2-t1-0 p2-t1-1"),
        ("trace h0 h2 0x01", "0x0100 0x0101"),
        ("trace h0 ", "h0 h1 h2 h3"),
        ("capture p2-t1-1-eth", "p2-t1-1-eth1 p2-t1-1-eth2"),
        ("faults a", "active all"),
        ("faults --", "--json"),
        ("evs h0 h", "h1 h2 h3"),
        ("evs h0 h2 h", ""),
        ("ping h0 h2 -", "-c -i -W -v --json"),
        ("deny p1-t0-0 p1", "p1-t1-0 p1-t1-1"),
        ("deny --host h0 p1-t1", "p1-t1-0 p1-t1-1"),
        ("allow --h", "--host"),
        ("capture h0 --s", "--seconds --snap"),
        ("help li", "link links"),
        ("help wo", ""),
        ("switch p1-t1-0 st", "start stop"),
        ("notices o", "on off"),
        ("h0 mrc-w", "mrc-write-bw mrc-write-lat"),
        ("h0 mrc-ping h", "h0 h1 h2 h3"),
        ("source pypro", "pyproject.toml"),
        ("source docs/desi", "docs/design/"),
        ("send h0 h2 READ", "README.md"),
    ],
)
def test_completion__offers_what_fits(cli, line, offers):
    word, _, _ = line.partition(" ")
    text = line.rpartition(" ")[2]
    complete = getattr(cli, f"complete_{word}", cli.completedefault) if " " in line else cli.completenames
    ends = [name if name.endswith("/") else f"{name} " for name in offers.split()]
    assert complete(text, line, len(line) - len(text), len(line)) == ends


def test_help__every_word_has_an_example(cli):
    overview = said(cli, "help")
    for word in WORDS.values():
        assert (f"  {word.name} " in overview) == bool(word.group)
        assert re.search(rf"^{word.name}\b", said(cli, f"help {word.name}"), re.MULTILINE)
        assert len(word.summary) < 110
    for name in [
        "nodes",
        "net",
        "sh",
        "py",
        "px",
        "intfs",
        "dump",
        "gterm",
        "x",
        "pingall",
        "iperf",
        "dpctl",
        "switch",
    ]:
        assert said(cli, f"help {name}")


def test_docs__tell_every_word():
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name, word in WORDS.items() if f"`{name}`" not in page] == []


def test_source__does_the_commands_in_a_file(cli, fabric, tmp_path):
    (tmp_path / "cut").write_text("# cut both\nlink p0-t0-0 p0-t1-0 down\n\nlink p0-t0-0 p0-t1-1 down # second\n")
    assert said(cli, f"source {tmp_path / 'cut'}") == "p0-t0-0 p0-t1-0 is down\np0-t0-0 p0-t1-1 is down"


@pytest.mark.parametrize("text, value", [("4096", 4096), ("16M", 16 << 20), ("1.5k", 1536), ("1G", 1 << 30)])
def test_size__in_bytes(text, value):
    assert _size(text) == value


@pytest.mark.parametrize("text", ["", "M", "-1", "0", "nan", "inf", "1T", "ten", "1e30", "0x10"])
def test_size__what_is_none_may_be_a_file(text):
    assert _size(text) is None


def test_colours__only_on_a_terminal(fabric, cli, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Style.of(Terminal()).colour and not Style.of(io.StringIO()).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Style.of(Terminal()).colour
    said(cli, "link p0-t0-0 p0-t1-0 down")
    assert "\033" not in said(cli, "links p0-t1-0")
    cli.session.style = Style(True)
    assert "\033[1;31mDOWN\033[0m " in said(cli, "links p0-t1-0")


# ---- the live view ------------------------------------------------------------------------------------------


def test_dash__asks_who_began_the_prompt_for_the_page(cli):
    cli.session.open_page = lambda its: f"live view of {len(its.plan.hosts)} hosts"
    assert said(cli, "dash") == "live view of 4 hosts"


def test_dash__without_a_page_says_where_there_is_one(cli):
    assert "it belongs to `mrc up`" in said(cli, "dash")
    assert "usage: dash" in said(cli, "dash now")
