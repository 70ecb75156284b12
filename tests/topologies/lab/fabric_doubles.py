"""Stand-ins for tests of the fabric's own work.

A target without switches, a net without nodes, and a front process.

Run as a program it is the front process of a bare fabric, for tests that kill it::

    python fabric_doubles.py RUN_DIR [stop_at]     prints each step; `up` when up; ends when stdin does

With `removing` as `stop_at`, its removal says so and never comes to its end.
"""

import io
import select
import sys
import time
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from mrc_testbed.cli.prompt.shell import run_cli
from mrc_testbed.topologies.lab import fabric as lab_fabric
from mrc_testbed.topologies.lab import targets
from mrc_testbed.topologies.lab.cables import Cables
from mrc_testbed.topologies.lab.options import VETH, WIRES_OF, LabOptions
from mrc_testbed.topologies.lab.traffic_control_thrift import ThriftTraffic
from mrc_testbed.topologies.plan import Plan

CHILD = "import signal, time; print('up', flush=True); time.sleep(1000)"

TURN_S = 0.05
"""Seconds of one wait. A signal that comes just before a call that blocks for ever is never answered."""


class BareTarget(targets.EmbeddedTarget):
    """A network without switches in it: interfaces and one child process are real, devices are not."""

    name = "bare"

    def tcp_ports(self):
        return {}

    def launch(self):
        child = self.processes.spawn("switchd", (sys.executable, "-c", CHILD))
        return {"switchd": lambda: "up" in child.log.read_text()}

    def start(self, switch):
        pass

    def power(self, switch, on):
        pass


class SilentThrift(ThriftTraffic):
    """Thrift without a server: every setting is taken, and nothing waits anywhere."""

    def _service_call(self, *_call):
        return 0


class CabledTarget(BareTarget):
    """Target with cables, as BMv2 has them."""

    name = "cabled"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cables = Cables(self.plan)

    def traffic(self):
        return SilentThrift(self.plan, lambda _id: ("127.0.0.1", 1), self.cables)


def bare_fabric(run_dir, plan=None, has_cables=False, progress=None, **options):
    """Return a Fabric of BareTarget, which only this fabric knows; default: 2 planes of 2 + 2 switches."""
    options = {"agents": False, "controller": False, "compile_program": None, **options}
    target = CabledTarget if has_cables else BareTarget
    patches = patch.dict(WIRES_OF, {target.name: (VETH,)}), patch.dict(lab_fabric.TARGETS, {target.name: target})
    with patches[0], patches[1]:
        lab = LabOptions(target=target.name, **options)
        return lab_fabric.Fabric(plan or Plan(2, 2, 2, 1), lab, run_dir, progress=progress)


def commands(fabric, tmp_path, *lines):
    """Pipe commands into the CLI; return its output and the number of commands that failed."""
    script = tmp_path / "commands"
    script.write_text("\n".join(lines) + "\n")
    out = io.StringIO()
    with script.open() as stdin:
        failures = run_cli(fabric, stdin=stdin, stdout=out)
    return out.getvalue(), failures


def wait_for_input() -> None:
    """Wait until standard input ends or has something."""
    while not select.select([sys.stdin], [], [], TURN_S)[0]:
        pass


def front(run_dir: str, stop_at: str = "") -> None:
    """Bring a bare fabric up and print each step; at the step `stop_at`, wait for a signal."""

    def progress(step: str) -> None:
        print(step, flush=True)
        if stop_at and step.startswith(stop_at):
            print("waiting", flush=True)
            wait_for_input()

    def compile_program(folder: Path, target: str, program: str) -> None:
        (folder / "p4info.txtpb").write_text("")

    def never_stop() -> None:
        print("removing", flush=True)
        while True:
            time.sleep(TURN_S)

    with bare_fabric(run_dir, compile_program=compile_program, progress=progress) as fabric:
        if stop_at == "removing":
            fabric.inject.stop = never_stop
        # It has left its shell's session before anything here ends: until then a hang-up would take it along.
        fabric.hosts["h0"].cmd('setsid sleep 1000 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done')
        print("up", flush=True)
        wait_for_input()


if __name__ == "__main__":
    front(*sys.argv[1:])
