"""Node and link lists, as containerlab has them, read as a Clos of planes: made into a topology file.

    text = import_topology(Path("clos.clab.yml"))       # ScenarioError with reason and line where it is no Clos

The links decide: hosts are named by `kind: linux` or `group: host`, or by a pattern; switches with hosts are T0s, the
others T1s. What hangs together without the hosts is a plane; hosts under the same T0s are a rack.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from mrc_testbed.experiments.language.topology import SCHEMA
from mrc_testbed.experiments.language.yaml_loader import Document, Loc, Problem, ScenarioError, read
from mrc_testbed.topologies.plan import default_host, default_t0, default_t1, name_mistake

HOST_WORDS = ("linux", "host", "hosts", "server", "servers", "client", "clients")
"""Values of `kind` and `group` that make a node a host."""


@dataclass(slots=True)
class _Graph:
    """Nodes in the order of the file, and the links between them with their place in it."""

    document: Document
    nodes: Mapping[str, Any] = field(default_factory=dict)
    node_locs: dict[str, Loc] = field(default_factory=dict)
    links: list[tuple[str, str, Loc]] = field(default_factory=list)
    neighbours: dict[str, dict[str, Loc]] = field(default_factory=lambda: defaultdict(dict))
    hosts: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, loc: Loc, text: str) -> None:
        self.problems.append(self.document.problem(loc, text))

    def settle(self) -> None:
        """Raise ScenarioError when something was refused."""
        if self.problems:
            raise ScenarioError(self.document.path, self.problems)


def import_topology(path: Path, hosts: str | None = None) -> str:
    """Return the topology file of a node and link list.

    `hosts`: pattern of the hosts' names; None: by kind and group. Raises ScenarioError with every reason why it is
    no Clos of planes.
    """
    document = read(path, "node and link list", "topology")
    graph = _graph_of(document)
    graph.settle()
    _choose_hosts(graph, hosts)
    graph.settle()
    planes, plane_of, t0s = _planes(graph)
    _check_tiers(graph, t0s)
    graph.settle()
    racks = _racks(graph, plane_of)
    graph.settle()
    _check_mesh(graph, planes, t0s)
    graph.settle()
    return _file_text(graph, planes, racks, plane_of, t0s)


# ---- reading --------------------------------------------------------------------------------------------------


def _graph_of(document: Document) -> _Graph:
    """Read nodes and links, under `topology` or at the top."""
    graph, raw = _Graph(document, problems=[*document.duplicates]), document.raw
    prefix: Loc = ()
    if isinstance(raw.get("topology"), dict):
        raw, prefix = raw["topology"], ("topology",)
    nodes, links = raw.get("nodes"), raw.get("links")
    if not isinstance(nodes, (dict, list)) or not isinstance(links, list):
        graph.refuse(
            prefix, "no `nodes` and `links` here. Cure: `nodes: {a: {kind: linux}}`, `links: [{endpoints: [a, b]}]`"
        )
        return graph
    graph.nodes = {str(name): node for name, node in nodes.items()} if isinstance(nodes, dict) else _by_name(nodes)
    for index, name in enumerate(graph.nodes):
        graph.node_locs[name] = (*prefix, "nodes", name if isinstance(nodes, dict) else index)
    for index, link in enumerate(links):
        loc: Loc = (*prefix, "links", index)
        ends = _ends_of(link)
        if ends is None:
            graph.refuse(loc, f"no link: {link!r}. Cure: `endpoints: [a:eth1, b:eth1]`, or a list of two nodes")
            continue
        _add_link(graph, *ends, loc)
    return graph


def _by_name(nodes: list[Any]) -> dict[str, Any]:
    """Return a list of names, or of mappings with `name`, as containerlab's mapping."""
    return {str(node.get("name") if isinstance(node, dict) else node): node for node in nodes}


def _ends_of(link: Any) -> tuple[str, str] | None:
    """Return the two nodes of a link; None: none could be read."""
    if isinstance(link, dict):
        link = link.get("endpoints") or [link.get("source"), link.get("target")]
    if not isinstance(link, list) or len(link) != 2:
        return None
    nodes = [end.get("node") if isinstance(end, dict) else end for end in link]
    if not all(isinstance(node, (str, int)) for node in nodes):
        return None
    a, b = (str(node).split(":")[0] for node in nodes)
    return a, b


