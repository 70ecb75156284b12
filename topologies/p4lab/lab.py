"""A P4 lab in Mininet: switches of one daemon, hosts with Linux's own stack, programs loaded.

::

    with P4Lab(pair_topology(), LabPrograms(program)) as lab:
        lab.mininet.pingAll()
        lab.running.reload()

Everything is checked and compiled before anything is made. `close` removes all; what a `kill -9` leaves, the next start
removes, as for a fabric (ipc/rundir.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from finsy.proto import p4r

from mrc_testbed.files.whole_files import write_whole
from mrc_testbed.ipc.processes import Processes
from mrc_testbed.ipc.rpc import JsonlClient
from mrc_testbed.ipc.rundir import SWITCHD, FabricError, RunDir, remove_run
from mrc_testbed.ipc.signals import terminating
from mrc_testbed.switch.compiler import CompiledProgram
from mrc_testbed.switch.device.native import build_ahead
from mrc_testbed.topologies.lab import netdev, preflight
from mrc_testbed.topologies.lab.netdev import IFF_UP, NetDevices, VethEnd
from mrc_testbed.topologies.lab.nodes import FabricHost, FabricMininet, LabSwitchNode
from mrc_testbed.topologies.lab.targets import answers, unix_address
from mrc_testbed.topologies.lab.traffic_control import Setting
from mrc_testbed.topologies.lab.traffic_control_gnmi import set_settings
from mrc_testbed.topologies.p4lab.entries import read_entries
from mrc_testbed.topologies.p4lab.switch_programs import SwitchPrograms
from mrc_testbed.topologies.p4lab.topology import LabEnd, LabHost, LabSwitch, LabTopology

HOST_INTERFACE = "eth0"
HOST_MTU = 1500
FIRST_PORT = 50051
"""TCP port of the first switch's P4Runtime, as in the P4 tutorials; the next one has the next."""
LOOPBACK = "127.0.0.1"
QUEUE_PACKETS = 100
"""Packets that wait for a link with a rate."""


@dataclass(frozen=True, slots=True)
class LabPrograms:
    """Programs and entries of a lab, and who may connect."""

    program: Path | None = None
    """Program of each switch whose topology names none."""
    entries: Mapping[str, Path] = field(default_factory=dict)
    """Files of entries by switch, in place of those that the topology names."""
    first_port: int = FIRST_PORT
    open_to_all: bool = False
    """Any user of the machine may connect by TCP, without the run's token (docs/security.md)."""


