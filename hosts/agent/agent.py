"""The process in each host: `python -m hosts.agent --host h0 --run-dir DIR`. One loop around NIC, clock, link
state and socket.

    DIR/plan.json         the fabric (read)
    DIR/agents/h0.sock    what can be asked: hosts/agent/operations.py; events: hosts/agent/event_json.py
                          (docs/architecture.md)
    DIR/data/h0/          files received

Order inside a turn, and why: link news first (a port that is down must not be sent to); then what was received,
down to the last frame, and only then timers, so that a process which was held up does not take its own delay for
loss; then what the engine wants to send. Batches are bounded, so that requests are answered under full load;
with nothing to do the loop sleeps until the next timer.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from hosts.agent.connections import Connections
from hosts.agent.engine_defaults import host_config
from hosts.agent.event_json import event_json
from hosts.agent.operations import rpc_server
from hosts.agent.ports import HostPorts
from hosts.agent.regions import Regions
from hosts.agent.tasks import Tasks
from hosts.agent.timerfd import TimerFd
from hosts.engine.config import Config, ConfigError
from hosts.engine.endpoint import Endpoint
from hosts.nic import KINDS, open_nic
from hosts.nic.base import Nic, NicError
from hosts.nic.netlink import LinkState
from hosts.nic.qpns import AGENT_QPNS, keep
from ipc.rpc import JsonlError, SelectorServer
from ipc.rundir import RunFiles
from topologies.plan import Plan, PlanError

RECEIVE_BATCH = 8
"""Frames taken from one port before the next has its turn: what ports are read after another looks reordered."""
TRANSMIT_BATCH = 64
ROUNDS = 64
"""Receive-transmit rounds before the management socket gets its turn."""
PATIENCE = 4
"""Turns in which receiving never came to an end, after which timers are looked at all the same."""
RETRY_S = 0.001
"""How soon to try again when the kernel took no more frames."""

log = logging.getLogger("hosts.agent")


class AgentStartError(Exception):
    """The agent cannot start; the message says why and what would do."""


class Agent:
    """Everything of one host. Raises AgentStartError, NicError or JsonlError when it cannot be set up."""

    def __init__(
        self, plan: Plan, host_name: str, run_dir: Path, *, nic_kind: str, hooks: list[str], config: Config, seed: int
    ) -> None:
        self.plan = plan
        self.host = plan.host(host_name)
        self.config = config
        files = RunFiles(run_dir)
        self.tasks = Tasks(time.monotonic)
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._rested_until = 0.0
        self._undrained_turns = 0
        self._busy = False
        self._link_news = False
        self.endpoint = Endpoint(host_name, config, planes=plan.planes, seed=seed, qpns=AGENT_QPNS)
        nic = open_nic(nic_kind, plan, self.host, config, hooks)
        self._alarm = TimerFd()
        try:
            self.ports = HostPorts(nic, config.dscp_control)
            self.regions = Regions(self.endpoint, self.tasks)
            self.connections = Connections(
                plan, self.host, self.endpoint, files.agent_socket, self._selector, time.monotonic
            )
            operations = rpc_server(
                self.endpoint, config, self.ports, self.connections, self.regions, self.tasks,
                data_dir=files.data / host_name, publish=self.publish, stop=self.stop,
            )  # fmt: skip
            self._server = SelectorServer(files.agent_socket(host_name), operations.handle, self._selector)
        except BaseException:
            self._alarm.close()
            nic.close()
            raise
        self._nic_files: dict[int, int] = {}
        self._watch_files()
        self.ports.choose_scheduler()
        log.info("%s: %s NIC, ready on %s", host_name, nic_kind, self._server.path)

    @property
    def nic(self) -> Nic:
        return self.ports.nic

    def _watch_files(self) -> None:
        self._selector.register(self.ports.links, selectors.EVENT_READ, self._on_link_news)
        self._selector.register(self._alarm, selectors.EVENT_READ, lambda mask: None)
        self._watch_nic()
        for interface, state in self.ports.links.states.items():
            if not state.up:
                self._on_link(interface, state)

    def _watch_nic(self) -> None:
        for number in self._nic_files.values():
            self._selector.unregister(number)
        self._nic_files = self.nic.filenos()
        for number in self._nic_files.values():
            keep(number, AGENT_QPNS, outer=self.plan.mode.outer_header, strays=True)
            self._selector.register(number, selectors.EVENT_READ, lambda mask: None)

    # ---- the loop -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until `stop` or SIGTERM."""
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
            self._selector.unregister(woken)
            wake.close()
            woken.close()

    def stop(self) -> None:
        """End `run` after this turn."""
        self._stopping = True

    def turn(self) -> None:
        """Wait for something to do and do it."""
        if self.ports.rest_s and (left := self._rested_until - time.monotonic()) > 0:
            time.sleep(left)
        for key, mask in self._selector.select(self._timeout()):
            key.data(mask)
        if self._link_news:
            self._link_news = False
            for interface, state in self.ports.links.poll():
                self._on_link(interface, state)
        self.tasks.run()
        self._network()
        if self.ports.rest_s:
            self._rested_until = time.monotonic() + self.ports.rest_s

    def _on_link_news(self, mask: int) -> None:
        self._link_news = True

    def _timeout(self) -> float | None:
        """Seconds to sleep at most; None = until something happens."""
        if self._busy or self._stopping:
            return 0.0
        nic, now = self.nic, time.monotonic()
        times = (
            self.endpoint.next_timer(), self.tasks.next_timer(), nic.next_at(), now + RETRY_S if nic.backlog else None,
        )  # fmt: skip
        return self._alarm.wait(min((t for t in times if t is not None), default=None), now)

    def _network(self) -> None:
        endpoint, nic = self.endpoint, self.nic
        nic.flush()
        drained = False
        for _ in range(ROUNDS):
            before = time.monotonic()
            arrived = nic.receive(RECEIVE_BATCH)
            now = time.monotonic()  # not before: what came while we were held up is late
            received = 0
            for plane, peer, packet in arrived:
                endpoint.receive(packet, plane, peer, now)
                received += 1
            if received < RECEIVE_BATCH:  # so no port had more
                drained = True
                self._on_timer(before)  # not now: an answer may have come since
            sent = 0
            if not nic.backlog:
                room, control_room = nic.room(), nic.control_room()
                for plane, peer, packet in endpoint.transmit(time.monotonic(), TRANSMIT_BATCH, room, control_room):
                    nic.send(plane, peer, packet)
                    sent += 1
                nic.flush()
            if not self._on_events() and received < RECEIVE_BATCH and sent < TRANSMIT_BATCH:
                received = sent = 0  # all that could be done has been; what comes now wakes us
                break
        self._busy = bool(received or sent)
        self._undrained_turns = 0 if drained else self._undrained_turns + 1
        if self._undrained_turns >= PATIENCE:
            self._undrained_turns = 0
            self._on_timer(time.monotonic())

    def _on_timer(self, now: float) -> None:
        due = self.endpoint.next_timer()
        if due is not None and due <= now:
            self.endpoint.on_timer(now)

    def _on_events(self) -> bool:
        """Tell what happened to whoever waits for it; whether there was anything: then there may be more to send."""
        events = self.endpoint.events()
        for event in events:
            name, fields = event_json(event, self.plan.mode.ev_is_path)
            self._server.publish(name, t=event.at, **fields)
            self.connections.on_event(event)
        return bool(events)

    def _on_link(self, interface: str, state: LinkState) -> None:
        plane = self.ports.planes[interface]
        try:
            if self.nic.link_changed(plane, state):
                self._watch_nic()
        except NicError as error:
            log.error("%s", error)
        self.endpoint.on_port(plane, state.up, time.monotonic())
        log.info("%s: %s", interface, "up" if state.up else "down")
        self.publish("port", plane=plane, interface=interface, up=state.up, admin_up=state.admin_up)

    def publish(self, event: str, **fields: Any) -> None:
        """Send an event to every watcher."""
        self._server.publish(event, **fields)

    def close(self) -> None:
        """End transfers, remove the socket and unfinished files, close the ports. Idempotent."""
        self.tasks.cancel_all()
        self._server.close()
        self.regions.close()
        self.ports.close()
        self._selector.close()
        self._alarm.close()


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hosts.agent", description="MRC agent of one host")
    parser.add_argument("--host", required=True, help="name in the plan, such as h0")
    parser.add_argument("--run-dir", required=True, type=Path, help="run folder with plan.json")
    parser.add_argument("--nic", choices=KINDS, default="fast")
    parser.add_argument("--hook", action="append", default=[], metavar="MODULE:FUNCTION", help="with --nic scapy")
    parser.add_argument("--config", action="append", default=[], type=_setting, metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, help="of the engine's choices; random when left out")
    return parser.parse_args(argv)


def _plan(run_dir: Path) -> Plan:
    files = RunFiles(run_dir)
    path = files.plan_file
    try:
        return Plan.from_json(files.read_plan())
    except FileNotFoundError:
        raise AgentStartError(f"{path}: no such file: bring the fabric up first (`mrc up`)") from None
    except (OSError, ValueError) as error:
        raise AgentStartError(f"{path}: {error}") from error


def main(argv: list[str] | None = None) -> int:
    """Run an agent; 0 after SIGTERM or `shutdown`, 1 with a message when it cannot start."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    seed = random.SystemRandom().getrandbits(64) if arguments.seed is None else arguments.seed
    try:
        plan = _plan(arguments.run_dir)
        agent = Agent(
            plan,
            arguments.host,
            arguments.run_dir,
            nic_kind=arguments.nic,
            hooks=arguments.hook,
            config=host_config(plan, dict(arguments.config)),
            seed=seed,
        )
    except (AgentStartError, NicError, JsonlError, PlanError, ConfigError, OSError) as error:
        print(f"{arguments.host}: agent cannot start: {error}", file=sys.stderr)
        return 1
    try:
        agent.run()
    finally:
        agent.close()
    return 0
