"""Sizes of fabrics by formula: the paper's own figures, and what the plan of a small one counts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mrc_testbed.cli.plan import on_this_machine
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.sizing import FabricSize
from tests.repository import ROOT


def test_papers_fabric__has_the_papers_figures():
    """mrc-protocol §11, capacity facts."""
    size = FabricSize.for_nics(131072, radix=512, planes=8, nic_bps=800e9)
    assert (size.t0s, size.uplinks, size.nics_per_t0, size.port_bps) == (512, 256, 256, 100e9)
    blast = {loss.failed_part: loss for loss in size.blast()}
    link = blast["T0-T1 link"]
    assert (round(100 * link.of_uplinks, 1), round(100 * link.single_plane)) == (0.4, 3)
    assert blast["NIC port or its link"].of_nic == 0.125
    four = FabricSize.for_nics(131072, radix=512, planes=4, nic_bps=800e9)
    assert four.blast()[0].of_nic == 0.25
    single = size.single_plane()
    assert single["nics_max"] == 65536
    assert single["switch_share"] == pytest.approx(3 / 5) and single["optics_share"] == pytest.approx(2 / 3)


def test_usids__of_the_papers_fabric_fit():
    size = FabricSize.for_nics(131072, radix=512, planes=8, nic_bps=800e9)
    assert size.usid_bits() == 2 + 3 + 9 <= 16
    assert max(size.entries().values()) == 513 <= 1024, "of p4src/srv6.p4's tables"


@pytest.mark.parametrize("parts", [(4, 2, 2, 2), (4, 8, 8, 1), (2, 3, 2, 5)])
def test_parts__are_counted_as_the_plan_counts_them(parts):
    planes, racks, spines, hosts = parts
    plan = Plan(planes, racks, spines, hosts)
    size = FabricSize.for_parts(planes=planes, t0s=racks, uplinks=spines, nics_per_t0=hosts, nic_bps=40e6)
    assert (size.nics, size.switches, size.links) == (len(plan.hosts), len(plan.switches), len(plan.links))
    assert size.paths == len(plan.evs(plan.hosts[0], plan.hosts[-1]))


def test_t1s__have_as_many_links_to_every_t0():
    size = FabricSize.for_nics(160, radix=64, planes=4, nic_bps=800e9)
    assert (size.t0s, size.uplinks, size.t1s) == (5, 32, 4), "8 links to each of 5 T0s, where 3 T1s would have 10 or 11"
    assert size.entries() == {"T0": 65, "T1": 41} and size.single_plane()["radix"] == 16
    assert FabricSize.for_nics(8, radix=8, planes=4, nic_bps=40e6).single_plane() is None


def test_one_rack__has_one_tier():
    size = FabricSize.for_nics(30, radix=64, planes=4, nic_bps=800e9)
    assert (size.t0s, size.t1s, size.uplinks, size.to_json()["tiers"]) == (1, 0, 0, 1)
    assert [loss.failed_part for loss in size.blast()] == ["NIC port or its link", "T0", "plane"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nics": 131073, "radix": 512}, "hold 131072 at most"),
        ({"nics": 8, "radix": 7}, "give an even number"),
        ({"nics": 0, "radix": 8}, "--nics 0: 1 or more"),
    ],
)
def test_what_cannot_be__is_told(options, text):
    with pytest.raises(UsageError, match=text):
        FabricSize.for_nics(**options, planes=8, nic_bps=800e9)


def test_estimate__of_packets_is_what_a_run_sends(tmp_path):
    (tmp_path / "full.yaml").write_text(
        "title: all send\nfabric: {planes: 4, racks: 2, spines: 4, hosts_per_rack: 4}\n"
        "workload: [{permutation: [[h0, h1, h2, h3], [h0, h1, h2, h3]], name: a, message: 64K, depth: 8},"
        " {permutation: [[h4, h5, h6, h7], [h4, h5, h6, h7]], name: b, message: 64K, depth: 8}]\nduration: 1s\n"
    )
    (run,) = plan_runs(read(tmp_path / "full.yaml"), "virtual").runs
    sent = sum(flow.sent for flow in VirtualRunner().run(run).flows)
    size = FabricSize.for_parts(planes=4, t0s=2, uplinks=4, nics_per_t0=4, nic_bps=40e6)
    assert sent == pytest.approx(on_this_machine(size)["packets_per_virtual_second"], rel=0.15)


def test_fluid__takes_what_is_too_large_for_packets():
    large_estimate = on_this_machine(FabricSize.for_nics(131072, radix=512, planes=8, nic_bps=800e9))
    assert (large_estimate["live"], large_estimate["virtual"], large_estimate["fluid"]) == (False, False, True)
    assert large_estimate["fluid_bytes"] < 8e9
    assert large_estimate["cpu_s_per_virtual_second"] is None
    small_estimate = on_this_machine(FabricSize.for_parts(planes=4, t0s=2, uplinks=2, nics_per_t0=2, nic_bps=40e6))
    assert small_estimate["live"] and small_estimate["virtual"] and small_estimate["cpu_s_per_virtual_second"] > 0


def test_other_way_round__parts_given_nics_out():
    """The paper's fabric by its parts is the one by its NICs."""
    by_nics = FabricSize.for_nics(131072, radix=512, planes=8, nic_bps=800e9)
    by_parts = FabricSize.for_parts(planes=8, t0s=512, uplinks=256, nics_per_t0=256, nic_bps=800e9)
    assert by_parts == by_nics


def mrc(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mrc_testbed", "plan", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_command__shows_tables_and_json():
    table = mrc("--nics", "131072", "--radix", "512", "--rate", "800G").stdout
    assert "T0 513 of 1,024" in table and "0.60 of its" in table and max(map(len, table.splitlines())) <= 100
    estimate = json.loads(
        mrc("--planes", "4", "--racks", "2", "--spines", "2", "--hosts-per-rack", "2", "--json").stdout
    )
    assert (estimate["switches"], estimate["here"]["live"]) == (16, True)
    refusal = mrc("--nics", "5", "--racks", "2")
    assert refusal.returncode == 1 and "give --nics and --radix, or --racks" in refusal.stderr


def test_command__writes_a_file_and_reads_it(tmp_path):
    file = str(tmp_path / "fabric.json")
    export = mrc("--nics", "64", "--radix", "16", "--planes", "2", "--infragraph", file, "--json")
    reload = mrc("--from", file, "--json")
    assert export.returncode == reload.returncode == 0
    size, reloaded_size = json.loads(export.stdout), json.loads(reload.stdout)
    assert size["switches"] == reloaded_size["switches"] == 2 * (8 + 4) and size["links"] == reloaded_size["links"]
    refusal = mrc("--from", file, "--nics", "3")
    assert refusal.returncode == 1 and "give --from, or the fabric by other options" in refusal.stderr
