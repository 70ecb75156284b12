"""The process: `python -m mrc_testbed.hosts.clustermapper --run-dir DIR`.

It is clock and sockets around prober.py and burst.py.

    DIR/plan.json     the fabric (read)
    DIR/hosts.json    {"h0": pid of a process in its network namespace} (read)
    DIR/mapper.sock   operations, JSON lines (docs/telemetry.md):

    status            how many targets are in which state, rounds, void rounds, patience, CPU
    targets           every target with its health; the loops that are sent now
    probe_all {count?, classes?}    a burst over every link: a row for each link (burst.py)
    watch             events `probe` {t, host, plane, target, kind, link, state, old, loss, rtt_s, since, walk,
                      direction}; the state of every known target first
    start             begin to probe, after `--wait`; switches without routes would count every probe as dropped
    shutdown

Each tick drains all ports before it gives anything up, so that this process's own delay is not taken for loss; times of
arrival are the kernel's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from mrc_testbed.hosts.clustermapper import burst as bursts
from mrc_testbed.hosts.clustermapper.burst import Burst
from mrc_testbed.hosts.clustermapper.health import TargetState
from mrc_testbed.hosts.clustermapper.packets import (
    MAX_TARGETS,
    PortIdentity,
    ProbeTemplate,
    ServiceClass,
    kernel_filter,
)
from mrc_testbed.hosts.clustermapper.ports import (
    NO_BUFFER,
    PortsError,
    ProbePort,
    network_namespace,
    open_port,
    wall_offset_ns,
)
from mrc_testbed.hosts.clustermapper.prober import Prober, ProberSettings, TargetChange, target_json
from mrc_testbed.hosts.clustermapper.targets import ProbeTarget, loops_of, targets_of, uses_srv6
from mrc_testbed.ipc.requests import Request, RequestError
from mrc_testbed.ipc.rpc import JsonlError, Message, RpcCall, RpcServer, event_of
from mrc_testbed.ipc.rpc_table import RpcTable, rpc
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.service import run_service, wait_until
from mrc_testbed.topologies.plan import Plan, PlanError

STREAMS = 255
NEEDS_SRV6 = "T0-T1 links are not probed in this mode: a self-probe of a T1 needs SRv6"

log = logging.getLogger("mrc_testbed.hosts.clustermapper")


class StartError(Exception):
    """The mapper cannot start; the message says why and what would do."""


class MapperStatusRequest(Request, tag="status"):
    """Status of the Clustermapper."""


class TargetsRequest(Request, tag="targets"):
    """State of every target."""


class ProbeAllRequest(Request, tag="probe_all"):
    """A burst over every link."""

    count: Annotated[int, Meta(description="give a number of probes")] = bursts.COUNT
    classes: (
        Annotated[
            list[Literal["control", "data"]],
            Meta(min_length=1, description=f"give a list of {', '.join(c.label for c in ServiceClass)}"),
        ]
        | None
    ) = None


class MapperStartRequest(Request, tag="start"):
    """Begin to probe."""


class MapperShutdownRequest(Request, tag="shutdown"):
    """End."""


class Mapper:
    """Agents of all hosts; `stop` ends the process.

    Raises PortsError and StartError when it cannot be set up.
    """

    def __init__(
        self, plan: Plan, pids: dict[str, int], settings: ProberSettings, wait: bool, stop: asyncio.Event
    ) -> None:
        self.plan = plan
        self._self_probes = targets_of(plan)
        self.targets = (*self._self_probes, *loops_of(plan, self._self_probes))
        if len(self.targets) > MAX_TARGETS:
            raise StartError(f"{len(self.targets)} targets; a probe numbers {MAX_TARGETS} at most")
        self._key = os.urandom(16)
        self.ports = self._open_ports(pids)
        self._templates: dict[tuple[int, ServiceClass, int], ProbeTemplate] = {}
        self.started_at = time.monotonic()
        self.prober = Prober(self.targets, settings, self.started_at)
        self._probing = not wait
        self._burst: Burst | None = None
        self._burst_for: RpcCall | None = None
        self._stream = 0
        self._stop = stop
        self._news = asyncio.Event()
        """Timers may be others than before."""
        self._server: RpcServer | None = None
        log.info("%d hosts, %d ports, %d targets", len(plan.hosts), len(self.ports), len(self._self_probes))

    def _open_ports(self, pids: dict[str, int]) -> dict[tuple[str, int], ProbePort]:
        srv6 = uses_srv6(self.plan)
        code = kernel_filter(srv6)
        out: dict[tuple[str, int], ProbePort] = {}
        for host in self.plan.hosts:
            if host.name not in pids:
                raise PortsError(f"hosts.json does not say where {host.name} lives")
            with network_namespace(pids[host.name]):
                for plane in self.plan.host_planes(host):
                    interface = self.plan.host_port(host, plane).interface
                    identity = PortIdentity.from_plan(self.plan, host.name, plane, srv6)
                    out[host.name, plane] = open_port(host.name, plane, interface, identity, code)
        return out

    # ---- the loop -----------------------------------------------------------------------------------------

    async def listen(self, path: Path) -> RpcServer:
        """Serve requests on `path`. Raises JsonlError when the socket cannot be had."""
        table = RpcTable(refusals=(), log_file="log/mapper.log")
        table.register(self)
        self._server = await RpcServer.start(path, table.handle, on_watch=self._snapshot)
        return self._server

    async def run(self) -> None:
        """Probe until `stop` is set."""
        probing = asyncio.ensure_future(self._probe())
        stop_task = asyncio.ensure_future(self._stop.wait())
        finished_tasks, _ = await asyncio.wait((probing, stop_task), return_when=asyncio.FIRST_COMPLETED)
        if probing in finished_tasks:
            probing.result()  # raises: it does not end by itself

    def close(self) -> None:
        """Close all ports. Idempotent."""
        for port in self.ports.values():
            port.socket.close()

    async def _probe(self) -> None:
        """Do each tick when its time has come."""
        while True:
            timers = [self.prober.next_timer()] if self._probing else []
            timers += [self._burst.next_timer()] if self._burst is not None else []
            due = min(timers, default=None)
            await wait_until(self._news, due)
            now = time.monotonic()
            if due is not None and now >= due:
                self._note_lateness(now - due)
                self._tick(now)

    def _note_lateness(self, late_s: float) -> None:
        self.prober.on_stall(late_s)
        if self._burst is not None:
            self._burst.stalled_s = max(self._burst.stalled_s, late_s)

    def _tick(self, now: float) -> None:
        self._drain()
        for change in self.prober.judge(now):
            self._publish(change)
        if self._probing and now >= self.prober.next_round_at:
            sequence = self.prober.begin_round(now)
            every = self.prober.settings.data_every
            service_class = ServiceClass.DATA if every and sequence % every == 0 else ServiceClass.CONTROL
            for number in sorted(self.prober.active):
                if self._send(self.targets[number], service_class, 0, sequence) in NO_BUFFER:
                    self.prober.not_sent(number, sequence)
        if self._burst is not None:
            self._continue_burst(self._burst, now)

    def _send(self, target: ProbeTarget, service_class: ServiceClass, stream: int, sequence: int) -> int:
        """0, or the error number of a probe that did not leave."""
        port = self.ports[target.host, target.plane]
        key = (target.number, service_class, stream)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = ProbeTemplate(target, service_class, stream, port.identity, self._key)
        return port.send(template.frame(sequence, time.monotonic_ns()))

    def _drain(self) -> None:
        offset = wall_offset_ns()
        for port in self.ports.values():
            for probe, rtt_s in port.receive(self._key, offset):
                if probe.stream == 0:
                    if change := self.prober.on_return(probe.target, probe.sequence, rtt_s):
                        self._publish(change)
                elif self._burst is not None and probe.stream == self._burst.stream:
                    self._burst.on_return(probe, rtt_s)

    # ---- bursts -------------------------------------------------------------------------------------------

    @rpc(ProbeAllRequest)
    def probe_all(self, request: ProbeAllRequest, call: RpcCall) -> None:
        """Start a burst, one at a time, and answer when it is over."""
        if self._burst is not None:
            raise RequestError("a probe_all is running already: wait for its answer")
        self._stream = self._stream % STREAMS + 1
        classes_by_label = {c.label: c for c in ServiceClass}
        classes = tuple(classes_by_label[name] for name in dict.fromkeys(request.classes or classes_by_label))
        try:
            self._burst = Burst(self._self_probes, classes, request.count, self._stream, time.monotonic())
        except ValueError as error:
            raise RequestError(str(error)) from None
        self._burst_for = call
        self._news.set()

    def _continue_burst(self, burst: Burst, now: float) -> None:
        if (sequence := burst.due(now)) is not None:
            for target in burst.targets:
                for service_class in burst.classes:
                    if self._send(target, service_class, burst.stream, sequence) not in NO_BUFFER:
                        burst.sent(target.number, service_class)
        elif burst.is_over(now):
            assert self._burst_for is not None
            call = self._burst_for
            self._burst = self._burst_for = None
            self._templates = {key: template for key, template in self._templates.items() if key[2] == 0}
            call.answer(
                {
                    "t": now,
                    "duration_s": now - burst.began_at,
                    "count": burst.count,
                    "classes": [c.label for c in burst.classes],
                    "stalled_s": burst.stalled_s,
                    "links": burst.links_json(self.plan),
                    "note": self._note,
                }
            )

    # ---- operations ---------------------------------------------------------------------------------------

    @rpc(TargetsRequest)
    def list_targets(self, _request: TargetsRequest, _call: RpcCall) -> Message:
        """Answer every target with its health, and the loops that are sent now."""
        loops = [self.targets[n] for n in sorted(self.prober.active) if n >= len(self._self_probes)]
        targets, loop_rows = ([self._target_json(t) for t in group] for group in (self._self_probes, loops))
        return {"targets": targets, "loops": loop_rows, "note": self._note}

    @rpc(MapperStartRequest)
    def start(self, _request: MapperStartRequest, _call: RpcCall) -> Message:
        """Start to probe; without effect when probing already."""
        if not self._probing:
            self._probing = True
            self.prober = Prober(self.targets, self.prober.settings, time.monotonic())
            self._news.set()
        return {}

    @rpc(MapperShutdownRequest)
    def shutdown(self, _request: MapperShutdownRequest, _call: RpcCall) -> Message:
        """End the process."""
        self._stop.set()
        return {}

    @property
    def _note(self) -> str:
        return "" if uses_srv6(self.plan) else NEEDS_SRV6

    @rpc(MapperStatusRequest)
    def status(self, _request: MapperStatusRequest, _call: RpcCall) -> Message:
        """Status: targets by state, rounds, lateness, CPU."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s, up_s = usage.ru_utime + usage.ru_stime, time.monotonic() - self.started_at
        prober = self.prober
        not_sent: Counter[str] = Counter()
        refused_frames: Counter[str] = Counter()
        for port in self.ports.values():
            not_sent.update(port.not_sent)
            refused_frames.update(port.refused_frames)
        return {
            "probing": self._probing,
            "hosts": len(self.plan.hosts),
            "targets": len(self._self_probes),
            # Targets are always active, loops only while they help to locate a failure.
            "loops": len(prober.active) - len(self._self_probes),
            "states": dict(Counter(prober.health[target.number].state.value for target in self._self_probes)),
            "interval_s": prober.settings.interval_s,
            "patience_s": prober.patience_s,
            "rounds": prober.rounds,
            "void_rounds": dict(prober.void),
            "worst_late_s": prober.worst_late_s,
            "duplicates": prober.duplicates,
            "late": sum(health.late_count for health in prober.health),
            "not_sent": dict(not_sent),
            "refused": dict(refused_frames),
            "up_s": up_s,
            "cpu_s": cpu_s,
            "cpu_share_per_host": cpu_s / up_s / len(self.plan.hosts) if up_s > 0 else 0.0,
            "note": self._note,
        }

    def _target_json(self, target: ProbeTarget) -> dict[str, Any]:
        return target_json(target, self.prober.health[target.number])

    def _snapshot(self, _request: Message) -> list[Message]:
        """First events of a new watcher: the state of every target that is known."""
        now = time.monotonic()
        rows = [self._target_json(self.targets[number]) for number in sorted(self.prober.active)]
        return [
            event_of("probe", now, {**r, "old": r["state"]}) for r in rows if r["state"] != TargetState.UNKNOWN.value
        ]

    def _publish(self, change: TargetChange) -> None:
        row = self._target_json(change.target)
        if change.health.state is not TargetState.OK or change.old_state is not TargetState.UNKNOWN:
            log.info(
                "%s: %s of plane %d: %s, was %s (loss %.0f %%)",
                *(row["host"], row["target"], row["plane"], row["state"], change.old_state.value, 100 * row["loss"]),
            )
        if self._server is not None:
            self._server.publish("probe", **row, old=change.old_state.value)


