"""Topology of a P4 lab: hosts, switches, links; the form is the P4 tutorials' topology.json."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.plan import CPU_PORT, INTERFACE_NAME_MAX, Plan

NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,7}")
"""Form of a node's name: with its port it makes the name of an interface."""
MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
PORT = re.compile(r"([A-Za-z][A-Za-z0-9]*)-p([0-9]{1,3})")
LATENCY = re.compile(r"([0-9.]+) ?(us|ms|s)?")
LATENCY_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, None: 1e-3}
"""Seconds of a unit; a number alone is in milliseconds, as in the tutorials."""
LINK_EXAMPLE = '["h1", "s1-p1"] or ["s1-p2", "s2-p2", "5ms", 10]'


class TopologyError(UsageError):
    """A topology that cannot be built; the message lists every mistake, with its cure."""


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host with one interface, `eth0`."""

    name: str
    address: ipaddress.IPv4Interface
    mac: str
    commands: tuple[str, ...] = ()
    """Shell commands that are run in the host once it is up."""


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """A switch, its program and its entries."""

    name: str
    device_id: int
    program: Path | None = None
    """None: the program of all switches."""
    entries: Path | None = None


@dataclass(frozen=True, slots=True)
class LabEnd:
    """An end of a link: a host, or a port of a switch."""

    node: str
    port: int | None = None
    """Number of a switch's port; None: a host's only one."""

    @property
    def is_host(self) -> bool:
        return self.port is None

    @property
    def interface(self) -> str:
        """Name of a switch's interface, `s1-eth2`."""
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True, slots=True)
class LabLink:
    """A link; the first end may be a host's."""

    ends: tuple[LabEnd, LabEnd]
    delay_s: float = 0.0
    rate_bps: float | None = None


@dataclass(frozen=True, slots=True)
class LabTopology:
    """Hosts, switches and links of a P4 lab."""

    hosts: tuple[LabHost, ...]
    switches: tuple[LabSwitch, ...]
    links: tuple[LabLink, ...]
    sources: tuple[Path, ...] = field(default=())
    """Folders in which the files that it names are looked for."""

    def ports(self, switch: str) -> dict[int, str]:
        """Return the ports of a switch: number and interface."""
        ends = [end for link in self.links for end in link.ends if end.node == switch]
        return dict(sorted((end.port, end.interface) for end in ends if end.port is not None))

    def __str__(self) -> str:
        return f"{_count(self.switches, 'switch', 'es')}, {_count(self.hosts, 'host')}, {_count(self.links, 'link')}"


def _count(items: tuple[Any, ...], noun: str, plural: str = "s") -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else plural}"


def pair_topology() -> LabTopology:
    """Return the topology of `mrc p4 run` without a file: h1 and h2 at ports 1 and 2 of s1.

    The hosts are in one subnet and know each other's MAC addresses, so that a program without ARP can be tried.
    """
    names = ("h1", "h2")
    macs = [f"08:00:00:00:0{number}:{number}{number}" for number in (1, 2)]
    hosts = tuple(
        LabHost(
            name,
            ipaddress.IPv4Interface(f"10.0.0.{number}/24"),
            macs[number - 1],
            (f"ip neigh replace 10.0.0.{3 - number} lladdr {macs[2 - number]} dev eth0 nud permanent",),
        )
        for number, name in enumerate(names, 1)
    )
    links = tuple(LabLink((LabEnd(name), LabEnd("s1", number))) for number, name in enumerate(names, 1))
    return LabTopology(hosts, (LabSwitch("s1", 0),), links)


def plan_topology(plan: Plan, programs: Mapping[str, Path] | None = None) -> LabTopology:
    """Return the nodes and links of a plan with one plane, its hosts in one subnet. Raises TopologyError.

    Links have the rates and delays of the plan; `programs`: those of switches with one of their own.
    """
    if plan.planes != 1:
        raise TopologyError(
            f"{plan.planes} planes: a program without the tables of `srv6` or `spray` runs in one. Cure: --planes 1"
        )
    macs = {port.node: plan.mac(port) for link in plan.links for port in (link.lower, link.upper)}
    hosts = tuple(
        LabHost(host.name, ipaddress.IPv4Interface(f"10.0.{number // 250}.{number % 250 + 1}/16"), macs[host.name])
        for number, host in enumerate(plan.hosts)
    )
    links = tuple(
        LabLink(
            (
                LabEnd(link.lower.node, None if link.is_nic else link.lower.number),
                LabEnd(link.upper.node, link.upper.number),
            ),
            plan.speed(link).delay_s,
            plan.speed(link).rate_bps,
        )
        for link in plan.links
    )
    own_programs = programs or {}
    switches = tuple(LabSwitch(s.name, s.device_id, own_programs.get(s.name)) for s in plan.switches)
    return LabTopology(hosts, switches, links)


