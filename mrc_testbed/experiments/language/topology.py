"""Topology file: a fabric whose planes differ, with holes, names and link speeds of its own.

    topology = read_topology(Path("uneven.yaml"))     # ScenarioError with every mistake, its line and the cure
    plan = topology.plan(Mode.SRV6, pmtu_bytes=1024)

The file is a grid of planes, racks, spines and hosts, and what differs from it (docs/topology-files.md)::

    fabric: {planes: 2, racks: 3, spines: 2, hosts_per_rack: 2}
    links: {rate: 10M, rtt: 10ms}
    planes:
      1: {racks: 2, spines: 1, rate: 5M}
    holes: [h3]
    names: {p0-t0-0: leaf-a}
    own_links:
      - {link: leaf-a p0-t1-0, delay: 5ms}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mrc_testbed.experiments.language.all_mistakes import with_all_mistakes
from mrc_testbed.experiments.language.model import GridPart, LinkRates, LinksPart, Scenario, Tier
from mrc_testbed.experiments.language.yaml_loader import (
    Document,
    Loc,
    Problem,
    ScenarioError,
    parse_model,
    read,
)
from mrc_testbed.faults.terms import Part, suggestion
from mrc_testbed.topologies.plan import (
    GridLayout,
    Link,
    LinkSpeed,
    Mode,
    Plan,
    PlanError,
    default_t0,
    default_t1,
    name_mistake,
)
from mrc_testbed.topologies.plan.link_speeds import scaled_speed

SCHEMA = "mrc-topology/1"


class PlanePart(Tier):
    """Differences of one plane. `rate` and `delay` are those of all its links."""

    racks: int | None = Field(None, ge=1)
    """Racks that have a T0 on this plane, from rack 0 on; None: all."""
    spines: int | None = Field(None, ge=1)
    """T1 switches of this plane; None: as `fabric.spines`."""
    host: Tier = Tier()
    """NIC-T0 links of this plane."""
    fabric: Tier = Tier()
    """T0-T1 links of this plane."""


def _link_name(value: object) -> object:
    """Return a list of two nodes as the link's name."""
    return " ".join(map(str, value)) if isinstance(value, list) else value


class OwnLink(Tier):
    """One link with a rate or delay of its own."""

    link: Annotated[str, BeforeValidator(_link_name)]
    """Nodes at both ends, by their own names or those of the grid."""


class TopologyPart(Part):
    """A whole topology file."""

    schema_: Literal["mrc-topology/1"] = Field("mrc-topology/1", alias="schema")
    """Version of the format."""
    title: str = ""
    """One line about the fabric."""
    fabric: GridPart = GridPart()
    """Largest dimensions of any plane: the grid of which parts may be missing."""
    links: LinkRates = LinkRates()
    """Rates and delays of all links that say nothing else."""
    planes: dict[str, PlanePart] = Field(default_factory=dict)
    """Plane number -> what differs on it."""
    holes: list[str] = Field(default_factory=list)
    """Hosts, switches and links (`p0-t0-0 p0-t1-1`) that the fabric lacks."""
    names: dict[str, str] = Field(default_factory=dict)
    """Name in the grid -> name of one's own, of hosts and switches."""
    own_links: list[OwnLink] = Field(default_factory=list)
    """Links with a rate or delay of their own."""


