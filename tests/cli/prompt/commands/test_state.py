"""`save` and `load`: what they write, what they read, and what mistakes cost."""

import json
from pathlib import Path

import pytest

from mrc_testbed.ipc.rundir import FabricError
from tests.cli.prompt.session_doubles import output_of

FAULTS = [
    "link p1-t0-0 p1-t1-1 down",
    "loss p0-t0-0 p0-t1-1 1%",
    "loss h0 p0-t0-0 0001",
    "corrupt p2-t0-0-eth3 5%",
    "rate p1-t0-0-eth3 5M",
    "delay h1 p0-t0-0 2ms",
    "oneway p0-t1-1 p0-t0-1",
    "blackhole p0-t1-0",
    "flap h1 p1-t0-0",
    "power h3 p1-t1-0 off",
]
LINES = [
    {"cut": "p1-t0-0 p1-t1-1"},
    {"loss": {"link": "p0-t0-0 p0-t1-1", "rate": 0.01}},
    {"loss": {"link": "h0 p0-t0-0", "pattern": "0001"}},
    {"corrupt": {"link": "p2-t0-0 p2-t1-0", "rate": 0.05, "direction": "up"}},
    {"line": {"link": "p1-t0-0 p1-t1-0", "rate": 5_000_000, "direction": "up"}},
    {"line": {"link": "h1 p0-t0-0", "delay": 0.002}},
    {"one_way": "p0-t1-1 p0-t0-1"},
    {"blackhole": "p0-t1-0"},
    {"flap": {"link": "h1 p1-t0-0", "down": 1.0, "up": 1.0, "times": None}},
    {"power_off": "h3"},
    {"power_off": "p1-t1-0"},
]


@pytest.fixture
def damaged_fabric(cli, fabric):
    """A fabric with a fault of each kind, and whatever runs in the background ended afterwards."""
    for line in FAULTS:
        assert not output_of(cli, line).startswith("***"), line
    yield fabric
    fabric.inject.heal()


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # short names, so that no line is folded
    return Path("state.yaml")


def injections_of(fabric):
    return [(injection.kind, injection.location, injection.detail) for injection in fabric.inject.active]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_save_and_load__bring_every_fault_back(cli, damaged_fabric, path, suffix):
    file, first_faults = path.with_suffix(f".{suffix}"), injections_of(damaged_fabric)
    assert output_of(cli, f"save {file}") == f"{file}: 11 faults; `load {file}` applies it"
    output_of(cli, "heal")
    assert len(output_of(cli, f"load {file}").splitlines()) == 11
    assert injections_of(damaged_fabric) == first_faults
    assert sorted(damaged_fabric.nodes_off) == ["h3", "p1-t1-0"]


def test_save__as_json_has_the_lines_of_a_scenario(cli, damaged_fabric, path):
    file = path.with_suffix(".json")
    output_of(cli, f"save {file}")
    assert json.loads(file.read_text()) == {"schema": "mrc-state/1", "faults": LINES, "queues": [], "tables": {}}


def test_load__makes_nothing_twice(cli, damaged_fabric, path):
    output_of(cli, f"save {path}")
    assert output_of(cli, f"load {path}") == "11 held already"
    assert len(damaged_fabric.inject.active) == 11


def test_save__has_cuts_and_power_that_no_fault_made(cli, fabric, path):
    link = fabric.plan.link("h0", "p2-t0-0")
    fabric.set_interfaces((link.lower.interface, link.upper.interface), False)
    fabric.power("h1", False)
    output_of(cli, f"save {path}")
    assert "- {cut: h0 p2-t0-0}" in path.read_text() and "- {power_off: h1}" in path.read_text()


def test_save__of_a_whole_fabric(cli, path):
    assert output_of(cli, f"save {path}").startswith(f"{path}: nothing is injected")
    assert output_of(cli, f"load {path}") == f"{path}: nothing in it"


