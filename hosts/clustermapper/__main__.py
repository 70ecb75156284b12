"""The process: `python -m hosts.clustermapper --run-dir DIR`. Clock and sockets around prober.py and burst.py.

    DIR/plan.json     the fabric (read)
    DIR/hosts.json    {"h0": pid of a process in its network namespace} (read)
    DIR/mapper.sock   what can be asked, JSON lines (docs/telemetry.md):

    status            how many targets are in which state, rounds, void rounds, patience, CPU
    targets           every target with its health; the loops that are sent now
    probe_all {count?, classes?, gap_s?}    a burst over every link: a row for each link (burst.py)
    watch             events `probe` {t, host, plane, target, kind, link, state, old, loss, rtt_s, since, walk,
                      direction}; the state of every known target first
    start             begin to probe, after `--wait`; switches without routes would count every probe as dropped
    shutdown

Each tick drains all ports before it gives anything up, so that this process's own delay is not taken for loss; times of
arrival are the kernel's.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hosts.clustermapper import burst as bursts
from hosts.clustermapper.burst import Burst
from hosts.clustermapper.health import TargetState
from hosts.clustermapper.packets import MAX_TARGETS, PortIdentity, ProbeTemplate, ServiceClass, kernel_filter
from hosts.clustermapper.ports import (
    NO_BUFFER,
    PortsError,
    ProbePort,
    network_namespace,
    open_port,
    wall_offset_ns,
)
from hosts.clustermapper.prober import Prober, ProberSettings, TargetChange, target_json
from hosts.clustermapper.targets import ProbeTarget, loops_of, targets_of, uses_srv6
from ipc.rpc import JsonlError, Message, SelectorServer, ServerConnection, event_of
from ipc.rundir import RunFiles
from topologies.plan import Plan, PlanError

STREAMS = 255
NEEDS_SRV6 = "T0-T1 links are not probed in this mode: a self-probe of a T1 needs SRv6"

log = logging.getLogger("hosts.clustermapper")


class StartError(Exception):
    """The mapper cannot start; the message says why and what would do."""


class Mapper:
    """The agents of all hosts. Raises PortsError and JsonlError when it cannot be set up."""

    def __init__(
        self, plan: Plan, pids: dict[str, int], socket_path: Path, settings: ProberSettings, wait: bool
    ) -> None:
        self.plan = plan
        self._self_probes = targets_of(plan)
        self.targets = (*self._self_probes, *loops_of(plan, self._self_probes))
        if len(self.targets) > MAX_TARGETS:
            raise StartError(f"{len(self.targets)} targets; a probe numbers {MAX_TARGETS} at most")
        self._key = os.urandom(16)
        self.ports = self._open_ports(pids)
        self._templates: dict[tuple[int, ServiceClass, int], ProbeTemplate] = {}
        self._selector = selectors.DefaultSelector()
        self.started_at = time.monotonic()
        self.prober = Prober(self.targets, settings, self.started_at)
        self._probing = not wait
        self._burst: Burst | None = None
        self._burst_for: tuple[ServerConnection, Message] | None = None
        self._stream = 0
        self._stopping = False
        self._server = SelectorServer(socket_path, self._answer, self._selector, on_watch=self._snapshot)
        log.info("%d hosts, %d ports, %d targets", len(plan.hosts), len(self.ports), len(self._self_probes))

    def _open_ports(self, pids: dict[str, int]) -> dict[tuple[str, int], ProbePort]:
        srv6 = uses_srv6(self.plan)
        code = kernel_filter(srv6)
        out: dict[tuple[str, int], ProbePort] = {}
        for host in self.plan.hosts:
            if host.name not in pids:
                raise PortsError(f"hosts.json does not say where {host.name} lives")
            with network_namespace(pids[host.name]):
                for plane in range(self.plan.planes):
                    interface = self.plan.host_port(host, plane).interface
                    identity = PortIdentity.of(self.plan, host.name, plane, srv6)
                    out[host.name, plane] = open_port(host.name, plane, interface, identity, code)
        return out

    # ---- the loop -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Probe and serve until `shutdown` or SIGTERM."""
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self._selector.register(woken, selectors.EVENT_READ, lambda mask: None)
        try:
            while not self._stopping:
                self.turn()
        finally:
            signal.set_wakeup_fd(-1)
            wake.close()
            woken.close()

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        """Idempotent."""
        self._server.close()
        self._selector.close()
        for port in self.ports.values():
            port.socket.close()

    def turn(self) -> None:
        """Wait for the next tick or a request, and do it."""
        timers = [self.prober.next_timer()] if self._probing else []
        timers += [self._burst.next_timer()] if self._burst is not None else []
        due = min(timers, default=None)
        for key, mask in self._selector.select(None if due is None else max(0.0, due - time.monotonic())):
            key.data(mask)
        now = time.monotonic()
        if due is not None and now >= due:
            self._note_lateness(now - due)
            self._tick(now)

    def _note_lateness(self, late_s: float) -> None:
        self.prober.stalled(late_s)
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
            for seen, rtt_s in port.receive(self._key, offset):
                if seen.stream == 0:
                    if change := self.prober.returned(seen.target, seen.sequence, rtt_s):
                        self._publish(change)
                elif self._burst is not None and seen.stream == self._burst.stream:
                    self._burst.returned(seen, rtt_s)

    # ---- bursts -------------------------------------------------------------------------------------------

    def _begin_burst(self, request: Message, connection: ServerConnection) -> None:
        if self._burst is not None:
            raise JsonlError("a probe_all is running already: wait for its answer")
        names = request.get("classes", [c.label for c in ServiceClass])
        known = {c.label: c for c in ServiceClass}
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n in known for n in names):
            raise JsonlError(f"classes = {names!r}: give a list of {', '.join(known)}")
        count = request.get("count", bursts.COUNT)
        if not isinstance(count, int) or isinstance(count, bool):
            raise JsonlError(f"count = {count!r}: give a number of probes")
        self._stream = self._stream % STREAMS + 1
        classes = tuple(known[name] for name in dict.fromkeys(names))
        try:
            self._burst = Burst(self._self_probes, classes, count, self._stream, time.monotonic())
        except ValueError as error:
            raise JsonlError(str(error)) from None
        self._burst_for = (connection, request)

    def _continue_burst(self, burst: Burst, now: float) -> None:
        if (sequence := burst.due(now)) is not None:
            for target in burst.targets:
                for service_class in burst.classes:
                    if self._send(target, service_class, burst.stream, sequence) not in NO_BUFFER:
                        burst.sent(target.number, service_class)
        elif burst.is_over(now):
            assert self._burst_for is not None
            connection, request = self._burst_for
            self._burst = self._burst_for = None
            self._templates = {key: one for key, one in self._templates.items() if key[2] == 0}
            connection.answer(
                request,
                t=now,
                duration_s=now - burst.began_at,
                count=burst.count,
                classes=[c.label for c in burst.classes],
                stalled_s=burst.stalled_s,
                links=burst.links_json(self.plan),
                note=self._note,
            )

    # ---- what can be asked --------------------------------------------------------------------------------

    def _answer(self, request: Message, connection: ServerConnection) -> Message | None:
        match request["op"]:
            case "status":
                return self._status()
            case "targets":
                loops = [self.targets[n] for n in sorted(self.prober.active) if n >= len(self._self_probes)]
                targets, others = ([self._target_json(t) for t in some] for some in (self._self_probes, loops))
                return {"targets": targets, "loops": others, "note": self._note}
            case "probe_all":
                return self._begin_burst(request, connection)
            case "start":
                self._start_probing()
                return {}
            case "shutdown":
                self.stop()
                return {}
            case other:
                raise JsonlError(f"no op {other!r} (has: status, targets, probe_all, watch, start, shutdown)")

    def _start_probing(self) -> None:
        """Nothing when it probes already."""
        if not self._probing:
            self._probing = True
            self.prober = Prober(self.targets, self.prober.settings, time.monotonic())

    @property
    def _note(self) -> str:
        return "" if uses_srv6(self.plan) else NEEDS_SRV6

    def _status(self) -> Message:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s, up_s = usage.ru_utime + usage.ru_stime, time.monotonic() - self.started_at
        prober = self.prober
        not_sent: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for port in self.ports.values():
            not_sent.update(port.not_sent)
            refused.update(port.refused)
        return {
            "probing": self._probing,
            "hosts": len(self.plan.hosts),
            "targets": len(self._self_probes),
            "loops": len(prober.active) - len(self._self_probes),
            "states": dict(Counter(prober.health[target.number].state.value for target in self._self_probes)),
            "interval_s": prober.settings.interval_s,
            "patience_s": prober.patience_s,
            "rounds": prober.rounds,
            "void_rounds": dict(prober.void),
            "worst_late_s": prober.worst_late_s,
            "duplicates": prober.duplicates,
            "late": sum(health.late for health in prober.health),
            "not_sent": dict(not_sent),
            "refused": dict(refused),
            "up_s": up_s,
            "cpu_s": cpu_s,
            "cpu_share_per_host": cpu_s / up_s / len(self.plan.hosts) if up_s > 0 else 0.0,
            "note": self._note,
        }

    def _target_json(self, target: ProbeTarget) -> dict[str, Any]:
        return target_json(target, self.prober.health[target.number])

    def _snapshot(self, request: Message) -> list[Message]:
        """First events of a new watcher: the state of every target that is known."""
        now = time.monotonic()
        rows = [self._target_json(self.targets[number]) for number in sorted(self.prober.active)]
        return [
            event_of("probe", now, {**r, "old": r["state"]}) for r in rows if r["state"] != TargetState.UNKNOWN.value
        ]

    def _publish(self, change: TargetChange) -> None:
        row = self._target_json(change.target)
        if change.health.state is not TargetState.OK or change.old is not TargetState.UNKNOWN:
            log.info(
                "%s: %s of plane %d: %s, was %s (loss %.0f %%)",
                *(row["host"], row["target"], row["plane"], row["state"], change.old.value, 100 * row["loss"]),
            )
        self._server.publish("probe", **row, old=change.old.value)


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
    parser = argparse.ArgumentParser(prog="hosts.clustermapper", description="Probes every link of the fabric")
    parser.add_argument("--run-dir", required=True, type=Path, help="run folder with plan.json and hosts.json")
    parser.add_argument("--interval", type=_seconds, default=0.1, help="seconds between two probes of a target (0.1)")
    parser.add_argument(
        "--data-every", type=int, default=0, metavar="N", help="every Nth round in the data class (0: none)"
    )
    parser.add_argument("--wait", action="store_true", help="do not probe before the op `start`")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run until told to end; 0 then, 1 with a message when it cannot start."""
    given = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        files = RunFiles(given.run_dir)
        plan = Plan.from_json(_read_json(files.plan_file))
        pids = _pids(files.hosts_file)
        settings = replace(ProberSettings(), interval_s=given.interval, data_every=max(given.data_every, 0))
        mapper = Mapper(plan, pids, files.mapper_socket, settings, given.wait)
    except (StartError, PortsError, PlanError, JsonlError, OSError) as error:
        print(f"mapper cannot start: {error}", file=sys.stderr)
        return 1
    try:
        mapper.run()
    finally:
        mapper.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
