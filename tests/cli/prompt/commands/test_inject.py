"""Faults that are injected at the prompt."""

import re

from mrc_testbed.cli.prompt.commands.inject import injection_text
from mrc_testbed.topologies.lab.fault_injection import Injection
from tests.cli.prompt.session_doubles import output_of


def test_impairments__set_replace_and_take_away(cli, fabric):
    assert output_of(cli, "loss p0-t0-0 p0-t1-1 1%") == "loss on p0-t0-0 p0-t1-1: 1 %"
    assert output_of(cli, "loss p0-t0-0,p0-t1-1 5%") == "loss on p0-t0-0 p0-t1-1: 5 %"
    assert output_of(cli, "delay p0-t0-0-eth4 5ms") == "delay on p0-t0-0 p0-t1-1: 5 ms from p0-t0-0"
    assert output_of(cli, "rate p0-t1-1 p0-t0-0 5M") == "rate on p0-t0-0 p0-t1-1: 5 Mb/s"
    assert [fault.kind for fault in fabric.inject.active] == ["loss", "delay", "rate"]
    row = output_of(cli, "links p0-t1-1").splitlines()[1]
    assert re.fullmatch(r"    0  p0-t0-0 p0-t1-1  up     5 Mb/s  5 ms / -  5%    -", row)
    assert output_of(cli, "injected").splitlines()[1].startswith("2  loss   p0-t0-0 p0-t1-1  5 %")
    assert output_of(cli, "loss p0-t0-0 p0-t1-1 off") == "p0-t0-0 p0-t1-1: loss is as planned again"
    assert output_of(cli, "loss p0-t0-0 p0-t1-1 off") == "p0-t0-0 p0-t1-1: no loss was injected"
    assert output_of(cli, "heal").splitlines()[-1] == "2 undone"
    assert output_of(cli, "heal") == "nothing was injected; links, switches and queues are as planned"
    assert output_of(cli, "injected") == "nothing is injected"


def test_patterns__are_told_from_shares(cli, fabric):
    assert output_of(cli, "loss h0 p0-t0-0 0001") == "loss on h0 p0-t0-0: pattern 0001"
    assert output_of(cli, "corrupt p0-t0-0 p0-t1-0 1") == "corrupt on p0-t0-0 p0-t1-0: 100 %"
    assert output_of(cli, "corrupt p0-t0-0 p0-t1-0 01") == "corrupt on p0-t0-0 p0-t1-0: pattern 01"
    refusal = "*** loss on h0 p0-t0-0: give a probability above 0, or a pattern such as 0001"
    assert output_of(cli, "loss h0 p0-t0-0 0.0%") == refusal
    assert output_of(cli, "loss p0-t1-0,p0-t0-0 1%") == "loss on p0-t0-0 p0-t1-0: 1 %"
    assert output_of(cli, "loss p0-t1-0-eth1 2%") == "loss on p0-t0-0 p0-t1-0: 2 % from p0-t1-0"


def test_switch_faults__on_and_off(cli, fabric):
    assert output_of(cli, "blackhole p1-t1-0") == "blackhole on p1-t1-0: ports stay up"
    assert output_of(cli, "blackhole p1-t1-0 off") == "p1-t1-0 forwards again"
    assert output_of(cli, "blackhole p1-t1-0 off") == "p1-t1-0 was no black hole"
    assert output_of(cli, "oneway p0-t1-1 p0-t0-0") == "one way cut on p0-t0-0 p0-t1-1: from p0-t1-1"
    assert output_of(cli, "oneway p0-t1-1 p0-t0-0 off") == "p0-t0-0 p0-t1-1: what p0-t1-1 sends arrives"
    assert re.match(r"p1-t1-0 was off for \S+ s and is on again, empty", output_of(cli, "reboot p1-t1-0"))


def test_flap__in_the_background_until_healed(cli, fabric):
    assert output_of(cli, "flap p0-t0-0 p0-t1-1 2s x5") == "flap on p0-t0-0 p0-t1-1: every 2 s, 5 times"
    assert output_of(cli, "flap h0 p0-t0-0") == "flap on h0 p0-t0-0: every 2 s"
    assert output_of(cli, "heal").splitlines()[-1] == "2 undone"
    assert not fabric.cut


def test_injection_text__of_a_switch_that_is_off_does_not_say_on():
    assert injection_text(Injection(0, "power", "p0-t1-0", "off")) == "power of p0-t1-0 off"
    assert injection_text(Injection(0, "one_way_cut", "a b", "from a")) == "one way cut on a b: from a"
    assert injection_text(Injection(0, "cut", "a b", "")) == "cut on a b"
