"""Links and power at the prompt."""

import pytest

from tests.cli.prompt.session_doubles import output_of


def test_link__down_and_up(cli, fabric):
    assert output_of(cli, "link p1-t0-0 p1-t1-1 down") == "p1-t0-0 p1-t1-1 is down"
    assert output_of(cli, "links p1-t1-1").splitlines() == [
        "plane  link             state  rate  delay  loss  use",
        "    1  p1-t0-0 p1-t1-1  DOWN   -     -      -     -",
        "    1  p1-t0-1 p1-t1-1  up     -     -      -     -",
        "1 of 2 links are up",
    ]
    assert output_of(cli, "link p1-t1-1 p1-t0-0 up   # in either order") == "p1-t0-0 p1-t1-1 is up"
    assert output_of(cli, "links").endswith("32 of 32 links are up")


def test_power__off_and_on(cli):
    assert output_of(cli, "power p2-t1-0 off") == "p2-t1-0 is off"
    assert output_of(cli, "power p2-t1-0 off") == "p2-t1-0 is off already"
    assert output_of(cli, "link p2-t0-0 p2-t1-0 up") == "p2-t0-0 p2-t1-0 will be up when p2-t1-0 has power"
    assert output_of(cli, "switch p2-t1-0 start") == "p2-t1-0 is on"


def test_power__of_hosts_several_at_once(cli, fabric):
    assert output_of(cli, "power h0 h1 off") == "h0 is off\nh1 is off"
    assert output_of(cli, "link h0 p0-t0-0 up") == "h0 p0-t0-0 will be up when h0 has power"
    assert output_of(cli, "nodes").endswith("off: h0 h1 (`power h0 on`)")
    assert output_of(cli, "power h0 h1 h2 on") == "h0 is on\nh1 is on\nh2 is on already"
    assert fabric.nodes_off == []


@pytest.mark.parametrize(
    "line",
    ["send h2 h0 1M", "send h0 h2", "evs h0 h2", "evs h2 h0", "ping h0 h2", "bw h2 h0", "deny --host h0 p0-t1-0"],
)
def test_words__about_a_host_that_is_off_say_the_cure(cli, line):
    output_of(cli, "power h0 off")
    assert output_of(cli, line) == "*** h0 is off. Cure: `power h0 on`"
