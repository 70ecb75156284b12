"""The CLI: words, mistakes that cost one line, completion. No root: the fabric behind it is a stand-in."""

import io
import os
import re
import types

import pytest

from topologies import words
from topologies.cli import FabricCLI
from topologies.jsonl import JsonlError
from topologies.plan import Plan, PlanError

DEFAULT = Plan()


class Net(dict):
    """What Mininet's CLI asks of a net: a mapping of names to nodes."""

    def __init__(self):
        names = [node.name for node in (*DEFAULT.hosts, *DEFAULT.switches)]
        super().__init__({name: types.SimpleNamespace(name=name, waiting=False) for name in names})


class Client:
    """A JsonlClient that answers from a table."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def request(self, op, **fields):
        self.asked.append((op, fields))
        return self.answers[op]


class StandInFabric:
    """Links and power as a Fabric keeps them, without interfaces."""

    def __init__(self, tmp_path):
        self.plan = DEFAULT
        self.mininet = Net()
        self.hosts = {h.name: None for h in DEFAULT.hosts}
        self.switches = {s.name: types.SimpleNamespace(powered=True) for s in DEFAULT.switches}
        self.down = set()
        self.run_dir = types.SimpleNamespace(log=lambda name: tmp_path / f"{name}.log", data=tmp_path)
        self.controller = Client()
        self.agents = {}

    def link(self, a, b, up):
        link = self.plan.link(a, b)
        (self.down.discard if up else self.down.add)(link)
        return 1.0

    def link_is_up(self, link):
        dark = [end for end in link.ends if end in self.switches and not self.switches[end].powered]
        return link not in self.down and not dark

    def power(self, name, on):
        self.switches[name].powered = on

    def agent(self, host):
        if host not in self.agents:
            raise JsonlError(f"{host}: nobody listens")
        return self.agents[host]


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
        "plane 1  p1-t0-0 p1-t1-1        DOWN",
        "plane 1  p1-t0-1 p1-t1-1        up",
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
        ("evs h0", "usage: evs HOST HOST"),
        ("evs h0 p0-t0-0", "no host 'p0-t0-0' (has: h0 ... h3)"),
        ("evs h0 h2", "h0: nobody listens"),
        ("faults now", "usage: faults"),
        ("send h0 h0", "h0 cannot send to itself"),
        ("send h0 h2 nofile", "'nofile' is neither a file nor a size such as 4096, 16M or 1G"),
        ("send h0 h2 1M fast", "rate 'fast': give bits/s"),
        ("send h0 h2 900000G", "has no room for two copies"),
        ("send", "usage: send HOST HOST [SIZE|FILE] [RATE]"),
        ("pcap", "usage: pcap PORT|NODE [OPTIONS], as in: pcap p1-t0-0-eth3"),
        ("pingall", "fabric interfaces have no kernel addresses"),
        ("iperf h0 h1", "fabric interfaces have no kernel addresses"),
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
    fabric.agents["h0"] = Client(status={})
    assert re.fullmatch(
        r"\*\*\* internal error in 'evs': KeyError: 'qps' \(traceback in .*/cli.log\)", said(cli, "evs h0 h2")
    )
    assert "Traceback" in (tmp_path / "cli.log").read_text()
    assert cli.failures == 1


def test_evs__a_line_for_each_path(cli, fabric):
    evs = [{"ev": 0x000, "state": "good"}, {"ev": 0x101, "state": "assumed_bad"}, {"ev": 0xFFFF, "state": "good"}]
    fabric.agents["h0"] = Client(status={"qps": [{"qpn": 0x11, "peer": "h2", "evs": evs}]})
    assert said(cli, "evs h0 h2").splitlines() == [
        "QP 0x11 of h0 to h2",
        "  EV 0x0000  plane 0  good         p0-t0-0 p0-t1-0 p0-t0-1",
        "  EV 0x0101  plane 1  assumed_bad  p1-t0-0 p1-t1-1 p1-t0-1",
        "  EV 0xffff  plane 255  good         (no path of the plan)",
    ]
    assert "h0 has no QP with h3 now: `send h0 h3 16M`" in said(cli, "evs h0 h3")


def test_faults_and_routes__from_the_controller(cli, fabric):
    fault = {"number": 1, "state": "active", "text": "T0-T1 link p1-t0-0 p1-t1-1 is down", "first_seen": 0.0}
    fabric.controller = Client(
        faults={"faults": [fault]}, verify={"digests": dict.fromkeys("abc", ""), "unchanged_since_start": True}
    )
    line, total = said(cli, "faults").splitlines()
    assert re.fullmatch(r"  1  active   T0-T1 link p1-t0-0 p1-t1-1 is down  \(first seen .* s ago\)", line)
    assert total == "1 active, 0 past"
    assert said(cli, "routes") == "tables of 3 switches read back: unchanged since the start"
    fabric.controller = Client(
        verify={"digests": {}, "unchanged_since_start": False, "differences": ["p0-t0-0: usid_next * is missing"]}
    )
    assert said(cli, "routes").startswith("*** switch tables differ from what was written: p0-t0-0: usid_next")


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
    assert agent.sent["bytes"] == 100_000 and agent.sent["rate_bps"] == 40e6 and agent.sent["peer"] == "h2"
    assert sorted(p.name for p in tmp_path.iterdir()) == []
    assert cli.failures == 0


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
        ("send h0 h", "h0 h1 h2 h3"),
        ("p2-t1", "p2-t1-0 p2-t1-1"),
        ("ro", "routes"),
    ],
)
def test_completion__offers_what_fits(cli, line, offers):
    word, _, _ = line.partition(" ")
    text = line.rpartition(" ")[2]
    complete = getattr(cli, f"complete_{word}") if " " in line else cli.completenames
    assert complete(text, line, len(line) - len(text), len(line)) == [f"{name} " for name in offers.split()]


def test_help__every_word_has_an_example(cli):
    overview = said(cli, "help")
    for word in words.WORDS:
        assert f"  {word} " in overview
        assert re.search(rf"^{word}\b", said(cli, f"help {word}"), re.MULTILINE)
    assert "pingall" not in overview


def test_source__does_the_commands_in_a_file(cli, fabric, tmp_path):
    (tmp_path / "cut").write_text("# cut both\nlink p0-t0-0 p0-t1-0 down\n\nlink p0-t0-0 p0-t1-1 down # second\n")
    assert said(cli, f"source {tmp_path / 'cut'}") == "p0-t0-0 p0-t1-0 is down\np0-t0-0 p0-t1-1 is down"


@pytest.mark.parametrize("text, value", [("4096", 4096), ("16M", 16 << 20), ("1.5k", 1536), ("1G", 1 << 30)])
def test_parse_number__sizes(text, value):
    assert words.parse_number(text, words.SIZE_UNITS) == value


@pytest.mark.parametrize("text", ["", "M", "-1", "0", "nan", "inf", "1T", "ten", "1e30", "0x10"])
def test_parse_number__nonsense(text):
    assert words.parse_number(text, words.SIZE_UNITS) is None


def test_plan_errors_reach_the_user():
    with pytest.raises(PlanError):
        words.link(StandInFabric(None), ["h0", "h1", "down"])
