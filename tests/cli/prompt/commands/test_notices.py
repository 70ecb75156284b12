"""Notices above the prompt, at a pty with the real line editor; fabric and controller are stand-ins."""

import io
import json
import os
import re
import signal
import sys
import threading

import pytest

from mrc_testbed.cli.prompt.commands import notices
from mrc_testbed.cli.prompt.commands.notices import FaultFollower, Notices
from mrc_testbed.ipc.rpc import JsonlError
from tests.cli.prompt.terminal import PROMPT, ROOT, Terminal

FRONT = """
import json, os, select, signal, sys
from pathlib import Path
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.signals import terminating
from tests.cli.prompt.session_doubles import Client, StandInFabric
from mrc_testbed.cli.prompt.commands.notices import Notices, _Terminal
from mrc_testbed.cli.prompt.shell import run_cli

class Events:
    handled = 0
    def __init__(self):
        self.pipe = os.open(sys.argv[1], os.O_RDWR)
        self.lines = []
        self.given = 0
    def get(self, timeout_s):
        Events.handled = self.given  # who asks for the next one has told the last one
        if not self.lines and select.select([self.pipe], [], [], timeout_s)[0]:
            self.lines = os.read(self.pipe, 4096).splitlines()
        if self.lines:
            self.given += 1
            return json.loads(self.lines.pop(0))
    def __enter__(self):
        return self
    def __exit__(self, *_exc):
        pass
    close = __exit__

class Controller(Client):
    def watch(self, events):
        return Events()
    def request(self, op, **fields):
        return {"faults": [], "problems": []} if op == "faults" else super().request(op, **fields)

fabric = StandInFabric(Path(sys.argv[1]).parent)
fabric.controller = Controller()
fabric.events = Events
above = Notices._print_above

def signalled(notices):
    if notices._terminal is _Terminal.PROMPT and (numbers := sys.argv[2:]):
        del sys.argv[2:]
        signal.raise_signal(int(numbers[0]))
    above(notices)

Notices._print_above = signalled
with terminating():
    print("failures", run_cli(fabric))
"""


def a_fault(number=1, **fields):
    evidence = [{"source": "gnmi 127.0.0.1:9339"}, {"source": "mapper"}]
    row = {
        "number": number,
        "state": "active",
        "kind": "link",
        "location": "p1-t0-0 p1-t1-1",
        "first_seen": 2.0,
        "raised": 2.5,
        "last_seen": 2.5,
        "text": "T0-T1 link p1-t0-0 p1-t1-1 down",
        "cleared": None,
        "into": [],
        "evidence": evidence,
    }
    return {"event": "fault", "change": "raised", "fault": {**row, **fields}}


class Prompt(Terminal):
    """The prompt of a stand-in fabric; `happens` is what its controller says.

    `signals`: one that comes while the line editor calls Python.
    """

    def __init__(self, folder, *signals):
        self.events = folder / "events"
        os.mkfifo(self.events)
        env = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "INPUTRC": "/dev/null", "HOME": str(folder)}
        super().__init__([sys.executable, "-c", FRONT, str(self.events), *map(str, map(int, signals))], env)
        self.expect(PROMPT)

    def happens(self, event):
        with self.events.open("w") as pipe:
            pipe.write(json.dumps(event) + "\n")


@pytest.fixture(scope="module")
def prompt(tmp_path_factory):
    terminal = Prompt(tmp_path_factory.mktemp("p"))
    yield terminal
    terminal.close()


def test_half_a_line__survives_a_notice_and_then_runs(prompt):
    prompt.type("links p1-t1")
    prompt.expect("links p1-t1")
    prompt.happens(a_fault())
    output = prompt.expect(r"fault 1: .*\n" + PROMPT + r"links p1-t1$")
    assert output.splitlines()[-2].endswith("fault 1: T0-T1 link p1-t0-0 p1-t1-1 down (seen by gnmi, mapper)")
    prompt.type("-0\n")
    assert "2 of 2 links are up" in prompt.expect(PROMPT)


def test_cursor__stays_where_it_was(prompt):
    prompt.type("links p-t1-0" + "\x02" * 5)
    prompt.expect("links p-t1-0")
    prompt.happens(a_fault(state="cleared", cleared=8.0))
    prompt.expect(r"fault 1 is over after 6.0 s: .*\n" + PROMPT + "links p-t1-0")
    prompt.type("1\n")
    assert "2 of 2 links are up" in prompt.expect(r"links are up\n")
    prompt.expect(PROMPT)


def test_screen__has_the_notice_on_a_line_of_its_own(prompt):
    """The terminal gets what is erased and written: a line over two rows is taken off both."""
    prompt.type("links " + "p1-t1-0" * 12)
    prompt.expect("p1-t1-0" * 9)
    prompt.raw = ""
    prompt.happens(a_fault(2))
    while "seen by" not in prompt.raw:
        prompt.raw += os.read(prompt.master, 1 << 16).decode()
    erasure = prompt.raw.partition("fault 2: ")[0]
    assert "\x1b[A" in erasure and erasure.rstrip("\r").endswith("\x1b[K") and "links" not in erasure
    prompt.type("\x15\n")  # Ctrl-U
    prompt.expect(PROMPT)


