"""The CLI at a terminal (a pty) on a real fabric.

What users type, what they see, with completion, colours, Ctrl-C.
"""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from tests.cli.json_outputs import fit
from tests.cli.prompt.terminal import COLOUR, PROMPT, ROOT, Terminal

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
FRONT = """
import sys
from mrc_testbed.cli.prompt.shell import run_cli
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan

ports = Ports(p4runtime=29761, gnmi=29541)
with Fabric(Plan(2, 2, 2, 1), LabOptions(ports=ports), sys.argv[1]) as fabric:
    failures = run_cli(fabric)
print("failures", failures)
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("c")


@pytest.fixture(scope="module")
def terminal(run_dir):
    env = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "INPUTRC": "/dev/null"}
    env.pop("NO_COLOR", None)
    front = Terminal([sys.executable, "-c", FRONT, str(run_dir)], env)
    try:
        front.expect(PROMPT)
        yield front
    finally:
        front.close()


def mrc(run_dir, *words):
    """Run an `mrc` command in a second terminal."""
    env = {**os.environ, "MRC_RUN_DIR": str(run_dir), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "mrc_testbed", *words]
    return subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)


def wait_for(terminal, line, pattern, seconds=20.0):
    """Repeat a line until its output shows `pattern`; return the output."""
    end = time.monotonic() + seconds
    while not re.search(pattern, output := terminal.enter(line)):
        assert time.monotonic() < end, output
        time.sleep(0.2)
    return output


def test_terminal__what_is_told_between_two_commands_is_not_lost():
    """The end of a transfer at the prompt, and then the next command: both are read."""
    terminal = Terminal.__new__(Terminal)
    terminal.raw = "\rsend 1 (h0 to h1): arrived bit for bit\r\nmininet> wait\r\nmininet> "
    terminal.type = lambda text: None
    assert terminal.enter("wait") == "send 1 (h0 to h1): arrived bit for bit\nmininet> "


def test_completion__fills_in_and_the_word_works(terminal):
    terminal.type("link p1-t0-0 p1-t1-1 do\t")
    terminal.type("\n")
    output = terminal.expect(PROMPT)
    assert "p1-t0-0 p1-t1-1 is down" in output
    if "fault 1" not in output:  # it is told as it happens, before the prompt is back or above it
        terminal.expect(r"fault 1: T0-T1 link p1-t0-0 p1-t1-1 down \(seen by .*\)\n")
    assert "DOWN" in terminal.enter("links p1-t1-1")
    output = wait_for(terminal, "faults", r"active .*link p1-t0-0 p1-t1-1 down")
    assert re.search(r"gnmi.* +\d+ ms\n", output)
    assert "p1-t0-0 p1-t1-1 is up" in terminal.enter("link p1-t0-0 p1-t1-1 up")


def test_colours__at_a_terminal(terminal):
    terminal.type("links p1-t1-1\n")
    while "links are up" not in COLOUR.sub("", terminal.raw):
        terminal.raw += os.read(terminal.master, 1 << 16).decode()
    assert "\x1b[32mup\x1b[0m" in terminal.raw
    terminal.expect("links are up\n")
    terminal.expect(PROMPT)


def test_send_and_evs(terminal):
    for line in ("send h0 h1 1M", "send h0 h1 200K --rocev2"):
        output = terminal.enter(line) + terminal.enter("wait")  # it may have arrived before the first prompt is back
        assert "begun" in output and "arrived bit for bit" in output, output
    output = terminal.enter("evs h0 h1")
    assert re.search(r"^0x0101 +1/1 +fcbb:bb00:2100:1101:2101:3100::  (good|skip)\*? ", output, re.MULTILINE), output
    assert terminal.data("evs h0 h1 --json")["peer"] == "h1"


def test_break_and_heal(terminal):
    for line, says in [
        ("loss p0-t0-0 p0-t1-0 10%", "loss on p0-t0-0 p0-t1-0: 10 %"),
        ("rate p1-t0-0 p1-t1-0 5M", "rate on p1-t0-0 p1-t1-0: 5 Mb/s"),
        ("delay p1-t0-0 p1-t1-0 5ms", "delay on p1-t0-0 p1-t1-0: 5 ms"),
        ("blackhole p0-t1-1", "blackhole on p0-t1-1"),
        ("flap h1 p1-t0-1 200ms x2", "flap on h1 p1-t0-1: every 0.2 s, 2 times"),
    ]:
        assert says in terminal.enter(line)
    row = next(line for line in terminal.enter("links p1-t1-0").splitlines() if "p1-t0-0" in line)
    assert "5 Mb/s" in row and "5 ms" in row
    output = terminal.enter("check 20")
    assert "suspect: p0-t1-1" in output and re.search(r"p0-t0-0 p0-t1-0 +lossy", output) and "*** " in output
    wait_for(terminal, "faults", r"p0-t1-1 .*blackhole")
    assert "4 undone" in wait_for(terminal, "injected", "^(?!.*flap)") + terminal.enter("heal")
    wait_for(terminal, "check 20", "all well")


VERDICT_S = 30.0
"""Time in which probes blame the path of a loss that a timer alone told of, on a busy machine."""


def bad_evs(terminal, source, destination, ways):
    """Return the EVs that a QP holds for broken.

    All of them are among those of `ways`, which are all that probes miss.
    """
    rows = terminal.data(f"evs {source} {destination} --json")["evs"]
    missed_ways = {row["ev"]: "back" if row["probes"]["out"] else "out" for row in rows if not row["probes"]["back"]}
    broken_evs = {row["ev"] for row in rows if row["state"] not in ("good", "skip")}
    assert missed_ways == ways and broken_evs <= {ev for ev, way in ways.items() if way == "out"}, rows
    return broken_evs


def dead_ways(terminal, source, destination):
    """Return {EV: "out" or "back"} of the paths that do not work both ways, by `ping`."""
    ping = f"ping {source} {destination} -c 2 -i 0.05 -W 0.4 --json"
    paths = terminal.data(ping, says="ping: ended with exit code 1")["paths"]
    assert len(paths) == 4 and not any(path["out_lost"] and path["back_lost"] for path in paths)
    return {
        path["ev"]: "out" if path["out_lost"] else "back" for path in paths if path["out_lost"] or path["back_lost"]
    }


FAULTS = [
    ("oneway p1-t0-0 p1-t1-1", {0x0101: "out"}, {0x0101: "back"}, ("h0 -> h1(3/4)", "h1 -> h0(back 3/4)")),
    ("blackhole p0-t1-1", {0x0001: "out"}, {0x0001: "out"}, ("h0 -> h1(3/4)", "h1 -> h0(3/4)")),
]
MORE_FAULTS = [
    ("oneway p1-t1-1 p1-t0-0", {0x0101: "back"}, {0x0101: "out"}, ("h0 -> h1(back 3/4)", "h1 -> h0(3/4)")),
    ("oneway p0-t1-0 p0-t0-1", {0x0000: "out"}, {0x0000: "back"}, ("h0 -> h1(3/4)", "h1 -> h0(back 3/4)")),
    ("link p1-t0-0 p1-t1-0 down", {0x0100: "out"}, {0x0100: "out"}, ("h0 -> h1(3/4)", "h1 -> h0(3/4)")),
]


@pytest.mark.parametrize(
    "line, h0_ways, h1_ways, pingall",
    [*FAULTS, *(pytest.param(*fault, marks=pytest.mark.thorough) for fault in MORE_FAULTS)],
)
def test_one_fault__is_told_by_direction(terminal, line, h0_ways, h1_ways, pingall):
    """`ping`, `pingall` and `evs` say exactly the broken thing, and its direction, and nothing else."""
    for plane in (0, 1):
        terminal.enter(f"delay h0 p{plane}-t0-0 5ms")
    terminal.enter(line)
    try:
        assert dead_ways(terminal, "h0", "h1") == h0_ways
        assert dead_ways(terminal, "h1", "h0") == h1_ways
        output = terminal.enter("pingall")
        assert all(row in output for row in pingall), output
        output = terminal.enter("evs h0 h1")  # QPs that have sent nothing since know nothing of it; probes do
        assert re.findall(r"(0x\w+) .* (out|back) lost", output) == [
            (f"0x{ev:04x}", way) for ev, way in h0_ways.items()
        ]
        for source, destination, ways in (("h0", "h1", h0_ways), ("h1", "h0", h1_ways)):
            terminal.enter(f"send {source} {destination} 300K")
            assert "arrived bit for bit" in terminal.enter("wait")
            out_evs = {ev for ev, way in ways.items() if way == "out"}
            end = time.monotonic() + VERDICT_S
            while bad_evs(terminal, source, destination, ways) != out_evs:
                assert time.monotonic() < end, terminal.enter(f"evs {source} {destination}")
    finally:
        terminal.enter("heal")
    wait_for(terminal, "pingall", r"0% dropped \(8/8 received\)\n")
    for pair in ("h0 h1", "h1 h0"):  # probes bring the EV back before the next fault
        wait_for(terminal, f"evs {pair}", r"(?s)\A(?!.*assumed_bad)")


def test_reboot__comes_back_with_its_tables(terminal):
    assert "p1-t1-0 was off for" in terminal.enter("reboot p1-t1-0")
    wait_for(terminal, "routes", "unchanged since the start")


def test_trace__arrives_or_says_where_it_ends(terminal):
    output = terminal.enter("trace h0 h1 1/1")
    assert re.search(r"usid_next \[locator_usid=0xfcbbbb001101\] hit: forward\(port=3\)", output)
    assert "arrives at h1-eth1 of h1 from h0, EV 0x0101" in output
    terminal.enter("blackhole p1-t1-1")
    output = terminal.enter("trace h0 h1 1/1")
    assert "ends on the cable p1-t0-0 p1-t1-1" in output and "loses everything (injected)" in output
    assert "***" not in output
    terminal.enter("heal")
    assert "EV 0x0777 is none of h0 to h1" in terminal.enter("trace h0 h1 0x0777")


def test_minenets_own__and_commands_in_nodes(terminal):
    assert "h0 h1 p0-t0-0" in terminal.enter("nodes")
    assert "*** Results: 0% dropped (8/8 received)" in terminal.enter("pingall")
    assert "h1-eth1" in terminal.enter("h1 ls /sys/class/net")
    assert re.search(r"Results: \['[\d.]+ Mbits/sec'\]", terminal.enter("iperf h0 h1"))
    assert "queues hold or dropped packets" in terminal.enter("queues")
    assert "*** no command or node 'lnk'" in terminal.enter("lnk h0")


def test_ctrl_c__ends_a_tool_and_not_the_session(terminal):
    terminal.type("ping h0 h1 -c 0 -v\n")
    terminal.expect("until Ctrl-C")
    for ev in (0x0000, 0x0001, 0x0100, 0x0101):  # each path has answered once
        terminal.expect(rf"EV {ev:#06x} .*\d ms")
    terminal.type("\x03")
    assert "4 paths, 0 lost out, 0 lost back" in terminal.expect(PROMPT)


def test_second_terminal__asks_the_same_fabric(terminal, run_dir):
    links = mrc(run_dir, "links", "p0-t0-0")
    assert links.stdout.endswith("3 of 3 links are up\n") and "\x1b" not in links.stdout
    check = mrc(run_dir, "check", "20", "--json")
    assert check.returncode == 0 and fit("check", json.loads(check.stdout))["ok"]
    terminal.enter("link h0 p0-t0-0 down")
    check = mrc(run_dir, "check", "20")
    assert check.returncode == 1 and "1 down, 2 could not be probed of 12 links" in check.stdout, check
    way = fit("trace", json.loads(mrc(run_dir, "trace", "h0", "h1", "0x0000", "--json").stdout))
    assert way["arrived"] is False and way["end"] == "ends at h0: its port h0-eth0 is down, nothing is sent"
    assert mrc(run_dir, "faults").returncode == 0
    assert mrc(run_dir, "evs", "h0", "h9").stderr == "mrc: error: no host 'h9' (has: h0, h1)\n"
    terminal.enter("heal")


def test_power__a_host_dies_is_named_and_comes_back(terminal, run_dir, tmp_path):
    terminal.enter("heal")
    assert "h1 is off" in terminal.enter("power h1 off")
    wait_for(terminal, "faults active", r"host h1 down \(all 2 NIC links down\)")
    for line in ("send h0 h1 1M", "evs h1 h0", "h1 true"):
        assert "h1 is off. Cure: `power h1 on`" in terminal.enter(line)
    refused_exec = mrc(run_dir, "exec", "h1", "--", "true")
    assert refused_exec.returncode and refused_exec.stderr.strip() == "mrc: error: h1 is off. Cure: `power h1 on`"
    state = tmp_path / "state.yaml"
    terminal.enter(f"save {state} --tables")
    assert "power_off: h1" in state.read_text()
    assert "h1 is on" in terminal.enter("power h1 on")
    wait_for(terminal, "faults active", "0 active")
    assert "1 received" in terminal.enter("h0 ping -c 1 -W 5 h1")
    assert "power of h1 off" in terminal.enter(f"load {state}")
    assert "healed: power of h1 off" in terminal.enter("heal")
    terminal.enter("send h0 h1 256K")
    assert "arrived bit for bit" in terminal.enter("wait")
    assert "unchanged since the start" in terminal.enter("routes")


def test_end__removes_everything(terminal, run_dir):
    terminal.type("exit\n")
    assert "failures" in terminal.expect(r"failures \d+")
    assert terminal.process.wait(30) == 0
    assert "no fabric is running" in mrc(run_dir, "links").stderr