def test_load__sets_queues_until_heal_and_saves_them_again(cli, fabric, path):
    path.write_text(
        "schema: mrc-state/1\n"
        "queues:\n"
        "  - {port: p0-t0-0-eth3, rate: 2M}\n"
        "  - {port: p0-t0-0-eth4, priority: 0, rate: 1M, packets: 20}\n"
    )
    assert output_of(cli, f"load {path}").splitlines() == [
        "queue on p0-t0-0-eth3: port: 2 Mb/s",
        "queue on p0-t0-0-eth4: priority 0: 1 Mb/s, 20 packets",
    ]
    assert output_of(cli, f"load {path}") == "2 held already"
    copy = path.with_name("again.yaml")
    assert "2 queues" in output_of(cli, f"save {copy}")
    assert output_of(cli, "heal").endswith("2 undone")
    assert len(output_of(cli, f"load {copy}").splitlines()) == 2


def test_tables__are_saved_by_switch_and_given_back(cli, fabric, path):
    tables = {"p0-t0-0": ["usid_next locator_usid=0xfcbbbb002000 forward(port=1)"], "p0-t1-0": []}
    fabric.controller.answers["tables"] = {"tables": tables, "unread": {"p1-t1-0": "it is off"}}
    assert output_of(cli, f"save {path} --tables").splitlines() == [
        "p1-t1-0: its tables are left out: it is off",
        f"{path}: tables of 2 switches; `load {path}` applies it",
    ]
    fabric.controller.answers["set_tables"] = {"mistakes": [], "written": {"p0-t0-0": 3}}
    assert "p0-t0-0: 3 entries changed, 1 in the file" in output_of(cli, f"load {path}")


def test_tables__with_a_mistake_name_its_line(cli, fabric, path):
    path.write_text("schema: mrc-state/1\ntables:\n  p0-t0-0:\n    - good\n    - hello\n")
    mistake = {"switch": "p0-t0-0", "number": 1, "text": "'hello': no table, match and action"}
    fabric.controller.answers["set_tables"] = {"mistakes": [mistake], "written": {}}
    assert output_of(cli, f"load {path}") == f"*** {path}:5:7: tables.p0-t0-0.1: {mistake['text']}"


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (
            "faults:\n  - {cut: p1-t0-0 p1-t1-7}\n  - {power_off: h9}\n",
            ["2:11: faults.0.cut: no node 'p1-t1-7'", "3:17: faults.1.power_off: no switch or host 'h9' (has: h0,"],
        ),
        ("faults:\n  - {heal: true}\n", ["2:6: faults.0.heal: no key 'heal' here (has: cut, one_way,"]),
        ("faults:\n  - {cut: p1-t0-0 p1-t1-1, blackhole: p1-t1-1}\n", ["2:5: faults.0: one action a line"]),
        (
            "faults: []\nqueues:\n  - {port: p0-t0-0-eth99, rate: 2M}\n",
            ["3:12: queues.0.port: no switch port 'p0-t0-0-eth99' (did you mean p0-t0-0-eth"],
        ),
        ("queues:\n  - {port: p0-t0-0-eth3}\n", ["2:5: queues.0: give rate, packets, or both"]),
        ("queues:\n  - {port: p0-t0-0-eth3, packets: 5}\n", ["packets are those of a queue: give its priority"]),
        ("tables:\n  p9-t0-0: []\n", ["2:3: tables.p9-t0-0: no switch 'p9-t0-0' (did you mean p"]),
        ("schema: mrc-state/2\n", ["1:9: schema: must be one of 'mrc-state/1'"]),
        ("title: a scenario\n", ["1:1: title: no key 'title' here (has: schema, faults, queues, tables)"]),
        ("hello\n", ["1:1: a state file is a mapping of keys, beginning with `schema:`"]),
    ],
)
def test_load__of_a_wrong_file_changes_nothing(cli, fabric, path, text, answers):
    path.write_text(text)
    output = output_of(cli, f"load {path}")
    assert output.startswith("*** ")
    for answer in answers:
        assert answer in output
    assert injections_of(fabric) == []


def test_load__that_is_refused_half_way_undoes_the_rest(cli, fabric, path):
    path.write_text("faults:\n  - {cut: h0 p0-t0-0}\n  - {loss: {link: h0 p0-t0-0, rate: 10%}}\n  - {power_off: h1}\n")

    def refuse(name, on):
        raise FabricError("no power here")

    fabric.power = refuse
    assert output_of(cli, f"load {path}") == f"*** {path}:4:5: faults.2: no power here; no fault of the file holds"
    assert injections_of(fabric) == [] and not fabric.cut
