"""The tools where users find them: in the hosts of a whole fabric, and as words of the Mininet CLI."""

from __future__ import annotations

import io
import os
import re

import pytest

from mrc_testbed.cli.prompt.shell import run_cli
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]


def commands(fabric, *lines: str) -> tuple[str, int]:
    """Pipe commands into the CLI; return its output and the number of commands that failed."""
    out = io.StringIO()
    read, write = os.pipe()
    with os.fdopen(write, "w") as script:
        script.write("\n".join(lines) + "\n")
    with os.fdopen(read) as stdin:
        failures = run_cli(fabric, stdin=stdin, stdout=out)
    return out.getvalue(), failures


def test_tools__in_the_hosts_and_as_words(tmp_path):
    ports = Ports(p4runtime=29561, gnmi=29341)
    with Fabric(Plan(2, 2, 2, 1), LabOptions(ports=ports), tmp_path / "run") as fabric:
        output, failures = commands(
            fabric, "h0 mrc-ping h1 -c 2", "bw h0 h1 -n 50 -q 2 -b", "lat h1 h0 -n 50", "h1 mrc-stat", "stat"
        )
        assert failures == 0, output
        assert "4 paths, 0 lost out, 0 lost back; 8 probes sent, 8 came back" in output
        assert re.search(r"^ 65536 +200 +[\d.]+ +[\d.]+ +[\d.]+ ", output, re.MULTILINE)
        assert re.search(r"^ 2 +50 +[\d.]+ +[\d.]+ +[\d.]+ ", output, re.MULTILINE)
        assert output.count("h1: fast NIC") == 2 and output.count("no QPs") == 3

        output, failures = commands(
            fabric, "link p1-t0-0 p1-t1-1 down", "mping h0 h1 -c 2 -W 0.5", "link p1-t0-0 p1-t1-1 up"
        )
        assert failures == 1 and "4 paths, 1 lost out, 0 lost back" in output
        assert re.search(r"^0x0101 +1/1 .* p1-t1-1\b", output, re.MULTILINE) and "out lost" in output, output

        output, failures = commands(
            fabric, "bw h0", "bw h0 h9", "bw h0 h0", "lat h0 h1 -s x", "bw h0 h1 -q 0", "stat h7"
        )
        assert failures == 6
        for cure in ("usage: bw HOST HOST", "no host 'h9'", "h0 is this host", "give bytes, such as", "no host 'h7'"):
            assert cure in output
        assert "Traceback" not in output
        assert [fabric.agent(host).request("status")["qps"] for host in ("h0", "h1")] == [[], []]
