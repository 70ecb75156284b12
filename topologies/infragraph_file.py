"""Fabrics as InfraGraph files (Infrastructure of InfraGraph 3.1, YAML or JSON), written and read.

    write(size, Path("fabric.yaml"))
    size = read(Path("fabric.yaml"))    # FabricSize

Written are the devices `host` (an xpu, a NIC for each plane), `t0` and `t1` (an asic, ports), the instances `host`,
`p0-t0`, `p0-t1` ... and slices of links: as many entries as switches, whatever the number of NICs. Read is any file
whose switches form planes of two tiers that are all alike, by whatever names; what does not fit is named. The schema is
small and the library brings a dozen packages along, so it only judges our files in the tests.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mrc_testbed.errors import DISK_FULL_ERRNOS, UsageError
from mrc_testbed.files.whole_files import write_output
from mrc_testbed.topologies.sizing import FabricSize

LINKS_MAX: Final = 1 << 22
"""Links of a file that are looked at: twice those of 131,072 NICs in eight planes."""
_SLICE: Final = re.compile(r"([\w.-]+?)(?:\[([-\d:]*)\])?")
_GBPS: Final = {"gigabits_per_second": 1.0, "gigabytes_per_second": 8.0}

Switch = tuple[str, int]
"""Instance and its index."""


# ---- writing ------------------------------------------------------------------------------------------------


def infrastructure(size: FabricSize, name: str = "mrc") -> dict[str, Any]:
    """Return the fabric as an Infrastructure, a tree of dicts and lists."""
    nics_per_t0, uplinks = size.nics_per_t0, size.uplinks
    links_per_t1 = uplinks // size.t1s if size.t1s else 0  # links of a T0 to each T1
    devices = [
        _device("host", "A host with one GPU and a NIC with a port for each plane", "xpu", "nic", size.planes),
        _device(
            "t0",
            f"Switch of the lower tier: {nics_per_t0} ports down, {uplinks} up",
            "switch",
            "port",
            nics_per_t0 + uplinks,
        ),
    ]
    instances = [{"name": "host", "device": "host", "count": size.nics}]
    edges = []
    if uplinks:
        devices.append(_device("t1", "Switch of the upper tier", "switch", "port", size.t0s * links_per_t1))
    for plane in range(size.planes):
        lower, upper = f"p{plane}-t0", f"p{plane}-t1"
        instances.append({"name": lower, "device": "t0", "count": size.t0s})
        for t0 in range(size.t0s):
            first, end = t0 * nics_per_t0, min((t0 + 1) * nics_per_t0, size.nics)
            edges.append(
                _edge(
                    "nic-t0",
                    ("host", f"{first}:{end}"),
                    ("nic", f"{plane}"),
                    (lower, f"{t0}"),
                    ("port", f"0:{end - first}"),
                )
            )
        if uplinks:
            instances.append({"name": upper, "device": "t1", "count": size.t1s})
        for uplink in range(uplinks):
            first = uplink % links_per_t1 * size.t0s
            ports = f"{first}:{first + size.t0s}"
            edges.append(
                _edge(
                    "t0-t1",
                    (lower, f"0:{size.t0s}"),
                    ("port", f"{nics_per_t0 + uplink}"),
                    (upper, f"{uplink // links_per_t1}"),
                    ("port", ports),
                )
            )
    return {
        "name": name,
        "description": f"{size.nics} NICs in {size.planes} planes of {size.t0s} T0 and {size.t1s} T1",
        "devices": devices,
        "links": [_link("nic-t0", size.port_bps), *([_link("t0-t1", size.port_bps)] if uplinks else [])],
        "instances": instances,
        "edges": edges,
    }


def _device(name: str, description: str, core: str, ports: str, count: int) -> dict[str, Any]:
    parts = {"xpu": ("xpu", "xpu"), "switch": ("asic", "switch"), "nic": ("nic", "nic"), "port": ("port", "port")}
    components = [(*parts[core], 1), (*parts[ports], count)]
    return {
        "name": name,
        "description": description,
        "components": [{"name": part, "count": number, "choice": kind, kind: {}} for part, kind, number in components],
        "links": [{"name": "inside", "description": "Within the device"}],
        "edges": [
            {
                "ep1": {"component": parts[core][0]},
                "ep2": {"component": parts[ports][0]},
                "link": "inside",
                "scheme": "many2many",
            }
        ],
    }


def _link(name: str, bps: float) -> dict[str, Any]:
    bandwidth = {"choice": "gigabits_per_second", "gigabits_per_second": bps / 1e9}
    return {"name": name, "physical": {"bandwidth": bandwidth}}


def _edge(
    link: str, lower: tuple[str, str], lower_port: tuple[str, str], upper: tuple[str, str], upper_port: tuple[str, str]
) -> dict[str, Any]:
    return {
        "ep1": {"instance": f"{lower[0]}[{lower[1]}]", "component": f"{lower_port[0]}[{lower_port[1]}]"},
        "ep2": {"instance": f"{upper[0]}[{upper[1]}]", "component": f"{upper_port[0]}[{upper_port[1]}]"},
        "link": link,
        "scheme": "one2one",
    }


def write(size: FabricSize, path: Path) -> None:
    """Write the fabric, as JSON when the name ends in .json, else as YAML. Raises UsageError."""
    tree, text = infrastructure(size), StringIO()
    if path.suffix == ".json":
        json.dump(tree, text, indent=1)
        text.write("\n")
    else:
        _yaml().dump(tree, text)
    try:
        write_output(path, text.getvalue().encode())
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        raise UsageError(f"--infragraph {path}: {error.strerror}: give a file that can be written") from None


def _yaml() -> YAML:
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    return yaml


# ---- reading ------------------------------------------------------------------------------------------------


def read(path: Path) -> FabricSize:
    """Return the fabric of a file. Raises UsageError naming what is no fabric of planes of two tiers."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == ".json" else _yaml().load(text)
    except OSError as error:
        raise UsageError(f"--from {path}: {error.strerror}: give an InfraGraph file") from None
    except UnicodeDecodeError:
        raise UsageError(f"--from {path}: no text: give an InfraGraph file in YAML or JSON") from None
    except (YAMLError, ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise UsageError(f"--from {path}: no {kind}: {' '.join(str(error).split())[:300]}") from None
    try:
        return _Reader(tree).size()
    except _MisfitError as error:
        raise UsageError(f"--from {path}: {error}") from None


class _MisfitError(Exception):
    """Cause why a file is no fabric that can be planned."""


class _Reader:
    """An Infrastructure, with its slices resolved."""

    def __init__(self, tree: Any) -> None:
        if not isinstance(tree, dict) or not {"devices", "instances", "edges"} <= set(tree):
            raise _MisfitError("no InfraGraph Infrastructure; give `devices`, `links`, `instances` and `edges`")
        self._parts = {
            _text(device, "name"): {
                _text(part, "name"): (_count(part), part.get("choice", "")) for part in _objects(device, "components")
            }
            for device in _objects(tree, "devices")
        }
        self._instances: dict[str, tuple[str, int]] = {}
        for instance in _objects(tree, "instances"):
            name, device = _text(instance, "name"), _text(instance, "device")
            if device not in self._parts:
                raise _MisfitError(
                    f"instance {name!r} is of device {device!r}, which is not among {', '.join(self._parts)}"
                )
            self._instances[name] = device, _count(instance)
        self._rates = {_text(link, "name"): _rate(link) for link in _objects(tree, "links")}
        self._edges = list(_objects(tree, "edges"))

    def size(self) -> FabricSize:
        """Return the fabric. Raises _MisfitError."""
        hosts_by_t0: dict[Switch, list[tuple[Switch, int]]] = defaultdict(list)
        """Hosts and their port numbers by T0."""
        uplink_counts: Counter[tuple[Switch, Switch]] = Counter()
        rates: set[float | None] = set()
        for first_end, second_end, link in self._links():
            rates.add(self._rates.get(link))
            ends = sorted((first_end, second_end), key=lambda end: not self._is_host(end[0]))
            hosts = sum(self._is_host(end[0]) for end in ends)
            (first, port), (second, _) = ends
            if hosts == 2:
                raise _MisfitError(f"hosts {_name(first)} and {_name(second)} are linked to each other")
            if hosts == 1:
                hosts_by_t0[second].append((first, port))
            else:
                uplink_counts[first, second] += 1
        return self._of_links(hosts_by_t0, uplink_counts, rates)

    def _of_links(
        self,
        hosts_by_t0: dict[Switch, list[tuple[Switch, int]]],
        uplink_counts: Counter[tuple[Switch, Switch]],
        rates: set[float | None],
    ) -> FabricSize:
        if not hosts_by_t0:
            raise _MisfitError("no host with a component of choice `nic` is linked to a switch")
        towards: dict[Switch, Counter[Switch]] = defaultdict(Counter)
        for (first, second), number in uplink_counts.items():
            if (first in hosts_by_t0) == (second in hosts_by_t0):
                tier = "both have hosts" if first in hosts_by_t0 else "neither has hosts: a third tier"
                raise _MisfitError(f"switches {_name(first)} and {_name(second)} are linked, and {tier}")
            lower, upper = (first, second) if first in hosts_by_t0 else (second, first)
            towards[lower][upper] += number
        # T0s with the same T1s are one plane; without T1s each T0 is a plane of its own.
        planes: dict[frozenset[Switch], list[Switch]] = defaultdict(list)
        for t0 in hosts_by_t0:
            planes[frozenset(towards[t0]) or frozenset([t0])].append(t0)
        links = {tuple(sorted(towards[t0].values())) for t0 in hosts_by_t0}
        shapes = {(len(t0s), len(t1s) if any(towards[t0] for t0 in t0s) else 0) for t1s, t0s in planes.items()}
        if len(shapes) > 1 or len(links) > 1 or len({n for link in links for n in link}) > 1:
            raise _MisfitError(f"planes are not alike: (T0s, T1s) of each are {', '.join(map(str, sorted(shapes)))}")
        racks = {frozenset(host for host, _ in hosts) for hosts in hosts_by_t0.values()}
        ports = Counter(host for hosts in hosts_by_t0.values() for host, _ in hosts)
        t0s, t1s = shapes.pop()
        if set(ports.values()) != {len(planes)} or len(racks) != t0s or sum(map(len, racks)) != len(ports):
            raise _MisfitError(
                f"a host needs one link to a T0 of each of the {len(planes)} planes, beside the same hosts in all"
            )
        uplinks = sum(next(iter(links)))
        if len(rates) != 1 or None in rates:
            raise _MisfitError("all links need one `bandwidth` in gigabits_per_second or gigabytes_per_second")
        bps = rates.pop()
        assert bps is not None
        nics_per_t0 = max(map(len, racks))
        radix = max(nics_per_t0 + uplinks, t0s * uplinks // t1s if t1s else 0)
        return FabricSize(len(planes), radix, t0s, uplinks, t1s, nics_per_t0, len(ports), bps * len(planes))

    def _is_host(self, switch: Switch) -> bool:
        device, _ = self._instances[switch[0]]
        return any(choice in ("nic", "xpu") for _, choice in self._parts[device].values())

    def _links(self) -> Iterator[tuple[tuple[Switch, int], tuple[Switch, int], str]]:
        """Links one by one: (switch or host, port) of either end, name of the link."""
        link_count = 0
        for number, edge in enumerate(self._edges):
            edge_name = f"edges[{number}]"
            first_ends, second_ends = (self._end(edge.get(end), f"{edge_name}.{end}") for end in ("ep1", "ep2"))
            if edge.get("scheme") == "many2many":
                pairs = [(a, b) for a in first_ends for b in second_ends]
            elif len(first_ends) == len(second_ends):
                pairs = list(zip(first_ends, second_ends, strict=True))
            else:
                raise _MisfitError(f"{edge_name}: {len(first_ends)} ends to {len(second_ends)}, one2one")
            link_count += len(pairs)
            if link_count > LINKS_MAX:
                raise _MisfitError(f"{edge_name}: more than {LINKS_MAX:,} links")
            for a, b in pairs:
                yield a, b, str(edge.get("link", ""))

    def _end(self, end: Any, edge_name: str) -> list[tuple[Switch, int]]:
        instance, indices = _split_slice(_text(end, "instance"), edge_name)
        if instance not in self._instances:
            raise _MisfitError(f"{edge_name}: no instance {instance!r} (has: {', '.join(list(self._instances)[:20])})")
        device, count = self._instances[instance]
        part, ports = _split_slice(_text(end, "component"), edge_name)
        if part not in self._parts[device]:
            raise _MisfitError(
                f"{edge_name}: {device!r} has no component {part!r} (has: {', '.join(self._parts[device])})"
            )
        numbers, port_numbers = (
            _indices(indices, count, edge_name),
            _indices(ports, self._parts[device][part][0], edge_name),
        )
        if len(numbers) * len(port_numbers) > LINKS_MAX:
            raise _MisfitError(f"{edge_name}: more than {LINKS_MAX:,} ends")
        return [((instance, number), port) for number in numbers for port in port_numbers]


def _name(switch: Switch) -> str:
    return f"{switch[0]}[{switch[1]}]"


def _objects(tree: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    objects = tree.get(key) or []
    if not isinstance(objects, list) or not all(isinstance(entry, dict) for entry in objects):
        raise _MisfitError(f"`{key}` is no list of objects")
    yield from objects


def _text(tree: Any, key: str) -> str:
    text = tree.get(key) if isinstance(tree, dict) else None
    if not isinstance(text, str):
        raise _MisfitError(f"`{key}` is missing, or no text, in {str(tree)[:80]}")
    return text


def _count(tree: dict[str, Any]) -> int:
    count = tree.get("count")
    if type(count) is not int or not 1 <= count <= LINKS_MAX:
        raise _MisfitError(f"{tree.get('name')}: count {count!r}: 1 to {LINKS_MAX}")
    return count


def _rate(link: dict[str, Any]) -> float | None:
    """Bits/s; None: not given, or in another unit."""
    try:
        bandwidth = link["physical"]["bandwidth"]
        unit = bandwidth["choice"]
        return float(bandwidth[unit]) * _GBPS[unit] * 1e9
    except (KeyError, TypeError, ValueError):
        return None


def _split_slice(text: str, edge_name: str) -> tuple[str, str]:
    """Split `name[slice]`; the slice is empty where there is none."""
    match = _SLICE.fullmatch(text)
    if match is None:
        raise _MisfitError(f"{edge_name}: {text!r} is no name with a slice, as port[0:2]")
    return match[1], match[2] or ""


def _indices(text: str, count: int, edge_name: str) -> range:
    """Return the numbers that a Python slice selects of `count`."""
    words = text.split(":")
    try:
        numbers = [int(word) if word else None for word in words]
        if len(words) == 1 and numbers[0] is not None:
            index = range(count)[numbers[0]]
            return range(index, index + 1)
        selection = range(*slice(*numbers).indices(count)) if text else range(count)
        largest = max((number for number in numbers[:2] if number is not None), default=0)
        if largest > count or not selection:
            raise IndexError
    except (ValueError, IndexError, TypeError):
        raise _MisfitError(f"{edge_name}: no slice [{text}] of {count}") from None
    return selection