@dataclass(frozen=True)
class Topology:
    """A topology file that was read and checked."""

    path: Path
    part: TopologyPart

    @cached_property
    def _grid(self) -> Plan:
        sizes = self.part.fabric
        return Plan(sizes.planes, sizes.racks, sizes.spines, sizes.hosts_per_rack)

    def plan(self, mode: Mode | str, *, pmtu_bytes: int, links: LinkRates | None = None) -> Plan:
        """Return the plan. `links`: rates that replace those of the file. Raises PlanError."""
        mode, links = Mode.from_name(mode), links or self.part.links
        base = scaled_speed(links.rate, links.rtt, pmtu_bytes, mode)
        plan = replace(
            self._grid,
            mode=mode,
            pmtu_bytes=pmtu_bytes,
            host_link=tier_speed(base, links.host),
            fabric_link=tier_speed(base, links.fabric),
        )
        holes, names = tuple(self._holes()), tuple(self.part.names.items())
        grid_with_holes = replace(plan, layout=GridLayout(holes)) if holes else plan
        speeds = tuple(self._speeds(grid_with_holes)) if self.part.planes or self.part.own_links else ()
        # A file that says nothing of its own makes the same plan as its numbers given as options.
        return replace(plan, layout=GridLayout(holes, names, speeds)) if holes or names or speeds else plan

    def grid_name(self, name: str) -> str:
        """Return the grid's name of a host, a switch or a link (`A B`), given by its own or that one."""
        grid_names = {own_name: grid_name for grid_name, own_name in self.part.names.items()}
        return " ".join(grid_names.get(word, word) for word in name.split())

    def _link(self, name: str) -> Link:
        return self._grid.link_named(self.grid_name(name))

    def _holes(self) -> Iterator[str]:
        """Yield grid names of what the fabric lacks."""
        grid = self._grid
        for name in self.part.holes:
            grid_name = self.grid_name(name)
            yield grid.link_named(grid_name).name if " " in grid_name else grid_name
        for key, part in self.part.planes.items():
            plane = int(key)
            yield from (default_t0(plane, rack) for rack in range(part.racks or grid.racks, grid.racks))
            yield from (default_t1(plane, number) for number in range(part.spines or grid.spines, grid.spines))

    def _speeds(self, plan: Plan) -> Iterator[tuple[str, LinkSpeed]]:
        """Yield the links whose speed is not their tier's, the last word having the link's own line."""
        own_lines = {self._link(line.link).name: line for line in self.part.own_links}
        for link in plan.links:
            usual_speed = speed = plan.speed(link)
            if (plane := self.part.planes.get(str(link.plane))) is not None:
                speed = tier_speed(tier_speed(speed, plane), plane.host if link.is_nic else plane.fabric)
            if link.name in own_lines:
                speed = tier_speed(speed, own_lines[link.name])
            if speed != usual_speed:
                yield link.name, speed


def tier_speed(base: LinkSpeed, tier: Tier) -> LinkSpeed:
    """Return a speed with the rate and the delay that a tier gives."""
    return LinkSpeed(
        base.rate_bps if tier.rate is None else tier.rate, base.delay_s if tier.delay is None else tier.delay
    )


def schema() -> dict[str, Any]:
    """Return the JSON Schema of topology files."""
    return {"$id": SCHEMA, **TopologyPart.model_json_schema(by_alias=True)}


# ---- reading ------------------------------------------------------------------------------------------------


def read_topology(path: Path) -> Topology:
    """Read a topology file and check it. Raises ScenarioError with every mistake."""
    return with_all_mistakes(read(path, "topology file", "fabric"), _topology)


def _topology(document: Document) -> Topology:
    """Return the topology of a document.

    Raises ScenarioError with the mistakes of the first pass that has some.
    """
    topology = Topology(document.path, parse_model(document, document.raw, TopologyPart))
    try:
        _ = topology._grid
    except PlanError as error:
        raise ScenarioError(document.path, [grid_problem(document, error)]) from None
    if problems := [document.problem(loc, text, is_reference=True) for loc, text in _mistakes(topology)]:
        raise ScenarioError(document.path, problems)
    try:
        topology.plan(Mode.SRV6, pmtu_bytes=1024)
    except PlanError as error:
        raise ScenarioError(document.path, [_whole_problem(document, str(error))]) from None
    return topology


def grid_problem(document: Document, error: PlanError) -> Problem:
    """Return the mistake of a fabric's dimensions, at the one that does not fit where it is one alone."""
    dimension = next((key for key in GridPart.model_fields if str(error).startswith(f"{key} = ")), None)
    return document.problem(("fabric", dimension) if dimension else ("fabric",), str(error))


def _whole_problem(document: Document, text: str) -> Problem:
    """Return the mistake of the parts together, at the part that takes the most away."""
    key = next((key for key in ("holes", "planes", "names", "links", "fabric") if key in document.raw), "fabric")
    return document.problem((key,), text, is_reference=True)


