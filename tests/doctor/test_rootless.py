"""A fabric of an ordinary user.

What forbids it, and one that is up, seen from another terminal and from a browser.
"""

import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from mrc_testbed.doctor import rootless
from mrc_testbed.ipc import rundir
from tests.unprivileged import as_nobody

MRC = [sys.executable, "-m", "mrc_testbed"]


@pytest.mark.parametrize("name", rootless.SYSCTLS)
def test_cause__a_sysctl_that_forbids_it_comes_with_its_cure(name):
    forbids, allows = rootless.SYSCTLS[name]
    dotted_name = name.replace("/", ".")
    cause = rootless.cause("unshare failed", {name: forbids}, "docker")
    assert cause == f"{dotted_name} is {forbids} (unshare failed): as root, `sysctl -w {dotted_name}={allows}`"


def test_cause__a_container_or_the_kernel_when_no_sysctl_does():
    fine = {"user/max_user_namespaces": "96343", "kernel/apparmor_restrict_unprivileged_userns": "0"}
    assert "this container (podman) forbids it (no): start it with `--security-opt" in rootless.cause(
        "no", fine, "podman"
    )
    assert "is this a chroot" in rootless.cause("no", {}, None)


def test_container_kind__by_what_its_engine_leaves(tmp_path, monkeypatch):
    monkeypatch.delenv("container", raising=False)
    assert rootless.container_kind(tmp_path) is None
    (tmp_path / "run" / "systemd").mkdir(parents=True)
    (tmp_path / "run" / "systemd" / "container").write_text("systemd-nspawn\n")
    assert rootless.container_kind(tmp_path) == "systemd-nspawn"
    (tmp_path / ".dockerenv").touch()
    assert rootless.container_kind(tmp_path) == "docker"


@pytest.mark.skipif(rootless.obstacle() is not None, reason=f"no user namespaces here: {rootless.obstacle()}")
def test_enter__where_the_kernel_forbids_it_says_why():
    """A namespace in which there may be no further ones: `user.*` sysctls are each namespace's own."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    process = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", *MRC, "demo", "--rootless"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 1 and process.stdout == ""
    assert re.fullmatch(
        r"mrc: error: demo --rootless: user\.max_user_namespaces is 0 \(unshare: .*\): as root, "
        r"`sysctl -w user\.max_user_namespaces=15000`\n",
        process.stderr,
    ), process.stderr


def test_run_dir__of_a_user_is_where_that_users_fabric_is(tmp_path, monkeypatch):
    monkeypatch.delenv("MRC_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(rundir.os, "geteuid", lambda: 1000)
    assert rundir.default_run_dir() == Path(rundir.DEFAULT_PATH)
    rundir.user_run_dir().mkdir()
    rundir.RunFiles(rundir.user_run_dir()).state_file.touch()
    assert rundir.default_run_dir() == tmp_path / "mrc-testbed"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    assert rundir.user_run_dir() == Path("/tmp/mrc-testbed-1000")


@pytest.mark.root
@pytest.mark.skipif(rootless.obstacle() is not None, reason=f"no user namespaces here: {rootless.obstacle()}")
def test_up__of_an_ordinary_user_and_what_other_terminals_see():
    with tempfile.TemporaryDirectory(prefix="rootless-", dir="/tmp") as folder:
        home = Path(folder)
        process = as_nobody(
            [*MRC, "up", "--rootless", "--planes", "2", "--hosts-per-rack", "1"], home, stdin=subprocess.PIPE
        )
        assert process.stdin is not None and process.stdout is not None

        # The fabric is driven through a pipe, as by a user at the prompt.
        def enter(line: str) -> None:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

        def wait_for_line(text: str) -> str:
            assert process.stdout is not None
            for line in process.stdout:
                if text in line:
                    return line
            raise AssertionError(f"no {text!r}: {process.stderr.read() if process.stderr else ''}")

        def run_elsewhere(*command: str) -> str:
            out, err = as_nobody([*MRC, *command], home).communicate(timeout=60)
            assert err == ""
            return out

        try:
            enter("send h0 h1 4M")
            assert "begun" in wait_for_line("send 1")
            enter("dash")
            url = wait_for_line("live view: ").removeprefix("live view: ").strip()
            enter("sh cat /proc/sys/kernel/hostname /proc/self/uid_map")
            assert wait_for_line("65534").split() == ["0", "65534", "1"]
            wait_for_line("arrived bit for bit")
            assert run_elsewhere("links", "h0").endswith("2 of 2 links are up\n")
            assert run_elsewhere("dash") == f"{url}\n"
            with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(url, timeout=10) as page:
                assert b"/dash.js" in page.read()
        finally:
            process.communicate("exit\n", timeout=60)
        assert process.returncode == 0
        assert not (home / "run" / "mrc-testbed" / "state.json").exists()
