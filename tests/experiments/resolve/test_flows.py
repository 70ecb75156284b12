"""Flows and collectives of a run: which ranks write to which, in what order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.hosts.traffic.program import JoinCollective, Program, RankTasks
from tools.bench.chakra_writer import write_chakra

SCENARIO = """title: All to all
fabric: {{planes: 1, racks: 2, spines: 1, hosts_per_rack: 8}}
links: {{rate: 400G, rtt: 10us}}
transport: {{pmtu: 4096, clock: 0.001}}
workload: [{{{work}, name: job, ranks: 8}}]
"""


def all_to_all(folder: Path, as_trace: bool):
    """Return the plan of an all-to-all of 8 ranks, 64 KiB from each to each."""
    work = "collective: all_to_all, size: 512K, iterations: 1"
    if as_trace:
        task = JoinCollective(kind="all_to_all", size=1 << 19, group=tuple(range(8)))
        work = f"trace: {write_chakra(Program('job', (RankTasks((task,)),) * 8), folder, 'job')}"
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.format(work=work))
    (run,) = plan_runs(read(path), "virtual").runs
    return run


@pytest.mark.parametrize("as_trace", [False, True])
def test_all_to_all__each_rank_begins_with_the_one_after_it(tmp_path, as_trace):
    run = all_to_all(tmp_path, as_trace)
    (group,) = run.work().groups
    assert [group.peers(number)[0] for number in range(8)] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert group.peers(2) == [3, 4, 5, 6, 7, 0, 1]
    queues = VirtualRunner().run(run).counters["peak_queue_bytes"]
    # All at once to rank 0 would be 7 bursts of 8 packets.
    assert max(queues.values()) < 3 * 8 * 4300
