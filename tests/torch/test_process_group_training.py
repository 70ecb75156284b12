"""Training over mrc gives the parameters that it gives over gloo: the examples, 5 steps each."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE, library
from tests.experiments.executors.clusters import free_port
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.repository import ROOT

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")
PATIENCE_S = 110


def train(example, variables):
    """Run two ranks of the example, each with variables of its own; return their SHA-256."""
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / example), "--steps", "5"],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                **rank_variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, rank_variables in enumerate(variables)
    ]
    try:
        outputs = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return {re.search(r"SHA-256 of the parameters (\w+)", output)[1] for output in outputs}


@pytest.mark.parametrize("example", ["ddp.py", "fsdp.py"])
def test_training__has_gloos_parameters(tmp_path, example):
    with NicProcesses(tmp_path) as processes:
        over_mrc = train(
            example,
            [{SOCKET_VARIABLE: str(path), "LD_PRELOAD": str(library())} for path in processes.sockets.values()],
        )
    over_gloo = train(example, [{"MRC_TRAIN_BACKEND": "gloo"}] * 2)
    assert len(over_mrc) == 1 and over_mrc == over_gloo