def _add_link(graph: _Graph, a: str, b: str, loc: Loc) -> None:
    for name in (a, b):
        if name not in graph.node_locs:
            graph.refuse(loc, f"no node {name!r} in `nodes`. Cure: add it, or take the link away")
            return
    if a == b:
        graph.refuse(loc, f"{a} is linked to itself. Cure: take the link away")
    elif b in graph.neighbours[a]:
        graph.refuse(
            loc, f"a second link between {a} and {b}: a plane has one. Cure: one link with their rates together"
        )
    else:
        graph.neighbours[a][b] = graph.neighbours[b][a] = loc
        graph.links.append((a, b, loc))


def _choose_hosts(graph: _Graph, pattern: str | None) -> None:
    def is_host(name: str) -> bool:
        if pattern is not None:
            return re.fullmatch(pattern, name) is not None
        node = graph.nodes[name]
        return isinstance(node, dict) and any(str(node.get(key)).lower() in HOST_WORDS for key in ("kind", "group"))

    graph.hosts = [name for name in graph.node_locs if is_host(name)]
    if not graph.hosts:
        loc = next(iter(graph.node_locs.values()), ())
        graph.refuse(loc, "nobody is called a host. Cure: `kind: linux` or `group: host`, or --hosts PATTERN")
    elif len(graph.hosts) == len(graph.nodes):
        graph.refuse(
            graph.node_locs[graph.hosts[0]], "all nodes are hosts. Cure: another `kind` for switches, or --hosts"
        )
    for name, loc in graph.node_locs.items():
        if not graph.neighbours[name]:
            graph.refuse(loc, f"{name} has no link. Cure: link it, or take it away")


# ---- planes and racks -------------------------------------------------------------------------------------------


def _planes(graph: _Graph) -> tuple[list[list[str]], dict[str, int], list[str]]:
    """Return switches by plane, the plane of each, and the T0s, in the order of the file."""
    hosts = set(graph.hosts)
    planes: list[list[str]] = []
    plane_of: dict[str, int] = {}
    for first in graph.node_locs:
        if first in hosts or first in plane_of:
            continue
        waiting, number = [first], len(planes)
        plane_of[first] = number
        while waiting:
            for name in graph.neighbours[waiting.pop()]:
                if name not in hosts and name not in plane_of:
                    plane_of[name] = number
                    waiting.append(name)
        planes.append([name for name in graph.node_locs if plane_of.get(name) == number])
    t0s = [name for name in plane_of if hosts & set(graph.neighbours[name])]
    return planes, plane_of, t0s


def _check_tiers(graph: _Graph, t0s: list[str]) -> None:
    """Refuse links that do not go from a host to a T0, or from a T0 to a T1."""
    hosts, lower = set(graph.hosts), set(t0s)
    for a, b, loc in graph.links:
        if a in hosts and b in hosts:
            graph.refuse(loc, f"hosts {a} and {b} are linked to each other. Cure: a host is linked to T0s alone")
        elif a in lower and b in lower:
            graph.refuse(loc, f"{a} and {b} both have hosts and are linked: no Clos. Cure: T0s meet at T1s alone")
        elif not {a, b} & (hosts | lower):
            graph.refuse(loc, f"{a} and {b} have no hosts and are linked: three tiers. Cure: planes of T0s and T1s")


def _racks(graph: _Graph, plane_of: dict[str, int]) -> list[list[str]]:
    """Return the hosts of each rack; refuse hosts that share some T0s and not others."""
    rack_of_t0: dict[str, int] = {}
    racks: list[list[str]] = []
    t0_of: dict[tuple[int, int], tuple[str, str]] = {}
    for host in graph.hosts:
        t0_by_plane: dict[int, str] = {}
        for t0, loc in graph.neighbours[host].items():
            first_t0 = t0_by_plane.setdefault(plane_of[t0], t0)
            if first_t0 != t0:
                graph.refuse(
                    loc,
                    f"{host} is linked to {first_t0} and {t0}, which are in one plane: they share T1s. "
                    "Cure: a port to each plane",
                )
        # The rack of any of its T0s; a host under new ones alone begins a rack.
        rack_numbers = {rack_of_t0[t0] for t0 in t0_by_plane.values() if t0 in rack_of_t0}
        number = min(rack_numbers, default=len(racks))
        if number == len(racks):
            racks.append([])
        racks[number].append(host)
        for plane, t0 in t0_by_plane.items():
            present, first_host = t0_of.setdefault((number, plane), (t0, host))
            if present != t0 or rack_of_t0.setdefault(t0, number) != number:
                graph.refuse(
                    graph.neighbours[host][t0],
                    f"{host} shares a T0 with {first_host} on one plane, and on plane {plane} they are under "
                    f"{t0} and {present}: no rack. Cure: hosts of a rack have the same T0 on every plane",
                )
    return racks


