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

from mrc_testbed.errors import FULL, UsageError
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
    """The fabric as an Infrastructure, a tree of dicts and lists."""
    below, up = size.nics_per_t0, size.uplinks
    each = up // size.t1s if size.t1s else 0  # links of a T0 to each T1
    devices = [
        _device("host", "A host with one GPU and a NIC with a port for each plane", "xpu", "nic", size.planes),
        _device("t0", f"Switch of the lower tier: {below} ports down, {up} up", "switch", "port", below + up),
    ]
    instances = [{"name": "host", "device": "host", "count": size.nics}]
    edges = []
    if up:
        devices.append(_device("t1", "Switch of the upper tier", "switch", "port", size.t0s * each))
    for plane in range(size.planes):
        lower, upper = f"p{plane}-t0", f"p{plane}-t1"
        instances.append({"name": lower, "device": "t0", "count": size.t0s})
        for t0 in range(size.t0s):
            first, end = t0 * below, min((t0 + 1) * below, size.nics)
            edges.append(
                _edge(
                    "nic-t0",
                    ("host", f"{first}:{end}"),
                    ("nic", f"{plane}"),
                    (lower, f"{t0}"),
                    ("port", f"0:{end - first}"),
                )
            )
        if up:
            instances.append({"name": upper, "device": "t1", "count": size.t1s})
        for uplink in range(up):
            first = uplink % each * size.t0s
            ports = f"{first}:{first + size.t0s}"
            edges.append(
                _edge(
                    "t0-t1",
                    (lower, f"0:{size.t0s}"),
                    ("port", f"{below + uplink}"),
                    (upper, f"{uplink // each}"),
                    ("port", ports),
                )
            )
    return {
        "name": name,
        "description": f"{size.nics} NICs in {size.planes} planes of {size.t0s} T0 and {size.t1s} T1",
        "devices": devices,
        "links": [_link("nic-t0", size.port_bps), *([_link("t0-t1", size.port_bps)] if up else [])],
        "instances": instances,
        "edges": edges,
    }


