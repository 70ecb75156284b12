"""Network of a fabric on several machines, joined by VXLAN and controlled by one front process.

    front process            machine a                      machine b
     controller  --------ssh-- switchd: planes 0, 1          switchd: planes 2, 3
     RemoteMachine ------ssh-- machine_side, agents h0 h1    machine_side, agents h2 h3
                               h0-eth2 ======VXLAN======= p2-t0-0-eth1

P4Runtime, gNMI, the daemons' control sockets and the agents' sockets come over ssh, so that none of them listens on a
network; an agent's socket has its usual name in every run folder. Clocks: clock.py.

When a machine is lost, the ends of its links on other machines lose their carrier, as behind a NIC or a T0 without
power; the rest goes on, and `check_alive` names what is gone.
"""

from __future__ import annotations

import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from mrc_testbed.ipc.processes import Probe, Processes
from mrc_testbed.ipc.procfs import ThreadSeconds
from mrc_testbed.ipc.rpc import JsonlClient, Message
from mrc_testbed.ipc.rundir import FabricError, RunDir
from mrc_testbed.topologies.lab.cluster.connection import ConnectionLostError, Forwards
from mrc_testbed.topologies.lab.cluster.nodes import RemoteFabricHost, RemoteFabricSwitch, RemoteInterfaces, VxlanLink
from mrc_testbed.topologies.lab.cluster.remote_machine import RemoteMachine
from mrc_testbed.topologies.lab.cluster.sources import sources_digest
from mrc_testbed.topologies.lab.cluster.switches import ClusterTarget
from mrc_testbed.topologies.lab.network import Network, SetLink
from mrc_testbed.topologies.lab.nodes import FabricMininet
from mrc_testbed.topologies.lab.preflight import check_tcp_ports
from mrc_testbed.topologies.lab.targets import answers
from mrc_testbed.topologies.lab.wires import PortLook
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.servers import Machine, Placement

ROUND_TRIP: Final = ("count", "lost", "min_s", "median_s")
ENDING_S: Final = 5.0
"""A bound for what is under way when somebody interrupts a start, seconds."""
GONE_S: Final = 4
"""A machine that was lost may answer within that, seconds."""
Result = TypeVar("Result")


