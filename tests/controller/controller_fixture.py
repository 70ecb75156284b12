"""A real daemon and a real controller as subprocesses, with ports and a run folder of their own.

The ports are on the loopback interface.

`namespace=True` puts both into a private network namespace, so that interfaces can have the names of a plan without
meeting a fabric's. The Unix sockets are in the run folder and reached from outside.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from mrc_testbed.ipc.controller_client import EventStream, Northbound, UnixHttpConnection
from mrc_testbed.ipc.rpc import JsonlClient
from mrc_testbed.topologies.lab.p4_program import compile_program
from mrc_testbed.topologies.plan import Plan
from tests.repository import ROOT

PATIENCE_S = 30.0
"""Longest wait for what must happen, seconds; reaching it is a failure."""


def scrape(controller: Northbound, accept: str = "*/*", method: str = "GET") -> tuple[str, str]:
    """Return the content type and text of what Prometheus gets."""
    with closing(UnixHttpConnection(controller.socket, PATIENCE_S)) as connection:
        connection.request(method, "/metrics", headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.headers["Content-Type"], answer.read().decode()


class Rig:
    """Use as a context manager; everything started ends with it."""

    def __init__(self, run_dir: Path, plan: Plan, *, program: str = "srv6", namespace: bool = False) -> None:
        self.run_dir = run_dir
        self.plan = plan
        self.processes: list[subprocess.Popen[str]] = []
        self.prefix: list[str] = []
        self.daemon = JsonlClient(run_dir / "switchd.sock", timeout_s=PATIENCE_S)
        self.controller = Northbound(run_dir, timeout_s=PATIENCE_S)
        self._namespace = namespace
        self._program = program

    def __enter__(self) -> Rig:
        try:
            if self._namespace:
                self._unshare()
            compile_program(self.run_dir / "program", "embedded", self._program)
            (self.run_dir / "plan.json").write_text(json.dumps(self.plan.to_json()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.daemon.close()
        self.controller.close()
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _unshare(self) -> None:
        """A process that holds a namespace open; it ends when its standard input does."""
        command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && cat"]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(holder)
        assert holder.stdout is not None and holder.stdout.readline() == "up\n"
        self.prefix = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]

    def run(self, *command: str) -> None:
        """Run a command to its end, in the namespace."""
        subprocess.run([*self.prefix, *command], check=True)

    def start_daemon(self, *, ports: bool = False) -> None:
        """Start the daemon with all switches of the plan.

        `ports` gives them the plan's interfaces, which must exist.
        """
        devices = [
            {
                "name": s.name,
                "device_id": s.device_id,
                "ports": {str(p.number): p.interface for p in self.plan.ports(s.name)} if ports else {},
            }
            for s in self.plan.switches
        ]
        (self.run_dir / "devices.json").write_text(json.dumps(devices))
        options = ["--grpc", "127.0.0.1:0", "--gnmi", "127.0.0.1:0"]
        options += ["--control", str(self.run_dir / "switchd.sock"), "--config", str(self.run_dir / "devices.json")]
        line = self._start("mrc_testbed.switch.server", *options).readline()
        assert line.startswith("ready "), self.log("mrc_testbed.switch.server")
        answer = self.daemon.request("devices")
        address, gnmi = f"127.0.0.1:{answer['p4runtime_port']}", f"127.0.0.1:{answer['gnmi_port']}"
        addresses = {s.name: {"address": address, "device_id": s.device_id, "gnmi": gnmi} for s in self.plan.switches}
        (self.run_dir / "switches.json").write_text(json.dumps(addresses))

    def start_controller(self, *options: str) -> None:
        """Start the controller; return when it is ready."""
        line = self.begin_controller(*options).readline()
        assert line == "ready\n", self.log("controller")

    def begin_controller(self, *options: str):
        """Start a controller and return its process with standard output, at once."""
        return self._start("controller", "--run-dir", str(self.run_dir), "--http", "0", *options)

    def kill_controller(self) -> None:
        """Kill the controller with SIGKILL, in the middle of its work."""
        process = self.processes.pop()
        process.kill()
        process.wait(PATIENCE_S)

    def stop_controller(self) -> int:
        """Stop the controller and return its exit code."""
        self.controller.request("shutdown")
        return self.processes.pop().wait(PATIENCE_S)

    def _start(self, module: str, *options: str):
        with (self.run_dir / f"{module}.log").open("a") as log:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", module, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
            )
        self.processes.append(process)
        assert process.stdout is not None
        return process.stdout

    def log(self, module: str) -> str:
        return (self.run_dir / f"{module}.log").read_text()

    def switch(self, name: str) -> dict:
        """Return a switch's part of `status`."""
        return self.controller.request("status")["switches"][name]


def wait_for(watch: EventStream, event: str, **fields: object) -> dict:
    """Return the next event of that kind with those fields."""
    deadline = time.monotonic() + PATIENCE_S
    skipped_events = []
    while (remaining_s := deadline - time.monotonic()) > 0:
        message = watch.get(remaining_s)
        if message is None:
            break
        flat = {**message, **message.get("fault", {})}
        if message["event"] == event and all(flat.get(k) == v for k, v in fields.items()):
            return message
        skipped_events.append(message)
    raise AssertionError(f"no {event} {fields} in {skipped_events}")
