"""The two kinds of switch behind one interface: our embedded one and BMv2's simple_switch_grpc.

A *target* starts what its switches share and makes `FabricSwitch`es, Mininet nodes in the root namespace with an
`address` (P4Runtime), a `device_id`, `start`, `stop` and `power`.

    embedded   one daemon for all switches, `python -m mrc_testbed.switch.server`; a switch is a device id in it
    bmv2       one `simple_switch_grpc` process for each, and `python -m mrc_testbed.switch.server.portstate` for gNMI
"""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mrc_testbed.ipc.controller_client import Northbound
from mrc_testbed.ipc.patience import AnswerLimit, gets_on
from mrc_testbed.ipc.processes import Probe, ProcessError, Processes
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError, JsonlPeerError, JsonlTimeoutError
from mrc_testbed.ipc.rundir import SWITCHD, FabricError, RunDir
from mrc_testbed.topologies import plan
from mrc_testbed.topologies.lab.cables import Cables
from mrc_testbed.topologies.lab.mininet import Node, Switch
from mrc_testbed.topologies.lab.nodes import FabricNode, LateShell
from mrc_testbed.topologies.lab.options import BMV2, EMBEDDED, Ports
from mrc_testbed.topologies.lab.traffic_control import TrafficControl
from mrc_testbed.topologies.plan import CPU_PORT, Plan

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.switch_counters import Counts, P4RuntimeCounts  # gRPC takes a while to load
    from mrc_testbed.topologies.lab.traffic_control_thrift import ThriftTraffic

LOOPBACK = "127.0.0.1"
PORTSTATE = "portstate"
ANSWER_S, ANSWER_MAX_S = 1.0, 20.0
"""First and last limit of an answer that tells whether a process is ready, seconds."""
PRIORITY_QUEUES = 8
"""BMv2 drops packets whose priority is at or above this number (docs/design/bmv2.md)."""
CERTIFICATE_DAYS = 30
"""Validity in days of a certificate that a run makes for itself."""
BMV2_PARSER_ERROR = "Target parser returned an error"
"""Output of simple_switch_grpc when it did not understand the arguments after `--`; it runs on."""


class FabricSwitch(LateShell, FabricNode, Switch):
    """A P4 switch of the fabric: a Mininet switch in the root namespace."""

    def __init__(
        self, name: str, *, device: plan.Switch, target: Target, interfaces: dict[int, str], **params: Any
    ) -> None:
        params.pop("inNamespace", None)
        FabricNode.__init__(self, name, inNamespace=False, **params)
        self.dpid = f"{device.device_id:016x}"
        self.opts, self.listenPort, self.controlIntf = "", None, None
        self.device_id = device.device_id
        self.target = target
        self.interfaces = interfaces
        """Port number -> interface name."""
        self.is_powered = False

    @property
    def address(self) -> str:
        """Address of its P4Runtime server."""
        return self.target.address(self.device_id)

    def start(self, _controllers: object = ()) -> None:
        """Make the device; the target's probes tell when it is ready. Raises FabricError."""
        self.target.start(self)
        self.is_powered = True

    def stop(self, deleteIntfs: bool = True) -> None:
        """Part of Mininet's stop, when the processes have been ended already: nothing is left to do."""

    def power(self, on: bool) -> None:
        """Stop the device, which loses its state, or start it empty. Interfaces are the fabric's business."""
        if on != self.is_powered:
            self.target.power(self, on)
            self.is_powered = on

    def defaultIntf(self) -> Any:
        return Node.defaultIntf(self)


class EmbeddedSwitch(FabricSwitch):
    """A device of the embedded daemon."""


class BMv2Switch(FabricSwitch):
    """A simple_switch_grpc process."""


