"""Training over mrc gives the parameters that it gives over gloo: the examples, 5 steps each."""

from __future__ import annotations

import re

import pytest

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE
from tests.experiments.executors.clusters import free_port
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.repository import ROOT

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")


def train(server, example, variables, folder):
    """Run a rank of the example with each set of variables; return their SHA-256."""
    folder.mkdir()
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    sets = [master | rank_variables for rank_variables in variables]
    ends = server.run(ROOT / "examples" / example, ["--steps", "5"], sets, folder)
    outputs = [end.check(rank) for rank, end in enumerate(ends)]
    return {re.search(r"SHA-256 of the parameters (\w+)", output)[1] for output in outputs}


@pytest.mark.parametrize("example", ["ddp.py", "fsdp.py"])
def test_training__has_gloos_parameters(tmp_path, rank_server, example):
    with NicProcesses(tmp_path) as processes:
        sockets = [{SOCKET_VARIABLE: str(path)} for path in processes.sockets.values()]
        over_mrc = train(rank_server, example, sockets, tmp_path / "mrc")
    over_gloo = train(rank_server, example, [{"MRC_TRAIN_BACKEND": "gloo"}] * 2, tmp_path / "gloo")
    assert len(over_mrc) == 1 and over_mrc == over_gloo
