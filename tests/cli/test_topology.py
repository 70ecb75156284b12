"""`mrc topology`: what it prints."""

import json
from pathlib import Path

from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.cli.topology import picture
from mrc_testbed.experiments.language.topology import read_topology

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
runner = CliRunner()


def test_show__draws_each_plane() -> None:
    topology = read_topology(EXAMPLES / "uneven-planes.yaml")
    lines = picture(topology.plan("srv6", pmtu_bytes=1024), topology.part.title)
    assert lines[-5:] == [
        "        p1-t1-0",
        "     ┌─────┴───┐",
        "  p1-t0-0   p1-t0-1",
        "   h0 h1     h2 h3",
        "  5 Mb/s, 0.722 ms: all links",
    ]


def test_show__says_which_links_are_missing_or_differ() -> None:
    result = runner.invoke(app, ["topology", "show", str(EXAMPLES / "one-dead-switch.yaml")])
    assert "no link p2-t0-0 p2-t1-0" in result.output
    result = runner.invoke(app, ["topology", "show", str(EXAMPLES / "own-names.yaml")])
    assert "10 Mb/s, 3 ms: red-leaf1 red-spine2" in result.output


def test_show__json_has_every_link_with_its_speed() -> None:
    result = runner.invoke(app, ["topology", "show", str(EXAMPLES / "uneven-planes.yaml"), "--json"])
    description = json.loads(result.output)
    assert description["schema"] == "mrc-topology-show/1"
    assert {link["rate_bps"] for link in description["planes"][1]["links"]} == {5e6}
    assert [host["planes"] for host in description["hosts"]] == [[0, 1]] * 4 + [[0]] * 2


def test_check__json_lists_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("fabric: {planes: 2}\nholes: [h9]\n")
    result = runner.invoke(app, ["topology", "check", str(file), "--json"])
    assert result.exit_code == 1
    (problem,) = json.loads(result.output)["problems"]
    assert (problem["line"], problem["column"], problem["key"]) == (2, 9, "holes.0")


def test_import__writes_a_file_that_passes(tmp_path: Path) -> None:
    out = tmp_path / "clos.yaml"
    assert runner.invoke(app, ["topology", "import", str(EXAMPLES / "clos.clab.yml"), "--out", str(out)]).exit_code == 0
    assert "3 hosts" in runner.invoke(app, ["topology", "check", str(out)]).output


def test_up__refuses_a_size_beside_a_file() -> None:
    result = runner.invoke(app, ["up", str(EXAMPLES / "own-names.yaml"), "--planes", "3", "--rate", "5M"])
    assert str(result.exception).startswith("--planes, --rate beside")