class Target(abc.ABC):
    """All switches of one kind: how they are started, reached, powered and counted."""

    name: str
    switch_class: type[FabricSwitch]
    cables: Cables | None = None
    """Cables, where a port must never go down itself; None: plain veth pairs, cut at their ends."""

    can_delay = True
    """Whether links have the delays of the plan, and serialise each packet."""
    tells_watch_ports = True
    """Whether P4Runtime reads members of a group back with the watch ports that were written."""
    shares_wires = False
    """Whether hosts' processes may share memory with the ports of their switches."""

    def __init__(self, run_dir: RunDir, processes: Processes, ports: Ports, fabric: Plan) -> None:
        self.run_dir = run_dir
        self.processes = processes
        self.ports = ports
        self.plan = fabric

    @property
    def gnmi(self) -> str:
        """Address of the gNMI server of all switches of a machine, as gRPC takes it."""
        if self.ports.open_to_all and not self.ports.tls:
            return f"{LOOPBACK}:{self.ports.gnmi}"
        return unix_address(self.run_dir.gnmi_socket)

    def gnmi_of(self, device_id: int) -> str:  # noqa: ARG002 - one server has all
        """Address of the gNMI server of a device."""
        return self.gnmi

    def serve_gnmi(self) -> list[str]:
        """Options of a server of ours for where its gNMI listens, and what it wants of clients by TCP."""
        token = [] if self.ports.open_to_all else ["--token-file", str(self.run_dir.token_file)]
        return ["--gnmi", f"{LOOPBACK}:{self.ports.gnmi},unix:{self.run_dir.gnmi_socket}", *token]

    def certificate(self) -> tuple[Path, Path]:
        """Return the run's certificate and its key, made when there is none yet. Raises FabricError."""
        files = self.run_dir
        if not files.certificate.exists():
            make_certificate(files.certificate, files.certificate_key)
        return files.certificate, files.certificate_key

    @abc.abstractmethod
    def check(self) -> None:
        """Raises FabricError when the machine lacks what this target needs."""

    @abc.abstractmethod
    def tcp_ports(self) -> dict[int, str]:
        """Every TCP port that will be listened on, and what for."""

    @abc.abstractmethod
    def address(self, device_id: int) -> str:
        """Address of the P4Runtime server of a device, as gRPC takes it."""

    @abc.abstractmethod
    def launch(self) -> dict[str, Probe]:
        """Start the shared processes, before there are interfaces; returns probes of those to wait for."""

    @abc.abstractmethod
    def start(self, switch: FabricSwitch) -> None:
        """Make the device of a switch, when its interfaces exist."""

    @abc.abstractmethod
    def probes(self) -> dict[str, Probe]:
        """Probes of the processes that `start` began."""

    @abc.abstractmethod
    def power(self, switch: FabricSwitch, on: bool) -> None:
        """Stop or start a device."""

    @abc.abstractmethod
    def loses(self, part: str) -> str | None:
        """Describe what no longer works without a process of this target; None for another's."""

    @abc.abstractmethod
    def restart(self, part: str) -> list[FabricSwitch]:
        """Start a process of this target again, which died, up to where it answers.

        Returns the switches that have to be made again. Raises ProcessError when it dies again.
        """

    def works(self) -> bool:
        """Whether a process that all switches share gets on; False where there is none."""
        return False

    @abc.abstractmethod
    def traffic(self) -> TrafficControl:
        """Traffic control of the switches; connects when first used."""

    @abc.abstractmethod
    def counts(self, cells: Mapping[str, Sequence[int]], depths: Sequence[str] = ()) -> Counts:
        """Counters of switches (topologies/lab/switch_counters.py). Raises FabricError."""

    def lost_inside(self) -> dict[str, int] | None:
        """Return packets that a switch took in and neither sent nor dropped by its program, by switch.

        None where `counts` covers all queues. For a fabric at rest: what waits counts, too. Raises FabricError.
        """
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of connections. Idempotent."""


class EmbeddedTarget(Target):
    """All switches in one daemon, steered through its control socket."""

    name = EMBEDDED
    switch_class = EmbeddedSwitch

    def __init__(self, run_dir: RunDir, processes: Processes, ports: Ports, fabric: Plan) -> None:
        super().__init__(run_dir, processes, ports, fabric)
        self.daemon = SWITCHD
        """Name of the daemon's process."""
        self.client = JsonlClient(run_dir.switchd_socket, name=SWITCHD, works=self.works)
        self._switches: dict[str, FabricSwitch] = {}
        self._counts_client = JsonlClient(run_dir.switchd_socket, name=SWITCHD)
        """Client for counts, so that they and calls that switch devices on or off do not wait for each other."""

    def works(self) -> bool:
        return self.daemon in self.processes and gets_on(self.processes[self.daemon].work)

    def check(self) -> None:
        """gcc is the P4 compiler's business, which names it."""

    def tcp_ports(self) -> dict[int, str]:
        return {self.ports.p4runtime: "P4Runtime", self.ports.gnmi: "gNMI"}

    def address(self, _device_id: int) -> str:
        if self.ports.open_to_all and not self.ports.tls:
            return f"{LOOPBACK}:{self.ports.p4runtime}"
        return unix_address(self.run_dir.p4runtime_socket)

    def launch(self) -> dict[str, Probe]:
        files, tls = self.run_dir, []
        if self.ports.tls:
            certificate, key = self.certificate()
            tls = ["--tls-cert", str(certificate), "--tls-key", str(key)]
        self.processes.spawn_module(
            SWITCHD,
            "mrc_testbed.switch.server",
            *("--control", str(files.switchd_socket)),
            *("--p4runtime", f"{LOOPBACK}:{self.ports.p4runtime},unix:{files.p4runtime_socket}"),
            *self.serve_gnmi(),
            *tls,
            *(("--shared-wires", str(files.shared_wires_socket)) if self.shares_wires else ()),
        )
        return {SWITCHD: answers(self.client, "devices")}

    def start(self, switch: FabricSwitch) -> None:
        ports = {str(number): interface for number, interface in switch.interfaces.items()}
        self._request("add_device", name=switch.name, device_id=switch.device_id, ports=ports)
        self._switches[switch.name] = switch

    def probes(self) -> dict[str, Probe]:
        return {}

    def power(self, switch: FabricSwitch, on: bool) -> None:
        self._request("power", name=switch.name, on=on, keep_links=True)

    def loses(self, part: str) -> str | None:
        if part != SWITCHD:
            return None
        return "no switch forwards: no packet arrives, P4Runtime, gNMI and the links between switches are gone"

    def restart(self, part: str) -> list[FabricSwitch]:  # noqa: ARG002 - it has one process
        self.processes.wait_ready(self.launch(), only_these=True)
        return list(self._switches.values())

    def traffic(self) -> TrafficControl:
        from mrc_testbed.topologies.lab.traffic_control_gnmi import (
            GnmiTraffic,  # gRPC takes a while to load, and not every fabric needs it
        )

        return GnmiTraffic(self.plan, self.gnmi)

    def counts(self, cells: Mapping[str, Sequence[int]], depths: Sequence[str] = ()) -> Counts:
        from mrc_testbed.topologies.lab.switch_counters import read_embedded

        return read_embedded(self._counts_client, cells, depths)

    def close(self) -> None:
        self.client.close()
        self._counts_client.close()

    def _request(self, op: str, **fields: Any) -> None:
        try:
            self.client.request(op, **fields)
        except JsonlError:
            self.processes.check()  # when the daemon died, its log says more than the broken connection
            raise


