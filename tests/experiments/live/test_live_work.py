"""The end of a live run's work.

Failed work is over and not done, and ends nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.live.live_work import LiveWork, ended_by_power
from mrc_testbed.experiments.runner import plan_runs

TWO_JOBS = """\
title: two jobs and a flow
fabric: {planes: 1, racks: 2, spines: 1, hosts_per_rack: 2}
workload:
  - {collective: all_reduce, name: one, ranks: [h0, h2]}
  - {collective: all_reduce, name: two, ranks: [h1, h3]}
  - {stream: h0 h1, name: flow, bytes: 4K, message: 4K}
"""


def answers(first_state: str, second_state: str, flow_over: bool) -> dict[str, dict[str, Any]]:
    """Return the answers to `flow_read` by jobs that are `busy`, `done`, or `dead` at their second rank."""
    ranks = {}
    for work, state, hosts in (("one", first_state, ("h0", "h2")), ("two", second_state, ("h1", "h3"))):
        for number, host in enumerate(hosts):
            dead = state == "dead" and number == 1
            ranks[host] = {work: {"done": state == "done", "failed": int(dead)}}
    return {host: {"ranks": rank, "sources": {"flow:h0-h1": {"over": flow_over}}} for host, rank in ranks.items()}


@pytest.mark.parametrize(
    ("first_state", "second_state", "flow_over", "is_over"),
    [
        ("done", "done", True, True),
        ("done", "done", False, False),
        ("dead", "done", True, True),
        ("dead", "busy", True, False),
        ("busy", "dead", True, False),
        ("dead", "dead", True, True),
    ],
)
def test_a_job_that_failed_ends_no_other(tmp_path: Path, first_state, second_state, flow_over, is_over):
    (tmp_path / "s.yaml").write_text(TWO_JOBS)
    (plan,) = plan_runs(read(tmp_path / "s.yaml"), "live").runs
    assert LiveWork(plan).all_over(answers(first_state, second_state, flow_over)) is is_over


def test_a_host_without_power_ends_its_own_work_alone():
    qp = {"qpn": 7, "state": "rts", "error": None}
    dead_qp = {"qpn": 8, "state": "error", "error": "an earlier one"}
    answer = {
        "t": 1.0,
        "sources": {
            "a": {"over": False, "failed": 0, "latencies_s": [0.1], "qps": [qp, dead_qp]},
            "b": {"over": True, "failed": 0, "latencies_s": [], "qps": [qp]},
        },
        "sinks": {"c": {"received_bytes": 5}},
        "ranks": {"d": {"done": True, "failed": 0, "qps": [qp]}, "e": {"done": False, "failed": 0, "qps": [qp]}},
    }
    result = ended_by_power(answer, 3.0)
    lost_qp = {"qpn": 7, "state": "error", "error": "its host lost its power", "died_at": 3.0}
    assert result["sources"]["a"] == {"over": True, "failed": 1, "latencies_s": [], "qps": [lost_qp, dead_qp]}
    assert result["sources"]["b"] == answer["sources"]["b"] and result["sinks"] == answer["sinks"]
    assert result["ranks"]["d"] == answer["ranks"]["d"]
    assert result["ranks"]["e"] == {"done": False, "failed": 1, "qps": [lost_qp]}