# ---- start ------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise StartError(f"{path}: no such file: bring the fabric up first (`mrc up`)") from None
    except (OSError, ValueError) as error:
        raise StartError(f"{path}: {error}") from error


def _pids(path: Path) -> dict[str, int]:
    data = _read_json(path)
    if not isinstance(data, dict) or not all(isinstance(pid, int) and pid > 0 for pid in data.values()):
        raise StartError(f'{path}: wants {{"h0": pid, ...}}')
    return data


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.001 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text}: give 0.001 to 60 seconds")
    return value


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mrc_testbed.hosts.clustermapper", description="Probes every link of the fabric"
    )
    parser.add_argument("--run-dir", required=True, type=Path, help="run folder with plan.json and hosts.json")
    parser.add_argument("--interval", type=_seconds, default=0.1, help="seconds between two probes of a target (0.1)")
    parser.add_argument(
        "--slowdown", type=int, default=1, metavar="N", help="slowdown of the machine: probes are rarer"
    )
    parser.add_argument(
        "--data-every", type=int, default=0, metavar="N", help="every Nth round in the data class (0: none)"
    )
    parser.add_argument("--wait", action="store_true", help="do not probe before the op `start`")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run until stopped. Returns 0; 1, with a message, when it cannot start."""
    options = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def serve(stop: asyncio.Event) -> None:
        mapper = None
        try:
            files = RunFiles(options.run_dir)
            plan = Plan.from_json(_read_json(files.plan_file))
            settings = replace(ProberSettings(), interval_s=options.interval, data_every=max(options.data_every, 0))
            settings = settings.slowed(max(options.slowdown, 1))
            mapper = Mapper(plan, _pids(files.hosts_file), settings, options.wait, stop)
            server = await mapper.listen(files.mapper_socket)
        except (PortsError, PlanError, JsonlError, OSError) as error:
            # The sockets are open already when listen() fails.
            if mapper is not None:
                mapper.close()
            raise StartError(str(error)) from error
        try:
            await mapper.run()
        finally:
            await server.close()
            mapper.close()

    try:
        run_service(serve)
    except StartError as error:
        print(f"mapper cannot start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
