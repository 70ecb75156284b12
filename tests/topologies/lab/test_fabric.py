"""The network of a fabric as root.

Interfaces as they must be, faults, and nothing left however it ends.

These use a bare target (fabric_doubles.py): real namespaces, interfaces and a child process, no switches in them.
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from mrc_testbed.files import memory
from mrc_testbed.ipc import procfs, rundir
from mrc_testbed.ipc.rundir import FabricError, HostOffError, RunDir, RunDirError
from mrc_testbed.topologies.lab.fabric import CONTROLLER, Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan, PlanError
from tests.topologies.lab.fabric_doubles import bare_fabric

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and interfaces"),
]
PLAN = Plan(2, 2, 2, 1)
FRONT = Path(__file__).with_name("fabric_doubles.py")


def links_in(fabric, host=None):
    """`ip -j -d link` of the root namespace or a host's, by name."""
    enter = [] if host is None else ["mnexec", "-a", str(fabric.hosts[host].pid)]
    run = subprocess.run([*enter, "ip", "-j", "-d", "link"], capture_output=True, check=True)
    return {load["ifname"]: load for load in json.loads(run.stdout)}


def nothing_is_left(run_dir):
    """Check that no interface of our names and no process of any run is left.

    Of the folder only lock and logs are left.
    """
    interfaces = {p.interface for k in PLAN.links for p in (k.lower, k.upper)}
    assert interfaces.isdisjoint(os.listdir("/sys/class/net"))
    assert {path.name for path in Path(run_dir).iterdir()} <= {"lock", "log"}
    assert (Path(run_dir) / "lock").read_text() == ""
    assert f" {run_dir}/" not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def fabric(tmp_path):
    with bare_fabric(tmp_path / "run") as running_fabric:
        yield running_fabric
    nothing_is_left(tmp_path / "run")


def test_discipline__is_of_one_run(tmp_path):
    with bare_fabric(tmp_path / "run", discipline={"ecn": False}) as fabric:
        assert json.loads((fabric.run_dir.path / "discipline.json").read_text()) == {"ecn": False}
    nothing_is_left(tmp_path / "run")


def test_interfaces__as_the_plan_says(fabric):
    everywhere = {**links_in(fabric), **links_in(fabric, "h0"), **links_in(fabric, "h1")}
    for link in PLAN.links:
        for port in (link.lower, link.upper):
            interface = everywhere[port.interface]
            assert interface["mtu"] == 9216 and interface["address"] == PLAN.mac(port)
            assert {"UP", "NOARP", "LOWER_UP"} <= set(interface["flags"])
            assert interface["group"] == str(fabric.run_dir.state.group)
    assert sorted(links_in(fabric, "h0")) == ["h0-eth0", "h0-eth1", "lo"]
    for name in ("p0-t0-0-eth1", "p1-t1-1-eth2"):
        assert Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").read_text() == "1\n"
    host = fabric.hosts["h0"]
    assert host.cmd("cat /proc/sys/net/ipv6/conf/h0-eth1/disable_ipv6").strip() == "1"
    assert host.cmd("ip addr show h0-eth0 | grep -c inet").strip() == "0"


def test_offloads__are_off_at_both_ends(fabric):
    for prefix, name in (([], "p0-t0-0-eth1"), (["mnexec", "-a", str(fabric.hosts["h0"].pid)], "h0-eth0")):
        text = subprocess.run([*prefix, "ethtool", "-k", name], capture_output=True, text=True, check=True).stdout
        states = dict(line.strip().split(": ", 1) for line in text.splitlines()[1:])
        for feature in ("rx-checksumming", "tx-checksumming", "generic-segmentation-offload"):
            assert states[feature].startswith("off")
        assert states["scatter-gather"].startswith("on")  # only passed on: where a frame lies changes nothing of it
        assert states["generic-receive-offload"].startswith("off") and states["tx-tcp-segmentation"].startswith("off")


def test_frames__travel_untouched_from_host_to_switch(fabric):
    """9000 bytes from the NIC arrive at the T0 port as they were sent."""
    frame = bytes.fromhex("02 00 00 00 00 01 02 00 00 00 00 02 86dd") + os.urandom(9000)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as receiver:
        receiver.bind(("p1-t0-0-eth1", 0))
        receiver.settimeout(10)
        script = (
            "import socket, sys; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('h0-eth1', 0)); "
            "s.send(sys.stdin.buffer.read())"
        )
        command = ["mnexec", "-a", str(fabric.hosts["h0"].pid), sys.executable, "-c", script]
        subprocess.run(command, input=frame, check=True)
        assert receiver.recv(20_000) == frame


