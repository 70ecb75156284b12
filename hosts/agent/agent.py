"""The process in each host: `python -m mrc_testbed.hosts.agent --host h0 --run-dir DIR`.

It is one asyncio loop around NIC, clock, link state and socket, with the NIC's turn in its selector
(turn_selector.py).

    DIR/plan.json         the fabric (read)
    DIR/agents/h0.sock    operations: hosts/agent/operations.py; events: hosts/agent/event_json.py
                          (docs/architecture.md)
    DIR/data/h0/          files received

Order inside a turn, and why: link news first (a port that is down must not be sent to); then what was received,
down to the last frame, and only then timers, so that a process which was held up does not take its own delay for
loss; then what the engine wants to send. Batches are bounded, so that requests are answered under full load;
with nothing to do the loop sleeps until the next timer. While all ports have a rate turns begin a full frame's time
apart, so that what several ports have to do is done together (hosts/agent/ports.py).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.engine_defaults import host_config
from mrc_testbed.hosts.agent.event_json import event_json, event_name
from mrc_testbed.hosts.agent.operations import rpc_table
from mrc_testbed.hosts.agent.ports import HostPorts
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.agent.turn_selector import TurnSelector, no_turn
from mrc_testbed.hosts.agent.turns import Turns
from mrc_testbed.hosts.engine.config import Config, ConfigError
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Event
from mrc_testbed.hosts.ip.gateway import IpGateway
from mrc_testbed.hosts.ip.tun import TunError
from mrc_testbed.hosts.nic import KINDS, open_nic
from mrc_testbed.hosts.nic.base import Nic, NicError
from mrc_testbed.hosts.nic.netlink import LinkState
from mrc_testbed.hosts.nic.qpns import AGENT_QPNS, keep
from mrc_testbed.ipc.rpc import JsonlError, RpcServer
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.ipc.service import cancel_others, run_service
from mrc_testbed.topologies.plan import Plan, PlanError

GARBAGE_EVERY = 20_000
"""Objects allocated and not freed between two collections of the youngest generation.

