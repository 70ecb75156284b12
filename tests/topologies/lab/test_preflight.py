"""Refusals before anything is made, each with cause and cure. No root."""

import os
import socket
import subprocess

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import preflight
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.plan import Plan


def test_root__needed_and_said(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FabricError, match=r"a fabric needs root .* run it with sudo"):
        Fabric(Plan(), run_dir=tmp_path / "run").start()
    assert not (tmp_path / "run").exists()


def test_tools__missing_ones_with_their_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FabricError) as caught:
        preflight.check_tools()
    assert str(caught.value).startswith(
        "not on PATH: mnexec, ip, setpriv, bash: `apt-get install bash iproute2 mininet util-linux`"
    )


def test_port__holder_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(FabricError) as caught:
            preflight.check_tcp_ports({port: "P4Runtime"})
    assert f"port {port} (P4Runtime) cannot be used: pid {os.getpid()} (" in str(caught.value)
    assert "choose another port" in str(caught.value)
    preflight.check_tcp_ports({port: "P4Runtime"})
    with pytest.raises(FabricError, match="port 70000"):
        preflight.check_tcp_ports({70000: "gNMI"})


def test_namespaces__refused_by_the_kernel_says_why(tmp_path, monkeypatch):
    """A chroot showed this: mnexec died at once and Mininet waited for its prompt for ever."""
    fake = tmp_path / "mnexec"
    fake.write_text("#!/bin/sh\necho 'mount: Invalid argument' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(FabricError, match=r"a host cannot have a network namespace here \(mount: Invalid argument\)"):
        preflight.check_namespaces()


@pytest.mark.root
def test_namespaces__a_chroot_that_hosts_would_leave_is_refused(tmp_path):
    """A chroot showed this: agents entered their hosts' namespaces and with them the machine's root."""
    for folder in ("bin", "lib", "lib64", "usr", "proc", "sys", "sbin", "inside"):
        (tmp_path / folder).mkdir()
    script = """
        cd "$1"; mount --bind . .; cd "$1"
        for folder in bin lib lib64 usr proc sys sbin; do [ ! -e /$folder ] || mount --rbind /$folder $folder; done
        exec chroot . sh -c 'cd /inside && exec "$@"' sh {}
    """
    trial = " ".join(f"'{word}'" for word in preflight.NAMESPACE_TRIAL)
    result = subprocess.run(
        ["unshare", "--mount", "bash", "-ec", script.format(trial), "bash", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0 and "/inside: No such file or directory" in result.stderr


def test_mininet__changes_no_sysctl_of_the_machine(monkeypatch):
    """Mininet calls its own `init` by name, which an override does not replace."""
    from mininet import net

    from mrc_testbed.topologies.lab.nodes import FabricMininet

    calls = []
    monkeypatch.setattr(net, "fixLimits", lambda: calls.append("sysctl"))
    monkeypatch.setattr(net.Mininet, "inited", False)
    FabricMininet(lambda *_: None)
    assert calls == []
