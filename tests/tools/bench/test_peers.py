"""`mrc bench peers`: what it writes for htsim_uec and reads from it, and the cases here.

htsim_uec itself is not in this tree: a script in its place prints lines of the forms that commit 40ccb05 prints.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from tools.bench import peers

FABRIC = peers.LeafSpine(racks=2, hosts_per_rack=2, rate_bps=100e9)
HTSIM = """\
#!/usr/bin/env python3
import re, sys
words = dict(zip(sys.argv, sys.argv[1:]))
flows = re.findall(r"^(\\d+)->(\\d+) id", open(words["-tm"]).read(), re.MULTILINE)
for source, target in flows:
    flow = f"Flow Uec_{source}_{target} flowId 7 uecSrc 6"
    print(flow, "starting at 0")
    print(flow, "finished at 180.5 total messages 1 total packets 9")
print("New: 512 Rtx: 3 RTS: 0 Bounced: 0 ACKs: 500 NACKs: 2 Pulls: 0 sleek_pkts: 0")
"""


@pytest.fixture
def htsim(tmp_path: Path) -> Path:
    path = tmp_path / "htsim_uec"
    path.write_text(HTSIM)
    path.chmod(0o755)
    return path


def case_named(name: str) -> peers.FlowPattern:
    return next(case for case in peers.cases_of(FABRIC) if case.name == name)


def test_topology__says_how_leaves_and_spines_are_wired():
    text = peers.topology_text(peers.LeafSpine(racks=8, hosts_per_rack=16, rate_bps=400e9), spines=4)
    assert " ".join(text.split()) == (
        "Nodes 128 Tiers 2 Podsize 128 "
        "Tier 0 Downlink_speed_Gbps 400 Radix_Down 16 Radix_Up 4 Downlink_Latency_ns 1000 Oversubscribed 4 "
        "Switch_Latency_ns 0 "
        "Tier 1 Downlink_speed_Gbps 400 Radix_Down 8 Downlink_Latency_ns 1000 Switch_Latency_ns 0"
    )


def test_matrix__has_a_line_for_each_flow():
    text = peers.matrix_text(4, [(0, 2), (1, 3)], 4096)
    assert text.splitlines() == [
        "Nodes 4",
        "Connections 2",
        "0->2 id 1 start 0 size 4096",
        "1->3 id 2 start 0 size 4096",
    ]


def test_htsim__its_flows_and_totals_are_read(htsim):
    outcome = peers.run_htsim(htsim, FABRIC, case_named("permutation"), seed=1)
    assert outcome.times_s == pytest.approx([180.5e-6] * 4)
    assert (outcome.packets, outcome.retransmitted, outcome.nacks) == (512, 3, 2)


def test_htsim__making_the_same_flows_is_not_in_its_cpu(htsim, tmp_path):
    log = tmp_path / "calls"
    htsim.write_text(HTSIM + f'print(words["-end"], len(flows), file=open({str(log)!r}, "a"))\n')
    peers.run_htsim(htsim, FABRIC, case_named("permutation"), seed=1)
    assert log.read_text().splitlines() == ["1000000 4", "1 4"]


def test_htsim__that_leaves_a_flow_out_is_no_result(htsim):
    htsim.write_text(HTSIM.replace("in flows:", "in flows[1:]:"))
    with pytest.raises(UsageError, match="3 of 4 flows ended"):
        peers.run_htsim(htsim, FABRIC, case_named("permutation"), seed=1)
    htsim.write_text("#!/bin/sh\necho no >&2; exit 3\n")
    with pytest.raises(UsageError, match="exit code 3: no"):
        peers.run_htsim(htsim, FABRIC, case_named("permutation"), seed=1)


def test_htsim__that_cannot_be_run_is_named(tmp_path):
    with pytest.raises(UsageError, match="give the path of the program"):
        peers.run_htsim(tmp_path, FABRIC, case_named("permutation"), seed=1)


@pytest.mark.parametrize("as_htsim", [False, True])
@pytest.mark.parametrize("name", ["permutation", "incast of 3", "one slow spine", "oversubscribed 2 to 1"])
def test_mrc__every_flow_ends_near_its_ideal(name, as_htsim):
    case = case_named(name)
    outcome = peers.run_mrc(FABRIC, case, 1, as_htsim=as_htsim)
    assert outcome.packets == len(case.pairs) * case.flow_bytes // peers.PAYLOAD
    senders = len(case.pairs) if name.startswith("incast") else 1
    # A spine at a quarter of its rate leaves 1.25 of 2; half the spines leave half.
    share = {"one slow spine": 1.25 / 2, "oversubscribed 2 to 1": 1 / 2}.get(name, 1.0)
    ideal_s = senders * case.flow_bytes * 8 / FABRIC.rate_bps / share
    # MRC passes over a marked EV once: with two spines a third of the packets meets the slow one all the same.
    assert 1.0 < max(outcome.times_s) / ideal_s < (3.0 if case.slow_spine else 1.7)


def test_table__has_a_row_for_each_simulator_and_the_ratio(htsim):
    result = peers.run(htsim, FABRIC, 1, [case_named("permutation")], console=Console(file=io.StringIO()))
    text = io.StringIO()
    peers.show(result, Console(file=text, width=200))
    for word in ("permutation", *peers.COLUMNS.values(), "180 us"):
        assert word in text.getvalue()
    (row,) = result["cases"]
    assert row["ratio"]["mrc"] == pytest.approx(row["mrc"]["last_s"] / 180.5e-6)


def test_command__json_and_an_unknown_case(htsim):
    words = ["bench", "peers", "--htsim", str(htsim), "--racks", "2", "--hosts-per-rack", "2", "--seeds", "1"]
    answer = CliRunner().invoke(app, [*words, "--cases", "permutation", "--json"])
    assert answer.exit_code == 0 and json.loads(answer.stdout)["schema"] == peers.SCHEMA
    refusal = CliRunner().invoke(app, [*words, "--cases", "ring"])
    assert isinstance(refusal.exception, UsageError) and "has: permutation, incast of 3" in str(refusal.exception)
