"""Programs at the prompt: reload, entries, load."""

import json
from types import SimpleNamespace

import pytest

from mrc_testbed.topologies.p4lab.switch import Reload
from tests.cli.prompt.session_doubles import output_of


@pytest.fixture
def calls(fabric):
    """The calls that reach the fabric's programs."""
    calls = []

    def reload(source, names):
        calls.append((source and source.name, names))
        return [Reload(name, "srv6", 19, ("t any -> gone()",), False, 0.5) for name in names or ["p0-t0-0"]]

    fabric.programs = SimpleNamespace(
        reload=reload,
        entry_lines=lambda name: [f"macs of {name}"],
        load_entries=lambda name, path: calls.append((name, path.name)) or 2,
    )
    return calls


def test_reload__takes_a_file_and_switches_in_any_order(cli, calls):
    text = output_of(cli, "reload p0-t1-0 my.p4 p1-t1-0")
    assert calls == [("my.p4", ["p0-t1-0", "p1-t1-0"])]
    assert text.splitlines()[:2] == [
        "p0-t1-0: runs srv6 after 0.50 s; 19 entries kept, 1 do not fit; counters and registers began anew",
        "  gone: t any -> gone()",
    ]
    output_of(cli, "reload")
    assert calls[-1] == (None, [])
    assert json.loads(output_of(cli, "reload p0-t1-0 --json"))[0]["kept"] == 19


def test_reload__mistakes_are_named(cli, calls):
    assert "two programs: a.p4, b.p4" in output_of(cli, "reload a.p4 b.p4")
    assert "no switch 'h0'" in output_of(cli, "reload h0")
    assert calls == []


def test_entries_and_load(cli, calls):
    assert output_of(cli, "entries p0-t1-0") == "macs of p0-t1-0\np0-t1-0: 1 entries"
    assert output_of(cli, "load p0-t1-0 s1-runtime.json") == "p0-t1-0: 2 entries written"
    assert calls == [("p0-t1-0", "s1-runtime.json")]
    assert "usage: load SWITCH FILE.json" in output_of(cli, "load p0-t1-0")
