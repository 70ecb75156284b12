"""Topology files: what they make, and what is said of wrong ones."""

from pathlib import Path

import pytest

from mrc_testbed.experiments.language.expand import expand
from mrc_testbed.experiments.language.topology import read_topology, schema, topology_files
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.simulator.planned_fabric import fabric_of
from mrc_testbed.topologies.plan import LinkSpeed, Plan

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "topologies").glob("*.yaml"))
SCENARIO = "title: x\nfabric: {file: fabric.yaml}\nworkload: [{stream: h0 h2, bytes: 64K}]\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "fabric.yaml"
    path.write_text(text)
    return path


def test_plan__of_numbers_alone_is_that_of_the_options(tmp_path: Path) -> None:
    path = _file(tmp_path, "fabric: {planes: 2, racks: 2, spines: 3, hosts_per_rack: 1}\n")
    assert read_topology(path).plan("srv6", pmtu_bytes=1024) == Plan.scaled(2, 2, 3, 1)


def test_plan__planes_differ_in_racks_spines_and_rates(tmp_path: Path) -> None:
    text = "fabric: {planes: 2, racks: 3}\nplanes:\n  1: {racks: 2, spines: 1, rate: 5M, host: {delay: 2ms}}\n"
    plan = read_topology(_file(tmp_path, text)).plan("srv6", pmtu_bytes=1024)
    assert [switch.name for switch in plan.switches if switch.plane == 1] == ["p1-t0-0", "p1-t0-1", "p1-t1-0"]
    assert plan.speed(plan.link("h0", "p1-t0-0")) == LinkSpeed(5e6, 0.002)
    assert plan.speed(plan.link("p1-t0-0", "p1-t1-0")).rate_bps == 5e6
    assert plan.speed(plan.link("h0", "p0-t0-0")).rate_bps == 10e6


def test_read_topology__says_all_mistakes_in_one_pass(tmp_path: Path) -> None:
    text = (
        "fabric: {planes: 2}\nlinks: {rate: 10X}\nplanes:\n  4: {spines: 1}\n  1: {spines: 7, spins: 1}\n"
        'holes: [h9, p0-t0-0 p1-t1-0, 5]\nnames: {h0: h1, p7: y, h2: "a b"}\n'
        "own_links:\n  - {link: p0-t0-0}\n  - {link: p0-t0-0 p0-t1-9}\n"
    )
    with pytest.raises(ScenarioError) as refusal:
        read_topology(_file(tmp_path, text))
    locations = {(problem.line, ".".join(map(str, problem.loc))) for problem in refusal.value.problems}
    assert locations == {
        (2, "links.rate"),
        (4, "planes.4"),
        (5, "planes.1.spines"),
        (5, "planes.1.spins"),
        (6, "holes.0"),
        (6, "holes.1"),
        (6, "holes.2"),
        (7, "names.h0"),
        (7, "names.p7"),
        (7, "names.h2"),
        (9, "own_links.0.link"),
        (10, "own_links.1.link"),
    }


def test_read_topology__refuses_hosts_without_a_path(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="holes: no path between"):
        read_topology(_file(tmp_path, "fabric: {planes: 2}\nholes: [p0-t0-0, p1-t0-1]\n"))


def test_own_links__take_own_names_and_either_order(tmp_path: Path) -> None:
    text = "names: {p0-t0-0: leaf, p0-t1-0: spine}\nown_links: [{link: [spine, leaf], rate: 3M}]\n"
    plan = read_topology(_file(tmp_path, text)).plan("srv6", pmtu_bytes=1024)
    assert {name: speed.rate_bps for name, speed in plan.own_speeds.items()} == {"leaf spine": 3e6}


def test_scenario__takes_dimensions_and_links_of_the_file(tmp_path: Path) -> None:
    _file(
        tmp_path,
        "fabric: {planes: 3}\nlinks: {rate: 20M, rtt: 5ms}\nholes: [h3]\nown_links: [{link: h0 p0-t0-0, rate: 5M}]\n",
    )
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO + "links: {rtt: 8ms}\n")
    document = read(scenario)
    plan = resolve(expand(document, "virtual")[0], document)
    assert (plan.fabric.planes, plan.rate_bps, plan.rtt_s, len(plan.fabric.hosts)) == (3, 20e6, 8e-3, 3)
    assert plan.lines.single["h0 p0-t0-0"].rate_bps == 5e6
    assert set(plan.link_queues) == {"h0 p0-t0-0"}


def test_scenario__says_the_mistakes_of_its_topology_file(tmp_path: Path) -> None:
    _file(tmp_path, "holes: [h9]\n")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO)
    document = read(scenario)
    with pytest.raises(ScenarioError, match=r"2:16: fabric.file: fabric.yaml:1:9: holes.0: no node 'h9'"):
        resolve(expand(document, "virtual")[0], document)


def test_scenario__refuses_dimensions_beside_a_file(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO.replace("fabric.yaml", "fabric.yaml, planes: 2"))
    with pytest.raises(ScenarioError, match="planes beside `file`"):
        expand(read(scenario), "virtual")


def test_scenario__finds_the_copy_beside_it(tmp_path: Path) -> None:
    _file(tmp_path, "fabric: {planes: 2}\n")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO.replace("fabric.yaml", "elsewhere/fabric.yaml"))
    document = read(scenario)
    assert resolve(expand(document, "virtual")[0], document).fabric == Plan.scaled(2)
    assert topology_files(document) == {"fabric.yaml": b"fabric: {planes: 2}\n"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example__carries_a_transfer_between_all_hosts(path: Path) -> None:
    plan = read_topology(path).plan("srv6", pmtu_bytes=1024)
    fabric = fabric_of(plan, seed=1)
    qps = []
    for source, target in zip(plan.hosts, [*plan.hosts[1:], plan.hosts[0]], strict=True):
        qp, _ = fabric.connect(source.name, target.name)
        region = fabric.host(target.name).endpoint.register(bytearray(1 << 16))
        qp.post_write(bytes(1 << 16), region.va, region.rkey, now=fabric.now)
        qps.append(qp)
    assert fabric.run_until(lambda: not any(qp.outstanding() for qp in qps), limit_s=30)
    assert "link_down" not in fabric.totals() and "no_route" not in fabric.totals()
    fabric.close()


def test_schema__names_every_key() -> None:
    assert set(schema()["properties"]) == {
        "schema",
        "title",
        "fabric",
        "links",
        "planes",
        "holes",
        "names",
        "own_links",
    }