class ClusterNetwork(Network):
    """See the module. `print_line` gets a line for the user when a machine is lost."""

    def __init__(
        self,
        plan: Plan,
        placement: Placement,
        run_dir: RunDir,
        processes: Processes,
        target: ClusterTarget,
        wires: str,
        set_link: SetLink,
        print_line: Callable[[str], None] = lambda _text: None,
    ) -> None:
        super().__init__(plan)
        self.placement, self.run_dir, self.target = placement, run_dir, target
        self._elsewhere = processes.elsewhere
        self._wires, self._set_link, self._print_line = wires, set_link, print_line
        self.machines = {machine.name: RemoteMachine(machine, run_dir, self._lost) for machine in placement.machines}
        target.lost = lambda name: self.machines[name].lost
        target.launch_again = lambda name: self._start(self.machines[name], "switches")
        self.underlay: list[dict[str, Any]] = []
        """Round trips between machines: from, to, count, lost, min_s, median_s."""
        self._far: dict[str, str] = {}
        """Interface of a crossing link -> interface of its other end."""
        for crossing in placement.crossings:
            lower, upper = crossing.link.lower.interface, crossing.link.upper.interface
            self._far |= {lower: upper, upper: lower}
        self._vni: dict[tuple[str, str], int] = {}
        self._copy_count = 0
        self._print_lock = threading.Lock()

    # ---- making -----------------------------------------------------------------------------------------

    def check(self) -> None:
        check_tcp_ports(
            {port: tcp_port for port, tcp_port in self.target.tcp_ports().items() if self._is_forwarded(port)}
        )

    def _is_forwarded(self, port: int) -> bool:
        """A part on our own machine checks its ports itself."""
        return not self.target.machine_of_port(port).is_local

    def make(self) -> None:
        self._on_machines(lambda machine: machine.open())
        self._compare_sources()
        self._measure_underlay()
        answers_by_machine = self._on_machines(self._begin)
        self._forward()
        pids = {host: pid for answer in answers_by_machine.values() for host, pid in answer["pids"].items()}
        net = self.mininet = FabricMininet(self._set_link)
        self._add_nodes(net, pids)
        for link in self.plan.links:
            lower, upper = link.lower, link.upper
            net.addLink(
                net[lower.node],
                net[upper.node],
                cls=VxlanLink,
                tunnel_between=self._plan_tunnel,
                port1=lower.number,
                port2=upper.number,
                intfName1=lower.interface,
                intfName2=upper.interface,
                addr1=self.plan.mac(lower),
                addr2=self.plan.mac(upper),
            )
        self._on_machines(lambda machine: machine.request("tunnels", tunnels=self._tunnels_of(machine.name)))
        net.build()

    def _on_machines(
        self, job: Callable[[RemoteMachine], Result], machines: Iterable[RemoteMachine] | None = None
    ) -> dict[str, Result]:
        """The job on all machines at once, or on some; all are done when this returns. Raises the first error."""
        members = list(self.machines.values() if machines is None else machines)
        pool = ThreadPoolExecutor(len(members) or 1)
        jobs = {machine.name: pool.submit(job, machine) for machine in members}
        try:
            wait(jobs.values())
        except BaseException:  # Ctrl-C: what is under way ends first, so that close() meets nobody at work
            wait(jobs.values(), timeout=ENDING_S)
            raise
        finally:
            for machine in members:
                if not jobs[machine.name].done():
                    machine.abort()
            pool.shutdown()
        return {name: future.result() for name, future in jobs.items()}

    def _compare_sources(self) -> None:
        """Raises FabricError when machines have another version of mrc-testbed than this one."""
        digest = sources_digest()
        different = [machine for machine in self.machines.values() if machine.hello["digest"] != digest]
        if different:
            names = ", ".join(f"{machine.name} ({machine.machine.checkout})" for machine in different)
            raise FabricError(
                f"machine {names}: other files of mrc-testbed than here: bring them to the same commit "
                "(`git pull` there, or rsync the checkout)"
            )

    def _measure_underlay(self) -> None:
        """Round trips between machines that share links, with frames of full size. Raises FabricError."""
        frame = self.plan.frame_bytes()
        pairs = {(link.host_machine.name, link.switch_machine.name) for link in self.placement.crossings}
        crossing = [self.machines[name] for name in sorted({name for pair in pairs for name in pair})]
        self._on_machines(lambda machine: machine.request("echo", address=self.address(machine.machine)), crossing)

        def measure(machine: RemoteMachine) -> list[dict[str, Any]]:
            rows = []
            for peer in sorted(b for a, b in pairs if a == machine.name):
                peer_address = self.address(self.machines[peer].machine)
                result = machine.request(
                    "probe", local=self.address(machine.machine), remote=peer_address, frame_bytes=frame
                )
                rows.append({"from": machine.name, "to": peer} | {key: result[key] for key in ROUND_TRIP})
            return rows

        self.underlay = [row for rows in self._on_machines(measure, crossing).values() for row in rows]
        self._on_machines(lambda machine: machine.request("echo_off"), crossing)

    def address(self, machine: Machine) -> str:
        """Address that carries a machine's tunnels. Raises FabricError."""
        return self.target.underlay_address(machine)

    def _begin(self, machine: RemoteMachine) -> dict[str, Any]:
        ports = self.target.ports_of(machine.name)
        return self._start(
            machine,
            "begin",
            run_dir=str(machine.run_dir),
            plan=self.plan.to_json(),
            wires=self._wires,
            hosts=list(self.placement.hosts[machine.name]),
            switches=list(self.placement.switches[machine.name]),
            p4runtime=ports.p4runtime,
            gnmi=ports.gnmi,
            open_to_all=ports.open_to_all,
            token=self.run_dir.read_token(),
            offset_s=machine.clock_offset_s,
        )

    def _forward(self) -> None:
        """Bring all sockets here, and those of agents to where the others look for them."""
        for machine in self.machines.values():
            remote_dir = RunDir(machine.run_dir)
            hosts = self.placement.hosts[machine.name]
            inward = {self.run_dir.agent_socket(host): str(remote_dir.agent_socket(host)) for host in hosts}
            if not machine.machine.is_local:
                folder = RunDir(machine.folder)
                inward[folder.switchd_socket] = str(remote_dir.switchd_socket)
                inward[folder.p4runtime_socket] = str(remote_dir.p4runtime_socket)
                inward[folder.gnmi_socket] = str(remote_dir.gnmi_socket)
            ports = self.target.ports_of(machine.name)
            elsewhere = [
                host.name for host in self.plan.hosts if self.placement.machine_of(host.name) is not machine.machine
            ]
            outward = {str(remote_dir.agent_socket(host)): self.run_dir.agent_socket(host) for host in elsewhere}
            tcp = {ports.p4runtime: ports.p4runtime, ports.gnmi: ports.gnmi}
            machine.connection.forward(Forwards(tcp, inward, outward))

    def _add_nodes(self, net: FabricMininet, pids: dict[str, int]) -> None:
        token = self.run_dir.state.token
        interfaces = RemoteInterfaces(self.set_up, self.is_up)
        for host in self.plan.hosts:
            machine = self.machines[self.placement.machine_of(host.name).name]
            # Commands on the host find the `mrc` of the machine's own Python first.
            tools = str(Path(machine.machine.python).parent)
            path = f"{tools}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            environment = {"MRC_HOST": host.name, "MRC_RUN_DIR": str(machine.run_dir), "PATH": path}
            self.hosts[host.name] = net.addHost(
                host.name,
                cls=RemoteFabricHost,
                token=token,
                devices=interfaces,
                machine=machine,
                namespace_pid=pids[host.name],
                environment=environment,
            )
        for device in self.plan.switches:
            machine = self.machines[self.placement.machine_of(device.name).name]
            self.switches[device.name] = net.addSwitch(
                device.name,
                cls=RemoteFabricSwitch,
                token=token,
                devices=interfaces,
                machine=machine,
                namespace_pid=0,
                environment={"MRC_RUN_DIR": str(machine.run_dir)},
                device=device,
                target=self.target,
                interfaces={port.number: port.interface for port in self.plan.ports(device.name)},
            )

    def _plan_tunnel(self, lower: str, upper: str) -> None:
        """Note a tunnel between these interfaces; all are made together."""
        base = self.run_dir.state.group & 0x7FF  # two fabrics over the same machines take other numbers
        self._vni[lower, upper] = (base << 12 | len(self._vni)) + 1

    def _tunnels_of(self, name: str) -> list[dict[str, Any]]:
        ends = []
        for crossing in self.placement.crossings:
            lower, upper = crossing.link.lower.interface, crossing.link.upper.interface
            host_machine, switch_machine = crossing.host_machine, crossing.switch_machine
            for interface, local_machine, remote_machine in (
                (lower, host_machine, switch_machine),
                (upper, switch_machine, host_machine),
            ):
                if local_machine.name == name:
                    ends.append(
                        {
                            "interface": interface,
                            "vni": self._vni[lower, upper],
                            "local": self.address(local_machine),
                            "remote": self.address(remote_machine),
                        }
                    )
        return ends

    def attach(self, switches: Collection[str] | None = None) -> None:
        members = list(self.switches if switches is None else switches)
        by_machine: dict[str, list[str]] = {name: [] for name in self.machines}
        for name in members:
            by_machine[self.placement.machine_of(name).name].append(name)
        holding = [machine for machine in self.machines.values() if switches is None or by_machine[machine.name]]
        self._on_machines(lambda machine: machine.request("attach", switches=by_machine[machine.name]), holding)
        for name in members:
            self.switches[name].start()

    def start_agents(self, arguments: Sequence[str], hosts: Collection[str] | None = None) -> dict[str, Probe]:
        members = list(self.hosts if hosts is None else hosts)
        by_machine: dict[str, list[str]] = defaultdict(list)
        for name in members:
            by_machine[self.placement.machine_of(name).name].append(name)
        holding = [self.machines[name] for name in by_machine]
        self._on_machines(
            lambda machine: self._start(machine, "agents", arguments=list(arguments), hosts=by_machine[machine.name]),
            holding,
        )
        return {name: answers(JsonlClient(self.run_dir.agent_socket(name), name=name), "status") for name in members}

    def _start(self, machine: RemoteMachine, op: str, **fields: Any) -> Message:
        """Make a machine start processes, and add them to the fabric's. Raises FabricError."""
        answer = machine.request(op, **fields)
        self._elsewhere.update(machine.begin_parts(answer["started"]))
        return answer

    # ---- links ------------------------------------------------------------------------------------------

    def machine_of(self, interface: str) -> RemoteMachine:
        """The machine that has an interface."""
        return self.machines[self.placement.machine_of(self.port(interface).node).name]

    def set_up(self, interface: str, is_up: bool) -> None:
        """Set an interface up or down and the far end's carrier with it; a lost machine is skipped."""
        machine = self.machine_of(interface)
        if machine.lost is None:
            machine.request("set_up", interfaces=[interface], up=is_up)
        far = self._far.get(interface)
        if far is not None and (far_machine := self.machine_of(far)).lost is None:
            far_machine.request("set_carrier", interfaces=[far], on=is_up and machine.lost is None)

    def is_up(self, interface: str) -> bool:
        machine = self.machine_of(interface)
        return machine.lost is None and bool(machine.request("is_up", interface=interface)["up"])

    def link_states(self) -> dict[str, PortLook]:
        ports: dict[str, PortLook] = {}
        for machine in self.machines.values():
            if machine.lost is None:
                ports |= {name: PortLook(*port) for name, port in machine.request("look")["ports"].items()}
        return ports

    # ---- files ------------------------------------------------------------------------------------------

    def path_for(self, host: str, name: str) -> Path:
        return RunDir(self._of_host(host).run_dir).data / name

    def bring(self, host: str, path: Path) -> Path:
        machine = self._of_host(host)
        if machine.machine.is_local:
            return path
        self._copy_count += 1
        remote_path = self.path_for(host, f"{self._copy_count}-{path.name}")
        with path.open("rb") as content:
            command = machine.connection.command(
                ["sh", "-c", 'cat > "$0" || { rm -f "$0"; exit 1; }', str(remote_path)]
            )
            copy = subprocess.run(command, stdin=content, capture_output=True)
        if copy.returncode != 0:
            machine.request("beat")  # or it is gone
            reason = copy.stderr.decode(errors="replace").strip() or f"exit code {copy.returncode}"
            raise FabricError(f"{path} cannot be brought to {host} on machine {machine.name}: {reason}")
        return remote_path

    def discard(self, host: str, path: Path) -> None:
        machine = self._of_host(host)
        if machine.machine.is_local:
            path.unlink(missing_ok=True)
        elif machine.lost is None:
            with suppress(ConnectionLostError):  # the file goes with the machine's part
                machine.connection.run(["rm", "-f", "--", str(path)])

    def read(self, host: str, path: Path) -> bytes:
        machine = self._of_host(host)
        if machine.machine.is_local:
            return path.read_bytes()
        result = machine.connection.run(["cat", "--", str(path)], limit_s=None)
        if result.returncode != 0:
            raise FabricError(
                f"{path} of {host} cannot be read on machine {machine.name}: {result.stderr.decode().strip()}"
            )
        return result.stdout

    def describe(self) -> dict[str, Any]:
        return {
            "machines": [
                {
                    "name": machine.name,
                    "address": machine.machine.address,
                    "lost": machine.lost,
                    "planes": list(self.placement.planes[machine.name]),
                    "hosts": list(self.placement.hosts[machine.name]),
                    "clock_exact_s": machine.clock_exact_s,
                    **{key: machine.hello.get(key) for key in ("hostname", "kernel", "python")},
                }
                for machine in self.machines.values()
            ],
            "underlay": self.underlay,
        }

    def threads_elsewhere(self) -> dict[str, ThreadSeconds]:
        seconds_by_process: dict[str, ThreadSeconds] = {}
        for machine in self.machines.values():
            if machine.lost is None:
                for name, threads in machine.request("threads")["processes"].items():
                    full_name = name if name in self.hosts else f"{name} of {machine.name}"
                    seconds_by_process[full_name] = {
                        thread: (cpu_s, wait_s) for thread, (cpu_s, wait_s) in threads.items()
                    }
        return seconds_by_process

    def processors(self) -> int:
        return sum(machine.hello["processors"] for machine in self.machines.values())

    def node_locations(self) -> list[str]:
        locations = "; ".join(f"{name} has {self.placement.describe(name)}" for name in self.machines)
        lines = [f"{len(self.machines)} machines: {locations}"]
        if self.underlay:
            trips = [row["median_s"] for row in self.underlay]
            lines.append(
                f"the underlay's round trip was {min(trips) * 1e3:.3g} to {max(trips) * 1e3:.3g} ms at the start "
                f"({self.underlay[0]['count']} datagrams of full size a pair, median), which round trips contain"
            )
        return lines

    def notes(self) -> list[str]:
        clock_errors = self._on_machines(
            lambda machine: machine.clock_error_s(),
            [machine for machine in self.machines.values() if machine.lost is None],
        )
        return [
            *self.node_locations(),
            f"times of different machines agree within {max(clock_errors.values(), default=0.0) * 1e3:.2g} ms at the "
            "end: no one-way delay is told across them; no Clustermapper probes links",
        ]

    def _of_host(self, host: str) -> RemoteMachine:
        self.plan.host(host)
        return self.machines[self.placement.machine_of(host).name]

    # ---- loss and end -----------------------------------------------------------------------------------

    def _lost(self, machine: RemoteMachine, reason: str) -> None:
        """A machine is gone: what it held is named, and links to it go dark."""
        with self._print_lock:
            self._print_line(f"machine {machine.name} is lost, with {self.placement.describe(machine.name)}: {reason}")
        dark: dict[str, list[str]] = defaultdict(list)
        for interface, far in self._far.items():
            if self.machine_of(interface) is machine:
                dark[self.machine_of(far).name].append(far)
        for name, interfaces in dark.items():
            if self.machines[name].lost is None:
                try:
                    self.machines[name].request("set_carrier", interfaces=interfaces, on=False)
                except FabricError as error:
                    self._print_line(str(error))

    @property
    def lost(self) -> list[RemoteMachine]:
        """Machines that are gone."""
        return [machine for machine in self.machines.values() if machine.lost is not None]

    def check_alive(self) -> None:
        if lost_machines := self.lost:
            locations = {machine.name: self.placement.describe(machine.name) for machine in lost_machines}
            raise FabricError(
                "\n".join(
                    f"machine {machine.name} is lost, with {locations[machine.name]}: {machine.lost}"
                    for machine in lost_machines
                )
            )

    def stop_mininet(self) -> None:
        """End shells, then have every machine remove its part; where one was lost, see whether it still can.

        Raises FabricError naming what could not be removed.
        """
        net, self.mininet = self.mininet, None
        if net is not None:
            net.stop()

        def close(machine: RemoteMachine) -> str | None:
            try:
                machine.close()
            except FabricError as error:
                return str(error)
            return None

        errors = [error for error in self._on_machines(close).values() if error is not None]
        for machine in self.lost:
            self._print_line(self._clean(machine))
        if errors:
            raise FabricError("; ".join(errors))

    def _clean(self, machine: RemoteMachine) -> str:
        """Clean up a lost machine's part; return the outcome in words."""
        subject = f"machine {machine.name} ({self.placement.describe(machine.name)})"
        try:
            outcome = machine.clean(GONE_S)
        except FabricError as error:
            return f"{subject} cannot be asked ({error}): if it is on, it removes its part by itself within 15 s"
        return f"{subject}: {outcome}"

    def close(self) -> None:
        """All is closed with Mininet."""
