"""Programs of `mrc up --program`: whose, for which switches, and what a foreign one does not have."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli import app as commands
from mrc_testbed.cli.p4_programs import FABRIC_OPTIONS, is_foreign, read_programs
from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.plan import Plan
from tests.repository import P4SRC
from tests.topologies.p4lab.programs import MAC_SWITCH

PLAN = Plan(2, 2, 2, 1)
runner = CliRunner()


@pytest.fixture
def foreign(tmp_path):
    path = tmp_path / "mac.p4"
    path.write_text(MAC_SWITCH)
    return path


def test_is_foreign__looks_for_the_tables_of_ours(foreign):
    assert is_foreign(foreign)
    assert not is_foreign(P4SRC / "spray.p4")
    assert not is_foreign(P4SRC / "srv6.p4")


def test_read_programs__one_for_all_and_others_for_chosen_switches():
    programs = read_programs(["srv6.p4", "p0-t0-0,p1-t1-1=my.p4", "p0-t0-1=./a=b.p4"], PLAN)
    assert programs.base == Path("srv6.p4")
    assert programs.by_switch == {
        "p0-t0-0": Path("my.p4"),
        "p1-t1-1": Path("my.p4"),
        "p0-t0-1": Path("a=b.p4"),
    }
    assert read_programs(["dir/a=b.p4"], PLAN).base == Path("dir/a=b.p4")
    assert read_programs([], PLAN).base is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.p4", "b.p4"], "two for all. Cure: NODE=FILE"),
        (["h0=a.p4"], "no switch 'h0' (has: p0-t0-0,"),
        (["p0-t0-0=a.p4", "p0-t0-0=b.p4"], "p0-t0-0 has a.p4 already. Cure"),
    ],
)
def test_read_programs__mistakes_are_named(words, message):
    with pytest.raises(UsageError) as error:
        read_programs(words, PLAN)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ("--mode", "ecmp"),
        ("--pmtu", "1024"),
        ("--denylist", "all"),
        ("--react-after", "1"),
        ("--target", "embedded"),
        ("--wires", "veth"),
        ("--servers", "servers.yaml"),
        ("--nic", "scapy"),
        ("--dash",),
        ("--tls",),
        ("--allow", "daemon"),
        ("--name", "b"),
        ("-d",),
    ],
    ids=" ".join,
)
def test_foreign_program__refuses_what_it_does_not_have_even_with_the_default_value(words, foreign, monkeypatch):
    monkeypatch.setattr(commands, "is_foreign", lambda _program: True)  # tested above; it compiles
    result = runner.invoke(commands.app, ["up", "--planes", "1", "--program", str(foreign), *words])
    name = {"-d": "--detach"}.get(words[0], words[0])
    assert isinstance(result.exception, UsageError), result.output
    reason = FABRIC_OPTIONS[name[2:].replace("-", "_")]
    assert f"{name}: {reason}. Cure: leave out {name}" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_foreign_program__with_several_planes_says_so(foreign):
    result = runner.invoke(commands.app, ["up", "--planes", "2", "--program", str(foreign)])
    assert "2 planes" in str(result.exception) and "Cure: --planes 1" in str(result.exception)