class P4Lab:
    """A running lab: `start` and `close`, or a `with` block.

    Raises UsageError and FabricError with what is wrong, before anything is made where that can be known.
    """

    def __init__(
        self,
        topology: LabTopology,
        programs: LabPrograms,
        run_dir: Path | None = None,
        *,
        progress: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.topology, self.programs = topology, programs
        self.run_dir = RunDir(run_dir)
        self.processes = Processes(self.run_dir)
        self.mininet: FabricMininet | None = None
        self.notices: list[str] = []
        """Lines about the start that a user should read."""
        self._progress = progress
        self._devices: NetDevices | None = None
        self._control = JsonlClient(self.run_dir.switchd_socket, name=SWITCHD)
        self._stack = ExitStack()
        self.running = SwitchPrograms(
            self.run_dir.p4runtime_socket,
            {switch.name: switch.device_id for switch in topology.switches},
            {switch.name: self._source_of(switch) for switch in topology.switches},
        )
        """Programs of the switches, to be swapped under traffic."""

    def _source_of(self, switch: LabSwitch) -> Path:
        source = switch.program or self.programs.program
        if source is None:
            raise FabricError(f"switch {switch.name} has no program. Cure: give a .p4 file")
        return source

    # ---- life -------------------------------------------------------------------------------------------

    def __enter__(self) -> P4Lab:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Bring everything up; returns when every switch has its program and its entries."""
        preflight.check_root()
        preflight.check_tools()
        preflight.check_namespaces()
        self._progress("compiling")
        build_ahead()  # the daemon's runtime, while the programs are compiled
        programs, updates = self._read_programs()
        # From here on things are made, which `close` removes in the opposite order.
        self._stack.enter_context(terminating())
        self._stack.enter_context(self.run_dir)
        if leftovers := self.run_dir.clean_leftovers():
            self._progress(f"removed {len(leftovers)} leftovers of a killed run")
        self._stack.callback(self._remove)
        preflight.check_tcp_ports({port: f"P4Runtime of {name}" for name, port in self.tcp_ports.items()})
        preflight.check_interfaces(self._interfaces())
        self.run_dir.begin()
        address = unix_address(self.run_dir.p4runtime_socket)
        rows = {s.name: {"address": address, "device_id": s.device_id, "foreign": True} for s in self.topology.switches}
        self.run_dir.write_json(self.run_dir.switches_file, rows)  # for `mrc shell`
        self._launch()
        self._progress("making the network")
        self._make_network()
        self._progress("starting switches")
        self.processes.wait_ready({SWITCHD: answers(self._control, "devices")})
        for switch in self.topology.switches:
            ports = {str(number): name for number, name in self.topology.ports(switch.name).items()}
            self._control.request("add_device", name=switch.name, device_id=switch.device_id, ports=ports)
        self._set_links()
        for name, program in programs.items():
            self.running.load(name, program, updates[name])
        self._set_hosts_up()
        self.run_dir.save_as_up()

    def close(self) -> None:
        """Remove everything that the lab made. Idempotent."""
        self._stack.close()

    def _remove(self) -> None:
        if self.mininet is not None:
            self.mininet.stop()
            self.mininet = None
        if self._devices is not None:
            self._devices.close()
        self._control.close()
        self.processes.stop()
        remove_run(self.run_dir.state)
        self.run_dir.remove_files()

    def check(self) -> None:
        """Raise ProcessError when the switches' daemon has died."""
        self.processes.check()

    # ---- programs ---------------------------------------------------------------------------------------

    def _read_programs(self) -> tuple[dict[str, CompiledProgram], dict[str, list[p4r.Update]]]:
        """Compile all programs and read all entries. Raises UsageError."""
        programs = self.running.compile([switch.name for switch in self.topology.switches])
        updates: dict[str, list[p4r.Update]] = {}
        for switch in self.topology.switches:
            path = self.programs.entries.get(switch.name, switch.entries)
            updates[switch.name] = read_entries(path, programs[switch.name].p4info) if path else []
        return programs, updates

    # ---- switches ---------------------------------------------------------------------------------------

    @property
    def tcp_ports(self) -> dict[str, int]:
        """TCP port of P4Runtime by switch; every port serves all switches."""
        return {switch.name: self.programs.first_port + switch.device_id for switch in self.topology.switches}

    def _launch(self) -> None:
        """Start the daemon: P4Runtime by TCP for others and by Unix socket for us, gNMI by Unix socket alone."""
        ports = list(self.tcp_ports.values())
        files = self.run_dir
        token = [] if self.programs.open_to_all else ["--token-file", str(files.token_file)]
        self.processes.spawn_module(
            SWITCHD,
            "mrc_testbed.switch.server",
            *("--control", str(files.switchd_socket)),
            *("--p4runtime", f"{LOOPBACK}:{ports[0]}-{ports[-1]},unix:{files.p4runtime_socket}"),
            *("--gnmi", f"unix:{files.gnmi_socket}"),
            *token,
        )

    # ---- network ----------------------------------------------------------------------------------------

    def _interfaces(self) -> list[str]:
        return [end.interface for link in self.topology.links for end in link.ends if not end.is_host]

    def _make_network(self) -> None:
        state = self.run_dir.state
        net = self.mininet = FabricMininet(self.link)
        self._devices = NetDevices()
        names = self.run_dir.names_file
        lines = [f"{host.address.ip} {host.name}" for host in self.topology.hosts]
        write_whole(names, "\n".join((*lines, "127.0.0.1 localhost", "")).encode())
        for host in self.topology.hosts:
            net.addHost(
                host.name,
                cls=FabricHost,
                token=state.token,
                run_dir=str(self.run_dir.path),
                ip=str(host.address.ip),
                names_file=str(names),
            )
        for switch in self.topology.switches:
            net.addSwitch(switch.name, cls=LabSwitchNode, token=state.token, devices=self._devices)
        state.interfaces = self._interfaces()  # before they exist, so that a killed start leaves a list
        self.run_dir.save()
        self._make_links(net)
        net.build()

    def _make_links(self, net: FabricMininet) -> None:
        """Make a veth pair for each link; a host's end is `eth0` in its namespace."""
        hosts = {host.name: host for host in self.topology.hosts}

        def veth_end(end: LabEnd) -> VethEnd:
            if not end.is_host:
                return VethEnd(end.interface)
            return VethEnd(HOST_INTERFACE, hosts[end.node].mac, net[end.node].namespace_pid)

        pairs = [(veth_end(link.ends[1]), veth_end(link.ends[0])) for link in self.topology.links]
        netdev.create_pairs(pairs, self.run_dir.state.group)
        for link in self.topology.links:
            first, second = link.ends
            net.addLink(
                net[first.node],
                net[second.node],
                port1=first.port,
                port2=second.port,
                intfName1=HOST_INTERFACE if first.is_host else first.interface,
                intfName2=second.interface,
                addr1=hosts[first.node].mac if first.is_host else None,
            )
            for end in link.ends:
                self._prepare(net, end)

    @staticmethod
    def _prepare(net: FabricMininet, end: LabEnd) -> None:
        """Let an interface send frames as they are, and set a switch's up; a host's comes up with its address."""
        devices, name = net[end.node].devices, HOST_INTERFACE if end.is_host else end.interface
        if not end.is_host:
            devices.quiet(name)
            netdev.forbid_ipv6(name)
        devices.offloads_off(name, in_pieces=True)
        if not end.is_host:
            devices.set_flags(name, on=IFF_UP)

    def _set_links(self) -> None:
        """Give links their rates and delays, at the switches that send over them."""
        settings = []
        for link in self.topology.links:
            for end, peer in (link.ends, link.ends[::-1]):
                if end.is_host:
                    continue
                delay = round(link.delay_s * 1e6)
                settings += [Setting(end.interface, "delay-us", delay, direction="output")] if delay else []
                if delay and peer.is_host:  # a host has no queue of ours: its packets wait where they come in
                    settings.append(Setting(end.interface, "delay-us", delay, direction="input"))
                if link.rate_bps is not None:
                    settings.append(Setting(end.interface, "rate-bps", round(link.rate_bps)))
                    settings.append(Setting(end.interface, "max-packets", QUEUE_PACKETS, priority=0))
        if settings:
            set_settings(unix_address(self.run_dir.gnmi_socket), settings)

    def _set_hosts_up(self) -> None:
        assert self.mininet is not None
        for host in self.topology.hosts:
            self._set_host_up(host)

    def _set_host_up(self, host: LabHost) -> None:
        """Give a host its address and run its commands; what they say is a notice."""
        assert self.mininet is not None
        node = self.mininet[host.name]
        node.cmd(f"ip addr add {host.address} dev {HOST_INTERFACE}; ip link set {HOST_INTERFACE} mtu {HOST_MTU} up")
        for command in host.commands:
            output = " ".join(str(node.cmd(command)).split())
            if output:
                hint = ". Cure: apt-get install net-tools" if "command not found" in output else ""
                self.notices.append(f"{host.name}: {command}: {output}{hint}")

    def link(self, first: str, second: str, is_up: bool) -> None:
        """Cut or restore the links between two nodes, as Mininet's `link s1 s2 down`. Raises FabricError."""
        assert self.mininet is not None
        links = [link for link in self.topology.links if {end.node for end in link.ends} == {first, second}]
        if not links:
            raise FabricError(f"no link {first} {second}. Cure: `links` lists them")
        for end in (end for link in links for end in link.ends if not end.is_host):
            self.mininet[end.node].devices.set_flags(
                end.interface, on=IFF_UP if is_up else 0, clear=0 if is_up else IFF_UP
            )
