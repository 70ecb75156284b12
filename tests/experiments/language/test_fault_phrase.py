"""Faults in a phrase: the words of the prompt with a time, or an error that says what exists."""

from __future__ import annotations

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.fault_phrase import FORMS, fault_line
from mrc_testbed.topologies.plan import Plan

LINK = "p1-t0-0 p1-t1-1"
PHRASES = {
    f"cut {LINK} at 3 s": {"at": "3s", "cut": LINK},
    f"cut {LINK} at 40% for 500 ms": {"at": "40%", "for": "500ms", "cut": LINK},
    f"link {LINK} down at 3s": {"at": "3s", "cut": LINK},
    f"oneway {LINK} at 3s": {"at": "3s", "one_way": LINK},
    f"silent {LINK} at 3s": {"at": "3s", "silent": LINK},
    f"loss {LINK} 1 % at 3s": {"at": "3s", "loss": {"link": LINK, "rate": "1%"}},
    f"loss {LINK} 0001 at 3s": {"at": "3s", "loss": {"link": LINK, "pattern": "0001"}},
    f"corrupt {LINK} 0.1% at 3s": {"at": "3s", "corrupt": {"link": LINK, "rate": "0.1%"}},
    f"rate {LINK} 5 Mb/s at 3s": {"at": "3s", "line": {"link": LINK, "rate": "5Mb/s"}},
    f"delay {LINK} 5 ms at 3s": {"at": "3s", "line": {"link": LINK, "delay": "5ms"}},
    f"flap {LINK} 500ms x3 at 3s": {"at": "3s", "flap": {"link": LINK, "down": 0.25, "up": 0.25, "times": 3}},
    "blackhole p1-t1-0 at 3s for 1s": {"at": "3s", "for": "1s", "blackhole": "p1-t1-0"},
    "power p1-t1-0 off at 3s": {"at": "3s", "power_off": "p1-t1-0"},
    "power h0 off at 3s for 2s": {"at": "3s", "for": "2s", "power_off": "h0"},
    "power h0 h1 off at 3s": {"at": "3s", "power_off": ["h0", "h1"]},
    "reboot p1-t1-0 at 3s": {"at": "3s", "reboot": "p1-t1-0"},
}
REFUSED = {
    "": "no fault '' (has: cut, ",
    "cutt p1-t0-0 p1-t1-1 at 3s": "no fault 'cutt' (did you mean cut?)",
    "cut p1-t0-0 p1-t1-1": "no time: give cut NODE NODE at TIME [for TIME]",
    "cut p1-t0-0 at 3s": "a link is two nodes: give cut NODE NODE",
    "cut p1-t0-0 p1-t1-9 at 3s": "no node 'p1-t1-9' (has: p0-t0-0",
    "cut h0 h1 at 3s": "h0",
    "cut p1-t0-0 p1-t1-1 at soon": "time 'soon': give seconds",
    "cut p1-t0-0 p1-t1-1 at 3s for ever": "time 'ever': give seconds",
    "loss p1-t0-0 p1-t1-1 at 3s": "no share of packets: give loss NODE NODE SHARE",
    "loss p1-t0-0 p1-t1-1 7 at 3s": "must be 0 to 1",
    "power p1-t1-7 off at 3s": "no switch or host 'p1-t1-7' (did you mean p1-t1-1",
    "power p1-t1-0 at 3s": "the last word is `off`",
    "reboot p1-t1-0 at 3s for 2s": "`for` makes no sense with reboot",
}


@pytest.mark.parametrize("phrase", PHRASES)
def test_phrase__is_a_line_of_a_scenario(phrase):
    assert fault_line(phrase, Plan(4, 2, 2, 2)) == PHRASES[phrase]


def test_every_word__is_tried():
    assert {phrase.split()[0] for phrase in PHRASES} == set(FORMS)


@pytest.mark.parametrize("phrase", REFUSED)
def test_phrase__that_is_wrong_says_what_exists(phrase):
    with pytest.raises(UsageError) as refusal:
        fault_line(phrase, Plan(4, 2, 2, 2))
    assert REFUSED[phrase] in str(refusal.value)