def _mistakes(topology: Topology) -> Iterator[tuple[Loc, str]]:
    part, grid = topology.part, topology._grid
    nodes = grid.node_names
    # Each part of the file by itself; what they make together is for the plan to judge.
    for grid_name in part.names:
        if grid_name not in nodes:
            yield ("names", grid_name), f"no node {grid_name!r} in the grid ({suggestion(grid_name, nodes)})"
    yield from _name_mistakes(part.names, nodes)
    for key, plane in part.planes.items():
        if not (key.isdigit() and int(key) < grid.planes):
            yield ("planes", key), f"no plane {key!r} (has: 0 to {grid.planes - 1}). Cure: a larger `fabric.planes`"
        for name in ("racks", "spines"):
            count, largest = getattr(plane, name), getattr(grid, name)
            if count is not None and count > largest:
                yield (
                    ("planes", key, name),
                    f"{name} = {count}, and the grid has {largest}. Cure: `fabric.{name}` is the largest of all planes",
                )
    references = [
        *((("holes", index), name) for index, name in enumerate(part.holes)),
        *((("own_links", index, "link"), line.link) for index, line in enumerate(part.own_links)),
    ]
    for loc, name in references:
        for text in _place_mistakes(topology, name, needs_link=loc[0] == "own_links"):
            yield loc, text


def _name_mistakes(names: dict[str, str], nodes: list[str]) -> Iterator[tuple[Loc, str]]:
    first_by_name: dict[str, str] = {}
    for grid_name, name in names.items():
        loc: Loc = ("names", grid_name)
        if mistake := name_mistake(name):
            yield loc, f"name {name!r}. Cure: {mistake}"
        if name in first_by_name:
            yield loc, f"name {name!r} is that of {first_by_name[name]} already. Cure: give each its own"
        elif name in nodes and name not in names:
            yield loc, f"name {name!r} is that of another part of the grid. Cure: another name, or a name for that too"
        first_by_name.setdefault(name, grid_name)


def _place_mistakes(topology: Topology, name: str, *, needs_link: bool) -> Iterator[str]:
    """Yield what is wrong with the name of a node or a link."""
    grid, words = topology._grid, topology.grid_name(name).split()
    names = [*topology.part.names.values(), *grid.node_names]
    unknown = [own_word for own_word, word in zip(name.split(), words, strict=True) if word not in grid.node_names]
    for word in unknown:
        yield f"no node {word!r} ({suggestion(word, names)})"
    if unknown:
        return
    if len(words) not in ((2,) if needs_link else (1, 2)):
        yield f"{name!r} is no {'link' if needs_link else 'node or link'}. Cure: a link is two nodes, `p0-t0-0 p0-t1-1`"
    elif len(words) == 2:
        try:
            grid.link_named(" ".join(words))
        except PlanError as error:
            yield str(error)


# ---- in a scenario ------------------------------------------------------------------------------------------

_OVERRIDES = ("live", "bmv2", "virtual")
_NAMED_OVERRIDES = ("variants", "scale")


def topology_of(scenario: Scenario) -> Topology | None:
    """Return the topology that a scenario names; None: none. Raises ScenarioError."""
    if scenario.fabric.file is None:
        return None
    path = Path(scenario.fabric.file)
    try:
        status = path.stat()
    except OSError:
        return read_topology(path)  # its message says what is wrong
    return _read_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _read_once(path: Path, _time_ns: int, _size: int) -> Topology:
    """Read a file once for all runs of a sweep; a file that changed is another one."""
    return read_topology(path)


def with_topology(scenario: Scenario) -> Scenario:
    """Return a scenario with the dimensions and links of its topology file.

    Links that the scenario gives itself take precedence. Raises ScenarioError.
    """
    topology = topology_of(scenario)
    if topology is None:
        return scenario
    sizes = topology.part.fabric.model_dump()
    own_links = {key: getattr(scenario.links, key) for key in scenario.links.model_fields_set}
    links = topology.part.links
    file_links = {key: getattr(links, key) for key in links.model_fields_set}
    return scenario.model_copy(
        update={
            "fabric": scenario.fabric.model_copy(update=sizes),
            "links": LinksPart.model_construct(**{**file_links, **own_links}),
        }
    )


def topology_files(document: Document) -> dict[str, bytes]:
    """Return name and content of the topology files that a scenario file names. Raises OSError."""
    raw = document.raw
    parts = [raw, *(raw.get(key) for key in _OVERRIDES)]
    parts += [part for key in _NAMED_OVERRIDES for part in (raw.get(key) or {}).values()]
    fabrics = [part.get("fabric") for part in parts if isinstance(part, dict)]
    files = [fabric["file"] for fabric in fabrics if isinstance(fabric, dict) and isinstance(fabric.get("file"), str)]
    folder = document.path.resolve().parent
    paths = [path if (path := folder / file).exists() else folder / Path(file).name for file in files]
    return {path.name: path.read_bytes() for path in paths}
