"""`mrc bench collectives`: the commands that it runs, and what it reads from them."""

from __future__ import annotations

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.plan import Plan
from tools.bench import collectives

OUTPUT = """\
[W1128 12:33:00] a warning of gloo
all_reduce 4096 bytes 0.002687 s  sent again 3  EVs out 0
all_reduce 16777216 bytes 0.604979 s
"""


def test_times__are_read_by_bytes():
    assert collectives.times_in(OUTPUT) == {4096: 0.002687, 16777216: 0.604979}


def test_times__none_is_an_error():
    with pytest.raises(FabricError, match="no time of an all_reduce in 'nothing'"):
        collectives.times_in("nothing")


def test_command__of_mpi_starts_a_rank_on_a_host_of_another_rack():
    words = collectives.command_of(Plan(), "MPI", ["./program"], 2)
    assert words[-3:] == ["-H", "h0,h2", "./program"]
    assert collectives.command_of(Plan(), "MPI", ["./program"], 4)[-2] == "h0,h1,h2,h3"


def test_command__of_torch_names_the_backend():
    assert collectives.command_of(Plan(), "gloo", ["program.py"], 4)[:5] == [
        "train",
        "--backend",
        "gloo",
        "--ranks",
        "4",
    ]
