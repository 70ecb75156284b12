"""`mrc bench exec`: what it reads from perftest, and the whole on a live fabric."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from tools.bench import programs

LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 8       1000          214.85         2642.15      397.08             577.48
---------------------------------------------------------------------------------------
"""


def test_row__is_the_last_one_of_perftest():
    assert programs._row(LATENCY)[4] == 397.08


def test_tcp_latency__is_measured():
    assert 0 < programs._tcp_latency_us() < 1e6


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets")
def test_bench_exec__compares_a_program_with_the_agents():
    run = CliRunner().invoke(app, ["bench", "exec", "--seconds", "1", "--size", "8M", "--json"])
    result = json.loads(run.stdout)
    assert result["program_bytes_right"] and run.exit_code == (0 if result["met"] else 1)
    for side in programs.SIDES:
        assert result["ratio"][side] == pytest.approx(result["program"][side] / result["agent"][side], rel=0.05)