class Bmv2Target(Target):
    """One simple_switch_grpc for each switch, as installed by the P4 project's packages."""

    name = BMV2
    switch_class = BMv2Switch
    executable = "simple_switch_grpc"
    can_delay = False  # what waits for its rate makes up for it: hosts and thresholds keep to the plan's round trip
    tells_watch_ports = False  # PI gives every member that of the last one

    def __init__(self, run_dir: RunDir, processes: Processes, ports: Ports, fabric: Plan) -> None:
        super().__init__(run_dir, processes, ports, fabric)
        self.cables: Cables = Cables(fabric)
        self._switches: dict[str, FabricSwitch] = {}
        self._came_before: dict[str, int] = {}
        """Packets that had come to a switch when it was started last: its own counters begin anew."""
        self._counting: P4RuntimeCounts | None = None

    def check(self) -> None:
        if self.ports.tls:
            raise FabricError(
                f"--tls with --target bmv2: {self.executable}'s P4Runtime is started without TLS: leave out --tls"
            )
        missing_tools = [tool for tool in (self.executable, "p4c-bm2-ss") if shutil.which(tool) is None]
        if missing_tools:
            raise FabricError(
                f"--target bmv2 needs {' and '.join(missing_tools)} on PATH: install BMv2 and p4c (packages "
                "p4lang-bmv2 and p4lang-p4c of the P4 project, or from source), or use --target embedded, "
                "which needs neither"
            )

    def tcp_ports(self) -> dict[int, str]:
        out = {self.ports.gnmi: "gNMI"}
        for switch in self.plan.switches:
            out[self.ports.p4runtime + switch.device_id - 1] = "P4Runtime"
            out[self.thrift_address(switch.device_id)[1]] = "Thrift"
        return out

    def address(self, device_id: int) -> str:
        return f"{LOOPBACK}:{self.ports.p4runtime + device_id - 1}"

    def launch(self) -> dict[str, Probe]:
        self.run_dir.write_json(self.run_dir.devices_file, [self._device(switch) for switch in self.plan.switches])
        devices = str(self.run_dir.devices_file)
        self.processes.spawn_module(
            PORTSTATE, "mrc_testbed.switch.server.portstate", *self.serve_gnmi(), "--interfaces-from", devices
        )
        return {PORTSTATE: accepts(f"{LOOPBACK}:{self.ports.gnmi}")}

    def _device(self, switch: plan.Switch) -> dict[str, Any]:
        ports = {str(port.number): port.interface for port in self.plan.ports(switch.name)}
        return {"name": switch.name, "device_id": switch.device_id, "ports": ports}

    def command(self, switch: FabricSwitch) -> list[str]:
        """Command line of a switch. `--thrift-port` stands before `--`, the target's own options after it.

        `--cpu-port` must be given: its default is the drop port. Without a log level each packet's messages are
        formatted for nobody.
        """
        command = [self.executable, "--no-p4", "--log-level", "off"]
        for number, interface in sorted(switch.interfaces.items()):
            command += ["-i", f"{number}@{interface}"]
        command += ["--device-id", str(switch.device_id)]
        command += ["--thrift-port", str(self.thrift_address(switch.device_id)[1]), "--"]
        command += ["--grpc-server-addr", switch.address, "--cpu-port", str(CPU_PORT)]
        return [*command, "--priority-queues", str(PRIORITY_QUEUES)]

    def start(self, switch: FabricSwitch) -> None:
        self._came_before[switch.name] = self.cables.came_to(switch.name)
        child = self.processes.spawn(switch.name, self.command(switch))
        if self.plan.limited:  # as embedded switches that keep to rates: what other work does is not the network's
            priority = os.sched_param(os.sched_get_priority_min(os.SCHED_RR) + 1)
            with contextlib.suppress(OSError):  # not allowed in some containers: then as ever; or it has ended
                os.sched_setscheduler(child.pid, os.SCHED_RR, priority)
        self._switches[switch.name] = switch

    def probes(self) -> dict[str, Probe]:
        return {name: self._probe(switch) for name, switch in self._switches.items()}

    def _probe(self, switch: FabricSwitch) -> Probe:
        listening = accepts(switch.address)
        child = self.processes[switch.name]

        def probe() -> bool:
            if BMV2_PARSER_ERROR in child.log.read_text(errors="replace"):
                raise ProcessError(
                    f"{switch.name}: this {self.executable} does not know an option we give it; its output:\n"
                    f"{child.tail()}\nwe ran: {' '.join(self.command(switch))}"
                )
            return listening()

        return probe

    def power(self, switch: FabricSwitch, on: bool) -> None:
        if not on:
            self.processes.stop(switch.name)
            return
        self.start(switch)
        self.processes.wait_ready({switch.name: self._probe(switch)}, only_these=True)

    def loses(self, part: str) -> str | None:
        if part == PORTSTATE:
            return "nobody tells the controller the state of ports: a cut is found by probes and hosts alone"
        return f"{part} forwards nothing and has lost its tables" if part in self._switches else None

    def restart(self, part: str) -> list[FabricSwitch]:
        if part == PORTSTATE:
            self.processes.wait_ready(self.launch(), only_these=True)
            return []
        return [self._switches[part]]

    def thrift_address(self, device_id: int) -> tuple[str, int]:
        """(host, TCP port) of a switch's Thrift server."""
        return LOOPBACK, self.ports.thrift + device_id - 1

    @cached_property
    def thrift(self) -> ThriftTraffic:
        """Traffic control over the switches' Thrift servers."""
        from mrc_testbed.topologies.lab.traffic_control_thrift import ThriftTraffic

        return ThriftTraffic(self.plan, self.thrift_address, self.cables)

    def traffic(self) -> TrafficControl:
        return self.thrift

    def counts(self, cells: Mapping[str, Sequence[int]], depths: Sequence[str] = ()) -> Counts:
        return self._counter().read(cells, depths)

    def lost_inside(self) -> dict[str, int]:
        return self._counter().lost_inside(self._came_before)

    def _counter(self) -> P4RuntimeCounts:
        from mrc_testbed.topologies.lab.switch_counters import P4RuntimeCounts

        if self._counting is None:
            self._counting = P4RuntimeCounts(self.plan, self.run_dir, self.cables, self.thrift.depth_packets)
        return self._counting

    def close(self) -> None:
        if self._counting is not None:
            self._counting.close()
            self._counting = None
        self.cables.close()


