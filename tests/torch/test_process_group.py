"""Backend mrc of torch.distributed: two ranks on the NIC processes of two hosts, without root."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE, library
from tests.hosts.nicd.nic_processes import NicProcesses

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")
PROGRAM = Path(__file__).with_name("rank_program.py")
PATIENCE_S = 110


def _cases() -> list[str]:
    """Return the names in the program's table; the program itself registers a backend when it is imported."""
    table = next(
        node.value
        for node in ast.parse(PROGRAM.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASES"
    )
    return [element.id for element in table.generators[0].iter.elts]


def start(case, rank, socket, store):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), case],
        env={
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "STORE": str(store),
            SOCKET_VARIABLE: str(socket),
            "LD_PRELOAD": str(library()),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("case", _cases())
def test_backend__of_two_ranks(tmp_path, case):
    with NicProcesses(tmp_path) as processes:
        # One rank a host: the fabric carries nothing from a host to itself.
        ranks = [start(case, rank, path, tmp_path / "store") for rank, path in enumerate(processes.sockets.values())]
        try:
            outputs = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    lasting_ranks = [0] if case == "dead_rank" else [0, 1]
    for rank in lasting_ranks:
        assert outputs[rank].endswith("passed\n"), outputs[rank]
