"""The dissector as a plugin: into a home of its own for the test, loaded from there by a real tshark."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.dissector import PLUGINS, SCRIPT
from mrc_testbed.hosts.dissector.install import PluginUser, install, uninstall

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Return the user who runs the test, with a folder of the test as home."""
    for name in ("XDG_CONFIG_HOME", "WIRESHARK_PLUGIN_DIR", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    return PluginUser(tmp_path, os.geteuid(), os.getegid())


@pytest.fixture
def plugin_user():
    """Return a user who is not root, at home where anybody may look: tests' own folders are root's alone."""
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with tempfile.TemporaryDirectory(prefix="mrc-plugin-") as home:
        os.chown(home, user.pw_uid, user.pw_gid)
        yield PluginUser(Path(home), user.pw_uid, user.pw_gid)


def plugin(user: PluginUser) -> Path:
    return user.home / PLUGINS / SCRIPT.name


@needs_tshark
def test_folder__is_the_one_tshark_names(user):
    assert user.folder() == user.home / PLUGINS


def test_folder__without_tshark_is_the_usual_one(user, monkeypatch):
    monkeypatch.setenv("PATH", str(user.home))
    assert user.folder() == user.home / PLUGINS


def test_install__twice_then_renewed_then_removed(user):
    assert "installed; Wireshark" in install(user)
    assert plugin(user).read_bytes() == SCRIPT.read_bytes()
    assert "is installed already" in install(user)
    plugin(user).write_bytes(SCRIPT.read_bytes() + b"-- of another version\n")
    assert "renewed" in install(user)
    assert plugin(user).read_bytes() == SCRIPT.read_bytes()
    assert "removed" in uninstall(user)
    assert not plugin(user).exists()
    assert "is not installed" in uninstall(user)


def test_install__leaves_what_is_not_ours(user):
    plugin(user).parent.mkdir(parents=True)
    plugin(user).write_text("-- somebody else's\n")
    for change in (install, uninstall):
        with pytest.raises(UsageError, match="not ours"):
            change(user)
    assert plugin(user).read_text() == "-- somebody else's\n"


def test_install__in_place_of_a_link_and_what_it_led_to_stays(user):
    """A link into a checkout, as the documents told before."""
    checkout = user.home / "checkout.lua"
    checkout.write_bytes(SCRIPT.read_bytes() + b"-- older\n")
    plugin(user).parent.mkdir(parents=True)
    plugin(user).symlink_to(checkout)
    assert "renewed" in install(user)
    assert not plugin(user).is_symlink()
    assert checkout.read_bytes().endswith(b"-- older\n")
    plugin(user).unlink()
    plugin(user).symlink_to(user.home / "gone.lua")
    assert "removed" in uninstall(user)
    assert not plugin(user).is_symlink()


def test_install__where_it_cannot(user):
    (user.home / ".local").write_text("a file where a folder should be")
    with pytest.raises(UsageError, match="tshark -X lua_script:"):
        install(user)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for somebody else")
def test_under_sudo__with_the_rights_of_the_user_behind_it(plugin_user, monkeypatch):
    install(plugin_user)
    plugin_path = plugin(plugin_user)
    assert {path.stat().st_uid for path in (plugin_path, *plugin_path.parents[: len(Path(PLUGINS).parts)])} == {
        plugin_user.uid
    }
    shutil.rmtree(plugin_user.home / ".local")
    os.chown(plugin_user.home, 0, 0)
    os.chmod(plugin_user.home, 0o755)
    with pytest.raises(UsageError, match="Permission denied"):
        install(plugin_user)
    assert (os.geteuid(), os.getegid()) == (0, 0)
    monkeypatch.setenv("SUDO_UID", str(plugin_user.uid))
    assert PluginUser.current() == PluginUser(
        Path(pwd.getpwuid(plugin_user.uid).pw_dir), plugin_user.uid, plugin_user.gid
    )
    monkeypatch.setenv("SUDO_UID", "4294967000")
    with pytest.raises(UsageError, match="no such user"):
        PluginUser.current()


@needs_tshark
def test_tshark__loads_it_from_there(plugin_user):
    """Another user than root runs tshark: for root newer ones load no script at all."""
    is_other_user = plugin_user.uid != os.geteuid()
    user_options = {"user": plugin_user.uid, "group": plugin_user.gid, "extra_groups": ()} if is_other_user else {}

    def protocols() -> str:
        return subprocess.run(
            ["tshark", "-G", "protocols"],
            env={**os.environ, "HOME": str(plugin_user.home), "LC_ALL": "C.UTF-8"},
            cwd=plugin_user.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            **user_options,
        ).stdout

    assert "Multipath Reliable Connection" not in protocols()
    install(plugin_user)
    assert "Multipath Reliable Connection" in protocols()
