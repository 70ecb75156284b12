"""Process on each machine of a cluster that makes that machine's part of the fabric.

Started over ssh as `python -m mrc_testbed.topologies.lab.cluster.machine_side`.

It makes its part of the fabric as a fabric on one machine is made (network.py, targets.py), and answers JSON lines on
its standard input and output, one after another. Everything it made goes with it, however it ends: on `close`; when its
input ends, that is when ssh or the front process is gone; after SILENCE_S without a line, when their machine is; at
SIGTERM; and after `kill -9` by the next start, as on one machine.
"""

from __future__ import annotations

import os
import platform
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, cast

from msgspec import Meta

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc import processes
from mrc_testbed.ipc.processes import Processes
from mrc_testbed.ipc.procfs import thread_seconds
from mrc_testbed.ipc.requests import Request, RequestError, RequestPart, parse
from mrc_testbed.ipc.rpc import JsonlError, LineBuffer, Message, answer_to, decode_request, encode, refusal_of
from mrc_testbed.ipc.rundir import SWITCHD, FabricError, RunDir, remove_run
from mrc_testbed.ipc.signals import SignalExit, terminate
from mrc_testbed.topologies.lab import preflight
from mrc_testbed.topologies.lab.cluster import clock
from mrc_testbed.topologies.lab.cluster.sources import sources_digest
from mrc_testbed.topologies.lab.cluster.underlay import Echo, probe
from mrc_testbed.topologies.lab.network import LocalNetwork, MachinePart, Tunnel
from mrc_testbed.topologies.lab.options import Ports
from mrc_testbed.topologies.lab.targets import EmbeddedTarget
from mrc_testbed.topologies.plan import Plan, PlanError

SILENCE_S: Final = 15.0
"""Seconds without a line after which the front process is taken for gone.

A limit, because the front process cannot be seen from here; it sends a line every half second (remote_machine.BEAT_S).
"""
WORK_S: Final = 2.0
"""Between two lines that say that an answer is being worked on, seconds."""
_REFUSALS = (FabricError, JsonlError, PlanError, RequestError, UsageError, OSError)
Name = Annotated[str, Meta(min_length=1, max_length=64)]


class TunnelEnd(RequestPart):
    """mrc_testbed.topologies.lab.network.Tunnel."""

    interface: Name
    vni: Annotated[int, Meta(ge=1, lt=1 << 24)]
    local: Name
    remote: Name


class Hello(Request, tag="hello"):
    """Ask for identity: {hostname, python, kernel, processors, digest} of the checkout."""


class Clock(Request, tag="clock"):
    """CLOCK_MONOTONIC here: {t}."""


class EchoOn(Request, tag="echo"):
    """Answer probes of other machines on an address of this one."""

    address: Name


class ProbeUnderlay(Request, tag="probe"):
    """Round trips to the Echo of another machine (underlay.py)."""

    local: Name
    remote: Name
    frame_bytes: Annotated[int, Meta(ge=64, le=60_000)]


class EchoOff(Request, tag="echo_off"):
    """Free the port for tunnels."""


class BeginPart(Request, tag="begin"):
    """Claim the run folder, start the switch daemon, make namespaces and inner links.

    Answer: {pids, removed, started}.
    """

    run_dir: str
    plan: dict[str, Any]
    hosts: list[str]
    switches: list[str]
    wires: Name
    p4runtime: Annotated[int, Meta(ge=1, le=65535)]
    gnmi: Annotated[int, Meta(ge=1, le=65535)]
    token: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """Token of the whole fabric."""
    open_to_all: bool = False
    offset_s: float = 0.0


class AddTunnels(Request, tag="tunnels"):
    """Make the ends here of links to other machines."""

    tunnels: list[TunnelEnd]


class Attach(Request, tag="attach"):
    """Give switches their ports, once the daemon answers."""

    switches: list[str]


class StartSwitches(Request, tag="switches"):
    """Start the switches' daemon again: {started: {name: {pid, log}}}."""


class StartAgents(Request, tag="agents"):
    """Start an agent in hosts here: {started: {name: {pid, log}}}."""

    arguments: list[str]
    hosts: list[str]


class PartsWork(Request, tag="work"):
    """Ask whether the processes here make progress (ipc/patience.py).

    Answer: {work: {name: {cpu_s, is_ready, is_stopped, log_bytes, last_line}}}.
    """


class SetUp(Request, tag="set_up"):
    """Set interfaces here up or down."""

    interfaces: list[str]
    up: bool


class SetCarrier(Request, tag="set_carrier"):
    """Give ends of tunnels carrier, or take it away."""

    interfaces: list[str]
    on: bool


class IsUp(Request, tag="is_up"):
    """Whether an interface here is up and has carrier: {up}."""

    interface: str


class LookAtPorts(Request, tag="look"):
    """All ports of links here at a glance: {ports: {interface: [up, received, sent]}}."""


class Threads(Request, tag="threads"):
    """Ask for the CPU time of the processes here (ipc/procfs.py).

    Answer: {processes: {name: {thread: [on a CPU, waiting for one]}}}.
    """


