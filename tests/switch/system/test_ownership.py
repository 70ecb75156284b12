"""Folders that other users could change are refused, with the owner or mode that is at fault."""

import os

import pytest

from mrc_testbed.ipc import rundir
from mrc_testbed.ipc.rundir import RunDir, RunDirError, RunFiles, checked, write_private
from mrc_testbed.switch.system.ownership import refusal

STRANGER = 64002
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")


def test_folder__of_this_user_alone_is_taken(tmp_path):
    folder = tmp_path / "ours"
    folder.mkdir(mode=0o755)
    assert refusal(folder) is None
    with pytest.raises(FileNotFoundError):
        refusal(tmp_path / "missing")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o722])
def test_folder__that_others_may_write_is_refused(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    assert f"mode {mode:04o}" in refusal(folder) and "chmod 700" in refusal(folder)


def test_folder__link_and_file_are_refused(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    (tmp_path / "file").write_text("")
    assert "is a symbolic link" in refusal(tmp_path / "link")
    assert "is no folder" in refusal(tmp_path / "file")
    assert refusal(tmp_path / "link" / ".." / "ours") is None


@needs_root
def test_folder__of_another_user_is_refused_and_so_is_one_below_it(tmp_path):
    folder = tmp_path / "theirs"
    (folder / "ours").mkdir(parents=True)
    os.chown(folder, STRANGER, STRANGER)
    assert f"belongs to user {STRANGER}" in refusal(folder)
    assert f"belongs to user {STRANGER}, who could replace" in refusal(folder / "ours")


def test_folder__below_one_that_others_may_write_is_refused_unless_it_is_sticky(tmp_path):
    parent = tmp_path / "above"
    (parent / "ours").mkdir(parents=True)
    parent.chmod(0o777)
    assert "who could replace" in refusal(parent / "ours")
    parent.chmod(0o1777)
    assert refusal(parent / "ours") is None


@needs_root
def test_folder__behind_a_link_of_another_user_is_refused(tmp_path):
    (tmp_path / "real" / "ours").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert refusal(tmp_path / "link" / "ours") is None
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    assert f"belongs to user {STRANGER}" in refusal(tmp_path / "link" / "ours")


def prepare_hostile_folder(folder, precious):
    """Make a run folder as a hostile user would: links to a file that must stay as it is."""
    folder.mkdir(mode=0o777)
    (folder / "lock").symlink_to(precious)
    (folder / "state.json").write_text('{"token": "x", "group": 1, "processes": {}}')
    (folder / "state.json.new").symlink_to(precious)
    os.chown(folder, STRANGER, STRANGER)


@needs_root
@pytest.mark.parametrize("variable", ["MRC_RUN_DIR", "XDG_RUNTIME_DIR"])
def test_run_dir__prepared_by_another_user_is_refused_and_writes_nothing(tmp_path, monkeypatch, variable):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "mrc-testbed"
    prepare_hostile_folder(folder, precious)
    monkeypatch.delenv("MRC_RUN_DIR", raising=False)
    monkeypatch.setenv(variable, str(folder if variable == "MRC_RUN_DIR" else tmp_path))
    monkeypatch.setattr(rundir, "DEFAULT_PATH", str(folder))
    for attempt in (rundir.default_run_dir, RunFiles, RunDir(folder).acquire):
        with pytest.raises(RunDirError, match=f"not safe: .* belongs to user {STRANGER}.*set MRC_RUN_DIR"):
            attempt()
    assert precious.read_text() == "precious"


def test_run_dir__is_private_whatever_the_umask(tmp_path):
    umask = os.umask(0)
    try:
        with RunDir(tmp_path / "new"), RunDir(tmp_path / "below" / "deep" / "new"):
            pass
        (tmp_path / "empty").mkdir()
        with RunDir(tmp_path / "empty") as run_dir:
            run_dir.begin()
    finally:
        os.umask(umask)
    for name in ("new", "below/deep/new", "empty"):
        assert (tmp_path / name).stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "empty" / "state.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "empty" / "lock").stat().st_mode & 0o777 == 0o600


def test_run_dir__filled_while_others_could_write_is_refused(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "lock").touch()
    folder.chmod(0o777)
    with pytest.raises(RunDirError, match="can be changed by other users"):
        RunDir(folder).acquire()


def test_files__are_not_read_or_written_through_links(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text('{"a": 1}')
    for name in ("state.json", "state.json.new"):
        (tmp_path / name).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        rundir.read_json(tmp_path / "state.json")
    write_private(tmp_path / "state.json", '{"b": 2}')
    assert precious.read_text() == '{"a": 1}' and rundir.read_json(tmp_path / "state.json") == {"b": 2}


@needs_root
def test_run_dir__of_another_user_is_refused_to_hold_and_read_alike(tmp_path):
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", STRANGER, STRANGER)
    with pytest.raises(RunDirError, match="belongs to user"):
        checked(tmp_path / "run")