def test_link__down_at_both_ends_and_up_again(fabric):
    link = PLAN.link("p1-t0-0", "p1-t1-1")
    fabric.link("p1-t1-1", "p1-t0-0", is_up=False)
    assert not fabric.link_is_up(link)
    interfaces = links_in(fabric)
    assert all("UP" not in interfaces[p.interface]["flags"] for p in (link.lower, link.upper))
    assert [k["link"] for k in fabric.status()["links"] if not k["up"]] == ["p1-t0-0 p1-t1-1"]
    fabric.link("p1-t0-0", "p1-t1-1", is_up=True)
    assert fabric.link_is_up(link)


def test_link_port__one_end_takes_the_carrier_of_the_other(fabric):
    fabric.link_port("h0", "h0-eth1", is_up=False)
    assert "UP" not in links_in(fabric, "h0")["h0-eth1"]["flags"]
    assert "UP" in links_in(fabric)["p1-t0-0-eth1"]["flags"]
    assert not fabric.link_is_up(PLAN.link("h0", "p1-t0-0"))
    fabric.link_port("h0", 2, is_up=True)
    assert fabric.link_is_up(PLAN.link("h0", "p1-t0-0"))
    with pytest.raises(PlanError, match=r"no port 9 on h0 \(has: 1 \(h0-eth0\), 2 \(h0-eth1\)\)"):
        fabric.link_port("h0", 9, is_up=False)


def test_power__takes_ports_down_and_leaves_cut_links_cut(fabric):
    fabric.link("p0-t0-0", "p0-t1-0", is_up=False)
    fabric.power("p0-t1-0", False)
    assert [fabric.link_is_up(PLAN.link(t0, "p0-t1-0")) for t0 in ("p0-t0-0", "p0-t0-1")] == [False, False]
    assert fabric.status()["switches"]["p0-t1-0"]["powered"] is False
    fabric.power("p0-t1-0", True)
    assert [fabric.link_is_up(PLAN.link(t0, "p0-t1-0")) for t0 in ("p0-t0-0", "p0-t0-1")] == [False, True]
    fabric.power("p0-t1-0", False)
    fabric.link("p0-t0-0", "p0-t1-0", is_up=True)
    assert not fabric.link_is_up(PLAN.link("p0-t0-0", "p0-t1-0"))
    fabric.power("p0-t1-0", True)
    assert fabric.link_is_up(PLAN.link("p0-t0-0", "p0-t1-0"))
    with pytest.raises(PlanError, match="no switch 'h9'"):
        fabric.power("h9", False)


def test_power__of_a_host_takes_its_ports_and_processes(fabric):
    fabric.link("h0", "p0-t0-0", is_up=False)
    program = fabric.hosts["h0"].popen(["sh", "-c", "echo begun; exec sleep 100"])
    assert program.stdout.readline() == b"begun\n"
    fabric.power("h0", False)
    assert program.wait(10) == -signal.SIGKILL
    assert not any(fabric.link_is_up(link) for link in PLAN.links_of("nic", host="h0"))
    assert fabric.nodes_off == ["h0"] and fabric.run_dir.hosts_off == ["h0"]
    assert fabric.status()["hosts"] == {"h0": {"powered": False}, "h1": {"powered": True}}
    for use in (lambda: fabric.agent("h0"), lambda: fabric.hosts["h0"].cmd("true")):
        with pytest.raises(HostOffError, match=r"h0 is off\. Cure: `power h0 on`"):
            use()
    fabric.link("h0", "p1-t0-0", is_up=True)
    assert not fabric.link_is_up(PLAN.link("h0", "p1-t0-0"))
    fabric.power("h0", True)
    states = [fabric.link_is_up(link) for link in PLAN.links_of("nic", host="h0")]
    assert states == [False, True] and fabric.run_dir.hosts_off == []
    assert "h0-eth0" in fabric.hosts["h0"].cmd("ip link") and "h1" in fabric.hosts["h0"].cmd("cat /etc/hosts")
    fabric.link("h0", "p0-t0-0", is_up=True)


def test_mininet__own_api_works(fabric):
    net = fabric.mininet
    assert [h.name for h in net.hosts] == ["h0", "h1"] and len(net.switches) == 8
    net.configLinkStatus("p0-t0-0", "p0-t1-1", "down")
    assert not fabric.link_is_up(PLAN.link("p0-t0-0", "p0-t1-1"))
    (link,) = net.linksBetween(net["p0-t0-0"], net["p0-t1-1"])
    assert str(link) == "p0-t0-0-eth3<->p0-t1-1-eth1" and link.status() == "(DOWN DOWN)"
    assert net["h0"].cmd("echo $((6 * 7))").strip() == "42"