class Beat(Request, tag="beat"):
    """The front process lives; which processes here have died: {dead: {name: {pid, how, tail}}}."""


class Close(Request, tag="close"):
    """Remove everything, and end."""


@dataclass
class _Holding:
    """Parts of the fabric that this machine holds."""

    run_dir: RunDir
    processes: Processes
    target: EmbeddedTarget
    network: LocalNetwork


class MachineSide:
    """Part of a fabric on this machine, controlled by requests.

    `go_on(offset_s)` enters the clock of the front process.
    """

    def __init__(self, go_on: Callable[[float], None] = clock.enter) -> None:
        self._go_on = go_on
        self.send: Callable[[Message], None] = lambda _message: None
        """Sends a line beside the answers, from any thread."""
        self._answering: object = None
        """Id of the request that is being answered."""
        self._holding: _Holding | None = None
        self._echo: Echo | None = None
        self.done = False
        # One row for each request class above: the op of a line selects type and handler.
        self._ops: dict[str, tuple[type[Request], Callable[[Any], Message]]] = {
            "hello": (Hello, self._hello),
            "clock": (Clock, self._clock),
            "echo": (EchoOn, self._echo_on),
            "probe": (ProbeUnderlay, self._probe),
            "echo_off": (EchoOff, self._echo_off),
            "begin": (BeginPart, self._begin),
            "tunnels": (AddTunnels, self._tunnels),
            "attach": (Attach, self._attach),
            "switches": (StartSwitches, self._switches),
            "agents": (StartAgents, self._agents),
            "work": (PartsWork, self._parts_work),
            "set_up": (SetUp, self._set_up),
            "set_carrier": (SetCarrier, self._set_carrier),
            "is_up": (IsUp, self._is_up),
            "look": (LookAtPorts, self._look_at_ports),
            "threads": (Threads, self._threads),
            "beat": (Beat, self._beat),
            "close": (Close, self._close_op),
        }

    def answer(self, line: bytes) -> Message:
        """The answer to a line; refusals are answers too."""
        request: Message = {}
        try:
            request = decode_request(line)
            operation = self._ops.get(request["op"])
            if operation is None:
                raise JsonlError(f"no op {request['op']!r} (has: {', '.join(sorted(self._ops))})")
            kind, method = operation
            self._answering = request.get("id")
            return answer_to(request, method(parse(kind, request)))
        except _REFUSALS as error:
            return refusal_of(request, str(error))
        finally:
            self._answering = None

    def _report_work(self) -> None:
        """Say now and then that an answer is being worked on: the main thread uses CPU time, or tools do."""
        clock_number = time.pthread_getcpuclockid(cast(int, threading.main_thread().ident))
        reported_s = 0.0
        while True:
            time.sleep(WORK_S)
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            used_s = time.clock_gettime(clock_number) + usage.ru_utime + usage.ru_stime
            if (number := self._answering) is not None and used_s > reported_s:
                self.send({"id": number, "works": True})
            reported_s = used_s

    def close(self) -> list[str]:
        """Remove everything that was made; returns what would not go."""
        if self._echo is not None:
            self._echo.close()
            self._echo = None
        part, self._holding = self._holding, None
        if part is None:
            return []
        errors = []
        processes.drain()
        part.target.close()
        for step in (part.processes.stop, part.network.stop_mininet, lambda: remove_run(part.run_dir.state)):
            try:
                step()
            except FabricError as error:  # the next step still has to be done
                errors.append(str(error))
        part.network.close()
        if not errors:
            part.run_dir.remove_files()
        part.run_dir.release()
        return errors

    # ---- before the fabric ------------------------------------------------------------------------------

    def _hello(self, _request: Hello) -> Message:
        return {
            "hostname": platform.node(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "processors": len(os.sched_getaffinity(0)),
            "digest": sources_digest(),
        }

    def _clock(self, _request: Clock) -> Message:
        return {"t": time.monotonic()}

    def _echo_on(self, request: EchoOn) -> Message:
        self._echo_off()
        self._echo = Echo(request.address)
        return {}

    def _echo_off(self, _request: object = None) -> Message:
        if self._echo is not None:
            self._echo.close()
            self._echo = None
        return {}

    def _probe(self, request: ProbeUnderlay) -> Message:
        return probe(request.local, request.remote, request.frame_bytes)

    # ---- the fabric -------------------------------------------------------------------------------------

    def _begin(self, request: BeginPart) -> Message:
        if self._holding is not None:
            raise JsonlError("begun already")
        preflight.check_root()
        preflight.check_tools()
        preflight.check_namespaces()
        plan = Plan.from_json(request.plan)
        self._go_on(request.offset_s)
        threading.Thread(target=self._report_work, name="work", daemon=True).start()
        run_dir = RunDir(request.run_dir)
        run_dir.acquire()
        holding = None
        try:
            leftovers = run_dir.clean_leftovers()
            children = Processes(run_dir)
            ports = Ports(p4runtime=request.p4runtime, gnmi=request.gnmi, open_to_all=request.open_to_all)
            target = EmbeddedTarget(run_dir, children, ports, plan)
            part = MachinePart(tuple(request.hosts), tuple(request.switches))
            network = LocalNetwork(plan, run_dir, children, target, request.wires, _no_link, part)
            network.check()
            run_dir.begin(request.token)
            run_dir.keep_data_in_memory()
            run_dir.write_json(run_dir.plan_file, plan.to_json())
            holding = self._holding = _Holding(run_dir, children, target, network)
            target.launch()
            network.make()
        except BaseException:
            # Before `held` is set, close() knows nothing of the run folder, and its lock would stay.
            if holding is None:
                run_dir.release()
            self.close()
            raise
        self._share()
        return {"pids": network.pids, "removed": leftovers, "started": self._started_processes([SWITCHD])}

    def _started_processes(self, names: Iterable[str]) -> Message:
        children = self._now.processes
        return {name: {"pid": children[name].pid, "log": str(children[name].log)} for name in names}

    def _share(self) -> None:
        """Sockets belong to whoever logged in: sshd makes and opens them in that name."""
        user_id = os.environ.get("SUDO_UID")
        if user_id is not None and self._holding is not None:
            folder = self._holding.run_dir
            for path in (folder.agents, folder.data, folder.switchd_socket, *folder.agents.glob("*.sock")):
                if path.exists():
                    os.chown(path, int(user_id), -1)

    def _tunnels(self, request: AddTunnels) -> Message:
        tunnels = [Tunnel(tunnel.interface, tunnel.vni, tunnel.local, tunnel.remote) for tunnel in request.tunnels]
        self._now.network.add_tunnels(tunnels)
        return {}

    def _attach(self, request: Attach) -> Message:
        self._now.network.attach(request.switches)
        return {}

    def _switches(self, _request: StartSwitches) -> Message:
        self._now.target.launch()
        return {"started": self._started_processes([SWITCHD])}

    def _agents(self, request: StartAgents) -> Message:
        self._now.network.start_agents(request.arguments, request.hosts)
        return {"started": self._started_processes(request.hosts)}

    def _parts_work(self, _request: PartsWork) -> Message:
        work = {child.name: child.work for child in self._now.processes}
        return {
            "work": {
                name: {
                    "cpu_s": part_work.cpu_seconds(),
                    "is_ready": part_work.is_ready_to_run(),
                    "is_stopped": part_work.is_stopped(),
                    "log_bytes": part_work.log_bytes(),
                    "last_line": part_work.last_line(),
                }
                for name, part_work in work.items()
            }
        }

    def _set_up(self, request: SetUp) -> Message:
        for name in request.interfaces:
            self._now.network.set_up(name, request.up)
        return {}

    def _set_carrier(self, request: SetCarrier) -> Message:
        for name in request.interfaces:
            self._now.network.set_carrier(name, request.on)
        return {}

    def _is_up(self, request: IsUp) -> Message:
        return {"up": self._now.network.is_up(request.interface)}

    def _look_at_ports(self, _request: LookAtPorts) -> Message:
        return {"ports": self._now.network.link_states()}

    def _threads(self, _request: Threads) -> Message:
        return {"processes": {child.name: thread_seconds(child.pid) for child in self._now.processes}}

    def _beat(self, _request: Beat) -> Message:
        if self._holding is None:
            return {"dead": {}}
        self._share()
        dead_processes = [child for child in self._holding.processes if child.has_died]
        return {"dead": {c.name: {"pid": c.pid, "how": c.how_it_ended(), "tail": c.tail()} for c in dead_processes}}

    def _close_op(self, _request: Close) -> Message:
        errors = self.close()
        self.done = True
        if errors:
            raise JsonlError("; ".join(errors))
        return {}

    @property
    def _now(self) -> _Holding:
        if self._holding is None:
            raise JsonlError("no fabric here yet: `begin` first")
        return self._holding


def _no_link(a: str, b: str, _is_up: bool) -> None:
    raise FabricError(f"link {a} {b}: cut it where the fabric was begun")


def serve(side: MachineSide, source: int, sink: int) -> None:
    """Answer lines until `close`, the end of the input, or silence."""
    lines, writing = LineBuffer(), threading.Lock()

    def send(message: Message) -> None:
        with writing:
            remainder = memoryview(encode(message))
            while remainder:
                remainder = remainder[os.write(sink, remainder) :]

    side.send = send
    while not side.done:
        readable, _, _ = select.select([source], [], [], SILENCE_S)
        data = os.read(source, 1 << 16) if readable else b""
        if not data:
            print("the front process is gone" if readable else f"no word for {SILENCE_S:g} s", file=sys.stderr)
            return
        for line in lines.feed(data):
            send(side.answer(line))


def main() -> int:
    """Serve standard input and output. Exit code 1 when something would not go."""
    sink = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anything prints is no answer
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir(Path("/"))
    side = MachineSide()
    try:
        serve(side, sys.stdin.fileno(), sink)
    except (SignalExit, BrokenPipeError):
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        errors = side.close()
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