def _device(name: str, description: str, core: str, ports: str, count: int) -> dict[str, Any]:
    parts = {"xpu": ("xpu", "xpu"), "switch": ("asic", "switch"), "nic": ("nic", "nic"), "port": ("port", "port")}
    inside = [(*parts[core], 1), (*parts[ports], count)]
    return {
        "name": name,
        "description": description,
        "components": [{"name": part, "count": number, "choice": kind, kind: {}} for part, kind, number in inside],
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
    link: str, one: tuple[str, str], at: tuple[str, str], other: tuple[str, str], there: tuple[str, str]
) -> dict[str, Any]:
    return {
        "ep1": {"instance": f"{one[0]}[{one[1]}]", "component": f"{at[0]}[{at[1]}]"},
        "ep2": {"instance": f"{other[0]}[{other[1]}]", "component": f"{there[0]}[{there[1]}]"},
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
        if error.errno in FULL:  # with an exit code of its own
            raise
        raise UsageError(f"--infragraph {path}: {error.strerror}: give a file that can be written") from None


def _yaml() -> YAML:
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    return yaml


# ---- reading ------------------------------------------------------------------------------------------------


def read(path: Path) -> FabricSize:
    """The fabric of a file. Raises UsageError naming what of it is no fabric of planes of two tiers."""
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
            raise _MisfitError("no InfraGraph Infrastructure: it has `devices`, `links`, `instances` and `edges`")
        self._parts = {
            _text(device, "name"): {
                _text(part, "name"): (_count(part), part.get("choice", "")) for part in _all(device, "components")
            }
            for device in _all(tree, "devices")
        }
        self._instances: dict[str, tuple[str, int]] = {}
        for one in _all(tree, "instances"):
            name, device = _text(one, "name"), _text(one, "device")
            if device not in self._parts:
                raise _MisfitError(
                    f"instance {name!r} is of device {device!r}, which is not among {', '.join(self._parts)}"
                )
            self._instances[name] = device, _count(one)
        self._rates = {_text(link, "name"): _rate(link) for link in _all(tree, "links")}
        self._edges = list(_all(tree, "edges"))

    def size(self) -> FabricSize:
        """The fabric. Raises _MisfitError."""
        down: dict[Switch, list[tuple[Switch, int]]] = defaultdict(list)
        """By T0: hosts, and the number of the NIC."""
        up: Counter[tuple[Switch, Switch]] = Counter()
        rates: set[float | None] = set()
        for one, other, link in self._links():
            rates.add(self._rates.get(link))
            ends = sorted((one, other), key=lambda end: not self._is_host(end[0]))
            hosts = sum(self._is_host(end[0]) for end in ends)
            (first, port), (second, _) = ends
            if hosts == 2:
                raise _MisfitError(f"hosts {_name(first)} and {_name(second)} are linked to each other")
            if hosts == 1:
                down[second].append((first, port))
            else:
                up[first, second] += 1
        return self._of_links(down, up, rates)

    def _of_links(
        self, down: dict[Switch, list[tuple[Switch, int]]], up: Counter[tuple[Switch, Switch]], rates: set[float | None]
    ) -> FabricSize:
        if not down:
            raise _MisfitError("no host with a component of choice `nic` is linked to a switch")
        towards: dict[Switch, Counter[Switch]] = defaultdict(Counter)
        for (one, other), number in up.items():
            if (one in down) == (other in down):
                tier = "both have hosts" if one in down else "neither has hosts: a third tier"
                raise _MisfitError(f"switches {_name(one)} and {_name(other)} are linked, and {tier}")
            lower, upper = (one, other) if one in down else (other, one)
            towards[lower][upper] += number
        planes: dict[frozenset[Switch], list[Switch]] = defaultdict(list)
        for t0 in down:
            planes[frozenset(towards[t0]) or frozenset([t0])].append(t0)
        links = {tuple(sorted(towards[t0].values())) for t0 in down}
        shapes = {(len(t0s), len(t1s) if any(towards[t0] for t0 in t0s) else 0) for t1s, t0s in planes.items()}
        if len(shapes) > 1 or len(links) > 1 or len({n for link in links for n in link}) > 1:
            raise _MisfitError(f"planes are not alike: (T0s, T1s) of each are {', '.join(map(str, sorted(shapes)))}")
        racks = {frozenset(host for host, _ in hosts) for hosts in down.values()}
        ports = Counter(host for hosts in down.values() for host, _ in hosts)
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
        below = max(map(len, racks))
        radix = max(below + uplinks, t0s * uplinks // t1s if t1s else 0)
        return FabricSize(len(planes), radix, t0s, uplinks, t1s, below, len(ports), bps * len(planes))

    def _is_host(self, switch: Switch) -> bool:
        device, _ = self._instances[switch[0]]
        return any(choice in ("nic", "xpu") for _, choice in self._parts[device].values())

    def _links(self) -> Iterator[tuple[tuple[Switch, int], tuple[Switch, int], str]]:
        """Links one by one: (switch or host, port) of either end, name of the link."""
        seen = 0
        for number, edge in enumerate(self._edges):
            where = f"edges[{number}]"
            one, other = (self._end(edge.get(end), f"{where}.{end}") for end in ("ep1", "ep2"))
            if edge.get("scheme") == "many2many":
                pairs = [(a, b) for a in one for b in other]
            elif len(one) == len(other):
                pairs = list(zip(one, other, strict=True))
            else:
                raise _MisfitError(f"{where}: {len(one)} ends to {len(other)}, one2one")
            seen += len(pairs)
            if seen > LINKS_MAX:
                raise _MisfitError(f"{where}: more than {LINKS_MAX:,} links")
            for a, b in pairs:
                yield a, b, str(edge.get("link", ""))

    def _end(self, end: Any, where: str) -> list[tuple[Switch, int]]:
        instance, which = _sliced(_text(end, "instance"), where)
        if instance not in self._instances:
            raise _MisfitError(f"{where}: no instance {instance!r} (has: {', '.join(list(self._instances)[:20])})")
        device, count = self._instances[instance]
        part, ports = _sliced(_text(end, "component"), where)
        if part not in self._parts[device]:
            raise _MisfitError(f"{where}: {device!r} has no component {part!r} (has: {', '.join(self._parts[device])})")
        numbers, places = _indices(which, count, where), _indices(ports, self._parts[device][part][0], where)
        if len(numbers) * len(places) > LINKS_MAX:
            raise _MisfitError(f"{where}: more than {LINKS_MAX:,} ends")
        return [((instance, number), place) for number in numbers for place in places]


def _name(switch: Switch) -> str:
    return f"{switch[0]}[{switch[1]}]"


def _all(tree: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    found = tree.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _MisfitError(f"`{key}` is no list of objects")
    yield from found


def _text(tree: Any, key: str) -> str:
    found = tree.get(key) if isinstance(tree, dict) else None
    if not isinstance(found, str):
        raise _MisfitError(f"`{key}` is missing, or no text, in {str(tree)[:80]}")
    return found


def _count(tree: dict[str, Any]) -> int:
    found = tree.get("count")
    if type(found) is not int or not 1 <= found <= LINKS_MAX:
        raise _MisfitError(f"{tree.get('name')}: count {found!r}: 1 to {LINKS_MAX}")
    return found


def _rate(link: dict[str, Any]) -> float | None:
    """Bits/s; None: not given, or in another unit."""
    try:
        bandwidth = link["physical"]["bandwidth"]
        unit = bandwidth["choice"]
        return float(bandwidth[unit]) * _GBPS[unit] * 1e9
    except (KeyError, TypeError, ValueError):
        return None


def _sliced(text: str, where: str) -> tuple[str, str]:
    """`name[slice]` apart; the slice is empty where there is none."""
    found = _SLICE.fullmatch(text)
    if found is None:
        raise _MisfitError(f"{where}: {text!r} is no name with a slice, as port[0:2]")
    return found[1], found[2] or ""


def _indices(text: str, count: int, where: str) -> range:
    """What a Python slice means of that many."""
    words = text.split(":")
    try:
        numbers = [int(word) if word else None for word in words]
        if len(words) == 1 and numbers[0] is not None:
            place = range(count)[numbers[0]]
            return range(place, place + 1)
        found = range(*slice(*numbers).indices(count)) if text else range(count)
        largest = max((number for number in numbers[:2] if number is not None), default=0)
        if largest > count or not found:
            raise IndexError
    except (ValueError, IndexError, TypeError):
        raise _MisfitError(f"{where}: no slice [{text}] of {count}") from None
    return found