High, because packets and records are in no reference cycle.
"""

log = logging.getLogger("mrc_testbed.hosts.agent")


class AgentStartError(Exception):
    """Failure to start the agent; the message names cause and cure."""


class Agent:
    """Agent of one host, inside a running loop around `selector`. `stop` ends its process.

    Raises NicError or OSError when it cannot be set up, `start` JsonlError.
    """

    def __init__(
        self,
        plan: Plan,
        host_name: str,
        run_dir: Path,
        selector: TurnSelector,
        stop: Callable[[], None],
        *,
        nic_kind: str,
        hooks: list[str],
        config: Config,
        seed: int,
    ) -> None:
        self.plan = plan
        self.host = plan.host(host_name)
        self.config = config
        self._files = RunFiles(run_dir)
        self._loop = asyncio.get_running_loop()
        self._selector = selector
        self._link_news = False
        self._server: RpcServer | None = None
        self.endpoint = Endpoint(host_name, config, planes=plan.planes, seed=seed, qpns=AGENT_QPNS)
        self._turns = Turns(self.endpoint, self._on_events)
        # The NIC has a descriptor per port: close it when its ports cannot be watched.
        nic = open_nic(nic_kind, plan, self.host, config, hooks)
        try:
            self.ports = HostPorts(nic, config.dscp.control)
        except BaseException:
            nic.close()
            raise
        self.regions = Regions(self.endpoint)
        self.connections = Connections(plan, self.host, self.endpoint, self._files.agent_socket, time.monotonic)
        self.ip = self._ip_gateway(seed)
        self._operations = rpc_table(
            self.endpoint,
            config,
            self.ports,
            self.connections,
            self.regions,
            self._loop,
            data_dir=self._files.data / host_name,
            publish=self.publish,
            stop=stop,
            ip_state=self._ip_state,
        )

    def _ip_gateway(self, seed: int) -> IpGateway | None:
        """Return the gateway for ordinary IP packets; None and a line in the log where none is possible."""
        nic = self.nic
        if not nic.carries_ip:
            log.info("no IP over the fabric: a %s NIC carries MRC alone", nic.kind)
            return None
        try:
            rng = random.Random(seed)
            gateway = IpGateway(self.connections, self.endpoint, self.ports, self.config, self._loop, rng)
        except TunError as error:
            log.warning("no IP over the fabric: %s", error)
            return None
        nic.receive_ip(gateway.receive)
        return gateway

    def _ip_state(self) -> dict[str, Any] | None:
        return None if self.ip is None else self.ip.to_json()

    async def start(self) -> None:
        """Answer requests and move packets from now on. Raises JsonlError when the socket cannot be had."""
        name = self.host.name
        self._server = await RpcServer.start(self._files.agent_socket(name), self._operations.handle)
        self._loop.add_reader(self.ports.links, self._on_link_news)
        self.nic.share(self._files.shared_wires_socket, AGENT_QPNS)
        self._watch_nic()
        for interface, state in self.ports.links.states.items():
            if not state.up:
                self._on_link(interface, state)
        self._on_captures()
        for plane in set(range(self.plan.planes)) - set(self.nic.ports):  # an uneven fabric has no cable for it
            self.endpoint.on_port(plane, False, time.monotonic())
        self.ports.choose_scheduler()
        self._selector.turn = self.turn
        log.info("%s: %s NIC, ready on %s", name, self.nic.kind, self._server.path)

    @property
    def nic(self) -> Nic:
        """NIC of the host; replaced when the first port gets a rate."""
        return self.ports.nic

    def _watch_nic(self) -> None:
        numbers = self.nic.filenos().values()
        for number in numbers:
            keep(number, AGENT_QPNS, outer=self.plan.mode.outer_header, strays=True)
        self._selector.wake_for([*numbers, *self.nic.wire_filenos()])

    # ---- a turn -------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """Do what links, NIC and engine have to do now; return when to be called next (turn_selector.py)."""
        news, self._link_news = self._link_news, False
        if news:
            for interface, state in self.ports.links.poll():
                self._on_link(interface, state)
            self._on_captures()
        self._selector.rest_s = self.ports.rest_s
        if self.ip is not None and self.ip.waiting:
            self.ip.send(self.ports.nic)
        due = self._turns.turn(self.ports.nic)
        return 0.0 if news else due

    def _on_link_news(self) -> None:
        self._link_news = True

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        """Report an engine event to watchers, and to the transfer that waits for it."""
        self.publish(event_name(event), lambda: {"t": event.at, **event_json(event, self.plan.mode.ev_is_path)})
        self.connections.on_event(event)

    def _on_link(self, interface: str, state: LinkState) -> None:
        plane = self.ports.planes[interface]
        try:
            if self.nic.link_changed(plane, state):
                self._watch_nic()
        except NicError as error:
            log.error("%s", error)
        self.endpoint.on_port(plane, state.up, time.monotonic())
        if self.ip is not None:
            self.ip.on_ports_changed()
        log.info("%s: %s", interface, "up" if state.up else "down")
        news = {"plane": plane, "interface": interface, "up": state.up, "admin_up": state.admin_up}
        self.publish("port", lambda: news)

    def _on_captures(self) -> None:
        for interface, is_captured in self.ports.links.captures().items():
            self.nic.capture_changed(self.ports.planes[interface], is_captured)

    def publish(self, event: str, fields: Callable[[], dict[str, Any]]) -> None:
        """Send an event to every watcher that wants it; `fields` is called when there is one."""
        if self._server is not None and self._server.watched(event):
            self._server.publish(event, **fields())

    async def close(self) -> None:
        """End transfers, remove the socket and unfinished files, close the ports. Idempotent."""
        self._selector.turn = no_turn
        self._selector.wake_for(())
        await cancel_others()
        if self._server is not None:
            await self._server.close()
        self._loop.remove_reader(self.ports.links)
        if self.ip is not None:
            self.ip.close()
        self.regions.close()
        self.ports.close()


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mrc_testbed.hosts.agent", description="MRC agent of one host")
    parser.add_argument("--host", required=True, help="name in the plan, such as h0")
    parser.add_argument("--run-dir", required=True, type=Path, help="run folder with plan.json")
    parser.add_argument("--nic", choices=KINDS, default="fast")
    parser.add_argument("--hook", action="append", default=[], metavar="MODULE:FUNCTION", help="with --nic scapy")
    parser.add_argument("--config", action="append", default=[], type=_setting, metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, help="seed of the engine's random choices; random when left out")
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
    selector = TurnSelector()

    async def serve(stop: asyncio.Event) -> None:
        agent = await _start_agent(arguments, selector, stop.set)
        gc.freeze()  # what is there stays: looking through all of it takes longer than a frame
        gc.set_threshold(GARBAGE_EVERY)
        try:
            await stop.wait()
        finally:
            await agent.close()

    try:
        run_service(serve, selector)
    except AgentStartError as error:
        print(f"{arguments.host}: agent cannot start: {error}", file=sys.stderr)
        return 1
    return 0


async def _start_agent(arguments: argparse.Namespace, selector: TurnSelector, stop: Callable[[], None]) -> Agent:
    """Return an agent built from the command line, ready to run. Raises AgentStartError."""
    seed = random.SystemRandom().getrandbits(64) if arguments.seed is None else arguments.seed
    agent = None
    try:
        plan = _plan(arguments.run_dir)
        agent = Agent(
            plan,
            arguments.host,
            arguments.run_dir,
            selector,
            stop,
            nic_kind=arguments.nic,
            hooks=arguments.hook,
            config=host_config(plan, dict(arguments.config)),
            seed=seed,
        )
        await agent.start()
    except (NicError, JsonlError, PlanError, ConfigError, OSError) as error:
        if agent is not None:
            await agent.close()
        raise AgentStartError(str(error)) from error
    return agent