def unix_address(path: Path) -> str:
    """Return the address of a Unix socket as gRPC takes it."""
    return f"unix:{quote(str(path))}"


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate for this machine's loopback, signed by itself, and its key. Raises FabricError."""
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(CERTIFICATE_DAYS))
    command = ["openssl", "req", "-x509", *kind, "-subj", "/CN=localhost", "-addext", names]
    try:
        process = subprocess.run(
            [*command, "-keyout", str(key), "-out", str(certificate)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise FabricError(f"--tls needs openssl ({error.strerror}): apt-get install openssl") from None
    if process.returncode:
        raise FabricError(f"openssl made no certificate: {process.stderr.strip()[-500:]}")
    key.chmod(0o600)


TARGETS: dict[str, type[Target]] = {cls.name: cls for cls in (EmbeddedTarget, Bmv2Target)}


def answers(client: JsonlClient | Northbound, op: str, ready_field: str | None = None) -> Probe:
    """A probe that is true once `op` is answered, and its field `ready_field` is true when one is named."""
    limit = AnswerLimit(ANSWER_S, ANSWER_MAX_S)

    def probe() -> bool:
        try:
            answer = client.request(op, timeout_s=limit.limit_s)
        except JsonlPeerError:
            raise
        except JsonlTimeoutError:
            limit.miss()
            return False
        except JsonlError:
            return False
        return ready_field is None or bool(answer.get(ready_field))

    return probe


def accepts(address: str) -> Probe:
    """A probe that is true once a TCP connection to host:port is taken."""
    host, _, port = address.rpartition(":")

    def probe() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
        except OSError:
            return False
        return True

    return probe
