"""Queues and counters at the prompt."""

import json

from tests.cli.prompt.session_doubles import Client, output_of


def test_queues__of_a_port_a_switch_and_of_all(cli):
    output_of(cli, "rate p0-t0-0 p0-t1-0 5M")
    lines = output_of(cli, "queues p0-t0-0-eth3").splitlines()
    assert len(lines) == 9 and lines[1].split() == ["p0-t0-0-eth3", "0", "data", "5", "Mb/s", "-", "0", "0", "0", "0"]
    assert len(output_of(cli, "queues p0-t0-0").splitlines()) == 1 + 2 * 4
    assert output_of(cli, "queues") == "48 ports read, 0 queues hold or dropped packets"
    assert json.loads(output_of(cli, "queues p0-t0-0-eth3 --json"))[0]["port_rate_bps"] == 5_000_000


def test_counters__of_one_switch_and_of_all(cli, fabric):
    def cell(port, packets, **reason):
        return {"port": port, "interface": f"p0-t0-0-eth{port}", "packets": packets, "bytes": 9, **reason}

    trimmed = [cell(1, 3, reason="trimmed last hop"), cell(3, 4, reason="trimmed")]
    drops = [cell(3, 2, reason="no route"), cell(3, 5, reason="queue")]
    counters = {"forwarded": [cell(1, 10), cell(3, 30)], "marked": [cell(3, 7)], "trimmed": trimmed, "drops": drops}
    ports = [{"interface": f"p0-t0-0-eth{n}", "port": n, "in_pkts": 100 + n} for n in (1, 3)]
    fabric.controller = Client(counters={"ports": ports, "counters": counters})
    assert [line.split() for line in output_of(cli, "counters p0-t0-0").splitlines()] == [
        ["port", "to", "in", "forwarded", "marked", "trimmed", "dropped", "why"],
        ["p0-t0-0-eth1", "h0", "101", "10", "0", "0", "/", "3", "0"],
        ["p0-t0-0-eth3", "p0-t1-0", "103", "30", "7", "4", "/", "0", "7", "no", "route", "2,", "queue", "5"],
    ]
    assert fabric.controller.requests[-1][1]["switch"] == "p0-t0-0"
    ports[:] = [{"interface": "p0-t0-0-eth1", "port": 1}]
    assert output_of(cli, "counters").splitlines()[1].split() == ["p0-t0-0", "0", "10", "0", "0", "/", "3", "0"]
