"""Links and power at the prompt."""

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