def read_topology(path: Path) -> LabTopology:
    """Read a tutorial's topology.json. Raises TopologyError with all mistakes."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}. Cure: give a topology.json of the P4 tutorials' form") from None
    except json.JSONDecodeError as error:
        raise TopologyError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"{path}: not JSON: {error}") from None
    reader = _Reader(path)
    topology = reader.read(data)
    if reader.mistakes:
        raise TopologyError("\n".join(f"{path}: {mistake}" for mistake in reader.mistakes))
    return topology


class _Reader:
    """Reader of one file: what it holds, and every mistake on the way."""

    def __init__(self, path: Path) -> None:
        folder = path.absolute().parent
        self.sources = (folder, folder.parent, Path.cwd())  # pod-topo/topology.json names pod-topo/s1-runtime.json
        self.mistakes: list[str] = []

    def read(self, data: Any) -> LabTopology:
        """Read the whole file."""
        if not isinstance(data, dict):
            self.mistakes.append("wants an object with hosts, switches and links")
            return LabTopology((), (), ())
        host_records, switch_records = self._objects(data, "hosts"), self._objects(data, "switches")
        hosts = [self._host(name, record) for name, record in host_records.items()]
        switches = [self._switch(name, number, record) for number, (name, record) in enumerate(switch_records.items())]
        if not switches:
            self.mistakes.append('switches: there is none. Cure: name one, as in "switches": {"s1": {}}')
        links = [self._link(index, record, host_records, switch_records) for index, record in self._links(data)]
        topology = LabTopology(
            tuple(host for host in hosts if host), tuple(switches), tuple(link for link in links if link), self.sources
        )
        self._check_ends(topology)
        return topology

    def _objects(self, data: dict[str, Any], key: str) -> dict[str, Any]:
        records = data.get(key, {})
        if not isinstance(records, dict):
            self.mistakes.append(f'{key} = {records!r}: wants an object by name, as in {{"{key[0]}1": {{}}}}')
            return {}
        for name, record in records.items():
            if not NAME.fullmatch(name):
                self.mistakes.append(f"{key}: {name!r}: wants a letter, then letters and digits, 8 in all at most")
            if not isinstance(record, dict):
                self.mistakes.append(f"{key}.{name} = {record!r}: wants an object")
        return {name: record for name, record in records.items() if isinstance(record, dict)}

    def _host(self, name: str, record: dict[str, Any]) -> LabHost | None:
        address, mac, commands = record.get("ip"), record.get("mac"), record.get("commands", [])
        count = len(self.mistakes)
        try:
            interface = ipaddress.IPv4Interface(address if isinstance(address, str) else "")
        except ValueError:
            self.mistakes.append(f'hosts.{name}.ip = {address!r}: wants an IPv4 address, as in "10.0.1.1/24"')
        if not isinstance(mac, str) or not MAC.fullmatch(mac):
            self.mistakes.append(f'hosts.{name}.mac = {mac!r}: wants a MAC address, as in "08:00:00:00:01:11"')
        if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
            self.mistakes.append(f"hosts.{name}.commands = {commands!r}: wants a list of shell commands")
        return LabHost(name, interface, str(mac), tuple(commands)) if count == len(self.mistakes) else None

    def _switch(self, name: str, number: int, record: dict[str, Any]) -> LabSwitch:
        if "cli_input" in record:
            cure = "write the entries as runtime_json, which goes through P4Runtime"
            self.mistakes.append(
                f"switches.{name}.cli_input: commands of simple_switch_CLI have no reader here. Cure: {cure}"
            )
        entries = self._file(f"switches.{name}.runtime_json", record.get("runtime_json"))
        program = record.get("program")
        if isinstance(program, str) and program.endswith(".json"):
            program = f"{Path(program).stem}.p4"  # what p4c would have made of it
        return LabSwitch(name, number, self._file(f"switches.{name}.program", program), entries)

    def _file(self, key: str, text: Any) -> Path | None:
        if text is None:
            return None
        if not isinstance(text, str):
            self.mistakes.append(f"{key} = {text!r}: wants the path of a file")
            return None
        path = next((folder / text for folder in self.sources if (folder / text).is_file()), None)
        if path is None:
            self.mistakes.append(f"{key}: no file {text!r} in {self.sources[0]}, the folder above, or the current one")
        return path

    def _links(self, data: dict[str, Any]) -> list[tuple[int, Any]]:
        links = data.get("links", [])
        if not isinstance(links, list):
            self.mistakes.append(f"links = {links!r}: wants a list of {LINK_EXAMPLE}")
            return []
        return list(enumerate(links))

    def _link(self, index: int, record: Any, hosts: dict[str, Any], switches: dict[str, Any]) -> LabLink | None:
        key = f"links[{index}]"
        if not isinstance(record, list) or not 2 <= len(record) <= 4:
            self.mistakes.append(f"{key} = {record!r}: wants {LINK_EXAMPLE}")
            return None
        ends = [self._end(key, text, hosts, switches) for text in record[:2]]
        delay_s = self._delay(key, record[2] if len(record) > 2 else 0)
        rate = record[3] if len(record) > 3 else None
        if rate is not None and (not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0):
            self.mistakes.append(f"{key}: rate {rate!r}: wants Mb/s as a number above 0")
            return None
        if ends[0] is None or ends[1] is None:
            return None
        if ends[0].is_host and ends[1].is_host:
            self.mistakes.append(f"{key} = {record!r}: joins two hosts. Cure: give a host's link a port of a switch")
            return None
        first, second = sorted((ends[0], ends[1]), key=lambda end: not end.is_host)
        return LabLink((first, second), delay_s, None if rate is None else rate * 1e6)

    def _end(self, key: str, text: Any, hosts: dict[str, Any], switches: dict[str, Any]) -> LabEnd | None:
        match = PORT.fullmatch(text) if isinstance(text, str) else None
        if match and match[1] in switches and int(match[2]) < CPU_PORT:
            return LabEnd(match[1], int(match[2]))
        if text in hosts:
            return LabEnd(str(text))
        names = ", ".join([*list(hosts)[:3], *(f"{name}-p1" for name in list(switches)[:2])])
        self.mistakes.append(
            f"{key}: {text!r} is no host and no port 0 to {CPU_PORT - 1} of a switch (want such as {names})"
        )
        return None

    def _delay(self, key: str, latency: Any) -> float:
        match = LATENCY.fullmatch(str(latency)) if not isinstance(latency, bool) else None
        try:
            return float(match[1]) * LATENCY_UNITS[match[2]] if match else self._no_delay(key, latency)
        except ValueError:
            return self._no_delay(key, latency)

    def _no_delay(self, key: str, latency: Any) -> float:
        self.mistakes.append(f'{key}: delay {latency!r}: wants milliseconds or a text as "5ms"')
        return 0.0

    def _check_ends(self, topology: LabTopology) -> None:
        """Note ends that two links have, hosts without a link, and names of interfaces that are too long."""
        counts = Counter(end for link in topology.links for end in link.ends)
        for end, count in counts.items():
            if count > 1:
                name = end.node if end.is_host else f"{end.node}-p{end.port}"
                self.mistakes.append(f"links: {name} is an end of {count} links. Cure: one link for each port and host")
            if not end.is_host and len(end.interface) > INTERFACE_NAME_MAX:
                self.mistakes.append(f"links: {end.interface} is longer than {INTERFACE_NAME_MAX} characters")
        for host in topology.hosts:
            if LabEnd(host.name) not in counts:
                self.mistakes.append(f'links: host {host.name} has none. Cure: add ["{host.name}", "s1-p1"]')
        shared_names = set(host.name for host in topology.hosts) & set(switch.name for switch in topology.switches)
        self.mistakes += [f"{name} is a host and a switch. Cure: rename one of them" for name in sorted(shared_names)]