@pytest.mark.parametrize("command", ["exit", "kill -9 $$", "sleep 60 & exit"])
def test_host_shell__that_ends_is_reported_and_started_again_in_the_same_namespaces(fabric, command):
    """Test what once hung the session for ever: its command never ended, and SIGTERM waited for it."""
    h0 = fabric.hosts["h0"]
    names, links = h0.cmd("cat /etc/hosts"), links_in(fabric, "h0")
    with pytest.raises(FabricError, match="h0: the shell has ended; a new one has begun"):
        h0.cmd(command)
    assert h0.cmd("echo here").strip() == "here" and h0.cmd("cat /etc/hosts") == names
    assert links_in(fabric, "h0") == links
    os.kill(h0.pid, signal.SIGKILL)
    h0.shell.wait()
    assert h0.cmd("echo again").strip() == "again"  # it ended between two commands


def test_switch_shell__that_ends_is_started_again(fabric):
    switch = fabric.switches["p0-t0-0"]
    with pytest.raises(FabricError, match="p0-t0-0: the shell has ended"):
        switch.cmd("exit")
    assert switch.cmd("echo here").strip() == "here"


def test_switch_shell__starts_with_its_first_command_and_not_after_the_end(tmp_path):
    with bare_fabric(tmp_path / "run") as fabric:
        node, second_node = fabric.switches["p0-t0-0"], fabric.switches["p0-t0-1"]
        assert node.shell is None
        assert node.cmd("echo here").strip() == "here" and node.shell is not None
        assert second_node.popen("true").wait() == 0
        assert fabric.switches["p1-t1-1"].shell is None
    nothing_is_left(tmp_path / "run")
    assert node.cmd("echo nobody") is None and node.shell is None


def test_files__for_controller_and_agents(fabric):
    folder = fabric.run_dir.path
    assert Plan.from_json(json.loads((folder / "plan.json").read_text())) == PLAN
    switches = json.loads((folder / "switches.json").read_text())
    assert switches["p1-t1-1"] == {
        "address": f"unix:{fabric.run_dir.p4runtime_socket}",
        "device_id": 8,
        "gnmi": f"unix:{fabric.run_dir.gnmi_socket}",
    }
    state = json.loads((folder / "state.json").read_text())
    assert (
        len(state["interfaces"]) == 2 * len(PLAN.links) - len(PLAN.hosts) * PLAN.planes
        and "switchd" in state["processes"]
    )


# ---- refusals: nothing is made, nothing is left ------------------------------------------------------------------


def test_second_start__names_the_first(fabric, tmp_path):
    with pytest.raises(RunDirError, match=rf"a fabric is running already in .*/run: pid {os.getpid()} \("):
        bare_fabric(tmp_path / "run").start()
    with pytest.raises(FabricError, match=r"interface p0-t0-0-eth1, .* and 17 more exists already .*MRC_RUN_DIR"):
        bare_fabric(tmp_path / "other").start()
    assert fabric.link_is_up(PLAN.links[0])


def test_foreign_interface__is_named_and_untouched(tmp_path):
    subprocess.run(["ip", "link", "add", "p0-t0-0-eth1", "type", "veth", "peer", "name", "zztopof1"], check=True)
    try:
        with pytest.raises(FabricError, match=r"interface p0-t0-0-eth1 exists already .* `ip link del p0-t0-0-eth1`"):
            bare_fabric(tmp_path / "run").start()
        assert os.path.exists("/sys/class/net/p0-t0-0-eth1")
    finally:
        subprocess.run(["ip", "link", "del", "p0-t0-0-eth1"], check=True)
    nothing_is_left(tmp_path / "run")


def test_failing_compiler__leaves_nothing(tmp_path):
    def compile_program(folder, target, program):
        raise ValueError("srv6.p4:12:3: no such thing")

    with pytest.raises(ValueError, match="12:3"):
        bare_fabric(tmp_path / "run", compile_program=compile_program).start()
    nothing_is_left(tmp_path / "run")


def test_close__twice_and_without_start(tmp_path):
    fabric = bare_fabric(tmp_path / "run")
    fabric.close()
    fabric.start()
    fabric.close()
    fabric.close()
    nothing_is_left(tmp_path / "run")
    with pytest.raises(FabricError, match="the fabric is not up"):
        bare_fabric(tmp_path / "run").link("p0-t0-0", "p0-t1-0", is_up=False)


# ---- ends that nobody planned ---------------------------------------------------------------------------------------


