"""Machine code, grammar tables and compiled modules come from folders that only this user can change."""

from __future__ import annotations

import os

import pytest

from mrc_testbed.console import progress
from mrc_testbed.hosts.nic import native
from mrc_testbed.ipc import processes
from mrc_testbed.native_build import build as compiled_build
from mrc_testbed.native_build import cache as builds
from mrc_testbed.switch.system.cache_folder import BuildError, safe_cache_dir

STRANGER = 64002


def open_to_all(folder):
    folder.chmod(0o777)


def of_a_stranger(folder):
    os.chown(folder, STRANGER, STRANGER)


def below_a_stranger(folder):
    os.chown(folder.parent, STRANGER, STRANGER)


def behind_a_link(folder):
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")
UNSAFE = [
    open_to_all, behind_a_link, pytest.param(of_a_stranger, marks=needs_root),
    pytest.param(below_a_stranger, marks=needs_root),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "above" / "cache"
    folder.mkdir(parents=True)
    monkeypatch.setenv("MRC_CACHE_DIR", str(folder))
    return folder


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_compiled_build__is_not_loaded(folder, unsafe, monkeypatch, capsys):
    monkeypatch.delenv("MRC_COMPILED", raising=False)
    monkeypatch.setattr(builds, "_state", None)
    build_folder = folder / builds.build_dir().name
    build_folder.mkdir()
    unsafe(folder)
    form = builds.use()
    assert not form.active and "another user could have made" in form.reason and "\n" not in form.reason
    assert "mrc: running the engine in Python" in capsys.readouterr().err


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_native_half_of_the_nic__is_not_loaded(folder, unsafe):
    unsafe(folder)
    with pytest.raises(BuildError, match="another user could change"):
        native.load()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_the_switch__compiles_and_reads_nothing_there(folder, unsafe):
    unsafe(folder)
    with pytest.raises(BuildError, match="another user could change"):
        safe_cache_dir()


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_children__keep_no_compiled_modules_there(folder, unsafe, monkeypatch):
    monkeypatch.setattr(processes, "BYTECODE", folder / "pyc")
    assert processes._bytecode_prefix() == {"PYTHONPYCACHEPREFIX": str(folder / "pyc")}
    (folder / "pyc").rmdir()
    unsafe(folder)
    assert processes._bytecode_prefix() == {}


def test_cache__is_made_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "new"))
    assert safe_cache_dir().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_what_is_written__is_not_written_there(folder, unsafe, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("compiled.lock", f"durations.{os.getpid()}", "durations.json"):
        (folder / name).symlink_to(precious)
    unsafe(folder)
    progress._remember("up", {"size": 1, "total_s": 1.0, "steps": []})
    with pytest.raises(BuildError, match="another user could change"):
        compiled_build.build(lambda _message: None)
    assert precious.read_text() == "precious"
