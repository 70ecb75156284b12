"""A fabric on three machines, which are network namespaces with an sshd each.

What it does, and how it ends.

Machine b's clock counts from another boot (tests/cluster_rig.py).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mrc_testbed.api.fabric import AnyFabric
from mrc_testbed.errors import UsageError
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import read
from tests.cluster_rig import ClusterRig, sshd
from tests.repository import ROOT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        sshd() is None and "CI" not in os.environ,
        reason="needs sshd (`scripts/setup --tests`, or apt-get install openssh-server)",
    ),
]

SCENARIO = """
title: A link cut under a stream
links: {rate: 10M}
workload:
  - {stream: h0 h2, name: flow, message: 64K, depth: 4}
duration: 3s
faults:
  - {at: 1s, cut: [[p1-t0-0, p1-t1-1]]}
expect:
  - {metric: qp_errors, at_most: 0}
  - {metric: rate.flow, from: 2s, to: 3s, at_least: 15000000}
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with ClusterRig(tmp_path_factory.mktemp("rig")) as cluster:
        yield cluster


def left_on(rig, name):
    """Return a machine's leftovers of a fabric.

    Interfaces, processes of ours, and files beside lock and logs.
    """
    links = [row["ifname"] for row in json.loads(rig.run(name, "ip", "-j", "link"))]
    processes = [
        line for line in rig.run(name, "ps", "-eo", "args").splitlines() if "python" in line or "mnexec" in line
    ]
    folder = rig.run(name, "sh", "-c", "ls /run/mrc-testbed 2>/dev/null || true").split()
    return (
        [link for link in links if link not in ("lo", "eth0")]
        + processes
        + [file for file in folder if file not in ("lock", "log")]
    )


def interfaces_here():
    result = subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True)
    return {row["ifname"] for row in json.loads(result.stdout)}


def clean(rig, name, limit_s=20.0):
    """Wait until a machine has nothing of a fabric any more, at most the limit; return the leftovers."""
    deadline = time.monotonic() + limit_s
    while (leftovers := left_on(rig, name)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return leftovers


@pytest.fixture
def tmp_path():
    """A folder with a short path: ssh's socket in its run folder may have 108 characters."""
    with TemporaryDirectory(prefix="mrc-") as folder:
        yield Path(folder)


def environment(tmp_path):
    return {**os.environ, "MRC_RUN_DIR": str(tmp_path / "run"), "PYTHONPATH": str(ROOT)}


def mrc(rig, tmp_path, *arguments, **options):
    command = [sys.executable, "-m", "mrc_testbed", *arguments, "--servers", str(rig.servers_file)]
    return subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, **options)


def fabric_of(servers_file, tmp_path, progress=lambda _text: None):
    return Fabric(Plan(), LabOptions(servers=read(servers_file)), tmp_path / "run", progress=progress)


def test_doctor__looks_at_every_machine_and_between_them(rig, tmp_path):
    result = mrc(rig, tmp_path, "doctor", "--json")
    checks = {row["name"]: row for row in json.loads(result.stdout)}
    assert result.returncode == 0 and all(row["ok"] for row in checks.values() if row["needed"]), result.stdout
    assert "-5000.0" in checks["b: clock"]["found"] and "round trip" in checks["a to c"]["found"]
    assert [left_on(rig, name) for name in rig.names] == [[], [], []]


def test_doctor__what_is_wrong_with_a_cure_for_each(rig, tmp_path):
    servers_text = rig.servers_file.read_text()
    (tmp_path / "bad.yaml").write_text(
        servers_text.replace("address: 10.213.77.11", "address: 10.213.77.11, port: 23")
        .replace("address: 10.213.77.12", "address: 10.213.77.12, user: tester")
        .replace("address: 10.213.77.13", "address: 10.213.77.13, python: /usr/bin/false")
    )
    result = subprocess.run(
        [sys.executable, "-m", "mrc_testbed", "doctor", "--servers", str(tmp_path / "bad.yaml")],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        timeout=60,
    )
    assert result.returncode == 1, result.stdout
    for phrase in (
        "port 23: Connection refused: no sshd listens there: start it, or give its `port`",
        "tester@10.213.77.12 cannot become root there",
        "let the user run sudo without a password",
        "c: mrc-testbed",
        "mrc-testbed does not run there (what ran there has ended",
    ):
        assert phrase in result.stdout, result.stdout


