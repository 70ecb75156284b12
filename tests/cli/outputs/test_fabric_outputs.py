"""Outputs of commands on fabrics fit the schemas that `mrc schema` prints.

Those of a running fabric are read in the live tests.
"""

from __future__ import annotations

import json

from typer.testing import CliRunner

from mrc_testbed.capture.explain.explained_file import ExplainedFile
from mrc_testbed.capture.pcap import CaptureResult
from mrc_testbed.cli.app import app
from mrc_testbed.cli.outputs.fabric_outputs import CHANGING_WORDS
from mrc_testbed.cli.words import SHELL_WORDS
from mrc_testbed.topologies.p4lab.switch import Reload
from tests.cli.json_outputs import fit
from tests.cli.prompt.conftest import cli, fabric  # noqa: F401
from tests.cli.prompt.session_doubles import Client, output_of


def test_words__that_print_a_text_are_those_of_the_shell() -> None:
    assert {*CHANGING_WORDS, "send", "wait", "denylist", "injected", "reload", "entries"} == set(SHELL_WORDS)


def test_reload__output_fits() -> None:
    fit("reload", [Reload("p0-t1-0", "my.p4", 4, ("lpm 10.0.0.0/8: no such table",), False, 0.3).to_json()])


def test_ls__output_fits() -> None:
    fit("ls", json.loads(CliRunner().invoke(app, ["ls", "--json"]).stdout))


def test_captures__outputs_fit() -> None:
    fit("pcap", CaptureResult(["h0-eth0"], "h0.pcapng").to_json())
    fit("pcap", ExplainedFile("a.pcapng", "b.pcapng", 2, 1, "").to_json())


def test_reading_words__outputs_fit(cli, fabric) -> None:  # noqa: F811
    entry = {"scope": "t1", "name": "p1-t1-0", "cause": None}
    for host in fabric.plan.hosts:
        fabric.agents[host.name] = Client(denylist={"entries": [entry], "denied": {"h2": [257]}})
    assert set(fit("denylist", json.loads(output_of(cli, "denylist --json")))) == set(fabric.agents)
    counters = {"switch": "p0-t0-0", "counters": {}, "ports": [{"port": 1, "interface": "p0-t0-0-eth1"}]}
    fabric.controller = Client(counters=counters)
    fit("counters", json.loads(output_of(cli, "counters p0-t0-0 --json")))
