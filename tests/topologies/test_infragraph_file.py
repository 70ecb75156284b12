"""Fabrics as InfraGraph files.

Taken by InfraGraph's own library, read back equal, refused with the cause.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.infragraph_file import infrastructure, read, write
from mrc_testbed.topologies.sizing import FabricSize

SIZES = {
    "by NICs": FabricSize.for_nics(100, radix=16, planes=4, nic_bps=800e9),
    "several links to a T1": FabricSize.for_nics(32, radix=16, planes=2, nic_bps=400e9),
    "one T0": FabricSize.for_nics(6, radix=16, planes=2, nic_bps=400e9),
    "by parts": FabricSize.for_parts(planes=4, t0s=2, uplinks=3, nics_per_t0=2, nic_bps=40e6),
}


@pytest.mark.parametrize("name", ["fabric.yaml", "fabric.json"])
@pytest.mark.parametrize("size_name", SIZES)
def test_read__gives_what_was_written(tmp_path: Path, size_name: str, name: str) -> None:
    size = SIZES[size_name]
    write(size, tmp_path / name)
    read_size = read(tmp_path / name)
    counts = ("planes", "t0s", "uplinks", "t1s", "nics_per_t0", "nics", "nic_bps", "links", "switches")
    assert {key: getattr(read_size, key) for key in counts} == {key: getattr(size, key) for key in counts}


@pytest.mark.parametrize("size_name", SIZES)
def test_write__is_what_the_library_of_infragraph_takes(tmp_path: Path, size_name: str) -> None:
    service = pytest.importorskip("infragraph.infragraph_service", reason="the extra `infragraph` has it")
    size = SIZES[size_name]
    write(size, tmp_path / "fabric.yaml")
    judge = service.InfraGraphService()
    judge.set_graph((tmp_path / "fabric.yaml").read_text())
    graph = judge.get_networkx_graph()
    kinds = [data["type"] for _, data in graph.nodes(data=True)]
    ports = size.planes * (size.t0s * (size.nics_per_t0 + size.uplinks) + size.t0s * size.uplinks)
    assert kinds.count("xpu") == size.nics and kinds.count("nic") == size.nics * size.planes
    assert kinds.count("switch") == size.switches and kinds.count("port") == ports
    inner_edges = size.nics * size.planes + ports
    assert graph.number_of_edges() == inner_edges + size.links


def test_read__takes_a_fat_tree_that_the_library_made(tmp_path: Path) -> None:
    pytest.importorskip("infragraph", reason="the extra `infragraph` has it")
    from infragraph.blueprints.devices.generic.generic_switch import Switch
    from infragraph.blueprints.fabrics.clos_fat_tree_fabric import ClosFatTreeFabric

    host = tree_of(SIZES["one T0"])["devices"][0]
    host["components"][1]["count"] = 1
    from infragraph import Device

    fabric = ClosFatTreeFabric(Switch(8), Device().deserialize(json.dumps(host)), 2, [100, 100])
    path = tmp_path / "fat-tree.yaml"
    path.write_text(fabric.serialize(encoding="yaml"))
    size = read(path)
    assert (size.planes, size.t0s, size.t1s, size.uplinks, size.nics, size.nic_bps) == (1, 8, 4, 4, 32, 100e9)


def tree_of(size: FabricSize) -> dict[str, Any]:
    """Return a copy that may be changed."""
    tree: dict[str, Any] = json.loads(json.dumps(infrastructure(size)))
    return tree


def spoilt(*keys: Any, value: Any) -> dict[str, Any]:
    tree = tree_of(SIZES["by parts"])
    node: Any = tree
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    return tree


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        ([], "no InfraGraph Infrastructure"),
        ({"devices": 3, "instances": [], "edges": []}, "`devices` is no list"),
        (spoilt("instances", 0, "device", value="server"), "which is not among host, t0, t1"),
        (spoilt("instances", 0, "count", value=10**12), "count 1000000000000"),
        (spoilt("edges", 0, "ep1", "instance", value="hosts[0]"), "no instance 'hosts' (has: host, p0-t0"),
        (spoilt("edges", 0, "ep1", "component", value="nic[7]"), "edges[0].ep1: no slice [7] of 4"),
        (spoilt("edges", 0, "ep1", "component", value="nic[a b]"), "is no name with a slice"),
        (spoilt("edges", 0, "ep1", value=None), "`instance` is missing"),
        (spoilt("edges", 0, "ep1", "instance", value="host[0:3]"), "edges[0]: 3 ends to 2, one2one"),
        (spoilt("edges", 0, "ep1", "component", value="nic[1]"), ""),
        (spoilt("edges", 0, "ep1", "instance", value="p1-t0[0:2]"), "has no component 'nic'"),
        (spoilt("edges", value=[]), "no host with a component of choice `nic`"),
        (spoilt("links", 0, "physical", value={}), "all links need one `bandwidth`"),
        (spoilt("links", 0, "physical", "bandwidth", "gigabits_per_second", value="fast"), "all links need one"),
    ],
)
def test_read__names_what_does_not_fit(tmp_path: Path, tree: Any, error: str) -> None:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(tree))
    if not error:  # another port of the same host: planes are told by switches
        assert read(path).planes == 4
        return
    with pytest.raises(UsageError) as caught:
        read(path)
    assert error in str(caught.value) and str(path) in str(caught.value)


def test_read__planes_that_differ(tmp_path: Path) -> None:
    tree = tree_of(SIZES["by parts"])
    del tree["edges"][-1]
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(UsageError, match="planes are not alike"):
        read(path)


@pytest.mark.parametrize(("name", "text"), [("a.yaml", "a: [1"), ("a.json", "{"), ("a.json", "[" * 100_000)])
def test_read__neither_yaml_nor_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"no YAML|no JSON"):
        read(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no text"):
        read(tmp_path / name)
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match="give a file that can be written"):
        write(SIZES["one T0"], tmp_path / "missing" / "fabric.yaml")