class Front:
    """A front process, and the steps it says."""

    processes: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, run_dir, stop_at=""):
        command = [sys.executable, str(FRONT), str(run_dir), stop_at]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.processes.append(self.process)
        self.steps = []

    def read_until(self, step):
        for line in self.process.stdout:
            self.steps.append(line.strip())
            if self.steps[-1] == step:
                return self
        raise AssertionError(f"ended before {step!r}: {self.steps} {self.process.stderr.read()}")

    def end(self, number=None):
        """Send a signal, or end its input; returns its exit code."""
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def run_dir(tmp_path):
    """A run folder. What a failed test leaves is removed: the next tests need its interfaces."""
    yield tmp_path / "run"
    while Front.processes:
        with Front.processes.pop() as process:
            process.kill()
    with RunDir(tmp_path / "run") as folder:
        folder.clean_leftovers()


CODES = {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 143, signal.SIGHUP: 129}
STEPS = ("making the network", "compiling", "starting switches", "fabric is up")
USUAL_ENDS = {*zip(STEPS, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM), strict=True)}
"""Each step once, each signal once."""


@pytest.mark.parametrize(
    "step, number",
    [
        pytest.param(step, number, marks=() if (step, number) in USUAL_ENDS else pytest.mark.thorough)
        for step in STEPS
        for number in CODES
    ],
)
def test_signal__at_any_step_leaves_nothing(run_dir, step, number):
    front = Front(run_dir, step).read_until("waiting")
    assert front.end(number) == CODES[number]
    nothing_is_left(run_dir)


@pytest.mark.parametrize("step", [pytest.param(STEPS[0], marks=pytest.mark.thorough), *STEPS[1:]])
def test_signals__of_one_end_that_come_together_leave_nothing(run_dir, step):
    """A command is killed at its terminal: its front gets SIGHUP of the terminal and SIGTERM of its end.

    The process is held up, so that both are there before it looks.
    """
    front = Front(run_dir, step).read_until("waiting")
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        front.process.send_signal(number)
    assert front.end() == CODES[signal.SIGHUP]
    nothing_is_left(run_dir)


def test_signal__the_second_ctrl_c_ends_a_slow_removal_at_once_and_the_next_start_works(run_dir):
    front = Front(run_dir, "removing").read_until("up")
    front.process.send_signal(signal.SIGINT)
    front.read_until("removing")
    front.process.send_signal(signal.SIGINT)
    assert front.process.wait(timeout=30) == 128 + signal.SIGINT
    assert front.process.stderr.read().strip() == (
        "mrc: ended at once; the next start, or `mrc clean`, removes what is left of the fabric"
    )
    second = Front(run_dir).read_until("up")
    assert any("of a killed run" in step for step in second.steps)
    assert second.end() == 0
    nothing_is_left(run_dir)


def test_signal__the_first_ctrl_c_during_a_removal_is_answered_and_the_second_ends_it(run_dir):
    front = Front(run_dir, "removing").read_until("up")
    front.process.stdin.close()
    front.read_until("removing")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):  # more than one may come of one end
        front.process.send_signal(number)
    front.process.send_signal(signal.SIGINT)
    assert "once more ends at once" in front.process.stderr.readline()
    assert front.process.poll() is None
    front.process.send_signal(signal.SIGINT)
    assert front.process.wait(timeout=30) == 130 and "mrc: ended at once" in front.process.stderr.read()


def test_kill_9__the_next_start_cleans(run_dir):
    front = Front(run_dir).read_until("up")
    state = json.loads((run_dir / "state.json").read_text())
    assert front.end(signal.SIGKILL) == -signal.SIGKILL
    assert rundir.interfaces_of_group(state["group"]), "T0-T1 links outlive a killed front process"
    marked = procfs.with_environment(f"MRC_FABRIC={state['token']}")
    assert "sleep 1000" in [procfs.command(pid) for pid in marked], "so do jobs in hosts"
    mounts = [run_dir / "data"] if memory.obstacle() is None else []
    assert memory.mounted_folders(f"mrc-{state['token']}") == mounts, "and the memory for files"
    second = Front(run_dir).read_until("up")
    assert any("of a killed run" in step for step in second.steps)
    assert rundir.interfaces_of_group(state["group"]) == []
    assert procfs.with_environment(f"MRC_FABRIC={state['token']}") == []
    assert second.end() == 0
    nothing_is_left(run_dir)


def test_spawn_controller__starts_one_when_none_runs():
    names = []

    class Children(dict):
        def spawn_module(self, name, *_):
            names.append(name)

    children, run_dir = Children(), SimpleNamespace(path=Path("/run"))
    fabric = SimpleNamespace(
        processes=children,
        run_dir=run_dir,
        target=SimpleNamespace(ports=Ports()),
        lab=LabOptions(react_after_s=math.inf),
    )
    Fabric.spawn_controller(fabric)
    children[CONTROLLER] = SimpleNamespace(alive=True)
    Fabric.spawn_controller(fabric)
    children[CONTROLLER].alive = False
    Fabric.spawn_controller(fabric)
    assert names == [CONTROLLER, CONTROLLER]
