"""Files and options that the controller starts with.

Every wrong file is refused by name, before a switch is touched.
"""

import json

import pytest
from google.protobuf import text_format

from mrc_testbed.controller.__main__ import main
from mrc_testbed.controller.config import read_inputs
from mrc_testbed.controller.errors import InputError
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=1, racks=2, spines=1, hosts_per_rack=1)


@pytest.fixture
def run_dir(tmp_path, srv6):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_json()))
    addresses = {
        s.name: {"address": "127.0.0.1:9559", "device_id": s.device_id, "gnmi": "127.0.0.1:9339"} for s in PLAN.switches
    }
    (tmp_path / "switches.json").write_text(json.dumps(addresses))
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "p4info.txtpb").write_text(text_format.MessageToString(srv6.schema.p4info))
    (tmp_path / "program" / "config.p4").write_bytes(b"config")
    return tmp_path


def change(path, name, **fields):
    data = json.loads(path.read_text())
    data[name].update(fields)
    path.write_text(json.dumps(data))


def test_inputs__good(run_dir, srv6):
    inputs = read_inputs(run_dir)
    assert (inputs.program, inputs.plan, inputs.gnmi_addresses) == ("srv6", PLAN, ["127.0.0.1:9339"])
    assert [str(t) for t in inputs.targets] == [
        "p0-t0-0 (127.0.0.1:9559, device 1)",
        "p0-t0-1 (127.0.0.1:9559, device 2)",
        "p0-t1-0 (127.0.0.1:9559, device 3)",
    ]
    assert [sum(e.key.startswith(("my_usid", "usid_next")) for e in t.entries) for t in inputs.targets] == [5, 5, 5]
    assert inputs.catalog.cookie == srv6.cookie != 0


def test_inputs__a_switch_may_have_a_program_of_its_own_or_a_foreign_one(run_dir, srv6):
    own_folder = run_dir / "program" / "p0-t1-0"
    own_folder.mkdir()
    (own_folder / "p4info.txtpb").write_text(text_format.MessageToString(srv6.schema.p4info))
    (own_folder / "config.p4").write_bytes(b"another text")
    change(run_dir / "switches.json", "p0-t1-0", program="program/p0-t1-0")
    change(run_dir / "switches.json", "p0-t0-1", foreign=True)
    inputs = read_inputs(run_dir)
    assert [target.name for target in inputs.targets] == ["p0-t0-0", "p0-t1-0"]
    first, second = map(inputs.program_of, inputs.targets)
    assert (first.catalog, first.kind, second.kind) == (inputs.catalog, "srv6", "srv6")
    assert second.catalog.cookie not in (0, first.catalog.cookie)


def test_inputs__a_switch_may_have_no_gnmi(run_dir):
    change(run_dir / "switches.json", "p0-t1-0", gnmi=None)
    assert read_inputs(run_dir).targets[2].gnmi is None


@pytest.mark.parametrize("name", ["plan.json", "switches.json", "program/p4info.txtpb"])
def test_inputs__missing_file(run_dir, name):
    (run_dir / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing: `mrc up` writes it"):
        read_inputs(run_dir)


@pytest.mark.parametrize("name", ["plan.json", "switches.json"])
@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", "[" * 100_000, '{"planes": "four"}', '{"planes": 0}', "\udcff"]
)
def test_inputs__nonsense_in_json(run_dir, name, text):
    (run_dir / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=name):
        read_inputs(run_dir)


def test_inputs__no_run_folder(tmp_path):
    with pytest.raises(InputError, match=r"no run folder .*/none: start the fabric with `mrc up`"):
        read_inputs(tmp_path / "none")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"address": None}, 'p0-t0-1: address = None: wants "host:port"'),
        ({"address": "localhost"}, "p0-t0-1: address = 'localhost': wants"),
        ({"device_id": "2"}, "p0-t0-1: device_id = '2': wants a number from 1, like 2"),
        ({"device_id": 0}, "p0-t0-1: device_id = 0"),
        ({"device_id": True}, "p0-t0-1: device_id = True"),
        ({"device_id": 1 << 64}, "p0-t0-1: device_id = 18446744073709551616"),
        ({"gnmi": 9339}, "p0-t0-1: gnmi = 9339"),
    ],
)
def test_inputs__wrong_place_of_a_switch(run_dir, fields, message):
    change(run_dir / "switches.json", "p0-t0-1", **fields)
    with pytest.raises(InputError) as caught:
        read_inputs(run_dir)
    assert message in str(caught.value)


def test_inputs__switches_of_another_plan(run_dir):
    path = run_dir / "switches.json"
    addresses = json.loads(path.read_text())
    path.write_text(json.dumps(addresses | {"p7-t0-0": addresses["p0-t0-0"]}))
    with pytest.raises(InputError, match="p7-t0-0 not in the plan"):
        read_inputs(run_dir)
    path.write_text(json.dumps({"p0-t0-0": addresses["p0-t0-0"]}))
    with pytest.raises(InputError, match="no entry for p0-t0-1, p0-t1-0, which the plan"):
        read_inputs(run_dir)


@pytest.mark.parametrize("text", ["", "nonsense", "tables {", "tables { preamble { id: 1 } }", "{", "{}"])
def test_inputs__p4info_that_is_none(run_dir, text):
    (run_dir / "program" / "p4info.txtpb").write_text(text)
    with pytest.raises(InputError, match=r"p4info\.txtpb"):
        read_inputs(run_dir)


def test_inputs__config_is_one_file(run_dir):
    (run_dir / "program" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"exactly one config\.\* .* has: config\.json, config\.p4"):
        read_inputs(run_dir)
    for path in (run_dir / "program").glob("config.*"):
        path.unlink()
    with pytest.raises(InputError, match="has: none"):
        read_inputs(run_dir)


def test_inputs__p4info_of_the_other_program(run_dir):
    with pytest.raises(InputError, match="p0-t0-0: no table 'route' "):
        read_inputs(run_dir, "spray")


def test_main__bad_input_is_one_line_and_exit_2(tmp_path, capsys):
    assert main(["--run-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"controller: {tmp_path}/plan.json is missing: `mrc up` writes it before it starts the controller\n"
    )


@pytest.mark.parametrize("deadline", ["0", "-1", "nan", "-inf", "x"])
def test_main__bad_deadline(run_dir, deadline, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--run-dir", str(run_dir), f"--deadline={deadline}"])
    assert caught.value.code == 2
    assert "wants seconds, more than 0" in capsys.readouterr().err


def test_main__unreachable_switches_are_named_with_address_and_reason(run_dir, capsys):
    for switch in PLAN.switches:  # port 1 of loopback: nobody listens
        change(run_dir / "switches.json", switch.name, address="127.0.0.1:1", gnmi="127.0.0.1:1")
    assert main(["--run-dir", str(run_dir), "--deadline", "0.5"]) == 1
    out, err = capsys.readouterr()
    assert "ready" not in out
    assert "not all switches are ready, and none got on for 0.5 s" in err
    for switch in PLAN.switches:
        assert f"{switch.name} (127.0.0.1:1, device {switch.device_id}): arbitrate: UNAVAILABLE" in err
    assert not (run_dir / "controller.json").exists()
