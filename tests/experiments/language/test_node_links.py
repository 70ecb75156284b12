"""Node and link lists as topology files, and why some are none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mrc_testbed.experiments.language.node_links import import_topology
from mrc_testbed.experiments.language.topology import read_topology
from mrc_testbed.experiments.language.yaml_loader import ScenarioError

CLOS = Path(__file__).parents[3] / "examples" / "topologies" / "clos.clab.yml"


def _topology_file(folder: Path, change: Callable[[str], str] = str, hosts: str | None = None) -> Path:
    source, result = folder / "list.yml", folder / "fabric.yaml"
    source.write_text(change(CLOS.read_text()))
    result.write_text(import_topology(source, hosts))
    return result


def test_import__links_decide_planes_and_tiers(tmp_path: Path) -> None:
    plan = read_topology(_topology_file(tmp_path)).plan("srv6", pmtu_bytes=1024)
    assert (plan.planes, plan.racks, plan.spines, plan.hosts_per_rack) == (2, 2, 2, 2)
    assert [host.name for host in plan.hosts] == ["client1", "client2", "client3"]
    links = {
        tuple(line.split("[")[1].split("]")[0].replace(" ", "").split(","))
        for line in CLOS.read_text().splitlines()
        if "endpoints" in line
    }
    assert {link.ends for link in plan.links} == {frozenset(end.split(":")[0] for end in ends) for ends in links}


def test_import__takes_lists_of_pairs_and_a_pattern(tmp_path: Path) -> None:
    source = tmp_path / "pairs.yml"
    source.write_text("nodes: [a, b, s, t, top]\nlinks: [[a, s], [b, t], [s, top], [t, top]]\n")
    assert "p0-t1-0: top" in import_topology(source, "[ab]")


def _without(text: str) -> Callable[[str], str]:
    return lambda content: "".join(line for line in content.splitlines(keepends=True) if text not in line)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_without("leaf2:e1-50"), "leaf2 has no link to spine2"),
        (lambda text: text.replace("[leaf2:e1-50, spine2:e1-2]", "[leaf2:e1-50, leaf1:e1-9]"), "leaf2 and leaf1 both"),
        (lambda text: text + "    - endpoints: [spine1:e9, spine2:e9]\n", "spine1 and spine2 have no hosts"),
        (lambda text: text + "    - endpoints: [client1:e9, client2:e9]\n", "hosts client1 and client2"),
        (lambda text: text + "    - endpoints: [client1:e9, leaf2:e9]\n", "client1 is linked to leaf1 and leaf2"),
        (lambda text: text + "    - endpoints: [leaf1:e9, spine1:e9]\n", "a second link between leaf1 and spine1"),
        (lambda text: text + "    - endpoints: [leaf1:e9, leaf9:e9]\n", "no node 'leaf9'"),
        (lambda text: text + "    - endpoints: [leaf1:e9]\n", "no link"),
        (lambda text: text.replace("[client2:eth2, leafb1:e1-2]", "[client2:eth2, leafb2:e1-2]"), "no rack"),
        (lambda text: text.replace("{kind: linux}", "{kind: ceos}"), "nobody is called a host"),
        (lambda text: text.replace("client3", "client.3"), "name 'client.3'"),
        (_without("- endpoints"), "`nodes` and `links`"),
    ],
)
def test_import__refuses_with_reason_and_line(tmp_path: Path, change: Callable[[str], str], text: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        _topology_file(tmp_path, change)
    (problem, *_) = [problem for problem in refusal.value.problems if text in problem.text]
    assert problem.line > 1 and "Cure" in problem.text
