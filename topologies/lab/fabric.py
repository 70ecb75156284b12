"""The fabric in Mininet: network, switches, host agents, controller; all of it up or none of it left.

::

    with Fabric(Plan(), LabOptions(wires="veth")) as fabric:
        fabric.agent("h0").request("status")
        cut_at = fabric.link("p1-t0-0", "p1-t1-1", up=False)

Whatever ends the `with` block, or a start in the middle, `close` removes what was made: an exception, Ctrl-C,
SIGTERM, SIGHUP. What a `kill -9` leaves, the next start removes (rundir.py). The steps of a start:

    1 check     root, tools, run folder, leftovers, TCP ports, interface names; nothing is made before all hold
    2 switchd   started first: it loads its libraries while the network is made
    3 network   Mininet nodes, all links that are interfaces in one batch, interfaces set up
    4 program   compiled into program/
    5 devices   wires, ports attached
    6 ends      agents and controller together; meanwhile links get the plan's rates, delays and queue depths
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mrc_testbed.ipc import processes
from mrc_testbed.ipc.agent_client import AgentError
from mrc_testbed.ipc.controller_client import Northbound
from mrc_testbed.ipc.patience import gets_on, serves
from mrc_testbed.ipc.processes import ProcessError, Processes
from mrc_testbed.ipc.procfs import ThreadSeconds, thread_seconds
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.ipc.rundir import FabricError, HostOffError, RunDir, remove_run
from mrc_testbed.ipc.signals import ENDING, SignalExit, terminate
from mrc_testbed.topologies.lab import preflight
from mrc_testbed.topologies.lab.fabric_programs import FabricPrograms
from mrc_testbed.topologies.lab.fault_injection import Injector
from mrc_testbed.topologies.lab.network import LocalNetwork, Network
from mrc_testbed.topologies.lab.nodes import FabricHost, FabricMininet
from mrc_testbed.topologies.lab.options import DEFAULT_LAB, LabOptions
from mrc_testbed.topologies.lab.part_watch import DeadPart, PartWatch
from mrc_testbed.topologies.lab.targets import TARGETS, FabricSwitch, Target, answers
from mrc_testbed.topologies.lab.traffic_control import TrafficControl
from mrc_testbed.topologies.lab.wires import PortLook
from mrc_testbed.topologies.plan import Link, Plan, PlanError
from mrc_testbed.topologies.servers import place_nodes

__all__ = ["Fabric", "FabricError", "SignalExit"]

CONTROLLER = "controller"
MAPPER = "mapper"
Progress = Callable[[str], None]


class Fabric:
    """A running fabric. `start` and `close`, or a `with` block.

    plan       dimensions and names
    lab        how it is brought up (options.py)
    run_dir    run folder (default: MRC_RUN_DIR or /run/mrc-testbed)
    progress   called with each step in a few words

    In the main thread SIGTERM and SIGHUP end the `with` block as Ctrl-C does.
    Raises FabricError (and its kinds RunDirError, ProcessError), JsonlError and what compile_program raises.
    """

    def __init__(
        self,
        plan: Plan,
        lab: LabOptions = DEFAULT_LAB,
        run_dir: Path | str | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.plan = plan
        self.lab = lab
        self.run_dir = RunDir(run_dir)
        self.wires = lab.wire_kind
        """Kind of the links between switches."""
        self.program = lab.program or plan.mode.program
        self.config = dict(lab.config)
        # Such a target passes a lone packet at once: its RTT sample must not lower the base below the plan's.
        if plan.limited and not TARGETS[lab.target].can_delay:
            self.config.setdefault("base_rtt_min_s", round(plan.base_rtt_s(), 9))
        self.processes = Processes(self.run_dir)
        self.target, self.network = self._choose_network()
        self.traffic: TrafficControl = self.target.traffic()
        """Rates, queues, delays and losses of switch ports; start applies the plan's."""
        self.traffic.gets_on = lambda: gets_on(*(self.processes[name].work for name in self._switch_parts()))
        self.removed_leftovers: list[str] = []
        """Leftovers of a killed earlier run that `start` removed."""
        self.data_in_memory = False
        """Whether files that hosts receive are in memory with huge pages (files/memory.py)."""
        self.start_s: float | None = None
        """Seconds that `start` took."""
        self._progress = progress or (lambda _text: None)
        self.processes.report = lambda text: self.notice(text)
        self._old_handlers: dict[int, Any] = {}
        self.notice: Callable[[str], None] = self._progress
        """Callback for a line about a change of the fabric that no command caused; any thread may call."""
        self.cut: set[str] = set()
        """Interfaces taken down by `link`, `link_port` or a fault; `power` leaves them down."""
        self.power_losses: dict[str, float] = {}
        """Times, CLOCK_MONOTONIC seconds, at which hosts first lost their power, and with it their work."""
        self.inject = Injector(self)
        """Faults by name, with undo."""
        self.parts = PartWatch(self.processes, self._loses, self._restart, lambda text: self.notice(text), self._mourn)
        """Watch over the processes, from when all are ready."""
        self.programs = FabricPrograms(self)
        """P4 programs of the switches, to be swapped under traffic."""
        self._agent_options: list[str] = []
        self._clients: dict[str, JsonlClient] = {}
        self._state_lock = threading.Lock()
        self._host_lock = threading.Lock()
        """Lock of the agents' starts and ends, so that none starts in a host that goes off."""
        self._held = False

    def _choose_network(self) -> tuple[Target, Network]:
        """Switches and network, on this machine or on several. Raises FabricError, ServersError."""
        lab = self.lab
        if lab.servers is None:
            target = TARGETS[lab.target](self.run_dir, self.processes, lab.ports, self.plan)
            return target, LocalNetwork(
                self.plan,
                self.run_dir,
                self.processes,
                target,
                self.wires,
                set_link=self.link,
                on_pulled=lambda port: self.set_interfaces((port,), False),
                report=lambda text: self.notice(text),
            )
        from mrc_testbed.topologies.lab.cluster.network import ClusterNetwork  # most fabrics are on one machine
        from mrc_testbed.topologies.lab.cluster.switches import ClusterTarget

        placement = place_nodes(self.plan, lab.servers)
        spread = ClusterTarget(self.run_dir, self.processes, lab.ports, self.plan, placement)
        return spread, ClusterNetwork(
            self.plan,
            placement,
            self.run_dir,
            self.processes,
            spread,
            self.wires,
            set_link=self.link,
            print_line=lambda text: self.notice(text),
        )

    # ---- life -------------------------------------------------------------------------------------------

    def __enter__(self) -> Fabric:
        return self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error)

    def start(self) -> Fabric:
        """Bring everything up; returns when every switch, agent and the controller answers."""
        began = time.monotonic()
        if self.lab.servers is None:  # else each machine looks for itself
            preflight.check_root()
            preflight.check_tools()
            preflight.check_namespaces()
        self.target.check()
        self.programs.prepare()
        try:
            self._catch_signals()
            self._claim()
            self._start()
            self.parts.start()
            self.run_dir.save_as_up()
            self.start_s = time.monotonic() - began
            self._progress(f"fabric is up after {self.start_s:.1f} s: {self.plan}")
            for text in self.network.node_locations():
                self._progress(text)
        except BaseException as error:
            self.close(error)
            raise
        return self

    def close(self, error: BaseException | None = None) -> None:
        """Remove everything the run made. Idempotent; the second Ctrl-C does not wait until it is done.

        `error`: why it is closed; KeyboardInterrupt was the first Ctrl-C. Raises FabricError when something stays.
        """
        self._hasten_on_signals(isinstance(error, KeyboardInterrupt))
        try:
            if self._held:
                self._remove()
        finally:
            self.run_dir.release()
            self._held = False
            self._restore_signals()

    def _claim(self) -> None:
        """Take the run folder, remove leftovers, and see that nothing is in the way."""
        self.run_dir.acquire()
        self._held = True
        self.removed_leftovers = self.run_dir.clean_leftovers()
        if self.removed_leftovers:
            self._progress(f"removed {len(self.removed_leftovers)} leftovers of a killed run")
        self.network.check()
        self.run_dir.begin()
        if self.lab.guests:
            self.run_dir.let_in([*self.lab.guests])
        for number, purpose in sorted(self.target.tcp_ports().items(), reverse=True):
            self.run_dir.state.ports[purpose] = number
        self.data_in_memory = self.run_dir.keep_data_in_memory()
        self.run_dir.write_json(self.run_dir.plan_file, self.plan.to_json())
        self.write_switches()
        if self.lab.discipline:
            self.run_dir.write_json(self.run_dir.discipline_file, dict(self.lab.discipline))

    def write_switches(self) -> None:
        """Write the file by which the controller finds the switches and their programs."""
        self.run_dir.write_json(self.run_dir.switches_file, self._switch_addresses())

    def _switch_addresses(self) -> dict[str, dict[str, Any]]:
        return {
            switch.name: {
                "address": self.target.address(switch.device_id),
                "device_id": switch.device_id,
                "gnmi": self.target.gnmi_of(switch.device_id),
                **({} if self.target.tells_watch_ports else {"tells_watch_ports": False}),
                **self.programs.address_fields(switch.name),
            }
            for switch in self.plan.switches
        }

    def _start(self) -> None:
        daemon_probes = self.target.launch()
        self._progress("making the network")
        self.network.make()
        if self.lab.compile_program is not None:
            self._progress(f"compiling {self.program} for {self.target.name}")
            self.lab.compile_program(self.run_dir.program, self.target.name, self.program)
        self._progress("starting switches")
        self.processes.wait_ready(daemon_probes)
        self.network.attach()
        self.processes.wait_ready(self.target.probes())
        self.programs.load_foreign()
        probes = self._start_endpoints()
        self._apply_plan()  # while the others load their libraries
        if probes:
            self.processes.wait_ready(probes, self.network.check_alive, prerequisites=self._switch_parts())
        if self.lab.has_mapper:
            self.mapper.request("start")  # not before switches have their routes: each probe would count as a drop

    def _switch_parts(self) -> list[str]:
        """Processes of switches, which the others wait for."""
        return [part.name for part in self.processes.parts if self.target.loses(part.name) is not None]

    def _apply_plan(self, switches: Collection[str] | None = None) -> None:
        for lacking in self.traffic.apply_plan(switches):
            self._progress(f"links are not quite what the plan says: {lacking}")

    def _start_endpoints(self) -> dict[str, processes.Probe]:
        """Start controller, agents and Clustermapper as far as they are wanted; returns their probes."""
        probes: dict[str, processes.Probe] = {}
        if self.lab.controller or self.lab.agents:
            self._progress("starting controller and host agents")
        if self.lab.controller:
            self.spawn_controller()
            probes[CONTROLLER] = answers(self.controller, "status", ready_field="ready")
        if self.lab.agents:
            config = [f"--config={key}={json.dumps(value)}" for key, value in self.config.items()]
            self._agent_options = ["--nic", self.lab.nic, *config]
            probes |= self.network.start_agents(self._agent_options)
        if self.lab.has_mapper:
            probes |= self._spawn_mapper("--wait")
        return probes

    def _spawn_mapper(self, *options: str) -> dict[str, processes.Probe]:
        if dead_hosts := [name for name in self.nodes_off if name in self.hosts]:
            raise FabricError(f"Clustermapper starts when all hosts are on; off: {', '.join(dead_hosts)}")
        self._write_hosts_file()
        if self.lab.slowdown > 1:
            options += ("--slowdown", str(self.lab.slowdown))
        self.processes.spawn_module(
            MAPPER, "mrc_testbed.hosts.clustermapper", *options, "--run-dir", str(self.run_dir.path)
        )
        return {MAPPER: answers(self.mapper, "status")}

    def _write_hosts_file(self) -> None:
        pids = {name: host.namespace_pid for name, host in self.hosts.items() if host.is_powered}
        self.run_dir.write_json(self.run_dir.hosts_file, pids)

    def spawn_controller(self) -> None:
        """Start the controller's process unless it runs already; `controller` answers soon after."""
        if CONTROLLER in self.processes and self.processes[CONTROLLER].alive:
            return
        react = "never" if math.isinf(self.lab.react_after_s) else f"{self.lab.react_after_s:g}"
        options = ["--run-dir", str(self.run_dir.path), "--denylist", self.lab.denylist, "--react-after", react]
        if self.lab.servers is not None:
            options += ["--deadline", "inf"]  # it cannot see whether switches of other machines work; `wait_ready` can
        options += ["--open"] if self.target.ports.open_to_all else []
        options += ["--tls", *map(str, self.target.certificate())] if self.target.ports.tls else []
        self.processes.spawn_module(CONTROLLER, "controller", *options)

    def kill_controller(self) -> None:
        """End the controller's process without a word; spawn_controller() begins another one."""
        self.processes.stop(CONTROLLER, grace_s=0.0)

    # ---- parts that die ---------------------------------------------------------------------------------

    def _loses(self, part: str) -> str:
        """Describe what no longer works without a part."""
        if part == CONTROLLER:
            return "no fault is found or named, no table corrected, the denylist stays as it is; traffic of MRC goes on"
        if part == MAPPER:
            return "links are not probed: a loss that neither a port nor a host's EV tells is not found"
        if part in self.hosts:
            return f"{part} neither sends nor receives; its QPs, transfers and counters are lost"
        return self.target.loses(part) or "what it did is not done"

    def _mourn(self, part: DeadPart) -> None:
        """Let go of what would wait for a dead part."""
        if self.target.loses(part.name) is not None:
            self.traffic.lost(part.name, part.cause)
        if part.name in self.hosts:
            self._end_connections(part.name)

    def _end_connections(self, host: str, *, idle: bool = False) -> None:
        """QPs to a host whose agent has died end in error: its successor knows none of them.

        `idle`: only those with nothing under way, which would not notice.
        """
        for name in self.hosts:
            if name != host and name in self.processes and self.processes[name].alive:
                with contextlib.suppress(JsonlError, HostOffError):  # it dies too, and that is told by itself
                    self.agent(name).request("peer_lost", peer=host, idle=idle)

    def _restart(self, part: str) -> None:
        """Start a part again, with the state that it had from us. Raises FabricError, JsonlError."""
        if part == CONTROLLER:
            self.spawn_controller()
            probes = {CONTROLLER: answers(self.controller, "status")}
        elif part == MAPPER:
            probes = self._spawn_mapper()
        elif part in self.hosts:
            with self._host_lock:
                self._start_agent(part)
            self.inject.pace_again(part)
            return
        else:
            self._restart_switches(part)
            return
        self._wait_for_restart(probes)

    def _start_agent(self, host: str) -> None:
        """Start the agent of a host anew. Raises FabricError; HostOffError without power."""
        if not self.hosts[host].is_powered:
            raise HostOffError(host)
        self._wait_for_restart(self.network.start_agents(self._agent_options, [host]))

    def _wait_for_restart(self, probes: dict[str, processes.Probe]) -> None:
        self.processes.wait_ready(probes, self.parts.check_open, only_these=True, prerequisites=self._switch_parts())

    def _restart_switches(self, part: str) -> None:
        """Start a process of switches again; its switches, wires, cuts, rates and faults as they were."""
        switches_off = {name for name, node in self.switches.items() if not node.is_powered}
        restarted_switches = self.target.restart(part)
        with self._state_lock:
            self.network.attach([switch.name for switch in restarted_switches])
            probes = {name: probe for name, probe in self.target.probes().items() if name == part}
            self.processes.wait_ready(probes, only_these=True)
            for switch in restarted_switches:
                if switch.name in switches_off:
                    switch.power(False)
                for interface in switch.interfaces.values():
                    self.network.set_up(interface, switch.name not in switches_off and interface not in self.cut)
            self.programs.load_foreign([s.name for s in restarted_switches if s.name not in switches_off])
        self.traffic.on_restarted_part(part)
        names = {switch.name for switch in restarted_switches}
        self._apply_plan(names)
        self.inject.set_again(names)

    @contextlib.contextmanager
    def blaming_the_dead(self) -> Iterator[None]:
        """An error within that a dead part explains is raised as that: ProcessError, with the cause."""
        try:
            yield
        except (FabricError, JsonlError, AgentError) as error:
            if self.parts.closing or (part := self.parts.first_cause()) is None:
                raise
            raise ProcessError(str(part)) from error

    def _remove(self) -> None:
        """Remove the parts: processes while they can still say goodbye, shells, then all with the run's marks."""
        self.parts.close()
        self.inject.stop()
        processes.drain()
        for client in self._clients.values():
            client.close()
        self.traffic.close()
        self.target.close()
        errors = []
        for step in (self.processes.stop, self.network.stop_mininet, lambda: remove_run(self.run_dir.state)):
            try:
                step()
            except FabricError as error:  # the next step still has to be done
                errors.append(str(error))
        self.network.close()
        if errors:
            raise FabricError("; ".join(errors))
        self.run_dir.remove_files()

    # ---- nodes ------------------------------------------------------------------------------------------

    @property
    def mininet(self) -> FabricMininet | None:
        """Nodes and links for Mininet's CLI and API; None before the fabric is up."""
        return self.network.mininet

    @property
    def hosts(self) -> dict[str, FabricHost]:
        """Nodes of the hosts by name."""
        return self.network.hosts

    @property
    def switches(self) -> dict[str, FabricSwitch]:
        """Nodes of the switches by name."""
        return self.network.switches

    def path_for(self, host: str, name: str) -> Path:
        """Return the path of a file for a host, on the machine that has the host. Raises PlanError."""
        self.plan.host(host)
        return self.network.path_for(host, name)

    def bring(self, host: str, path: Path) -> Path:
        """Bring a file of this machine where a host can read it; return its path there. Raises FabricError."""
        self.plan.host(host)
        return self.network.bring(host, path)

    def discard(self, host: str, path: Path) -> None:
        """Remove a file from the machine that has a host; none is no error."""
        self.plan.host(host)
        self.network.discard(host, path)

    def read(self, host: str, path: Path) -> bytes:
        """Bytes of a file on the machine that has a host. Raises OSError, FabricError."""
        self.plan.host(host)
        return self.network.read(host, path)

    # ---- faults -----------------------------------------------------------------------------------------

    def link(self, a: str, b: str, is_up: bool) -> float:
        """Cut a link (both ends go down) or restore it. Returns the time just before, CLOCK_MONOTONIC seconds.

        An end at a node without power stays down until that has power again. Raises PlanError for no such link.
        """
        link = self.plan.link(a, b)
        return self.set_interfaces((link.lower.interface, link.upper.interface), is_up)

    def link_port(self, node: str, port: int | str, is_up: bool) -> float:
        """Cut or restore one end of a link, by number or interface name; the other end loses carrier.

        Raises PlanError listing the ports.
        """
        ports = self.plan.ports(node)
        for end in ports:
            if port in (end.number, end.interface):
                return self.set_interfaces((end.interface,), is_up)
        has = ", ".join(f"{p.number} ({p.interface})" for p in ports)
        raise PlanError(f"no port {port!r} on {node} (has: {has})")

    @property
    def nodes_off(self) -> list[str]:
        """Switches and hosts without power."""
        return [name for name, node in (*self.switches.items(), *self.hosts.items()) if not node.is_powered]

    def power(self, name: str, on: bool) -> float:
        """Switch a node off (all its state is lost, its interfaces go down) or on, without memory.

        Returns when, CLOCK_MONOTONIC seconds. Links that were cut stay cut. Raises PlanError for no such node.
        """
        return self._power_host(name, on) if name in self.hosts else self._power_switch(name, on)

    def _power_host(self, name: str, on: bool) -> float:
        """Switch a host off (processes are killed, ports go down) or on, with an agent that knows no QP.

        Peers are not told that it goes: their QPs find out by themselves. Raises FabricError.
        """
        if self.lab.servers is not None:
            raise FabricError(
                f"{name} cannot be switched {'on' if on else 'off'}: the fabric is on several machines. Cure: `link`, "
                "which cuts its ports"
            )
        with self._host_lock:
            time_s = self._start_host(name) if on else self._stop_host(name)
        if on:
            self.inject.pace_again(name)
        return time_s

    def _stop_host(self, name: str) -> float:
        host, time_s = self.hosts[name], time.monotonic()
        self.power_losses.setdefault(name, time_s)
        host.is_powered = False  # before its agent ends: whoever asks it meanwhile learns why there is no answer
        self._note_hosts_off()
        self.processes.kill(name)
        self.parts.dismiss(name)
        host.power_off()
        self.run_dir.agent_socket(name).unlink(missing_ok=True)
        self._set_ports(host)
        return time_s

    def _start_host(self, name: str) -> float:
        """Give a host its ports, its agent and its shell; it is off again when that fails. Raises FabricError."""
        host, time_s = self.hosts[name], time.monotonic()
        if self.lab.agents:
            self._end_connections(name, idle=True)
        host.power_on()
        self._set_ports(host)
        try:
            if self.lab.agents:
                self._start_agent(name)
            self._note_hosts_off()
        except (FabricError, JsonlError):
            self._stop_host(name)
            raise
        return time_s

    def _set_ports(self, host: FabricHost) -> None:
        """Set the ports of a host up, or all down while it has no power."""
        with self._state_lock:
            for port in self.plan.ports(host.name):
                self.network.set_up(port.interface, host.is_powered and port.interface not in self.cut)

    def _note_hosts_off(self) -> None:
        """Write down for other processes which hosts have no power, and where those with power are."""
        self.run_dir.state.hosts_off = [name for name in self.nodes_off if name in self.hosts]
        self.run_dir.save()
        if self.lab.has_mapper:
            self._write_hosts_file()

    def _power_switch(self, switch: str, on: bool) -> float:
        self.plan.switch(switch)
        node = self.network.switch(switch)
        with self._state_lock:
            time_s = time.monotonic()
            if not on:
                for interface in node.interfaces.values():
                    self.network.set_up(interface, False)
            node.power(on)
            if on:
                self.programs.load_foreign((switch,))
                self.traffic.on_switch_restart(switch)
                for interface in node.interfaces.values():
                    self.network.set_up(interface, interface not in self.cut)
        return time_s

    def set_interfaces(self, interfaces: tuple[str, ...], is_up: bool) -> float:
        """Cut or restore ports by interface, where the node has power. Return when, as `link`."""
        with self._state_lock:
            time_s = time.monotonic()
            for interface in interfaces:
                (self.cut.discard if is_up else self.cut.add)(interface)
                self.network.set_up(interface, is_up and self.network.node_of(interface).is_powered)
        return time_s

    def set_nic_rate(self, host: str, plane: int, rate_bps: float | None) -> None:
        """Pace what a host sends on a plane from now on; None: no limit.

        Raises FabricError when its agent refuses.
        """
        if not self.lab.agents or not self.network.node(host).is_powered:
            return  # nothing sends; an agent that starts anew is given its rates
        try:
            self.agent(host).request("nic_rate", plane=plane, rate_bps=rate_bps or 0.0)
        except JsonlError as error:
            raise FabricError(f"{host}: its NIC's rate cannot be set: {error}") from error

    # ---- looking at it ----------------------------------------------------------------------------------

    def agent(self, host: str) -> JsonlClient:
        """Client of a host's agent. Raises PlanError for no such host, HostOffError for one without power."""
        self.plan.host(host)
        if host in self.hosts and not self.hosts[host].is_powered:
            raise HostOffError(host)
        return self._client(host, self.run_dir.agent_socket(host))

    @property
    def controller(self) -> Northbound:
        """Client of the controller's northbound API."""
        return Northbound(self.run_dir.path, name=CONTROLLER, works=self.works(CONTROLLER))

    @property
    def mapper(self) -> JsonlClient:
        """Client of Clustermapper's socket (docs/telemetry.md). Raises FabricError where there is none."""
        if self.lab.servers is not None:
            raise FabricError(
                "no Clustermapper on several machines: hosts of another machine have no namespace here. Cure: `links`, "
                "`evs` and `faults` print what agents and switches see"
            )
        return self._client(MAPPER, self.run_dir.mapper_socket)

    def _client(self, name: str, path: Path) -> JsonlClient:
        if name not in self._clients:
            self._clients[name] = JsonlClient(path, name=name, works=self.works(name))
        return self._clients[name]

    def works(self, part: str) -> Callable[[], bool]:
        """Whether a part, or another one that it asks, gets on, for clients that are patient (ipc/rpc.py)."""

        def works() -> bool:
            peers = self._switch_parts() if part == CONTROLLER else [name for name in self.hosts if part in self.hosts]
            peer_works = [self.processes[name].work for name in peers if name != part and name in self.processes]
            return part in self.processes and serves(self.processes[part].work, *peer_works)

        return works

    def link_states(self) -> dict[str, PortLook]:
        """All links at a glance, each by the interface of its upper end; made to be asked often."""
        return self.network.link_states()

    def thread_seconds(self) -> dict[str, ThreadSeconds]:
        """CPU time so far, and waiting for it, of all processes of the fabric: their threads by process."""
        return {child.name: thread_seconds(child.pid) for child in self.processes} | self.network.threads_elsewhere()

    @property
    def processors(self) -> int:
        """CPUs that the fabric may use, of all its machines."""
        return self.network.processors()

    def link_is_up(self, link: Link) -> bool:
        """Both ends are up and see carrier."""
        return all(self.network.is_up(port.interface) for port in (link.lower, link.upper))

    def status(self) -> dict[str, Any]:
        """State of the fabric as data: plan, switches, links, processes."""
        return {
            "plan": self.plan.to_json(),
            "target": self.target.name,
            "program": self.program,
            "wires": self.wires,
            "nic": self.lab.nic,
            "run_dir": str(self.run_dir.path),
            "start_s": self.start_s,
            **self.network.describe(),
            "ports": asdict(self.target.ports),
            "switches": {
                name: {**switch_address, "powered": name in self.switches and self.switches[name].is_powered}
                for name, switch_address in self._switch_addresses().items()
            },
            "hosts": {name: {"powered": host.is_powered} for name, host in self.hosts.items()},
            "links": [
                {"link": k.name, "plane": k.plane, "up": self.link_is_up(k)} for k in self.plan.links if self.hosts
            ],
            "processes": [
                {"name": child.name, "pid": child.pid, "alive": child.alive, "log": str(child.log)}
                for child in self.processes
            ],
        }

    def check(self) -> None:
        """Raise ProcessError when a process of the fabric has died: how, what that means, the end of its log."""
        self.parts.poll_deaths()
        if dead_parts := self.parts.dead_parts:
            raise ProcessError(str(dead_parts[0]))
        self.processes.check()
        self.network.check_alive()

    # ---- signals ----------------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in ENDING:
            self._old_handlers[number] = signal.signal(number, terminate)
        self._old_handlers[signal.SIGINT] = signal.getsignal(signal.SIGINT)

    def _hasten_on_signals(self, had_one: bool) -> None:
        """Make the first Ctrl-C print how to end at once, and the second end the process, while closing.

        Other signals change nothing: several may come of one end (ipc/signals.py). Children end with the process. The
        state file has the rest, which the next start or `mrc clean` removes.
        """
        signals = iter(() if had_one else ("mrc: removing the fabric; once more ends at once, and leaves the rest",))

        def hasten(number: int, _frame: object) -> None:
            if (text := next(signals, None)) is not None:
                print(text, file=sys.stderr, flush=True)
                return
            show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
            hint = "the next start, or `mrc clean`, removes what is left of the fabric"
            os.write(2, f"{show_cursor}mrc: ended at once; {hint}\n".encode())
            os._exit(128 + number)

        def ignore(_number: int, _frame: object) -> None:
            """Do nothing; a handler, unlike SIG_IGN, is not passed on to programs that the removal starts."""

        for number, handler in self._old_handlers.items():
            answer = hasten if number == signal.SIGINT else ignore
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_IGN else answer)

    def _restore_signals(self) -> None:
        while self._old_handlers:
            number, handler = self._old_handlers.popitem()
            signal.signal(number, handler)