def _check_mesh(graph: _Graph, planes: list[list[str]], t0s: list[str]) -> None:
    """Refuse a plane in which a T0 is not linked to every T1."""
    for switches in planes:
        lower = [name for name in switches if name in t0s]
        for t0 in lower:
            for t1 in switches:
                if t1 not in t0s and t1 not in graph.neighbours[t0]:
                    graph.refuse(
                        graph.node_locs[t0],
                        f"{t0} has no link to {t1}: no Clos. Cure: add it here, and list it in `holes` of the result",
                    )


# ---- writing ----------------------------------------------------------------------------------------------------


def _file_text(
    graph: _Graph, planes: list[list[str]], racks: list[list[str]], plane_of: dict[str, int], t0s: list[str]
) -> str:
    """Return the file's text. Raises ScenarioError for names that a fabric cannot have."""
    rack_of_host = {host: rack for rack, hosts in enumerate(racks) for host in hosts}
    hosts_per_rack = max(map(len, racks))
    # Numbers of the grid by the order of the file; the names stay those of the list.
    spines = [[name for name in switches if name not in t0s] for switches in planes]
    grid_names: dict[str, str] = {}
    for rack, hosts in enumerate(racks):
        grid_names |= {default_host(rack * hosts_per_rack + index): host for index, host in enumerate(hosts)}
    present: set[str] = set(grid_names)
    for plane, switches in enumerate(planes):
        for t0 in (name for name in switches if name in t0s):
            host = next(name for name in graph.neighbours[t0] if name in rack_of_host)
            grid_names[default_t0(plane, rack_of_host[host])] = t0
        grid_names |= {default_t1(plane, number): t1 for number, t1 in enumerate(spines[plane])}
    for name in grid_names.values():
        if mistake := name_mistake(name):
            graph.refuse(graph.node_locs[name], f"name {name!r}. Cure: {mistake}")
    graph.settle()
    present = set(grid_names)
    largest = max(map(len, spines))
    grid = {"planes": len(planes), "racks": len(racks), "spines": max(1, largest), "hosts_per_rack": hosts_per_rack}
    grid_name_of = {name: grid_name for grid_name, name in grid_names.items()}
    holes = [*_absent_nodes(grid, present), *_absent_ports(graph, plane_of, rack_of_host, grid_name_of, present)]
    tree: dict[str, Any] = {"schema": SCHEMA, "title": f"Imported from {graph.document.path.name}", "fabric": grid}
    if holes:
        tree["holes"] = holes
    tree["names"] = {grid_name: name for grid_name, name in grid_names.items() if grid_name != name}
    if not tree["names"]:
        del tree["names"]
    out, yaml = StringIO(), YAML()
    yaml.default_flow_style = False
    yaml.dump(tree, out)
    return out.getvalue()


def _absent_nodes(grid: Mapping[str, int], present: set[str]) -> Iterator[str]:
    """Yield nodes of the grid that the list does not have."""
    names = [default_host(number) for number in range(grid["racks"] * grid["hosts_per_rack"])]
    for plane in range(grid["planes"]):
        names += [default_t0(plane, rack) for rack in range(grid["racks"])]
        names += [default_t1(plane, number) for number in range(grid["spines"])]
    yield from (name for name in names if name not in present)


def _absent_ports(
    graph: _Graph,
    plane_of: dict[str, int],
    rack_of_host: dict[str, int],
    grid_name_of: dict[str, str],
    present: set[str],
) -> Iterator[str]:
    """Yield NIC links of the grid that the list does not have while both ends are there."""
    for host, rack in rack_of_host.items():
        planes = {plane_of[t0] for t0 in graph.neighbours[host]}
        for plane in range(max(plane_of.values()) + 1):
            if plane not in planes and (t0 := default_t0(plane, rack)) in present:
                yield f"{grid_name_of[host]} {t0}"