def handled_events(prompt):
    """Events that the prompt has been told and has looked at, by whatever tests ran before."""
    match = re.search(r"^\d+$", prompt.enter("py fabric.events.handled"), re.MULTILINE)
    return int(match[0]) if match else 0  # Mininet's `py` prints no zero


def test_off__is_silent_until_on(prompt):
    assert "notices are off" in prompt.enter("notices off")
    count = handled_events(prompt)
    prompt.happens(a_fault(3))
    while handled_events(prompt) == count:
        pass
    assert "notices are off" in prompt.enter("notices")
    assert "notices are on" in prompt.enter("notices on")
    prompt.happens(a_fault(4))
    output = prompt.expect(r"fault 4: .*\n")
    assert "fault 3" not in output
    assert "*** on or off, not 'of'" in prompt.enter("notices of")


def test_ctrl_c__at_the_prompt_leaves_notices_working(prompt):
    for line in ("", "half a line", ""):
        prompt.type(line)
        prompt.expect(line)
        prompt.type("\x03")
        output = prompt.expect("\nInterrupt\n")
        assert "ignored" not in output and "Traceback" not in output
        prompt.expect(PROMPT)
    prompt.happens(a_fault(5))
    prompt.expect(r"fault 5: .*\n")
    prompt.type("exit\n")
    prompt.expect(r"failures \d")  # those of the tests before, which may run elsewhere


def test_sigint__while_the_editor_calls_python_is_not_lost(tmp_path):
    prompt = Prompt(tmp_path, signal.SIGINT)
    assert "ignored" not in prompt.expect("\nInterrupt\n")
    prompt.type("exit\n")
    prompt.expect(r"failures \d")
    prompt.close()


@pytest.mark.parametrize("in_editor", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end__at_the_prompt_ends_it(tmp_path, number, in_editor):
    prompt = Prompt(tmp_path, *([number] if in_editor else []))
    if not in_editor:
        prompt.process.send_signal(number)
    assert prompt.process.wait(timeout=60) == 128 + number
    prompt.close()


# ---- without a terminal ---------------------------------------------------------------------------------------


def test_notices__wait_while_another_program_has_the_terminal():
    out = io.StringIO()
    printer = Notices(out)
    printer.notify("one")
    with printer.hold():
        printer.notify("two")
        assert out.getvalue() == "one\n"
    assert out.getvalue() == "one\ntwo\n"
    printer.reading()
    printer.notify("three")
    assert out.getvalue() == "one\ntwo\n"  # no line editor that makes room: it comes before the next command
    printer.running()
    assert out.getvalue() == "one\ntwo\nthree\n"


class Controller:
    """A controller that ends after each event, as one that restarts; then it is silent."""

    def __init__(self, *events):
        self.events = list(events)
        self.end = threading.Event()

    def watch(self, events):
        assert events == "fault,problem"
        return self

    def request(self, _op):
        return {"faults": [], "problems": []}

    def get(self, timeout_s):
        if not self.events:
            self.end.set()
            return None
        event = self.events.pop(0)
        if event is None:
            raise JsonlError("the controller closed the connection")
        return event

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def close(self):
        pass


def test_follower__tells_changes_once_and_survives_a_restart(monkeypatch):
    monkeypatch.setattr(notices, "RETRY_S", 0.01)
    moved_fault = a_fault(kind="T1", location="p1-t1-1", text="T1 p1-t1-1 down")
    figures = a_fault(kind="T1", location="p1-t1-1", text="T1 p1-t1-1 down, 3 flaps")
    controller = Controller(
        a_fault(), a_fault(), None, a_fault(), moved_fault, figures, a_fault(2, state="merged", into=[1])
    )
    lines = []
    fabric = type("Fabric", (), {"controller": controller})()
    follower = FaultFollower(fabric, lines.append)
    assert controller.end.wait(30)
    follower.close()
    assert lines == [
        "fault 1: T0-T1 link p1-t0-0 p1-t1-1 down (seen by gnmi, mapper)",
        "fault 1 is now: T1 p1-t1-1 down (seen by gnmi, mapper)",
        "fault 2 is part of fault 1: T0-T1 link p1-t0-0 p1-t1-1 down",
    ]


def a_problem(change="begun", number=1, end=None):
    problem = {
        "number": number,
        "kind": "not primary",
        "about": "p0-t1-0",
        "began": 2.0,
        "over": end,
        "text": "not primary: p0-t1-0: another controller is primary; its tables are not kept",
    }
    return {"event": "problem", "change": change, "problem": problem}


def test_follower__tells_problems_of_the_controller_once_and_their_end(monkeypatch):
    monkeypatch.setattr(notices, "RETRY_S", 0.01)
    controller = Controller(a_problem(), None, a_problem(), a_problem("over", end=5.0), a_problem("begun", 2))
    lines = []
    follower = FaultFollower(type("Fabric", (), {"controller": controller})(), lines.append)
    assert controller.end.wait(30)
    follower.close()
    begin_line = "controller: not primary: p0-t1-0: another controller is primary; its tables are not kept"
    assert lines == [begin_line, "controller: over after 3.0 s: not primary: p0-t1-0", begin_line]
