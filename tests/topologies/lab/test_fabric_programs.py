"""Programs of chosen switches of a fabric: whose tables the controller fills, and what is refused."""

from types import SimpleNamespace

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.topologies.lab.fabric_programs import FabricPrograms
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.lab.p4_program import source_of
from mrc_testbed.topologies.plan import Plan, PlanError
from tests.topologies.p4lab.programs import MAC_SWITCH


@pytest.fixture
def foreign(tmp_path):
    path = tmp_path / "mac.p4"
    path.write_text(MAC_SWITCH)
    return str(path)


def programs_of(tmp_path, **options):
    """Return the programs of a fabric that is not up."""
    run_dir = SimpleNamespace(path=tmp_path, program=tmp_path / "program", p4runtime_socket=tmp_path / "p4.sock")
    lab = LabOptions(**options)
    return FabricPrograms(SimpleNamespace(plan=Plan(2, 2, 2, 1), lab=lab, run_dir=run_dir, program="srv6"))


def test_prepare__tells_the_controller_whose_tables_it_fills(tmp_path, foreign):
    programs = programs_of(tmp_path, own_programs={"p0-t1-0": foreign, "p1-t1-0": str(source_of("srv6"))})
    programs.prepare()
    fields = {name: programs.address_fields(name) for name in ("p0-t0-0", "p0-t1-0", "p1-t1-0")}
    assert fields == {"p0-t0-0": {}, "p0-t1-0": {"foreign": True}, "p1-t1-0": {"program": "program/p1-t1-0"}}
    assert programs.running.sources["p0-t1-1"] == source_of("srv6")


def test_check_swap__refuses_a_program_of_the_other_kind(tmp_path, foreign):
    programs = programs_of(tmp_path, own_programs={"p0-t1-0": foreign})
    programs.prepare()
    mac, srv6 = compile_program(MAC_SWITCH), compile_program(source_of("srv6"))
    programs._check_swap({"p0-t1-0": mac, "p0-t1-1": srv6})
    with pytest.raises(UsageError, match=r"p0-t1-1: \S+ lacks the tables .* Cure: begin with it"):
        programs._check_swap({"p0-t1-1": mac})
    with pytest.raises(UsageError, match=r"p0-t1-0: srv6 has the tables .* Cure: begin with it"):
        programs._check_swap({"p0-t1-0": srv6})


def test_entries__of_the_controllers_switches_are_refused(tmp_path, foreign):
    programs = programs_of(tmp_path)
    with pytest.raises(FabricError, match=r"p0-t0-0: its tables are the controller's. Cure: "):
        programs.load_entries("p0-t0-0", tmp_path / "s1-runtime.json")


def test_switches__that_cannot_be_swapped_or_are_none(tmp_path, foreign):
    with pytest.raises(FabricError, match="Cure: `mrc up` again"):
        programs_of(tmp_path, target="bmv2").reload()
    with pytest.raises(FabricError, match=r"--program NODE=FILE with --target bmv2"):
        LabOptions(target="bmv2", own_programs={"p0-t0-0": foreign})
    with pytest.raises(PlanError, match="no switch 'p9'"):
        programs_of(tmp_path, own_programs={"p9": foreign}).prepare()
