"""Programs of switches by file: compiled once each, swapped with their entries, refused by name."""

import json
from pathlib import Path

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.topologies.lab.p4_program import ProgramError, source_of
from mrc_testbed.topologies.p4lab.switch_programs import SwitchPrograms, is_foreign
from tests.topologies.p4lab.programs import CROSS_WIRE, MAC_SWITCH, mac_entries


@pytest.fixture
def files(tmp_path):
    (tmp_path / "mac.p4").write_text(MAC_SWITCH)
    (tmp_path / "cross.p4").write_text(CROSS_WIRE)
    (tmp_path / "s1-runtime.json").write_text(json.dumps(mac_entries()))
    return tmp_path


@pytest.fixture
def programs(address, files):
    """The programs of a running switch, which has its entries."""
    out = SwitchPrograms(Path(address.removeprefix("unix:")), {"s1": 0}, {"s1": files / "mac.p4"})
    out.load("s1", out.compile(["s1"])["s1"])
    assert out.load_entries("s1", files / "s1-runtime.json") == 2
    return out


def test_is_foreign__looks_for_the_tables_of_ours():
    assert is_foreign(compile_program(MAC_SWITCH))
    assert not is_foreign(compile_program(source_of("srv6")))


def test_reload__of_a_changed_file_keeps_entries(programs, files):
    (files / "mac.p4").write_text(MAC_SWITCH + "// changed\n")
    (reload,) = programs.reload()
    assert (reload.kept_count, reload.refusals, reload.has_counts) == (2, (), True)
    assert len(programs.entry_lines("s1")) == 2


def test_reload__with_another_file_goes_on_with_it(programs, files):
    (reload,) = programs.reload(files / "cross.p4", ["s1"])
    assert (reload.program, reload.kept_count, len(reload.refusals)) == ("cross", 0, 2)
    assert programs.sources["s1"] == files / "cross.p4"


def test_reload__that_is_refused_changes_nothing(programs, files):
    (files / "mac.p4").write_text(MAC_SWITCH.replace("macs.apply", "mac.apply"))
    with pytest.raises(ProgramError, match=r"mac.p4:"):
        programs.reload()

    def refuse(programs_by_switch):
        raise FabricError(f"not {programs_by_switch['s1'].name}")

    with pytest.raises(FabricError, match="not cross"):
        programs.reload(files / "cross.p4", check=refuse)
    assert programs.sources["s1"] == files / "mac.p4" and len(programs.entry_lines("s1")) == 2
    with pytest.raises(FabricError, match=r"no switch 's9' \(has: s1\)"):
        programs.reload(switches=["s9"])
