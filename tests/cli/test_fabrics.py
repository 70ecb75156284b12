"""`mrc ls`, `mrc down`, `mrc clean` and the names of fabrics, without a fabric."""

import json
import subprocess

import pytest

from mrc_testbed.cli import fabrics as commands
from mrc_testbed.cli import words
from mrc_testbed.cli.prompt.attached import LOCAL_WORDS
from mrc_testbed.cli.prompt.commands import WORDS
from mrc_testbed.cli.prompt.commands.base import BREAK
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.fabrics import Fabrics
from tests.ipc.test_fabrics import record


@pytest.fixture
def fabrics(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(commands, "require_root", lambda command: None)
    return Fabrics(tmp_path)


def test_ls__lists_the_living_and_the_dead(fabrics, capsys):
    commands.list_fabrics()
    assert capsys.readouterr().out == "no fabric is up: `mrc up` starts one, `mrc up -d` in the background\n"
    record(fabrics, "mrc", is_alive=False)
    record(fabrics, "b", began_at=2.0)
    commands.list_fabrics()
    head, mrc, b, cure = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "state", "mode", "size", "hosts", "since", "pid", "ports"]
    assert mrc.split()[:3] == ["mrc", "dead", "srv6"] and b.split()[:3] == ["b", "up", "srv6"]
    assert "4 x (2 T0 + 2 T1)" in b and "P4Runtime 9559" in b
    assert cure.startswith("mrc is dead: its front process has gone. Cure: `mrc clean`")
    commands.list_fabrics(as_json=True)
    assert [(row["name"], row["state"], row["hosts"]) for row in json.loads(capsys.readouterr().out)] == [
        ("mrc", "dead", 4),
        ("b", "up", 4),
    ]


def test_clean__removes_the_dead_and_keeps_the_living(fabrics, capsys):
    record(fabrics, "mrc", is_alive=False)
    record(fabrics, "b")
    for folder in (fabrics.folder("mrc"), fabrics.folder("b")):
        (folder / "lock").touch()
        folder.chmod(0o700)
    commands.clean()
    out = capsys.readouterr().out
    assert "clean: mrc left nothing behind" in out and "clean: b is up and stays" in out
    assert [entry.name for entry in fabrics.records()] == ["b"]


def test_down__ends_the_front_process_and_removes_the_rest(fabrics, capsys):
    from mrc_testbed.ipc import procfs

    record(fabrics, "b")
    files = fabrics.records()[0].files
    (files.path / "lock").touch()
    files.path.chmod(0o700)
    with subprocess.Popen(["sleep", "60"]) as process:
        state = json.loads(files.state_file.read_text())
        state |= {"front_pid": process.pid, "front_start": procfs.start_time(process.pid)}
        files.state_file.write_text(json.dumps(state))
        commands.take_down("b")
        assert process.wait() == -15
    assert capsys.readouterr().out.splitlines()[-1] == "b is down" and fabrics.records() == []


def test_down__all_takes_no_name():
    with pytest.raises(UsageError, match="--all takes every fabric down: leave out b"):
        commands.take_down("b", every=True)


def test_folder_for__a_name_that_is_up_says_what_to_do(fabrics, tmp_path):
    assert commands.folder_for(None) == tmp_path
    record(fabrics, "mrc")
    assert commands.folder_for(None) == tmp_path / "fabrics" / "mrc2"
    with pytest.raises(UsageError, match=r"the fabric mrc is up already \(pid \d+\). Cure: `mrc attach mrc`"):
        commands.folder_for("mrc")


def test_shell_words__are_words_of_the_prompt_and_have_every_fault():
    assert words.SHELL_WORDS.keys() <= WORDS.keys()
    assert {name for name, word in WORDS.items() if word.group == BREAK} <= words.SHELL_WORDS.keys()
    for name, (_, example) in words.SHELL_WORDS.items():
        assert example.split()[0] == name
        assert any(line.strip().startswith(example) for line in WORDS[name].help.splitlines()), example
    assert WORDS.keys() >= LOCAL_WORDS and not LOCAL_WORDS & words.SHELL_WORDS.keys()