def test_start__a_path_too_narrow_and_other_files_are_refused_before_anything_is_made(rig, tmp_path):
    rig.run("b", "ip", "link", "set", "eth0", "mtu", "1200")
    try:
        with pytest.raises(FabricError, match="4274"):
            fabric_of(rig.servers_file, tmp_path).start()
    finally:
        rig.run("b", "ip", "link", "set", "eth0", "mtu", str(rig.mtu))
    package = shutil.copytree(PACKAGE, tmp_path / "checkout" / "mrc_testbed")
    (package / "topologies" / "new.py").write_text("# of another commit\n")
    servers_file = tmp_path / "other.yaml"
    text = rig.servers_file.read_text()
    servers_file.write_text(text.replace("{name: c,", f"{{name: c, checkout: {tmp_path / 'checkout'},"))
    with pytest.raises(FabricError, match=rf"machine c \({tmp_path / 'checkout'}\): other files of mrc-testbed"):
        fabric_of(servers_file, tmp_path).start()
    assert [left_on(rig, name) for name in rig.names] == [[], [], []]


def test_demo__passes_and_leaves_nothing(rig, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(os.urandom(8 << 20))
    result = mrc(rig, tmp_path, "demo", "--file", str(file), "--rate", "25M", "--json")
    report = json.loads(result.stdout)
    assert result.returncode == 0 and report["passed"], result.stderr
    assert [left_on(rig, name) for name in rig.names] == [[], [], []]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["lock", "log"]


@pytest.mark.thorough
def test_scenario__passes_and_tells_of_the_underlay(rig, tmp_path):
    (tmp_path / "cut.yaml").write_text(SCENARIO)
    result = mrc(rig, tmp_path, "run", str(tmp_path / "cut.yaml"), "--out", str(tmp_path / "out"), "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    (run,) = [json.loads(path.read_text()) for path in (tmp_path / "out" / "runs").glob("*.json")]
    notes = " ".join(run["notes"])
    assert "3 machines: a has planes 0, 1 (8 switches), hosts h0 to h1; b has plane 2" in notes
    assert "the underlay's round trip was" in notes and "no one-way delay is told" in notes
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert f"--servers {rig.servers_file}" in manifest["command"]


def test_prompt__words_reach_every_machine_or_say_why_not(rig, tmp_path):
    prompt_lines = """h2 hostname\np3-t1-0 hostname\nlinks h2\nlink h2 p0-t0-1 down\nlinks h2\npower p3-t1-0 off
queues p3-t1-0\nloss h0 p2-t0-0 5%\nsend h0 h2 200K\nwait\ncheck\ntrace h0 h2 0x0000\n"""
    result = mrc(rig, tmp_path, "up", input=prompt_lines)
    output = result.stdout
    assert result.returncode == 0, result.stderr
    assert (
        "\nb\n" in output and "\nc\n" in output and "4 of 4 links are up" in output and "3 of 4 links are up" in output
    )
    assert "arrived bit for bit" in output
    assert "no Clustermapper on several machines" in output
    assert "this fabric is on machines a, b, c" in output + result.stderr


@pytest.mark.parametrize("signal_number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGKILL])
def test_end__of_the_front_process_leaves_nothing_on_any_machine(rig, tmp_path, signal_number):
    """One of the machines is the front's own."""
    servers_file = tmp_path / "here.yaml"
    servers_file.write_text(
        rig.servers_file.read_text().replace(
            f"{{name: c, address: {rig.machines['c'].address}}}", "{name: here, address: local}"
        )
    )
    old_interfaces = interfaces_here()
    # Children of a shell's job in the background ignore SIGINT: `preexec_fn` undoes that.
    child = subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", "demo", "--servers", str(servers_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(tmp_path),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    lines = []
    try:
        for line in child.stdout:
            lines.append(line)
            if line.startswith("sending"):
                break
        assert left_on(rig, "b") and interfaces_here() > old_interfaces, "".join(lines)
        child.send_signal(signal_number)
        last_output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    if signal_number == signal.SIGKILL:
        cleanup = mrc(rig, tmp_path, "clean")
        assert cleanup.returncode == 0 and "a: clean: " in cleanup.stdout and "b: clean: " in cleanup.stdout, cleanup
    else:
        assert child.returncode == 130, last_output
    assert interfaces_here() == old_interfaces, last_output
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["lock", "log"]
    assert [clean(rig, name) for name in rig.names] == [[], [], []]


def test_link__carriers_between_machines_and_ssh_that_dies_is_named_and_the_part_removed(rig, tmp_path):
    """An end that goes down takes the carrier of the end on the other machine.

    Then a machine is lost, but lives.

    From Python, whose transfers have files on the machines of their ends.
    """
    notices = []
    with AnyFabric(
        pmtu=1024, rate="10M", servers=rig.servers_file, run_dir=tmp_path / "run", progress=notices.append
    ) as api_fabric:
        fabric = api_fabric.backend.lab
        # The transfer comes first: it needs machine b, which is lost at the end.
        sent = os.urandom(300_000)
        transfer = api_fabric.transfer("h0", "h2", sent)
        assert transfer.wait(30).sha256 and transfer.read() == sent
        assert rig.run("a", "ls", "/run/mrc-testbed/data") == ""
        with pytest.raises(UsageError, match="this fabric is on machines a, b, c"):
            api_fabric.trace("h0", "h2", 0)
        link = fabric.plan.link("h0", "p3-t0-0")
        far = fabric.network
        fabric.link_port("h0", link.lower.interface, is_up=False)
        assert not far.is_up(link.upper.interface) and not fabric.link_states()[link.upper.interface].is_up
        carrier = rig.run("c", "cat", f"/sys/class/net/{link.upper.interface}/carrier").strip()
        assert carrier == "0"
        fabric.link_port("h0", link.lower.interface, is_up=True)
        assert fabric.link_is_up(link) and fabric.link_states()[link.upper.interface].is_up
        status = fabric.status()
        assert [machine["name"] for machine in status["machines"]] == ["a", "b", "c"] and len(status["underlay"]) == 6
        rig.run("b", "pkill", "-9", "-f", "root@notty")
        lost(fabric, "b")
        with pytest.raises(FabricError, match=r"machine b is lost, with plane 2 \(4 switches\), host h2"):
            fabric.check()
    assert any("machine b (plane 2 (4 switches), host h2): clean: " in text for text in notices), notices
    assert [clean(rig, name) for name in rig.names] == [[], [], []]


@pytest.mark.thorough
def test_machine__killed_in_a_transfer_takes_its_plane_and_nothing_else(rig, tmp_path):
    """The last one: a machine is gone for good."""
    notices = []
    (tmp_path / "file").write_bytes(os.urandom(12 << 20))
    with fabric_of(rig.servers_file, tmp_path, notices.append) as fabric:
        agent = fabric.agent("h0")
        watch = agent.watch()
        agent.request("send_file", path=str(fabric.bring("h0", tmp_path / "file")), peer="h2", rate_bps=20e6)
        time.sleep(1.0)
        rig.kill("c")
        transfer_end = next(
            event for event in watch if event["event"] == "transfer" and event["state"] in ("done", "failed")
        )
        assert transfer_end["state"] == "done" and transfer_end["sha256"] == transfer_end["remote_sha256"]
        lost(fabric, "c")
        with pytest.raises(FabricError, match=r"machine c is lost, with plane 3 \(4 switches\), host h3"):
            fabric.check()
        assert not fabric.link_is_up(fabric.plan.link("h0", "p3-t0-0"))
        assert fabric.link_is_up(fabric.plan.link("h0", "p2-t0-0"))
        with pytest.raises(FabricError, match="machine c is lost"):
            fabric.mininet["h3"].cmd("hostname")
        watch.close()
    assert any(text.startswith("machine c (plane 3 (4 switches), host h3) cannot be asked") for text in notices)
    assert [left_on(rig, name) for name in ("a", "b")] == [[], []]


def lost(fabric, name, limit_s=20.0):
    """Wait until the loss of a machine is known."""
    deadline = time.monotonic() + limit_s
    while name not in [machine.name for machine in fabric.network.lost]:
        assert time.monotonic() < deadline, f"nobody noticed the loss of {name}"
        time.sleep(0.05)
