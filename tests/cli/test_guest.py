"""Guests at the command line: users of --allow, and the fabric that a user is a guest of."""

import os

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli import app as commands
from mrc_testbed.cli import guest
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import FabricError, RunDirError
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 1, 1)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--allow", "nobody-here"), "--allow nobody-here: this machine has no such user. Cure:"),
        (("--allow", "daemon", "--rootless"), "--rootless with --allow: other users are unknown there"),
    ],
)
def test_allow__that_cannot_be_is_refused_before_anything_is_made(words, error):
    result = CliRunner().invoke(commands.app, ["up", *words])
    assert isinstance(result.exception, UsageError) and error in str(result.exception), result.output


def test_allow__takes_users_once_by_their_numbers():
    assert guest.guest_numbers(["daemon", "root", "daemon"]) == (1, 0)


@pytest.fixture
def base(tmp_path, monkeypatch):
    """Run folder of another user, which this one may not enter; each fabric with guests has the plan."""
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(guest, "ROOT", os.geteuid())
    monkeypatch.setattr(guest.os, "access", lambda *_: False)
    monkeypatch.setattr(guest, "is_root", lambda: False)
    monkeypatch.setattr(guest, "plan_for_guest", lambda _files: PLAN)
    return tmp_path


def test_guest__of_the_only_fabric_or_the_named_one(base):
    assert guest.find_guest(None) is None
    (base / "run-guests" / "b").mkdir(parents=True)
    assert guest.find_guest(None).run_dir.path == guest.find_guest("b").run_dir.path == base / "run-guests" / "b"
    (base / "run-guests" / "c").mkdir()
    with pytest.raises(FabricError, match=r"several fabrics have guests: b, c\. Cure: name one, as in --fabric b"):
        guest.find_guest(None)
    assert guest.find_guest("c").plan == PLAN
    with pytest.raises(FabricError, match=r"no fabric '../run' has guests \(has: b, c\)"):
        guest.find_guest("../run")


def test_guest__asks_no_socket_that_another_user_could_have_made(base):
    (base / "run-guests").mkdir()
    (base / "run-guests").chmod(0o777)
    with pytest.raises(RunDirError, match="can be changed by other users"):
        guest.find_guest(None)
