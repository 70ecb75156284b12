"""Outputs of benchmarks that need no root fit the schemas that `mrc schema` prints."""

from __future__ import annotations

from rich.console import Console

from mrc_testbed.cli.outputs.bench_outputs import BENCH_OUTPUTS
from tests.cli.json_outputs import fit
from tools.campaigns import virtual_faults
from tools.commands import bench_app


def test_every_benchmark_has_a_type() -> None:
    assert set(BENCH_OUTPUTS) == {f"bench {command.name}" for command in bench_app.registered_commands}


def test_faults__in_virtual_time_fit() -> None:
    fit("bench faults", virtual_faults.run(1, 2, jobs=1, folder=None, console=Console(quiet=True)))
