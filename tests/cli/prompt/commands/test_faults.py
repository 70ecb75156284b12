"""Faults, routes and checks at the prompt."""

import json
import re

import pytest

from mrc_testbed.cli.prompt.commands import faults
from tests.cli.prompt.session_doubles import Client, output_of


def a_fault(**fields):
    evidence = [{"source": "gnmi 127.0.0.1:1", "after_s": 0.0}, {"source": "mapper", "after_s": 0.52}]
    row = {
        "number": 1,
        "state": "active",
        "kind": "link",
        "location": "p1-t0-0 p1-t1-1",
        "first_seen": 2.0,
        "text": "T0-T1 link p1-t0-0 p1-t1-1 down",
        "raised": 2.25,
        "cleared": None,
    }
    return {**row, "evidence": evidence, **fields}


def test_faults__who_saw_them_and_how_fast(cli, fabric):
    output_of(cli, "link p1-t0-0 p1-t1-1 down")
    output_of(cli, "blackhole p2-t1-0")
    began_at = fabric.inject.active[0].began_at
    times = {"first_seen": began_at + 0.001, "raised": began_at + 1.25}
    past_fault = a_fault(number=2, state="cleared", cleared=began_at - 90)
    fabric.controller = Client(faults={"faults": [a_fault(**times), past_fault]})
    lines = output_of(cli, "faults").splitlines()
    assert lines[0].split() == ["#", "state", "what", "since", "seen", "by", "found", "after"]
    assert re.fullmatch(
        r"1  active  T0-T1 link p1-t0-0 p1-t1-1 down  +\S+ (s|min)  gnmi, mapper \+520 ms  +1250 ms", lines[1]
    )
    assert re.fullmatch(r"not found: blackhole on p2-t1-0 ports stay up, injected .* s ago", lines[2])
    assert lines[3:] == ["1 active, 1 past"]
    assert len(json.loads(output_of(cli, "faults all --json"))) == 2


@pytest.mark.parametrize(
    ("direction", "is_found"),
    [(None, True), ("both", True), ("p1-t0-0 -> p1-t1-1", True), ("p1-t1-1 -> p1-t0-0", False)],
)
def test_faults__the_other_direction_alone_is_not_what_was_injected(cli, fabric, direction, is_found):
    output_of(cli, "oneway p1-t0-0 p1-t1-1")
    began_at = fabric.inject.active[0].began_at
    fault = a_fault(kind="lossy link", direction=direction, first_seen=began_at + 0.1, raised=began_at + 1.0)
    fabric.controller = Client(faults={"faults": [fault]})
    assert ("not found" in output_of(cli, "faults")) is not is_found


def test_faults__none(cli, fabric):
    fabric.controller = Client(faults={"faults": []})
    assert output_of(cli, "faults") == "0 active, 0 past"


def test_routes__from_the_controller(cli, fabric, monkeypatch):
    monkeypatch.setattr(faults, "SETTLE_S", 0.0)
    fabric.controller = Client(verify={"digests": dict.fromkeys("abc", ""), "unchanged_since_start": True})
    assert output_of(cli, "routes") == "tables of 3 switches read back: unchanged since the start"
    fabric.controller = Client(
        verify={"digests": {}, "unchanged_since_start": False, "differences": ["p0-t0-0: usid_next * is missing"]}
    )
    assert output_of(cli, "routes").startswith("*** switch tables differ from what was written: p0-t0-0: usid_next")


def test_routes__a_difference_that_is_being_put_right_is_none(cli, fabric):
    answers = [{"digests": {}, "unchanged_since_start": True, "differences": ["p0-t0-0: dead_ports"]}] * 2
    answers.append({"digests": {}, "unchanged_since_start": True, "differences": []})
    fabric.controller.request = lambda op, **fields: answers.pop(0)
    assert output_of(cli, "routes").endswith("unchanged since the start") and not answers


def a_link(name, state="ok", **fields):
    tally = {"state": state, "sent": 50, "back": 50 if state == "ok" else 0, "trimmed": 0, "rtt_median_s": 0.0004}
    row = {"link": name, "plane": 0, "kind": "T0-T1", "state": state, "why": "", "by": ["h0", "h1"]}
    return {**row, "control": tally, "data": tally, **fields}


def a_burst(*rows):
    return {"links": list(rows), "count": 50, "duration_s": 0.9, "stalled_s": 0.0, "note": ""}


def test_check__says_what_is_bad_and_which_switch_it_may_be(cli, fabric):
    fabric.mapper = Client(probe_all=a_burst(a_link("p0-t0-0 p0-t1-0"), a_link("p0-t0-1 p0-t1-0")))
    assert output_of(cli, "check").endswith(" in 0.9 s: 2 of 2 links probed, all well") and cli.failures == 0
    rows = [a_link(f"p0-t0-{n} p0-t1-0", "down") for n in range(2)] + [a_link("h0 p0-t0-0"), a_link("p0-t0-0 p0-t1-1")]
    fabric.mapper = Client(probe_all=a_burst(*rows))
    lines = output_of(cli, "check 50").splitlines()
    assert lines[1].split() == ["p0-t0-0", "p0-t1-0", "down", "50/50", "50/50", "0", "0.40", "ms", "h0", "h1"]
    assert "suspect: p0-t1-0, none of its links works" in lines
    assert lines[-1] == "*** 2 down of 4 links: p0-t1-0" and cli.failures == 1


def test_check__of_links_that_cannot_be_probed_the_carrier_is_looked_at(cli, fabric):
    unprobed_link = a_link("p0-t0-0 p0-t1-0", "unknown", by=[], why="no host probes it", control=None, data=None)
    burst = {**a_burst(a_link("h0 p0-t0-0"), unprobed_link), "note": "T0-T1 links are not probed in this mode"}
    fabric.mapper = Client(probe_all=burst)
    assert output_of(cli, "check").endswith(": 1 of 2 links probed, all well, the others have\n    carrier")
    output_of(cli, "link p0-t0-0 p0-t1-0 down")
    lines = output_of(cli, "check").splitlines()
    assert lines[1].split() == ["p0-t0-0", "p0-t1-0", "down", "-", "-", "-", "-", "not", "probed:", "no", "carrier"]
    assert lines[-1] == "*** 1 down of 2 links"


def test_check__suspects_switches_alone_whatever_their_names(cli, fabric):
    """A host with two dead links is no suspect, though its name begins with `p`; a switch `hub3` is."""
    rows = [a_link("hub1 hub3", "down"), a_link("hub2 hub3", "down"), a_link("hub1 hub4"), a_link("hub2 hub4")]
    nics = [{**a_link(f"p-gpu0 {switch}", "down"), "kind": "NIC-T0"} for switch in ("hub1", "hub2")]
    fabric.mapper = Client(probe_all=a_burst(*rows, *nics))
    assert [line for line in output_of(cli, "check").splitlines() if "suspect" in line] == [
        "suspect: hub3, none of its links works"
    ]
