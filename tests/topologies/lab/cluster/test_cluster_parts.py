"""`kill -9` of each kind of part on another machine: told at the prompt, cured there.

A run ends as failed with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.lab.part_watch import RELAPSE_S
from tests.cli.prompt.terminal import ROOT
from tests.cluster_rig import ClusterRig, sshd
from tests.resilience.kill_parts import Front, Row

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        sshd() is None and "CI" not in os.environ,
        reason="needs sshd (`scripts/setup --tests`, or apt-get install openssh-server)",
    ),
]
LIMIT_S = 120.0
PARTS = ("switchd of b", "h1", "controller", "all")
"""`mrc up` has planes 0 and 1 on machines a and b, hosts h0 and h1 as well."""
SCENARIO = """
title: Long enough
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 10M}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 600s
expect:
  - {metric: rate.flow, at_least: 0}
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with ClusterRig(tmp_path_factory.mktemp("rig"), 2) as cluster:
        yield cluster


def parts_on(rig, machine):
    """Return the pids there by the names that the front process has for them."""
    try:
        state = json.loads(rig.run(machine, "cat", "/run/mrc-testbed/state.json"))
    except (subprocess.CalledProcessError, ValueError):
        return {}
    return {
        f"switchd of {machine}" if name == "switchd" else name: process["pid"]
        for name, process in state["processes"].items()
    }


class ClusterFront(Front):
    """User at the prompt of `mrc up --servers`."""

    def __init__(self, rig):
        self.rig = rig
        super().__init__("--servers", str(rig.servers_file))

    def machines(self):
        """Return the machine of each part; none for those of the front process."""
        return {name: machine for machine in self.rig.names for name in parts_on(self.rig, machine)}

    def pids(self):
        elsewhere = {n: pid for machine in self.rig.names for n, pid in parts_on(self.rig, machine).items()}
        return super().pids() | elsewhere

    def machine_suffix(self, name):
        machine = self.machines().get(name)
        return f" on machine {machine}" if machine else ""

    def end_parts(self, pids):
        machines = self.machines()
        for name, pid in pids.items():
            if name in machines:
                self.rig.run(machines[name], "kill", "-9", str(pid))
            else:
                super().end_parts({name: pid})


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("switchd of a", marks=pytest.mark.thorough),
        "h1",
        pytest.param("controller", marks=pytest.mark.thorough),
    ],
)
def test_run__fails_with_the_part_that_died_on_another_machine_as_its_cause(rig, tmp_path, part):
    (tmp_path / "long.yaml").write_text(SCENARIO)
    files = RunFiles(tmp_path / "r")
    front = subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", "run", "long.yaml", "--out", "out", "--servers", str(rig.servers_file)],
        env={**os.environ, "MRC_RUN_DIR": str(files.path), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    pid = kill_at_work(rig, files, part, front)
    output = " ".join(front.communicate(timeout=LIMIT_S)[0].split())
    assert front.returncode == 1 and "FAILED" in output, output
    (path,) = (tmp_path / "out" / "runs").glob("*.json")
    outcome = json.loads(path.read_text())
    assert [(death["name"], death["pid"], death["how"]) for death in outcome["dead_parts"]] == [
        (part, pid, "was killed by SIGKILL")
    ]
    assert outcome["finished"] is False and 0 < outcome["dead_parts"][0]["t"] < 600
    assert f"{part} (pid {pid}" in output


SENDING_TICKS = 10
"""CPU time that h0 has used for nothing but sending, clock ticks."""


def ticks_of_h0(rig):
    """Return the CPU time of h0's agent so far, clock ticks."""
    stat = rig.run("a", "cat", f"/proc/{parts_on(rig, 'a')['h0']}/stat")
    return sum(map(int, stat.rpartition(")")[2].split()[11:13]))


def kill_at_work(rig, files, part, front):
    """Kill a part once the controller is ready and h0 sends; its pid."""
    first_ticks = None
    while front.poll() is None:
        time.sleep(0.05)
        try:
            if "ready" not in (files.logs / "controller.log").read_text():
                continue
            front_processes = json.loads(files.state_file.read_text())["processes"]
            ticks = ticks_of_h0(rig)
        except (OSError, ValueError, KeyError, subprocess.CalledProcessError):
            continue
        first_ticks = ticks if first_ticks is None else first_ticks
        if ticks - first_ticks < SENDING_TICKS:
            continue
        for machine in rig.names:
            if (pid := parts_on(rig, machine).get(part)) is not None:
                rig.run(machine, "kill", "-9", str(pid))
                return pid
        os.kill(front_processes[part]["pid"], 9)
        return front_processes[part]["pid"]
    raise AssertionError(front.communicate(timeout=LIMIT_S)[0])


@pytest.fixture(scope="module")
def front(rig, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRC_RUN_DIR", str(tmp_path_factory.mktemp("r")))
        cluster_front = ClusterFront(rig)
        yield cluster_front
        assert cluster_front.end()


@pytest.mark.parametrize("part", PARTS)
def test_prompt__tells_a_death_on_another_machine_and_has_the_part_back(front, part):
    front.begin_load()
    time.sleep(RELAPSE_S)
    row = Row(part)
    front.kill(part, "queues", row)
    assert row.is_good, (row, row.faults)


def test_prompt__says_where_it_died_its_last_words_and_what_is_lost(front):
    time.sleep(RELAPSE_S)
    pid = front.pids()["switchd of b"]
    front.end_parts({"switchd of b": pid})
    output = " ".join(front.terminal.expect("log/switchd.log:", LIMIT_S).split())
    assert f"switchd of b (pid {pid} on machine b) was killed by SIGKILL: no switch of plane 1 forwards;" in output
    front.terminal.expect("switchd of b runs again", LIMIT_S)
