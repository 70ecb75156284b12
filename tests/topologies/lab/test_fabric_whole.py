"""The fabric as users get it: program in the switches, controller, agents, and the CLI in front."""

import os
import re

import pytest

from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan
from tests.topologies.lab.fabric_doubles import commands

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
PLAN = Plan(2, 2, 1, 1)


def test_whole_fabric__a_transfer_around_a_cut_link_from_the_cli(tmp_path):
    ports = Ports(p4runtime=29557, gnmi=29337)
    with Fabric(PLAN, LabOptions(ports=ports), tmp_path / "run") as fabric:
        output, failures = commands(
            fabric,
            tmp_path,
            "link p1-t0-0 p1-t1-0 down",
            "send h0 h1 1M",
            "wait",
            "evs h0 h1",
            "link p1-t0-0 p1-t1-0 up",
            "routes",
        )
        assert fabric.controller.request("status")["ready"]
        remaining_files = [path for path in fabric.run_dir.data.rglob("*") if path.is_file()]
    assert failures == 0 and "arrived bit for bit" in output, output
    assert re.search(r"^0x0000 +0/0 +fcbb:bb00:2000:1000:2001:3000::  (good|skip)\* ", output, re.MULTILINE), output
    assert "tables of 6 switches read back: unchanged since the start" in output
    assert remaining_files == [], "random files of `send` are removed"
