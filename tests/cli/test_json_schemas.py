"""Real outputs of commands fit the schemas that `mrc schema` prints."""

import dataclasses
import json

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from mrc_testbed.cli import app
from mrc_testbed.cli.json_schemas import SCHEMAS, schema
from mrc_testbed.cli.prompt.commands import paths
from mrc_testbed.cli.prompt.commands.check import CheckResult
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.agent.path_health import PathHealth
from mrc_testbed.topologies.lab.traffic_control import Queue
from tests.cli.json_outputs import fit
from tests.cli.prompt.conftest import cli, fabric  # noqa: F401
from tests.cli.prompt.session_doubles import DEFAULT, Client, output_of
from tests.repository import ROOT

FORWARD = str(ROOT / "tests" / "p4src" / "srv6_forward.stf")


def mrc(*words):
    """Output of a command of `mrc`, as data."""
    return json.loads(CliRunner().invoke(app.app, list(words)).stdout)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema__is_one_of_json(name):
    text = schema(name)
    assert text["$schema"].endswith("2020-12/schema")
    assert len({"$ref", "anyOf"} & set(text)) == 1 or text["type"] in ("array", "object")


@pytest.mark.parametrize("name", ["run", "p4 check"])
def test_schema__is_printed_by_the_command(name):
    assert mrc("schema", *name.split()) == json.loads(json.dumps(schema(name)))


def commands_with_json(group, words=()):
    """Names of the commands below a group that take --json, also of hidden ones."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_with_json(command, (*words, name))
        elif any("--json" in option.opts for option in command.params):
            yield " ".join((*words, name))


def test_every_command_with_json_has_a_schema():
    names = set(commands_with_json(get_command(app.app)))
    assert {"run", "evs", "p4 check", "bench mrc", "scenario show"} <= names
    assert names == set(SCHEMAS), names ^ set(SCHEMAS)


def test_schema__of_several_types_has_each():
    assert len(schema("study")["anyOf"]) == 4 and "StudyEstimateOutput" in schema("study")["$defs"]


def test_schema__unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"no schema 'p4 chek' \(did you mean p4 check"):
        schema("p4 chek")


def test_p4__outputs_fit(tmp_path):
    bad_program = tmp_path / "bad.p4"
    bad_program.write_text("const bit<8> x = y;\n")
    result = fit("p4 check", mrc("p4", "check", "srv6", str(bad_program), "/no/such.p4", "--json"))
    assert [program["ok"] for program in result["programs"]] == [True, False, False] and not result["ok"]
    assert result["programs"][1]["errors"][0]["message"] == "y is not declared"
    (tmp_path / "odd.stf").write_text("no such command\n")
    result = fit("p4 test", mrc("p4", "test", "srv6", FORWARD, str(tmp_path / "odd.stf"), "--json"))
    assert [(script["passed"], script["error"] is None) for script in result["scripts"]] == [
        (True, True),
        (False, False),
    ]
    result = fit("p4 graph", mrc("p4", "graph", "srv6", "--json"))
    assert {box["kind"] for box in result["boxes"]} >= {"state", "table", "condition", "action"}
    numbers = {box["number"] for box in result["boxes"]}
    assert all({edge["from"], edge["to"]} <= numbers for edge in result["edges"])
    assert not [box for box in result["boxes"] if "<" in box["text"].split("(")[0] and "font" in box["text"]]
    fit("p4 trace", mrc("p4", "trace", "srv6", "1", "ff" * 64, "--json"))


def test_doctor__output_fits():
    assert fit("doctor", mrc("doctor", "--json"))


def test_words__outputs_fit(cli, fabric, monkeypatch):  # noqa: F811
    monkeypatch.setattr(paths, "sweep", lambda *_arguments: [])
    health = PathHealth(DEFAULT, DEFAULT.host("h0"))
    report = health.report(DEFAULT.host("h2"), [], lambda _peer, _evs: {}, {0: ["h2-eth0"]})
    fabric.agents["h0"] = Client(health={"mode": "srv6", "peers": [report]})
    assert fit("evs", json.loads(output_of(cli, "evs h0 h2 --json")))["evs"][0]["state"] == "port_down"
    output_of(cli, "link p0-t0-0 p0-t1-0 down")
    output_of(cli, "loss h0 p0-t0-0 1%")
    assert len(fit("injected", json.loads(output_of(cli, "injected --json")))) == 2
    assert len(fit("links", json.loads(output_of(cli, "links --json")))) == len(DEFAULT.links)
    times = {"first_seen": 1.0, "last_seen": 2.0, "raised": 1.5, "cleared": None}
    texts = {"kind": "link_down", "location": "p0-t0-0 p0-t1-0", "state": "active", "text": "down"}
    fault = {"number": 1, **texts, **times, "evidence": [{"source": "gnmi"}]}
    fabric.controller = Client(faults={"faults": [fault], "problems": []})
    assert fit("faults", json.loads(output_of(cli, "faults --json")))
    queue = {"interface": "p0-t0-0-eth1", "port_rate_bps": None, **dataclasses.asdict(Queue(0))}
    fit("queues", [queue])
    fit("check", CheckResult([], [], 5, 0.1, 0.0, "").to_json())
